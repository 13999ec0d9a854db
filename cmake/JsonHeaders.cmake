# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# The target nlohmann_json::nlohmann_json: the installed CMake package, else the headers in the
# PyPI package nlohmann-json (the Python at hand has it in an isolated wheel build; otherwise it is
# unpacked under the build directory).
include_guard(GLOBAL)
include(PypiPackage)

function(tutti_json_headers)
  find_package(nlohmann_json 3.10 QUIET GLOBAL)
  if(TARGET nlohmann_json::nlohmann_json)
    message(STATUS "nlohmann_json: ${nlohmann_json_DIR} (${nlohmann_json_VERSION})")
    return()
  endif()

  set(include "")
  if(Python3_EXECUTABLE)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c
              "import nlohmann_json, os; print(os.path.dirname(nlohmann_json.__file__))"
      OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(include "${package}/include")
    endif()
  endif()
  if(NOT EXISTS "${include}/nlohmann/json.hpp")
    tutti_pypi_package(package "nlohmann-json>=3.11,<4")
    set(include "${package}/nlohmann_json/include")
  endif()
  if(NOT EXISTS "${include}/nlohmann/json.hpp")
    message(FATAL_ERROR
      "nlohmann/json.hpp not found. Remedy: apt-get install nlohmann-json3-dev, or "
      "pip install nlohmann-json, or put its wheel into the directory TUTTI_WHEELS names.")
  endif()
  message(STATUS "nlohmann_json: ${include}")
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
  target_include_directories(nlohmann_json::nlohmann_json SYSTEM INTERFACE "${include}")
endfunction()

tutti_json_headers()
