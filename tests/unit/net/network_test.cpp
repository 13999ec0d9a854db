// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Channels between two networks of one process, over real sockets of this host.
#include "net/network.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptors.hpp"
#include "base/host_name.hpp"
#include "base/random.hpp"
#include "net/bootstrap/handle.hpp"
#include "net/bootstrap/handshake.hpp"
#include "net/bootstrap/reach_check.hpp"
#include "net/observe/statistics.hpp"
#include "net/processors.hpp"
#include "support/sanitized.hpp"
#include "support/scoped_environment.hpp"
#include "transport/congestion/controller.hpp"

namespace tutti::net {
namespace {

using test::ScopedEnvironment;
using transport::ReceivePart;
using Clock = std::chrono::steady_clock;

constexpr auto kWaitMax = std::chrono::seconds(20);

/// Both ways between two networks: `a` sends on ab.
struct Pair {
  std::unique_ptr<Network> a;
  std::unique_ptr<Network> b;
  std::unique_ptr<Channel> send;
  std::unique_ptr<Channel> receive;
};

std::unique_ptr<Network> make_network() {
  auto network = open_network([](LogKind, const std::string&) {});
  EXPECT_TRUE(network.ok()) << network.status().message();
  return network.ok() ? std::move(*network) : nullptr;
}

/// Asks both until each has its end of the channel. Null: the other end is elsewhere.
struct ConnectedChannel {
  ConnectedChannel(Connector* connector, Listener* listener) {
    const auto end = Clock::now() + kWaitMax;
    bool goes_on = true;
    const auto ask = [&](std::unique_ptr<Channel>& channel, auto call) {
      auto made = call();
      EXPECT_TRUE(made.ok()) << made.status().message();
      goes_on = made.ok() && Clock::now() < end;
      channel = made.ok() ? std::move(*made) : nullptr;
    };
    while (goes_on && ((connector != nullptr && send == nullptr) ||
                       (listener != nullptr && receive == nullptr))) {
      if (connector != nullptr && send == nullptr) {
        ask(send, [&] { return connector->poll(); });
      }
      if (goes_on && listener != nullptr && receive == nullptr) {
        ask(receive, [&] { return listener->accept(); });
      }
    }
  }
  std::unique_ptr<Channel> send;
  std::unique_ptr<Channel> receive;
};

void join(Network& from, Network& to, std::unique_ptr<Channel>& send,
          std::unique_ptr<Channel>& receive, int from_device = 0, int to_device = 0) {
  auto listener = to.listen(to_device);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  auto connector = from.connect(from_device, (*listener)->handle(), kDefaultClass);
  ASSERT_TRUE(connector.ok()) << connector.status().message();
  ConnectedChannel made(connector->get(), listener->get());
  send = std::move(made.send);
  receive = std::move(made.receive);
  ASSERT_NE(send, nullptr);
  ASSERT_NE(receive, nullptr);
}

Pair make_pair() {
  Pair pair;
  pair.a = make_network();
  pair.b = make_network();
  if (pair.a != nullptr && pair.b != nullptr) {
    join(*pair.a, *pair.b, pair.send, pair.receive);
  }
  return pair;
}

Completion wait(Request* request) {
  Completion completion;
  const auto end = Clock::now() + kWaitMax;
  while (!test(request, &completion)) {
    if (Clock::now() > end) {
      ADD_FAILURE() << "a request does not end";
      abort();  // Its buffers are about to go.
    }
  }
  return completion;
}

std::vector<std::byte> content(std::uint64_t seed, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>(draw(seed, 0, i / 8) >> (i % 8 * 8));
  }
  return out;
}

ReceivePart part(std::vector<std::byte>& buffer, transport::Tag tag = 0) {
  ReceivePart it;
  it.tag = tag;
  it.data = buffer.data();
  it.capacity_bytes = buffer.size();
  return it;
}

/// A message goes through and arrives as it was.
bool pass(Pair& pair, std::size_t bytes) {
  const std::vector<std::byte> sent = content(2, bytes);
  std::vector<std::byte> got(bytes);
  const ReceivePart to = part(got);
  Request* const receive = *pair.receive->receive({&to, 1});
  Request* const send = *pair.send->send(0, sent.data(), sent.size());
  const bool has_come = wait(receive).status.ok();
  return wait(send).status.ok() && has_come && got == sent;
}

struct Setting {
  const char* polling;
  const char* sub_connections;
};

class NetworkPolling : public testing::TestWithParam<Setting> {
 protected:
  NetworkPolling()
      : polling_("TUTTI_NET_POLLING", GetParam().polling),
        engines_("TUTTI_NET_ENGINES", GetParam().sub_connections),
        sub_connections_("TUTTI_NET_SUB_CONNECTIONS", GetParam().sub_connections) {}
  ScopedEnvironment polling_;
  ScopedEnvironment engines_;
  ScopedEnvironment sub_connections_;
};

TEST_P(NetworkPolling, CarriesMessagesOfAnyLength) {
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  std::uint64_t seed = 1;
  for (const std::size_t bytes :
       {0UL, 1UL, 8UL, 1000UL, 65'000UL, 65'536UL, 1UL << 20, 5'000'001UL}) {
    const std::vector<std::byte> sent = content(++seed, bytes);
    std::vector<std::byte> got(bytes + 100);
    const ReceivePart to = part(got);
    auto receive = pair.receive->receive({&to, 1});
    ASSERT_TRUE(receive.ok()) << receive.status().message();
    auto send = pair.send->send(0, sent.data(), sent.size());
    ASSERT_TRUE(send.ok()) << send.status().message();
    const Completion received = wait(*receive);
    ASSERT_TRUE(received.status.ok()) << received.status.message();
    ASSERT_EQ(received.parts, 1);
    ASSERT_EQ(received.bytes[0], bytes);
    ASSERT_TRUE(std::equal(sent.begin(), sent.end(), got.begin()));
    const Completion done = wait(*send);
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    ASSERT_EQ(done.bytes[0], bytes);
  }
}

TEST_P(NetworkPolling, ManyAtOnceAndInGroups) {
  constexpr std::size_t kMessages = 200;
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got;
  for (std::size_t i = 0; i < kMessages; ++i) {
    sent.push_back(content(i, draw(7, 0, i) % 100'000));
    got.emplace_back(100'000);
  }
  std::deque<Request*> receives;
  std::deque<Request*> sends;
  for (std::size_t i = 0; i < kMessages; i += 4) {
    std::array<ReceivePart, 4> parts;
    for (std::size_t j = 0; j < 4; ++j) {
      parts[j] = part(got[i + j], static_cast<transport::Tag>(j));
    }
    auto receive = pair.receive->receive(parts);
    ASSERT_TRUE(receive.ok() && *receive != nullptr);
    receives.push_back(*receive);
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    // Within a group in any order: the tag says which part is meant.
    const std::size_t at = i ^ 3;
    auto send =
        pair.send->send(static_cast<transport::Tag>(at % 4), sent[at].data(), sent[at].size());
    ASSERT_TRUE(send.ok() && *send != nullptr);
    sends.push_back(*send);
  }
  for (std::size_t i = 0; i < kMessages; i += 4) {
    const Completion done = wait(receives[i / 4]);
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    ASSERT_EQ(done.parts, 4);
    for (std::size_t j = 0; j < 4; ++j) {
      ASSERT_EQ(done.bytes[j], sent[i + j].size());
      ASSERT_TRUE(std::equal(sent[i + j].begin(), sent[i + j].end(), got[i + j].begin()));
    }
  }
  for (Request* const send : sends) {
    ASSERT_TRUE(wait(send).status.ok());
  }
}

TEST_P(NetworkPolling, ATestOfTheOldestMovesAll) {
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  const std::vector<std::byte> sent = content(3, 1 << 20);
  std::vector<std::vector<std::byte>> got(8, std::vector<std::byte>(1 << 20));
  std::vector<Request*> receives;
  std::vector<Request*> sends;
  for (auto& buffer : got) {
    const ReceivePart to = part(buffer);
    receives.push_back(*pair.receive->receive({&to, 1}));
    sends.push_back(*pair.send->send(0, sent.data(), sent.size()));
  }
  // The last alone is tested: those before it must have come by then.
  ASSERT_TRUE(wait(receives.back()).status.ok());
  for (const auto& buffer : got) {
    ASSERT_EQ(buffer, sent);
  }
  for (std::size_t i = 0; i + 1 < receives.size(); ++i) {
    ASSERT_TRUE(wait(receives[i]).status.ok());
  }
  for (Request* const send : sends) {
    ASSERT_TRUE(wait(send).status.ok());
  }
}

TEST_P(NetworkPolling, TooLongAMessageIsAnErrorOnBothSides) {
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  for (const std::size_t bytes : {1000, 1'000'000}) {
    const std::vector<std::byte> sent = content(5, bytes);
    std::vector<std::byte> got(bytes - 1, std::byte{7});
    const ReceivePart to = part(got);
    Request* const receive = *pair.receive->receive({&to, 1});
    Request* const send = *pair.send->send(0, sent.data(), sent.size());
    EXPECT_EQ(wait(receive).status.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(wait(send).status.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(got, std::vector<std::byte>(bytes - 1, std::byte{7}));
  }
}

TEST_P(NetworkPolling, AChannelThatGoesLeavesItsBuffersAlone) {
  constexpr std::size_t kBytes = (kIsSanitized ? 16U : 64U) << 20;
  const std::vector<std::byte> sent = content(6, kBytes);
  bool was_amid = false;
  // Whether some of it is here, and more on its way, is seen afterwards: it is not ours to read
  // yet.
  for (int i = 0; i < 20 && !was_amid; ++i) {
    Pair pair = make_pair();
    ASSERT_NE(pair.receive, nullptr);
    std::vector<std::byte> got(kBytes);
    const ReceivePart to = part(got);
    Request* const receive = *pair.receive->receive({&to, 1});
    Request* const send = *pair.send->send(0, sent.data(), sent.size());
    Completion done;
    bool is_sent = false;
    const auto end = Clock::now() + std::chrono::milliseconds(2 << i % 4);
    while (!is_sent && Clock::now() < end && !test(receive, &done)) {
      is_sent = test(send, &done);
    }
    pair.receive.reset();
    const std::vector<std::byte> then = got;
    was_amid = then != sent && then != std::vector<std::byte>(kBytes);
    if (!is_sent) {
      done = wait(send);
      EXPECT_EQ(done.status.code(), done.status.ok() ? ErrorCode::kOk : ErrorCode::kTimeout);
    }
    EXPECT_TRUE(got == then);
  }
  EXPECT_TRUE(was_amid);
}

TEST_P(NetworkPolling, TheEndOfOneSideIsAnErrorOnTheOther) {
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  std::vector<std::byte> got(100);
  const ReceivePart to = part(got);
  Request* const receive = *pair.receive->receive({&to, 1});
  pair.send.reset();
  const Completion done = wait(receive);
  EXPECT_EQ(done.status.code(), ErrorCode::kTimeout);
  EXPECT_FALSE(pair.receive->receive({&to, 1}).ok());
}

/// How often the engines' threads of this process have gone to sleep.
std::uint64_t sleeps_of_engines() {
  std::uint64_t sleeps = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool is_engine = false;
    for (std::string line; std::getline(status, line);) {
      is_engine = is_engine || line.starts_with("Name:\ttutti-net-");
      if (is_engine && line.starts_with("voluntary_ctxt_switches:")) {
        sleeps += std::stoull(line.substr(line.find('\t')));
      }
    }
  }
  return sleeps;
}

TEST_P(NetworkPolling, AnIdleEngineIsNotWokenForItsStatistics) {
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  ASSERT_TRUE(pass(pair, 100'000));
  // The statistics' last word, and what the transport has left to do.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::uint64_t before = sleeps_of_engines();
  ASSERT_GT(before, 0U);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_EQ(sleeps_of_engines(), before);
}

/// Most programs end without closing anything.
TEST_P(NetworkPolling, FilesEndInOrderThoughChannelsAreOpen) {
  std::string directory = testing::TempDir() + "tutti-network-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const ScopedEnvironment trace("TUTTI_TRACE", (directory + "/%p").c_str());
  const ScopedEnvironment metrics("TUTTI_METRICS", (directory + "/%p.prom").c_str());
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  const std::vector<std::byte> sent = content(2, 54'321);
  std::vector<std::byte> got(54'321);
  const ReceivePart to = part(got);
  Request* const receive = *pair.receive->receive({&to, 1});
  Request* const send = *pair.send->send(0, sent.data(), sent.size());
  ASSERT_TRUE(wait(receive).status.ok());
  pair.b->finish_watch();
  const std::string file = directory + "/" + std::to_string(getpid());
  std::ifstream trace_file(file);
  const auto document = nlohmann::json::parse(trace_file, nullptr, false);
  EXPECT_FALSE(document.is_discarded());
  std::ifstream metrics_file(file + ".prom");
  const std::string text{std::istreambuf_iterator<char>(metrics_file),
                         std::istreambuf_iterator<char>()};
  EXPECT_NE(text.find("tutti_engine_bytes_received_total{"), std::string::npos);
  EXPECT_NE(text.find("} 54321\n"), std::string::npos);
  // They go on, unwatched.
  ASSERT_TRUE(wait(send).status.ok());
  Request* const again = *pair.receive->receive({&to, 1});
  Request* const once_more = *pair.send->send(0, sent.data(), sent.size());
  EXPECT_TRUE(wait(again).status.ok());
  EXPECT_TRUE(wait(once_more).status.ok());
  std::filesystem::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(All, NetworkPolling,
                         testing::Values(Setting{"shared", "1"}, Setting{"busy", "1"},
                                         Setting{"shared", "3"}, Setting{"busy", "4"}),
                         [](const testing::TestParamInfo<Setting>& it) {
                           return it.param.polling + std::string(it.param.sub_connections);
                         });

/// Of each engine, as a network says at its end: chunks sent, or received.
std::vector<std::uint64_t> chunks_by_engine(const std::vector<std::string>& told, bool sent) {
  std::vector<std::uint64_t> chunks;
  for (const std::string& line : told) {
    const std::string head = "net: chunks sent ";
    const std::string counter = sent ? head : ", received ";
    if (line.starts_with(head)) {
      chunks.push_back(std::stoull(line.substr(line.find(counter) + counter.size())));
    }
  }
  return chunks;
}

TEST(Network, OfTwoThatDifferTheFewerSubConnectionsCount) {
  const ScopedEnvironment engines("TUTTI_NET_ENGINES", "4");
  for (const bool sender_has_fewer : {false, true}) {
    std::vector<std::string> told;
    Pair pair;
    {
      const ScopedEnvironment sub_connections("TUTTI_NET_SUB_CONNECTIONS",
                                              sender_has_fewer ? "2" : "3");
      auto network =
          open_network([&told](LogKind, const std::string& text) { told.push_back(text); });
      ASSERT_TRUE(network.ok()) << network.status().message();
      pair.a = std::move(*network);
      // Started with its first channel's listener.
      ASSERT_TRUE(pair.a->listen(0).ok());
    }
    const ScopedEnvironment sub_connections("TUTTI_NET_SUB_CONNECTIONS",
                                            sender_has_fewer ? "4" : "2");
    pair.b = make_network();
    join(*pair.a, *pair.b, pair.send, pair.receive);
    ASSERT_NE(pair.receive, nullptr);
    const std::vector<std::byte> sent = content(9, 3'000'001);
    std::vector<std::byte> got(sent.size());
    const ReceivePart to = part(got);
    Request* const receive = *pair.receive->receive({&to, 1});
    Request* const send = *pair.send->send(0, sent.data(), sent.size());
    EXPECT_EQ(wait(receive).bytes[0], sent.size());
    EXPECT_TRUE(wait(send).status.ok());
    EXPECT_EQ(sent, got);
    pair.send.reset();
    pair.receive.reset();
    pair.a.reset();
    const std::vector<std::uint64_t> chunks = chunks_by_engine(told, true);
    ASSERT_EQ(chunks.size(), 4U);
    EXPECT_EQ(std::count(chunks.begin(), chunks.end(), 0U), 2);
  }
}

TEST(Network, TheChannelsToAPeerAreOnDifferentEngines) {
  const ScopedEnvironment engines("TUTTI_NET_ENGINES", "2");
  const ScopedEnvironment sub_connections("TUTTI_NET_SUB_CONNECTIONS", "1");
  for (const bool sends : {true, false}) {
    std::vector<std::string> told;
    auto network =
        open_network([&told](LogKind, const std::string& text) { told.push_back(text); });
    ASSERT_TRUE(network.ok()) << network.status().message();
    const auto peer = make_network();
    const auto other = make_network();
    // As a ring's that come with another peer's between them.
    Pair pairs[3];
    for (int i = 0; i < 3; ++i) {
      Network& end = i == 1 ? *other : *peer;
      join(sends ? **network : end, sends ? end : **network, pairs[i].send, pairs[i].receive);
      ASSERT_NE(pairs[i].receive, nullptr);
    }
    for (const int i : {0, 2}) {
      const std::vector<std::byte> sent = content(9, 300'001);
      std::vector<std::byte> got(sent.size());
      const ReceivePart to = part(got);
      Request* const receive = *pairs[i].receive->receive({&to, 1});
      Request* const send = *pairs[i].send->send(0, sent.data(), sent.size());
      EXPECT_TRUE(wait(receive).status.ok());
      EXPECT_TRUE(wait(send).status.ok());
    }
    for (Pair& pair : pairs) {
      pair.send.reset();
      pair.receive.reset();
    }
    network->reset();
    const std::vector<std::uint64_t> chunks = chunks_by_engine(told, sends);
    ASSERT_EQ(chunks.size(), 2U);
    EXPECT_GT(chunks[0], 0U);
    EXPECT_GT(chunks[1], 0U);
  }
}

/// This process may open so many more files while it lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(int left) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const auto open = static_cast<rlim_t>(descriptors_max() - descriptors_left());
    const rlimit few = {open + static_cast<rlim_t>(left), before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(Network, FewDescriptorsMakeFewPaths) {
  const ScopedEnvironment engines("TUTTI_NET_ENGINES", "4");
  std::string told;
  const auto open = [&told] {
    auto network = open_network([&told](LogKind, const std::string& text) { told += text + "\n"; });
    EXPECT_TRUE(network.ok()) << network.status().message();
    return std::move(*network);
  };
  Pair pair;
  pair.b = open();
  ASSERT_TRUE(pair.b->listen(0).ok());
  EXPECT_NE(told.find("udp, 64 paths"), std::string::npos) << told;
  EXPECT_EQ(told.find("ulimit"), std::string::npos) << told;
  // A peer with more of them takes it as it is, whichever of the two sends.
  const FewDescriptors few(200);
  told.clear();
  pair.a = open();
  join(*pair.a, *pair.b, pair.send, pair.receive);
  ASSERT_NE(pair.receive, nullptr);
  EXPECT_NE(told.find(" has 16 paths and not 64, for ulimit -n is "), std::string::npos) << told;
  EXPECT_NE(told.find("udp, 16 paths"), std::string::npos) << told;
  EXPECT_TRUE(pass(pair, 3'000'001));
  Pair back;
  join(*pair.b, *pair.a, back.send, back.receive);
  ASSERT_NE(back.receive, nullptr);
  EXPECT_TRUE(pass(back, 3'000'001));
  const FewDescriptors none(20);
  const auto refused = open()->listen(0);
  EXPECT_EQ(refused.status().code(), ErrorCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("remedy: a higher ulimit -n than "), std::string::npos)
      << refused.status().message();
}

TEST(Network, APolicyDecidesOnItsConnections) {
  std::string told;
  const ScopedEnvironment policy("TUTTI_TRANSPORT_POLICY", POLICY);
  Pair pair;
  auto network = open_network([&told](LogKind, const std::string& text) { told += text + "\n"; });
  ASSERT_TRUE(network.ok()) << network.status().message();
  pair.a = std::move(*network);
  pair.b = make_network();
  join(*pair.a, *pair.b, pair.send, pair.receive);
  ASSERT_NE(pair.receive, nullptr);
  const std::vector<std::byte> sent = content(9, 3'000'001);
  std::vector<std::byte> got(sent.size());
  const ReceivePart to = part(got);
  Request* const receive = *pair.receive->receive({&to, 1});
  Request* const send = *pair.send->send(0, sent.data(), sent.size());
  EXPECT_TRUE(wait(receive).status.ok());
  EXPECT_TRUE(wait(send).status.ok());
  EXPECT_EQ(sent, got);
  EXPECT_NE(told.find(", policy delay_target, "), std::string::npos) << told;
}

TEST(Network, APolicyThatIsNotThereIsAnError) {
  const ScopedEnvironment policy("TUTTI_TRANSPORT_POLICY", "/nowhere/mine.so");
  const auto network = open_network([](LogKind, const std::string&) {});
  ASSERT_FALSE(network.ok());
  EXPECT_NE(network.status().message().find("TUTTI_TRANSPORT_POLICY=/nowhere/mine.so"),
            std::string::npos)
      << network.status().message();
}

/// A device says that it has started: "net: second 127.0.0.2, 1 shared engine(s), ...".
TEST(Network, AChannelIsOnTheDevicesThatBothEndsNamed) {
  std::vector<NetDevice> devices(2);
  devices[0].name = "first";
  devices[1].name = "second";
  for (const std::size_t i : {0, 1}) {
    devices[i].address = "127.0.0." + std::to_string(i + 1);
    devices[i].guid = i;
    devices[i].speed_mbps = 10'000;
    devices[i].mtu_bytes = 65536;
    devices[i].is_loopback = true;
  }
  for (const int to : {0, 1}) {
    const int from = 1 - to;
    std::string told[2];
    Pair pair;
    for (const int end : {0, 1}) {
      auto network = open_network(
          [&told, end](LogKind, const std::string& text) { told[end] += text + "\n"; }, devices);
      ASSERT_TRUE(network.ok()) << network.status().message();
      (end == 0 ? pair.a : pair.b) = std::move(*network);
    }
    join(*pair.a, *pair.b, pair.send, pair.receive, from, to);
    ASSERT_TRUE(pass(pair, 100'000));
    const auto line_of = [&](int device) {
      const NetDevice& it = devices[static_cast<std::size_t>(device)];
      return "net: " + it.name + ' ' + it.address + ", ";
    };
    for (const int end : {0, 1}) {
      const int used = end == 0 ? from : to;
      EXPECT_NE(told[end].find(line_of(used)), std::string::npos) << told[end];
      EXPECT_EQ(told[end].find(line_of(1 - used)), std::string::npos) << told[end];
    }
  }
}

TEST(Network, StampsAreAskedForWhereDelayDecides) {
  struct Case {
    const char* name;
    const char* value;
    const char* timestamps;
    bool are_asked_for;
  };
  for (const Case& it : {Case{"TUTTI_NET_CONTROLLER", "cubic", "auto", false},
                         Case{"TUTTI_NET_CONTROLLER", "cubic", "on", true},
                         Case{"TUTTI_NET_CONTROLLER", "swift", "auto", true},
                         Case{"TUTTI_NET_CONTROLLER", "swift", "off", false},
                         Case{"TUTTI_NET_CONTROLLER", "nscc+rccc", "auto", true},
                         Case{"TUTTI_NET_SPRAY", "two_choices", "auto", false},
                         Case{"TUTTI_TRANSPORT_POLICY", POLICY, "auto", true}}) {
    const ScopedEnvironment setting(it.name, it.value);
    const ScopedEnvironment timestamps("TUTTI_NET_TIMESTAMPS", it.timestamps);
    std::string told;
    auto network = open_network([&told](LogKind, const std::string& text) { told += text + "\n"; });
    ASSERT_TRUE(network.ok()) << network.status().message();
    EXPECT_TRUE((*network)->listen(0).ok());
    EXPECT_EQ(it.are_asked_for, told.find("not asked for") == std::string::npos)
        << it.name << ' ' << it.value << ' ' << it.timestamps << '\n'
        << told;
  }
}

TEST(Network, EnginesRunWhereTheyAreTold) {
  const int here = processors_of_process().back();
  std::string told;
  {
    const ScopedEnvironment affinity("TUTTI_NET_AFFINITY", std::to_string(here).c_str());
    auto network = open_network([&told](LogKind, const std::string& text) { told += text + "\n"; });
    ASSERT_TRUE(network.ok()) << network.status().message();
    EXPECT_TRUE((*network)->listen(0).ok());
    int engines = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(task.path() / "status");
      const std::string status{std::istreambuf_iterator<char>(file), {}};
      if (status.find("tutti-net-0-") != std::string::npos) {
        ++engines;
        EXPECT_NE(status.find("Cpus_allowed_list:\t" + std::to_string(here) + "\n"),
                  std::string::npos)
            << status;
      }
    }
    EXPECT_GE(engines, 1);
  }
  EXPECT_NE(told.find(" on processors " + std::to_string(here) + ", "), std::string::npos) << told;
}

// At the start NCCL can still take another network.
TEST(Network, SenselessKnobsEndTheStart) {
  constexpr std::pair<const char*, const char*> kSenseless[] = {
      {"TUTTI_NET_AFFINITY", "everywhere"},
      {"TUTTI_FAULT", "drp=0.1"},
      {"TUTTI_NET_CONTROLLER", "tahoe"}};
  for (const auto& [name, value] : kSenseless) {
    const ScopedEnvironment knob(name, value);
    const auto network = open_network([](LogKind, const std::string&) {});
    EXPECT_EQ(network.status().code(), ErrorCode::kInvalidConfig) << name;
    EXPECT_EQ(network.status().message().find(name), 0U) << network.status().message();
  }
}

// It may be this rank's alone: another network for it would be a hang of the others.
TEST(Network, ProcessorsThatItMayNotUseAreAnErrorOfTheFirstChannel) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment knob("TUTTI_NET_AFFINITY", "9999");
  auto network = open_network([](LogKind, const std::string&) {});
  ASSERT_TRUE(network.ok()) << network.status().message();
  const auto listener = (*network)->listen(0);
  EXPECT_EQ(listener.status().code(), ErrorCode::kInvalidConfig);
  EXPECT_EQ(listener.status().message().find("TUTTI_NET_AFFINITY=9999: "), 0U)
      << listener.status().message();
}

TEST(Network, AFallBackIsToldAndUnderStrictAnError) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment buffer("TUTTI_NET_BUFFER", "64K");  // Which every system allows.
  const ScopedEnvironment engines("TUTTI_NET_ENGINES", "1");
  // Nobody knows which processors are near the loopback interface, and one engine has one
  // sub-connection.
  constexpr std::array<std::array<const char*, 3>, 3> kCases = {
      {{"TUTTI_NET_PATHS", "8", ""},
       {"TUTTI_NET_AFFINITY", "near",
        "net: lo has engines on any processor, for it does not tell which are near; remedy: "},
       {"TUTTI_NET_SUB_CONNECTIONS", "2",
        "net: lo has 1 sub-connection(s) and not 2, for it has as many engines; "}}};
  for (const auto& [name, value, words] : kCases) {
    SCOPED_TRACE(std::string(name) + "=" + value);
    const ScopedEnvironment knob(name, value);
    const bool is_fallback = words[0] != 0;
    std::vector<std::pair<LogKind, std::string>> told;
    {
      auto network = open_network(
          [&told](LogKind kind, const std::string& text) { told.emplace_back(kind, text); });
      ASSERT_TRUE(network.ok()) << network.status().message();
      for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE((*network)->listen(0).ok());
      }
    }
    EXPECT_EQ(std::count_if(told.begin(), told.end(),
                            [text = words](const auto& one) {
                              return one.first == LogKind::kWarning && one.second.find(text) == 0;
                            }),
              is_fallback ? 1 : 0);
    EXPECT_TRUE(std::any_of(told.begin(), told.end(), [&](const auto& one) {
      return one.second.find(is_fallback ? "fall-backs 1" : "fall-backs 0") != std::string::npos;
    }));
    const ScopedEnvironment strict("TUTTI_STRICT", "1");
    const auto listener = make_network()->listen(0);
    EXPECT_EQ(listener.ok(), !is_fallback) << listener.status().message();
    if (is_fallback) {
      EXPECT_EQ(listener.status().code(), ErrorCode::kFallback);
      EXPECT_EQ(listener.status().message().find("TUTTI_STRICT: " + std::string(words)), 0U)
          << listener.status().message();
    }
  }
}

/// What has been delivered is never told as lost, however soon the receiver goes.
TEST(Network, AReceiverThatClosesAtOnceHasAcknowledged) {
  for (int seed = 1; seed <= 10; ++seed) {
    const std::string fault = "seed=" + std::to_string(seed) + ",drop=0.1,reorder=0.2";
    const ScopedEnvironment faults("TUTTI_FAULT", fault.c_str());
    const ScopedEnvironment polling("TUTTI_NET_POLLING", seed % 2 == 0 ? "busy" : "shared");
    const bool is_split = seed % 4 < 2;
    const ScopedEnvironment engines("TUTTI_NET_ENGINES", is_split ? "3" : "1");
    const ScopedEnvironment sub_connections("TUTTI_NET_SUB_CONNECTIONS", is_split ? "3" : "1");
    Pair pair = make_pair();
    ASSERT_NE(pair.receive, nullptr);
    const std::vector<std::byte> sent = content(8, is_split ? 500'000 : 1000);
    std::vector<std::byte> got(sent.size());
    const ReceivePart to = part(got);
    Request* const receive = *pair.receive->receive({&to, 1});
    Request* const send = *pair.send->send(0, sent.data(), sent.size());
    ASSERT_TRUE(wait(receive).status.ok());
    pair.receive.reset();
    const Completion done = wait(send);
    ASSERT_TRUE(done.status.ok()) << "seed " << seed << ": " << done.status.message();
  }
}

/// Connects to a listener and says nothing, or `bytes`.
int call_as_stranger(const Handle& handle, std::span<const std::byte> bytes) {
  const wire::udp::SocketAddress address = from_handle(handle, AF_INET)->address;
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(socket, address.get(), address.bytes), 0);
  if (!bytes.empty()) {
    EXPECT_EQ(send(socket, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  return socket;
}

// What one engine finds is every engine's of the device.
TEST(Network, APeerThatFellSilentHoldsUpNoEnd) {
  const ScopedEnvironment timeout("TUTTI_NET_TIMEOUT", "2");
  const ScopedEnvironment paths("TUTTI_NET_PATHS", "1");
  const ScopedEnvironment fault("TUTTI_FAULT", "seed=1,kill_path=0@1s");
  const ScopedEnvironment sub_connections("TUTTI_NET_SUB_CONNECTIONS", "1");
  for (const char* const count : {"1", "3"}) {
    SCOPED_TRACE(std::string(count) + " engines");
    const ScopedEnvironment engines("TUTTI_NET_ENGINES", count);
    Pair pair = make_pair();
    ASSERT_NE(pair.receive, nullptr);
    std::array<Pair, 3> idle;
    for (Pair& one : idle) {
      join(*pair.a, *pair.b, one.send, one.receive);
      ASSERT_NE(one.receive, nullptr);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    // Closed before it is known that this is never answered.
    idle[0].send.reset();
    const std::vector<std::byte> bytes(100'000);
    const Completion done = wait(*pair.send->send(0, bytes.data(), bytes.size()));
    EXPECT_EQ(done.status.code(), ErrorCode::kTimeout) << done.status.message();
    // And afterwards.
    const auto start = Clock::now();
    idle[1].send.reset();
    idle[2].send.reset();
    pair.send.reset();
    pair.a.reset();
    EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(1500));
  }
}

TEST(Network, APeerThatWasSilentGetsWhatIsSentBeforeAClose) {
  const ScopedEnvironment timeout("TUTTI_NET_TIMEOUT", "1");
  const ScopedEnvironment paths("TUTTI_NET_PATHS", "1");
  const ScopedEnvironment fault("TUTTI_FAULT", "seed=1,drop=0.05,kill_path=0@1s:4s");
  Pair pair = make_pair();
  const auto begun = Clock::now();
  ASSERT_NE(pair.receive, nullptr);
  std::array<Pair, 10> others;
  for (Pair& one : others) {
    join(*pair.a, *pair.b, one.send, one.receive);
    ASSERT_NE(one.receive, nullptr);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const std::vector<std::byte> bytes(100'000);
  const Completion lost = wait(*pair.send->send(0, bytes.data(), bytes.size()));
  EXPECT_EQ(lost.status.code(), ErrorCode::kTimeout) << lost.status.message();
  std::this_thread::sleep_until(begun + std::chrono::milliseconds(5200));
  const std::vector<std::byte> sent = content(5, 8);
  for (Pair& one : others) {
    std::vector<std::byte> got(sent.size());
    const ReceivePart to = part(got);
    Request* const receive = *one.receive->receive({&to, 1});
    EXPECT_TRUE(wait(*one.send->send(0, sent.data(), sent.size())).status.ok());
    one.send.reset();
    const Completion done = wait(receive);
    EXPECT_TRUE(done.status.ok()) << done.status.message();
    EXPECT_EQ(got, sent);
  }
}

/// The end of a network whose only channel, a send's, has a peer that is cut off and not known to
/// be. `told`: what it said.
std::chrono::nanoseconds end_beside_who_does_not_answer(std::string& told) {
  const ScopedEnvironment paths("TUTTI_NET_PATHS", "1");
  const ScopedEnvironment fault("TUTTI_FAULT", "seed=1,kill_path=0@1s");
  std::vector<std::byte> got(8);
  Pair pair;
  pair.b = make_network();
  pair.a =
      std::move(*open_network([&told](LogKind, const std::string& text) { told += text + "\n"; }));
  join(*pair.a, *pair.b, pair.send, pair.receive);
  EXPECT_NE(pair.receive, nullptr);
  const ReceivePart to = part(got);
  EXPECT_TRUE(pair.receive->receive({&to, 1}).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  // It is eager, and its receive is known: completed, and never acknowledged.
  const std::vector<std::byte> sent = content(5, got.size());
  EXPECT_TRUE(wait(*pair.send->send(0, sent.data(), sent.size())).status.ok());
  const auto start = Clock::now();
  pair.send.reset();
  pair.a.reset();
  return Clock::now() - start;
}

TEST(Network, AnEndWaitsOnceForAPeerThatDoesNotAnswer) {
  std::string told;
  EXPECT_LT(end_beside_who_does_not_answer(told), std::chrono::milliseconds(3000));
  const std::string peer = ", process " + std::to_string(getpid()) + ", sending";
  EXPECT_NE(told.find("have not closed"), std::string::npos) << told;
  EXPECT_NE(told.find(peer), std::string::npos) << told;
}

TEST(Network, AnEndWaitsAQuarterOfTheTimeInWhichAPeerIsGivenUp) {
  const ScopedEnvironment timeout("TUTTI_NET_TIMEOUT", "3");
  std::string told;
  const auto took = end_beside_who_does_not_answer(told);
  EXPECT_GT(took, std::chrono::milliseconds(700));
  EXPECT_LT(took, std::chrono::milliseconds(1700));
  EXPECT_NE(told.find("have not closed"), std::string::npos) << told;
}

// Its last packet may be lost: who has closed and ended answers no more.
TEST(Network, AnEndDoesNotWaitForAPeerThatHasEnded) {
  const ScopedEnvironment paths("TUTTI_NET_PATHS", "1");
  const ScopedEnvironment fault("TUTTI_FAULT", "seed=1,kill_path=0@3s");
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  Pair other;
  join(*pair.a, *pair.b, other.send, other.receive);
  ASSERT_NE(other.receive, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(3100));
  pair.send.reset();
  pair.receive.reset();
  other.receive.reset();
  pair.b.reset();
  const auto start = Clock::now();
  other.send.reset();
  pair.a.reset();
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(1500));
}

TEST(Network, TheLatencyIsWhatSomebodySays) {
  EXPECT_EQ(make_network()->devices()[0].latency_us, 15);
  const ScopedEnvironment latency("TUTTI_NET_LATENCY", "12.5");
  EXPECT_EQ(make_network()->devices()[0].latency_us, 12.5);
}

// A test whose faults cannot happen, or did not, is none.
TEST(Network, FaultsThatAreNoneAreTold) {
  const ScopedEnvironment paths("TUTTI_NET_PATHS", "8");
  {
    const ScopedEnvironment fault("TUTTI_FAULT", "kill_path=8@1s");
    const auto listener = make_network()->listen(0);
    ASSERT_FALSE(listener.ok());
    EXPECT_NE(listener.status().message().find("would kill nothing: there are 8 path(s)"),
              std::string::npos)
        << listener.status().message();
  }
  const ScopedEnvironment fault("TUTTI_FAULT", "duplicate=1");
  std::vector<std::string> told;
  {
    auto network =
        open_network([&told](LogKind, const std::string& text) { told.push_back(text); });
    ASSERT_TRUE(network.ok()) << network.status().message();
    ASSERT_TRUE((*network)->listen(0).ok());
  }
  EXPECT_TRUE(std::any_of(told.begin(), told.end(), [](const std::string& text) {
    return text.find("faults in 0 packets: dropped 0 duplicated 0") != std::string::npos;
  }));
}

TEST(Network, KnobsWorkAtTheEndsOfTheirRanges) {
  constexpr std::pair<const char*, const char*> kEnds[] = {
      {"TUTTI_NET_TIMEOUT", "0.1"},    {"TUTTI_NET_TIMEOUT", "3600"}, {"TUTTI_NET_SPEED", "1"},
      {"TUTTI_NET_SPEED", "1000000"},  {"TUTTI_NET_PATHS", "1"},      {"TUTTI_NET_PATHS", "256"},
      {"TUTTI_NET_ACK_DELAY", "1000"}, {"TUTTI_NET_BUFFER", "64K"},   {"TUTTI_NET_CHUNK", "512"}};
  for (const auto& [name, value] : kEnds) {
    SCOPED_TRACE(std::string(name) + "=" + value);
    const ScopedEnvironment knob(name, value);
    Pair pair = make_pair();
    ASSERT_NE(pair.receive, nullptr);
    const std::vector<std::byte> sent = content(1, 1000);
    std::vector<std::byte> got(sent.size());
    const ReceivePart to = part(got);
    Request* const receive = *pair.receive->receive({&to, 1});
    Request* const send = *pair.send->send(0, sent.data(), sent.size());
    EXPECT_TRUE(wait(receive).status.ok());
    EXPECT_TRUE(wait(send).status.ok());
    EXPECT_EQ(got, sent);
  }
}

TEST(Network, ChunksOfAFewBytesAreRefused) {
  const ScopedEnvironment chunk("TUTTI_NET_CHUNK", "511");
  const auto network = open_network([](LogKind, const std::string&) {});
  EXPECT_EQ(network.status().code(), ErrorCode::kInvalidConfig);
  EXPECT_NE(network.status().message().find("write 0, or 512 to 64K"), std::string::npos)
      << network.status().message();
}

/// Of a list as "nscc, swift, each also with +rccc, or eqds", what may be written.
std::set<std::string> controllers_in(const std::string& list) {
  const std::set<std::string> others = {"each", "of", "them", "also", "with", "or"};
  const std::regex word("[^ ,]+");
  std::set<std::string> names;
  for (std::sregex_iterator it(list.begin(), list.end(), word), end; it != end; ++it) {
    const std::string text = it->str();
    if (text[0] == '+') {
      // With each that is ahead of it.
      for (const std::string& name : std::set<std::string>(names)) {
        names.insert(name + text);
      }
    } else if (others.count(text) == 0) {
      names.insert(text);
    }
  }
  return names;
}

// Who reads the error can write each of them, and misses none.
TEST(Network, TheControllersThatAreNamedAreThoseThereAre) {
  std::set<std::string> expected = {"rccc", "eqds"};
  for (const char* const name : {"nscc", "swift", "cubic", "dctcp", "timely", "fixed"}) {
    expected.insert({name, std::string(name) + "+rccc"});
  }
  for (const std::string& name : expected) {
    EXPECT_TRUE(transport::make_controller(name, {}).ok()) << name;
  }
  const std::string error = transport::make_controller("none", {}).status().message();
  const std::string words = " is not one of ";
  ASSERT_NE(error.find(words), std::string::npos) << error;
  EXPECT_EQ(controllers_in(error.substr(error.find(words) + words.size())), expected) << error;
}

/// Payload and what answers it, on the loopback interface: where UDP of this class goes to.
TEST(Network, ATrafficClassIsOfBothDirections) {
  const int ear = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, htons(ETH_P_IP));
  if (ear < 0) {
    GTEST_SKIP() << "no packet socket: " << std::strerror(errno);
  }
  // Of this class alone, which no other test has: what those send would fill its buffer.
  std::array<sock_filter, 4> filter{
      {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 1), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x4e, 0, 1),
       BPF_STMT(BPF_RET | BPF_K, 0xffff), BPF_STMT(BPF_RET | BPF_K, 0)}};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  ASSERT_EQ(setsockopt(ear, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment family("NCCL_SOCKET_FAMILY", "AF_INET");
  const ScopedEnvironment traffic_class("TUTTI_NET_TRAFFIC_CLASS", "77");
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  std::array<std::uint8_t, 64> packet;
  // What was tried at the start fills its buffer.
  while (recv(ear, packet.data(), packet.size(), 0) > 0) {
  }
  const std::vector<std::byte> sent = content(1, 5000);
  std::vector<std::byte> got(sent.size());
  const ReceivePart to = part(got);
  Request* const receive = *pair.receive->receive({&to, 1});
  Request* const send = *pair.send->send(0, sent.data(), sent.size());
  EXPECT_TRUE(wait(receive).status.ok());
  EXPECT_TRUE(wait(send).status.ok());
  std::set<std::uint16_t> ports;
  for (ssize_t bytes = 0; (bytes = recv(ear, packet.data(), packet.size(), MSG_TRUNC)) > 0;) {
    if (packet[0] == 0x45 && packet[9] == IPPROTO_UDP && packet[1] == 0x4e) {
      ports.insert(static_cast<std::uint16_t>(packet[22] << 8 | packet[23]));
    }
  }
  EXPECT_EQ(ports.size(), 2U);
  close(ear);
  const auto out_of_range = pair.a->connect(0, Handle(), 256);
  EXPECT_EQ(out_of_range.status().code(), ErrorCode::kInvalidArgument);
}

TEST(Network, AnUnknownControllerIsAnErrorBeforeThereAreChannels) {
  const ScopedEnvironment controller("TUTTI_NET_CONTROLLER", "bbr");
  const auto network = open_network([](LogKind, const std::string&) {});
  EXPECT_EQ(network.status().code(), ErrorCode::kInvalidConfig);
  EXPECT_NE(network.status().message().find("TUTTI_NET_CONTROLLER"), std::string::npos);
}

TEST(Network, DevicesOfAnEarlierNetworkStayThese) {
  const auto first = make_network();
  std::vector<NetDevice> devices = first->devices();
  NetDevice gone = devices[0];
  gone.name = "gone0";
  gone.address = "192.0.2.55";
  devices.insert(devices.begin(), gone);
  const auto network = open_network([](LogKind, const std::string&) {}, devices);
  ASSERT_TRUE(network.ok()) << network.status().message();
  EXPECT_EQ((*network)->devices()[0].name, "gone0");
  EXPECT_EQ((*network)->listen(0).status().code(), ErrorCode::kUnavailable);
  EXPECT_TRUE((*network)->listen(1).ok());
}

/// Two devices of the loopback interface that are one, beside them. Logs to `said`.
std::unique_ptr<Network> make_railed(std::vector<std::string>* said = nullptr) {
  static std::mutex mutex;
  const auto log = [said](LogKind, const std::string& text) {
    const std::lock_guard lock(mutex);
    if (said != nullptr) {
      said->push_back(text);
    }
  };
  std::vector<NetDevice> devices;
  for (const char* const address : {"127.0.0.1", "127.0.0.2"}) {
    NetDevice& device = devices.emplace_back();
    device.name = "lo" + std::to_string(devices.size());
    device.address = address;
    device.guid = devices.size();
    device.speed_mbps = 10'000;
    device.mtu_bytes = devices.size() == 1 ? 9000 : 1500;
    device.near_processors = {static_cast<int>(devices.size())};
  }
  auto network = open_network(log, devices);
  EXPECT_TRUE(network.ok()) << network.status().message();
  const std::vector<int> both = {0, 1};
  EXPECT_EQ(*(*network)->merge(both), 2);
  return std::move(*network);
}

TEST(Rails, ADeviceMadeOfOthers) {
  const auto network = make_railed();
  const std::vector<NetDevice> devices = network->devices();
  ASSERT_EQ(devices.size(), 3U);
  const NetDevice& both = devices[2];
  EXPECT_EQ(both.name, "lo1+lo2");
  EXPECT_EQ(both.address, "127.0.0.1");
  EXPECT_EQ(both.speed_mbps, 20'000);
  EXPECT_EQ(both.mtu_bytes, 1500);
  EXPECT_EQ(both.near_processors, (std::vector<int>{1, 2}));
  EXPECT_EQ(both.rails, (std::vector<int>{0, 1}));
  const auto merge = [&](std::vector<int> rails) { return network->merge(rails); };
  EXPECT_EQ(*merge({0, 1}), 2);
  EXPECT_EQ(*merge({1, 0}), 3);
  const std::vector<std::pair<std::vector<int>, std::string>> wrong = {
      {{}, "net: a device has 1 to 8 rails, not 0"},
      {{0, 7}, "net: there is no device 7 among 4"},
      {{-1}, "net: there is no device -1 among 4"},
      {{1, 1}, "net: lo2 cannot be a rail twice"},
      {{0, 2}, "net: lo1+lo2 cannot be a rail of others, it has some"}};
  for (const auto& [rails, words] : wrong) {
    const auto merged = merge(rails);
    EXPECT_EQ(merged.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(merged.status().message(), words);
  }
  // A network that is opened again has them.
  const auto again = open_network([](LogKind, const std::string&) {}, network->devices());
  EXPECT_TRUE((*again)->listen(2).ok());
}

/// Of the connections over two rails that send, by the statistics of this process.
struct RailUse {
  std::array<std::uint64_t, 2> chunks_sent{};
  std::array<std::uint64_t, 2> chunks_lost{};
  std::array<int, 2> paths_heard_of{};
  std::uint64_t bytes_sent = 0;
  std::uint64_t inflight_bytes = 0;
};

/// Reads the statistics of this process. Its files stay open as long as this lives: with the first
/// descriptor that is closed they lose their lock, and whoever starts then takes them for stale.
class RailUses {
 public:
  RailUse read() {
    RailUse use;
    const std::string begin =
        "tutti-net-" + std::to_string(geteuid()) + "-" + std::to_string(getpid()) + "-";
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      if (entry.path().filename().string().starts_with(begin)) {
        const auto [it, is_new] = files_.try_emplace(entry.path());
        if (is_new) {
          it->second.open(entry.path(), std::ios::binary);
        }
        add(it->second, use);
      }
    }
    return use;
  }

 private:
  static void add(std::ifstream& file, RailUse& use) {
    const auto read = [&file](std::uint64_t offset, auto& record) {
      file.clear();
      file.seekg(static_cast<std::streamoff>(offset));
      file.read(reinterpret_cast<char*>(&record), sizeof record);
    };
    FileHeader header{};
    read(0, header);
    for (std::uint64_t slot = 0; slot < header.connections_max; ++slot) {
      ConnectionRecord connection{};
      const std::uint64_t at = header.slots_offset + slot * header.slot_bytes;
      read(at, connection);
      if (connection.direction != Direction::kSends) {
        continue;
      }
      use.bytes_sent += connection.counters.bytes_sent;
      use.inflight_bytes += connection.inflight_bytes;
      for (std::uint64_t i = 0; i < connection.paths_shown; ++i) {
        PathRecord path{};
        read(at + sizeof connection + i * sizeof path, path);
        use.chunks_sent[i % 2] += path.chunks_sent;
        use.chunks_lost[i % 2] += path.losses;
        use.paths_heard_of[i % 2] += path.rtt_ns > 0 ? 1 : 0;
      }
    }
  }

  std::map<std::string, std::ifstream> files_;
};

/// Messages one way between devices of two networks, each as it was sent. `use`: of their rails.
void expect_messages(Network& from, int from_device, Network& to, int to_device,
                     RailUse* use = nullptr) {
  std::unique_ptr<Channel> send;
  std::unique_ptr<Channel> receive;
  join(from, to, send, receive, from_device, to_device);
  ASSERT_NE(receive, nullptr);
  for (const std::size_t bytes : {0, 1, 1000, 100'000, 3'000'001}) {
    const auto out = content(bytes, bytes);
    std::vector<std::byte> in(bytes);
    const ReceivePart it = part(in);
    Request* const received = *receive->receive({&it, 1});
    Request* const sent = *send->send(0, out.data(), out.size());
    EXPECT_TRUE(wait(received).status.ok());
    EXPECT_TRUE(wait(sent).status.ok());
    EXPECT_EQ(in, out) << bytes;
  }
  if (use != nullptr) {
    // They are written some time after.
    const auto end = Clock::now() + kWaitMax;
    RailUses uses;
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      *use = uses.read();
    } while ((use->bytes_sent < 3'101'002 || use->inflight_bytes > 0) && Clock::now() < end);
  }
}

TEST(Rails, AConnectionHasAllOfThem) {
  std::vector<std::string> said;
  RailUse use;
  {
    const auto a = make_railed(&said);
    const auto b = make_railed();
    expect_messages(*a, 2, *b, 2, &use);
  }
  for (const std::size_t rail : {0, 1}) {
    EXPECT_GT(use.chunks_sent[rail], 10U) << rail;
    EXPECT_GT(use.paths_heard_of[rail], 0) << rail;
  }
  EXPECT_NE(said.front().find("2 rails, 0: udp, 32 paths"), std::string::npos) << said.front();
}

TEST(Rails, WithSplitConnections) {
  const ScopedEnvironment engines("TUTTI_NET_ENGINES", "2");
  const ScopedEnvironment sub_connections("TUTTI_NET_SUB_CONNECTIONS", "2");
  const auto a = make_railed();
  const auto b = make_railed();
  expect_messages(*a, 2, *b, 2);
}

TEST(Rails, AnEndWithoutThem) {
  const auto a = make_railed();
  const auto b = make_railed();
  expect_messages(*a, 2, *b, 0);
  expect_messages(*a, 0, *b, 2);
}

TEST(Rails, OneThatDiesDisturbsNothing) {
  // The first rail carries the handshakes, so both are tried.
  for (const std::size_t dead : {0, 1}) {
    SCOPED_TRACE("rail " + std::to_string(dead));
    const std::string fault = "kill_rail=" + std::to_string(dead) + "@0s";
    const ScopedEnvironment kill("TUTTI_FAULT", fault.c_str());
    const ScopedEnvironment timeout("TUTTI_NET_TIMEOUT", "5");
    const auto a = make_railed();
    const auto b = make_railed();
    RailUse use;
    expect_messages(*a, 2, *b, 2, &use);
    EXPECT_GT(use.chunks_sent[dead], 0U) << "it was tried";
    EXPECT_GT(use.chunks_lost[dead], 0U);
    EXPECT_EQ(use.paths_heard_of[dead], 0);
    EXPECT_GT(use.chunks_sent[1 - dead], 40U) << "of 50";
    EXPECT_GT(use.paths_heard_of[1 - dead], 0);
  }
}

/// Runs `body` in a child, before this process has threads.
template <class Body>
pid_t in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

/// What one process writes, another reads.
struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  template <class T>
  void put(const T& value) const {
    EXPECT_EQ(write(ends[1], &value, sizeof value), static_cast<ssize_t>(sizeof value));
  }
  template <class T>
  T get() const {
    T value{};
    EXPECT_EQ(read(ends[0], &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }
  int ends[2];
};

/// Listens, tells `handles`, and waits for who comes.
std::unique_ptr<Channel> accept_one(Network& network, const Pipe& handles) {
  auto listener = network.listen(0);
  EXPECT_TRUE(listener.ok());
  handles.put((*listener)->handle());
  return std::move(ConnectedChannel(nullptr, listener->get()).receive);
}

std::unique_ptr<Channel> connect_one(Network& network, const Pipe& handles) {
  auto connector = network.connect(0, handles.get<Handle>(), kDefaultClass);
  EXPECT_TRUE(connector.ok());
  return std::move(ConnectedChannel(connector->get(), nullptr).send);
}

TEST(Network, AReceiverWhoseProcessEndsHasAcknowledged) {
  const std::pair<const char*, const char*> kCases[] = {
      {"shared", "1"}, {"busy", "1"}, {"shared", "2"}, {"busy", "2"}};
  for (const auto& [polling, count] : kCases) {
    const ScopedEnvironment how("TUTTI_NET_POLLING", polling);
    const ScopedEnvironment engines("TUTTI_NET_ENGINES", count);
    const ScopedEnvironment sub_connections("TUTTI_NET_SUB_CONNECTIONS", count);
    constexpr int kMessages = 20;
    const std::vector<std::byte> sent = content(3, 1 << 20);  // Of several units.
    const Pipe handles;
    const pid_t child = in_child([&] {
      const auto network = make_network();
      const auto channel = accept_one(*network, handles);
      std::vector<std::byte> got(sent.size());
      const ReceivePart to = part(got);
      for (int i = 0; i < kMessages; ++i) {
        (void)wait(*channel->receive({&to, 1}));
      }
      network->finish_watch();
      _exit(0);
    });
    const auto network = make_network();
    const auto channel = connect_one(*network, handles);
    ASSERT_NE(channel, nullptr);
    for (int i = 0; i < kMessages; ++i) {
      const Completion done = wait(*channel->send(0, sent.data(), sent.size()));
      EXPECT_TRUE(done.status.ok()) << polling << " " << i << ": " << done.status.message();
    }
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
  }
}

TEST(Network, TheEndOfAProcessIsNoticedThoughAChildOfItLives) {
  const Pipe handles;
  const Pipe children;
  const pid_t rank = in_child([&] {
    const auto network = make_network();
    const auto channel = accept_one(*network, handles);
    const pid_t worker = in_child([] { std::this_thread::sleep_for(kWaitMax); });
    children.put(worker);
    std::this_thread::sleep_for(kWaitMax);
  });
  const auto network = make_network();
  const auto channel = connect_one(*network, handles);
  ASSERT_NE(channel, nullptr);
  const auto worker = children.get<pid_t>();
  const std::vector<std::byte> sent = content(3, 64 << 10);
  Request* const request = *channel->send(0, sent.data(), sent.size());
  const auto start = Clock::now();
  kill(rank, SIGKILL);
  EXPECT_FALSE(wait(request).status.ok());
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(kill(worker, SIGKILL), 0);
  EXPECT_EQ(waitpid(rank, nullptr, 0), rank);
}

TEST(Network, StrangersNeitherEndNorStopASetUp) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment family("NCCL_SOCKET_FAMILY", "AF_INET");
  const auto a = make_network();
  const auto b = make_network();
  auto listener = b->listen(0);
  ASSERT_TRUE(listener.ok());
  HandshakeBytes other_version = encode(Handshake{}, {1, 2});
  other_version[4] = std::byte{99};
  const HandshakeBytes other_key = encode(Handshake{}, {1, 2});
  std::vector<int> strangers;
  for (int i = 0; i < 70; ++i) {
    strangers.push_back(call_as_stranger((*listener)->handle(), {}));
    ASSERT_TRUE((*listener)->accept().ok());
  }
  strangers.push_back(call_as_stranger((*listener)->handle(), other_version));
  strangers.push_back(call_as_stranger((*listener)->handle(), other_key));
  strangers.push_back(call_as_stranger((*listener)->handle(), std::vector<std::byte>(500)));
  auto connector = a->connect(0, (*listener)->handle(), kDefaultClass);
  ASSERT_TRUE(connector.ok());
  const ConnectedChannel made(connector->get(), listener->get());
  EXPECT_NE(made.send, nullptr);
  EXPECT_NE(made.receive, nullptr);
  for (const int stranger : strangers) {
    close(stranger);
  }
}

TEST(Network, StrangersDoNotDisplaceAPeerThatHasSentItsHandshake) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment family("NCCL_SOCKET_FAMILY", "AF_INET");
  const auto a = make_network();
  const auto b = make_network();
  auto listener = b->listen(0);
  ASSERT_TRUE(listener.ok());
  auto connector = a->connect(0, (*listener)->handle(), kDefaultClass);
  ASSERT_TRUE(connector.ok());
  // It sends its handshake before anybody accepts.
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE((*connector)->poll().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<int> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(call_as_stranger((*listener)->handle(), {}));
  }
  const ConnectedChannel made(connector->get(), listener->get());
  EXPECT_NE(made.send, nullptr);
  EXPECT_NE(made.receive, nullptr);
  for (const int stranger : strangers) {
    close(stranger);
  }
}

TEST(Network, APeerThatDoesNotFinishItsHandshakeIsAnError) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment family("NCCL_SOCKET_FAMILY", "AF_INET");
  const ScopedEnvironment timeout("TUTTI_NET_TIMEOUT", "1");
  const auto network = make_network();
  auto listener = network->listen(0);
  ASSERT_TRUE(listener.ok());
  const Handle handle = (*listener)->handle();
  const transport::Key key = from_handle(handle, AF_INET)->key;
  Handshake handshake;
  handshake.host = "odd";
  handshake.sub_connections = 2;
  const int stranger = call_as_stranger(handle, {});
  const int peer = call_as_stranger(handle, encode(handshake, key));
  const auto begun = Clock::now();
  Result<std::unique_ptr<Channel>> channel = (*listener)->accept();
  while (channel.ok() && *channel == nullptr && Clock::now() - begun < kWaitMax) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    channel = (*listener)->accept();
  }
  EXPECT_EQ(channel.status().code(), ErrorCode::kTimeout);
  EXPECT_NE(channel.status().message().find("odd"), std::string::npos);
  EXPECT_GE(Clock::now() - begun, std::chrono::milliseconds(900));
  // Who says nothing may be anybody.
  channel = (*listener)->accept();
  EXPECT_TRUE(channel.ok());
  close(stranger);
  close(peer);
}

TEST(Network, OneListenerTakesSeveral) {
  const auto a = make_network();
  const auto b = make_network();
  auto listener = b->listen(0);
  ASSERT_TRUE(listener.ok());
  std::vector<std::unique_ptr<Connector>> connectors;
  for (int i = 0; i < 3; ++i) {
    connectors.push_back(std::move(*a->connect(0, (*listener)->handle(), kDefaultClass)));
  }
  std::vector<std::unique_ptr<Channel>> sends(3);
  std::vector<std::unique_ptr<Channel>> receives;
  const auto end = Clock::now() + kWaitMax;
  while ((receives.size() < 3 || !sends[0] || !sends[1] || !sends[2]) && Clock::now() < end) {
    auto channel = (*listener)->accept();
    ASSERT_TRUE(channel.ok());
    if (*channel != nullptr) {
      receives.push_back(std::move(*channel));
    }
    for (std::size_t i = 0; i < 3; ++i) {
      if (sends[i] == nullptr) {
        sends[i] = std::move(*connectors[i]->poll());
      }
    }
  }
  EXPECT_EQ(receives.size(), 3U);
}

/// One end of a channel that comes to nothing: what each side says of it.
struct Refusal {
  std::string connector;
  std::string acceptor;
};

Refusal refused_between(Network& connecting, Network& accepting) {
  auto listener = accepting.listen(0);
  auto connector = connecting.connect(0, (*listener)->handle(), kDefaultClass);
  EXPECT_TRUE(connector.ok());
  Refusal said;
  const auto end = Clock::now() + kWaitMax;
  while ((said.connector.empty() || said.acceptor.empty()) && Clock::now() < end) {
    if (said.acceptor.empty()) {
      const auto channel = (*listener)->accept();
      said.acceptor = channel.ok() ? "" : channel.status().message();
    }
    if (said.connector.empty()) {
      const auto channel = (*connector)->poll();
      said.connector = channel.ok() ? "" : channel.status().message();
    }
  }
  return said;
}

TEST(Network, OtherSettingsAreNamed) {
  const auto usual = make_network();
  constexpr std::pair<const char*, const char*> kOthers[] = {{"TUTTI_NET_CONTROLLER", "swift"},
                                                             {"TUTTI_NET_AUTHENTICATE", "0"}};
  const std::string me = host_name() + ", process " + std::to_string(getpid());
  for (const auto& [name, value] : kOthers) {
    std::unique_ptr<Network> other;
    {
      const ScopedEnvironment knob(name, value);
      other = make_network();
    }
    for (const bool is_listener : {true, false}) {
      const Refusal said =
          is_listener ? refused_between(*usual, *other) : refused_between(*other, *usual);
      const std::string words = std::string(name) + " differs: ";
      EXPECT_NE(said.acceptor.find(words), std::string::npos) << said.acceptor;
      EXPECT_NE(said.acceptor.find(std::string(value) + " on " + me), std::string::npos);
      EXPECT_NE(said.acceptor.find("; set the same on all hosts"), std::string::npos);
      EXPECT_NE(said.connector.find("net: " + me + ", at "), std::string::npos) << said.connector;
      EXPECT_NE(said.connector.find(" refuses the channel: " + said.acceptor), std::string::npos)
          << said.connector;
    }
  }
}

/// A listener that is none of ours.
struct OddListener {
  OddListener() : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    address.bytes = sizeof(sockaddr_in);
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket, address.get(), address.bytes), 0);
    EXPECT_EQ(getsockname(socket, address.get(), &address.bytes), 0);
  }
  ~OddListener() { close(socket); }

  Handle handle() const {
    return to_handle({.address = address, .key = key, .device = 1, .process = 42, .host = "odd"});
  }
  std::string who() const { return "odd, process 42, at " + to_text(address); }

  int socket;
  wire::udp::SocketAddress address;
  transport::Key key{1, 2};
};

std::string error_of(Network& network, const Handle& handle) {
  auto connector = network.connect(0, handle, kDefaultClass);
  if (!connector.ok()) {
    return connector.status().message();
  }
  const auto end = Clock::now() + kWaitMax;
  auto channel = (*connector)->poll();
  while (channel.ok() && *channel == nullptr && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    channel = (*connector)->poll();
  }
  return channel.status().message();
}

TEST(Network, WhoCannotBeReachedIsNamed) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment family("NCCL_SOCKET_FAMILY", "AF_INET");
  const ScopedEnvironment timeout("TUTTI_NET_TIMEOUT", "0.3");
  const auto network = make_network();
  const OddListener odd;
  EXPECT_EQ(error_of(*network, odd.handle()),
            "net: cannot connect to " + odd.who() + ": Connection refused");
  ASSERT_EQ(::listen(odd.socket, 8), 0);
  EXPECT_EQ(error_of(*network, odd.handle()),
            "net: " + odd.who() + " has not answered for TUTTI_NET_TIMEOUT seconds");
}

/// The listener is away before it has answered, and again while the channel is made.
TEST(Network, APeerMayBeLateWhereTheCallerBoundsTheWait) {
  const ScopedEnvironment timeout("TUTTI_NET_TIMEOUT", "0.3");
  const auto network = make_network();
  auto listener = network->listen(0);
  ASSERT_TRUE(listener.ok());
  auto connector = network->connect(0, (*listener)->handle(), kDefaultClass);
  ASSERT_TRUE(connector.ok());
  (*listener)->leave_wait_to_caller();
  (*connector)->leave_wait_to_caller();
  std::unique_ptr<Channel> sends, receives;
  for (int accepts = 0; accepts < 4; ++accepts) {
    for (const auto end = Clock::now() + std::chrono::milliseconds(500); Clock::now() < end;) {
      if (sends == nullptr) {
        auto channel = (*connector)->poll();
        ASSERT_TRUE(channel.ok()) << channel.status().message();
        sends = std::move(*channel);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (receives == nullptr) {
      auto channel = (*listener)->accept();
      ASSERT_TRUE(channel.ok()) << channel.status().message();
      receives = std::move(*channel);
      EXPECT_TRUE(accepts > 0 || receives == nullptr);
    }
  }
  EXPECT_NE(sends, nullptr);
  EXPECT_NE(receives, nullptr);
}

TEST(Network, AnAnswerOfAnotherKeyIsNamed) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment family("NCCL_SOCKET_FAMILY", "AF_INET");
  const auto network = make_network();
  const OddListener odd;
  ASSERT_EQ(::listen(odd.socket, 8), 0);
  std::thread answer([&] {
    // Where nobody calls, accept() would wait for ever.
    pollfd waiting = {odd.socket, POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kWaitMax).count())) != 1) {
      ADD_FAILURE() << "nobody has called";
      return;
    }
    const int caller = accept(odd.socket, nullptr, nullptr);
    Handshake handshake;
    handshake.host = "later";
    handshake.process = 43;
    const HandshakeBytes bytes = encode(handshake, {3, 4});
    EXPECT_EQ(send(caller, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    close(caller);
  });
  const std::string text = error_of(*network, odd.handle());
  answer.join();
  EXPECT_NE(text.find("later, process 43 has another key"), std::string::npos) << text;
  EXPECT_NE(text.find("; the peer is " + odd.who()), std::string::npos) << text;
}

/// What is said at the connecting end where the other one sends its handshake, and then sends
/// `report` if there is one, and goes.
std::string said_after_handshake(const std::optional<ReachReport>& report) {
  const auto network = make_network();
  const OddListener odd;
  EXPECT_EQ(::listen(odd.socket, 8), 0);
  std::thread answer([&] {
    pollfd waiting = {odd.socket, POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kWaitMax).count())) != 1) {
      ADD_FAILURE() << "nobody has called";
      return;
    }
    const int caller = accept(odd.socket, nullptr, nullptr);
    HandshakeBytes bytes{};
    EXPECT_EQ(recv(caller, bytes.data(), bytes.size(), MSG_WAITALL),
              static_cast<ssize_t>(bytes.size()));
    auto handshake = decode(bytes, odd.key);
    ASSERT_TRUE(handshake.ok());
    handshake->sub_connections = 1;
    handshake->host = "odd";
    handshake->process = 42;
    handshake->address.bytes[1] = std::byte{0};  // A port where nobody is.
    handshake->address.bytes[2] = std::byte{1};
    const HandshakeBytes mine = encode(*handshake, odd.key);
    EXPECT_EQ(send(caller, mine.data(), mine.size(), 0), static_cast<ssize_t>(mine.size()));
    if (report) {
      const ReportBytes last = encode(*report);
      EXPECT_EQ(send(caller, last.data(), last.size(), 0), static_cast<ssize_t>(last.size()));
    }
    close(caller);
  });
  const std::string text = error_of(*network, odd.handle());
  answer.join();
  return text;
}

TEST(Network, AChannelIsMadeWhenDatagramsHavePassed) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment family("NCCL_SOCKET_FAMILY", "AF_INET");
  const ScopedEnvironment sub_connections("TUTTI_NET_SUB_CONNECTIONS", "1");
  EXPECT_EQ(
      said_after_handshake(ReachReport{.failure = "net: no UDP datagram of 10.0.0.1 arrives"}),
      "net: no UDP datagram of 10.0.0.1 arrives");
  EXPECT_EQ(said_after_handshake(std::nullopt),
            "net: odd, process 42 ended while the channel was made");
}

/// What a listener that strangers call says of them.
std::vector<std::string> said_of_strangers(int count, std::span<const std::byte> bytes) {
  std::vector<std::string> told;
  auto network = open_network([&told](LogKind, const std::string& text) { told.push_back(text); });
  EXPECT_TRUE(network.ok());
  auto listener = (*network)->listen(0);
  for (int i = 0; i < count; ++i) {
    const int stranger = call_as_stranger((*listener)->handle(), bytes);
    // Until he is sent away.
    char answer = 0;
    const auto end = Clock::now() + kWaitMax;
    while (recv(stranger, &answer, 1, MSG_DONTWAIT) < 0 && Clock::now() < end) {
      EXPECT_TRUE((*listener)->accept().ok());
    }
    close(stranger);
  }
  listener->reset();
  network->reset();
  std::erase_if(told, [](const std::string& text) {
    return text.find("net: refused a caller from 127.0.0.1:") != 0;
  });
  return told;
}

TEST(Network, AListenerSaysWhomItRefused) {
  const ScopedEnvironment interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedEnvironment family("NCCL_SOCKET_FAMILY", "AF_INET");
  Handshake handshake;
  handshake.host = "odd";
  handshake.process = 42;
  const std::vector<std::string> told = said_of_strangers(1, encode(handshake, {1, 2}));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("odd, process 42 has another key"), std::string::npos) << told[0];
  // One who calls for ever does not fill the log.
  EXPECT_EQ(said_of_strangers(30, encode(handshake, {1, 2})).size(), 8U);
}

TEST(Network, WhatDiffersIsToldOnce) {
  std::vector<std::string> told;
  auto few = open_network([&told](LogKind, const std::string& text) { told.push_back(text); });
  ASSERT_TRUE(few.ok());
  std::unique_ptr<Network> many;
  {
    const ScopedEnvironment paths("TUTTI_NET_CHUNK", "8K");
    many = make_network();
  }
  for (int i = 0; i < 3; ++i) {
    Pair pair;
    join(**few, *many, pair.send, pair.receive);
    ASSERT_NE(pair.receive, nullptr);
  }
  const auto differs = [](const std::string& text) {
    return text.find(" differs: ") != std::string::npos;
  };
  ASSERT_EQ(std::count_if(told.begin(), told.end(), differs), 1);
  const std::string text = *std::find_if(told.begin(), told.end(), differs);
  EXPECT_NE(text.find("net: " + host_name() + " differs: bytes of a chunk 8192 (here "),
            std::string::npos)
      << text;
}

/// A directory of its own, for files that variables name.
class NetworkFiles : public testing::Test {
 protected:
  NetworkFiles() {
    std::string name = testing::TempDir() + "tutti-network-XXXXXX";
    directory_ = mkdtemp(name.data()) == nullptr ? "" : name;
  }
  ~NetworkFiles() override { std::filesystem::remove_all(directory_); }

  std::string text_of(const std::string& file) const {
    std::ifstream input(directory_ + "/" + file);
    EXPECT_TRUE(input.is_open()) << file;
    return {std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  }

  std::string directory_;
  const std::string process_ = std::to_string(getpid());
};

TEST_F(NetworkFiles, MetricsOfEachNetworkTellWhatWasCarried) {
  const ScopedEnvironment metrics("TUTTI_METRICS", (directory_ + "/x.prom").c_str());
  // With nothing in shared memory they have memory of their own.
  const ScopedEnvironment statistics("TUTTI_NET_STATISTICS", "0");
  {
    Pair pair = make_pair();
    ASSERT_NE(pair.receive, nullptr);
    ASSERT_TRUE(pass(pair, 1'234'567));
  }
  const std::string both =
      text_of("x." + process_ + ".prom") + text_of("x." + process_ + ".2.prom");
  const std::regex sample(R"(\ntutti_engine_bytes_received_total\{.*\} ([0-9]+))");
  std::uint64_t received = 0;
  for (std::sregex_iterator it(both.begin(), both.end(), sample); it != std::sregex_iterator();
       ++it) {
    received += std::stoull((*it)[1]);
  }
  EXPECT_EQ(received, 1'234'567U) << both;
}

TEST_F(NetworkFiles, ATraceHasEveryRequest) {
  const ScopedEnvironment trace("TUTTI_TRACE", (directory_ + "/t.%p.json").c_str());
  for (const std::string& number : {std::string(), std::string(".3")}) {
    {
      Pair pair = make_pair();
      ASSERT_NE(pair.receive, nullptr);
      for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(pass(pair, 1'000));
      }
    }
    // The network that listens comes first. Those of the next pair have names of their own.
    const auto document =
        nlohmann::json::parse(text_of("t." + process_ + number + ".json"), nullptr, false);
    ASSERT_FALSE(document.is_discarded());
    std::size_t requests = 0;
    for (const auto& event : document["traceEvents"]) {
      requests += event["ph"] == "X" && event["name"] == "irecv" ? 1 : 0;
      if (event["ph"] == "X") {
        EXPECT_EQ(event["args"], (nlohmann::json{{"bytes", 1000}, {"outcome", "ok"}}));
      }
    }
    EXPECT_EQ(requests, 100U);
  }
}

TEST_F(NetworkFiles, TheyStayWhereTheyAreThoughTheProgramGoesElsewhere) {
  const ScopedEnvironment metrics("TUTTI_METRICS", "x.prom");
  const ScopedEnvironment trace("TUTTI_TRACE", "t.json");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_);
  const auto network = make_network();
  EXPECT_TRUE(network->listen(0).ok());
  std::filesystem::create_directory("elsewhere");
  std::filesystem::current_path("elsewhere");
  network->finish_watch();
  std::filesystem::current_path(before);
  EXPECT_NE(text_of("x." + process_ + ".prom"), "");
  EXPECT_NE(text_of("t." + process_ + ".json"), "");
  EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/elsewhere"));
}

/// A pipe that nobody reads: it does not even open.
TEST_F(NetworkFiles, ADiskThatHangsHoldsUpNobody) {
  const std::string file = directory_ + "/pipe." + process_;
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  const ScopedEnvironment trace("TUTTI_TRACE", (directory_ + "/pipe.%p").c_str());
  auto begun = Clock::now();
  Pair pair = make_pair();
  ASSERT_NE(pair.receive, nullptr);
  EXPECT_TRUE(pass(pair, 1'000));
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(2));
  begun = Clock::now();
  pair.a->finish_watch();
  pair.b->finish_watch();
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(4));
  // Who was left behind ends the file once it can.
  const std::string text = text_of("pipe." + process_);
  EXPECT_FALSE(nlohmann::json::parse(text, nullptr, false).is_discarded()) << text;
}

TEST_F(NetworkFiles, AFileThatCannotBeWrittenIsAnErrorWithItsVariable) {
  for (const char* const variable : {"TUTTI_METRICS", "TUTTI_TRACE"}) {
    for (const std::string& value : {directory_ + "/none/x", directory_ + "/"}) {
      const ScopedEnvironment set(variable, value.c_str());
      const auto network = open_network([](LogKind, const std::string&) {});
      EXPECT_EQ(network.status().code(), ErrorCode::kInvalidConfig);
      const std::string& words = network.status().message();
      EXPECT_TRUE(words.starts_with(variable)) << words;
      EXPECT_NE(words.find(directory_), std::string::npos) << words;
      EXPECT_NE(words.find("name a file in"), std::string::npos) << words;
    }
  }
}

TEST(Network, AHandleOfAnotherKindIsAnError) {
  const auto a = make_network();
  const auto connector = a->connect(0, Handle(), kDefaultClass);
  EXPECT_EQ(connector.status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(a->connect(7, Handle(), kDefaultClass).status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tutti::net
