// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks as threads of one process; those that die are processes.
#include "net/bootstrap/tcp_bootstrap.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "support/forked_ranks.hpp"

namespace tutti::net {
namespace {

using Clock = std::chrono::steady_clock;
using Body = std::function<void(int rank, TcpBootstrap& bootstrap)>;

TcpBootstrapOptions options_of(int rank, int ranks, const std::string& address) {
  TcpBootstrapOptions options;
  options.rank = rank;
  options.ranks = ranks;
  options.address = address;
  options.key = "job";
  options.timeout_s = 20;
  return options;
}

std::unique_ptr<TcpBootstrap> open_host(int ranks, double timeout_s = 20) {
  TcpBootstrapOptions options = options_of(0, ranks, "127.0.0.1:0");
  options.timeout_s = timeout_s;
  auto bootstrap = TcpBootstrap::open(options);
  EXPECT_TRUE(bootstrap.ok()) << bootstrap.status().message();
  return bootstrap.ok() ? std::move(*bootstrap) : nullptr;
}

/// All ranks join and run `body`.
void run(int ranks, const Body& body) {
  const auto host = open_host(ranks);
  std::vector<std::thread> others;
  for (int rank = 1; rank < ranks; ++rank) {
    others.emplace_back([&, rank] {
      auto bootstrap = TcpBootstrap::open(options_of(rank, ranks, host->address()));
      ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().message();
      const Status status = (*bootstrap)->join();
      ASSERT_TRUE(status.ok()) << status.message();
      body(rank, **bootstrap);
    });
  }
  const Status status = host->join();
  EXPECT_TRUE(status.ok()) << status.message();
  body(0, *host);
  for (std::thread& other : others) {
    other.join();
  }
}

std::string port_of(const std::string& address) { return address.substr(address.rfind(':') + 1); }

/// A connection that is not a rank's.
int call(const std::string& address) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port_of(address))));
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof v4), 0);
  return fd;
}

/// Sends the handshake of a rank; false: it cannot.
bool send_handshake(int fd, int rank, int ranks) {
  std::string handshake("TUTTIMET\x01", 9);
  const auto put = [](std::string& text, std::size_t number) {
    const auto four = static_cast<std::uint32_t>(number);
    text.append(reinterpret_cast<const char*>(&four), sizeof four);
  };
  put(handshake, static_cast<std::size_t>(rank));
  put(handshake, static_cast<std::size_t>(ranks));
  put(handshake, 3);
  handshake += "job";
  put(handshake, 2);
  handshake += "me";
  std::string frame;
  put(frame, handshake.size());
  frame += '\0' + handshake;
  return send(fd, frame.data(), frame.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(frame.size());
}

/// The kind of the next frame on a connection; -1: there is none.
int kind_heard(int fd) {
  char head[5] = {};
  return recv(fd, head, sizeof head, MSG_WAITALL) == sizeof head ? head[4] : -1;
}

TEST(TcpBootstrap, HandsRoundWhatRanksGive) {
  for (const int ranks : {1, 2, 7}) {
    run(ranks, [ranks](int rank, TcpBootstrap& bootstrap) {
      for (const std::size_t bytes : {0UL, 1UL, 300'000UL}) {
        const auto text_of = [&](int of) {
          return std::string(bytes + static_cast<std::size_t>(of), static_cast<char>('a' + of));
        };
        const auto all = bootstrap.all_gather(text_of(rank), 20);
        ASSERT_TRUE(all.ok()) << all.status().message();
        ASSERT_EQ(all->size(), static_cast<std::size_t>(ranks));
        for (int of = 0; of < ranks; ++of) {
          EXPECT_EQ((*all)[static_cast<std::size_t>(of)], text_of(of));
        }
      }
      EXPECT_TRUE(bootstrap.news(0).ok());
      // Nobody leaves before all have asked.
      EXPECT_TRUE(bootstrap.all_gather("", 20).ok());
    });
  }
}

TEST(TcpBootstrap, RanksMayComeBeforeRankZero) {
  // A port that is free now.
  const std::string address = open_host(1)->address();
  std::thread other([&] {
    auto bootstrap = TcpBootstrap::open(options_of(1, 2, address));
    ASSERT_TRUE(bootstrap.ok());
    const Status status = (*bootstrap)->join();
    EXPECT_TRUE(status.ok()) << status.message();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  auto host = TcpBootstrap::open(options_of(0, 2, address));
  ASSERT_TRUE(host.ok()) << host.status().message();
  const Status status = (*host)->join();
  EXPECT_TRUE(status.ok()) << status.message();
  other.join();
}

TEST(TcpBootstrap, WhoIsMissingIsNamedOnAllRanks) {
  const auto host = open_host(5, 0.3);
  std::thread other([&] {
    auto bootstrap = TcpBootstrap::open(options_of(2, 5, host->address()));
    const Status status = (*bootstrap)->join();
    EXPECT_EQ(status.code(), ErrorCode::kTimeout);
    EXPECT_EQ(status.message(), "bootstrap: ranks 1, 3, 4 did not come within 0.3 s");
  });
  const Status status = host->join();
  EXPECT_EQ(status.code(), ErrorCode::kTimeout);
  EXPECT_EQ(status.message(), "bootstrap: ranks 1, 3, 4 did not come within 0.3 s");
  other.join();
}

TEST(TcpBootstrap, NobodyAtTheAddressIsAnError) {
  TcpBootstrapOptions options = options_of(1, 2, open_host(1)->address());
  options.timeout_s = 0.2;
  const auto bootstrap = TcpBootstrap::open(options);
  ASSERT_TRUE(bootstrap.ok());
  const Status status = (*bootstrap)->join();
  EXPECT_EQ(status.code(), ErrorCode::kTimeout);
  EXPECT_NE(status.message().find("rank 0 does not answer at 127.0.0.1:"), std::string::npos)
      << status.message();
  EXPECT_FALSE(TcpBootstrap::open(options_of(1, 2, "127.0.0.1")).ok());
  EXPECT_FALSE(TcpBootstrap::open(options_of(2, 2, "127.0.0.1:1")).ok());
  EXPECT_FALSE(TcpBootstrap::open(options_of(0, 2, "192.0.2.77:0")).ok());
}

/// What rank 0 says to somebody who comes with these options, while rank 1 is missing.
std::string refusal(const std::function<void(TcpBootstrapOptions&)>& change) {
  const auto host = open_host(3, 0.5);
  std::string heard;
  std::thread first(
      [&] { (void)(*TcpBootstrap::open(options_of(2, 3, host->address())))->join(); });
  std::thread other([&] {
    // Rank 2 is there by then.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    TcpBootstrapOptions options = options_of(1, 3, host->address());
    change(options);
    const Status status = (*TcpBootstrap::open(options))->join();
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    heard = status.message();
  });
  const Status status = host->join();
  EXPECT_NE(status.message().find("rank 1 did not come within 0.5 s; refused: "), std::string::npos)
      << status.message();
  first.join();
  other.join();
  return heard;
}

TEST(TcpBootstrap, RanksThatDoNotBelongHereAreRefused) {
  const std::string process = " (" + [] {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    return std::string(host) + ", process " + std::to_string(getpid());
  }() + ")";
  const std::string head = "bootstrap: refused by rank 0: ";
  EXPECT_EQ(refusal([](TcpBootstrapOptions& options) { options.key = "another"; }),
            head + "rank 1" + process + " belongs to another job");
  EXPECT_EQ(refusal([](TcpBootstrapOptions& options) { options.ranks = 4; }),
            head + "rank 1" + process + " thinks that there are 4 ranks, rank 0 that there are 3");
  EXPECT_EQ(refusal([](TcpBootstrapOptions& options) {
              options.rank = 2;
            }).find(head + "rank 2" + process + " is there already"),
            0U);
}

TEST(TcpBootstrap, StrangersNeitherEndNorStopIt) {
  const auto host = open_host(2);
  std::vector<int> strangers;
  const auto say = [&](const std::string& text) {
    strangers.push_back(call(host->address()));
    EXPECT_EQ(send(strangers.back(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
  };
  for (int i = 0; i < 70; ++i) {
    strangers.push_back(call(host->address()));
  }
  say("GET / HTTP/1.1\r\n\r\n");
  say(std::string("\xff\xff\xff\xff\0", 5));         // 4 GiB of handshake.
  say(std::string("\x09\0\0\0\0TUTTIMET", 13));      // Without an end.
  say(std::string("\x09\0\0\0\0TUTTIMET\x01", 14));  // Without a rank.
  say(std::string("\x15\0\0\0\0TUTTIMET\x01\0\0\0\0\0\0\0\0\xff\xff\xff\xff", 26));
  say(std::string("\x03\0\0\0\x63xyz", 8));  // Of no kind.
  std::thread other([&] {
    auto bootstrap = TcpBootstrap::open(options_of(1, 2, host->address()));
    EXPECT_TRUE((*bootstrap)->join().ok());
    EXPECT_TRUE((*bootstrap)->all_gather("b", 20).ok());
  });
  const Status status = host->join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(host->all_gather("a", 20).ok());
  other.join();
  for (const int stranger : strangers) {
    close(stranger);
  }
}

TEST(TcpBootstrap, ManyRanksMayComeBeforeRankZeroLooks) {
  constexpr int kRanks = 100;
  const auto host = open_host(kRanks, 3);
  std::vector<int> callers;
  for (int rank = 1; rank < kRanks; ++rank) {
    callers.push_back(call(host->address()));
    ASSERT_TRUE(send_handshake(callers.back(), rank, kRanks));
  }
  const Status status = host->join();
  EXPECT_TRUE(status.ok()) << status.message();
  for (const int caller : callers) {
    EXPECT_EQ(kind_heard(caller), 1);
    close(caller);
  }
}

TEST(TcpBootstrap, StrangersDoNotPushOutARank) {
  const auto host = open_host(2, 3);
  const int first = call(host->address());
  ASSERT_TRUE(send_handshake(first, 1, 2));
  std::vector<int> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(call(host->address()));
  }
  const Status status = host->join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(kind_heard(first), 1);
  close(first);
  for (const int stranger : strangers) {
    close(stranger);
  }
}

/// Rank 0's answer in its process, while another process calls it and sends frames of nothing for
/// as long as they are taken, as `flooder` or (0) as nobody.
std::vector<std::string> flooded(int ranks, int flooder,
                                 const std::function<std::string(TcpBootstrap&)>& body) {
  struct Address {
    char text[64] = {};
  };
  return test::in_ranks(
      2,
      [&](int process, test::Shared& shared) -> std::string {
        std::unique_ptr<TcpBootstrap> host;
        Address address;
        if (process == 0) {
          host = open_host(ranks, 0.5);
          std::strncpy(address.text, host->address().c_str(), sizeof address.text - 1);
        }
        address = shared.from_rank_zero(process, address);
        if (process == 0) {
          return body(*host);
        }
        const int fd = call(address.text);
        CHILD_EXPECT(flooder == 0 || send_handshake(fd, flooder, ranks), "handshake");
        const std::string nothing(65'535, '\0');
        while (send(fd, nothing.data(), nothing.size(), MSG_NOSIGNAL) > 0) {
        }
        return "";
      },
      std::chrono::seconds(10));
}

TEST(TcpBootstrap, WhoSendsWithoutEndDelaysNobody) {
  const auto join = [](TcpBootstrap& host) -> std::string {
    const Status status = host.join();
    CHILD_EXPECT(status.message() == "bootstrap: rank 2 did not come within 0.5 s" ||
                     status.message() == "bootstrap: ranks 1, 2 did not come within 0.5 s",
                 status.message());
    return "";
  };
  EXPECT_EQ(flooded(3, 0, join), test::all_well(2));
  EXPECT_EQ(flooded(3, 1, join), test::all_well(2));
  const auto gather = [](TcpBootstrap& host) -> std::string {
    const Status joined = host.join();
    CHILD_OK(joined);
    const Status status = host.all_gather("", 0.5).status();
    CHILD_EXPECT(status.message() == "bootstrap: not in the exchange yet after 0.5 s: rank 1",
                 status.message());
    return "";
  };
  EXPECT_EQ(flooded(2, 1, gather), test::all_well(2));
}

TEST(TcpBootstrap, TooFewDescriptorsAreAnError) {
  // Rank 1 calls, and rank 0 may have so many more.
  const auto join_with = [](int descriptors, const std::string& words) {
    return test::in_ranks(
        1,
        [&](int, test::Shared&) -> std::string {
          // UBSan opens a pipe where it first looks at an object of a class, and takes the object
          // for none without one: let it look before descriptors run out.
          CHILD_EXPECT(!open_host(2, 0.01)->join().ok(), "nobody came");
          const auto host = open_host(2, 1);
          const int caller = call(host->address());
          CHILD_EXPECT(send_handshake(caller, 1, 2), "handshake");
          // The lowest that are free.
          const int next = dup(caller);
          close(next);
          rlimit limit{};
          getrlimit(RLIMIT_NOFILE, &limit);
          const rlim_t before =
              std::exchange(limit.rlim_cur, static_cast<rlim_t>(next + descriptors));
          setrlimit(RLIMIT_NOFILE, &limit);
          const Status status = host->join();
          limit.rlim_cur = before;
          setrlimit(RLIMIT_NOFILE, &limit);
          CHILD_EXPECT(status.message() == words, status.message());
          return "";
        },
        std::chrono::seconds(10));
  };
  EXPECT_EQ(
      join_with(0,
                "bootstrap: rank 0 cannot let in rank 1: Too many open files; raise its limit "
                "(ulimit -n)"),
      test::all_well(1));
  EXPECT_EQ(join_with(1, ""), test::all_well(1));
}

TEST(TcpBootstrap, AnotherVersionIsTold) {
  const auto host = open_host(2, 0.5);
  const int other = call(host->address());
  const std::string handshake("\x09\0\0\0\0TUTTIMET\x07", 14);
  ASSERT_EQ(send(other, handshake.data(), handshake.size(), 0),
            static_cast<ssize_t>(handshake.size()));
  EXPECT_FALSE(host->join().ok());
  char heard[512] = {};
  EXPECT_GT(recv(other, heard, sizeof heard - 1, 0), 5);
  EXPECT_STREQ(heard + 5,
               "a rank of version 7, rank 0 is of 1; install the same Tutti on all hosts");
  close(other);
}

TEST(TcpBootstrap, WhoGivesUpEndsItForAll) {
  for (const int quitter : {0, 1}) {
    run(3, [quitter](int rank, TcpBootstrap& bootstrap) {
      if (rank == quitter) {
        bootstrap.give_up("because");
      }
      const Status status = rank == 2 ? bootstrap.all_gather("", 20).status() : bootstrap.news(20);
      EXPECT_EQ(status.code(), ErrorCode::kTimeout);
      EXPECT_EQ(status.message(), "bootstrap: because");
      EXPECT_FALSE(bootstrap.all_gather("", 20).ok());
    });
  }
}

TEST(TcpBootstrap, WhatRankZeroAnsweredBeforeBadNewsCounts) {
  // A rank that ends right after an exchange: others may hear of both at once.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof v4;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&v4), sizeof v4), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  // Non-blocking: nobody may call.
  fcntl(listener, F_SETFL, O_NONBLOCK);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&v4), &bytes), 0);
  std::thread rank_zero([listener] {
    pollfd calls = {listener, POLLIN, 0};
    EXPECT_EQ(poll(&calls, 1, 20'000), 1);
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    char heard[512];
    const std::string welcome("\x02\0\0\0\x01me", 7);
    const std::string texts_and_failure(
        "\x0a\0\0\0\x04\x01\0\0\0a\x01\0\0\0b"
        "\x07\0\0\0\x05"
        "because",
        27);
    EXPECT_GT(recv(fd, heard, sizeof heard, 0), 5);
    EXPECT_EQ(send(fd, welcome.data(), welcome.size(), MSG_NOSIGNAL), 7);
    EXPECT_GT(recv(fd, heard, sizeof heard, 0), 5);
    EXPECT_EQ(send(fd, texts_and_failure.data(), texts_and_failure.size(), MSG_NOSIGNAL), 27);
    close(fd);
  });
  auto bootstrap =
      TcpBootstrap::open(options_of(1, 2, "127.0.0.1:" + std::to_string(ntohs(v4.sin_port))));
  EXPECT_TRUE(bootstrap.ok() && (*bootstrap)->join().ok());
  const auto all = (*bootstrap)->all_gather("b", 20);
  EXPECT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all.ok() ? *all : std::vector<std::string>(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ((*bootstrap)->news(20).message(), "bootstrap: because");
  EXPECT_FALSE((*bootstrap)->all_gather("b", 20).ok());
  rank_zero.join();
  close(listener);
}

TEST(TcpBootstrap, WhoDoesNotComeToAnExchangeIsNamed) {
  run(3, [](int rank, TcpBootstrap& bootstrap) {
    const Status status = rank == 1 ? bootstrap.news(20) : bootstrap.all_gather("", 0.2).status();
    EXPECT_EQ(status.message(), "bootstrap: not in the exchange yet after 0.2 s: rank 1");
  });
}

TEST(TcpBootstrap, WhoLeavesInOrderIsMissedOnlyWhereNeeded) {
  run(3, [](int rank, TcpBootstrap& bootstrap) {
    if (rank == 1) {
      return;
    }
    // Rank 0 alone knows that it is gone, and that is no bad news until somebody misses it.
    EXPECT_TRUE(rank != 0 || bootstrap.news(0.2).ok());
    const Status status = bootstrap.all_gather("", 20).status();
    EXPECT_NE(status.message().find("rank 1 ("), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(") has left"), std::string::npos) << status.message();
  });
}

TEST(TcpBootstrap, AProcessThatEndsIsNamedOnAllRanks) {
  struct Address {
    char text[64] = {};
  };
  for (const int victim : {0, 2}) {
    const auto answers = test::in_ranks(4, [&](int rank, test::Shared& shared) -> std::string {
      std::unique_ptr<TcpBootstrap> bootstrap;
      Address address;
      if (rank == 0) {
        bootstrap = open_host(4);
        std::strncpy(address.text, bootstrap->address().c_str(), sizeof address.text - 1);
      }
      address = shared.from_rank_zero(rank, address);
      if (rank != 0) {
        auto opened = TcpBootstrap::open(options_of(rank, 4, address.text));
        CHILD_OK(opened.status());
        bootstrap = std::move(*opened);
      }
      const Status joined = bootstrap->join();
      CHILD_OK(joined);
      if (rank == victim) {
        _exit(0);
      }
      const auto start = Clock::now();
      const Status status =
          rank == 1 ? bootstrap->all_gather("", 20).status() : bootstrap->news(20);
      const std::string name = "bootstrap: rank " + std::to_string(victim) + " (";
      CHILD_EXPECT(status.message().starts_with(name), status.message());
      CHILD_EXPECT(status.message().ends_with(") is gone: its process ended"), status.message());
      CHILD_EXPECT(Clock::now() - start < std::chrono::seconds(5), "late");
      return "";
    });
    EXPECT_EQ(answers, test::all_well(4)) << "victim " << victim;
  }
}

}  // namespace
}  // namespace tutti::net
