// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "select/choose.hpp"
#include "unit/select/samples.hpp"

namespace tutti::select {
namespace {

using Texts = std::vector<std::string>;

ImportedTable imported(const std::string& text) {
  Result<ImportedTable> result = import_mpich(text, "m");
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : ImportedTable{};
}

/// The rules of the imported file; reading them back is part of the test.
Table table_of(const std::string& text) {
  Result<Table> table = parse_table(imported(text).json, "imported");
  EXPECT_TRUE(table.ok()) << table.status().message();
  return table.ok() ? *table : Table{};
}

Texts rules_of(const std::string& text) {
  Texts texts;
  for (const Rule& rule : table_of(text).rules) {
    texts.push_back(rule_to_text(rule));
  }
  return texts;
}

std::string error_of(const std::string& text) {
  Result<ImportedTable> result = import_mpich(text, "m");
  EXPECT_FALSE(result.ok()) << text;
  return result.ok() ? "" : result.status().message();
}

/// A tree below collective=`name`, on line 1.
std::string below(const std::string& name, const std::string& tree) {
  return "{\"collective=" + name + "\":" + tree + "}";
}

TEST(ImportMpich, import_mpich__the_grammar_of_the_manual) {
  ImportedTable result = imported(R"({ "collective=allreduce": {
    "comm_type=intra": {
      "is_commutative=no":  { "algorithm=MPIR_Allreduce_intra_recursive_doubling": {} },
      "is_commutative=yes": {
        "avg_msg_size<=32768": { "algorithm=MPIR_Allreduce_intra_recexch": { "k=4": {} } },
        "avg_msg_size=any":    { "algorithm=MPIR_Allreduce_intra_ccl": { "ccl=nccl": {} } } } },
    "comm_type=inter": { "algorithm=MPIR_Allreduce_inter_reduce_exchange_bcast": {} } } })");
  Result<Table> table = parse_table(result.json, "imported");
  ASSERT_TRUE(table.ok()) << table.status().message();
  const std::string ops = "sum|prod|min|max|land|lor|lxor|band|bor|bxor|minloc|maxloc";
  Texts texts;
  for (const Rule& rule : table->rules) {
    texts.push_back(rule_to_text(rule));
  }
  EXPECT_EQ(texts, (Texts{"allreduce, bytes <= 32K, " + ops + " -> mpi",
                          "allreduce, device, " + ops + " -> ccl", "allreduce, " + ops + " -> mpi",
                          "allreduce -> mpi"}));
  EXPECT_EQ(result.not_carried,
            (Texts{"m:3: 'is_commutative=no': a rule cannot tell which user-defined operations "
                   "commute; the branch is left out, its calls follow the ones after it",
                   "m:5: 'algorithm=MPIR_Allreduce_intra_recexch': the algorithm inside the MPI "
                   "library is its own choice; the rule says mpi"}));
}

TEST(ImportMpich, import_mpich__comments_name_line_and_algorithm) {
  Table table = table_of(below("bcast", "\n{\"algorithm=MPIR_Bcast_intra_ccl\": {}}"));
  ASSERT_EQ(table.rules.size(), 2U);
  EXPECT_EQ(table.rules[0].comment, "line 2: MPIR_Bcast_intra_ccl");
  EXPECT_NE(imported("{}").json.find("Imported from MPICH's selection file m"), std::string::npos);
}

TEST(ImportMpich, import_mpich__blanks_in_keys_do_not_count) {
  EXPECT_EQ(rules_of(R"({" collective = bcast ": {" algorithm = MPIR_Bcast_intra_smp ": {}}})"),
            Texts{"bcast -> mpi"});
}

TEST(ImportMpich, import_mpich__compositions) {
  auto rules = [](const std::string& name, const std::string& composition) {
    return rules_of(
        below(name, "{\"composition=MPIDI_X_intra_composition_" + composition + "\": {}}"));
  };
  EXPECT_EQ(rules("allreduce", "alpha"),
            (Texts{"allreduce, nodes >= 2 -> mpi-alpha", "allreduce, 1 node -> mpi"}));
  EXPECT_EQ(rules("allreduce", "beta"), Texts{"allreduce -> mpi-beta"});
  EXPECT_EQ(rules("allreduce", "gamma"), Texts{"allreduce -> mpi"});
  EXPECT_EQ(rules("allreduce", "delta"), Texts{"allreduce -> mpi"});
  EXPECT_EQ(rules("barrier", "alpha"), Texts{"barrier -> mpi"});
  EXPECT_EQ(rules("reduce_scatter_block", "alpha"), Texts{"reduce_scatter_block -> mpi"});
  EXPECT_EQ(rules("bcast", "beta"), Texts{"bcast -> mpi-beta"});
}

TEST(ImportMpich, import_mpich__compositions_that_differ_are_reported) {
  auto reported = [](const std::string& name, const std::string& composition) {
    return imported(
               below(name, "{\"composition=MPIDI_X_intra_composition_" + composition + "\": {}}"))
        .not_carried.size();
  };
  EXPECT_EQ(reported("allreduce", "alpha"), 0U);
  EXPECT_EQ(reported("allreduce", "beta"), 0U);
  EXPECT_EQ(reported("allreduce", "delta"), 1U);
  EXPECT_EQ(reported("barrier", "alpha"), 1U);
  EXPECT_EQ(reported("gatherv", "alpha"), 0U);
  EXPECT_EQ(reported("bcast", "beta"), 1U);
}

TEST(ImportMpich, import_mpich__all_ranks_on_one_node) {
  EXPECT_EQ(rules_of(below("allreduce", R"({
    "comm_size=node_comm_size": {"composition=MPIDI_Allreduce_intra_composition_gamma": {}},
    "comm_size=any": {"composition=MPIDI_Allreduce_intra_composition_alpha": {}}})")),
            (Texts{"allreduce, 1 node -> mpi-gamma", "allreduce, nodes >= 2 -> mpi-alpha",
                   "allreduce, 1 node -> mpi"}));
}

TEST(ImportMpich, import_mpich__communicator_keys) {
  auto first = [](const std::string& key) {
    return rules_of(below("bcast",
                          "{\"" + key + R"(": {"algorithm=A": {}}, "any": {"algorithm=B": {}}})"))
        .front();
  };
  EXPECT_EQ(first("comm_size<=8"), "bcast, ranks <= 8 -> mpi");
  EXPECT_EQ(first("comm_size<8"), "bcast, ranks <= 7 -> mpi");
  EXPECT_EQ(first("comm_avg_ppn<=4"), "bcast, ranks per node <= 4 -> mpi");
  EXPECT_EQ(first("comm_avg_ppn<4"), "bcast, ranks per node <= 3 -> mpi");
  EXPECT_EQ(first("comm_hierarchy=parent"), "bcast, ranks per node >= 2 -> mpi");
  EXPECT_EQ(first("comm_hierarchy=flat"), "bcast, ranks per node = 1 -> mpi");
  EXPECT_EQ(first("comm_size<0"), "bcast -> mpi");
}

TEST(ImportMpich, import_mpich__sizes_only_where_they_mean_ours) {
  auto first = [](const std::string& collective, const std::string& key) {
    return rules_of(
               below(collective,
                     "{\"" + key + R"(<=9": {"algorithm=A": {}}, "any": {"algorithm=B": {}}})"))
        .front();
  };
  EXPECT_EQ(first("allreduce", "avg_msg_size"), "allreduce, bytes <= 9 -> mpi");
  EXPECT_EQ(first("reduce", "avg_msg_size"), "reduce, bytes <= 9 -> mpi");
  EXPECT_EQ(first("alltoall", "avg_msg_size"), "alltoall -> mpi");
  EXPECT_EQ(first("allreduce", "total_msg_size"), "allreduce -> mpi");
  EXPECT_EQ(first("alltoall", "total_msg_size"), "alltoall, bytes <= 9 -> mpi");
  EXPECT_EQ(first("allgatherv", "total_msg_size"), "allgatherv, bytes <= 9 -> mpi");
  EXPECT_EQ(first("gather", "total_msg_size"), "gather -> mpi");
}

TEST(ImportMpich, import_mpich__nested_bounds_narrow_each_other) {
  EXPECT_EQ(rules_of(below("bcast", R"({"avg_msg_size<=64": {
    "avg_msg_size<=128": {"algorithm=A": {}}}})"))
                .front(),
            "bcast, bytes <= 64 -> mpi");
}

TEST(ImportMpich, import_mpich__what_a_rule_cannot_ask_for) {
  for (const char* key : {"comm_size=pow2", "count<=4", "count<pow2", "is_node_consecutive=yes",
                          "is_sendbuf_inplace=no", "is_block_regular=yes", "is_multi_threaded=no",
                          "is_commutative=no"}) {
    ImportedTable result = imported(below(
        "reduce", "{\"" + std::string(key) + R"(": {"algorithm=MPIR_Reduce_intra_ccl": {}}})"));
    EXPECT_EQ(result.not_carried.size(), 1U) << key;
    EXPECT_NE(result.not_carried.at(0).find(key), std::string::npos);
    EXPECT_EQ(result.json.find("\"ccl\""), std::string::npos) << key;
  }
}

TEST(ImportMpich, import_mpich__operations) {
  EXPECT_EQ(rules_of(below("reduce", R"({"is_op_built_in=no": {"algorithm=A": {}},
    "is_op_built_in=yes": {"algorithm=B": {}}})")),
            (Texts{"reduce, user -> mpi",
                   "reduce, sum|prod|min|max|land|lor|lxor|band|bor|bxor|minloc|maxloc -> mpi",
                   "reduce -> mpi"}));
  EXPECT_EQ(
      imported(below("bcast", R"({"is_commutative=yes": {"algorithm=A": {}}})")).not_carried.size(),
      1U);
}

TEST(ImportMpich, import_mpich__non_blocking_and_neighbourhood_are_left_out) {
  ImportedTable result = imported(R"({
    "collective=iallreduce": {"algorithm=A": {}},
    "collective=neighbor_allgather": {"algorithm=A": {}},
    "collective=ineighbor_alltoallw": {"algorithm=A": {}}})");
  EXPECT_EQ(result.not_carried.size(), 3U);
  EXPECT_EQ(nlohmann::json::parse(result.json)["rules"].size(), 0U);
}

TEST(ImportMpich, import_mpich__a_branch_without_a_choice_does_not_leak) {
  // MPICH does not go back to the second branch for 4 ranks and more than 1024 bytes.
  Table table = table_of(below("allreduce", R"({
    "comm_size<=8": {"avg_msg_size<=1024": {"algorithm=MPIR_Allreduce_intra_smp": {}}},
    "comm_size=any": {"algorithm=MPIR_Allreduce_intra_ccl": {}}})"));
  CommFacts small = facts_on(1);
  EXPECT_EQ(to_string(choose(device_allreduce(4096), small, table).plan), "mpi-gamma");
  CommFacts large = facts_on(4);
  EXPECT_EQ(to_string(choose(device_allreduce(4096), large, table).plan), "ccl-beta");
}

TEST(ImportMpich, import_mpich__what_stands_behind_any_is_never_reached) {
  EXPECT_EQ(rules_of(below("bcast", R"({"comm_size=any": {"algorithm=A": {}},
    "comm_size<=4": {"algorithm=MPIR_Bcast_intra_ccl": {}}})")),
            Texts{"bcast -> mpi"});
}

TEST(ImportMpich, import_mpich__conditions_above_the_collective) {
  EXPECT_EQ(rules_of(R"({"comm_size<=4": {"collective=bcast":
    {"composition=MPIDI_Bcast_intra_composition_gamma": {}}}})"),
            (Texts{"bcast, ranks <= 4 -> mpi", "any, ranks <= 4 -> mpi"}));
}

TEST(ImportMpich, import_mpich__leaf_outside_a_collective) {
  ImportedTable result = imported(R"({"algorithm=A": {}})");
  EXPECT_EQ(result.not_carried, Texts{"m:1: 'algorithm=A': stands outside every collective="});
}

TEST(ImportMpich, import_mpich__malformed_input) {
  EXPECT_EQ(error_of("[]"), "m:1: an object is expected, not a list");
  EXPECT_EQ(error_of("{\n\"collective=bcast\": 1}"), "m:2: an object is expected, not a number");
  EXPECT_EQ(error_of("{\n\"collective=broadcast\": {}}"),
            "m:2: MPICH has no collective 'broadcast'");
  EXPECT_EQ(error_of("{\n\"colective=bcast\": {}}"), "m:2: MPICH has no key 'colective=bcast'");
  EXPECT_EQ(error_of(below("bcast", R"({"comm_size<=8K": {}})")),
            "m:1: 'comm_size<=8K': a whole number is expected behind '<='");
  EXPECT_EQ(error_of(below("bcast", R"({"comm_sizes=4": {}})")),
            "m:1: MPICH has no key 'comm_sizes=4'");
  EXPECT_EQ(error_of(below("reduce", R"({"is_commutative=maybe": {}})")),
            "m:1: MPICH has no key 'is_commutative=maybe'");
  EXPECT_EQ(error_of(below("bcast", R"({"algorithm=A": 1})")),
            "m:1: 'algorithm=A': an object of parameters is expected, not a number");
  EXPECT_EQ(error_of("{").rfind("m:1: not valid JSON", 0), 0U);
}

}  // namespace
}  // namespace tutti::select
