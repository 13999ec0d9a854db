// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/verbs_wire.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/system_random.hpp"

namespace tutti::wire::verbs {
namespace {

static_assert(std::endian::native == std::endian::little, "addresses are copied");

constexpr std::uint32_t kChunkBytes = 32 << 10;
/// Over UC a chunk is lost with any of its packets.
constexpr std::uint32_t kPacketsOfChunk = 8;
constexpr std::uint32_t kPathsMax = 256;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kAddressBytes = 1 + 16 + 2 + 4 + 4 + 2 + 1 + 1 + 8;
constexpr std::byte kAddressMagic{0xe0};  ///< Also the version of the address.
constexpr const char* kServiceNames[] = {"UC", "RC", "UD"};

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::string gid_text(const GidEntry& entry) {
  char text[INET6_ADDRSTRLEN] = {};
  const auto& gid = entry.gid;
  entry.is_ipv4() ? inet_ntop(AF_INET, &gid[12], text, sizeof text)
                  : inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

Status failed(const std::string& what, int error = errno) {
  return Status(ErrorCode::kUnavailable,
                "RDMA: " + what + ": " + std::strerror(error) +
                    (error == ENOMEM ? "; remedy: a higher ulimit -l" : ""));
}

}  // namespace

const char* to_string(Service service) { return kServiceNames[static_cast<int>(service)]; }

VerbsWire::VerbsWire(const Functions& verbs, VerbsOptions options)
    : verbs_(verbs), options_(std::move(options)) {
  options_.paths = std::clamp(options_.paths, 1U, kPathsMax);
  if (!options_.clock) {
    options_.clock = monotonic_ns;
  }
}

Result<std::unique_ptr<VerbsWire>> VerbsWire::open(const Functions& verbs,
                                                   const VerbsOptions& options) {
  auto wire = std::unique_ptr<VerbsWire>(new VerbsWire(verbs, options));
  TUTTI_RETURN_IF_ERROR(system_random(&wire->number_, sizeof wire->number_));
  TUTTI_RETURN_IF_ERROR(system_random(&wire->qkey_, sizeof wire->qkey_));
  wire->qkey_ &= 0x7fff'ffff;  // Those with the high bit are for privileged programs.
  TUTTI_RETURN_IF_ERROR(wire->open_port());
  wire->open_channel();
  TUTTI_RETURN_IF_ERROR(wire->choose_service());
  TUTTI_RETURN_IF_ERROR(wire->open_memory());
  TUTTI_RETURN_IF_ERROR(wire->open_queues());
  wire->open_windows();
  return wire;
}

VerbsWire::~VerbsWire() {
  // Destroyed, a queue pair touches no memory any more.
  for (const auto& queue : queues_) {
    verbs_.destroy_qp(queue->qp);
  }
  for (const auto& [name, peer] : peers_) {
    for (AddressHandle* const way : peer->ways) {
      verbs_.destroy_ah(way);
    }
  }
  for (Qp* const qp : {datagrams_.qp, window_qp_, flush_qp_}) {
    if (qp != nullptr) {
      verbs_.destroy_qp(qp);
    }
  }
  for (const auto& [due_ns, way] : old_ways_) {
    verbs_.destroy_ah(way);
  }
  windows_.reset();
  if (bounces_ != nullptr) {
    bounces_.reset();
    options_.copies->remove_source(arena_);
  }
  if (srq_ != nullptr) {
    verbs_.destroy_srq(srq_);
  }
  for (Cq* const cq : {send_cq_, receive_cq_}) {
    if (cq != nullptr) {
      verbs_.destroy_cq(cq);
    }
  }
  if (channel_ != nullptr) {
    sleeper_.reset();
    verbs_.destroy_channel(channel_);
  }
  if (arena_mr_ != nullptr) {
    verbs_.dereg_mr(arena_mr_);
  }
  memory_.reset();
  if (pd_ != nullptr) {
    verbs_.dealloc_pd(pd_);
  }
  if (context_ != nullptr) {
    verbs_.close_device(context_);
  }
}

Status VerbsWire::open_port() {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Port> ports,
                         list_ports(verbs_, options_.class_directory));
  const auto found = std::find_if(ports.begin(), ports.end(), [&](const Port& port) {
    return port.device == options_.device && port.number == options_.port;
  });
  const std::string name = options_.device + " port " + std::to_string(options_.port);
  if (found == ports.end()) {
    return Status(ErrorCode::kUnavailable, "RDMA: there is no " + name);
  }
  port_ = *found;
  marks_ = read_marks(options_.class_directory, port_.device, port_.number);
  if (!port_.is_active) {
    return Status(ErrorCode::kUnavailable, "RDMA: " + name + " is not active; remedy: its link");
  }
  TUTTI_ASSIGN_OR_RETURN(const std::size_t gid, choose_gid(port_, options_.gid));
  gid_ = port_.gids[gid];
  context_ = open_device(verbs_, options_.device);
  if (context_ == nullptr) {
    return failed(options_.device + " cannot be opened");
  }
  return {};
}

Status VerbsWire::choose_service() {
  pd_ = verbs_.alloc_pd(context_);
  if (pd_ == nullptr) {
    return failed("no protection domain of " + options_.device);
  }
  open_completions();
  if (send_cq_ == nullptr || receive_cq_ == nullptr) {
    return failed("no completion queues of " + options_.device);
  }
  SrqAttributes attributes{};
  attributes.requests_max = options_.receive_buffers;
  attributes.segments_max = 1;
  srq_ = verbs_.create_srq(pd_, &attributes);
  if (srq_ == nullptr) {
    return failed("no shared receive queue of " + options_.device);
  }
  datagrams_.qp = make_qp(kQpUd, kDatagramDepth);
  // Drivers refuse more inline data than they have by one of these. It saves the NIC a read, no
  // more: to go without is no fall-back.
  if (datagrams_.qp == nullptr && (errno == EINVAL || errno == ENOMEM)) {
    inline_bytes_ = 0;
    datagrams_.qp = make_qp(kQpUd, kDatagramDepth);
  }
  if (datagrams_.qp == nullptr) {
    return failed("no UD queue pair of " + options_.device);
  }
  if (options_.service == "auto") {
    errno = 0;
    Qp* const tried = make_qp(kQpUc, options_.send_depth);
    const int error = errno;
    service_ = tried != nullptr ? Service::kUc : Service::kRc;
    if (tried != nullptr) {
      verbs_.destroy_qp(tried);
    } else if (error == 0 || error == EOPNOTSUPP || error == ENOSYS || error == EPROTONOSUPPORT ||
               error == EINVAL) {
      fall_back("RC and not UC, which " + options_.device + " does not have (" +
                    std::strerror(error) + ")",
                "TUTTI_NET_VERBS=rc, if that is as it should be");
    } else {
      return failed("no UC queue pair of " + options_.device, error);
    }
    return {};
  }
  for (const Service service : {Service::kUc, Service::kRc, Service::kUd}) {
    std::string name = to_string(service);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char letter) { return static_cast<char>(letter - 'A' + 'a'); });
    if (name == options_.service) {
      service_ = service;
      return {};
    }
  }
  return Status(ErrorCode::kInvalidConfig, "RDMA: there is no service '" + options_.service +
                                               "'; there are auto, uc, rc and ud");
}

Status VerbsWire::open_memory() {
  // A header, then the payload.
  const auto datagram_bytes = static_cast<std::uint32_t>(port_.mtu_bytes);
  const std::uint32_t chunk_bytes_max =
      datagram_bytes - static_cast<std::uint32_t>(transport::kHeaderBytesMax);
  chunk_bytes_ = options_.chunk_bytes != 0 ? options_.chunk_bytes
                 : service_ == Service::kUc
                     ? std::min(kChunkBytes, kPacketsOfChunk * datagram_bytes)
                     : kChunkBytes;
  if (service_ == Service::kUd) {
    chunk_bytes_ = std::min(chunk_bytes_, chunk_bytes_max);
  }
  const std::size_t content_bytes =
      std::max<std::size_t>(datagram_bytes, chunk_bytes_ + transport::kHeaderBytesMax);
  buffer_bytes_ = aligned(kGrhBytes + content_bytes);
  const std::size_t receive_bytes = buffer_bytes_ * options_.receive_buffers;
  bounce_bytes_ = aligned(content_bytes);
  arena_.resize(receive_bytes + kHeaderSlotBytes * kSendSlots +
                bounce_bytes_ * options_.bounce_buffers + kFlushBytes);
  headers_ = arena_.data() + receive_bytes;
  copies_ = headers_ + kHeaderSlotBytes * kSendSlots;
  flush_to_ = copies_ + bounce_bytes_ * options_.bounce_buffers;
  arena_mr_ = verbs_.reg_mr(pd_, arena_.data(), arena_.size(), kLocalWrite);
  if (arena_mr_ == nullptr) {
    return failed(std::to_string(arena_.size() >> 20) + " MiB for packets cannot be registered");
  }
  memory_ = std::make_unique<RegisteredMemory>(
      verbs_, pd_, [this](const std::string& why) { note_kept_memory(why); });
  if (options_.copies != nullptr) {
    options_.copies->add_source(arena_);
    bounces_ = std::make_unique<Bounces>(*options_.copies);
  }
  slots_.resize(kSendSlots);
  for (std::uint32_t i = kSendSlots; i-- > 0;) {
    free_slots_.push_back(i);
  }
  for (std::uint32_t i = options_.bounce_buffers; i-- > 0;) {
    free_bounces_.push_back(static_cast<std::int32_t>(i));
  }
  for (std::uint32_t i = 0; i < options_.receive_buffers; ++i) {
    empty_buffers_.push_back(i);
  }
  return {};
}

Status VerbsWire::open_queues() {
  TUTTI_RETURN_IF_ERROR(ready(datagrams_.qp));
  post_receives();
  return {};
}

/// Connects a queue pair to itself. Returns 0, or the error.
int VerbsWire::open_loop(Qp* qp) const {
  Peer self;
  self.end.gid = gid_.gid;
  self.end.lid = port_.lid;
  self.end.mtu = mtu_code(port_.mtu_bytes);
  self.end.number = number_;
  const int error = prepare(qp);
  return error != 0 ? error : connect(qp, self, 0, {0, qp->number, true});
}

/// Without them all is copied.
void VerbsWire::open_windows() {
  if (service_ == Service::kUd || options_.window_bytes_min == 0) {
    return;
  }
  window_qp_ = make_qp(service_ == Service::kUc ? kQpUc : kQpRc, Windows::kRequestsMax);
  int error = window_qp_ == nullptr ? errno : open_loop(window_qp_);
  if (error == 0) {
    windows_ = std::make_unique<Windows>(context_, pd_, window_qp_,
                                         [this](const std::string& why) { note_kept_memory(why); });
    error = windows_->try_one();
    if (error == 0) {
      memory_->allow_windows();
      return;
    }
  }
  windows_.reset();
  if (window_qp_ != nullptr) {
    verbs_.destroy_qp(std::exchange(window_qp_, nullptr));
  }
  fall_back("copies of what arrives and not writes into receives: " + options_.device +
                " has no memory windows (" + std::strerror(error) + ")",
            "a NIC with memory windows of type 1");
}

std::uint64_t VerbsWire::open_window(std::span<std::byte> memory) {
  if (windows_ == nullptr) {
    return 0;
  }
  const auto* const region = memory_->find_region(memory.data(), memory.size());
  // libibverbs' drivers bind none to a dma-buf (mlx5, irdma: ENOTSUP).
  return region == nullptr || region->is_dma_buf ? 0 : windows_->open(region->mr, memory);
}

Status VerbsWire::register_device_memory(const DeviceMemory& memory) {
  if (bounces_ == nullptr) {
    return no_device_memory();
  }
  TUTTI_RETURN_IF_ERROR(memory_->add(memory));
  const bool is_dma_buf = memory.descriptor >= 0;  // Nothing is written there (open_window).
  if (!is_dma_buf && windows_ != nullptr && flush_qp_ == nullptr && flushes_ == 0) {
    open_flushes();
  }
  return {};
}

/// What a NIC writes into a GPU's memory and what it tells the host take different ways, and the
/// one may be there before the other. A read by the same NIC goes behind its writes: when it has
/// come back, they are there. Only RC reads.
void VerbsWire::open_flushes() {
  flush_qp_ = make_qp(kQpRc, kFlushesMax);
  const int error = flush_qp_ == nullptr ? errno : open_loop(flush_qp_);
  if (error == 0) {
    return;
  }
  flush_failure_ = std::string("no RC queue pair that reads: ") + std::strerror(error);
  if (flush_qp_ != nullptr) {
    verbs_.destroy_qp(std::exchange(flush_qp_, nullptr));
  }
}

Result<std::uint64_t> VerbsWire::start_flush(std::span<const std::byte> memory) {
  const auto* const region = memory_->find_region(memory.data(), memory.size());
  // Where peers write nothing, GPUs have copied all, and see what they have written.
  if (region == nullptr || region->device < 0 || region->is_dma_buf || memory.empty() ||
      windows_ == nullptr) {
    return std::uint64_t{0};
  }
  if (flush_failed_ && flushes_ == flushed_) {
    // One of memory that was given back meanwhile has ended the queue pair, or the NIC its work.
    if (flush_qp_ != nullptr) {
      verbs_.destroy_qp(std::exchange(flush_qp_, nullptr));
    }
    flush_failed_ = false;
    open_flushes();
  }
  const auto cannot = [](const std::string& why) {
    return Status(ErrorCode::kUnavailable, "RDMA: the GPU's memory cannot be flushed: " + why);
  };
  if (flush_qp_ == nullptr || flush_failed_) {
    return flush_qp_ == nullptr ? cannot(flush_failure_)
                                : Status(ErrorCode::kTimeout, "RDMA: flushes begin anew");
  }
  if (flushes_ - flushed_ >= kFlushesMax) {
    return Status(ErrorCode::kTimeout, "RDMA: too many flushes");
  }
  Segment to{reinterpret_cast<std::uint64_t>(flush_to_), 1, arena_mr_->local_key};
  SendRequest request{};
  request.id = kFlush | (flushes_ + 1);
  request.segments = &to;
  request.segment_count = 1;
  request.opcode = kRead;
  request.flags = kSignaled;
  request.to.rdma = {reinterpret_cast<std::uint64_t>(&memory.back()), region->mr->remote_key};
  SendRequest* bad = nullptr;
  if (const int error = context_->ops.post_send(flush_qp_, &request, &bad); error != 0) {
    // An empty send queue has room: what it refuses it refuses for good.
    return flushes_ == flushed_ ? cannot(std::strerror(error))
                                : Status(ErrorCode::kTimeout, "RDMA: no room for a flush");
  }
  return ++flushes_;
}

Result<bool> VerbsWire::has_flushed(std::uint64_t flush) {
  const bool is_lost =
      std::any_of(lost_flushes_.begin(), lost_flushes_.end(),
                  [&](const auto& range) { return flush > range.first && flush <= range.second; });
  if (is_lost) {
    return Status(ErrorCode::kUnavailable,
                  "RDMA: the GPU's memory cannot be flushed: " + flush_failure_);
  }
  return flush <= flushed_;
}

/// A program that aborts gives memory back before its receives have ended. A NIC does not let go of
/// memory that a window is open on.
void VerbsWire::deregister_memory(std::span<std::byte> memory) {
  const transport::TimeNs end_ns = options_.clock() + kRevokeNsMax;
  // The thread may have lost its processor: time alone does not end a wait.
  int rounds = 0;
  const auto goes_on = [&] { return ++rounds < kRevokeRoundsMin || options_.clock() < end_ns; };
  const Mr* const last = memory_->last_use(memory);
  if (last != nullptr && bounces_ != nullptr) {
    bounces_->drop(memory, &empty_buffers_);
    while (bounces_->is_under_way_into(memory) && goes_on()) {
    }
    if (bounces_->is_under_way_into(memory)) {
      note_kept_memory("a GPU's copy into it has not ended within 100 ms");
    }
  }
  if (last != nullptr && windows_ != nullptr) {
    bool are_closed = false;
    while (!(are_closed = windows_->revoke(last)) && goes_on()) {
      poll_sends();
    }
    if (!are_closed) {
      abandon_windows("none was opened or closed within 100 ms");
    }
  }
  memory_->remove(memory);
}

/// Of memory that its owner frees.
void VerbsWire::note_kept_memory(const std::string& why) {
  ++kept_memory_;
  kept_memory_why_ = why;
  fall_back("memory that was given back and may still be written: " + why,
            "the cause in the kernel's log; results of this job may be wrong");
}

transport::WireCapabilities VerbsWire::capabilities() const {
  transport::WireCapabilities it;
  it.chunk_bytes = chunk_bytes_;
  it.mtu_bytes = service_ == Service::kUd
                     ? chunk_bytes_
                     : std::min(static_cast<std::uint32_t>(port_.mtu_bytes), chunk_bytes_);
  it.paths = options_.paths;
  it.ps_per_byte = options_.ps_per_byte;
  it.base_rtt_ns = options_.base_rtt_ns;
  it.base_rtt_is_guess = true;
  // Marks are in the IP header, which a datagram's receiver alone gets to see.
  it.marks_ecn = service_ == Service::kUd && port_.is_ethernet;
  it.sends_complete_late = true;
  it.window_bytes_min = windows_ == nullptr ? 0 : options_.window_bytes_min;
  return it;
}

WireAddress VerbsWire::address() const {
  WireAddress address;
  std::size_t at = 0;
  const auto put = [&](const void* value, std::size_t bytes) {
    std::memcpy(&address.bytes[at], value, bytes);
    at += bytes;
  };
  const auto paths = static_cast<std::uint16_t>(options_.paths);
  const std::uint8_t mtu = mtu_code(port_.mtu_bytes);
  put(&kAddressMagic, 1);
  put(gid_.gid.data(), gid_.gid.size());
  put(&port_.lid, 2);
  put(&datagrams_.qp->number, 4);
  put(&qkey_, 4);
  put(&paths, 2);
  put(&mtu, 1);
  put(&service_, 1);
  put(&number_, 8);
  address.length = static_cast<std::uint8_t>(at);
  return address;
}

Result<VerbsWire::End> VerbsWire::decode(const WireAddress& address) {
  if (address.length != kAddressBytes || address.bytes[0] != kAddressMagic) {
    return Status(ErrorCode::kInvalidArgument, "not an address of a verbs wire");
  }
  End end;
  std::size_t at = 1;
  const auto get = [&](void* value, std::size_t bytes) {
    std::memcpy(value, &address.bytes[at], bytes);
    at += bytes;
  };
  std::uint8_t service = 0;
  get(end.gid.data(), end.gid.size());
  get(&end.lid, 2);
  get(&end.qp_number, 4);
  get(&end.qkey, 4);
  get(&end.paths, 2);
  get(&end.mtu, 1);
  get(&service, 1);
  get(&end.number, 8);
  if (end.qp_number == 0 || end.qp_number > 0xff'ffff || end.paths == 0 || end.paths > kPathsMax ||
      end.mtu < 1 || end.mtu > 5 || service > static_cast<std::uint8_t>(Service::kUd)) {
    return Status(ErrorCode::kInvalidArgument, "not an address of a verbs wire: invalid values");
  }
  end.service = static_cast<Service>(service);
  return end;
}

VerbsWire::Peer* VerbsWire::search(std::uint64_t peer) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) {
    return nullptr;
  }
  found_name_ = peer;
  found_ = found->second.get();
  return found_;
}

std::string VerbsWire::description() const {
  return std::string("RDMA ") + to_string(service_) + " on " + port_.device + " port " +
         std::to_string(port_.number) + ", GID " + std::to_string(gid_.index) + " (" +
         gid_text(gid_) + "), " + std::to_string(options_.paths) +
         (service_ == Service::kUd ? " flow labels" : " queue pairs") +
         " to each peer, chunks of " + std::to_string(chunk_bytes_) + " bytes, MTU " +
         std::to_string(port_.mtu_bytes) +
         (windows_ == nullptr ? ", receives are copied"
                              : ", written into receives from " +
                                    std::to_string(options_.window_bytes_min) + " bytes") +
         (unstamped_.empty() ? "" : ", no time stamps of the NIC: " + unstamped_);
}

std::string VerbsWire::report() const {
  std::string text;
  if (failed_queues_ > 0) {
    text += ", " + std::to_string(failed_queues_) + " queue pair(s) failed and were replaced (" +
            last_failure_ + ")";
  }
  if (bounces_ != nullptr && bounces_->failures() > 0) {
    text += ", " + std::to_string(bounces_->failures()) +
            " packet(s) could not be copied into a GPU's memory (" + bounces_->last_failure() + ")";
  }
  if (copies_dropped_ > 0) {
    text += ", " + std::to_string(copies_dropped_) +
            " packet(s) for GPUs were dropped: copies held half of the receive buffers";
  }
  if (!window_failure_.empty()) {
    text += ", receives were copied after the NIC failed to open or close a memory window (" +
            window_failure_ + ")";
  }
  if (kept_memory_ > 0) {
    text += ", memory was given back " + std::to_string(kept_memory_) +
            " time(s) while it could still be written (" + kept_memory_why_ + ")";
  }
  // Of UC and RC the NIC says of no packet whether it was marked: no controller hears of it.
  const auto marks =
      marks_ ? read_marks(options_.class_directory, port_.device, port_.number) : std::nullopt;
  if (marks && marks->marked >= marks_->marked && marks->told >= marks_->told &&
      (marks->marked > marks_->marked || marks->told > marks_->told)) {
    text += ", while it was open " + port_.device + " port " + std::to_string(port_.number) +
            " took in " + std::to_string(marks->marked - marks_->marked) +
            " packet(s) that switches had marked (ECN) and " +
            std::to_string(marks->told - marks_->told) + " notification(s) of such (CNP)";
  }
  if (counters_.refused > 0) {
    text += ", " + std::to_string(counters_.refused) +
            " packet(s) were dropped before the NIC took them";
  }
  return text;
}

Ends VerbsWire::ends(std::uint64_t peer) const {
  const Peer* const it = find(peer);
  if (it == nullptr) {
    return {};
  }
  GidEntry theirs;
  theirs.gid = it->end.gid;
  const std::string mine =
      gid_text(gid_) + " (" + port_.device + " port " + std::to_string(port_.number) + ")";
  return {.senders = mine,
          .receiver = mine,
          .peer = gid_text(theirs) + " (queue pair " + std::to_string(it->end.qp_number) + ")",
          .peer_host = gid_text(theirs)};
}

}  // namespace tutti::wire::verbs
