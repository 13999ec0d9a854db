// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/rails/rails_wire.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/descriptors.hpp"

namespace tutti::wire::rails {
namespace {

using transport::Transmission;
using transport::WireCapabilities;

static_assert(RailsWire::kRailsMax <= transport::kRailsMax);

/// Of an address of several rails; those of other wires begin with something else.
constexpr std::byte kMagic{0x72};

/// The addresses of a peer's rails. Errors: it has none, or they are cut off.
Result<std::vector<WireAddress>> parts_of(const WireAddress& address) {
  if (address.length == 0 || address.bytes[0] != kMagic) {
    return std::vector<WireAddress>{address};
  }
  std::vector<WireAddress> parts;
  std::span<const std::byte> rest(address.bytes);
  rest = rest.first(std::min<std::size_t>(address.length, rest.size())).subspan(1);
  const std::size_t count = rest.empty() ? 0 : std::to_integer<std::size_t>(rest[0]);
  bool is_whole = count >= 1 && count <= RailsWire::kRailsMax;
  rest = rest.subspan(std::min<std::size_t>(1, rest.size()));
  while (is_whole && parts.size() < count) {
    const std::size_t length = rest.empty() ? 0 : std::to_integer<std::size_t>(rest[0]);
    is_whole = length > 0 && length < rest.size();
    if (is_whole) {
      WireAddress& part = parts.emplace_back();
      part.length = static_cast<std::uint8_t>(length);
      std::copy_n(rest.begin() + 1, length, part.bytes.begin());
      rest = rest.subspan(1 + length);
    }
  }
  if (!is_whole || !rest.empty()) {
    return Status(ErrorCode::kInvalidArgument, "rails: the peer's address is not one of rails");
  }
  return parts;
}

}  // namespace

Result<std::unique_ptr<RailsWire>> RailsWire::open(std::vector<std::unique_ptr<Wire>> rails,
                                                   Clock clock) {
  if (rails.empty() || rails.size() > kRailsMax) {
    return Status(ErrorCode::kInvalidArgument, "rails: a connection has 1 to " +
                                                   std::to_string(kRailsMax) + ", not " +
                                                   std::to_string(rails.size()));
  }
  std::unique_ptr<RailsWire> wire(new RailsWire(std::move(rails), std::move(clock)));
  TUTTI_RETURN_IF_ERROR(wire->open_address());
  TUTTI_RETURN_IF_ERROR(wire->open_descriptor());
  return wire;
}

Result<WireAddress> RailsWire::first_of(const WireAddress& address) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<WireAddress> parts, parts_of(address));
  return parts[0];
}

RailsWire::~RailsWire() {
  if (all_ >= 0) {
    close(all_);
  }
}

Status RailsWire::open_address() {
  address_.bytes[0] = kMagic;
  address_.bytes[1] = static_cast<std::byte>(rails_.size());
  std::size_t at = 2;
  for (const auto& rail : rails_) {
    const WireAddress part = rail->address();
    if (at + 1 + part.length > address_.bytes.size()) {
      return Status(ErrorCode::kInvalidArgument, "rails: their addresses are too long together");
    }
    address_.bytes[at++] = std::byte{part.length};
    std::copy_n(part.bytes.begin(), part.length,
                address_.bytes.begin() + static_cast<std::ptrdiff_t>(at));
    at += part.length;
  }
  address_.length = static_cast<std::uint8_t>(at);
  return {};
}

Status RailsWire::open_descriptor() {
  if (std::any_of(rails_.begin(), rails_.end(),
                  [](const auto& rail) { return rail->file_descriptor() < 0; })) {
    return {};
  }
  all_ = epoll_create1(EPOLL_CLOEXEC);
  for (const auto& rail : rails_) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (all_ < 0 || epoll_ctl(all_, EPOLL_CTL_ADD, rail->file_descriptor(), &event) != 0) {
      return Status(ErrorCode::kUnavailable,
                    "rails: no descriptor to sleep on: " + why_no_descriptor());
    }
  }
  return {};
}

WireCapabilities RailsWire::capabilities() const {
  WireCapabilities it = rails_[0]->capabilities();
  for (const auto& rail : rails_) {
    const WireCapabilities other = rail->capabilities();
    it.chunk_bytes = std::min(it.chunk_bytes, other.chunk_bytes);
    it.mtu_bytes = std::min(it.mtu_bytes, other.mtu_bytes);
    it.paths = std::min(it.paths, other.paths);
    it.ps_per_byte = std::max(it.ps_per_byte, other.ps_per_byte);
    it.base_rtt_ns = std::max(it.base_rtt_ns, other.base_rtt_ns);
    it.base_rtt_is_guess = it.base_rtt_is_guess || other.base_rtt_is_guess;
    it.reorders_within_path = it.reorders_within_path || other.reorders_within_path;
    it.trims = it.trims && other.trims;
    it.marks_ecn = it.marks_ecn && other.marks_ecn;
  }
  it.rails = static_cast<std::uint32_t>(rails_.size());
  it.paths *= it.rails;
  return it;
}

Result<std::uint64_t> RailsWire::add_peer(const WireAddress& address, std::uint8_t traffic_class) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<WireAddress> parts, parts_of(address));
  Peer peer;
  const auto forget = [&] {
    for (std::size_t i = 0; i < peer.rails; ++i) {
      rails_[i]->remove_peer(peer.names[i]);
    }
  };
  while (peer.rails < std::min(parts.size(), rails_.size())) {
    const auto name = rails_[peer.rails]->add_peer(parts[peer.rails], traffic_class);
    if (!name.ok()) {
      forget();
      return Status(name.status().code(),
                    "rail " + std::to_string(peer.rails) + ": " + name.status().message());
    }
    peer.names[peer.rails++] = *name;
  }
  // One name for an address, as far as the wires below keep to that: packets may share datagrams.
  auto at = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& known) {
    return known.users > 0 && known.rails == peer.rails && known.names == peer.names;
  });
  if (at != peers_.end()) {
    forget();  // The first user's names stay.
  } else {
    at = std::find_if(peers_.begin(), peers_.end(),
                      [](const Peer& known) { return known.users == 0; });
    at = at == peers_.end() ? peers_.insert(at, peer) : at;
    *at = peer;
  }
  ++at->users;
  return static_cast<std::uint64_t>(at - peers_.begin());
}

void RailsWire::remove_peer(std::uint64_t peer) {
  if (peer >= peers_.size() || peers_[peer].users == 0 || --peers_[peer].users > 0) {
    return;
  }
  for (std::size_t i = 0; i < peers_[peer].rails; ++i) {
    rails_[i]->remove_peer(peers_[peer].names[i]);
  }
}

Status RailsWire::register_memory(std::span<std::byte> memory) {
  return register_with_all(rails_, memory);
}

Status RailsWire::register_device_memory(const DeviceMemory& memory) {
  return register_with_all(rails_, memory);
}

bool RailsWire::is_registered(std::span<const std::byte> memory) const {
  return rails_[0]->is_registered(memory);
}

bool RailsWire::is_copying_into(std::span<const std::byte> memory) const {
  return std::any_of(rails_.begin(), rails_.end(),
                     [&](const auto& rail) { return rail->is_copying_into(memory); });
}

void RailsWire::deregister_memory(std::span<std::byte> memory) {
  for (const auto& rail : rails_) {
    rail->deregister_memory(memory);
  }
}

Transmission RailsWire::on_rail(const Peer& peer, const Transmission& sent) const {
  Transmission on = sent;
  on.rail = static_cast<std::uint8_t>(sent.path % peer.rails);
  on.path = sent.path / peer.rails;
  on.peer = peer.names[on.rail];
  return on;
}

bool RailsWire::send(const Transmission& sent) {
  if (sent.peer >= peers_.size() || peers_[sent.peer].users == 0) {
    lose({&sent, 1});  // Nobody's any more.
    return true;
  }
  const Transmission on = on_rail(peers_[sent.peer], sent);
  return count_taken(on.rail, rails_[on.rail]->send(on) ? 1 : 0, {&on, 1}) == 1;
}

std::size_t RailsWire::send_together(std::span<const Transmission> packets) {
  const std::uint64_t peer = packets.back().peer;
  if (packets.size() == 1 || packets.size() > kTogetherMax || peer >= peers_.size() ||
      peers_[peer].users == 0) {
    return Wire::send_together(packets);
  }
  std::array<Transmission, kTogetherMax> room;
  const std::span<Transmission> on = std::span(room).first(packets.size());
  std::transform(packets.begin(), packets.end(), on.begin(),
                 [&](const Transmission& sent) { return on_rail(peers_[peer], sent); });
  const Transmission& last = on.back();
  for (Transmission& one : on.first(on.size() - 1)) {
    one.rail = last.rail;
    one.peer = last.peer;
  }
  return count_taken(last.rail, rails_[last.rail]->send_together(on), on);
}

void RailsWire::lose(std::span<const Transmission> packets) {
  for (const Transmission& packet : packets) {
    if (packet.payload != nullptr && rails_[0]->capabilities().sends_complete_late) {
      lost_cookies_.push_back(packet.cookie);
    }
  }
}

std::size_t RailsWire::count_taken(std::size_t rail, std::size_t taken,
                                   std::span<const Transmission> offered) {
  transport::TimeNs& since_ns = full_since_ns_[rail];
  if (taken > 0) {
    since_ns = transport::kNever;
    return taken;
  }
  const transport::TimeNs now = clock_();
  since_ns = std::min(since_ns, now);
  if (now - since_ns < kFullNsMax) {
    return 0;
  }
  lost_ += offered.size();
  lose(offered);
  return offered.size();
}

std::size_t RailsWire::receive(Arrivals& arrivals, std::size_t packets_max) {
  for (const std::uint64_t cookie : std::exchange(lost_cookies_, {})) {
    arrivals.sent(cookie);
  }
  std::size_t packets = 0;
  std::size_t idle = 0;
  // One of each in turn: none waits while another has a lot.
  while (packets < packets_max && idle < rails_.size()) {
    const std::size_t got = rails_[next_]->receive(arrivals, 1);
    next_ = (next_ + 1) % rails_.size();
    packets += got;
    idle = got > 0 ? 0 : idle + 1;
  }
  return packets;
}

transport::TimeNs RailsWire::next_deadline() const {
  transport::TimeNs first = transport::kNever;
  for (const auto& rail : rails_) {
    first = std::min(first, rail->next_deadline());
  }
  return first;
}

transport::TimeNs RailsWire::arm(transport::TimeNs now) {
  transport::TimeNs first = lost_cookies_.empty() ? transport::kNever : now;
  for (const auto& rail : rails_) {
    first = std::min(first, rail->arm(now));
  }
  return first;
}

void RailsWire::handle_timeout(transport::TimeNs now) {
  for (const auto& rail : rails_) {
    rail->handle_timeout(now);
  }
}

Reach RailsWire::reach(std::uint64_t peer) const {
  if (peer >= peers_.size()) {
    return {};
  }
  const Peer& to = peers_[peer];
  Reach all{
      .is_known = false, .is_tried = true, .is_heard = false, .is_too_small = false, .silent = {}};
  bool is_open = false;
  for (std::size_t i = 0; i < to.rails; ++i) {
    const Reach one = rails_[i]->reach(to.names[i]);
    all.is_known = all.is_known || one.is_known;
    all.is_tried = all.is_tried && (one.is_tried || one.is_known);
    all.is_heard = all.is_heard || one.is_heard;
    all.is_too_small = all.is_too_small || one.is_too_small;
    is_open = is_open || !(one.is_known || one.is_tried || one.is_too_small);
    if (!one.is_known) {
      const Ends ends = rails_[i]->ends(to.names[i]);
      all.silent += (all.silent.empty() ? "from " : ", from ") + ends.senders + " to " + ends.peer;
    }
  }
  all.is_known = all.is_known && !is_open;
  return all;
}

Ends RailsWire::ends(std::uint64_t peer) const {
  Ends all;
  for (std::size_t i = 0; peer < peers_.size() && i < peers_[peer].rails; ++i) {
    const Ends one = rails_[i]->ends(peers_[peer].names[i]);
    const char* const between = i == 0 ? "" : ", ";
    all.senders += between + one.senders;
    all.receiver += between + one.receiver;
    all.peer += between + one.peer;
    all.peer_host += between + one.peer_host;
  }
  return all;
}

const WireCounters& RailsWire::counters() const {
  sum_ = {};
  sum_.refused = lost_;
  for (const auto& rail : rails_) {
    const WireCounters& it = rail->counters();
    sum_.datagrams_sent += it.datagrams_sent;
    sum_.datagrams_received += it.datagrams_received;
    sum_.calls_sent += it.calls_sent;
    sum_.calls_received += it.calls_received;
    sum_.payload_bytes_placed += it.payload_bytes_placed;
    sum_.payload_bytes_copied += it.payload_bytes_copied;
    sum_.fragments_dropped += it.fragments_dropped;
    sum_.malformed_dropped += it.malformed_dropped;
    sum_.refused += it.refused;
  }
  return sum_;
}

std::string RailsWire::description() const {
  std::string text = std::to_string(rails_.size()) + " rails, ";
  const std::string first = rails_[0]->description();
  if (std::all_of(rails_.begin(), rails_.end(),
                  [&](const auto& rail) { return rail->description() == first; })) {
    return text + "each " + first;
  }
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    text += (i == 0 ? "" : "; ") + std::to_string(i) + ": " + rails_[i]->description();
  }
  return text;
}

std::string RailsWire::report() const {
  std::string text;
  for (const auto& rail : rails_) {
    text += rail->report();
  }
  return text;
}

}  // namespace tutti::wire::rails
