// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our transport as a carrier of schedules: a channel of src/net for each peer, direction and rail
// that programs use, made before the first run of a program by its two ends alone: each rank has a
// listener for each of its devices, and a new channel's first message says whose it is. So ranks
// may prepare different programs, as in an alltoallv. The bootstrap distributes the listeners'
// handles, once, and the news of a rank that is gone: every rank's call ends with its name.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/bootstrap/tcp_bootstrap.hpp"
#include "net/network.hpp"
#include "runners/carrier.hpp"
#include "runners/net/rails.hpp"
#include "topology/layout.hpp"

namespace tutti::runners {

/// Of a step of a set-up, which all ranks are in; `timeout_s`: of a call, 0 for none.
inline double set_up_timeout_s(double timeout_s) {
  constexpr double kMaxS = 30;
  return timeout_s > 0 ? std::min(timeout_s, kMaxS) : kMaxS;
}

class NetCarrier : public Carrier {
 public:
  /// `network` and `bootstrap` outlive it; all ranks have joined. `devices`: by rank. A rank
  /// that has made no channel after `timeout_s` is an error; 0: wait for ever. `look` (may be
  /// null): an error ends a wait.
  NetCarrier(net::Network& network, net::TcpBootstrap& bootstrap, int rank, topology::Layout layout,
             std::vector<int> devices, double timeout_s, std::function<Status()> look);
  /// Collective, once, before all else: listens, and exchanges the handles.
  Status open();

  Status prepare(const schedule::Program& program) override;
  void start(select::Collective collective) override;
  Status isend(const void* data, Bytes bytes, int peer, int tag, int slot) override;
  Status irecv(void* data, Bytes bytes, int peer, int tag, int slot) override;
  Status test_some(int slots, std::vector<int>* completed) override;
  Status reduce_local(const void* in, void* inout, std::uint64_t count, const Call& call) override;
  /// Asks which ranks are in the call.
  Status late(const Status& why) override;
  /// Of this rank's so far: with them, it counts calls as its peers do, and a message of one call
  /// is never taken for one of another.
  void set_refused_calls(std::uint32_t calls) { refused_calls_ = calls; }
  /// The other ranks do not hear of it here.
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
  /// The first message of a channel: whose it is.
  struct Introduction {
    std::uint32_t sender = 0;
    std::uint32_t rail = 0;
  };
  /// What becomes a flow.
  struct Missing {
    int peer = -1;
    bool sends = false;
    std::uint32_t rail = 0;
    std::uint32_t rails = 1;
    RailEnds ends;
    std::unique_ptr<net::Connector> connector;   ///< Of a sender.
    std::unique_ptr<Introduction> introduction;  ///< A sender's; outlives its channel's requests.
    std::unique_ptr<net::Channel> channel;
    net::Request* request = nullptr;  ///< Of the introduction.
    bool is_ready = false;
  };
  /// A channel to this rank whose program has not been prepared here yet, or not said whose it is.
  struct Guest {
    std::unique_ptr<Introduction> introduction = std::make_unique<Introduction>();
    std::unique_ptr<net::Channel> channel;
    net::Request* request = nullptr;  ///< Null: it has introduced itself.
  };

  std::vector<std::uint32_t>& flows_with(int peer, bool sends) {
    return (sends ? to_ : from_)[topology::Layout::index(peer)];
  }
  std::vector<Missing> missing_for(const schedule::Program& program);
  Status connect(std::vector<Missing>& missing);
  /// Sets is_ready when the channel can be used.
  Status advance(Missing* one);
  Status advance_sender(Missing* one);
  Status welcome_guests();
  /// What ends a wait: news of a rank, or the caller's look.
  Status look_around();
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
  std::function<Status()> look_;
  std::vector<std::unique_ptr<net::Listener>> listeners_;  ///< By own device.
  std::vector<std::string> handles_;                       ///< By rank: of its listeners.
  std::vector<Guest> guests_;
  bool is_abandoned_ = false;
  std::uint32_t runs_ = 0;
  std::uint32_t refused_calls_ = 0;
  select::Collective collective_ = select::Collective::kBarrier;
  transport::Tag stamp_ = 0;  ///< Of the call, in the tags of its messages.
  std::vector<Flow> flows_;
  std::vector<std::vector<std::uint32_t>> to_;    ///< By peer and rail: into flows_.
  std::vector<std::vector<std::uint32_t>> from_;  ///< Same.
  std::size_t helped_ = 0;                        ///< The flow whose turn it was.
  std::chrono::steady_clock::time_point
      looked_;  ///< When the bootstrap was last checked for failures.
};

}  // namespace tutti::runners
