# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# tutti_oldest_glibc(<target> [PROGRAM]): what is shipped runs with glibc TUTTI_OLDEST_GLIBC and
# later, on whatever system it was built. Empty: with this system's glibc and later. For wheels:
# manylinux_2_28 is 2.28, the glibc of RHEL 8. x86-64 only.
#
# The compiler and the headers are this system's. Only the linker sees an old glibc, by stand-ins
# that cmake/glibc_stubs.py makes; cmake/glibc_compat.c has what that glibc lacks.
include_guard(GLOBAL)
set(TUTTI_OLDEST_GLIBC "" CACHE STRING "Oldest glibc that what is built runs with, as in 2.28")

if(TUTTI_OLDEST_GLIBC)
  if(TUTTI_SANITIZE)
    message(FATAL_ERROR "TUTTI_OLDEST_GLIBC and TUTTI_SANITIZE exclude each other")
  endif()
  set(glibc_stubs "${PROJECT_BINARY_DIR}/glibc-${TUTTI_OLDEST_GLIBC}")
  set(glibc_python "${Python3_EXECUTABLE}")
  if(NOT glibc_python)
    find_program(glibc_python NAMES python3 NO_CACHE REQUIRED)
  endif()
  execute_process(
    COMMAND "${glibc_python}" "${CMAKE_CURRENT_LIST_DIR}/glibc_stubs.py"
            --compiler "${CMAKE_C_COMPILER}" --version ${TUTTI_OLDEST_GLIBC}
            --output "${glibc_stubs}"
    COMMAND_ERROR_IS_FATAL ANY)
  message(STATUS "oldest glibc: ${TUTTI_OLDEST_GLIBC}")
endif()

function(tutti_oldest_glibc target)
  cmake_parse_arguments(GLIBC "PROGRAM" "" "" ${ARGN})
  if(NOT TUTTI_OLDEST_GLIBC)
    return()
  endif()
  set(compat tutti_glibc_compat)
  if(GLIBC_PROGRAM)
    set(compat tutti_glibc_compat_program)
  endif()
  if(NOT TARGET ${compat})
    add_library(${compat} OBJECT "${PROJECT_SOURCE_DIR}/cmake/glibc_compat.c")
    set_target_properties(${compat} PROPERTIES C_STANDARD 11)
    if(GLIBC_PROGRAM)
      target_compile_definitions(${compat} PRIVATE TUTTI_PROGRAM)
    endif()
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${compat}>)
  target_link_directories(${target} BEFORE PRIVATE "${glibc_stubs}")
endfunction()
