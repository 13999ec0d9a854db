// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/split.hpp"

#include <algorithm>

namespace tutti::transport {

Bytes Split::part_bytes(Bytes message_bytes, std::uint32_t engine) const {
  const Bytes units = message_bytes / unit_bytes_;
  const Bytes whole_units = units / engines_ + (units % engines_ > engine ? 1 : 0);
  const Bytes rest = units % engines_ == engine ? message_bytes % unit_bytes_ : 0;
  return whole_units * unit_bytes_ + rest;
}

SendRequest Split::part_of(const SendRequest& whole, std::uint32_t engine) const {
  SendRequest part = whole;
  part.bytes = part_bytes(whole.bytes, engine);
  // Of a part without bytes, the place may lie behind the buffer.
  part.data =
      whole.data == nullptr || part.bytes == 0 ? nullptr : whole.data + engine * unit_bytes_;
  part.stride = {unit_bytes_, unit_bytes_ * engines_};
  return part;
}

ReceiveRequest Split::part_of(const ReceiveRequest& whole, std::uint32_t engine) const {
  ReceiveRequest part = whole;
  for (std::size_t i = 0; i < whole.part_count && i < kReceivePartsMax; ++i) {
    ReceivePart& it = part.parts[i];
    it.capacity_bytes = part_bytes(whole.parts[i].capacity_bytes, engine);
    it.data =
        it.data == nullptr || it.capacity_bytes == 0 ? nullptr : it.data + engine * unit_bytes_;
    it.stride = {unit_bytes_, unit_bytes_ * engines_};
  }
  return part;
}

bool SplitJoin::on_event(const Event& part, Event& whole) {
  if (!has_event_) {
    has_event_ = true;
    whole_ = part;
  } else {
    whole_.outcome = std::max(whole_.outcome, part.outcome);
    for (std::size_t i = 0; i < kReceivePartsMax; ++i) {
      whole_.part_bytes[i] += part.part_bytes[i];
    }
  }
  if (--open_ > 0) {
    return false;
  }
  whole = whole_;
  return true;
}

}  // namespace tutti::transport
