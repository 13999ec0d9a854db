// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/channel_placement.hpp"

#include <algorithm>

namespace tutti::net {

std::vector<std::size_t> Placement::next(std::uint64_t peer, bool sends,
                                         std::size_t sub_connections) {
  // One engine is both halves; of an odd number the receives have the longer one.
  const std::size_t of_sends = std::max<std::size_t>(engines_ / 2, 1);
  const std::size_t begin = sends || engines_ == 1 ? 0 : of_sends;
  const std::size_t half = sends || engines_ == 1 ? of_sends : engines_ - of_sends;

  const std::lock_guard lock(mutex_);
  Peers& peers = sends ? sends_to_ : receives_from_;
  Peer& it = peers.try_emplace(peer, Peer{peers.size()}).first->second;
  const std::size_t turn = it.channels++;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < std::min(sub_connections, engines_); ++i) {
    // Once around the own half from where the peer begins, then once around the other.
    const std::size_t place = (turn + i) % engines_;
    const bool is_own = place < half;
    const std::size_t from = is_own ? begin : begin + half;
    const std::size_t size = is_own ? half : engines_ - half;
    chosen.push_back((from + (it.first + place - (is_own ? 0 : half)) % size) % engines_);
  }
  return chosen;
}

}  // namespace tutti::net
