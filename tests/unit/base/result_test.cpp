// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace tutti {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) {
    return Status(ErrorCode::kInvalidArgument, "odd");
  }
  return number / 2;
}

Result<int> quarter(int number) {
  TUTTI_ASSIGN_OR_RETURN(int once, half(number));
  TUTTI_ASSIGN_OR_RETURN(int twice, half(once));
  return twice;
}

Status both_even(int a, int b) {
  TUTTI_RETURN_IF_ERROR(half(a).status());
  TUTTI_RETURN_IF_ERROR(half(b).status());
  return {};
}

TEST(Result, to_string__every_code_has_its_own_name) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kFallback); ++code) {
    names.insert(to_string(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kFallback) + 1);
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(Result, status__default_is_ok) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(static_cast<bool>(status));
  EXPECT_EQ(status.code(), ErrorCode::kOk);
  EXPECT_EQ(status.message(), "");
}

TEST(Result, mpi__keeps_the_code) {
  Status status = Status::mpi(17, "PMPI_Bcast failed");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), ErrorCode::kMpiFailed);
  EXPECT_EQ(status.mpi_code(), 17);
  EXPECT_EQ(status.message(), "PMPI_Bcast failed");
}

TEST(Result, result__holds_a_value_or_a_status) {
  EXPECT_EQ(*half(8), 4);
  EXPECT_TRUE(half(8).status().ok());
  EXPECT_FALSE(half(7).ok());
  EXPECT_EQ(half(7).status().message(), "odd");
}

TEST(Result, result__holds_what_can_only_be_moved) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  std::unique_ptr<int> taken = std::move(*result);
  EXPECT_EQ(*taken, 5);
}

TEST(Result, assign_or_return__passes_on_the_first_failure) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).status().message(), "odd");
}

TEST(Result, return_if_error__passes_on_the_first_failure) {
  EXPECT_TRUE(both_even(2, 4).ok());
  EXPECT_FALSE(both_even(2, 3).ok());
  EXPECT_FALSE(both_even(1, 4).ok());
}

}  // namespace
}  // namespace tutti
