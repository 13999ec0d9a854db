# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# The fakes of the GPU libraries: <build>/tests/support/fakes/cuda/libcuda.so.1 and
# .../hip/libamdhip64.so.6, for LD_LIBRARY_PATH. Targets fake_cuda and fake_hip; never installed.
set(TUTTI_FAKES_DIR ${CMAKE_BINARY_DIR}/tests/support/fakes)

function(tutti_device_fake name library version directory)
  add_library(${name} SHARED ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${name}.cpp)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/..)
  target_link_libraries(${name} PRIVATE tutti_host_device_archive)
  # Its copy of our rooms stays its own: nothing but the marked functions is visible.
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic)
  set_target_properties(${name} PROPERTIES
    OUTPUT_NAME ${library}
    SOVERSION ${version}
    LIBRARY_OUTPUT_DIRECTORY ${TUTTI_FAKES_DIR}/${directory})
endfunction()

tutti_device_fake(fake_cuda cuda 1 cuda)
tutti_device_fake(fake_hip amdhip64 6 hip)
