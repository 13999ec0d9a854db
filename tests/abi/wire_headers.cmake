# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Compiles wire_headers_test.cpp against infiniband/verbs.h (TUTTI_HEADERS_VERBS).
if(TUTTI_HEADERS_VERBS)
  add_library(wire_headers_test OBJECT ${CMAKE_CURRENT_LIST_DIR}/wire_headers_test.cpp)
  target_include_directories(wire_headers_test SYSTEM PRIVATE ${TUTTI_HEADERS_VERBS})
  target_include_directories(wire_headers_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(wire_headers_test PRIVATE tutti_options)
endif()
