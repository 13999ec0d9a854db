// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/assembly.hpp"

#include <bit>
#include <cstring>

namespace tutti::wire::udp {

std::span<const std::byte> Assembly::add(std::uint64_t source, const Prefix& prefix,
                                         std::span<const std::byte> content, bool& ecn) {
  const auto bytes = static_cast<std::uint32_t>(content.size());
  const std::uint32_t offset = offset_of(prefix, bytes);
  if (offset == UINT32_MAX) {
    ++dropped_;
    return {};
  }
  if (prefix.count == 1) {
    return content;
  }
  std::size_t at = 0;
  while (at < open_.size() &&
         !(open_[at].in_use && open_[at].source == source &&
           open_[at].prefix.packet == prefix.packet && open_[at].prefix.count == prefix.count &&
           open_[at].prefix.content_bytes == prefix.content_bytes &&
           open_[at].prefix.header_bytes == prefix.header_bytes)) {
    ++at;
  }
  if (at == open_.size()) {
    at = 0;
    while (at < open_.size() && open_[at].in_use) {
      ++at;
    }
    if (at == open_.size()) {
      at = oldest_;
      oldest_ = (oldest_ + 1) % open_.size();
    }
    if (open_[at].in_use) {
      dropped_ += static_cast<std::uint64_t>(std::popcount(open_[at].here));
    }
    open_[at] = {.source = source, .here = 0, .prefix = prefix, .in_use = true};
  }
  Open& open = open_[at];
  const bool is_last = prefix.index + 1 == prefix.count;
  const std::uint32_t whole_bytes = is_last ? offset / (prefix.count - 1U) : bytes;
  if (open.whole_bytes != 0 && open.whole_bytes != whole_bytes) {
    ++dropped_;
    return {};
  }
  open.whole_bytes = whole_bytes;
  std::memcpy(memory(at) + offset, content.data(), bytes);
  open.here |= 1ULL << prefix.index;
  open.ecn = open.ecn || ecn;
  if (std::popcount(open.here) < prefix.count) {
    return {};
  }
  ecn = open.ecn;
  open.in_use = false;
  return {memory(at), prefix.content_bytes};
}

}  // namespace tutti::wire::udp
