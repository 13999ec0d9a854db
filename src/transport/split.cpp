// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/split.hpp"

namespace tutti::transport {

Bytes Split::part_bytes(Bytes message_bytes, std::uint32_t lane) const {
  const Bytes units = message_bytes / unit_bytes_;
  const Bytes whole_units = units / lanes_ + (units % lanes_ > lane ? 1 : 0);
  const Bytes rest = units % lanes_ == lane ? message_bytes % unit_bytes_ : 0;
  return whole_units * unit_bytes_ + rest;
}

SendRequest Split::first_part(const SendRequest& whole) const {
  SendRequest part = whole;
  if (is_split(whole.bytes)) {
    part.bytes = part_bytes(whole.bytes, 0);
    part.whole_bytes = whole.bytes;
    part.stride = stride();
    part.tells_match = true;
  }
  return part;
}

ReceivePart Split::first_part(const ReceivePart& whole) const {
  ReceivePart part = whole;
  if (is_split(whole.capacity_bytes)) {
    part.capacity_bytes = part_bytes(whole.capacity_bytes, 0);
    part.whole_bytes = whole.capacity_bytes;
    part.stride = stride();
  }
  return part;
}

SendRequest Split::other_part(const SendRequest& whole, std::uint32_t lane,
                              std::uint64_t slot) const {
  SendRequest part = whole;
  part.bytes = part_bytes(whole.bytes, lane);
  // Of a part without bytes, the place may lie behind the buffer.
  part.data = whole.data == nullptr || part.bytes == 0 ? nullptr : whole.data + lane * unit_bytes_;
  part.stride = stride();
  part.slot = slot;
  return part;
}

GuestPart Split::other_part(const GuestPart& whole, std::uint32_t lane) const {
  GuestPart part = whole;
  part.capacity_bytes = part_bytes(whole.capacity_bytes, lane);
  part.data =
      whole.data == nullptr || part.capacity_bytes == 0 ? nullptr : whole.data + lane * unit_bytes_;
  part.stride = stride();
  return part;
}

}  // namespace tutti::transport
