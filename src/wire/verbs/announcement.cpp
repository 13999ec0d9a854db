// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/announcement.hpp"

namespace tutti::wire::verbs {
namespace {

constexpr std::uint8_t kMagic = 0xe1;  ///< Also the version of this layout.
constexpr std::uint8_t kHeard = 1;
constexpr std::uint8_t kComplete = 2;
constexpr std::uint8_t kConnected = 1;

void put(std::vector<std::byte>* out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out->push_back(static_cast<std::byte>(value >> 8 * i));
  }
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  std::uint64_t get(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      value |= std::to_integer<std::uint64_t>(in_[at_ + i]) << 8 * i;
    }
    at_ += bytes;
    return value;
  }

 private:
  std::span<const std::byte> in_;
  std::size_t at_ = 0;
};

}  // namespace

void encode(const Announcement& announcement, std::vector<std::byte>* out) {
  out->clear();
  put(out, kMagic, 1);
  put(out, announcement.traffic_class, 1);
  put(out, (announcement.has_heard ? kHeard : 0U) | (announcement.is_complete ? kComplete : 0U), 1);
  put(out, 0, 1);
  put(out, announcement.from, 8);
  put(out, announcement.to, 8);
  put(out, announcement.paths, 2);
  put(out, announcement.first, 2);
  put(out, announcement.announced.size(), 4);
  for (const AnnouncedPath& path : announcement.announced) {
    put(out, path.generation, 4);
    put(out, path.qp_number, 3);
    put(out, path.is_connected ? kConnected : 0, 1);
  }
}

bool decode(std::span<const std::byte> in, Announcement* out) {
  if (in.size() < kAnnouncementHeadBytes || in[0] != std::byte{kMagic} ||
      in[2] > std::byte{kHeard | kComplete} || in[3] != std::byte{0}) {
    return false;
  }
  Reader reader(in);
  reader.get(1);
  out->traffic_class = static_cast<std::uint8_t>(reader.get(1));
  const std::uint64_t state = reader.get(1);
  out->has_heard = (state & kHeard) != 0;
  out->is_complete = (state & kComplete) != 0;
  reader.get(1);
  out->from = reader.get(8);
  out->to = reader.get(8);
  out->paths = static_cast<std::uint16_t>(reader.get(2));
  out->first = static_cast<std::uint16_t>(reader.get(2));
  const std::uint64_t count = reader.get(4);
  if (std::uint64_t{out->first} + count > out->paths ||
      in.size() != kAnnouncementHeadBytes + count * kAnnouncedPathBytes) {
    return false;
  }
  out->announced.clear();
  for (std::uint64_t i = 0; i < count; ++i) {
    AnnouncedPath path;
    path.generation = static_cast<std::uint32_t>(reader.get(4));
    path.qp_number = static_cast<std::uint32_t>(reader.get(3));
    const std::uint64_t flags = reader.get(1);
    if (flags > kConnected) {
      return false;
    }
    path.is_connected = flags != 0;
    out->announced.push_back(path);
  }
  return true;
}

}  // namespace tutti::wire::verbs
