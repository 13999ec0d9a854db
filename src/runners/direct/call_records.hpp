// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the ranks of a node tell each other about their calls on device memory. Each rank writes one
// page of host memory that the others map; nothing here waits. Three things stand on a page:
//  - what each of the last calls is to the two ends of a pair, before it is launched: ends that
//    differ (bytes, root, collective) are found while their kernels wait, and on the receiving side
//    before a call returns;
//  - up to which epoch of a pair a rank has completed its calls: a rank that only sends to a peer
//    which has completed all of them need not wait for it (device/kernels/direct.hpp);
//  - that the rank has ended the communicator's calls after a failure.
// Calls of a peer whose page cannot be mapped are not compared, and all wait for it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/units.hpp"
#include "device/kernels/direct_arguments.hpp"
#include "runners/call.hpp"

namespace tutti::runners {

class CallRecords {
 public:
  static constexpr int kRanksMax = device::kernels::kPeersMax;

  /// A call as one end of a pair of ranks sees it.
  struct Entry {
    std::uint64_t number = 0;  ///< Of the calls of the pair, from 1 on.
    std::uint64_t form = 0;    ///< Equal at both ends: form_of().
    Bytes send_bytes = 0;      ///< To the other end.
    Bytes recv_bytes = 0;

    /// Collective, root, and the warps and rounds of the pair.
    static std::uint64_t form_of(const Call& call, std::uint32_t warps, std::uint64_t rounds);
    /// Warps and rounds alone: where they are equal both ends count their epochs alike.
    std::uint64_t shape() const { return form >> 16; }
    /// For messages: "bcast of root 1 (sends 8 bytes, receives 0)".
    std::string text() const;
    bool fits(const Entry& other) const {
      return form == other.form && send_bytes == other.recv_bytes && recv_bytes == other.send_bytes;
    }
  };
  /// One rank's part, all zeros at the start.
  struct Page;
  static const Bytes kPageBytes;

  /// `page` of this rank, which must be there as long as this object; null: there is none.
  void set_own(int rank, void* page);
  void set_peer(int rank, void* page);

  /// To `peer`, before the launch. Calls of other threads must not overlap.
  void write(int peer, const Entry& entry);
  enum class Found : std::uint8_t {
    kEntry,
    kBehind,  ///< The peer has not come to that call.
    kBusy,    ///< Being written: this entry or, once the call is completed, a later one.
    kLost,    ///< Written over, or the peer's page is not mapped.
  };
  /// What `peer` wrote of the call of that number of the pair.
  Found find(int peer, std::uint64_t number, Entry* entry) const;

  /// "rank 2 is 3 calls behind", of those that are the most; empty: none is. Any thread.
  std::string who_is_behind() const;

  /// This rank has completed all calls with `peer` that were before this epoch of the pair.
  void set_completed(int peer, std::uint64_t epoch);
  /// The same of the peer's calls with this rank, while the peer has not failed.
  bool has_completed(int peer, std::uint64_t epoch) const;

  /// This rank makes no more calls, after a failure.
  void set_failed();
  /// The first peer that said so; -1: none.
  int failed_peer() const;

 private:
  /// Calls that this rank has made with `peer` and the peer has not. 0 also where nobody knows.
  std::uint64_t calls_behind(int peer) const;

  int self_ = 0;
  Page* own_ = nullptr;
  std::array<const Page*, kRanksMax> peers_{};
};

}  // namespace tutti::runners
