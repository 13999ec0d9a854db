// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What two verbs wires tell each other of the queue pairs between them, by datagrams of their UD
// queue pairs. Each end has one queue pair for each path, and numbers them by generation: one that
// failed is replaced by one of a later generation, and the end with the earlier one follows. Two
// queue pairs are connected where both ends have the same generation. Announcements say how things
// are, not what changed: they are repeated until nothing is missing, and may be lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::wire::verbs {

/// One queue pair of the sender's.
struct AnnouncedPath {
  std::uint32_t generation = 0;
  std::uint32_t qp_number = 0;  ///< 24 bits.
  bool is_connected = false;    ///< It takes what the receiver's of that generation sends.
  friend bool operator==(const AnnouncedPath&, const AnnouncedPath&) = default;
};

struct Announcement {
  std::uint64_t from = 0;          ///< Number of the sending wire.
  std::uint64_t to = 0;            ///< Number of the receiving wire.
  std::uint8_t traffic_class = 0;  ///< Peers of different ones have queue pairs of their own.
  bool has_heard = false;          ///< An announcement of the receiver has come.
  bool is_complete = false;        ///< The sender knows all that it needs; else it wants an answer.
  std::uint16_t paths = 0;         ///< Of the sender.
  std::uint16_t first = 0;         ///< Path of announced[0].
  std::vector<AnnouncedPath> announced = {};
  friend bool operator==(const Announcement&, const Announcement&) = default;
};

inline constexpr std::size_t kAnnouncementHeadBytes = 28;
inline constexpr std::size_t kAnnouncedPathBytes = 8;

/// Of its length: kAnnouncementHeadBytes + kAnnouncedPathBytes for each path.
void encode(const Announcement& announcement, std::vector<std::byte>* out);
/// False: not an announcement.
bool decode(std::span<const std::byte> in, Announcement* out);

}  // namespace tutti::wire::verbs
