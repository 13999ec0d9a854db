// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Predictions of `tutti sim collective`: documents in and out, errors.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runners/sim/predict.hpp"

namespace tutti::runners::sim {
namespace {

using nlohmann::json;

class Predict : public ::testing::Test {
 protected:
  Predict() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    file_ = std::filesystem::temp_directory_path() /
            (std::string("tutti-cluster-") + test->name() + ".json");
    std::ofstream(file_) << R"({"schema": "tutti-cluster/1", "name": "pairs", "gpus_per_node": 2,
      "nics_per_node": 2, "nvlink": {"wiring": "mesh", "mb_per_s": 1000},
      "network": {"mb_per_s": 100, "message_ns": 1000}, "nccl": {"message_ns": 3000}})";
  }
  ~Predict() override { std::filesystem::remove(file_); }

  json query(const char* collective, const char* algorithm, int ranks, json bytes) const {
    return {{"cluster", file_.string()},
            {"collective", collective},
            {"algorithm", algorithm},
            {"ranks", ranks},
            {"bytes", std::move(bytes)}};
  }
  static std::string error_of(const json& query) {
    const auto result = predict(query);
    return result.ok() ? "" : result.status().message();
  }

  std::filesystem::path file_;
};

TEST_F(Predict, an_allgather_over_two_nodes) {
  json asked = query("allgather", "ring", 4, {4000, 8000});
  asked["steps"] = true;
  const auto result = predict(asked);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ((*result)["cluster"], "pairs");
  EXPECT_EQ((*result)["nodes"], 2);
  EXPECT_TRUE((*result)["refusal"].is_null());
  ASSERT_EQ((*result)["rows"].size(), 2U);
  const json& row = (*result)["rows"][0];
  EXPECT_EQ(row["bytes"], 4000);
  EXPECT_EQ(row["block_bytes"], 1000);
  // Three blocks over the network, 11 us each; those that NVLink brings come in the meantime.
  EXPECT_EQ(row["time_ps"], 33'000'000);
  EXPECT_EQ(row["steps"].size(), 12U);
  ASSERT_EQ(row["links"].size(), 4U);
  EXPECT_EQ(row["links"][2]["kind"], "network");
  EXPECT_EQ(row["links"][2]["direction"], "out");
  EXPECT_EQ(row["links"][2]["bytes"], 6000);
  EXPECT_EQ(row["links"][2]["bytes_max"], 3000);
  EXPECT_DOUBLE_EQ(row["links"][2]["busy_max"].get<double>(), 1.0);
  EXPECT_DOUBLE_EQ(row["links"][2]["utilisation_max"].get<double>(), 30.0 / 33);
}

TEST_F(Predict, nccl_pays_its_own_price_per_message) {
  // One rank a node would be a plain ring; two channels of half a block, 5 + 3 us a hop.
  const auto result = predict(query("allgather", "nccl-rings", 4, {4000}));
  ASSERT_TRUE(result.ok()) << result.status().message();
  const auto time_ps = (*result)["rows"][0]["time_ps"].get<std::uint64_t>();
  EXPECT_GE(time_ps, 24'000'000U);
  EXPECT_LE(time_ps, 27'000'000U);
}

TEST_F(Predict, sizes_are_vectors_or_blocks_together) {
  for (const auto& [collective, algorithm, block] : {std::tuple("allreduce", "ring", 4000),
                                                     {"bcast", "knomial", 4000},
                                                     {"alltoall", "linear", 1000},
                                                     {"reduce_scatter", "ring", 1000},
                                                     {"gather", "binomial", 1000}}) {
    const auto result = predict(query(collective, algorithm, 4, {4000}));
    ASSERT_TRUE(result.ok()) << collective << ": " << result.status().message();
    const json& row = (*result)["rows"][0];
    EXPECT_EQ(row["bytes"], 4000) << collective;
    EXPECT_EQ(row["block_bytes"], block) << collective;
    EXPECT_GT(row["time_ps"], 0) << collective;
  }
  const auto barrier = predict(query("barrier", "dissemination", 4, {0}));
  ASSERT_TRUE(barrier.ok());
  EXPECT_GT((*barrier)["rows"][0]["time_ps"], 0);
}

TEST_F(Predict, a_refusal_is_an_answer) {
  const auto result = predict(query("allgather", "neighbor-exchange", 3, {3000}));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ((*result)["refusal"], "neighbor-exchange needs an even number of ranks; there are 3");
  EXPECT_TRUE((*result)["rows"].empty());
}

TEST_F(Predict, wrong_queries_are_errors) {
  EXPECT_EQ(error_of(json::array()), "query: not a JSON object");
  json asked = query("allgather", "ring", 4, {4});
  asked["rank"] = 4;
  EXPECT_EQ(error_of(asked), "query: unknown key 'rank'");
  EXPECT_EQ(error_of(query("allgathr", "ring", 4, {4})),
            "query: collective: unknown value 'allgathr'");
  EXPECT_EQ(error_of(query("allgather", "rabenseifner", 4, {4})),
            "query: algorithm: allgather has no 'rabenseifner'");
  EXPECT_EQ(error_of(query("allgather", "ring", 0, {4})),
            "query: ranks: a whole number from 1 to 1048576 is expected");
  EXPECT_EQ(error_of(query("allgather", "ring", 4, {-4})),
            "query: bytes: whole numbers are expected");
  EXPECT_EQ(error_of(query("allgather", "ring", 4, {UINT64_MAX})),
            "simulation: too many bytes for 64-bit arithmetic");
  EXPECT_EQ(error_of(query("alltoallv", "linear", 4, {4})),
            "query: alltoallv: its blocks are the program's own; take alltoall");
}

TEST(algorithms_json, lists_ours_and_what_they_are_compared_with) {
  const json list = algorithms_json();
  auto has = [&](const char* collective, const char* name) {
    return std::any_of(list.begin(), list.end(), [&](const json& one) {
      return one["collective"] == collective && one["name"] == name;
    });
  };
  EXPECT_TRUE(has("allgather", "rings"));
  EXPECT_TRUE(has("allgather", "nccl-rings"));
  EXPECT_TRUE(has("allreduce", "rabenseifner"));
}

}  // namespace
}  // namespace tutti::runners::sim
