// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptors between ranks: all to all, and what strangers write.
#include "runners/direct/fd_exchange.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

namespace tutti::runners {
namespace {

/// A file with one number in it.
Descriptor file_of(int number) {
  Descriptor file(memfd_create("fd_exchange", MFD_CLOEXEC));
  EXPECT_EQ(static_cast<ssize_t>(sizeof number), pwrite(file.get(), &number, sizeof number, 0));
  return file;
}

int number_in(const Descriptor& file) {
  int number = -1;
  EXPECT_EQ(static_cast<ssize_t>(sizeof number), pread(file.get(), &number, sizeof number, 0));
  return number;
}

struct Ranks {
  explicit Ranks(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto opened = FdExchange::open();
      EXPECT_TRUE(opened.ok()) << opened.status().message();
      exchanges.push_back(std::move(*opened));
      addresses.push_back(exchanges.back().address());
    }
  }
  std::vector<FdExchange> exchanges;
  std::vector<FdExchange::Address> addresses;
};

TEST(FdExchange, everybody_gets_everybodys) {
  Ranks all(8);
  for (int rank = 0; rank < 8; ++rank) {
    const Descriptor own = file_of(100 + rank);
    const Status sent =
        all.exchanges[static_cast<std::size_t>(rank)].send_to_all(all.addresses, rank, own.get());
    ASSERT_TRUE(sent.ok()) << sent.message();
  }
  for (int rank = 0; rank < 8; ++rank) {
    const auto got = all.exchanges[static_cast<std::size_t>(rank)].receive_from_all(8, rank, 5);
    ASSERT_TRUE(got.ok()) << got.status().message();
    for (int peer = 0; peer < 8; ++peer) {
      const Descriptor& file = (*got)[static_cast<std::size_t>(peer)];
      if (peer == rank) {
        EXPECT_LT(file.get(), 0);
      } else {
        EXPECT_EQ(number_in(file), 100 + peer);
      }
    }
  }
}

TEST(FdExchange, alone_there_is_nothing_to_wait_for) {
  Ranks all(1);
  EXPECT_TRUE(all.exchanges[0].send_to_all(all.addresses, 0, 0).ok());
  EXPECT_TRUE(all.exchanges[0].receive_from_all(1, 0, 0).ok());
}

TEST(FdExchange, who_does_not_know_the_secret_gets_nothing_in) {
  Ranks all(2);
  const Descriptor wrong = file_of(1);
  const Descriptor right = file_of(2);
  std::vector<FdExchange::Address> guessed = all.addresses;
  guessed[0].secret[1] ^= 1;
  ASSERT_TRUE(all.exchanges[1].send_to_all(guessed, 1, wrong.get()).ok());
  // As a rank that there is not, and as the receiver itself.
  ASSERT_TRUE(all.exchanges[1].send_to_all({&all.addresses[0], 1}, 7, wrong.get()).ok());
  ASSERT_TRUE(all.exchanges[1].send_to_all({&all.addresses[0], 1}, -1, wrong.get()).ok());
  const auto nothing = all.exchanges[0].receive_from_all(2, 0, 0.05);
  EXPECT_EQ(nothing.status().code(), ErrorCode::kTimeout);
  EXPECT_EQ(nothing.status().message(), "descriptors of 1 ranks of this node have not come");
  ASSERT_TRUE(all.exchanges[1].send_to_all(all.addresses, 1, right.get()).ok());
  const auto got = all.exchanges[0].receive_from_all(2, 0, 5);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(number_in((*got)[1]), 2);
}

TEST(FdExchange, a_rank_that_is_gone_is_an_error) {
  Ranks all(2);
  all.exchanges.pop_back();
  const Descriptor own = file_of(1);
  const Status sent = all.exchanges[0].send_to_all(all.addresses, 0, own.get());
  EXPECT_EQ(sent.code(), ErrorCode::kUnavailable);
  EXPECT_NE(sent.message().find("rank 1 cannot be reached"), std::string::npos) << sent.message();
}

}  // namespace
}  // namespace tutti::runners
