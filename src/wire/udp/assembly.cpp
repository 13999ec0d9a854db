// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/assembly.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/random.hpp"

namespace tutti::wire::udp {

using transport::kNever;
using transport::TimeNs;

namespace {

/// After so many packets half of the wait is enough: order may have come back.
constexpr std::uint64_t kPacketsToForget = 4096;

}  // namespace

Assembly::Assembly(std::uint32_t packets)
    : open_(packets),
      buckets_(std::bit_ceil(packets), kNone),
      memory_(new std::byte[std::size_t{packets} * kContentBytesMax]) {
  for (std::uint32_t at = 0; at + 1 < packets; ++at) {
    open_[at].next = at + 1;
  }
}

std::uint32_t& Assembly::bucket(std::uint64_t source) {
  return buckets_[mix64(source) & (buckets_.size() - 1)];
}

std::uint32_t Assembly::find(std::uint64_t source, const Prefix& prefix) {
  std::uint32_t at = bucket(source);
  while (at != kNone && !(open_[at].source == source && open_[at].prefix.packet == prefix.packet &&
                          open_[at].prefix.count == prefix.count &&
                          open_[at].prefix.content_bytes == prefix.content_bytes &&
                          open_[at].prefix.header_bytes == prefix.header_bytes)) {
    at = open_[at].next;
  }
  return at;
}

std::uint32_t Assembly::open(std::uint64_t source, const Prefix& prefix) {
  if (free_ == kNone) {
    const auto oldest =
        std::min_element(open_.begin(), open_.end(),
                         [](const Open& one, const Open& other) { return one.age < other.age; });
    dropped_ += static_cast<std::uint64_t>(std::popcount(oldest->here));
    close(static_cast<std::uint32_t>(oldest - open_.begin()));
  }
  if (++opened_ % kPacketsToForget == 0) {
    reordering_ns_ = std::max(reordering_ns_ / 2, kReorderingNsMin);
  }
  const std::uint32_t at = free_;
  free_ = open_[at].next;
  std::uint32_t& first = bucket(source);
  open_[at] = {.source = source, .age = opened_, .prefix = prefix, .next = first};
  first = at;
  ++waiting_;
  return at;
}

void Assembly::close(std::uint32_t at) {
  std::uint32_t* link = &bucket(open_[at].source);
  while (*link != at) {
    link = &open_[*link].next;
  }
  *link = open_[at].next;
  open_[at].gap_ns = kNever;
  if (--waiting_ == 0) {
    due_ns_ = kNever;
  }
  open_[at].next = free_;
  free_ = at;
}

// Fragment `index` has just come.
void Assembly::note_gap(TimeNs now, Open& it, unsigned index) {
  const auto before = static_cast<unsigned>(std::countr_one(it.here));  // Without a gap.
  const auto last = static_cast<unsigned>(std::bit_width(it.here)) - 1;
  if (index < last && it.gap_ns != kNever) {
    const TimeNs late_ns = std::max(all_added_ns_, it.gap_ns) - it.gap_ns;
    reordering_ns_ = std::clamp(2 * late_ns, reordering_ns_, kReorderingNsMax);
    it.gap_ns = kNever;  // If there is another one, that has its time, too.
  }
  if (it.gap_ns == kNever && before > 0 && before < last) {
    it.gap_ns = now;
    if (!it.is_partial) {
      due_ns_ = std::min(due_ns_, now + reordering_ns_);
    }
  }
}

std::span<const std::byte> Assembly::add(TimeNs now, std::uint64_t source, const Prefix& prefix,
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
  std::uint32_t at = find(source, prefix);
  if (at == kNone) {
    at = open(source, prefix);
  }
  Open& it = open_[at];
  const bool is_last = prefix.index + 1 == prefix.count;
  const std::uint32_t whole_bytes = is_last ? offset / (prefix.count - 1U) : bytes;
  if (it.whole_bytes != 0 && it.whole_bytes != whole_bytes) {
    ++dropped_;
    return {};
  }
  it.whole_bytes = whole_bytes;
  std::memcpy(memory(at) + offset, content.data(), bytes);
  const std::uint64_t bit = 1ULL << prefix.index;
  const bool is_new = (it.here & bit) == 0;
  it.here |= bit;
  it.ecn = it.ecn || ecn;
  if (is_new) {
    note_gap(now, it, prefix.index);
  }
  if (std::popcount(it.here) < prefix.count) {
    return {};
  }
  ecn = it.ecn;
  close(at);
  return {memory(at), prefix.content_bytes};
}

}  // namespace tutti::wire::udp
