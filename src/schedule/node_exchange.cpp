// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/node_exchange.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "schedule/fold.hpp"

namespace tutti::schedule {
namespace {

constexpr int kRadix = 4;  // Trees that are deeper than two on a node of 16 gain nothing.

int radix_of(NodeForm form, const Parameters& parameters) {
  return form != NodeForm::kKnomial ? 2 : parameters.radix > 1 ? parameters.radix : kRadix;
}

void send_all(Builder& builder, int peer, const std::vector<Region>& regions) {
  for (const Region& region : regions) {
    builder.send(peer, region);
  }
}

void recv_all(Builder& builder, int peer, const std::vector<Region>& regions) {
  for (const Region& region : regions) {
    builder.recv(peer, region);
  }
}

}  // namespace

NodeExchange::NodeExchange(const Task& task, NodeForm form)
    : form_(form),
      parameters_(task.parameters),
      ranks_(task.layout.ranks_of[topology::Layout::index(
          task.layout.node_of[topology::Layout::index(task.rank)])]),
      width_(static_cast<int>(ranks_.size())),
      local_(task.layout.local_of[topology::Layout::index(task.rank)]) {
  std::map<int, std::vector<int>> by_socket;
  for (int local = 0; local < width_; ++local) {
    by_socket[task.layout.socket(peer(local))].push_back(local);
  }
  socket_of_.resize(ranks_.size());
  for (auto& [socket, locals] : by_socket) {
    for (const int local : locals) {
      socket_of_[topology::Layout::index(local)] = static_cast<int>(sockets_.size());
    }
    sockets_.push_back(std::move(locals));
  }
}

void NodeExchange::add(Builder& builder, const Held& held) const {
  switch (form_) {
    case NodeForm::kLinear:
    case NodeForm::kXor:
      return add_linear(builder, held);
    case NodeForm::kKnomial:
    case NodeForm::kBinomialDoubling:
    case NodeForm::kBinomialHalving:
      return add_trees(builder, held);
    case NodeForm::kRecursiveDoubling:
      return add_recursive_doubling(builder, held);
    case NodeForm::kInterSocket:
      return add_inter_socket(builder, held);
  }
}

void NodeExchange::add_linear(Builder& builder, const Held& held) const {
  const bool by_xor = form_ == NodeForm::kXor;
  const std::vector<Region> own = held(local_);
  const int span = by_xor ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(width_))) : width_;
  for (int distance = 1; distance < span; ++distance) {
    const int other = by_xor ? local_ ^ distance : (local_ + distance) % width_;
    if (other < width_) {
      send_all(builder, peer(other), own);
      recv_all(builder, peer(other), held(other));
    }
  }
}

NodeExchange::Branch NodeExchange::branch(int relative) const {
  Branch found{-1, {}};
  if (form_ == NodeForm::kBinomialDoubling) {
    const int top =
        relative == 0 ? 0 : static_cast<int>(std::bit_floor(static_cast<unsigned>(relative)));
    found.parent = relative == 0 ? -1 : relative - top;
    for (int distance = relative == 0 ? 1 : top * 2; relative + distance < width_; distance *= 2) {
      found.children.push_back(relative + distance);
    }
    return found;
  }
  // Digits to the base `radix`: the parent lacks the lowest that is not zero.
  const int radix = radix_of(form_, parameters_);
  std::int64_t unit = 1;  // In 64 bits: at the node's first rank it passes the width.
  while (unit < width_ && relative / unit % radix == 0) {
    unit *= radix;
  }
  if (relative > 0) {
    found.parent = static_cast<int>(relative - relative / unit % radix * unit);
  }
  for (unit /= radix; unit > 0; unit /= radix) {
    for (int digit = 1; digit < radix && relative + digit * unit < width_; ++digit) {
      found.children.push_back(static_cast<int>(relative + digit * unit));
    }
  }
  return found;
}

void NodeExchange::add_trees(Builder& builder, const Held& held) const {
  // In one order on all ranks: a pair may meet in several trees.
  for (int owner = 0; owner < width_; ++owner) {
    const Branch tree = branch((local_ - owner + width_) % width_);
    const std::vector<Region> regions = held(owner);
    if (tree.parent >= 0) {
      recv_all(builder, peer((owner + tree.parent) % width_), regions);
    }
    for (const int child : tree.children) {
      send_all(builder, peer((owner + child) % width_), regions);
    }
  }
}

void NodeExchange::add_recursive_doubling(Builder& builder, const Held& held) const {
  const Fold fold(width_);
  const auto each = [&](int first, int last, auto visit) {
    for (int local = first; local < last; ++local) {
      visit(held(local));
      if (fold.has_partner(local)) {
        visit(held(local + fold.core));
      }
    }
  };
  if (fold.is_folded(local_)) {
    const int partner = local_ - fold.core;
    send_all(builder, peer(partner), held(local_));
    for (int local = 0; local < width_; ++local) {
      if (local != local_) {
        recv_all(builder, peer(partner), held(local));
      }
    }
    return;
  }
  const int folded = local_ + fold.core;
  if (fold.has_partner(local_)) {
    recv_all(builder, peer(folded), held(folded));
  }
  for (int bit = 1; bit < fold.core; bit *= 2) {
    const int other = local_ ^ bit;
    const int mine = local_ & ~(bit - 1);
    const int theirs = other & ~(bit - 1);
    each(mine, mine + bit, [&](const auto& regions) { send_all(builder, peer(other), regions); });
    each(theirs, theirs + bit,
         [&](const auto& regions) { recv_all(builder, peer(other), regions); });
  }
  if (fold.has_partner(local_)) {
    for (int local = 0; local < width_; ++local) {
      if (local != folded) {
        send_all(builder, peer(folded), held(local));
      }
    }
  }
}

void NodeExchange::add_inter_socket(Builder& builder, const Held& held) const {
  const auto index = topology::Layout::index;
  const int mine = socket_of_[index(local_)];
  const auto& neighbors = sockets_[index(mine)];
  // To whom a rank sends across: with two and two the ring 0 -> 2 -> 1 -> 3 -> 0.
  auto across = [&](int from, int socket) {
    const int own = socket_of_[index(from)];
    const auto& others = sockets_[index(socket)];
    const auto& siblings = sockets_[index(own)];
    const auto at = std::find(siblings.begin(), siblings.end(), from) - siblings.begin();
    return others[static_cast<std::size_t>(at + (socket < own ? 1 : 0)) % others.size()];
  };
  // Those whose data comes over to `to`, a rank of this socket.
  auto crossing_to = [&](int to) {
    std::vector<int> found;
    for (int from = 0; from < width_; ++from) {
      if (socket_of_[index(from)] != mine && across(from, mine) == to) {
        found.push_back(from);
      }
    }
    return found;
  };
  // Siblings in the order of their distance, so that all ranks turn to different ones.
  std::vector<int> siblings;
  const auto at = static_cast<std::size_t>(std::find(neighbors.begin(), neighbors.end(), local_) -
                                           neighbors.begin());
  for (std::size_t turn = 1; turn < neighbors.size(); ++turn) {
    siblings.push_back(neighbors[(at + turn) % neighbors.size()]);
  }
  const std::vector<int> arrivals = crossing_to(local_);

  const std::uint32_t first = builder.next();
  for (const int sibling : siblings) {
    send_all(builder, peer(sibling), held(local_));
    recv_all(builder, peer(sibling), held(sibling));
  }
  // As published; in segments it is not waited for (Builder::segmented).
  builder.wait_also(first, builder.next());
  for (int socket = 0; socket < static_cast<int>(sockets_.size()); ++socket) {
    if (socket != mine) {
      send_all(builder, peer(across(local_, socket)), held(local_));
    }
  }
  for (const int from : arrivals) {
    recv_all(builder, peer(from), held(from));
  }
  builder.wait_also(0, 0);
  for (const int sibling : siblings) {
    for (const int from : arrivals) {
      send_all(builder, peer(sibling), held(from));
    }
    for (const int from : crossing_to(sibling)) {
      recv_all(builder, peer(sibling), held(from));
    }
  }
}

int NodeExchange::rounds(NodeForm form, const Task& task) {
  const int width = task.layout.ranks_per_node_max();
  if (width < 2) {
    return 0;
  }
  switch (form) {
    case NodeForm::kLinear:
    case NodeForm::kXor:
      return 1;
    case NodeForm::kRecursiveDoubling: {
      int most = 0;  // More ranks do not always take more rounds: 7 take 4, 8 take 3.
      for (const auto& ranks : task.layout.ranks_of) {
        most = std::max(most, Fold(static_cast<int>(ranks.size())).rounds_of_data());
      }
      return most;
    }
    case NodeForm::kInterSocket: {
      // Where no two ranks share a socket, or all do, there is one phase.
      for (const auto& ranks : task.layout.ranks_of) {
        std::set<int> sockets;
        for (const int rank : ranks) {
          sockets.insert(task.layout.socket(rank));
        }
        if (sockets.size() > 1 && sockets.size() < ranks.size()) {
          return 3;
        }
      }
      return 1;
    }
    default:
      // A number's digits that are not 0, whichever of them its parent lacks.
      return Knomial{width, radix_of(form, task.parameters)}.depth();
  }
}

std::uint64_t NodeExchange::parts_sent(NodeForm form, const Task& task) {
  const int width = task.layout.ranks_per_node_max();
  const std::uint64_t others = whole(width - 1);
  if (form != NodeForm::kRecursiveDoubling) {
    return others;  // Of the trees of all ranks, each rank has every place once.
  }
  const Fold fold(width);
  return fold.extra == 0 ? others : fold.blocks_sent() + others;
}

}  // namespace tutti::schedule
