// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/sim/nccl_rings.hpp"

#include <algorithm>
#include <bit>

#include "schedule/builder.hpp"

namespace tutti::runners::sim {

using schedule::Blocks;
using schedule::Buffer;
using schedule::Program;
using schedule::Region;
using schedule::Task;

namespace {

std::size_t index(int number) { return topology::Layout::index(number); }

/// Ranks in the order of a channel's ring. By XOR, so that a ring crosses between the sockets of a
/// node once; where the node's width allows none, by rotation.
std::vector<int> ring_of(const topology::Layout& layout, int channel) {
  std::vector<int> ring;
  for (const auto& ranks : layout.ranks_of) {
    const int width = static_cast<int>(ranks.size());
    const bool by_xor = std::has_single_bit(ranks.size());
    for (int place = 0; place < width; ++place) {
      const int turn = channel % width;
      ring.push_back(ranks[index(by_xor ? place ^ turn : (place + turn) % width)]);
    }
  }
  return ring;
}

struct Channel {
  std::vector<int> ring;
  int place = 0;  ///< Of this rank.
};

}  // namespace

Program nccl_rings(const Task& task) {
  const topology::Layout& layout = task.layout;
  const Blocks blocks = schedule::blocks_of(task.problem);
  int channels_wanted = layout.ranks_per_node_max();
  for (int node = 0; node < layout.nodes(); ++node) {
    channels_wanted = std::max(channels_wanted, layout.rails(node));
  }
  std::vector<Channel> channels;
  for (int channel = 0; channel < channels_wanted; ++channel) {
    Channel made{ring_of(layout, channel), 0};
    made.place = static_cast<int>(std::find(made.ring.begin(), made.ring.end(), task.rank) -
                                  made.ring.begin());
    channels.push_back(std::move(made));
  }
  const int ranks = task.ranks();
  auto stripe = [&](const Channel& channel, int place, std::size_t number) {
    const int owner = channel.ring[index((place % ranks + ranks) % ranks)];
    const Region block = blocks.in(Buffer::kOutput, owner);
    const Blocks cut = Blocks::even(block.count, channels_wanted);
    return block.part(cut.offset(static_cast<int>(number)), cut.count(static_cast<int>(number)));
  };
  schedule::Builder builder;
  builder.copy({Buffer::kInput, 0, blocks.count(task.rank)}, blocks.in(Buffer::kOutput, task.rank));
  for (int step = 0; step < ranks - 1; ++step) {
    for (std::size_t number = 0; number < channels.size(); ++number) {
      const Channel& channel = channels[number];
      const int place = channel.place;
      builder.send(channel.ring[index((place + 1) % ranks)], stripe(channel, place - step, number));
      builder.recv(channel.ring[index((place + ranks - 1) % ranks)],
                   stripe(channel, place - step - 1, number));
    }
  }
  return std::move(builder).finish();
}

}  // namespace tutti::runners::sim
