// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/split_layout.hpp"

namespace tutti::transport {

Bytes SplitLayout::part_bytes(Bytes message_bytes, std::uint32_t sub) const {
  const Bytes units = message_bytes / unit_bytes_;
  const Bytes whole_units = units / sub_connections_ + (units % sub_connections_ > sub ? 1 : 0);
  const Bytes rest = units % sub_connections_ == sub ? message_bytes % unit_bytes_ : 0;
  return whole_units * unit_bytes_ + rest;
}

SendRequest SplitLayout::first_part(const SendRequest& whole) const {
  SendRequest part = whole;
  if (is_split(whole.bytes)) {
    part.bytes = part_bytes(whole.bytes, 0);
    part.whole_bytes = whole.bytes;
    part.stride = stride();
    part.tells_match = true;
  }
  return part;
}

ReceivePart SplitLayout::first_part(const ReceivePart& whole) const {
  ReceivePart part = whole;
  if (is_split(whole.capacity_bytes)) {
    part.capacity_bytes = part_bytes(whole.capacity_bytes, 0);
    part.whole_bytes = whole.capacity_bytes;
    part.stride = stride();
  }
  return part;
}

SendRequest SplitLayout::other_part(const SendRequest& whole, std::uint32_t sub,
                                    std::uint64_t slot) const {
  SendRequest part = whole;
  part.bytes = part_bytes(whole.bytes, sub);
  // Of a part without bytes, the place may lie behind the buffer.
  part.data = whole.data == nullptr || part.bytes == 0 ? nullptr : whole.data + sub * unit_bytes_;
  part.stride = stride();
  part.slot = slot;
  return part;
}

SplitReceive SplitLayout::other_part(const SplitReceive& whole, std::uint32_t sub) const {
  SplitReceive part = whole;
  part.capacity_bytes = part_bytes(whole.capacity_bytes, sub);
  part.data =
      whole.data == nullptr || part.capacity_bytes == 0 ? nullptr : whole.data + sub * unit_bytes_;
  part.stride = stride();
  return part;
}

}  // namespace tutti::transport
