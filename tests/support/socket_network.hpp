// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A stand-in for src/net: net::Network over TCP on the loopback, moved along by test(), poll() and
// accept() alone. For tests of what stands on it, within one process and between processes; link it
// in place of tutti::net. Its one thread does nothing: it is there to be joined.
//
// SOCKET_NETWORK_BUG plants a bug that the driver has to find: corrupt, size, overrun (bytes),
// thread, descriptor, shared_file (outlive the network), deaf (to a peer's death), late (writes
// after the close), stuck, crash.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/result.hpp"

namespace tutti::test {

/// What the next calls do, and what there is.
struct SocketNetworkState {
  std::atomic<int> opened{0};    ///< Calls of open_network().
  std::atomic<int> networks{0};  ///< That live now.
  std::atomic<int> channels{0};
  std::atomic<std::size_t> registered_bytes{0};   ///< Of all channels.
  std::atomic<std::size_t> unfinished_max{1000};  ///< Then send() and receive() give null.
  std::atomic<int> end_ms{0};                     ///< So long a network takes to end.
  std::atomic<bool> throws{false};                ///< send() and listen() throw std::bad_alloc.
  std::atomic<int> traffic_class{0};              ///< Of the last connect().
  std::atomic<int> connect_device{-1};            ///< Same.
  std::atomic<int> listen_device{-1};             ///< Of the last listen().
  Status listen_error;
  Status open_error;  ///< Of open().
  Status call_error;  ///< Of every send(), receive() and register_memory().
};

SocketNetworkState& socket_network();

}  // namespace tutti::test
