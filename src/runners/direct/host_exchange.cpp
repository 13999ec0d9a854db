// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Data movement as streams of pieces. A writer has a ring for what everybody reads and one for each
// reader alone; it writes where something was before when its readers have published that they took
// it. Both ends cut a stream alike, since both know its length. Where it begins in the ring, and
// for which call it is, the writer says with it; a reader that expects something else reads it to
// no place, and the writer takes its place back when the reader has left that call.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/fnv1a.hpp"
#include "runners/direct/host_runner.hpp"

namespace tutti::runners {

using select::Collective;

namespace {

/// A stream that fits a slot is still cut into some pieces, so that reading starts before all is
/// written.
constexpr Bytes kPiecesWanted = 4;
constexpr Bytes kPieceBytesMin = 4096;

Bytes piece_bytes(Bytes stream_bytes, Bytes bytes_max) {
  const Bytes wanted = HostLayout::round_up((stream_bytes + kPiecesWanted - 1) / kPiecesWanted, 64);
  return std::min(std::max(wanted, kPieceBytesMin), bytes_max);
}

/// A call's number, and 16 bits that tell calls apart, in one word.
constexpr int kCallBits = 48;
constexpr std::uint64_t kCallMask = (std::uint64_t{1} << kCallBits) - 1;
std::uint64_t tag_of(std::uint64_t call, const HostCallHead& head) {
  Fnv1a hash;
  for (const std::uint64_t word :
       {head.bytes, std::uint64_t{head.collective}, std::uint64_t{head.root}}) {
    hash.add_word(word);
  }
  return (hash.value() ^ hash.value() >> 32) << kCallBits | (call & kCallMask);
}

}  // namespace

/// One end of a stream.
struct DirectHostRunner::Stream {
  Stream() = default;
  Stream(const void* from, Bytes stream_bytes, Bytes piece_bytes_max)
      : data(static_cast<std::byte*>(const_cast<void*>(from))),
        bytes(stream_bytes),
        piece(piece_bytes(stream_bytes, piece_bytes_max)) {}

  bool is_done() const { return moved == bytes; }
  void drop() { moved = bytes; }
  void discard(Bytes stream_bytes, Bytes piece_bytes_max) {
    *this = Stream(nullptr, stream_bytes, piece_bytes_max);
    has_begun = is_discarded = true;
  }
  Bytes next_bytes() const { return std::min(piece, bytes - moved); }
  /// What the next piece takes in a ring, and where.
  Bytes next_ring_bytes() const { return HostLayout::round_up(next_bytes(), 64); }
  Bytes next_start(Bytes position, Bytes ring) const {
    return HostLayout::next_start(position, next_ring_bytes(), ring);
  }

  std::byte* data = nullptr;  ///< Read by the writer, written by the reader.
  Bytes bytes = 0;
  Bytes piece = 1;
  Bytes moved = 0;
  bool has_begun = false;
  bool is_discarded = false;  ///< Not what the reader expects: read to no place.
};

bool DirectHostRunner::is_as_long(int writer, const HostStreamHead& head, const Stream& stream) {
  if (head.bytes == stream.bytes) [[likely]] {
    return true;
  }
  mismatch(writer, "gives " + std::to_string(head.bytes) + " bytes where " +
                       std::to_string(stream.bytes) + " are expected");
  return false;
}

/// After a long wait: drops what can never come of `in`, by rank, of those who have left this call
/// or are in another.
void DirectHostRunner::drop_what_never_comes(std::vector<Stream>& in, bool are_spread) {
  for (int writer = 0; writer < layout_.ranks; ++writer) {
    Stream& stream = in[static_cast<std::size_t>(writer)];
    if (is_mine(writer) || stream.has_begun) {
      continue;
    }
    // Read first: a writer may begin just before it leaves.
    const bool has_left = area(writer).calls_done().read() >= calls_;
    const bool has_told = area(writer).call_number(calls_).read() == calls_;
    if (are_spread ? has_told : find_stream(writer, stream)) {
      continue;  // Also what is not expected: its writer may wait for room.
    }
    if (stream.is_done()) {
      continue;
    }
    if (has_told && !is_same_call(writer)) {
      stream.drop();
    } else if (has_left) {
      mismatch(writer, "has left the call and gave nothing");
      stream.drop();
    } else if (is_stuck(writer)) {
      mismatch(writer, kStuck);
      stream.drop();
    }
  }
}

/// The same for what this rank gives: `out`, by rank, of those who are in another call.
void DirectHostRunner::drop_what_nobody_takes(std::vector<Stream>& out) {
  for (int reader = 0; reader < layout_.ranks; ++reader) {
    Stream& stream = out[static_cast<std::size_t>(reader)];
    if (is_mine(reader) || stream.is_done()) {
      continue;
    }
    if (area(reader).call_number(calls_).read() == calls_ && !is_same_call(reader)) {
      stream.drop();
    } else if (is_stuck(reader)) {
      mismatch(reader, kStuck);
      stream.drop();
    }
  }
}

// ---- to everybody ------------------------------------------------------------------------------

bool DirectHostRunner::post_spread_piece(Stream& stream) {
  if (!stream.has_begun) {
    *mine().call_stream(calls_) = {spread_posted_, stream.bytes};
    *mine().call_head(calls_) = head_;
    mine().call_number(calls_).publish(calls_);
    stream.has_begun = true;
    spread_start_ = spread_posted_;
  }
  const Bytes bytes = stream.next_bytes();
  const Bytes start = stream.next_start(spread_posted_, layout_.ring_bytes);
  const Bytes end = start + stream.next_ring_bytes();
  if (end > spread_credit_ + layout_.ring_bytes) {
    spread_credit_ = spread_posted_;
    for (int reader = 0; reader < layout_.ranks; ++reader) {
      if (!is_mine(reader)) {
        spread_credit_ = std::min(spread_credit_, spread_credit_of(reader, end));
      }
    }
    if (end > spread_credit_ + layout_.ring_bytes) {
      return false;
    }
  }
  std::memcpy(mine().spread_piece(start), stream.data + stream.moved, bytes);
  stream.moved += bytes;
  spread_posted_ = end;
  mine().spread().publish(end);
  last_spread_ = stream.is_done() ? calls_ : last_spread_;
  return true;
}

/// Up to where `reader` has read, or never will, if that is far enough to write up to `end`.
Bytes DirectHostRunner::spread_credit_of(int reader, Bytes end) {
  const Bytes taken = area(reader).spread_taken(rank_).read();
  if (taken + layout_.ring_bytes >= end) [[likely]] {
    return taken;
  }
  const std::uint64_t left = area(reader).calls_done().read();
  if (left >= calls_) {
    mismatch(reader, "has left the call without the data of this rank");
    return spread_posted_;
  }
  if (area(reader).call_number(calls_).read() == calls_ && !is_same_call(reader)) {
    return spread_posted_;
  }
  if (is_stuck(reader)) {
    mismatch(reader, kStuck);
    return spread_posted_;
  }
  return left >= last_spread_ ? std::max(taken, spread_start_) : taken;
}

bool DirectHostRunner::take_spread_piece(int writer, Stream& stream) {
  Bytes& taken = spread_taken_[static_cast<std::size_t>(writer)];
  if (!stream.has_begun) {
    if (area(writer).call_number(calls_).read() < calls_) {
      return false;
    }
    const HostStreamHead& head = *area(writer).call_stream(calls_);
    stream.has_begun = true;
    if (!is_same_call(writer)) {
      stream.drop();
      return true;
    }
    if (!is_as_long(writer, head, stream)) {
      stream.discard(head.bytes, layout_.part_bytes_max());
    }
    taken = head.start;
    if (stream.is_done()) {
      return true;
    }
  }
  const Bytes start = stream.next_start(taken, layout_.ring_bytes);
  if (area(writer).spread().read() <= start) {
    return false;
  }
  const Bytes bytes = stream.next_bytes();
  taken = start + stream.next_ring_bytes();
  if (!stream.is_discarded) {
    std::memcpy(stream.data + stream.moved, area(writer).spread_piece(start), bytes);
  }
  stream.moved += bytes;
  mine().spread_taken(writer).publish(taken);
  return true;
}

bool DirectHostRunner::spread(const Call& call) {
  const bool is_bcast = call.collective == Collective::kBcast;
  const Bytes piece_max = layout_.part_bytes_max();
  Stream out;
  std::vector<Stream> in(static_cast<std::size_t>(layout_.ranks));
  if (is_bcast) {
    const Stream whole(call.recv, call.count * call.element_bytes, piece_max);
    (is_mine(call.root) ? out : in[static_cast<std::size_t>(call.root)]) = whole;
  } else {
    const std::vector<Run> runs = recv_runs(call, rank_, layout_.ranks);
    for (int writer = 0; writer < layout_.ranks; ++writer) {
      const auto i = static_cast<std::size_t>(writer);
      const Run run =
          call.collective == Collective::kAllgather ? Run{i * call.count, call.count} : runs[i];
      std::byte* block = at(call.recv, run.offset, call.element_bytes);
      const Bytes bytes = run.count * call.element_bytes;
      if (!is_mine(writer)) {
        in[i] = Stream(block, bytes, piece_max);
        continue;
      }
      out = Stream(call.send, bytes, piece_max);
      if (bytes > 0 && call.send != block) {
        std::memcpy(block, call.send, bytes);
      }
    }
    if (layout_.ranks == 1) {
      out = {};
    }
  }
  if (!out.is_done() && !(await_place(HostLayout::kInlineSlots) && claim_rings())) {
    return false;
  }
  BoundedWait bounded_wait(peers_);
  while (true) {
    bool moved = !out.is_done() && post_spread_piece(out);
    bool done = out.is_done();
    for (int step = 1; step < layout_.ranks; ++step) {
      const int writer = (rank_ + step) % layout_.ranks;
      Stream& stream = in[static_cast<std::size_t>(writer)];
      moved |= !stream.is_done() && take_spread_piece(writer, stream);
      done &= stream.is_done();
    }
    if (done) {
      return failure_.ok();
    }
    if (moved) {
      bounded_wait.renew();
      continue;
    }
    const auto awaited = [&](int rank) {
      return !is_mine(rank) && (!in[static_cast<std::size_t>(rank)].is_done() ||
                                area(rank).spread_taken(rank_).read() < spread_posted_);
    };
    const int checks = bounded_wait.checks();
    if (!wait(bounded_wait, awaited)) {
      return false;
    }
    if (bounded_wait.checks() != checks) {
      drop_what_never_comes(in, /*are_spread=*/true);
    }
  }
}

// ---- to one ------------------------------------------------------------------------------------

bool DirectHostRunner::post_piece(int reader, Stream& stream) {
  const auto i = static_cast<std::size_t>(reader);
  std::uint64_t& newest = streams_[i][0];
  if (!stream.has_begun) {
    // Its place in the list was that of the oldest stream.
    if (left_[i] < streams_[i][1]) {
      left_[i] = area(reader).calls_done().read();
      if (left_[i] < streams_[i][1]) {
        return false;
      }
    }
    streams_[i][1] = std::exchange(newest, calls_);
    stream_starts_[i] = posted_[i];
    const HostArea::Stream place = mine().stream(reader, streams_begun_[i]++);
    *place.head = {posted_[i], stream.bytes};
    place.call.publish(tag_of(calls_, head_));
    stream.has_begun = true;
  }
  const Bytes ring = layout_.pair_ring_bytes();
  const Bytes bytes = stream.next_bytes();
  const Bytes start = stream.next_start(posted_[i], ring);
  const Bytes end = start + stream.next_ring_bytes();
  if (end > credit_[i] + ring) {
    credit_[i] = std::max(credit_[i], area(reader).taken(rank_).read());
    if (end > credit_[i] + ring) {
      left_[i] = area(reader).calls_done().read();
      if (left_[i] >= calls_) {
        mismatch(reader, "has left the call without the data of this rank");
        stream.drop();
        return true;
      }
      if (left_[i] >= streams_[i][1]) {
        credit_[i] = std::max(credit_[i], stream_starts_[i]);
      }
    }
    if (end > credit_[i] + ring) {
      return false;
    }
  }
  std::memcpy(mine().piece_for(reader, start), stream.data + stream.moved, bytes);
  stream.moved += bytes;
  posted_[i] = end;
  mine().posted(reader).publish(end);
  return true;
}

std::optional<bool> DirectHostRunner::is_call_of(int peer, std::uint64_t number,
                                                 const HostCallHead& head) const {
  // Read first: it may show its call just before it leaves.
  const bool has_left = area(peer).calls_done().read() >= number;
  if (area(peer).call_number(number).read() == number) {
    return *area(peer).call_head(number) == head;
  }
  for (int place = 0; place < HostLayout::kStreamsAhead; ++place) {
    const HostArea::Stream entry = area(peer).stream(rank_, static_cast<std::uint64_t>(place));
    if (const std::uint64_t tag = entry.call.read(); ((tag ^ number) & kCallMask) == 0) {
      return tag == tag_of(number, head);
    }
  }
  return has_left ? std::optional(false) : std::nullopt;
}

/// Finds the stream that `writer` has begun for this call. False: there is none yet.
bool DirectHostRunner::find_stream(int writer, Stream& stream) {
  const auto i = static_cast<std::size_t>(writer);
  for (int place = 0; place < HostLayout::kStreamsAhead; ++place) {
    const HostArea::Stream entry = area(writer).stream(rank_, static_cast<std::uint64_t>(place));
    const std::uint64_t tag = entry.call.read();
    if (((tag ^ calls_) & kCallMask) != 0) {
      continue;
    }
    stream.has_begun = true;
    left_[i] = std::max(left_[i], calls_ - 1);
    const bool is_same = tag == tag_of(calls_, head_);
    if (!is_same) {
      mismatch(writer, "calls something else");
    }
    if (!is_same || !is_as_long(writer, *entry.head, stream)) {
      stream.discard(entry.head->bytes, layout_.pair_part_bytes_max());
    }
    taken_[i] = entry.head->start;
    return true;
  }
  return false;
}

bool DirectHostRunner::take_piece(int writer, Stream& stream) {
  const auto i = static_cast<std::size_t>(writer);
  if (!stream.has_begun && !find_stream(writer, stream)) {
    return false;
  }
  const Bytes start = stream.next_start(taken_[i], layout_.pair_ring_bytes());
  const Bytes posted = area(writer).posted(rank_).read();
  if (stream.is_discarded && area(writer).calls_done().read() >= calls_) {
    stream.drop();  // It may have cut the stream, and what is posted may be of its next call.
    return true;
  }
  if (posted <= start) {
    return false;
  }
  const Bytes bytes = stream.next_bytes();
  taken_[i] = start + stream.next_ring_bytes();
  if (!stream.is_discarded) {
    std::memcpy(stream.data + stream.moved, area(writer).piece_for(rank_, start), bytes);
  }
  stream.moved += bytes;
  mine().taken(writer).publish(taken_[i]);
  return true;
}

bool DirectHostRunner::exchange(const Call& call) {
  const Bytes piece_max = layout_.pair_part_bytes_max();
  const auto all = static_cast<std::size_t>(layout_.ranks);
  std::vector<Stream> out(all);
  std::vector<Stream> in(all);
  visit_pieces(
      call, rank_, layout_.ranks,
      [&](int to, const Run& run) {
        if (run.count > 0) {
          out[static_cast<std::size_t>(to)] = Stream(at(call.send, run.offset, call.element_bytes),
                                                     run.count * call.element_bytes, piece_max);
        }
      },
      [&](int from, const Run& run) {
        if (run.count > 0) {
          in[static_cast<std::size_t>(from)] = Stream(at(call.recv, run.offset, call.element_bytes),
                                                      run.count * call.element_bytes, piece_max);
        }
      });
  const auto self = static_cast<std::size_t>(rank_);
  if (in[self].bytes > 0 && in[self].data != out[self].data && !call.in_place) {
    std::memcpy(in[self].data, out[self].data, in[self].bytes);
  }

  const bool writes =
      std::any_of(out.begin(), out.end(), [](const Stream& stream) { return !stream.is_done(); });
  if (writes && !claim_rings()) {
    return false;
  }
  // What is sent and what arrives share a buffer: nothing may arrive over what is not yet sent.
  const bool shares = aliasing_of(call) == Aliasing::kSame;
  BoundedWait bounded_wait(peers_);
  while (true) {
    bool moved = false;
    bool done = true;
    for (std::size_t step = 1; step < all; ++step) {
      const std::size_t to = (self + step) % all;
      moved |= !out[to].is_done() && post_piece(static_cast<int>(to), out[to]);
      const std::size_t from = (self + all - step) % all;
      const bool may_take = !shares || in[from].is_discarded || in[from].moved < out[from].moved;
      moved |= !in[from].is_done() && may_take && take_piece(static_cast<int>(from), in[from]);
      done &= out[to].is_done() && in[from].is_done();
    }
    if (done) {
      return failure_.ok();
    }
    if (moved) {
      bounded_wait.renew();
      continue;
    }
    const auto awaited = [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      return rank != rank_ && !(out[i].is_done() && in[i].is_done());
    };
    const int checks = bounded_wait.checks();
    if (!wait(bounded_wait, awaited)) {
      return false;
    }
    if (bounded_wait.checks() != checks) {
      drop_what_never_comes(in, /*are_spread=*/false);
      drop_what_nobody_takes(out);
    }
  }
}

}  // namespace tutti::runners
