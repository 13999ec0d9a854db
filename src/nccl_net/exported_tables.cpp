// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// All that is in libnccl-net-tutti.so: the names that NCCL looks for. A new version: a line here
// and in adapters.cpp.
#include "nccl_net/abi.hpp"
#include "nccl_net/table.hpp"

// NOLINTBEGIN(readability-identifier-naming): NCCL's names.
// Copied when the object is loaded, after libtutti.so, which it needs.
#define TUTTI_EXPORT(version)                                                        \
  extern "C" [[gnu::visibility("default")]] const tutti::nccl_net::abi::Net<version> \
      ncclNetPlugin_v##version;                                                      \
  const tutti::nccl_net::abi::Net<version> ncclNetPlugin_v##version =                \
      *static_cast<const tutti::nccl_net::abi::Net<version>*>(TUTTI_NCCL_NET_TABLE(version))
TUTTI_EXPORT(6);
TUTTI_EXPORT(7);
TUTTI_EXPORT(8);
TUTTI_EXPORT(9);
TUTTI_EXPORT(10);
TUTTI_EXPORT(11);
TUTTI_EXPORT(12);
// NOLINTEND(readability-identifier-naming)
