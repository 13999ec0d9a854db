# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# tutti_precompile(<target> <kind>): the target's C++ sources start from headers that were compiled
# once in this build directory. Only standard headers and GoogleTest's: a change of our own headers
# rebuilds what includes them, and no more. An option that the compiler holds to change a header's
# meaning must be the same where it is made and where it is used, so there is a kind for each:
#
#   room    rooms and shared objects, under a sanitizer
#   test    GoogleTest programs, optimized, under a sanitizer
#   unit    GoogleTest programs without optimization
#
# A source then compiles without its includes, too. Builds without it show that they are complete:
# the presets dev (but for tests), release and lint. ccache takes such sources for new ones unless it
# is told otherwise, so behind it there are none.
include_guard(GLOBAL)
option(TUTTI_PRECOMPILED_HEADERS "Compile the standard headers and GoogleTest's once" OFF)

set(TUTTI_ROOM_HEADERS
  algorithm array atomic chrono cstdint cstring functional map memory mutex optional set span string
  string_view utility variant vector)
set(TUTTI_TEST_HEADERS
  ${TUTTI_ROOM_HEADERS} filesystem fstream iostream sstream thread gtest/gtest.h)

# A target of its own holds them, of the sort of those that use them: libraries and programs have
# different options for position independence.
function(tutti_precompiled_owner owner kind)
  set(source "${PROJECT_BINARY_DIR}/precompiled/${kind}.cpp")
  if(kind STREQUAL "room")
    file(CONFIGURE OUTPUT "${source}" CONTENT "")
    add_library(${owner} OBJECT EXCLUDE_FROM_ALL "${source}")
    set(headers ${TUTTI_ROOM_HEADERS})
  else()
    file(CONFIGURE OUTPUT "${source}" CONTENT "int main() {}\n")
    add_executable(${owner} EXCLUDE_FROM_ALL "${source}")
    target_link_libraries(${owner} PRIVATE tutti_options tutti_test_options GTest::gtest_main)
    set(headers ${TUTTI_TEST_HEADERS})
  endif()
  target_link_libraries(${owner} PRIVATE tutti_options)
  if(kind STREQUAL "unit")
    target_compile_options(${owner} PRIVATE -O0)
  endif()
  list(TRANSFORM headers REPLACE "(.+)" "<\\1>")
  target_precompile_headers(${owner} PRIVATE ${headers})
endfunction()

function(tutti_precompile target kind)
  if(NOT TUTTI_PRECOMPILED_HEADERS OR "${CMAKE_CXX_COMPILER_LAUNCHER}" MATCHES "ccache")
    return()
  endif()
  # With optimization GCC 12 then warns of sizes that cannot be, in templates of standard headers.
  if(TUTTI_WERROR AND NOT kind STREQUAL "unit" AND NOT TUTTI_SANITIZE)
    return()
  endif()
  set(owner tutti_precompiled_${kind})
  if(NOT TARGET ${owner})
    tutti_precompiled_owner(${owner} ${kind})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
