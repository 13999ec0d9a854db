// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One engine: an Endpoint on a Wire, a lock around both, and a thread that runs them to completion
// (receive, acknowledge, credit, timers, transmit). Two ways to share the processors:
//
//   busy    the thread spins until there has been nothing to do for a millisecond, then sleeps on
//           the wire. Callers do a round of work only where it sleeps, or has not begun one for
//           50 us: the kernel takes a send all the way to the receiver's socket where switches are
//           virtual, and meanwhile a caller could post the next one, to another engine. For
//           machines with processors to spare.
//   shared  a caller that tests a request does the work itself if nobody else does. The thread
//           looks after it only when no caller has come for a while, so that a caller that waits
//           elsewhere does not stop the network. For machines without processors to spare: a
//           message costs no change of threads.
//
// In both, an engine that has been idle for a while sleeps and costs nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "net/dead_peers.hpp"
#include "net/eager_buffers.hpp"
#include "net/fallbacks.hpp"
#include "net/network.hpp"
#include "net/observe/watch.hpp"
#include "net/split_connection.hpp"
#include "transport/endpoint.hpp"
#include "wire/device_copies.hpp"
#include "wire/wire.hpp"

namespace tutti::net {

class Engine;

/// Work for a sub-connection, handed to its engine.
struct Post {
  SubConnection* sub = nullptr;
  Request* request = nullptr;               ///< Null: data of `slot` is to come.
  std::uint64_t slot = transport::kNoSlot;  ///< Of a send, if it is known.
};

/// One connection on one engine: all of a channel, or a part of a split connection. Fields without
/// a comment belong to the engine, under its lock.
struct SubConnection {
  /// For its requests. What its peer does is in `peer`, how packets see it in
  /// transport/connection_state.hpp.
  enum class State : std::uint8_t {
    kOpen,
    kFailed,  ///< A request has failed with it: no more are taken.
    kEnded,   ///< Same, and there are no packets of it any more.
  };

  Engine* engine = nullptr;
  std::string who;  ///< The peer, for messages. Constant.
  transport::ConnectionHandle connection;
  std::uint64_t wire_peer = 0;
  std::uint64_t peer_device = 0;           ///< Handshake::device.
  std::shared_ptr<SplitConnection> split;  ///< Null: the channel has this one alone.
  std::uint32_t index = 0;                 ///< In `split`.
  /// TCP connection, of sub-connection 0: its end without a close message is the end of the peer.
  int control = -1;
  std::deque<Post> waiting_sends;     ///< For which the transport has no room yet.
  std::deque<Post> waiting_receives;  ///< Same.
  EagerBuffers eager;                 ///< Copies of small sends.
  std::uint32_t open_requests = 0;
  bool receives = false;
  bool is_detached = false;                        ///< Its channel is gone.
  transport::TimeNs close_ns = transport::kNever;  ///< When its side is to be closed in order.
  PeerState peer = PeerState::kConnected;
  transport::TimeNs break_off_ns = transport::kNever;    ///< Deadline of a close to a dead peer.
  transport::Outcome outcome = transport::Outcome::kOk;  ///< Once it has failed or ended.
  bool is_peer_gone = false;  ///< Same: because the peer's process ended without a close message.
  /// Read by any thread. Set before the caller can see a request fail.
  std::atomic<State> state = State::kOpen;
  bool has_failed() const { return state.load() != State::kOpen; }
  bool has_ended() const { return state.load() == State::kEnded; }
  transport::TimeNs forget_ns = transport::kNever;
  // For statistics and traces (engine_watch.cpp).
  std::uint32_t slot = EngineStatistics::kNoSlot;
  std::uint64_t number = 0;
  std::uint32_t local_id = 0;
  transport::TimeNs opened_ns = 0;
  std::uint32_t paths = 1;
};

struct Request {
  /// In `open_parts`: sub-connection 0's part, whose end tells how many others there are.
  static constexpr std::int32_t kFirstPart = 1 << 16;

  SubConnection* sub = nullptr;  ///< Sub-connection 0.
  bool is_send = false;
  transport::TimeNs posted_ns = 0;    ///< If there is a trace.
  transport::SendRequest send;        ///< The whole message.
  transport::ReceiveRequest receive;  ///< Sub-connection 0's part.
  /// Of a receive: what peers may write into (wire::Wire::open_window); 0: nothing.
  std::array<std::uint64_t, transport::kReceivePartsMax> windows{};
  enum class WindowState : std::uint8_t { kNone, kOpening, kOpen, kClosing };
  WindowState window_state = WindowState::kNone;
  bool is_on_device = false;  ///< Some of its bytes lie in a GPU's memory.
  /// Not empty: it is a flush of that, and a receive without parts (wire::Wire::start_flush).
  std::span<const std::byte> flushed;
  std::uint64_t flush = 0;
  std::uint64_t first_slot = 0;  ///< Of a receive: the number of its first part's advert.
  std::atomic<std::int32_t> open_parts = kFirstPart;
  std::atomic<bool> is_accepted = false;  ///< By sub-connection 0's engine.
  /// Written by sub-connection 0's engine: parts of a send that other sub-connections have got.
  std::uint32_t others = 0;
  // Written by the engines before `is_done`.
  transport::Outcome outcome = transport::Outcome::kOk;
  bool is_peer_gone = false;
  Status error;  ///< Of the request alone; ok: `outcome` says it.
  std::uint8_t parts = 0;
  std::array<std::atomic<Bytes>, transport::kReceivePartsMax> bytes{};
  std::atomic<bool> is_done = false;
  void* channel = nullptr;  ///< Its owner; not used by the engine.
  bool is_taken = false;    ///< The channel's.
  Request* next_free = nullptr;
};

/// The other end of a sub-connection.
struct Peer {
  wire::WireAddress address;  ///< Of its engine.
  std::uint64_t device = 0;   ///< Handshake::device.
  std::string who;            ///< For messages.
  std::uint8_t traffic_class = 0;
};

struct EngineOptions {
  std::string name = "tutti-net";  ///< Of the thread.
  bool is_busy = false;            ///< Its thread spins, while nobody waits for the processor.
  std::vector<int> processors;     ///< Where its thread runs; empty: wherever its starter may.
  std::uint32_t connections = 4096;
  /// Largest eager send: copied, and completed when it is matched. At most EagerBuffers::kBytesMax.
  Bytes eager_bytes_max = EagerBuffers::kBytesMax;
  transport::TimeNs spin_ns = 1'000'000;  ///< Busy: how long it spins without anything to do.
  /// Busy: after a longer pause another thread has had the processor.
  transport::TimeNs preempted_ns = 500'000;
  /// Of all engines of the device.
  std::shared_ptr<DeadPeers> dead_peers = std::make_shared<DeadPeers>();
  std::uint64_t device_id = 0;  ///< Handshake::device.
  /// The wire's. Null: no message is in a GPU's memory. Else no connection is split.
  std::shared_ptr<wire::DeviceCopies> device_copies;
  // For statistics and traces.
  std::shared_ptr<Fallbacks> fallbacks;  ///< Of its device; null: none.
  EngineWatch watch;
  std::string device;
  std::string address;
  std::string controller;
  std::uint32_t number = 0;
  std::uint32_t speed_mbps = 0;
};

class Engine : private wire::Arrivals {
 public:
  Engine(std::unique_ptr<wire::Wire> wire, const EngineOptions& options);
  /// stop(). All sub-connections are detached by then.
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Starts the thread. Errors: the system gives none.
  Status start();
  /// Joins it. Engines that share split connections are all stopped before one of them goes.
  void stop();

  const wire::WireAddress& address() const { return address_; }
  const transport::WireCapabilities& capabilities() const { return capabilities_; }
  std::string description() const { return wire_->description(); }
  std::uint64_t device_id() const { return options_.device_id; }
  std::uint32_t next_id() { return next_id_.fetch_add(1); }
  /// No sub-connection is in use.
  bool is_quiet() const { return subs_in_use_.load() == 0; }
  /// Eager sends are completed whose bytes the peer has not acknowledged.
  bool has_eager_sends() const { return eager_sends_.load() > 0; }

  /// Takes `control` over if it succeeds; -1: there is none yet (adopt). `split`: of several
  /// sub-connections, attached last to first; then only sub-connection 0 has a control.
  Result<SubConnection*> attach(const transport::ConnectionOptions& options, const Peer& peer,
                                int control,
                                const std::shared_ptr<SplitConnection>& split = nullptr);
  /// Takes `control` over later, when the path to the peer is known; rails without an answer become
  /// a fall-back.
  Status adopt(SubConnection* sub, int control);
  /// Which datagrams arrive at the sub-connection's peer and here, and the addresses at both ends.
  wire::Reach reach(SubConnection* sub);
  wire::Ends ends(SubConnection* sub);
  /// When it returns, no request of the sub-connection is open and it touches no buffer any more.
  /// Without open requests, here or (`aborts`) on other sub-connections, the connection is then
  /// closed in order; else it is aborted now. A split connection is detached from sub-connection 0
  /// on, after the channel has closed what it shares (SharedReceives): until the close, the others
  /// still take in packets.
  void detach(SubConnection* sub, bool aborts = false);

  /// Memory of sends and receives, of any sub-connection (wire::Wire::register_memory).
  Status register_memory(std::span<std::byte> memory);
  /// DeviceMemory::device is found here.
  Status register_device_memory(wire::DeviceMemory memory);
  void deregister_memory(std::span<std::byte> memory);

  /// Any thread. The request is filled in but for the results.
  void post(Request* request);
  /// A caller waits: shared engines, and spinning ones whose thread sleeps or is late, do a round
  /// of work, unless another thread is in one, which then takes what was posted.
  void help();

  /// At the end of the process: acknowledges what has arrived. Takes half a millisecond.
  void answer_all();

  /// Returns when the current round of work has ended.
  void wait_for_round();

  /// The peers that is_quiet() and has_eager_sends() wait for: "host1, process 4711; ..."; may be
  /// empty.
  std::string awaited();

  /// Its counters so far, as a log text.
  std::string report();
  /// Writes its statistics as they are now. False: the lock was taken for 100 ms, maybe by a
  /// thread that the end of the process has stopped.
  bool publish();

 private:
  static constexpr std::size_t kPacketsPerTurn = 8;
  /// How long an ended connection still answers.
  static constexpr transport::TimeNs kForgetNs = 2'000'000'000;
  /// How long a peer that was declared dead may take to answer a close: it may be back.
  static constexpr transport::TimeNs kDeadPeerLingerNs = 250'000'000;
  static constexpr char kCloseByte = 'B';

  enum class Sleep : std::uint8_t { kAwake, kNap, kDeep };

  std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes) override;
  void arrived(const transport::Arrival& arrival) override;
  void sent(std::uint64_t cookie) override;

  Status watch_control(SubConnection& sub, int control);
  void run();
  bool is_helped(transport::TimeNs now) const;
  void sleep();
  void wake(Sleep at_least);
  /// Under the lock, as all that follows. True: there was something to do.
  bool work();
  bool may_go_on(Bytes bytes) const;
  bool receive();
  bool take_posted();
  bool post_now(const Post& post);
  transport::SendRequest eager_send(SubConnection& sub, Request* request);
  void post_waiting(SubConnection& sub);
  void transmit_first(transport::TimeNs now);
  bool transmit(transport::TimeNs now);
  void add_piggybacks();
  bool flush();
  bool take_events();
  void take_event(SubConnection& sub, const transport::Event& event);
  bool must_wait(SubConnection& sub, const transport::Event& event);
  bool is_on_device(const Request& request) const;
  Status check_registered(const Request& request) const;
  bool start_flush(SubConnection& sub, Request* request);
  bool is_touched(Request* request);
  bool open_windows(const SubConnection& sub, Request* request);
  bool close_windows(Request* request);
  bool is_held(const SubConnection& sub) const;
  void take_eager_event(SubConnection& sub, const transport::Event& event);
  void finish(SubConnection& sub, Request* request, transport::Outcome outcome, Bytes bytes);
  void finish_waiting(SubConnection& sub, Request* request, transport::Outcome outcome);
  void answer(SubConnection& sub, Request* request, transport::Outcome outcome, Bytes bytes);
  void end(SubConnection& sub, transport::Outcome outcome);
  bool look_after_peers(transport::TimeNs now);
  void apply_dead_peers(transport::TimeNs now);
  void take_what_is_left();
  static bool is_close_needless(const SubConnection& sub);
  void break_off(SubConnection& sub);
  bool forget_old(transport::TimeNs now);
  template <class IsDropped>
  void drop_blocked(IsDropped is_dropped);
  static bool points_into(std::span<const std::byte> buffer, const std::byte* payload);
  void drop_blocked_of(std::span<const std::byte> buffer);
  void drop_blocked_data();

  // engine_split.cpp
  void hand_over(const Post& post);
  void share_out(SubConnection& sub, Request* request, std::uint64_t slot);
  void count_others(SubConnection& sub, Request* request, const transport::Event& event);
  void settle(SubConnection& sub, Request* request, transport::Outcome outcome);
  void complete(Request* request, transport::Outcome outcome, bool is_peer_gone);
  void tell_others(const SubConnection& sub);
  void tell_of_peer(const SubConnection& sub);
  void note_end(SubConnection& sub);
  void look_after(const SplitConnection& split);
  void hear_of(const std::shared_ptr<SplitConnection>& split);
  void end_requests(SubConnection& sub);

  // engine_watch.cpp
  void watch_sub(SubConnection& sub, const transport::ConnectionOptions& connection);
  void unwatch_sub(SubConnection& sub);
  void watch(transport::TimeNs now, bool did);
  /// When watch() wants to be called though nothing happens; kNever.
  transport::TimeNs watch_ns() const;
  void show(const SubConnection& sub, transport::TimeNs now);
  void trace_end(const SubConnection& sub, const Request& request, transport::Outcome outcome,
                 Bytes bytes);
  void show_sum(transport::TimeNs now);
  transport::ConnectionCounters sum() const;
  std::uint64_t fallbacks() const {
    return options_.fallbacks == nullptr ? 0 : options_.fallbacks->count();
  }

  static void add(transport::ConnectionCounters& sum, const transport::ConnectionCounters* one);

  EngineOptions options_;
  std::unique_ptr<wire::Wire> wire_;
  wire::WireAddress address_;
  transport::WireCapabilities capabilities_;
  std::thread thread_;
  int wake_fd_ = -1;
  int controls_ = -1;  ///< epoll of the sub-connections' TCP connections.
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint32_t> next_id_ = 1;
  std::atomic<std::uint64_t> open_requests_ = 0;
  std::atomic<std::uint64_t> subs_in_use_ = 0;
  std::atomic<std::uint64_t> eager_sends_ = 0;  ///< Of all sub-connections.
  std::atomic<Sleep> asleep_ = Sleep::kAwake;
  /// Busy, and has not lost its processor recently.
  std::atomic<bool> spins_ = options_.is_busy;
  std::atomic<std::uint64_t> times_crowded_ = 0;
  std::atomic<transport::TimeNs> helped_ns_ = 0;
  std::atomic<transport::TimeNs> turned_ns_ = 0;  ///< When the thread looked for work last.

  std::mutex inbox_mutex_;
  std::vector<Post> inbox_;
  std::vector<std::shared_ptr<SplitConnection>> news_;  ///< Of sub-connections on other engines.
  std::atomic<std::uint32_t> posted_ = 0;               ///< In both.

  std::atomic<int> wanted_ = 0;  ///< Callers who wait for the lock.
  std::mutex mutex_;             ///< Of all below.
  transport::Endpoint endpoint_;
  std::vector<std::unique_ptr<SubConnection>> subs_;
  std::vector<SubConnection*> sub_of_;  ///< By ConnectionHandle::index.
  Bytes arrived_bytes_ = 0;             ///< In this turn.
  std::vector<Post> taken_;
  std::vector<std::shared_ptr<SplitConnection>> taken_news_;
  std::array<transport::Transmission, wire::kTogetherMax> together_;  ///< To one peer.
  std::size_t together_count_ = 0;
  /// Where sends complete late (wire::Arrivals::sent): payloads that the wire has taken, by cookie;
  /// null: it reads it no more.
  std::deque<const std::byte*> unsent_;
  std::uint64_t first_unsent_ = 0;
  struct HeldEvent {
    SubConnection* sub = nullptr;
    transport::Event event;
  };
  /// Ends of sends that it still reads, of receives that peers may still write into, and of their
  /// connections.
  std::vector<HeldEvent> held_;
  bool opens_windows_ = false;  ///< Some waiting receive wants windows that have not opened yet.
  transport::Transmission next_;
  bool has_next_ = false;
  bool is_blocked_ = false;        ///< The wire had no room for what is together.
  bool has_new_send_ = false;      ///< A short one was posted, since the last transmission.
  bool has_more_ = false;          ///< A caller's round may have left something to the thread.
  bool has_finished_ = false;      ///< A request, since the last transmission.
  bool has_answer_ = false;        ///< A send is done whose bytes have not left.
  transport::TimeNs hold_ns_ = 0;  ///< Until then more is waited for.
  transport::TimeNs looked_ns_ = 0;
  std::atomic<bool> has_news_of_peers_ = false;
  std::atomic<std::uint32_t> dead_peers_version_ = 0;  ///< Last version applied.
  transport::ConnectionCounters totals_;               ///< Sums over connections that are no more.
  bool has_changed_ = false;           ///< Something, since the last round of statistics began.
  transport::TimeNs round_ns_ = 0;     ///< When that was.
  std::size_t round_next_ = SIZE_MAX;  ///< Index of the next one to show; SIZE_MAX: no round.
  std::vector<PathRecord> path_records_;
};

}  // namespace tutti::net
