// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/goal.hpp"

#include <gtest/gtest.h>

namespace tutti::simulate {
namespace {

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

TEST(goal, parse_goal__operations_labels_and_dependencies) {
  const auto workload = parse_goal(
      "// a comment\n"
      "num_ranks 3\n"
      "rank 0 {\n"
      "  l1: calc 100 cpu 0\n"
      "  l2: send 1024b to 2 tag 7 cpu 0 nic 1\n"
      "  l2 requires l1\n"
      "  recv 8 from 2\n"
      "}\n"
      "/* of several\n lines */\n"
      "rank 2 { a: recv 1024b from 0 tag 7; b: calc 5; b requires a;\n"
      "  c: send 8 to 0\n  c irequires b }\n",
      "trace.goal");
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  ASSERT_EQ(3U, workload->hosts.size());
  const HostWork& first = workload->hosts[0];
  ASSERT_EQ(3U, first.ops.size());
  EXPECT_EQ(OperationKind::kWait, first.ops[0].kind);
  EXPECT_EQ(100'000U, first.ops[0].wait_ps);
  EXPECT_EQ(OperationKind::kSend, first.ops[1].kind);
  EXPECT_EQ(2U, first.ops[1].peer);
  EXPECT_EQ(7U, first.ops[1].tag);
  EXPECT_EQ(1024U, first.ops[1].bytes);
  EXPECT_EQ((Pairs{{0, 1}}), first.after);
  EXPECT_TRUE(workload->hosts[1].ops.empty());
  EXPECT_EQ((Pairs{{0, 1}}), workload->hosts[2].after);
  EXPECT_EQ((Pairs{{1, 2}}), workload->hosts[2].begins);
  EXPECT_EQ(OperationKind::kReceive, workload->hosts[2].ops[0].kind);
}

std::string error_of(const std::string& text) {
  const auto workload = parse_goal(text, "t.goal");
  return workload.ok() ? "" : workload.status().message();
}

TEST(goal, parse_goal__errors_name_file_line_and_what) {
  EXPECT_EQ("t.goal:1: expected 'num_ranks', found the end of the file", error_of(""));
  EXPECT_EQ("t.goal:1: the number of ranks must be 1 to 1048576", error_of("num_ranks 0"));
  EXPECT_EQ("t.goal:2: rank 2 is not below num_ranks 2", error_of("num_ranks 2\nrank 2 {}"));
  EXPECT_EQ("t.goal:3: expected send, recv, calc or a dependency, found 'sned'",
            error_of("num_ranks 2\nrank 0 {\nsned 8b to 1 }"));
  EXPECT_EQ("t.goal:2: expected 'to', found 'from'",
            error_of("num_ranks 2\nrank 0 { send 8b from 1 }"));
  EXPECT_EQ("t.goal:3: no label 'x' above",
            error_of("num_ranks 2\nrank 0 { a: calc 1\na requires x }"));
  EXPECT_EQ("t.goal:3: label 'a' stands twice",
            error_of("num_ranks 2\nrank 0 { a: calc 1\na: calc 2\n}"));
  EXPECT_EQ("t.goal:2: the file ends within a rank; a '}' is missing",
            error_of("num_ranks 2\nrank 0 {"));
  EXPECT_EQ("t.goal:2: a tag: 4294967296 is over 4294967295",
            error_of("num_ranks 2\nrank 0 { send 8b to 1 tag 4294967296 }"));
  EXPECT_EQ("t.goal:2: nanoseconds: 1000000000000001 is over 1000000000000000",
            error_of("num_ranks 2\nrank 0 { calc 1000000000000001 }"));
  EXPECT_NE(std::string::npos, error_of("num_ranks 2\nrank 1 { send 8b to 1 }").find("itself"));
}

TEST(goal, parse_goal__irequires_holds_through_a_chain) {
  const auto workload = parse_goal(
      "num_ranks 2\n"
      "rank 0 { a: send 1 to 1 b: send 2 to 1 c: send 3 to 1 d: calc 100\n"
      "a irequires b b irequires c c requires d }\n"
      "rank 1 { recv 3 from 0 recv 2 from 0 recv 1 from 0 }\n",
      "t.goal");
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  Progress progress(workload->hosts[0]);
  std::uint32_t index = 99;
  EXPECT_FALSE(progress.next(99'999, &index)) << "nothing before the pause is over: " << index;
  for (const std::uint64_t bytes : {3U, 2U, 1U}) {
    ASSERT_TRUE(progress.next(100'000, &index));
    EXPECT_EQ(bytes, progress.op(index).bytes);
  }
}

TEST(goal, parse_goal__a_circle_of_dependencies_is_named) {
  EXPECT_EQ(
      "t.goal:4: rank 1: 'b' waits for 'a' waits for 'b', a circle that can never begin; remedy: "
      "take one of its 'requires' out",
      error_of("num_ranks 2\nrank 1 { a: calc 1\nb: calc 1 a requires b\nb requires a }"));
  // Either kind of dependency, and what hangs on a circle is not of it.
  EXPECT_EQ(
      "t.goal:7: rank 0: 'a' waits for 'b' waits for 'c' waits for 'a', a circle that can never "
      "begin; remedy: take one of its 'requires' out",
      error_of("num_ranks 1\nrank 0 { a: calc 1 b: calc 1 c: calc 1\n d: calc 1\n"
               "d requires a\na irequires b\nb irequires c\nc requires a }"));
  EXPECT_EQ(
      "t.goal:2: rank 0: 'a' waits for 'a', a circle that can never begin; remedy: take one of its "
      "'requires' out",
      error_of("num_ranks 1\nrank 0 { a: calc 1 a requires a }"));
}

TEST(goal, parse_goal__sends_and_receives_must_pair) {
  EXPECT_EQ(
      "t.goal:3: rank 0 to rank 1, tag 0: 2 sends and 1 receives; remedy: a recv in rank 1 for "
      "each send in rank 0",
      error_of("num_ranks 2\nrank 0 { send 8b to 1\nsend 8b to 1 }\nrank 1 { recv 8b from 0 }"));
  EXPECT_EQ(
      "t.goal:2: rank 1 to rank 0, tag 3: 0 sends and 1 receives; remedy: a send in rank 1 for "
      "each recv in rank 0",
      error_of("num_ranks 2\nrank 0 { recv 8b from 1 tag 3 }\nrank 1 { send 8b to 0 tag 4 }"));
  EXPECT_EQ(
      "t.goal:3: rank 0 to rank 1, tag 0: a send of 9 bytes (line 2) and a receive of 10; remedy: "
      "equal sizes",
      error_of("num_ranks 2\nrank 0 { send 8b to 1 send 9b to 1 }\n"
               "rank 1 { recv 10b from 0 recv 8b from 0 }"));
}

TEST(goal, parse_goal__any_cut_of_a_trace_is_refused_or_read) {
  const std::string trace =
      "num_ranks 2\nrank 0 { l1: send 10b to 1 tag 3 }\nrank 1 { l1: recv 10b from 0 tag 3 }\n";
  std::uint32_t read = 0;
  for (std::size_t length = 0; length <= trace.size(); ++length) {
    read += parse_goal(trace.substr(0, length), "t").ok() ? 1 : 0;
  }
  // "num_ranks 2" with blanks, and up to the end; in between the send has no receive.
  EXPECT_EQ(4U, read);
}

}  // namespace
}  // namespace tutti::simulate
