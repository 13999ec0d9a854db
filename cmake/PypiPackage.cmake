# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# tutti_pypi_package(<result> <requirement>): the contents of a pure-data wheel from PyPI, unpacked
# under <build>/pypi/<name> at configure time; <result> is that directory, or empty when the wheel
# cannot be had. No root, nothing installed: `pip download` and an unzip. (`pip install --target`
# would lose a wheel's lib/ data files, `--prefix` means another place on Debian.)
#
# TUTTI_WHEELS (environment): a directory of wheels to take instead of the network.
include_guard(GLOBAL)

find_package(Python3 3.11 QUIET COMPONENTS Interpreter)

function(tutti_pypi_package result requirement)
  string(REGEX MATCH "^[A-Za-z0-9_.-]+" name "${requirement}")
  set(place "${PROJECT_BINARY_DIR}/pypi/${name}")
  set(${result} "" PARENT_SCOPE)
  if(EXISTS "${place}/.complete")
    set(${result} "${place}" PARENT_SCOPE)
    return()
  endif()

  set(from "")
  if(NOT "$ENV{TUTTI_WHEELS}" STREQUAL "")
    file(REAL_PATH "$ENV{TUTTI_WHEELS}" wheels BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set(from --no-index --find-links "${wheels}")
  endif()
  # The interpreter of an isolated build may have no pip of its own: others are asked in turn.
  find_program(TUTTI_SYSTEM_PYTHON NAMES python3 python)
  mark_as_advanced(TUTTI_SYSTEM_PYTHON)
  set(downloads "${place}.download")
  set(pythons ${Python3_EXECUTABLE} ${TUTTI_SYSTEM_PYTHON})
  list(REMOVE_DUPLICATES pythons)
  foreach(python IN LISTS pythons)
    file(REMOVE_RECURSE "${downloads}" "${place}")
    execute_process(
      COMMAND "${python}" -m pip download --quiet --disable-pip-version-check --no-deps
              --only-binary :all: --retries 1 --dest "${downloads}" ${from} "${requirement}"
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET TIMEOUT 300)
    file(GLOB wheel "${downloads}/*.whl")
    if(NOT failed AND wheel)
      file(ARCHIVE_EXTRACT INPUT "${wheel}" DESTINATION "${place}")
      file(REMOVE_RECURSE "${downloads}")
      file(TOUCH "${place}/.complete")
      set(${result} "${place}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  file(REMOVE_RECURSE "${downloads}")
endfunction()
