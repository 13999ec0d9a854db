// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of a job that needs neither MPI nor NCCL: schedules over our transport, host memory. The
// ranks start up over TCP (net/bootstrap/tcp_bootstrap.hpp), where they also exchange their nodes;
// net_start.hpp brings it up among ranks that have met before.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/bootstrap/tcp_bootstrap.hpp"
#include "net/network.hpp"
#include "runners/net/net_carrier.hpp"
#include "runners/schedule_runner.hpp"
#include "runners/scratch.hpp"
#include "topology/layout.hpp"

namespace tutti::runners {

class NetRunner {
 public:
  struct Options {
    int rank = 0;
    std::string node;         ///< Equal exactly on the ranks of one node; empty: the host's name.
    double timeout_s = 1800;  ///< A call that is not complete after it is an error; 0: none is.
    std::optional<topology::Layout> layout = {};  ///< In place of what nodes tell.
    Scratch* scratch = nullptr;                   ///< Outlives the runner; null: one of its own.
    /// Looked at during waits; an error ends the call.
    std::function<Status()> look = {};
  };
  /// Collective over the ranks of a bootstrap, after all have joined it.
  static Result<std::unique_ptr<NetRunner>> create(std::shared_ptr<net::Network> network,
                                                   std::unique_ptr<net::TcpBootstrap> bootstrap,
                                                   const Options& options);
  ~NetRunner() { scratch_.release(); }

  int rank() const { return rank_; }
  int ranks() const { return layout_.ranks(); }
  const topology::Layout& layout() const { return layout_; }
  net::TcpBootstrap& bootstrap() { return *bootstrap_; }

  /// Why no call like this one can be carried by an algorithm of this name; empty: it can. Equal on
  /// all ranks.
  std::string refusal(const std::string& algorithm, const Call& call) const;
  /// Collective; refusal() is empty. After an error no further call works, and the memory of the
  /// call is the caller's again.
  Status run(const std::string& algorithm, const schedule::Parameters& parameters,
             const Call& call);
  /// Calls that this rank alone may have refused, before the next run(): they count as its calls.
  void set_refused_calls(std::uint32_t calls) { carrier_.set_refused_calls(calls); }
  /// No call of this rank follows: those of the others end with the reason.
  void give_up(const std::string& why);

 private:
  NetRunner(std::shared_ptr<net::Network> network, std::unique_ptr<net::TcpBootstrap> bootstrap,
            const Options& options, topology::Layout layout, std::vector<int> devices);

  int rank_;
  topology::Layout layout_;
  // In this order: channels go before their network.
  std::unique_ptr<net::TcpBootstrap> bootstrap_;
  std::shared_ptr<net::Network> network_;
  NetCarrier carrier_;
  Scratch scratch_;
  ScheduleRunner runner_;
};

}  // namespace tutti::runners
