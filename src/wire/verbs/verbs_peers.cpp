// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// VerbsWire's peers: their queue pairs, made, connected, replaced and taken away.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/random.hpp"
#include "wire/verbs/verbs_wire.hpp"

namespace tutti::wire::verbs {
namespace {

using transport::TimeNs;

constexpr TimeNs kAnnounceNsMin = 2'000'000;
constexpr TimeNs kAnnounceNsMax = 200'000'000;
constexpr TimeNs kAnswerNs = 500'000;  ///< Between two answers, so that two ends do not chase.
/// So often in vain, and the peer may not be there.
constexpr std::uint32_t kTries = 12;
/// A path that cannot be connected does not keep a channel from being made for longer.
constexpr TimeNs kAllPathsNsMax = 1'000'000'000;
constexpr std::uint8_t kHops = 64;
constexpr std::uint8_t kEcnCapable = 2;  ///< ECT(0), RFC 3168.
constexpr std::uint8_t kEcnBits = 3;
constexpr std::uint32_t kFlowLabelBits = 20;
/// Of RC: 4.096 us * 2^14 = 67 ms, and so often again; then the path is given up.
constexpr std::uint8_t kRcTimeout = 14;
constexpr std::uint8_t kRcRetries = 3;
/// 7: without end. look_after_queues() has the end.
constexpr std::uint8_t kForever = 7;
constexpr TimeNs kWayNs = 1'000'000'000;     ///< A datagram has left its send queue by then.
constexpr std::uint8_t kNotReadyTimer = 12;  ///< 0.64 ms
/// New queue pairs for a path whose connecting fails, before the path is given up.
constexpr std::uint32_t kConnectRetries = 3;

}  // namespace

Qp* VerbsWire::make_qp(int type, std::uint32_t depth) const {
  QpInitial initial{};
  initial.send_cq = send_cq_;
  initial.receive_cq = receive_cq_;
  initial.srq = srq_;
  initial.capacity.send_requests = 2 * depth;  // A chunk that is written takes two.
  initial.capacity.send_segments = 2;
  initial.capacity.inline_bytes = inline_bytes_;
  initial.type = type;
  initial.signals_all = 0;  // Of the two requests of a written chunk the last one tells.
  return verbs_.create_qp(pd_, &initial);
}

/// A UD queue pair, to send and receive.
Status VerbsWire::ready(Qp* qp) const {
  QpAttributes attributes{};
  attributes.state = kStateInit;
  attributes.port = static_cast<std::uint8_t>(port_.number);
  attributes.qkey = qkey_;
  int error =
      verbs_.modify_qp(qp, &attributes, kMaskState | kMaskPkeyIndex | kMaskPort | kMaskQkey);
  attributes.state = kStateReadyToReceive;
  error = error != 0 ? error : verbs_.modify_qp(qp, &attributes, kMaskState);
  attributes.state = kStateReadyToSend;
  error = error != 0 ? error : verbs_.modify_qp(qp, &attributes, kMaskState | kMaskSendPsn);
  return error == 0 ? Status()
                    : Status(ErrorCode::kUnavailable,
                             std::string("RDMA: a UD queue pair cannot be set up: ") +
                                 std::strerror(error));
}

/// A send of the UD queue pair has failed, as with the port's network device down. The peers know
/// its number, so it stays, and begins anew.
void VerbsWire::revive_datagrams() {
  QpAttributes attributes{};
  attributes.state = kStateReset;
  datagrams_failed_ =
      verbs_.modify_qp(datagrams_.qp, &attributes, kMaskState) != 0 || !ready(datagrams_.qp).ok();
  revive_due_ns_ = datagrams_failed_ ? now_ + kLookNs : 0;
  failed_queues_ += datagrams_failed_ ? 0 : 1;
}

AddressAttributes VerbsWire::way_to(const Peer& peer, std::uint32_t path) const {
  AddressAttributes way{};
  way.is_global = 1;
  way.route.to = peer.end.gid;
  way.route.gid_index = static_cast<std::uint8_t>(gid_.index);
  way.route.hop_limit = kHops;
  way.route.traffic_class =
      static_cast<std::uint8_t>((peer.traffic_class & ~kEcnBits) | kEcnCapable);
  // What the network hashes. Both directions of a path may differ, and other peers' paths do.
  const std::uint64_t mixed = (number_ ^ peer.end.number) + path * 0x9e37'79b9'7f4a'7c15U;
  way.route.flow_label = static_cast<std::uint32_t>(mixed >> (64 - kFlowLabelBits)) | 1U;
  way.lid = peer.end.lid;
  way.port = static_cast<std::uint8_t>(port_.number);
  return way;
}

/// Numbers of queue pairs come again: what is late of an earlier one does not fit.
std::uint32_t VerbsWire::psn_of(std::uint64_t from, std::uint64_t to, std::uint32_t generation) {
  return static_cast<std::uint32_t>(mix64(mix64(from) + to + generation)) & 0xff'ffffU;
}

/// A queue pair of UC or RC that was just made. Returns 0, or the error.
int VerbsWire::prepare(Qp* qp) const {
  QpAttributes attributes{};
  attributes.state = kStateInit;
  attributes.port = static_cast<std::uint8_t>(port_.number);
  // Where a window is open, and nowhere else. Of what only this wire knows the number: reads.
  attributes.access_flags = qp == flush_qp_ ? kRemoteRead : kRemoteWrite;
  return verbs_.modify_qp(qp, &attributes,
                          kMaskState | kMaskPkeyIndex | kMaskPort | kMaskAccessFlags);
}

/// Same, prepared.
int VerbsWire::connect(Qp* qp, const Peer& peer, std::uint32_t path,
                       const AnnouncedPath& theirs) const {
  const bool is_rc = service_ == Service::kRc || qp == flush_qp_;
  QpAttributes attributes{};
  attributes.reads_in = attributes.reads_out = qp == flush_qp_ ? 1 : 0;
  attributes.state = kStateReadyToReceive;
  attributes.address = way_to(peer, path);
  attributes.path_mtu = std::min(peer.end.mtu, mtu_code(port_.mtu_bytes));
  attributes.remote_qp = theirs.qp_number;
  attributes.receive_psn = psn_of(peer.end.number, number_, theirs.generation);
  attributes.send_psn = psn_of(number_, peer.end.number, theirs.generation);
  attributes.not_ready_timer = kNotReadyTimer;
  int mask = kMaskState | kMaskAddress | kMaskPathMtu | kMaskRemoteQp | kMaskReceivePsn;
  mask |= is_rc ? kMaskReadsIn | kMaskNotReadyTimer : 0;
  if (const int error = verbs_.modify_qp(qp, &attributes, mask); error != 0) {
    return error;
  }
  attributes.state = kStateReadyToSend;
  attributes.timeout = kRcTimeout;
  attributes.retries = kRcRetries;
  attributes.not_ready_retries = kForever;
  mask = kMaskState | kMaskSendPsn;
  mask |= is_rc ? kMaskTimeout | kMaskRetries | kMaskNotReadyRetries | kMaskReadsOut : 0;
  return verbs_.modify_qp(qp, &attributes, mask);
}

Result<std::uint64_t> VerbsWire::add_peer(const WireAddress& address, std::uint8_t traffic_class) {
  TUTTI_ASSIGN_OR_RETURN(const End end, decode(address));
  if (end.service != service_) {
    return Status(ErrorCode::kInvalidArgument,
                  std::string("RDMA: the peer uses ") + to_string(end.service) + ", this end " +
                      to_string(service_) + "; remedy: the same TUTTI_NET_VERBS everywhere");
  }
  for (const auto& [name, peer] : peers_) {
    if (peer->end.number == end.number && peer->traffic_class == traffic_class) {
      ++peer->users;
      return name;
    }
  }
  const TimeNs now = options_.clock();
  auto peer = std::make_unique<Peer>();
  peer->end = end;
  peer->traffic_class = traffic_class;
  peer->users = 1;
  peer->added_ns = now;
  const std::uint32_t paths = std::min<std::uint32_t>(options_.paths, end.paths);
  for (std::uint32_t i = 0; i < (service_ == Service::kUd ? paths : 1); ++i) {
    AddressAttributes way = way_to(*peer, i);
    AddressHandle* const handle = verbs_.create_ah(pd_, &way);
    if (handle == nullptr) {
      const int error = errno;
      for (AddressHandle* const made : peer->ways) {
        verbs_.destroy_ah(made);
      }
      return Status(ErrorCode::kUnavailable,
                    std::string("RDMA: no way to the peer: ") + std::strerror(error));
    }
    peer->ways.push_back(handle);
  }
  const std::uint64_t name = next_peer_++;
  Peer& added = *(peers_[name] = std::move(peer));
  if (service_ != Service::kUd) {
    added.paths.resize(paths);
    for (std::size_t path = 0; path < paths; ++path) {
      renew(name, added, path, 0);
    }
  }
  added.announce_every_ns = kAnnounceNsMin;
  schedule(added, now);
  return name;
}

void VerbsWire::remove_peer(std::uint64_t name) {
  Peer* const peer = find(name);
  if (peer == nullptr || --peer->users > 0) {
    return;
  }
  for (Path& path : peer->paths) {
    retire(std::exchange(path.queue, nullptr));
  }
  // Some NICs look an address up when they send.
  for (AddressHandle* const way : peer->ways) {
    old_ways_.emplace_back(options_.clock() + kWayNs, way);
  }
  look_due_ns_ = std::min(look_due_ns_, options_.clock() + kWayNs);
  forget(name);
}

/// Gives a path a new queue pair. `generation` 0: a new one.
void VerbsWire::renew(std::uint64_t name, Peer& peer, std::size_t path, std::uint32_t generation) {
  Path& it = peer.paths[path];
  retire(std::exchange(it.queue, nullptr));
  it.generation = generation == 0 ? next_generation_ : generation;
  next_generation_ = std::max(next_generation_, it.generation) + 1;
  it.is_connected = false;
  peer.is_settled = false;
  Qp* const qp = make_qp(service_ == Service::kUc ? kQpUc : kQpRc, options_.send_depth);
  const int error = qp == nullptr ? errno : prepare(qp);
  if (error == 0) {
    auto queue = std::make_unique<Queue>();
    queue->qp = qp;
    queue->peer = name;
    queue->path = path;
    it.queue = queue.get();
    queue_of_[qp->number] = queue.get();
    queues_.push_back(std::move(queue));
    return;
  }
  last_failure_ = std::string("no queue pair: ") + std::strerror(error);
  ++failed_queues_;
  if (qp != nullptr) {
    verbs_.destroy_qp(qp);
  }
  note_lost_path(peer, "the NIC has no more", "fewer TUTTI_NET_PATHS");
}

/// One of the peer's paths has been given up, for last_failure_.
void VerbsWire::note_lost_path(const Peer& peer, const std::string& why,
                               const std::string& remedy) const {
  const bool has_others = std::any_of(peer.paths.begin(), peer.paths.end(),
                                      [](const Path& path) { return path.queue != nullptr; });
  fall_back(std::string(has_others ? "fewer queue pairs than paths" : "no queue pair to a peer") +
                ", " + why + " (" + last_failure_ + ")",
            remedy);
}

/// What is in its send queue completes with an error, soon, and the receive that it had begun; then
/// it goes.
void VerbsWire::retire(Queue* queue) {
  if (queue == nullptr) {
    return;
  }
  queue->is_retired = true;
  queue->retired_ns = options_.clock();
  ++retired_;
  QpAttributes attributes{};
  attributes.state = kStateError;
  if (verbs_.modify_qp(queue->qp, &attributes, kMaskState) != 0) {
    destroy(queue);
    return;
  }
  look_due_ns_ = std::min(look_due_ns_, queue->retired_ns + kRetireNs);
}

void VerbsWire::look_after_queues(TimeNs now) {
  bool has_more = false;
  for (std::size_t i = queues_.size(); i-- > 0;) {
    Queue* const queue = queues_[i].get();
    if (queue->is_retired) {
      const TimeNs age_ns = now - std::min(now, queue->retired_ns);
      if (age_ns >= kStuckNsMax || (age_ns >= kRetireNs && queue->outstanding == 0)) {
        destroy(queue);
      } else {
        has_more = true;
      }
    } else if (queue->outstanding > 0) {
      has_more = true;
      if (is_stuck(*queue, now)) {
        fail(queue, kResponseTimeout);
      }
    }
  }
  while (!old_ways_.empty() && old_ways_.front().first <= now) {
    verbs_.destroy_ah(old_ways_.front().second);
    old_ways_.erase(old_ways_.begin());
  }
  look_due_ns_ = retired_ > 0                                           ? now + kRetireNs
                 : has_more || !old_ways_.empty() || has_own_requests() ? now + kLookNs
                                                                        : transport::kNever;
}

/// What has no completion: a write that a NIC has refused, over UC; a NIC that has failed.
void VerbsWire::take_async_events() {
  pollfd ready{context_->async_descriptor, POLLIN, 0};
  while (context_->async_descriptor >= 0 && ::poll(&ready, 1, 0) == 1) {
    AsyncEvent event{};
    if (verbs_.async_event(context_, &event) != 0) {
      return;
    }
    std::uint32_t number = 0;
    if (event.type == kQpFatal || event.type == kQpRequestError || event.type == kQpAccessError) {
      number = event.about.qp->number;
    } else if (event.type == kCqFailed || event.type == kDeviceFatal) {
      last_failure_ =
          event.type == kCqFailed ? "a completion queue has failed" : "the NIC has failed";
      ++failed_queues_;
    }
    verbs_.ack_async_event(&event);  // Before the queue pair goes, which waits for it.
    if (event.type == kCqFailed || event.type == kDeviceFatal) {
      // Nothing completes any more. look_after_queues() ends the peers' queue pairs.
      abandon_datagrams();
      abandon_windows(last_failure_);
      abandon_flushes(last_failure_);
    }
    const auto found = queue_of_.find(number);
    if (found != queue_of_.end() && !found->second->is_retired) {
      fail(found->second, kFlushed);
    }
  }
}

/// True: nothing in its send queue has completed for kStuckNsMax. It takes two looks: this process
/// may have been stopped, and have completions to take in.
bool VerbsWire::is_stuck(Queue& queue, TimeNs now) {
  const bool is_late =
      queue.outstanding > 0 && now - std::min(now, queue.progress_ns) >= kStuckNsMax;
  return std::exchange(queue.is_suspect, is_late) && is_late;
}

/// Same, of queue pairs without slots: of `outstanding` requests none has completed for
/// kStuckNsMax. `completed`: so far.
bool VerbsWire::is_stuck(Progress& progress, std::uint64_t outstanding, std::uint64_t completed,
                         TimeNs now) {
  if (outstanding == 0 || completed != progress.completed || progress.since_ns > now) {
    progress = {completed, outstanding == 0 ? transport::kNever : now, false};
    return false;
  }
  return now - progress.since_ns >= kStuckNsMax && std::exchange(progress.is_suspect, true);
}

bool VerbsWire::has_own_requests() const {
  return datagrams_.outstanding > 0 || flushes_ > flushed_ ||
         (windows_ != nullptr && windows_->requests() > 0);
}

/// A NIC that stops completing must not hold up those who wait for windows, flushes and datagrams.
void VerbsWire::look_after_own_queues(TimeNs now) {
  constexpr const char* kWhy = "the NIC has completed nothing for 2 s";
  if (is_stuck(datagrams_, now)) {
    last_failure_ = kWhy;
    abandon_datagrams();
  }
  if (windows_ != nullptr &&
      is_stuck(window_progress_, windows_->requests(), windows_->completed(), now)) {
    abandon_windows(kWhy);
  }
  if (is_stuck(flush_progress_, flushes_ - flushed_, flushed_, now)) {
    abandon_flushes(kWhy);
  }
}

/// Counts the datagrams in the send queue as sent. Peers know the queue pair's number, so it is
/// reset and stays.
void VerbsWire::abandon_datagrams() {
  take_back_all(datagrams_);
  revive_datagrams();
}

/// Peers write nowhere from here on: the queue pair that opens and closes windows goes.
void VerbsWire::abandon_windows(const std::string& why) {
  if (windows_ == nullptr) {
    return;
  }
  if (window_qp_ != nullptr) {
    verbs_.destroy_qp(std::exchange(window_qp_, nullptr));
  }
  windows_->abandon();
  note_failed_windows(why);
}

/// Told once.
void VerbsWire::note_failed_windows(const std::string& why) {
  if (!window_failure_.empty()) {
    return;
  }
  window_failure_ = why;
  fall_back(
      "receives that are copied: the NIC failed to open or close a memory window (" + why + ")",
      "the cause in the kernel's log, then a restart of the job");
}

/// Flushes under way count as lost. The next one makes a new queue pair.
void VerbsWire::abandon_flushes(const std::string& why) {
  if (flush_qp_ == nullptr) {
    return;
  }
  verbs_.destroy_qp(std::exchange(flush_qp_, nullptr));
  if (!flush_failed_) {
    lose_flushes(why);
  }
  flushed_ = flushes_;
}

/// Those that have not completed are not carried out. The queue pair takes no more.
void VerbsWire::lose_flushes(const std::string& why) {
  flush_failed_ = true;
  flush_failure_ = why;
  lost_flushes_.emplace_back(flushed_, flushes_);
  if (lost_flushes_.size() > kLostFlushesMax) {
    lost_flushes_.pop_front();  // Who posted them has asked long since.
  }
}

void VerbsWire::take_back_all(const Queue& queue) {
  for (std::uint32_t slot = 0; queue.outstanding > 0 && slot < slots_.size(); ++slot) {
    if (slots_[slot].queue == &queue) {
      take_back(slot);
    }
  }
}

void VerbsWire::destroy(Queue* queue) {
  // Nothing is left in its send queue, or nothing of it will ever be told.
  take_back_all(*queue);
  retired_ -= queue->is_retired ? 1 : 0;
  drain_receives();
  queue_of_.erase(queue->qp->number);
  verbs_.destroy_qp(queue->qp);
  const auto found = std::find_if(queues_.begin(), queues_.end(),
                                  [&](const auto& it) { return it.get() == queue; });
  std::swap(*found, queues_.back());
  queues_.pop_back();
}

/// A send of it has failed: the NIC will take no more.
void VerbsWire::fail(Queue* queue, int status) {
  last_failure_ = verbs_.status_text(status);
  ++failed_queues_;
  Peer* const peer = find(queue->peer);
  if (peer == nullptr || queue->path >= peer->paths.size() ||
      peer->paths[queue->path].queue != queue) {
    return;
  }
  renew(queue->peer, *peer, queue->path, 0);
  peer->announce_every_ns = kAnnounceNsMin;
  schedule(*peer, options_.clock());
}

void VerbsWire::schedule(Peer& peer, TimeNs due_ns) {
  peer.announce_ns = due_ns;
  announce_due_ns_ = std::min(announce_due_ns_, due_ns);
}

/// Paths that were given up do not count, as long as there are others.
bool VerbsWire::is_complete(const Peer& peer) {
  const auto has_queue = [](const Path& path) { return path.queue != nullptr; };
  return peer.was_heard && peer.has_heard_us &&
         (peer.paths.empty() || std::any_of(peer.paths.begin(), peer.paths.end(), has_queue)) &&
         std::all_of(peer.paths.begin(), peer.paths.end(),
                     [&](const Path& path) { return !has_queue(path) || is_up(path); });
}

void VerbsWire::handle_timeout(TimeNs now) {
  now_ = now;
  if (now - std::min(now, async_looked_ns_) >= kAsyncNs) {
    async_looked_ns_ = now;
    take_async_events();
    look_after_own_queues(now);
  }
  if (now >= look_due_ns_) {
    look_after_queues(now);
  }
  if (now < announce_due_ns_) {
    return;
  }
  announce_due_ns_ = transport::kNever;
  for (const auto& [name, peer] : peers_) {
    if (peer->announce_ns <= now) {
      announce(*peer, now);
    }
    announce_due_ns_ = std::min(announce_due_ns_, peer->announce_ns);
  }
}

void VerbsWire::announce(Peer& peer, TimeNs now) {
  peer.is_settled = is_complete(peer);
  peer.was_settled = peer.was_settled || peer.is_settled;
  const std::size_t most = (datagram_bytes_of(peer) - kAnnouncementHeadBytes) / kAnnouncedPathBytes;
  Announcement message;
  message.from = number_;
  message.to = peer.end.number;
  message.traffic_class = peer.traffic_class;
  message.has_heard = peer.was_heard;
  message.is_complete = peer.is_settled;
  message.paths = static_cast<std::uint16_t>(peer.paths.size());
  std::size_t first = 0;
  do {
    message.first = static_cast<std::uint16_t>(first);
    message.announced.clear();
    for (; first < peer.paths.size() && message.announced.size() < most; ++first) {
      const Path& path = peer.paths[first];
      message.announced.push_back(
          {path.generation, path.queue == nullptr ? 0 : path.queue->qp->number, path.is_connected});
    }
    encode(message, &message_);
    (void)post(datagrams_, peer, {}, message_, kAnnounce, peer.ways[0]);
  } while (first < peer.paths.size());
  ++peer.announced;
  peer.announced_ns = now;
  schedule(peer, peer.is_settled ? transport::kNever : now + peer.announce_every_ns);
  peer.announce_every_ns = std::min(2 * peer.announce_every_ns, kAnnounceNsMax);
}

void VerbsWire::hear(std::span<const std::byte> bytes) {
  Announcement message;
  if (!verbs::decode(bytes, &message) || message.to != number_) {
    ++counters_.malformed_dropped;
    return;
  }
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const auto& it) {
    return it.second->end.number == message.from &&
           it.second->traffic_class == message.traffic_class;
  });
  if (found == peers_.end()) {
    return;  // Not yet, or no more. It will ask again.
  }
  Peer& peer = *found->second;
  bool is_new = !peer.was_heard;
  peer.was_heard = true;
  peer.has_heard_us = peer.has_heard_us || message.has_heard;
  for (std::size_t i = 0; i < message.announced.size(); ++i) {
    if (message.first + i < peer.paths.size()) {
      is_new = update(found->first, peer, message.first + i, message.announced[i]) || is_new;
    }
  }
  if (is_new) {
    peer.announce_every_ns = kAnnounceNsMin;
  }
  if (is_new || !message.is_complete || (!peer.is_settled && is_complete(peer))) {
    schedule(peer, std::min(peer.announce_ns, peer.announced_ns + kAnswerNs));
  }
}

/// True: something has changed that the peer wants to know.
bool VerbsWire::update(std::uint64_t name, Peer& peer, std::size_t path,
                       const AnnouncedPath& theirs) {
  Path& it = peer.paths[path];
  if (theirs.generation < it.theirs.generation) {
    return false;  // Overtaken.
  }
  it.theirs = theirs;
  bool is_new = false;
  if (theirs.generation > it.generation) {
    renew(name, peer, path, theirs.generation);
    is_new = true;
  }
  if (it.queue != nullptr && theirs.generation == it.generation && theirs.qp_number == 0) {
    retire(std::exchange(it.queue, nullptr));
    last_failure_ = "it has no queue pair for this one";
    note_lost_path(peer, "the peer has given it up", "the cause in the peer's log");
    is_new = true;
  }
  if (it.queue != nullptr && !it.is_connected && theirs.generation == it.generation &&
      theirs.qp_number != 0) {
    const int error = connect(it.queue->qp, peer, static_cast<std::uint32_t>(path), theirs);
    it.is_connected = error == 0;
    is_new = true;
    if (it.is_connected) {
      it.connect_failures = 0;
    } else {
      last_failure_ = std::string("a queue pair cannot be connected: ") + std::strerror(error);
      ++failed_queues_;
      if (++it.connect_failures <= kConnectRetries) {
        renew(name, peer, path, 0);
      } else {
        retire(std::exchange(it.queue, nullptr));
        note_lost_path(peer, "the NIC reaches the peer by no more",
                       "a route to the peer's GID, or another one (NCCL_IB_GID_INDEX)");
      }
    }
  }
  return is_new;
}

Reach VerbsWire::reach(std::uint64_t name) const {
  const Peer* const peer = find(name);
  if (peer == nullptr) {
    return {};
  }
  const bool has_path =
      service_ == Service::kUd || std::any_of(peer->paths.begin(), peer->paths.end(), is_up);
  const bool has_waited = options_.clock() - peer->added_ns > kAllPathsNsMax;
  Reach reach;
  reach.is_known =
      is_complete(*peer) || (has_waited && peer->was_heard && peer->has_heard_us && has_path);
  reach.is_tried = !peer->was_heard && peer->announced >= kTries;
  reach.is_heard = peer->was_heard;
  return reach;
}

}  // namespace tutti::wire::verbs
