// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/summary.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace tutti::engine {
namespace {

using select::Collective;

TEST(Summary, cell__one_for_each_collective_size_class_and_plan) {
  Summary summary;
  Summary::Cell* const cell = summary.cell(Collective::kAllreduce, 65, "mpi-gamma");
  EXPECT_EQ(summary.cell(Collective::kAllreduce, 1024, "mpi-gamma"), cell);
  EXPECT_NE(summary.cell(Collective::kAllreduce, 64, "mpi-gamma"), cell);
  EXPECT_NE(summary.cell(Collective::kAllreduce, 1025, "mpi-gamma"), cell);
  EXPECT_NE(summary.cell(Collective::kAllreduce, 1024, "ccl-gamma"), cell);
  EXPECT_NE(summary.cell(Collective::kReduce, 1024, "mpi-gamma"), cell);
}

TEST(Summary, table__slowest_first_with_a_sum) {
  Summary summary;
  const auto add = [](Summary::Cell* cell, std::uint64_t calls, std::uint64_t elapsed_ns) {
    cell->calls = calls;
    cell->elapsed_ns = elapsed_ns;
  };
  add(summary.cell(Collective::kBcast, 0, "native"), 1, 600);
  add(summary.cell(Collective::kAllreduce, 64, "mpi-gamma"), 1000, 2'000'000);
  add(summary.cell(Collective::kAllreduce, Bytes{1} << 40, "rings"), 2, 3'000'000'000);
  add(summary.cell(Collective::kAlltoallv, std::nullopt, "mpi-gamma"), 4, 8'000);
  summary.cell(Collective::kScan, 8, "mpi-gamma");  // Never called.
  EXPECT_EQ(summary.table(0, 4),
            "tutti summary: blocking collectives of rank 0 of 4; bytes as plan lists count them\n"
            "  collective  bytes    plan       calls   seconds     us/call\n"
            "  allreduce   > 1G     rings          2  3.000000  1500000.00\n"
            "  allreduce   <= 64    mpi-gamma   1000  0.002000        2.00\n"
            "  alltoallv   unknown  mpi-gamma      4  0.000008        2.00\n"
            "  bcast       0        native         1  0.000001        0.60\n"
            "  all                              1007  3.002009     2981.14\n");
}

TEST(Summary, table__of_a_job_without_calls) {
  EXPECT_EQ(Summary().table(0, 1),
            "tutti summary: blocking collectives of rank 0 of 1; bytes as plan lists count them\n"
            "  collective  bytes  plan  calls   seconds  us/call\n"
            "  all                          0  0.000000     0.00\n");
}

TEST(TimedCall, counts_where_the_route_says) {
  Summary summary;
  Summary::Cell* const routed = summary.cell(Collective::kAllreduce, 8, "mpi-gamma");
  {
    const TimedCall call(&summary, Collective::kAllreduce);
    Summary::current() = routed;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(routed->calls, 1);
  EXPECT_GE(routed->elapsed_ns, 2'000'000);
  { const TimedCall call(&summary, Collective::kAllreduce); }  // Nothing moves: no route.
  EXPECT_EQ(routed->calls, 1);
  EXPECT_EQ(summary.cell(Collective::kAllreduce, 0, "native")->calls, 1);
}

TEST(TimedCall, without_a_summary_touches_nothing) {
  Summary::Cell cell;
  Summary::current() = &cell;
  { const TimedCall call(nullptr, Collective::kBcast); }
  EXPECT_EQ(Summary::current(), &cell);
  Summary::current() = nullptr;
  EXPECT_EQ(cell.calls, 0);
}

}  // namespace
}  // namespace tutti::engine
