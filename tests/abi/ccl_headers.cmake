# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# src/ccl/nccl_abi.hpp against nccl.h. It compiles or it does not: there is nothing to run.
# TUTTI_NCCL_INCLUDE_DIR names another nccl.h than the fetched one, for example an old release's.
set(TUTTI_NCCL_INCLUDE_DIR "" CACHE PATH "Directory of an nccl.h to compare our declarations with")
set(nccl_include "${TUTTI_HEADERS_NCCL}")
if(TUTTI_NCCL_INCLUDE_DIR)
  set(nccl_include "${TUTTI_NCCL_INCLUDE_DIR}")
endif()
if(nccl_include)
  add_library(ccl_headers_test OBJECT ${CMAKE_CURRENT_LIST_DIR}/ccl_headers_test.cpp)
  target_link_libraries(ccl_headers_test PRIVATE tutti_options)
  # Ours of CUDA's headers first: the test needs one type of them and no CUDA installation.
  target_include_directories(ccl_headers_test SYSTEM BEFORE PRIVATE
    ${CMAKE_CURRENT_LIST_DIR}/shim ${nccl_include})
elseif(NOT DEFINED TUTTI_HEADERS_NCCL)
  message(STATUS "nccl.h not found: our declarations of it are not compared "
                 "(TUTTI_NCCL_INCLUDE_DIR)")
endif()
