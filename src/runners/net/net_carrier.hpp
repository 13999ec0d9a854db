// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our transport as a carrier of schedules: a channel of src/net for each peer, direction and rail
// that programs use, made before the first run of a program. The bootstrap distributes the handles
// of new channels, and the news of a rank that is gone: every rank's call ends with its name.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "net/bootstrap/tcp_bootstrap.hpp"
#include "net/network.hpp"
#include "runners/carrier.hpp"
#include "runners/net/rails.hpp"
#include "topology/layout.hpp"

namespace tutti::runners {

class NetCarrier : public Carrier {
 public:
  /// `network` and `bootstrap` outlive it; all ranks have joined. `devices`: by rank. A rank
  /// that has not come to a program's preparation after `timeout_s`, or has made no channel after
  /// as long again, is an error; 0: wait for ever.
  NetCarrier(net::Network& network, net::TcpBootstrap& bootstrap, int rank, topology::Layout layout,
             std::vector<int> devices, double timeout_s);

  Status prepare(const schedule::Program& program) override;
  void start(select::Collective collective) override;
  Status isend(const void* data, Bytes bytes, int peer, int tag, int slot) override;
  Status irecv(void* data, Bytes bytes, int peer, int tag, int slot) override;
  Status test_some(int slots, std::vector<int>* completed) override;
  Status reduce_local(const void* in, void* inout, std::uint64_t count, const Call& call) override;
  bool abandon() override;

 private:
  struct Message {
    std::byte* data = nullptr;
    Bytes bytes = 0;
    std::uint32_t tag = 0;
    int slot = 0;
    net::Request* request = nullptr;
  };
  /// One channel with its messages. Both ends hand messages over in a window that begins at the
  /// first one not complete, in the order of their tags: what fills the tables of the transport at
  /// one end is never what the other end comes to only after something else of this flow.
  struct Flow {
    int peer = -1;
    bool sends = false;
    std::unique_ptr<net::Channel> channel;
    std::uint32_t rails = 1;        ///< Of this peer and direction: tag / rails is the place below.
    std::uint32_t first = 0;        ///< Place of the first message that is not complete.
    std::vector<bool> is_complete;  ///< By place.
    std::vector<Message> waiting;   ///< A heap, lowest tag first.
    std::vector<Message> open;      ///< Handed over.
  };
  /// What becomes a flow.
  struct Missing {
    int peer = -1;
    bool sends = false;
    std::uint32_t rail = 0;
    std::uint32_t rails = 1;
    RailEnds ends;
    std::unique_ptr<net::Listener> listener;    ///< Of a receiver.
    std::unique_ptr<net::Connector> connector;  ///< Of a sender.
    std::unique_ptr<net::Channel> channel;
  };

  std::vector<std::uint32_t>& flows_with(int peer, bool sends) {
    return (sends ? to_ : from_)[topology::Layout::index(peer)];
  }
  std::vector<Missing> missing_for(const schedule::Program& program);
  Status exchange_handles(std::vector<Missing>& missing);
  Status connect(std::vector<Missing>& missing);
  Status add(bool sends, int peer, Message message);
  Status hand_over(Flow& flow);
  /// Takes what has ended of a flow; true: something has.
  Result<bool> take(Flow& flow, std::vector<int>* completed);
  Status complete(Flow& flow, const Message& message, const net::Completion& completion);
  Status help(std::vector<int>* completed);
  Status failed(int peer, const Status& why);

  net::Network& network_;
  net::TcpBootstrap& bootstrap_;
  int rank_;
  topology::Layout layout_;
  std::vector<int> devices_;
  double timeout_s_;
  bool is_abandoned_ = false;
  std::vector<Flow> flows_;
  std::vector<std::vector<std::uint32_t>> to_;    ///< By peer and rail: into flows_.
  std::vector<std::vector<std::uint32_t>> from_;  ///< Same.
  std::size_t helped_ = 0;                        ///< The flow whose turn it was.
  std::chrono::steady_clock::time_point
      looked_;  ///< When the bootstrap was last checked for failures.
};

}  // namespace tutti::runners
