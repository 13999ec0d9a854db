// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A Channel on one lane of one engine: a pool of requests, and what their ends mean.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/engine.hpp"
#include "net/network.hpp"

namespace tutti::net {

class LaneChannel : public Channel {
 public:
  explicit LaneChannel(Lane* lane);
  ~LaneChannel() override;

  Result<Request*> send(transport::Tag tag, const void* data, Bytes bytes) override;
  Result<Request*> receive(std::span<const transport::ReceivePart> parts) override;
  std::string peer() const override { return lane_->who; }

  bool test(Request* request, Completion* completion);

 private:
  /// NCCL has 32 at a time, of up to eight parts; the transport takes 256 of each.
  static constexpr std::size_t kRequests = 256;

  Request* take();
  Status ended() const;

  Lane* lane_;
  std::vector<Request> requests_;
  Request* free_ = nullptr;
};

}  // namespace tutti::net
