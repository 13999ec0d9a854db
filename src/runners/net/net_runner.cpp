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

bool has_pieces_of_root(select::Collective collective) {
  return collective == select::Collective::kGatherv || collective == select::Collective::kScatterv;
}

/// Gatherv and scatterv, whose counts the root alone knows, as alltoallv: a rank knows its own pair
/// of counts. The root's own piece does not move where it is in place.
class PiecesOfRoot {
 public:
  /// `call` itself where it is another collective. The result lives as long as this and `call`.
  const Call& as_alltoallv(const Call& call, int rank, int ranks) {
    if (!has_pieces_of_root(call.collective)) {
      return call;
    }
    const bool gathers = call.collective == select::Collective::kGatherv;
    const auto root = static_cast<std::size_t>(call.root);
    const bool is_root = rank == call.root;
    // Of the side that is one piece at each rank, and of the root's side.
    std::vector<std::uint64_t>& own = gathers ? send_counts_ : recv_counts_;
    std::vector<std::uint64_t>& of_root = gathers ? recv_counts_ : send_counts_;
    const auto known = gathers ? call.recv_counts : call.send_counts;
    own.assign(static_cast<std::size_t>(ranks), 0);
    of_root.assign(static_cast<std::size_t>(ranks), 0);
    own[root] = call.count;
    if (is_root) {
      of_root.assign(known.begin(), known.end());
      if (call.in_place) {
        own[root] = of_root[root] = 0;
      }
    }
    const auto known_offsets = gathers ? call.recv_offsets : call.send_offsets;
    none_.assign(static_cast<std::size_t>(ranks), 0);
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

 private:
  Call result_;
  std::vector<std::uint64_t> send_counts_;
  std::vector<std::uint64_t> recv_counts_;
  std::vector<std::uint64_t> none_;
};

}  // namespace

Result<std::unique_ptr<NetRunner>> NetRunner::create(std::shared_ptr<net::Network> network,
                                                     std::unique_ptr<net::TcpBootstrap> bootstrap,
                                                     const Options& options) {
  TUTTI_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      bootstrap->all_gather(describe(static_cast<int>(network->devices().size()),
                                     options.node.empty() ? host_name() : options.node),
                            options.timeout_s));
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
  std::unique_ptr<NetRunner> runner(new NetRunner(
      std::move(network), std::move(bootstrap), options,
      options.layout ? *options.layout : topology::make_layout(identities), std::move(devices)));
  TUTTI_RETURN_IF_ERROR(runner->carrier_.open());
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
      runner_(carrier_, rank_, nullptr, scratch_, layout_, options.timeout_s) {}

std::string NetRunner::refusal(const std::string& algorithm, const Call& call) const {
  const bool is_of_root = has_pieces_of_root(call.collective);
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
  const Status status =
      runner_.run(algorithm, parameters, pieces.as_alltoallv(call, rank_, ranks()), nullptr);
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
