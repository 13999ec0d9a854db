// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A Channel on one connection, or on a split connection with sub-connections on several engines: a
// pool of requests, and the meaning of their outcomes.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "net/engine.hpp"
#include "net/network.hpp"

namespace tutti::net {

class ConnectionChannel : public Channel {
 public:
  /// `split`: null for a single connection; otherwise `sub` is its sub-connection 0.
  explicit ConnectionChannel(SubConnection* sub, std::shared_ptr<SplitConnection> split = nullptr);
  ~ConnectionChannel() override;

  Result<Request*> send(transport::Tag tag, const void* data, Bytes bytes) override;
  Result<Request*> receive(std::span<const transport::ReceivePart> parts) override;
  Result<Request*> flush(std::span<const std::byte> memory) override;
  Status register_memory(std::span<std::byte> memory) override;
  Status register_device_memory(const wire::DeviceMemory& memory) override;
  void deregister_memory(std::span<std::byte> memory) override;
  std::string peer() const override { return sub_->who; }

  bool test(Request* request, Completion* completion);

 private:
  /// NCCL has 32 at a time, of up to eight parts; the transport takes 256 of each.
  static constexpr std::size_t kRequests = 256;

  std::span<Engine* const> engines() const;
  void detach();
  template <class Memory>
  Status register_with(const Memory& memory, std::span<std::byte> span);
  Request* take();
  bool has_ended() const;
  Status ended() const;
  /// False: too many receives before them are open.
  bool can_share(std::size_t parts) const;
  void share(Request& request, std::span<const transport::ReceivePart> parts);
  /// Afterwards no other sub-connection starts to use it. Returns how many of its parts were used.
  std::uint32_t unshare(const Request& request);
  void give_back(Request* request);
  void help(const Request& request);
  bool is_split(const Request& request) const;

  SubConnection* sub_;
  std::shared_ptr<SplitConnection> split_;
  std::uint64_t next_slot_ = transport::ConnectionOptions().first_number;
  std::vector<Request> requests_;
  Request* free_ = nullptr;
  std::mutex registered_mutex_;
  std::vector<std::span<std::byte>> registered_;
};

}  // namespace tutti::net
