// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// File descriptors from each rank of a node to each other (unix(7), SCM_RIGHTS): a socket of an
// abstract name each, whose address goes around by the caller's own means. Nobody has to accept
// anything, so all ranks may send first and then receive.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/descriptors.hpp"
#include "base/result.hpp"

namespace tutti::runners {

class FdExchange {
 public:
  /// Fixed size, to be sent as bytes. Who does not know `secret` gets nothing in.
  struct Address {
    std::array<char, 16> name{};  ///< As bound, with its leading zero.
    std::uint32_t name_bytes = 0;
    std::array<std::uint64_t, 2> secret{};
  };

  /// Errors: no socket (kUnavailable).
  static Result<FdExchange> open();
  const Address& address() const { return address_; }

  /// Gives `descriptor` to all others; `all` in rank order, own included. Errors: a rank's socket
  /// cannot be seen from here, as in another network name space (kUnavailable), its queue stays
  /// full (kTimeout).
  Status send_to_all(std::span<const Address> all, int self, int descriptor) const;
  /// What the others have sent, in rank order; nothing at the own place. Errors: not all have come
  /// in time (kTimeout).
  Result<std::vector<Descriptor>> receive_from_all(int ranks, int self, double timeout_s) const;

 private:
  Descriptor socket_;
  Address address_;
};

}  // namespace tutti::runners
