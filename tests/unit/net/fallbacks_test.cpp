// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/fallbacks.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti::net {
namespace {

TEST(Fallbacks, add__each_is_told_once_and_counted) {
  std::vector<std::string> told;
  Fallbacks fallbacks(false, [&](LogKind kind, const std::string& text) {
    EXPECT_EQ(kind, LogKind::kWarning);
    told.push_back(text);
  });
  for (const char* const device : {"eth0", "eth0", "eth1"}) {
    fallbacks.add(device, "no ECN", "another system");
  }
  EXPECT_EQ(told, (std::vector<std::string>{"net: eth0 has no ECN; remedy: another system",
                                            "net: eth1 has no ECN; remedy: another system"}));
  EXPECT_EQ(fallbacks.count(), 2U);
  EXPECT_TRUE(fallbacks.status().ok());
}

TEST(Fallbacks, add__a_thousand_peers_are_not_a_thousand_warnings) {
  std::vector<std::string> told;
  Fallbacks fallbacks(false, [&](LogKind, const std::string& text) { told.push_back(text); });
  for (int host = 0; host < 1000; ++host) {
    fallbacks.add("eth0", "no offload to host " + std::to_string(host), "none");
  }
  EXPECT_EQ(fallbacks.count(), 1000U);
  ASSERT_EQ(told.size(), 16U);
  EXPECT_EQ(told[14].find("not told"), std::string::npos);
  EXPECT_NE(told[15].find(" (further ones are counted and not told)"), std::string::npos);
}

TEST(Fallbacks, status__the_first_is_an_error_where_it_is_to_be) {
  Fallbacks fallbacks(true, [](LogKind, const std::string&) {});
  EXPECT_TRUE(fallbacks.status().ok());
  fallbacks.add("eth0", "no ECN", "another system");
  fallbacks.add("eth0", "no UDP_GRO", "another kernel");
  EXPECT_EQ(fallbacks.status().code(), ErrorCode::kFallback);
  EXPECT_EQ(fallbacks.status().message(),
            "TUTTI_STRICT: net: eth0 has no ECN; remedy: another system");
}

}  // namespace
}  // namespace tutti::net
