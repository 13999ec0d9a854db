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

}  // namespace

Result<std::unique_ptr<NetRunner>> NetRunner::create(std::unique_ptr<net::Network> network,
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
  return std::unique_ptr<NetRunner>(new NetRunner(std::move(network), std::move(bootstrap), options,
                                                  topology::make_layout(identities),
                                                  std::move(devices)));
}

NetRunner::NetRunner(std::unique_ptr<net::Network> network,
                     std::unique_ptr<net::TcpBootstrap> bootstrap, const Options& options,
                     topology::Layout layout, std::vector<int> devices)
    : rank_(options.rank),
      layout_(std::move(layout)),
      bootstrap_(std::move(bootstrap)),
      network_(std::move(network)),
      carrier_(*network_, *bootstrap_, rank_, layout_, std::move(devices), options.timeout_s),
      scratch_(nullptr, kScratchKeptBytes),
      runner_(carrier_, rank_, nullptr, scratch_, layout_, options.timeout_s) {}

std::string NetRunner::refusal(const std::string& algorithm, const Call& call) const {
  const schedule::Algorithm* const found = schedule::find_algorithm(call.collective, algorithm);
  if (found == nullptr) {
    std::string names;
    for (const schedule::Algorithm& one : schedule::algorithms()) {
      if (schedule::find_algorithm(call.collective, one.name) == &one) {
        names += (names.empty() ? "" : ", ") + std::string(one.name);
      }
    }
    return std::string("no algorithm ") + algorithm + " for " + to_string(call.collective) +
           (names.empty() ? ", which has none" : "; there are " + names);
  }
  if (call.collective == select::Collective::kGatherv ||
      call.collective == select::Collective::kScatterv) {
    return "only the root knows all counts";
  }
  if (select::is_reduction(call.collective) &&
      reduce_function(best_isa(), call.type, call.op) == nullptr) {
    return std::string("no reduction ") + to_string(call.op) + " of " + to_string(call.type);
  }
  const schedule::Problem problem = problem_of(call, ranks());
  return found->refusal == nullptr ? "" : found->refusal({layout_, problem, rank_, {}});
}

Status NetRunner::run(const std::string& algorithm, const schedule::Parameters& parameters,
                      const Call& call) {
  return runner_.run(algorithm, parameters, call, nullptr);
}

}  // namespace tutti::runners
