# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# The fake of libibverbs: <build>/tests/support/fakes/verbs/libibverbs.so.1. Target fake_verbs;
# never installed.
add_library(fake_verbs SHARED ${CMAKE_CURRENT_LIST_DIR}/fake_verbs.cpp)
target_link_libraries(fake_verbs PRIVATE tutti_options)
target_include_directories(fake_verbs PRIVATE ${PROJECT_SOURCE_DIR}/tests)
set_target_properties(fake_verbs PROPERTIES
  OUTPUT_NAME ibverbs
  SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${TUTTI_FAKES_DIR}/verbs)
