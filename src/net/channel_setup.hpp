// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What two processes that have met (net/bootstrap/rendezvous.hpp) make a channel of: its
// sub-connections, each on an engine of its own at both ends, and the check that datagrams pass
// both ways. Nothing here blocks.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "net/engine.hpp"
#include "net/network.hpp"
#include "wire/udp/socket_address.hpp"

namespace tutti::net {

/// Of a connection. A queue that overflows is one path's: with one window for all of them it would
/// slow all down; with one for each path, many connections at once never have less than a chunk on
/// each.
constexpr std::uint32_t kWindowGroups = 8;

/// Filters repeated warnings: the same text is given once, not for each channel or host.
class WarnOnce {
 public:
  bool is_new(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return texts_.size() < kTextsMax && texts_.insert(text).second;
  }

 private:
  static constexpr std::size_t kTextsMax = 16;
  std::mutex mutex_;
  std::set<std::string> texts_;
};

/// What both sides need to know of this process.
struct ChannelOptions {
  std::string controller;
  std::string spray;
  std::string wire;
  bool authenticates = true;
  transport::TimeNs timeout_ns = 30'000'000'000;
  transport::TimeNs lazy_ns = 20'000;  ///< Most that acknowledgements of short messages wait.
  Bytes window_bytes = 0;
  std::uint64_t device_id = 0;                     ///< Handshake::device of this side.
  std::uint8_t traffic_class = 0;                  ///< Of the channels that this side connects.
  const tutti_transport_policy* policy = nullptr;  ///< Of this side alone.
  Log log;
  std::shared_ptr<WarnOnce> warn_once =
      std::make_shared<WarnOnce>();  ///< Of differences between hosts.
};

/// Windows, timers and acknowledgements, from what both ends have agreed on and so alike at both.
/// Once for each connection: `wire` and `window_bytes_max` (of one rail; 0: none was asked for)
/// become those of one of `sub_connections`.
void set_windows_and_timers(transport::ConnectionOptions& connection,
                            std::uint32_t sub_connections);

/// Gives the engines of the next channel of this direction with that peer (Handshake::device), one
/// for each sub-connection that it may have, 1 to kSubConnectionsMax. The peer may have fewer: then
/// the first ones count.
using ChooseEngines = std::function<std::vector<Engine*>(std::uint64_t peer)>;

Result<std::unique_ptr<Listener>> make_listener(const wire::udp::SocketAddress& local,
                                                const ChannelOptions& options,
                                                ChooseEngines choose);
Result<std::unique_ptr<Connector>> make_connector(const wire::udp::SocketAddress& local,
                                                  const Handle& handle,
                                                  const ChannelOptions& options,
                                                  ChooseEngines choose);

}  // namespace tutti::net
