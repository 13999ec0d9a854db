// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/descriptors.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace tutti {
namespace {

TEST(Descriptors, descriptors_left__as_many_as_can_be_opened) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(descriptors_max(), 100);
  const int left = descriptors_left();
  std::vector<int> opened;
  for (int one = 0; (one = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) {
    opened.push_back(one);
  }
  EXPECT_EQ(why_no_descriptor(), "Too many open files; remedy: a higher ulimit -n than 100");
  EXPECT_EQ(opened.size(), static_cast<std::size_t>(left));
  EXPECT_EQ(descriptors_left(), 0);
  for (const int one : opened) {
    close(one);
  }
  EXPECT_EQ(descriptors_left(), left);
  setrlimit(RLIMIT_NOFILE, &before);
  errno = ENOENT;
  EXPECT_EQ(why_no_descriptor(), "No such file or directory");
}

struct SocketPair {
  SocketPair() {
    int both[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, both), 0);
    ends[0].reset(both[0]);
    ends[1].reset(both[1]);
  }
  Descriptor ends[2];
};

TEST(Descriptors, send_with_descriptors__all_arrive_and_are_owned) {
  SocketPair pair;
  const int before = descriptors_left();
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{2}, kPassedMax}) {
    const std::vector<int> passed(count, pair.ends[0].get());
    const std::byte sent[2] = {std::byte{1}, std::byte{2}};
    ASSERT_TRUE(send_with_descriptors(pair.ends[0].get(), sent, passed));
    std::byte got[2] = {};
    std::vector<Descriptor> owned;
    ASSERT_TRUE(receive_with_descriptors(pair.ends[1].get(), MSG_DONTWAIT, got, &owned));
    EXPECT_EQ(got[1], sent[1]);
    ASSERT_EQ(owned.size(), count);
    for (const Descriptor& it : owned) {
      EXPECT_EQ(fcntl(it.get(), F_GETFD), FD_CLOEXEC);
    }
  }
  EXPECT_EQ(descriptors_left(), before);
}

TEST(Descriptors, receive_with_descriptors__another_size_is_false_and_leaves_none_open) {
  SocketPair pair;
  const int before = descriptors_left();
  const int passed[] = {pair.ends[0].get()};
  const std::byte sent[3] = {};
  ASSERT_TRUE(send_with_descriptors(pair.ends[0].get(), std::span(sent).first(1), passed));
  std::byte got[2] = {};
  {
    std::vector<Descriptor> owned;
    EXPECT_FALSE(receive_with_descriptors(pair.ends[1].get(), MSG_DONTWAIT, got, &owned));
    EXPECT_EQ(owned.size(), 1U);
    EXPECT_FALSE(receive_with_descriptors(pair.ends[1].get(), MSG_DONTWAIT, got, &owned))
        << "nothing was there";
  }
  EXPECT_EQ(descriptors_left(), before);
}

}  // namespace
}  // namespace tutti
