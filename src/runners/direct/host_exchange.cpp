// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Data movement as streams of pieces. A writer has a ring for what everybody reads and one for each
// reader alone; it writes where something was before when its readers have published that they took
// it. Both ends cut a stream alike, since both know its length, and both know where the ring stands
// since the beginning of the communicator, so nothing is reset between calls.
#include <algorithm>
#include <cstring>

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

}  // namespace

/// One end of a stream.
struct DirectHostRunner::Stream {
  Stream() = default;
  Stream(const void* from, Bytes stream_bytes, Bytes piece_bytes_max)
      : data(static_cast<std::byte*>(const_cast<void*>(from))),
        bytes(stream_bytes),
        piece(piece_bytes(stream_bytes, piece_bytes_max)) {}

  bool is_done() const { return moved == bytes; }
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
};

// ---- to everybody ------------------------------------------------------------------------------

bool DirectHostRunner::post_spread_piece(Stream& stream) {
  const Bytes bytes = stream.next_bytes();
  const Bytes start = stream.next_start(use_->spread_posted, layout_.ring_bytes);
  const Bytes end = start + stream.next_ring_bytes();
  if (end > spread_credit_ + layout_.ring_bytes) {
    spread_credit_ = use_->spread_posted;
    for (int reader = 0; reader < layout_.ranks; ++reader) {
      if (!is_mine(reader)) {
        spread_credit_ = std::min(spread_credit_, area(reader).spread_taken(rank_).read());
      }
    }
    if (end > spread_credit_ + layout_.ring_bytes) {
      return false;
    }
  }
  std::memcpy(mine().spread_piece(start), stream.data + stream.moved, bytes);
  stream.moved += bytes;
  use_->spread_posted = end;
  mine().spread().publish(end);
  return true;
}

bool DirectHostRunner::take_spread_piece(int writer, Stream& stream) {
  Bytes& taken = spread_taken_[static_cast<std::size_t>(writer)];
  const Bytes start = stream.next_start(taken, layout_.ring_bytes);
  if (area(writer).spread().read() <= start) {
    return false;
  }
  const Bytes bytes = stream.next_bytes();
  taken = start + stream.next_ring_bytes();
  std::memcpy(stream.data + stream.moved, area(writer).spread_piece(start), bytes);
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
  if (!out.is_done() && !claim_rings()) {
    return false;
  }
  Patience patience(peers_);
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
      return true;
    }
    if (moved) {
      patience.renew();
      continue;
    }
    const auto awaited = [&](int rank) {
      return !is_mine(rank) && (!in[static_cast<std::size_t>(rank)].is_done() ||
                                area(rank).spread_taken(rank_).read() < use_->spread_posted);
    };
    if (!patience.wait(awaited)) {
      failure_ = patience.failure();
      return false;
    }
  }
}

// ---- to one ------------------------------------------------------------------------------------

bool DirectHostRunner::post_piece(int reader, Stream& stream) {
  const auto i = static_cast<std::size_t>(reader);
  const Bytes ring = layout_.pair_ring_bytes();
  const Bytes bytes = stream.next_bytes();
  const Bytes start = stream.next_start(use_->posted[i], ring);
  const Bytes end = start + stream.next_ring_bytes();
  if (end > credit_[i] + ring) {
    credit_[i] = area(reader).taken(rank_).read();
    if (end > credit_[i] + ring) {
      return false;
    }
  }
  std::memcpy(mine().piece_for(reader, start), stream.data + stream.moved, bytes);
  stream.moved += bytes;
  use_->posted[i] = end;
  mine().posted(reader).publish(end);
  return true;
}

bool DirectHostRunner::take_piece(int writer, Stream& stream) {
  const auto i = static_cast<std::size_t>(writer);
  const Bytes start = stream.next_start(taken_[i], layout_.pair_ring_bytes());
  if (area(writer).posted(rank_).read() <= start) {
    return false;
  }
  const Bytes bytes = stream.next_bytes();
  taken_[i] = start + stream.next_ring_bytes();
  std::memcpy(stream.data + stream.moved, area(writer).piece_for(rank_, start), bytes);
  stream.moved += bytes;
  mine().taken(writer).publish(taken_[i]);
  return true;
}

bool DirectHostRunner::exchange(const Call& call) {
  const Bytes piece_max = layout_.pair_part_bytes_max();
  const auto all = static_cast<std::size_t>(layout_.ranks);
  std::vector<Stream> out(all);
  std::vector<Stream> in(all);
  const auto gives = [&](std::size_t to, Run run) {
    if (run.count > 0) {
      out[to] = Stream(at(call.send, run.offset, call.element_bytes),
                       run.count * call.element_bytes, piece_max);
    }
  };
  const auto takes = [&](std::size_t from, Run run) {
    if (run.count > 0) {
      in[from] = Stream(at(call.recv, run.offset, call.element_bytes),
                        run.count * call.element_bytes, piece_max);
    }
  };
  const auto root = static_cast<std::size_t>(call.root);
  const bool is_root = is_mine(call.root);
  const bool sends_to_all = call.collective == Collective::kAlltoall ||
                            call.collective == Collective::kAlltoallv ||
                            call.collective == Collective::kAlltoallw;
  const bool is_gather =
      call.collective == Collective::kGather || call.collective == Collective::kGatherv;
  const bool has_blocks = has_counts(call.collective);
  if (is_gather) {
    gives(root, {0, call.count});
  } else if (!sends_to_all) {
    takes(root, {0, call.count});
  }
  if (sends_to_all || (!is_gather && is_root)) {
    const std::vector<Run> runs =
        has_blocks ? send_runs(call, rank_, layout_.ranks) : std::vector<Run>();
    for (std::size_t to = 0; to < all; ++to) {
      gives(to, has_blocks ? runs[to] : Run{to * call.count, call.count});
    }
  }
  if (sends_to_all || (is_gather && is_root)) {
    const std::vector<Run> runs =
        has_blocks ? recv_runs(call, rank_, layout_.ranks) : std::vector<Run>();
    for (std::size_t from = 0; from < all; ++from) {
      takes(from, has_blocks ? runs[from] : Run{from * call.count, call.count});
    }
  }
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
  Patience patience(peers_);
  while (true) {
    bool moved = false;
    bool done = true;
    for (std::size_t step = 1; step < all; ++step) {
      const std::size_t to = (self + step) % all;
      moved |= !out[to].is_done() && post_piece(static_cast<int>(to), out[to]);
      const std::size_t from = (self + all - step) % all;
      const bool may_take = !shares || in[from].moved < out[from].moved;
      moved |= !in[from].is_done() && may_take && take_piece(static_cast<int>(from), in[from]);
      done &= out[to].is_done() && in[from].is_done();
    }
    if (done) {
      return true;
    }
    if (moved) {
      patience.renew();
      continue;
    }
    const auto awaited = [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      return rank != rank_ && !(out[i].is_done() && in[i].is_done());
    };
    if (!patience.wait(awaited)) {
      failure_ = patience.failure();
      return false;
    }
  }
}

}  // namespace tutti::runners
