// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "support/fake_xsk.hpp"

#include <arpa/inet.h>
#include <linux/if_xdp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "wire/xdp/packet.hpp"
#include "wire/xdp/xsk.hpp"

namespace tutti::testing {

using transport::TimeNs;
using wire::xdp::Datagram;
using wire::xdp::KernelStack;
using wire::xdp::kEthernetBytes;
using wire::xdp::kHeadBytes;
using wire::xdp::kIpBytes;
using wire::xdp::MacAddress;
using wire::xdp::Neighbour;
using wire::xdp::NextHop;
using wire::xdp::UdpEnd;
using wire::xdp::XskKernel;
using wire::xdp::XskMemory;
using wire::xdp::XskOptions;
using wire::xdp::XskRing;

namespace {

using Bytes = std::vector<std::byte>;

constexpr TimeNs kLateNsMax = 1'000'000;
constexpr TimeNs kHoldNsMax = 200'000;
constexpr TimeNs kErrorNsMax = 400'000;
constexpr std::size_t kUnresolvedMax = 16;  ///< Datagrams that wait for ARP.
constexpr std::size_t kUdpQueueMax = 256;   ///< Datagrams in the UDP socket.
constexpr std::byte kPoison{0xdd};
constexpr std::uint8_t kEcnMask = 3;
constexpr std::uint8_t kEct0 = 2;

/// `number`: of a frame, or where it lies.
void require(bool is_so, const char* what, std::uint64_t number) {
  if (!is_so) {
    throw std::logic_error("AF_XDP contract: " + (what + (": " + std::to_string(number))));
  }
}

std::uint32_t get16(const Bytes& frame, std::size_t at) {
  return std::to_integer<std::uint32_t>(frame[at]) << 8 |
         std::to_integer<std::uint32_t>(frame[at + 1]);
}

/// The ones' complement sum of 16-bit words (RFC 1071), on top of `sum`.
std::uint32_t sum_of(const Bytes& frame, std::size_t begin, std::size_t end, std::uint32_t sum) {
  for (std::size_t at = begin; at < end; at += 2) {
    sum += at + 1 < end ? get16(frame, at) : std::to_integer<std::uint32_t>(frame[at]) << 8;
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return sum;
}

/// 0xffff: the UDP checksum is right.
std::uint32_t udp_sum(const Bytes& frame) {
  const std::uint32_t udp_bytes = get16(frame, 38);
  const std::uint32_t pseudo = sum_of(frame, 26, 34, IPPROTO_UDP + udp_bytes);
  return sum_of(frame, 34, std::min<std::size_t>(frame.size(), 34 + udp_bytes), pseudo);
}

UdpEnd end_at(const Bytes& frame, std::size_t address_at, std::size_t port_at) {
  UdpEnd end;
  std::memcpy(&end.address, &frame[address_at], sizeof end.address);
  std::memcpy(&end.port, &frame[port_at], sizeof end.port);
  return end;
}
UdpEnd source_of(const Bytes& frame) { return end_at(frame, 26, 34); }
UdpEnd target_of(const Bytes& frame) { return end_at(frame, 30, 36); }

/// As the XDP program sees it (xdp_program.hpp).
bool is_for(const Bytes& frame, const UdpEnd& end) {
  return frame.size() >= kHeadBytes && get16(frame, 12) == 0x0800 && frame[14] == std::byte{0x45} &&
         (get16(frame, 20) & 0x3fff) == 0 && frame[23] == std::byte{IPPROTO_UDP} &&
         target_of(frame) == end;
}

void mark(Bytes& frame) {
  if (frame.size() < kHeadBytes || (frame[15] & std::byte{kEcnMask}) == std::byte{0}) {
    return;
  }
  frame[15] |= std::byte{kEcnMask};
  frame[24] = frame[25] = std::byte{0};
  const std::uint32_t checksum = ~sum_of(frame, 14, 34, 0);
  frame[24] = static_cast<std::byte>(checksum >> 8);
  frame[25] = static_cast<std::byte>(checksum);
}

MacAddress mac_of(int end) { return {0x02, 0, 0, 0, 0, static_cast<std::uint8_t>(end + 1)}; }

UdpEnd udp_end_of(int end) {
  return {htonl(0x0a000001U + static_cast<std::uint32_t>(end)),
          htons(static_cast<std::uint16_t>(20'000 + end))};
}

/// A ring of the kernel's side. Entries are at(index), whatever the index.
template <class Entry>
struct Ring {
  std::uint32_t producer = 0;
  std::uint32_t consumer = 0;
  std::uint32_t flags = 0;
  std::vector<Entry> entries;

  XskRing open(std::uint32_t count) {
    entries.assign(count, Entry{});
    return {&producer, &consumer, &flags, reinterpret_cast<std::byte*>(entries.data()), count};
  }
  Entry& at(std::uint32_t index) { return entries[index % entries.size()]; }
  std::uint32_t filled() const { return producer - consumer; }
  void check(const char* name) const { require(filled() <= entries.size(), name, filled()); }
};

}  // namespace

/// What both hosts share.
struct FakeXskNetwork::State {
  struct Flight {
    int target = 0;
    Bytes frame;
  };

  State(std::uint64_t seed, const FakeXskNetwork::Options& it) : options(it), random(seed) {}

  bool happens(double chance) {
    return chance > 0 && random.below(1'000'000) < static_cast<std::uint32_t>(chance * 1e6);
  }
  TimeNs up_to(TimeNs bound_ns) { return random.below(static_cast<std::uint32_t>(bound_ns)); }

  void send(int target, Bytes frame) {
    TimeNs& free_ns = free_ns_of[target];
    free_ns = std::max(free_ns, now) + options.frame_ns;
    if (is_cut || happens(faults.loss)) {
      ++lost;
      return;
    }
    TimeNs at_ns = free_ns + options.latency_ns;
    if (happens(faults.duplicate)) {
      ++duplicated;
      flights.emplace(at_ns + up_to(kLateNsMax), Flight{target, frame});
    }
    if (happens(faults.corrupt)) {
      ++corrupted;
      frame[random.below(static_cast<std::uint32_t>(frame.size()))] ^=
          static_cast<std::byte>(1 + random.below(255));
    }
    if (happens(faults.mark)) {
      mark(frame);
    }
    if (happens(faults.hold)) {
      at_ns += up_to(kHoldNsMax);
    }
    flights.emplace(at_ns, Flight{target, std::move(frame)});
  }

  FakeXskNetwork::Options options;
  Random random;
  FakeXskFaults faults;
  bool is_cut = false;
  TimeNs now = 0;
  TimeNs free_ns_of[2] = {};              ///< When the link to an end has sent what it has.
  std::multimap<TimeNs, Flight> flights;  ///< By arrival; equal ones in their order.
  std::unique_ptr<Host> hosts[2];
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t corrupted = 0;
};

class FakeXskNetwork::Host {
 public:
  Host(State* state, int end)
      : state_(*state),
        end_(end),
        options_(state->options.ends[end]),
        knows_mac_(options_.knows_mac) {}

  XskMemory open(const XskOptions& options);
  void wake_receive();
  int wake_send();
  std::uint64_t dropped() const { return unfilled_ + unread_; }
  std::optional<Neighbour> neighbour();
  int send_udp(const UdpEnd& target, int tos, std::span<const std::byte> payload);
  bool receive_udp(std::span<std::byte> buffer, Datagram& out);

  void step();
  void arrive(Bytes frame);
  bool is_readable() const { return receive_.filled() > 0 || !udp_queue_.empty(); }
  bool waits() const {
    return held_ > 0 || (send_.filled() > 0 && send_.flags == XDP_RING_NEED_WAKEUP && !is_busy_);
  }
  bool is_settled();
  std::string report() const;

 private:
  enum class Owner : std::uint8_t {
    kProcess,
    kKernel,    ///< In the fill ring or out of it; or being sent.
    kReceived,  ///< In the ring of received frames.
    kCompleted,
  };
  struct Frame {
    Owner owner = Owner::kProcess;
    Bytes sent;  ///< What it was when it was pushed.
  };
  struct Unfinished {
    std::uint64_t address = 0;
    TimeNs due_ns = 0;
  };

  Frame& frame(std::uint64_t address) { return frames_[address / frame_bytes_]; }
  bool is_receive_frame(std::uint64_t address) const {
    return address < std::uint64_t{options_.receive_frames} * frame_bytes_;
  }
  void observe();
  void take_pushed(const xdp_desc& it);
  void check_datagram(const Bytes& frame) const;
  void check_untouched(std::uint64_t address);
  bool is_failing();
  bool send_next(bool is_lost);
  void complete();
  void refill();
  std::optional<std::uint64_t> take_filled();

  State& state_;
  int end_;
  const FakeXskOptions& options_;
  std::uint32_t frame_bytes_ = 0;
  Bytes memory_;
  std::vector<Frame> frames_;
  Ring<xdp_desc> receive_;
  Ring<std::uint64_t> fill_;
  Ring<xdp_desc> send_;
  Ring<std::uint64_t> completed_;
  // How far observe() has looked at what the process has written.
  std::uint32_t receive_seen_ = 0;
  std::uint32_t fill_seen_ = 0;
  std::uint32_t send_seen_ = 0;
  std::uint32_t completed_seen_ = 0;
  std::uint32_t held_ = 0;  ///< Frames to receive into that are the process's.

  std::vector<std::uint64_t> spare_;  ///< Filled frames that a full ring gave back.
  std::deque<std::uint64_t> driver_;  ///< Of zero copy: frames that the NIC receives into.
  std::vector<Unfinished> unfinished_;
  bool is_busy_ = false;   ///< Of zero copy: the driver is sending.
  bool is_short_ = false;  ///< Same: it has found too few frames in the fill ring.
  TimeNs stopped_ns_ = 0;
  TimeNs failing_ns_ = 0;
  bool was_failing_ = false;
  int error_ = 0;

  bool knows_mac_;
  bool is_stale_ = false;
  TimeNs arp_due_ns_ = transport::kNever;
  std::deque<Bytes> unresolved_;
  std::deque<Bytes> udp_queue_;
  TimeNs refusing_ns_ = 0;

  std::uint64_t unfilled_ = 0;
  std::uint64_t unread_ = 0;
  std::uint64_t errors_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t sent_by_udp_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t received_by_udp_ = 0;
};

XskMemory FakeXskNetwork::Host::open(const XskOptions& options) {
  frame_bytes_ = options.frame_bytes;
  memory_.assign(options.memory_bytes(), kPoison);
  frames_.assign(options.receive_frames + options.send_frames, {});
  held_ = options.receive_frames;
  XskMemory out;
  out.frames = memory_.data();
  out.receive = receive_.open(options.receive_ring());
  out.fill = fill_.open(options.receive_frames);
  out.send = send_.open(options.send_frames);
  out.completed = completed_.open(options.send_frames);
  // In copy mode only calls send. A driver has found the fill ring empty.
  send_.flags = XDP_RING_NEED_WAKEUP;
  fill_.flags = options_.is_zero_copy ? XDP_RING_NEED_WAKEUP : 0;
  return out;
}

/// Looks at all that the process has done with the rings.
void FakeXskNetwork::Host::observe() {
  require(receive_.consumer - receive_seen_ <= receive_.producer - receive_seen_ &&
              completed_.consumer - completed_seen_ <= completed_.producer - completed_seen_,
          "entries were read that are not there, by a ring's consumer", receive_.consumer);
  for (; receive_seen_ != receive_.consumer; ++receive_seen_) {
    frame(receive_.at(receive_seen_).addr).owner = Owner::kProcess;
    ++held_;
  }
  for (; completed_seen_ != completed_.consumer; ++completed_seen_) {
    frame(completed_.at(completed_seen_)).owner = Owner::kProcess;
  }
  fill_.check("too many entries in the fill ring");
  for (; fill_seen_ != fill_.producer; ++fill_seen_) {
    const std::uint64_t address = fill_.at(fill_seen_);
    require(is_receive_frame(address) && address % frame_bytes_ == 0,
            "no frame to receive into lies there", address);
    require(frame(address).owner == Owner::kProcess,
            "a frame was given back that the process does not have", address / frame_bytes_);
    frame(address).owner = Owner::kKernel;
    --held_;
    std::fill_n(memory_.begin() + static_cast<std::ptrdiff_t>(address), frame_bytes_, kPoison);
  }
  send_.check("too many entries in the ring of frames to send");
  for (; send_seen_ != send_.producer; ++send_seen_) {
    take_pushed(send_.at(send_seen_));
  }
}

void FakeXskNetwork::Host::take_pushed(const xdp_desc& it) {
  require(it.addr < memory_.size() && !is_receive_frame(it.addr) && it.len > 0 &&
              it.addr % frame_bytes_ + it.len <= frame_bytes_ && it.options == 0,
          "no frame to send lies there", it.addr);
  Frame& pushed = frame(it.addr);
  require(pushed.owner == Owner::kProcess, "a frame was pushed that the process does not have",
          it.addr / frame_bytes_);
  pushed.owner = Owner::kKernel;
  const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(it.addr);
  pushed.sent.assign(begin, begin + it.len);
  check_datagram(pushed.sent);
}

/// Each byte of the heads is as it must be.
void FakeXskNetwork::Host::check_datagram(const Bytes& it) const {
  require(it.size() >= kHeadBytes &&
              it.size() <= kEthernetBytes + static_cast<std::size_t>(options_.mtu_bytes),
          "a frame of so many bytes", it.size());
  const auto has_mac = [&](std::size_t at, int end) {
    return std::memcmp(&it[at], mac_of(end).data(), MacAddress{}.size()) == 0;
  };
  require(has_mac(0, 1 - end_) && has_mac(6, end_), "a frame with a wrong MAC address, bytes",
          it.size());
  require(get16(it, 12) == 0x0800 && it[14] == std::byte{0x45} &&
              get16(it, 16) == it.size() - kEthernetBytes && get16(it, 20) == 0x4000 &&
              it[22] != std::byte{0} && it[23] == std::byte{IPPROTO_UDP} &&
              sum_of(it, 14, 34, 0) == 0xffff,
          "a frame with a wrong IP header, bytes", it.size());
  require((it[15] & std::byte{kEcnMask}) == std::byte{kEct0}, "a frame without ECT(0), bytes",
          it.size());
  require(
      source_of(it).address == udp_end_of(end_).address && target_of(it) == udp_end_of(1 - end_),
      "a datagram with a wrong address, bytes", it.size());
  require(get16(it, 38) == it.size() - kEthernetBytes - kIpBytes && get16(it, 40) != 0 &&
              udp_sum(it) == 0xffff,
          "a datagram with a wrong length or checksum, bytes", it.size());
}

/// The process has not written the frame since it was pushed.
void FakeXskNetwork::Host::check_untouched(std::uint64_t address) {
  const Bytes& sent = frame(address).sent;
  require(
      std::equal(sent.begin(), sent.end(), memory_.begin() + static_cast<std::ptrdiff_t>(address)),
      "a frame was written while it was sent", address / frame_bytes_);
}

/// Whether calls answer an error now.
bool FakeXskNetwork::Host::is_failing() {
  if (state_.now < failing_ns_) {
    ++errors_;
    return true;
  }
  if (!state_.happens(state_.faults.fail)) {
    return false;
  }
  constexpr int kErrors[] = {EAGAIN, ENOBUFS, EBUSY, ENETDOWN};
  error_ = kErrors[state_.random.below(4)];
  failing_ns_ = state_.now + state_.up_to(kErrorNsMax);
  was_failing_ = true;
  ++errors_;
  return true;
}

/// False: there is nothing, or no room.
bool FakeXskNetwork::Host::send_next(bool is_lost) {
  if (send_.consumer == send_seen_ || unfinished_.size() >= options_.unfinished_max) {
    return false;
  }
  const xdp_desc it = send_.at(send_.consumer++);
  check_untouched(it.addr);
  ++sent_;
  if (!is_lost) {
    state_.send(1 - end_, frame(it.addr).sent);
  }
  unfinished_.push_back(
      {it.addr, state_.now + options_.completion_ns + state_.up_to(options_.completion_ns + 1)});
  return true;
}

int FakeXskNetwork::Host::wake_send() {
  observe();
  if (is_failing()) {
    if (!options_.is_zero_copy && error_ == EBUSY) {
      send_next(true);  // NET_XMIT_DROP
    }
    return error_;
  }
  if (options_.is_zero_copy) {
    is_busy_ = true;
    send_.flags = options_.wants_wakes_always ? XDP_RING_NEED_WAKEUP : 0;
    return 0;
  }
  for (std::uint32_t i = 0; i < options_.budget; ++i) {
    if (!send_next(false)) {
      break;
    }
  }
  return send_.filled() > 0 ? EAGAIN : 0;
}

void FakeXskNetwork::Host::complete() {
  for (const Unfinished& it : unfinished_) {
    if (it.due_ns <= state_.now) {
      check_untouched(it.address);
      frame(it.address).owner = Owner::kCompleted;
      completed_.at(completed_.producer++) = it.address;
    }
  }
  std::erase_if(unfinished_, [&](const Unfinished& it) { return it.due_ns <= state_.now; });
  completed_.check("too many entries in the ring of sent frames");
}

std::optional<std::uint64_t> FakeXskNetwork::Host::take_filled() {
  if (!spare_.empty()) {
    const std::uint64_t address = spare_.back();
    spare_.pop_back();
    return address;
  }
  if (fill_.consumer == fill_seen_) {
    return std::nullopt;
  }
  return fill_.at(fill_.consumer++);
}

/// Gives the NIC frames. A driver that finds too few wants to be told of more. It does not look
/// once more after it has said so, which may be a little later.
void FakeXskNetwork::Host::refill() {
  while (driver_.size() < options_.driver_frames) {
    const auto address = take_filled();
    if (!address) {
      break;
    }
    driver_.push_back(*address);
  }
  is_short_ = driver_.size() < options_.driver_frames;
  fill_.flags = is_short_ && state_.random.below(2) == 0 ? XDP_RING_NEED_WAKEUP : 0;
}

void FakeXskNetwork::Host::wake_receive() {
  observe();
  require(options_.is_zero_copy, "a call to receive that nobody had asked for, of end",
          static_cast<std::uint64_t>(end_));
  if (!is_failing()) {
    refill();
  }
}

void FakeXskNetwork::Host::step() {
  observe();
  complete();
  if (arp_due_ns_ <= state_.now) {
    arp_due_ns_ = transport::kNever;
    knows_mac_ = true;
    is_stale_ = false;
    for (Bytes& it : unresolved_) {
      state_.send(1 - end_, std::move(it));
    }
    unresolved_.clear();
  }
  if (!options_.is_zero_copy) {
    return;
  }
  if (is_short_) {
    fill_.flags = XDP_RING_NEED_WAKEUP;
  }
  // A driver that comes up again fills its ring by itself.
  if (was_failing_ && state_.now >= failing_ns_) {
    was_failing_ = false;
    refill();
  }
  if (state_.happens(state_.faults.stop)) {
    stopped_ns_ = state_.now + state_.up_to(kErrorNsMax);
  }
  if (!is_busy_ || state_.now < stopped_ns_) {
    return;
  }
  for (std::uint32_t i = 0; i < options_.budget && send_next(false); ++i) {
  }
  if (send_.filled() == 0) {
    is_busy_ = false;
    send_.flags = XDP_RING_NEED_WAKEUP;
  }
}

void FakeXskNetwork::Host::arrive(Bytes it) {
  if (std::memcmp(it.data(), mac_of(end_).data(), MacAddress{}.size()) != 0 ||
      !is_for(it, udp_end_of(end_))) {
    return;
  }
  // One source port is one flow to this end.
  if (mix64(source_of(it).port) % 8 < options_.flows_elsewhere) {
    if (udp_sum(it) == 0xffff && get16(it, 38) == it.size() - kEthernetBytes - kIpBytes &&
        udp_queue_.size() < kUdpQueueMax) {
      udp_queue_.push_back(std::move(it));
    }
    return;
  }
  std::optional<std::uint64_t> address;
  if (!options_.is_zero_copy) {
    address = take_filled();
  } else if (!driver_.empty()) {
    address = driver_.front();
    driver_.pop_front();
  }
  if (!address) {
    ++unfilled_;
    return;
  }
  require(wire::xdp::kHeadroomBytes + it.size() <= frame_bytes_,
          "a frame that fits into none, bytes", it.size());
  if (receive_.filled() == receive_.entries.size()) {
    ++unread_;
    spare_.push_back(*address);
  } else {
    ++received_;
    const std::uint64_t begin = *address + wire::xdp::kHeadroomBytes;
    std::copy(it.begin(), it.end(), memory_.begin() + static_cast<std::ptrdiff_t>(begin));
    frame(*address).owner = Owner::kReceived;
    receive_.at(receive_.producer++) = {begin, static_cast<std::uint32_t>(it.size()), 0};
  }
  if (options_.is_zero_copy) {
    refill();
  }
}

std::optional<Neighbour> FakeXskNetwork::Host::neighbour() {
  if (knows_mac_ && state_.happens(state_.faults.forget)) {
    (state_.random.below(2) == 0 ? knows_mac_ : is_stale_) ^= true;
  }
  if (!knows_mac_) {
    return std::nullopt;
  }
  return Neighbour{mac_of(1 - end_), is_stale_};
}

int FakeXskNetwork::Host::send_udp(const UdpEnd& target, int tos,
                                   std::span<const std::byte> payload) {
  if (state_.happens(state_.faults.refuse)) {
    refusing_ns_ = state_.now + state_.up_to(kErrorNsMax);
  }
  if (state_.now < refusing_ns_) {
    return state_.random.below(8) == 0 ? ENETUNREACH : EAGAIN;
  }
  Bytes it(kHeadBytes + payload.size());
  std::copy(payload.begin(), payload.end(), it.begin() + kHeadBytes);
  wire::xdp::write_head({.target_mac = mac_of(1 - end_),
                         .source_mac = mac_of(end_),
                         .source = udp_end_of(end_),
                         .target = target,
                         .tos = static_cast<std::uint8_t>(tos)},
                        payload.size(), it.data());
  check_datagram(it);
  ++sent_by_udp_;
  if (!knows_mac_ || is_stale_) {
    arp_due_ns_ = std::min(arp_due_ns_, state_.now + options_.arp_ns);
  }
  if (knows_mac_) {
    state_.send(1 - end_, std::move(it));
  } else if (unresolved_.size() < kUnresolvedMax) {
    unresolved_.push_back(std::move(it));
  }
  return 0;
}

bool FakeXskNetwork::Host::receive_udp(std::span<std::byte> buffer, Datagram& out) {
  if (udp_queue_.empty()) {
    return false;
  }
  const Bytes it = std::move(udp_queue_.front());
  udp_queue_.pop_front();
  ++received_by_udp_;
  const std::size_t bytes = std::min(it.size() - kHeadBytes, buffer.size());
  std::copy_n(it.begin() + kHeadBytes, bytes, buffer.begin());
  out = {source_of(it), target_of(it), std::to_integer<std::uint8_t>(it[15]), buffer.first(bytes)};
  return true;
}

bool FakeXskNetwork::Host::is_settled() {
  observe();
  const auto sent = frames_.begin() + options_.receive_frames;
  return held_ == 0 && receive_.filled() == 0 &&
         std::none_of(sent, frames_.end(),
                      [](const Frame& it) { return it.owner == Owner::kKernel; });
}

std::string FakeXskNetwork::Host::report() const {
  const auto number = [](const char* name, std::uint64_t value) {
    return ", " + std::to_string(value) + " " + name;
  };
  return number("frames sent", sent_) + number("by UDP", sent_by_udp_) +
         number("received", received_) + number("by UDP", received_by_udp_) +
         number("without a frame", unfilled_) + number("with a full ring", unread_) +
         number("errors", errors_);
}

namespace {

template <class Host>
class FakeXsk : public XskKernel {
 public:
  FakeXsk(Host* host, const XskOptions& options) : host_(host) { memory_ = host->open(options); }
  void wake_receive() override { host_->wake_receive(); }
  int wake_send() override { return host_->wake_send(); }
  std::uint64_t dropped() const override { return host_->dropped(); }

 private:
  Host* host_;
};

template <class Host>
class FakeStack : public KernelStack {
 public:
  explicit FakeStack(Host* host) : host_(host) {}
  NextHop next_hop(std::uint32_t target) const override {
    return {NextHop::Kind::kNeighbour, target};
  }
  std::optional<Neighbour> neighbour(std::uint32_t /*address*/) const override {
    return host_->neighbour();
  }
  int send(const UdpEnd& target, int tos, std::span<const std::byte> payload) override {
    return host_->send_udp(target, tos, payload);
  }
  bool receive(std::span<std::byte> buffer, Datagram& out) override {
    return host_->receive_udp(buffer, out);
  }

 private:
  Host* host_;
};

}  // namespace

FakeXskNetwork::FakeXskNetwork(std::uint64_t seed, const Options& options)
    : state_(std::make_unique<State>(seed, options)) {
  for (int end = 0; end < 2; ++end) {
    state_->hosts[end] = std::make_unique<Host>(state_.get(), end);
  }
}

FakeXskNetwork::~FakeXskNetwork() = default;

wire::xdp::XdpKernel FakeXskNetwork::kernel(int end) {
  Host* const host = state_->hosts[end].get();
  wire::xdp::XdpKernel it;
  it.end = udp_end_of(end);
  it.mac = mac_of(end);
  it.stack = std::make_unique<FakeStack<Host>>(host);
  it.open_xsk = [host](const XskOptions& options) {
    return std::make_unique<FakeXsk<Host>>(host, options);
  };
  it.receive_frames = state_->options.ends[end].receive_frames;
  it.send_frames = state_->options.ends[end].send_frames;
  it.random = state_->random.next();
  return it;
}

wire::udp::SocketAddress FakeXskNetwork::address(int end) {
  wire::udp::SocketAddress it;
  const sockaddr_in address = wire::xdp::socket_address_of(udp_end_of(end));
  std::memcpy(&it.storage, &address, sizeof address);
  it.bytes = sizeof address;
  return it;
}

void FakeXskNetwork::set_faults(const FakeXskFaults& faults) { state_->faults = faults; }

void FakeXskNetwork::cut(bool is_cut) { state_->is_cut = is_cut; }

void FakeXskNetwork::step(TimeNs now) {
  state_->now = now;
  for (const auto& host : state_->hosts) {
    host->step();
  }
  auto& flights = state_->flights;
  while (!flights.empty() && flights.begin()->first <= now) {
    State::Flight it = std::move(flights.begin()->second);
    flights.erase(flights.begin());
    if (!state_->is_cut) {
      state_->hosts[it.target]->arrive(std::move(it.frame));
    }
  }
}

bool FakeXskNetwork::is_readable(int end) const { return state_->hosts[end]->is_readable(); }

bool FakeXskNetwork::waits(int end) const { return state_->hosts[end]->waits(); }

bool FakeXskNetwork::is_settled() {
  return state_->hosts[0]->is_settled() && state_->hosts[1]->is_settled();
}

std::string FakeXskNetwork::report(int end) const {
  return state_->hosts[end]->report() + "; link: " + std::to_string(state_->lost) + " lost, " +
         std::to_string(state_->duplicated) + " duplicated, " + std::to_string(state_->corrupted) +
         " corrupted";
}

}  // namespace tutti::testing
