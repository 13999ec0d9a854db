// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Waits of hours, in a moment: this program's poll() says that nothing has come where it is asked
// to wait for about an hour. A program of its own, for all in it have this poll().
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "net/bootstrap/tcp_bootstrap.hpp"

namespace {

constexpr int kLongMs = 3'000'000;
std::atomic<int> g_hours{0};  ///< Still to pass.

}  // namespace

extern "C" int poll(pollfd* polled, nfds_t count, int timeout_ms) {
  if (timeout_ms >= kLongMs && g_hours > 0) {
    --g_hours;
    return 0;
  }
  timespec time = {timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return static_cast<int>(
      syscall(SYS_ppoll, polled, count, timeout_ms < 0 ? nullptr : &time, nullptr, 0));
}

namespace tutti::net {
namespace {

/// `late` comes to an exchange after hours of the other rank's; the time that this one allows.
void wait_for_hours(int late, double timeout_s) {
  TcpBootstrapOptions options;
  options.ranks = 2;
  options.address = "127.0.0.1:0";
  auto host = TcpBootstrap::open(options);
  ASSERT_TRUE(host.ok()) << host.status().message();
  g_hours = 3;
  const auto body = [&](int rank, TcpBootstrap& bootstrap) {
    const Status joined = bootstrap.join();
    ASSERT_TRUE(joined.ok()) << joined.message();
    if (rank == late) {
      while (g_hours > 0 && bootstrap.news(0.01).ok()) {
      }
    }
    const auto all = bootstrap.all_gather(std::to_string(rank), timeout_s);
    EXPECT_TRUE(all.ok()) << "rank " << rank << ": " << all.status().message();
  };
  std::thread other([&] {
    options.rank = 1;
    options.address = (*host)->address();
    auto bootstrap = TcpBootstrap::open(options);
    ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().message();
    body(1, **bootstrap);
  });
  body(0, **host);
  other.join();
}

TEST(TcpBootstrapHours, AnyTimeIsMoreThanAnHour) {
  wait_for_hours(1, 0);
  wait_for_hours(0, 0);
}

TEST(TcpBootstrapHours, ADayIsMoreThanAnHour) {
  wait_for_hours(1, 86'400);
  wait_for_hours(0, 86'400);
}

}  // namespace
}  // namespace tutti::net
