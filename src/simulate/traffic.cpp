// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/traffic.hpp"

#include <charconv>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/message.hpp"
#include "base/random.hpp"

namespace tutti::simulate {
namespace {

/// Sends in a row that keep `in_flight` under way, and their receives.
class Sender {
 public:
  Sender(Workload* workload, const TrafficOptions& options, std::uint32_t src, std::uint8_t group)
      : workload_(workload), options_(options), src_(src), group_(group) {}

  void send(std::uint32_t dst) {
    HostWork& work = workload_->hosts[src_];
    const Operation op{.kind = OperationKind::kSend,
                       .peer = dst,
                       .tag = group_,
                       .bytes = options_.bytes,
                       .group = group_};
    const std::uint32_t index = work.add(op);
    if (options_.in_flight > 0 && sent_.size() >= options_.in_flight) {
      work.after.emplace_back(sent_[sent_.size() - options_.in_flight], index);
    }
    sent_.push_back(index);
    workload_->hosts[dst].add({.kind = OperationKind::kReceive,
                               .peer = src_,
                               .tag = group_,
                               .bytes = options_.bytes,
                               .group = group_});
  }

 private:
  Workload* workload_;
  const TrafficOptions& options_;
  std::uint32_t src_;
  std::uint8_t group_;
  std::vector<std::uint32_t> sent_;
};

/// Over the hosts from `first` on.
void add_permutation(Workload* workload, const TrafficOptions& options, std::uint32_t first,
                     std::uint8_t group) {
  const std::uint32_t count = options.hosts - first;
  std::vector<std::uint32_t> cycle(count);
  std::iota(cycle.begin(), cycle.end(), first);
  for (std::uint32_t i = count - 1; i > 0; --i) {
    const auto bits = static_cast<std::uint32_t>(draw(options.seed, 0, i) >> 32);
    std::swap(cycle[i], cycle[below(bits, i + 1)]);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Sender sender(workload, options, cycle[i], group);
    for (std::uint32_t message = 0; message < options.messages; ++message) {
      sender.send(cycle[(i + 1) % count]);
    }
  }
}

void add_incast(Workload* workload, const TrafficOptions& options, std::uint32_t senders) {
  for (std::uint32_t src = 1; src <= senders; ++src) {
    Sender sender(workload, options, src, 0);
    for (std::uint32_t message = 0; message < options.messages; ++message) {
      sender.send(0);
    }
  }
}

Workload empty(const TrafficOptions& options) {
  Workload workload;
  workload.hosts.resize(options.hosts);
  return workload;
}

Status bad(std::string_view pattern, const std::string& what) {
  return {ErrorCode::kInvalidArgument, "traffic " + in_quotes(pattern) + ": " + what};
}

}  // namespace

Workload permutation(const TrafficOptions& options) {
  Workload workload = empty(options);
  add_permutation(&workload, options, 0, 0);
  return workload;
}

Workload incast(const TrafficOptions& options, std::uint32_t senders) {
  Workload workload = empty(options);
  add_incast(&workload, options, senders);
  return workload;
}

Workload all_to_all(const TrafficOptions& options) {
  Workload workload = empty(options);
  for (std::uint32_t src = 0; src < options.hosts; ++src) {
    Sender sender(&workload, options, src, 0);
    for (std::uint32_t step = 1; step < options.hosts; ++step) {
      for (std::uint32_t message = 0; message < options.messages; ++message) {
        sender.send((src + step) % options.hosts);
      }
    }
  }
  return workload;
}

Workload ring_allreduce(const TrafficOptions& options) {
  Workload workload = empty(options);
  const std::uint32_t n = options.hosts;
  const Bytes part = (options.bytes + n - 1) / n;
  for (std::uint32_t host = 0; host < n; ++host) {
    HostWork& work = workload.hosts[host];
    std::uint32_t before = 0;
    for (std::uint32_t round = 0; round < 2 * (n - 1) * options.messages; ++round) {
      const std::uint32_t send =
          work.add({.kind = OperationKind::kSend, .peer = (host + 1) % n, .bytes = part});
      if (round > 0) {
        work.after.emplace_back(before, send);
      }
      before =
          work.add({.kind = OperationKind::kReceive, .peer = (host + n - 1) % n, .bytes = part});
    }
  }
  return workload;
}

Workload incast_beside_permutation(const TrafficOptions& options, std::uint32_t senders) {
  Workload workload = empty(options);
  add_incast(&workload, options, senders);
  TrafficOptions beside = options;
  beside.messages *= senders;
  add_permutation(&workload, beside, 1, 1);
  return workload;
}

Result<Workload> make_traffic(std::string_view pattern, const TrafficOptions& options) {
  if (options.hosts < 2) {
    return bad(pattern, "needs two hosts");
  }
  const std::size_t colon = pattern.find(':');
  const std::string_view name = pattern.substr(0, colon);
  std::uint32_t senders = options.hosts - 1;
  if (colon != std::string_view::npos) {
    const std::string_view text = pattern.substr(colon + 1);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), senders);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || senders < 1 ||
        senders >= options.hosts) {
      return bad(pattern, "the number of senders must be 1 to " +
                              std::to_string(options.hosts - 1) + ", one less than the hosts");
    }
  }
  if (name == "incast") {
    return incast(options, senders);
  }
  if (name == "incast+permutation" && options.hosts < 3) {
    return bad(pattern, "needs three hosts");
  }
  if (name == "incast+permutation") {
    return incast_beside_permutation(options, senders);
  }
  if (pattern == "permutation") {
    return permutation(options);
  }
  if (pattern == "alltoall") {
    return all_to_all(options);
  }
  if (pattern == "allreduce") {
    return ring_allreduce(options);
  }
  return bad(pattern, "none of permutation, incast:N, alltoall, allreduce, incast+permutation:N");
}

}  // namespace tutti::simulate
