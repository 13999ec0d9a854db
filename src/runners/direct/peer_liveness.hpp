// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which ranks of a communicator are still in it, told apart from those whose processes ended before
// they ended it. For kernels on GPUs; in host memory: host_wait.cpp. A rank has ended it when it
// will not push any more; it has left when it does not hold mapped either what is another's, which
// may be later, when its driver is free. Each has a word of its own in memory that the others of
// the node map, so nothing has to be asked of a driver, which may be busy, and the word stays when
// the process has ended.
//
// Peers that cannot be seen (another process name space, another user) are taken to be there: a
// time-out is what bounds the wait for them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runners/direct/host_process.hpp"
#include "runners/direct/shared_segment.hpp"

namespace tutti::runners {

class PeerLiveness {
 public:
  /// What a rank gives to the others. Fixed size, to be sent as bytes.
  struct Identity {
    SegmentTicket ticket;  ///< No descriptor: there is no word.
    HostProcess process;
  };

  /// This rank's own part; where it cannot be made the others see only its process.
  static PeerLiveness make();
  Identity identity() const;
  /// In rank order, own included.
  void open(std::span<const Identity> identities, int self);
  /// Once all ranks are through with open(); saves descriptors.
  void close_files();

  /// Memory of this rank's, of another's: a page that only its rank writes (call_records.hpp).
  /// Null: there is none.
  void* own_page() const;
  void* page_of(int rank) const;

  /// Each to be told once, in this order.
  void end();
  void leave();
  /// The first peer whose process ended before it ended this; -1: there is none.
  int dead_peer() const;
  /// Whether this peer will not push any more, or cannot be seen.
  bool has_ended(int rank) const;
  /// Whether no peer that can be seen is in it any more, in one way or the other.
  bool is_alone() const;

 private:
  struct Peer {
    int rank;
    HostProcess process;
    std::shared_ptr<SharedSegment> segment;  ///< Null: there is no word.

    std::uint64_t word() const;
  };

  std::shared_ptr<SharedSegment> own_;  ///< Null: none.
  std::vector<Peer> peers_;             ///< Those that can be seen.
};

}  // namespace tutti::runners
