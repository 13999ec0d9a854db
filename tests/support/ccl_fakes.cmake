# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# fake_nccl and fake_rccl: the fakes of NCCL and RCCL from one source, each in the directory of
# its device fake, so that one LD_LIBRARY_PATH entry makes a machine without GPUs look like one.
include_guard(GLOBAL)

function(tutti_ccl_fake target directory soname source)
  add_library(${target} SHARED ${source})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_link_libraries(${target} PRIVATE tutti_options Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/support/fakes/${directory}
    PREFIX "" OUTPUT_NAME ${soname} SUFFIX "" NO_SONAME ON
    LINKER_LANGUAGE CXX)
  target_link_options(${target} PRIVATE LINKER:-soname,${soname})
endfunction()

set(ccl_fake "${PROJECT_SOURCE_DIR}/tests/support/fake_nccl.cpp")
tutti_ccl_fake(fake_nccl cuda libnccl.so.2 "${ccl_fake}")
tutti_ccl_fake(fake_rccl hip librccl.so.1 "${ccl_fake}")
target_compile_definitions(fake_rccl PRIVATE FAKE_CCL_HIP)
