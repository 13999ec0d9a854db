// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Between libnccl-net-tutti.so, which NCCL loads, and libtutti.so beside it, where the network is.
// NCCL's names are in the first alone: libtutti.so is in programs whose NCCL may have another
// plugin.
#pragma once

/// The table of that version of NCCL's interface, an abi::Net<version>, or null where there is
/// none. It lasts as long as the process. What the environment asks of NCCL counts when it is
/// called.
extern "C" [[gnu::visibility("default")]] const void* TUTTI_NCCL_NET_TABLE(int version) noexcept;
