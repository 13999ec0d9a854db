# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Compiles discover_headers_test.cpp against nvml.h and rocm_smi.h (TUTTI_HEADERS_{NVML,ROCM_SMI}).
foreach(vendor NVML ROCM_SMI)
  if(TUTTI_HEADERS_${vendor})
    list(APPEND tutti_discover_definitions TUTTI_HAVE_${vendor}_H=1)
    list(APPEND tutti_discover_includes ${TUTTI_HEADERS_${vendor}})
  endif()
endforeach()

if(tutti_discover_definitions)
  add_library(discover_headers_test OBJECT ${CMAKE_CURRENT_LIST_DIR}/discover_headers_test.cpp)
  target_compile_definitions(discover_headers_test PRIVATE ${tutti_discover_definitions})
  target_include_directories(discover_headers_test SYSTEM PRIVATE ${tutti_discover_includes})
  target_include_directories(discover_headers_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(discover_headers_test PRIVATE tutti_options)
endif()
