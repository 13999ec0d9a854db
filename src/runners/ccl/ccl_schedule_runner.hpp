// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries a schedule over NCCL's or RCCL's send and recv, on device memory: each round of the
// program (schedule/rounds.hpp) is one group of the library, copies and reductions stand between
// the groups, and all of it is queued on the communicator's stream before anyone waits. Knows no
// algorithm's name but to ask for its programs.
//
// Why this cannot deadlock. Every rank computes the rounds from the same programs of all ranks, so
// the two ends of a message are in groups of the same round, and a rank queues its groups by
// ascending round. Suppose that all groups of rounds below r are done, everywhere. Then on every
// rank with a group of round r all that its stream has before it is done or needs no other rank, so
// that group starts; whatever it sends or receives has its other end in a group of round r of the
// peer, which starts for the same reason; and within a group the library lets all messages make
// progress at once. So all groups of round r are done too. The host blocks in the same order or not
// at all: the library connects two ranks inside the first group in which they meet. Several
// messages of one pair and direction in a group are matched in the order of issue, which is that of
// their tags on both ends.
//
// Programs of all ranks are made at the first call of a shape (64 shapes are kept): a thousand
// ranks cost a rank a thousand times the making of one program, once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runners/ccl/ccl_runner.hpp"
#include "runners/scheduled_call.hpp"
#include "schedule/algorithm.hpp"
#include "topology/layout.hpp"

namespace tutti::runners {

/// inout = inout op in: `count` elements of device memory of the stream's device, in its order.
using DeviceReduce =
    std::function<Status(void* inout, const void* in, std::uint64_t count, select::DataType type,
                         select::ReduceOp op, device::Stream stream)>;

class CclScheduleRunner {
 public:
  /// `ccl`: has the whole scope on `device`. `reduce`: empty where nothing reduces device memory;
  /// selection then gives this runner no reductions.
  CclScheduleRunner(CclRunner& ccl, ccl::CclLibrary& library, device::Api& api, int device,
                    Bootstrap& bootstrap, Scratch& scratch, topology::Layout layout,
                    DeviceReduce reduce)
      : ccl_(ccl),
        library_(library),
        api_(api),
        device_(device),
        bootstrap_(bootstrap),
        scratch_(scratch),
        layout_(std::move(layout)),
        reduce_(std::move(reduce)) {}

  /// Collective over the communicator. Selection has made sure that there is such an algorithm and
  /// that all ranks know all counts. Errors end the CCL runner as those of its own calls do.
  Status run(const std::string& algorithm, const schedule::Parameters& parameters,
             const Call& call);

 private:
  /// A program with the order in which its steps are queued, made once per shape.
  struct Prepared {
    std::string algorithm;
    schedule::Parameters parameters;
    schedule::Problem problem;
    schedule::Program program;
    std::vector<std::uint32_t> order;  ///< Steps: by round, its messages before what follows it.
    std::vector<std::uint32_t> round;  ///< By step.
  };
  const Prepared& prepared(const std::string& algorithm, const schedule::Parameters& parameters,
                           const Call& call, const ScopeRank& me);
  Status queue(const Prepared& prepared, const Call& call, const ScopeRank& me,
               CclRunner::Target& target);
  Status queue_round(const Prepared& prepared, std::size_t* at, const ProgramBuffers& bases,
                     const CclRunner::Target& target);
  Status queue_local(const schedule::Step& step, const Call& call, const ProgramBuffers& bases,
                     const CclRunner::Target& target);

  CclRunner& ccl_;
  ccl::CclLibrary& library_;
  device::Api& api_;
  int device_;
  Bootstrap& bootstrap_;
  Scratch& scratch_;
  topology::Layout layout_;
  DeviceReduce reduce_;
  std::vector<std::unique_ptr<Prepared>> cache_;
};

}  // namespace tutti::runners
