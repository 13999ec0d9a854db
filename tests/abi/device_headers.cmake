# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Compiles device_headers_test.cpp against the vendors' headers: the fetched ones
# (TUTTI_HEADERS_{CUDA,HIP}), else what this machine has. TUTTI_CUDA_INCLUDE_DIR and
# TUTTI_HIP_INCLUDE_DIR name others, for example an old release's. Target device_headers_test.
file(GLOB tutti_cuda_candidates /usr/local/cuda/include /usr/local/cuda-*/include
     /usr/local/cuda/targets/*/include)
find_path(TUTTI_CUDA_INCLUDE_DIR NAMES cuda.h
  HINTS ${TUTTI_HEADERS_CUDA}
  PATHS ${tutti_cuda_candidates} ENV CUDA_HOME ENV CUDA_PATH
  PATH_SUFFIXES include
  NO_CMAKE_SYSTEM_PATH # /usr/include holds other files of that name.
  DOC "Directory of NVIDIA's cuda.h, for the ABI check")
find_path(TUTTI_HIP_INCLUDE_DIR NAMES hip/hip_runtime_api.h
  HINTS ${TUTTI_HEADERS_HIP}
  PATHS /opt/rocm/include ENV ROCM_PATH
  PATH_SUFFIXES include
  DOC "Directory of AMD's hip/hip_runtime_api.h, for the ABI check")

set(tutti_abi_definitions "")
set(tutti_abi_includes "")
if(TUTTI_CUDA_INCLUDE_DIR)
  list(APPEND tutti_abi_definitions TUTTI_HAVE_CUDA_H=1)
  list(APPEND tutti_abi_includes ${TUTTI_CUDA_INCLUDE_DIR})
else()
  message(STATUS "ABI check of the CUDA declarations skipped: no cuda.h "
                 "(set TUTTI_CUDA_INCLUDE_DIR)")
endif()
if(TUTTI_HIP_INCLUDE_DIR)
  list(APPEND tutti_abi_definitions TUTTI_HAVE_HIP_H=1 __HIP_PLATFORM_AMD__)
  list(APPEND tutti_abi_includes ${TUTTI_HIP_INCLUDE_DIR})
else()
  message(STATUS "ABI check of the HIP declarations skipped: no hip/hip_runtime_api.h "
                 "(set TUTTI_HIP_INCLUDE_DIR)")
endif()

if(tutti_abi_definitions)
  add_library(device_headers_test OBJECT ${CMAKE_CURRENT_LIST_DIR}/device_headers_test.cpp)
  target_compile_definitions(device_headers_test PRIVATE ${tutti_abi_definitions})
  target_include_directories(device_headers_test SYSTEM PRIVATE ${tutti_abi_includes})
  target_include_directories(device_headers_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(device_headers_test PRIVATE tutti_options)
endif()
