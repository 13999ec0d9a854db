// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One message's bytes, or one part's, as chunks bring them: in any order, each chunk once. Which
// receive a chunk belongs to is for others to know (incoming.hpp, split_receives.hpp).
#pragma once

#include <cstddef>
#include <span>

#include "transport/packet.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

struct Reassembly {
  std::byte* data = nullptr;  ///< Null: bytes are counted and dropped.
  Stride stride = {};
  Bytes capacity_bytes = 0;
  Bytes received_bytes = 0;
  Bytes total_bytes = 0;  ///< Known once the end has come.
  bool has_end = false;
  Bytes seen_bytes = 0;     ///< At the last look.
  TimeNs seen_ns = kNever;  ///< Of the first look that saw so many.

  /// False, and nothing has changed: bytes outside of it, or ends that contradict each other. An
  /// empty payload is one that lies where place() said.
  bool on_data(const DataHeader& chunk, bool is_end, std::span<const std::byte> payload);
  /// Where on_data would copy the payload to; null: nowhere.
  std::byte* place(const DataHeader& chunk) const;
  bool is_complete() const { return has_end && received_bytes == total_bytes; }
  bool has_begun() const { return has_end || received_bytes > 0; }
  /// Since when nothing has come, as far as who looks now and then can tell.
  TimeNs look(TimeNs now);

 private:
  bool fits(const DataHeader& chunk) const;
};

}  // namespace tutti::transport
