// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/net/net_runner.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/host_name.hpp"
#include "runners/direct/host_reduce.hpp"
#include "schedule/algorithm.hpp"

namespace tutti::runners {
namespace {

constexpr Bytes kScratchKeptBytes = 1 << 30;
/// Of a root's pieces together.
constexpr Bytes kLongPiecesBytes = 1 << 20;
/// An algorithm of alltoallv with a message each way at a time.
constexpr const char* kInTurn = "pairwise";

/// "<devices> <node>"
std::string describe(int devices, const std::string& node) {
  return std::to_string(devices) + " " + node;
}

Status read(const std::string& text, int* devices, std::string* node) {
  const std::size_t blank = text.find(' ');
  const char* const end = text.data() + std::min(blank, text.size());
  if (blank == std::string::npos || std::from_chars(text.data(), end, *devices).ptr != end ||
      *devices < 1) {
    return Status(ErrorCode::kInvalidArgument, "net: a rank introduces itself as '" + text + "'");
  }
  *node = text.substr(blank + 1);
  return {};
}

/// Whether a call of this algorithm goes as an alltoallv of the root's pieces: always where the
/// root alone knows the counts.
bool has_pieces_of_root(select::Collective collective, const std::string& algorithm) {
  using enum select::Collective;
  return collective == kGatherv || collective == kScatterv ||
         ((collective == kGather || collective == kScatter) &&
          schedule::find_algorithm(collective, algorithm) == nullptr &&
          schedule::find_algorithm(kAlltoallv, algorithm) != nullptr);
}

/// Such a call as an alltoallv: a rank knows its own pair of counts. The root's own piece does not
/// move where it is in place.
class PiecesOfRoot {
 public:
  /// The result lives as long as this and `call`.
  const Call& as_alltoallv(const Call& call, int rank, int ranks) {
    const bool gathers = call.collective == select::Collective::kGatherv ||
                         call.collective == select::Collective::kGather;
    const bool is_regular = call.collective == select::Collective::kGather ||
                            call.collective == select::Collective::kScatter;
    const auto root = static_cast<std::size_t>(call.root);
    const bool is_root = rank == call.root;
    // Of the side that is one piece at each rank, and of the root's side.
    std::vector<std::uint64_t>& own = gathers ? send_counts_ : recv_counts_;
    std::vector<std::uint64_t>& of_root = gathers ? recv_counts_ : send_counts_;
    const auto known = gathers ? call.recv_counts : call.send_counts;
    own.assign(static_cast<std::size_t>(ranks), 0);
    of_root.assign(static_cast<std::size_t>(ranks), 0);
    own[root] = call.count;
    none_.assign(static_cast<std::size_t>(ranks), 0);
    dense_.clear();
    if (is_root) {
      if (is_regular) {
        of_root.assign(static_cast<std::size_t>(ranks), call.count);
      } else {
        of_root.assign(known.begin(), known.end());
      }
      for (std::size_t i = 0; i < of_root.size(); ++i) {
        dense_.push_back(i == 0 ? 0 : dense_.back() + of_root[i - 1]);
      }
      if (call.in_place) {
        own[root] = of_root[root] = 0;
      }
    }
    const auto known_offsets = is_regular ? std::span<const std::uint64_t>(dense_)
                               : gathers  ? call.recv_offsets
                                          : call.send_offsets;
    result_ = call;
    result_.collective = select::Collective::kAlltoallv;
    result_.in_place = false;
    result_.root = 0;
    result_.count = 0;
    result_.send_counts = send_counts_;
    result_.recv_counts = recv_counts_;
    result_.send_offsets =
        gathers || !is_root ? std::span<const std::uint64_t>(none_) : known_offsets;
    result_.recv_offsets =
        gathers && is_root ? known_offsets : std::span<const std::uint64_t>(none_);
    return result_;
  }
  /// At the root: in one another's way on its link, they go in turn. The messages are the same, so
  /// the others need not know.
  bool are_long() const {
    return !dense_.empty() && dense_.back() * result_.element_bytes >= kLongPiecesBytes;
  }

 private:
  Call result_;
  std::vector<std::uint64_t> send_counts_;
  std::vector<std::uint64_t> recv_counts_;
  std::vector<std::uint64_t> none_;
  std::vector<std::uint64_t> dense_;  ///< Offsets of a regular form's blocks.
};

}  // namespace

Result<std::unique_ptr<NetRunner>> NetRunner::create(std::shared_ptr<net::Network> network,
                                                     std::unique_ptr<net::TcpBootstrap> bootstrap,
                                                     const Options& options) {
  TUTTI_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      bootstrap->all_gather(describe(static_cast<int>(network->devices().size()),
                                     options.node.empty() ? host_name() : options.node),
                            set_up_timeout_s(options.timeout_s)));
  std::vector<int> devices;
  std::vector<std::string> nodes;
  std::vector<std::uint64_t> identities;
  for (const std::string& text : all) {
    std::string node;
    TUTTI_RETURN_IF_ERROR(read(text, &devices.emplace_back(), &node));
    const auto known = std::find(nodes.begin(), nodes.end(), node);
    identities.push_back(static_cast<std::uint64_t>(known - nodes.begin()));
    if (known == nodes.end()) {
      nodes.push_back(node);
    }
  }
  topology::Layout layout = options.layout ? *options.layout : topology::make_layout(identities);
  if (layout.rails_of.empty()) {  // A node whose ranks are fewer than its devices uses all of them.
    layout.rails_of.assign(layout.ranks_of.size(), 1);
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      int& rails = layout.rails_of[static_cast<std::size_t>(layout.node_of[rank])];
      rails = std::max(rails, devices[rank]);
    }
  }
  std::unique_ptr<NetRunner> runner(new NetRunner(std::move(network), std::move(bootstrap), options,
                                                  std::move(layout), std::move(devices)));
  if (const Status opened = runner->carrier_.open(); !opened.ok()) {
    runner->give_up(opened.message());
    return opened;
  }
  return runner;
}

NetRunner::NetRunner(std::shared_ptr<net::Network> network,
                     std::unique_ptr<net::TcpBootstrap> bootstrap, const Options& options,
                     topology::Layout layout, std::vector<int> devices)
    : rank_(options.rank),
      layout_(std::move(layout)),
      bootstrap_(std::move(bootstrap)),
      network_(std::move(network)),
      carrier_(*network_, *bootstrap_, rank_, layout_, std::move(devices), options.timeout_s,
               options.look),
      scratch_(nullptr, kScratchKeptBytes),
      runner_(carrier_, rank_, nullptr, options.scratch != nullptr ? *options.scratch : scratch_,
              layout_, options.timeout_s) {}

std::string NetRunner::refusal(const std::string& algorithm, const Call& call) const {
  const bool is_of_root = has_pieces_of_root(call.collective, algorithm);
  const select::Collective collective =
      is_of_root ? select::Collective::kAlltoallv : call.collective;
  const schedule::Algorithm* const found = schedule::find_algorithm(collective, algorithm);
  if (found == nullptr) {
    std::string names;
    for (const schedule::Algorithm& one : schedule::algorithms()) {
      if (schedule::find_algorithm(collective, one.name) == &one) {
        names += (names.empty() ? "" : ", ") + std::string(one.name);
      }
    }
    return std::string("no algorithm ") + algorithm + " for " + to_string(call.collective) +
           (names.empty() ? ", which has none" : "; there are " + names);
  }
  if (select::is_reduction(call.collective) &&
      reduce_function(best_isa(), call.type, call.op) == nullptr) {
    return std::string("no reduction ") + to_string(call.op) + " of " + to_string(call.type);
  }
  if (found->refusal == nullptr || is_of_root) {
    return "";
  }
  const schedule::Problem problem = problem_of(call, ranks());
  return found->refusal({layout_, problem, rank_, {}});
}

Status NetRunner::run(const std::string& algorithm, const schedule::Parameters& parameters,
                      const Call& call) {
  PiecesOfRoot pieces;
  Status status;
  if (has_pieces_of_root(call.collective, algorithm)) {
    const Call& pairs = pieces.as_alltoallv(call, rank_, ranks());
    status = runner_.run(pieces.are_long() ? kInTurn : algorithm, parameters, pairs, nullptr);
  } else {
    status = runner_.run(algorithm, parameters, call, nullptr);
  }
  if (!status.ok()) {
    static_cast<void>(carrier_.abandon());
    give_up(status.message());
  }
  return status;
}

void NetRunner::give_up(const std::string& why) {
  bootstrap_->give_up("rank " + std::to_string(rank_) + " has given up: " + why);
}

}  // namespace tutti::runners
