// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One port of an RDMA NIC as a wire. The transport decides, the NIC only moves: a packet is one
// send whose header and payload the NIC gathers from where they are, and puts into a receive buffer
// of a queue that all peers share (SRQ), from where the payload is copied to its place. Of long
// receives peers know the memory (windows.hpp): there the NIC writes a chunk to its place itself,
// and its header comes with it. The NIC reads and writes registered memory of GPUs as it does the
// host's; what comes into receive buffers for them, GPUs copy (bounces.hpp). What carries packets
// is one of the NIC's services:
//
//   UC  a queue pair for each path of each peer; the NIC cuts a chunk and puts it together, and
//       repairs nothing: what is lost is the transport's to send again, on another path.
//   RC  the same queue pairs, where the NIC has no UC: it repairs by going back. A queue pair that
//       gives up is replaced.
//   UD  one queue pair; a chunk is a datagram.
//
// Queue pairs hash to different ways through the network (RoCE v2: the UDP source port follows from
// the queue pairs' numbers and the flow label), so they are the paths. All connections to a peer
// share them. Under UC and RC, packets without a payload (acknowledgements, clear-to-send, close)
// have the UD queue pair for themselves and do not wait behind data. Which queue pairs belong
// together the wires tell each other by it, too (announcement.hpp).
#pragma once

#include <array>
#include <bit>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/descriptors.hpp"
#include "wire/device_copies.hpp"
#include "wire/verbs/announcement.hpp"
#include "wire/verbs/bounces.hpp"
#include "wire/verbs/library.hpp"
#include "wire/verbs/registered_memory.hpp"
#include "wire/verbs/stamped_cq.hpp"
#include "wire/verbs/windows.hpp"
#include "wire/wire.hpp"

namespace tutti::wire::verbs {

enum class Service : std::uint8_t { kUc, kRc, kUd };

/// "UC"
const char* to_string(Service service);

struct VerbsOptions {
  std::string device;  ///< "mlx5_0"
  int port = 1;
  GidWish gid;
  std::string service = "auto";   ///< uc, rc, ud; auto: UC if the NIC has it, else RC.
  std::uint32_t paths = 32;       ///< Queue pairs to each peer; UD: flow labels.
  std::uint32_t chunk_bytes = 0;  ///< 0: 32 KiB; UC: at most 8 packets; UD: what the MTU leaves.
  std::uint32_t ps_per_byte = 20;
  transport::TimeNs base_rtt_ns = 20'000;
  std::uint32_t send_depth = 64;        ///< Packets in a queue pair's send queue.
  std::uint32_t receive_buffers = 512;  ///< Of a chunk each.
  std::uint32_t bounce_buffers = 64;    ///< For payloads in memory that is not registered.
  bool timestamps = false;              ///< Of what arrives, by the NIC.
  bool needs_timestamps = true;         ///< Where it has none is a fall-back.
  Bytes window_bytes_min = 64 << 10;    ///< Shorter receives are copied. 0: all are.
  std::string class_directory = "/sys/class/infiniband";
  std::shared_ptr<DeviceCopies> copies;      ///< Null: there are no GPUs.
  std::function<transport::TimeNs()> clock;  ///< Null: the system's.
  /// Told what the wire was to have and has not, and the remedy. Null: nobody wants to know.
  std::function<void(const std::string& what, const std::string& remedy)> on_fallback;
};

class VerbsWire : public Wire {
 public:
  /// After this time without room a path no longer holds up the others: packets for it are lost.
  static constexpr transport::TimeNs kFullNsMax = 20'000'000;
  /// How long memory that is deregistered waits for the NIC to open or close its windows.
  static constexpr transport::TimeNs kRevokeNsMax = 100'000'000;
  static constexpr int kRevokeRoundsMin = 1000;
  /// As kFullNsMax, while the queue pairs to a peer are being connected.
  static constexpr transport::TimeNs kConnectNsMax = 200'000'000;
  /// A UC queue pair that has not answered a ping for so long is replaced at the next one.
  static constexpr transport::TimeNs kAnswerNsMax = 15'000'000;

  /// Errors: no such port, no address, no memory that may be pinned (kUnavailable).
  static Result<std::unique_ptr<VerbsWire>> open(const Functions& verbs,
                                                 const VerbsOptions& options);
  ~VerbsWire() override;
  VerbsWire(const VerbsWire&) = delete;
  VerbsWire& operator=(const VerbsWire&) = delete;

  transport::WireCapabilities capabilities() const override;
  WireAddress address() const override;
  Result<std::uint64_t> add_peer(const WireAddress& address, std::uint8_t traffic_class) override;
  void remove_peer(std::uint64_t peer) override;
  Status register_memory(std::span<std::byte> memory) override { return memory_->add(memory); }
  Status register_device_memory(const DeviceMemory& memory) override;
  void deregister_memory(std::span<std::byte> memory) override;
  bool is_registered(std::span<const std::byte> memory) const override {
    return memory_->find_region(memory.data(), memory.size()) != nullptr;
  }
  bool is_copying_into(std::span<const std::byte> memory) const override {
    return bounces_ != nullptr && bounces_->is_copying_into(memory);
  }
  Result<std::uint64_t> start_flush(std::span<const std::byte> memory) override;
  Result<bool> has_flushed(std::uint64_t flush) override;
  std::uint64_t open_window(std::span<std::byte> memory) override;
  bool has_opened(std::uint64_t window, transport::RemoteMemory* remote) override {
    return windows_->has_opened(window, remote);
  }
  void close_window(std::uint64_t window) override { windows_->close(window); }
  bool has_closed(std::uint64_t window) override { return windows_->has_closed(window); }
  bool send(const transport::Transmission& transmission) override;
  std::size_t receive(Arrivals& arrivals, std::size_t packets_max) override;
  void handle_timeout(transport::TimeNs now) override;
  Reach reach(std::uint64_t peer) const override;
  Ends ends(std::uint64_t peer) const override;
  transport::TimeNs next_deadline() const override {
    return std::min(announce_due_ns_, look_due_ns_);
  }
  int file_descriptor() const override { return sleeper_.get(); }
  transport::TimeNs arm(transport::TimeNs now) override;
  const WireCounters& counters() const override { return counters_; }
  std::string description() const override;
  std::string report() const override;

  Service service() const { return service_; }

 private:
  /// What a receive completion is about, in the immediate data.
  enum Kind : std::uint8_t {
    kPacket = 1,    ///< Header and payload.
    kAnnounce = 2,  ///< Announcement (UD).
    kWritten = 3,   ///< Header of a chunk that was written before it (RC).
    kAhead = 4,     ///< Header of the chunk that is written next (UC).
    kPlaced = 5,    ///< The write of that chunk.
  };

  static constexpr std::uint32_t kSendSlots = 2048;     ///< Sends that the NIC has not completed.
  static constexpr std::uint32_t kDatagramDepth = 512;  ///< Of the UD queue pair's send queue.
  static constexpr std::size_t kHeaderSlotBytes = 128;
  static constexpr std::uint32_t kFlushesMax = 64;
  static constexpr std::size_t kLostFlushesMax = 16;
  static constexpr std::size_t kFlushBytes =
      64;  ///< Where they read to; what is there, nobody asks.
  /// Set in the ids of their requests, above the number of the flush.
  static constexpr std::uint64_t kFlush = 1ULL << 62;
  /// Of Slot::uses, which stand below that.
  static constexpr std::uint32_t kUsesMask = (1U << 30) - 1;
  /// A queue pair that takes no more is kept for so long: the NIC gives back what it had begun.
  static constexpr transport::TimeNs kRetireNs = 10'000'000;
  /// The NIC completes a send within this time, else its queue pair has failed (a peer that lives
  /// and takes nothing in) or, once retired, is destroyed.
  static constexpr transport::TimeNs kStuckNsMax = 2'000'000'000;
  static constexpr transport::TimeNs kLookNs = 100'000'000;  ///< Between looks for such.
  static constexpr transport::TimeNs kAsyncNs = 10'000'000;  ///< Same, for what NICs tell.
  /// Same, for what no completion tells of: copies by GPUs, queue pairs that are to go.
  static constexpr transport::TimeNs kUntoldNs = 50'000;

  /// A queue pair and what is in its send queue. Stays until the NIC has completed all of it.
  /// What a packet touches comes first: of many queue pairs each is cold.
  struct Queue {
    Qp* qp = nullptr;
    transport::TimeNs progress_ns = 0;  ///< Of the last completion, or of a send into an empty one.
    transport::TimeNs asked_ns = transport::kNever;  ///< UC: a ping's, since when nothing came.
    std::uint32_t outstanding = 0;
    std::uint32_t writes = 0;  ///< UC: posted, whose number tells them apart.
    std::uint32_t ahead_number = 0;
    std::uint8_t ahead_bytes = 0;  ///< Of `ahead`; 0: there is none.
    bool is_suspect = false;       ///< Nothing has completed for long.
    bool is_retired = false;
    std::uint64_t peer = 0;
    std::size_t path = 0;
    transport::TimeNs retired_ns = 0;
    /// UC: the header that came ahead of its write.
    std::array<std::byte, transport::kHeaderBytesMax> ahead;
  };

  struct Path {
    Queue* queue = nullptr;  ///< Null: the NIC has none for us now.
    std::uint32_t generation = 0;
    bool is_connected = false;  ///< To the peer's of the same generation.
    AnnouncedPath theirs;
    std::uint32_t connect_failures = 0;  ///< Since it was connected last.
    transport::TimeNs full_since_ns = transport::kNever;
  };

  /// Of a queue pair that is connected to itself, for is_stuck().
  struct Progress {
    std::uint64_t completed = 0;
    transport::TimeNs since_ns = transport::kNever;
    bool is_suspect = false;
  };

  /// What a WireAddress says.
  struct End {
    Gid gid{};
    std::uint16_t lid = 0;
    std::uint32_t qp_number = 0;  ///< UD.
    std::uint32_t qkey = 0;
    std::uint16_t paths = 0;
    std::uint8_t mtu = 0;  ///< ibv_mtu: 128 bytes shifted left by it.
    Service service = Service::kUc;
    std::uint64_t number = 0;
  };

  struct Peer {
    End end;
    std::uint8_t traffic_class = 0;
    std::uint32_t users = 0;
    std::vector<AddressHandle*> ways;  ///< UD: by path.
    std::vector<Path> paths;           ///< UC, RC.
    bool was_heard = false;
    bool has_heard_us = false;
    bool is_settled = false;   ///< Nothing is left to be announced.
    bool was_settled = false;  ///< Once.
    std::uint32_t announced = 0;
    transport::TimeNs added_ns = 0;
    transport::TimeNs announced_ns = 0;
    transport::TimeNs announce_ns = 0;  ///< When it is due again.
    transport::TimeNs announce_every_ns = 0;
    transport::TimeNs wait_since_ns = transport::kNever;  ///< A packet waits for the connection.
  };

  /// A send that the NIC has not completed.
  struct Slot {
    Queue* queue = nullptr;
    std::uint64_t cookie = 0;
    bool has_payload = false;
    std::int32_t bounce = -1;
    std::uint32_t uses = 0;  ///< High half of the request's number: tells late completions apart.
  };

  struct Received {
    Completion completion;
    transport::TimeNs received_ns;
  };

  VerbsWire(const Functions& verbs, VerbsOptions options);
  Status open_port();
  Status choose_service();
  Status open_memory();
  Status open_queues();
  void open_windows();
  int open_loop(Qp* qp) const;
  void open_flushes();
  static Result<End> decode(const WireAddress& address);
  Peer* find(std::uint64_t peer) const {
    return found_ != nullptr && peer == found_name_ ? found_ : search(peer);
  }
  Peer* search(std::uint64_t peer) const;
  void forget(std::uint64_t peer) {
    peers_.erase(peer);
    found_ = nullptr;
  }
  AddressAttributes way_to(const Peer& peer, std::uint32_t path) const;
  void fall_back(const std::string& what, const std::string& remedy) const {
    if (options_.on_fallback) {
      options_.on_fallback(what, remedy);
    }
  }
  void note_kept_memory(const std::string& why);

  /// ibv_mtu
  static std::uint8_t mtu_code(int bytes) {
    return static_cast<std::uint8_t>(std::countr_zero(static_cast<unsigned>(bytes) / 128));
  }

  // verbs_completions.cpp
  void open_channel();
  bool listen_to(int descriptor);
  void take_cq_events();
  void open_completions();
  void note_no_stamps(const std::string& why);
  std::size_t take_received(Completion* taken, transport::TimeNs* received_ns);
  void poll_receives();
  void drain_receives();

  // verbs_peers.cpp
  Qp* make_qp(int type, std::uint32_t depth) const;
  Status ready(Qp* qp) const;
  void revive_datagrams();
  int prepare(Qp* qp) const;
  int connect(Qp* qp, const Peer& peer, std::uint32_t path, const AnnouncedPath& theirs) const;
  void renew(std::uint64_t name, Peer& peer, std::size_t path, std::uint32_t generation);
  void note_lost_path(const Peer& peer, const std::string& why, const std::string& remedy) const;
  void retire(Queue* queue);
  void destroy(Queue* queue);
  void fail(Queue* queue, int status);
  void look_after_queues(transport::TimeNs now);
  void take_async_events();
  static bool is_stuck(Queue& queue, transport::TimeNs now);
  static bool is_stuck(Progress& progress, std::uint64_t outstanding, std::uint64_t completed,
                       transport::TimeNs now);
  void look_after_own_queues(transport::TimeNs now);
  bool has_own_requests() const;
  void abandon_datagrams();
  void abandon_windows(const std::string& why);
  void abandon_flushes(const std::string& why);
  void lose_flushes(const std::string& why);
  void note_failed_windows(const std::string& why);
  static std::uint32_t psn_of(std::uint64_t from, std::uint64_t to, std::uint32_t generation);
  std::size_t datagram_bytes_of(const Peer& peer) const {
    return std::min<std::size_t>(static_cast<std::size_t>(port_.mtu_bytes),
                                 std::size_t{128} << peer.end.mtu);
  }
  void announce(Peer& peer, transport::TimeNs now);
  void hear(std::span<const std::byte> message);
  bool update(std::uint64_t name, Peer& peer, std::size_t path, const AnnouncedPath& theirs);
  static bool is_up(const Path& path) {
    return path.queue != nullptr && path.is_connected && path.theirs.is_connected &&
           path.theirs.generation == path.generation;
  }
  static bool is_complete(const Peer& peer);
  void schedule(Peer& peer, transport::TimeNs due_ns);

  // verbs_transfer.cpp
  bool note_ping(Queue& queue, const transport::Transmission& sent) const;
  bool lose_if_late(const transport::Transmission& sent, transport::TimeNs* since_ns,
                    transport::TimeNs most_ns);
  void lose(const transport::Transmission& sent);
  /// The GPU whose memory that is; -1: the host's. `is_known`: registered, or the host's.
  int device_of(const std::byte* memory, std::size_t bytes, bool* is_known) const;
  bool post(Queue& queue, const Peer& peer, std::span<const std::byte> header,
            std::span<const std::byte> payload, Kind kind, AddressHandle* way,
            std::uint64_t cookie = 0, bool may_be_inline = true);
  bool poll_sends();
  void complete_sends(Arrivals& arrivals);
  /// What it held is free again; its packet is to be told as sent.
  void take_back(std::uint32_t index) {
    Slot& slot = slots_[index];
    if (slot.has_payload) {
      sent_cookies_.push_back(slot.cookie);
    }
    if (slot.bounce >= 0) {
      free_bounces_.push_back(slot.bounce);
    }
    --slot.queue->outstanding;
    slot = {.uses = slot.uses};
    free_slots_.push_back(index);
  }
  void take_back_all(const Queue& queue);
  inline void note_posted(Queue& queue);
  inline bool post_write(Queue& queue, const transport::Transmission& sent);
  /// Where the NIC reads the payload. False: there is no room to copy it to.
  bool fill_segment(std::span<const std::byte> payload, Segment* segment, Slot* slot) {
    const Mr* const mr = memory_->find(payload.data(), payload.size());
    if (mr == nullptr) {
      return copy_to_segment(payload, segment, slot);
    }
    *segment = {reinterpret_cast<std::uint64_t>(payload.data()),
                static_cast<std::uint32_t>(payload.size()), mr->local_key};
    return true;
  }
  bool copy_to_segment(std::span<const std::byte> payload, Segment* segment, Slot* slot);
  bool deliver(Arrivals& arrivals, const Completion& completion, transport::TimeNs received_ns);
  bool place_payload(Arrivals& arrivals, std::uint32_t buffer, transport::Arrival* arrival);
  bool deliver_bounced(Arrivals& arrivals);
  bool deliver_write(Arrivals& arrivals, Queue& queue, std::uint32_t bytes, std::uint32_t number,
                     transport::TimeNs received_ns);
  /// Null: no peer's.
  Queue* queue_of(std::uint32_t qp_number) const {
    const auto found = queue_of_.find(qp_number);
    return found == queue_of_.end() ? nullptr : found->second;
  }
  void drop_ahead(Arrivals& arrivals, Queue& queue);
  void fail_receiver(const Completion& completion);
  void post_receives();

  const Functions verbs_;
  VerbsOptions options_;
  Port port_;
  GidEntry gid_;
  std::optional<MarkCounters> marks_;  ///< When the wire was opened; of all that use the port.
  Service service_ = Service::kUc;
  std::uint64_t number_ = 0;  ///< Random: tells this wire from all others.
  std::uint32_t qkey_ = 0;
  Context* context_ = nullptr;
  Pd* pd_ = nullptr;
  CompletionChannel* channel_ = nullptr;  ///< Null: the NIC wakes nobody, engines look.
  Descriptor sleeper_;                    ///< Readable with completions or news of the NIC's.
  bool is_deaf_ = false;                  ///< Its driver has gone: nothing is told any more.
  Cq* send_cq_ = nullptr;
  Cq* receive_cq_ = nullptr;
  std::optional<StampedCq> stamped_cq_;  ///< The same. Nothing: it has no time stamps.
  std::string unstamped_;                ///< Why there are none; empty: there are.
  Srq* srq_ = nullptr;
  std::unique_ptr<RegisteredMemory> memory_;
  std::uint32_t chunk_bytes_ = 0;
  std::uint32_t inline_bytes_ = 256;  ///< What fits is copied when it is posted.

  std::vector<std::byte> arena_;  ///< Receive buffers, headers, bounce buffers, kFlushBytes.
  Mr* arena_mr_ = nullptr;
  std::size_t buffer_bytes_ = 0;  ///< Of a receive buffer.
  std::size_t bounce_bytes_ = 0;
  std::byte* headers_ = nullptr;
  std::byte* flush_to_ = nullptr;
  std::byte* copies_ = nullptr;
  std::vector<std::uint32_t> empty_buffers_;  ///< To be posted.
  std::vector<std::int32_t> free_bounces_;
  SendRequest said_{};     ///< A chunk that is written: its header,
  SendRequest written_{};  ///< and itself. What is not named of them stays 0.
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;

  Queue datagrams_;                      ///< The UD queue pair.
  bool datagrams_failed_ = false;        ///< It takes no more until it was reset.
  transport::TimeNs revive_due_ns_ = 0;  ///< The next reset, after one that failed.
  Qp* window_qp_ = nullptr;              ///< Null: as windows_, or it has failed.
  std::unique_ptr<Windows> windows_;     ///< Null: peers write nowhere.
  Progress window_progress_;
  std::string window_failure_;        ///< Not empty: no more windows are opened.
  std::unique_ptr<Bounces> bounces_;  ///< Null: there are no GPUs.
  std::uint64_t copies_dropped_ = 0;  ///< Packets for GPUs, when too many waited for copies.
  /// RC, connected to itself. Null: no GPU's memory is registered, or nobody writes there.
  Qp* flush_qp_ = nullptr;
  Progress flush_progress_;
  std::uint64_t flushes_ = 0;  ///< Posted.
  std::uint64_t flushed_ = 0;  ///< Completed, in order.
  bool flush_failed_ = false;  ///< Since the queue pair was made.
  /// Numbers of flushes that were not carried out: those after the first, up to the second.
  std::deque<std::pair<std::uint64_t, std::uint64_t>> lost_flushes_;
  std::string flush_failure_;
  std::unordered_map<std::uint32_t, Queue*> queue_of_;  ///< By the queue pair's number.
  std::vector<std::unique_ptr<Queue>> queues_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Peer>> peers_;
  mutable Peer* found_ = nullptr;  ///< Last: most packets go where the one before has gone.
  mutable std::uint64_t found_name_ = 0;
  std::uint64_t next_peer_ = 1;
  std::uint32_t next_generation_ = 1;
  transport::TimeNs announce_due_ns_ = transport::kNever;
  transport::TimeNs now_ = 0;  ///< As of the last handle_timeout().
  transport::TimeNs look_due_ns_ = transport::kNever;
  transport::TimeNs async_looked_ns_ = 0;
  std::size_t retired_ = 0;  ///< Of queues_.
  /// Of peers that are gone: datagrams to them may still be in the send queue.
  std::vector<std::pair<transport::TimeNs, AddressHandle*>> old_ways_;
  std::vector<std::byte> message_;

  static constexpr int kCompletionsPerPoll = 32;
  std::array<Completion, kCompletionsPerPoll> received_;            ///< Taken from the NIC.
  std::array<transport::TimeNs, kCompletionsPerPoll> received_ns_;  ///< By the NIC; kNever.
  std::size_t received_count_ = 0;
  std::size_t next_completion_ = 0;          ///< Of these.
  std::vector<Received> drained_;            ///< Taken before a queue pair was destroyed.
  std::vector<std::uint64_t> sent_cookies_;  ///< To be told.
  std::vector<std::uint64_t> told_;
  transport::TimeNs datagrams_full_since_ns_ = transport::kNever;
  std::uint64_t kept_memory_ = 0;  ///< Times that memory could not be taken from the NIC or a GPU.
  std::string kept_memory_why_;    ///< The last time.
  std::uint64_t failed_queues_ = 0;
  std::string last_failure_;
  WireCounters counters_;
};

}  // namespace tutti::wire::verbs
