// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the world writes down of a run, and what the checkers read: every send and receive, every
// packet. Also how a checker says that an invariant is broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "simulation/swarm.hpp"
#include "transport/endpoint.hpp"
#include "transport/packet.hpp"

namespace tutti::transport::simulation {

/// An invariant of the transport that did not hold.
struct Violation : std::runtime_error {
  Violation(std::string name, const std::string& text)
      : std::runtime_error(text), invariant(std::move(name)) {}
  std::string invariant;
};

[[noreturn]] inline void fail(const char* invariant, const std::string& text) {
  throw Violation(invariant, text);
}

inline constexpr std::size_t kGuardBytes = 64;
inline constexpr std::byte kUnwritten{0xa5};

inline std::uint64_t digest(const std::byte* data, std::size_t bytes) {
  std::uint64_t hash = bytes * 0x9e3779b97f4a7c15ULL + 1;
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, bytes - i < 8 ? bytes - i : 8);
    hash = (hash ^ word) * 0xd6e8feb86659fd93ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

struct SendRecord {
  Tag tag = 0;
  std::vector<std::byte> data;
  std::uint64_t digest = 0;   ///< Of the data, which is overwritten once the send has ended.
  bool is_cancelled = false;  ///< cancel_send() was accepted.
  bool tells_match = false;
  std::uint64_t slot = kNoSlot;  ///< Of its match.
  bool is_done = false;
  Outcome outcome = Outcome::kOk;
};

struct PartRecord {
  Tag tag = 0;
  Bytes capacity_bytes = 0;
  Bytes bytes = 0;                ///< Of the event.
  std::vector<std::byte> memory;  ///< With a guard on either side.
  std::uint64_t content_digest = 0;
  std::uint64_t memory_digest = 0;  ///< When its end was reported.

  std::byte* data() { return memory.data() + kGuardBytes; }
  const std::byte* data() const { return memory.data() + kGuardBytes; }
};

struct ReceiveRecord {
  std::vector<PartRecord> parts;
  bool is_cancelled = false;
  bool is_done = false;
  Outcome outcome = Outcome::kOk;
};

/// One end of a connection.
struct EndRecord {
  std::uint32_t host = 0;
  ConnectionOptions options;
  ConnectionHandle handle;
  bool is_open = false;      ///< connect() was called and its host has not crashed.
  bool has_crashed = false;  ///< There will be no more events.
  bool has_closed = false;   ///< close() was called here.
  bool has_aborted = false;
  bool is_done = false;            ///< kConnectionDone has come,
  TimeNs done_ns = kNever;         ///< then,
  Outcome outcome = Outcome::kOk;  ///< with this.
  std::vector<SendRecord> sends;
  std::vector<ReceiveRecord> receives;
  std::uint64_t tail_probes = 0;  ///< At the latest chunk.
  std::uint32_t sends_done = 0;
  std::uint32_t receives_done = 0;
};

struct ConnectionRecord {
  std::uint32_t index = 0;
  ConnectionKnobs knobs;
  EndRecord ends[2];
  std::uint32_t successors = 0;
  bool has_followed = false;
  TimeNs opened_ns = 0;
  TimeNs silent_ns = kNever;  ///< From then on the peers cannot reach each other.

  bool is_over() const {
    return (ends[0].is_done || ends[0].has_crashed) && (ends[1].is_done || ends[1].has_crashed);
  }
  bool is_hopeless() const { return silent_ns != kNever; }
};

/// A packet of ours on its way.
struct Flying {
  Transmission out;
  std::vector<std::byte> payload;
  std::uint32_t connection = 0;
  std::uint8_t from = 0;  ///< End.
  bool ecn = false;
  bool trimmed = false;
  bool comes_whole = false;  ///< Later than it is reported as partial.
  bool is_changed = false;   ///< By the network.
};

inline std::string name_of(const ConnectionRecord& connection, int end) {
  return "connection " + std::to_string(connection.index) + " end " + std::to_string(end);
}

}  // namespace tutti::transport::simulation
