// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which network devices the messages from one rank to another take. Between nodes local rank l is
// on rail l (modulo the devices), at both ends, so that each ring of Parallel Rings has a rail of
// its own; where nodes differ, the one with more ranks says. With more devices than ranks a rank
// has several rails and its messages take them in turn, to the next node from the first rail on, to
// the one after it from the second. Within a node each end has its own device.
#pragma once

#include <vector>

#include "topology/layout.hpp"

namespace tutti::runners {

/// A device of the sender and one of the receiver, each by its own numbers.
struct RailEnds {
  int sender_device = 0;
  int receiver_device = 0;

  bool operator==(const RailEnds&) const = default;
};

/// At least one; message number n takes the (n modulo the size)-th. `devices`: by rank, at least 1.
std::vector<RailEnds> rails_between(const topology::Layout& layout, const std::vector<int>& devices,
                                    int sender, int receiver);

}  // namespace tutti::runners
