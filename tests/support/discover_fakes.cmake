# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# The fakes of the management libraries: <build>/tests/support/fakes/management/
# libnvidia-ml.so.1 and librocm_smi64.so.1. Targets fake_nvml and fake_rocm_smi; never installed.
function(tutti_discover_fake name library)
  add_library(${name} SHARED ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE tutti_options)
  set_target_properties(${name} PROPERTIES
    OUTPUT_NAME ${library}
    SOVERSION 1
    LIBRARY_OUTPUT_DIRECTORY ${TUTTI_FAKES_DIR}/management)
endfunction()

tutti_discover_fake(fake_nvml nvidia-ml)
tutti_discover_fake(fake_rocm_smi rocm_smi64)
