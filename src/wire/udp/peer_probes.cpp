// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/peer_probes.hpp"

#include <array>
#include <utility>

#include "base/random.hpp"

namespace tutti::wire::udp {
namespace {

/// The last two bytes, a datagram's size, are no part of the place.
bool is_same_place(std::span<const std::byte> one, const WireAddress& other) {
  return one.size() == other.length && std::equal(one.begin(), one.end() - 2, other.bytes.begin());
}

}  // namespace

void PeerProbes::begin(std::size_t peer, const WireAddress& address, std::size_t fragment_bytes,
                       bool is_near) {
  peers_.resize(std::max(peers_.size(), peer + 1));
  Peer& it = peers_[peer];
  it.address = address;
  // Its place in the low bits: an answer finds it at once.
  options_.token = mix64(options_.token + 1);
  it.token = (options_.token << 16) | (peer & 0xffff);
  Prober::Options options;
  options.bytes = static_cast<std::uint16_t>(fragment_bytes);
  options.least_bytes = static_cast<std::uint16_t>(least_fragment_bytes(fragment_bytes));
  options.ip_bytes = options_.ip_bytes;
  options.is_near = is_near;
  options.paths = is_near ? 1 : options_.paths;
  it.prober.emplace(options);
  due_ns_ = 0;
}

void PeerProbes::end(std::size_t peer) {
  if (peer < peers_.size()) {
    peers_[peer].prober.reset();
  }
}

void PeerProbes::poll(TimeNs now) {
  due_ns_ = transport::kNever;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    Prober* const prober = find(peer);
    if (prober == nullptr) {
      continue;
    }
    prober->poll(now, [&](const Prober::Probe& probe) {
      const WireAddress& own = options_.own;
      datagram_.resize(std::max<std::size_t>(datagram_.size(), probe.bytes));
      (void)encode_probe({.is_answer = false,
                          .path = probe.path,
                          .bytes = probe.bytes,
                          .round = probe.round,
                          .token = peers_[peer].token,
                          .address = std::span(own.bytes).first(own.length)},
                         datagram_.data());
      options_.send(peer, probe.path, std::span(datagram_).first(probe.bytes));
    });
    tell(peer);
    due_ns_ = std::min(due_ns_, prober->due_ns());
  }
}

void PeerProbes::take(const ProbeHead& probe, TimeNs now) {
  if (probe.is_answer) {
    const std::size_t peer = probe.token & 0xffff;
    Prober* const prober = find(peer);
    if (prober != nullptr && peers_[peer].token == probe.token) {
      prober->on_answer(now, {probe.path, probe.bytes, probe.round});
      tell(peer);
      due_ns_ = std::min(due_ns_, prober->due_ns());
    }
    return;
  }
  bool is_answered = false;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    Prober* const prober = find(peer);
    if (prober == nullptr || !is_same_place(probe.address, peers_[peer].address)) {
      continue;
    }
    prober->on_heard();
    due_ns_ = std::min(due_ns_, prober->due_ns());
    if (!std::exchange(is_answered, true)) {
      ProbeHead answer = probe;
      answer.is_answer = true;
      answer.address = {};
      std::array<std::byte, kProbeHeadBytes> out{};
      (void)encode_probe(answer, out.data());
      // Each try by another path back: one that is dead does not make those there look so.
      options_.send(peer, (probe.path + (probe.round & 0xff)) % options_.paths, out);
    }
  }
}

void PeerProbes::limit(std::size_t peer, std::size_t fragment_bytes) {
  if (Prober* const it = find(peer)) {
    it->limit(static_cast<std::uint16_t>(fragment_bytes));
  }
}

Reach PeerProbes::reach(std::uint64_t peer) const {
  if (peer >= peers_.size() || !peers_[peer].prober) {
    return {};
  }
  const Prober& it = *peers_[peer].prober;
  return {.is_known = it.is_known(),
          .is_tried = it.is_tried(),
          .is_heard = it.is_heard(),
          .is_too_small = it.is_too_small(),
          .silent = {}};
}

void PeerProbes::tell(std::size_t peer) {
  while (const auto finding = peers_[peer].prober->take_finding()) {
    silent_paths_ += finding->paths.size();
    options_.on_finding(peer, *finding);
  }
}

std::size_t least_fragment_bytes(std::size_t fragment_bytes) {
  const std::size_t content =
      std::min<std::size_t>(kFragmentsMax * (fragment_bytes - kPrefixBytes), kContentBytesMax);
  return std::min(kPrefixBytes + fragments(content, kFragmentsMax), fragment_bytes);
}

}  // namespace tutti::wire::udp
