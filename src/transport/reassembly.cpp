// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/reassembly.hpp"

#include <cstring>

namespace tutti::transport {

bool Reassembly::fits(const DataHeader& chunk) const {
  const Bytes end = chunk.offset + chunk.payload_bytes;
  const Bytes limit = has_end ? total_bytes : capacity_bytes;
  // Also together: chunks that lie on each other would never make a whole.
  return end <= limit && chunk.payload_bytes <= limit - received_bytes &&
         chunk.payload_bytes <= stride.run_bytes(chunk.offset);
}

bool Reassembly::on_data(const DataHeader& chunk, bool is_end, std::span<const std::byte> payload) {
  const Bytes end = chunk.offset + chunk.payload_bytes;
  if (!fits(chunk) || (is_end && (has_end || end < received_bytes)) ||
      (!payload.empty() && payload.size() != chunk.payload_bytes)) {
    return false;
  }
  if (data != nullptr && !payload.empty()) {
    std::memcpy(data + stride.at(chunk.offset), payload.data(), payload.size());
  }
  received_bytes += chunk.payload_bytes;
  if (is_end) {
    has_end = true;
    total_bytes = end;
  }
  return true;
}

TimeNs Reassembly::look(TimeNs now) {
  if (seen_ns == kNever || seen_bytes != received_bytes) {
    seen_bytes = received_bytes;
    seen_ns = now;
  }
  return seen_ns;
}

std::byte* Reassembly::place(const DataHeader& chunk) const {
  return data != nullptr && fits(chunk) ? data + stride.at(chunk.offset) : nullptr;
}

}  // namespace tutti::transport
