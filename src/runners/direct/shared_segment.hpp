// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that the ranks of one node share: a memory file, made by one of them and opened by the
// others through /proc. It has no name, so nothing is left behind however the processes end, and it
// does not count against the size of /dev/shm. Ranks that are threads of one process share one
// mapping.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "base/units.hpp"

namespace tutti::runners {

/// What another rank needs to open a segment. Fixed size, to be sent as bytes.
struct SegmentTicket {
  std::array<std::uint64_t, 2> key{};  ///< Random; also stands at the start of the segment.
  Bytes bytes = 0;
  std::int32_t process = 0;
  std::int32_t descriptor = -1;
};

class SharedSegment {
 public:
  /// Bytes at the start that belong to the segment itself.
  static constexpr Bytes kHeadBytes = 128;

  /// A new segment, all zeros but for its head; `bytes` with the head. Pages come with reserve().
  static Result<std::shared_ptr<SharedSegment>> make(Bytes bytes);
  /// The segment of a ticket, as long as its maker has it.
  static Result<std::shared_ptr<SharedSegment>> open(const SegmentTicket& ticket);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  const SegmentTicket& ticket() const { return ticket_; }
  std::byte* data() const { return data_; }

  /// Takes the pages of a range now, on the caller's memory node: there is no signal later when the
  /// machine has no more.
  Status reserve(Bytes offset, Bytes bytes);
  /// Of the maker: once all ranks that are ever to open it have done so.
  void close_file();
  /// Maps the reserved pages of a range now, as far as the kernel can (Linux 5.14): the first
  /// access to each would cost a page fault.
  void touch(Bytes offset, Bytes bytes);

 private:
  SharedSegment() = default;
  Status map();

  SegmentTicket ticket_;
  std::byte* data_ = nullptr;
  std::atomic<int> descriptor_{-1};
};

}  // namespace tutti::runners
