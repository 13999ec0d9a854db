# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# src/nccl_net/abi.hpp against a second declaration of the same, our own: no vendor's header is
# needed. It compiles or it does not: there is nothing to run.
add_library(net_plugin_test OBJECT ${CMAKE_CURRENT_LIST_DIR}/net_plugin_test.cpp)
target_link_libraries(net_plugin_test PRIVATE tutti_options)
