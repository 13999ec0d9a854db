// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A channel of several sub-connections: both its ends on the same engines, one wire in memory for
// each sub-connection.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "net/channel.hpp"
#include "net/engine.hpp"
#include "net/split_connection.hpp"
#include "support/memory_wire.hpp"
#include "support/sanitized.hpp"

namespace tutti::net {
namespace {

using transport::ReceivePart;
using transport::SplitReceive;
using wire::testing::MemoryNetwork;
using wire::testing::MemoryWire;
using Clock = std::chrono::steady_clock;

constexpr auto kWaitMax = std::chrono::seconds(20);
constexpr Bytes kUnit = 16'384;

TEST(SharedReceives, find__what_is_open_and_nothing_else) {
  SharedReceives receives;
  std::byte byte{};
  SplitReceive found;
  EXPECT_FALSE(receives.find(7, found));
  receives.open(7, {.data = &byte, .capacity_bytes = 5, .context = 9});
  EXPECT_FALSE(receives.is_free(7));
  EXPECT_FALSE(receives.is_free(7 + SharedReceives::kCount));
  EXPECT_TRUE(receives.is_free(8));
  ASSERT_TRUE(receives.find(7, found));
  EXPECT_EQ(found.data, &byte);
  EXPECT_EQ(found.capacity_bytes, 5U);
  EXPECT_EQ(found.context, 9U);
  EXPECT_FALSE(receives.find(7 + SharedReceives::kCount, found));
  EXPECT_EQ(found.slot, 7U);
  EXPECT_TRUE(receives.close(7));
  EXPECT_FALSE(receives.find(7, found));
  EXPECT_TRUE(receives.is_free(7));
  receives.open(7, {.data = &byte, .capacity_bytes = 5, .context = 9});
  EXPECT_FALSE(receives.close(7));  // Nobody has found it this time.
}

TEST(SharedReceives, find__by_the_low_half_of_a_number) {
  SharedReceives receives;
  std::byte byte{};
  SplitReceive found;
  EXPECT_FALSE(receives.find(UINT32_MAX, found));
  constexpr std::uint64_t kSlot = (7ULL << 32) + (1ULL << 31) + 5;
  receives.open(kSlot, {.data = &byte, .capacity_bytes = 5, .context = 9});
  EXPECT_FALSE(receives.find(5, found));
  ASSERT_TRUE(receives.find((1U << 31) + 5, found));
  EXPECT_EQ(found.slot, kSlot);
}

/// Loses everything from a moment on.
struct Ears {
  std::atomic<bool> are_deaf = false;
  std::atomic<std::int64_t> packets = INT64_MAX;  ///< Until they are.
};
class DeafWire : public MemoryWire {
 public:
  DeafWire(MemoryNetwork* network, Ears* ears) : MemoryWire(network), ears_(ears) {}
  bool send(const transport::Transmission& packet) override {
    if (!ears_->are_deaf && --ears_->packets < 0) {
      ears_->are_deaf = true;
    }
    return ears_->are_deaf || MemoryWire::send(packet);
  }

 private:
  Ears* ears_;
};

struct Setting {
  bool is_busy = false;
  std::uint32_t sub_connections = 2;
};

class SplitConnectionTest : public testing::TestWithParam<Setting> {
 protected:
  SplitConnectionTest() : networks_(kSubConnectionsMax), ears_(kSubConnectionsMax) {
    for (std::uint32_t i = 0; i < count(); ++i) {
      EngineOptions options;
      options.is_busy = GetParam().is_busy;
      options.number = i;
      engines_.push_back(
          std::make_unique<Engine>(std::make_unique<DeafWire>(&networks_[i], &ears_[i]), options));
      EXPECT_TRUE(engines_.back()->start().ok());
    }
    sends_ = make(true, sends_control_);
    receives_ = make(false, receives_control_);
  }

  ~SplitConnectionTest() override {
    sends_.reset();
    receives_.reset();
    for (const auto& engine : engines_) {
      engine->stop();
    }
    close(sends_control_);
    close(receives_control_);
  }

  static std::uint32_t count() { return GetParam().sub_connections; }

  transport::ConnectionOptions options_of(bool sends, std::uint32_t number) const {
    transport::ConnectionOptions options;
    options.local_id = 2 * number + (sends ? 1 : 2);
    options.remote_id = 2 * number + (sends ? 2 : 1);
    options.local_incarnation = options.local_id;
    options.remote_incarnation = options.remote_id;
    options.wire = MemoryNetwork::default_capabilities();
    options.sends = sends;
    options.receives = !sends;
    options.loss.give_up_ns = give_up_ns_;
    options.loss.rto_ns_min = 5'000'000;
    return options;
  }

  /// `far_end`: the peer's end of the control connection.
  std::unique_ptr<ConnectionChannel> make(bool sends, int& far_end, std::uint32_t number = 0) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    far_end = ends[1];
    std::vector<Engine*> engines;
    for (const auto& engine : engines_) {
      engines.push_back(engine.get());
    }
    auto split = std::make_shared<SplitConnection>(engines, kUnit);
    SubConnection* sub = nullptr;
    for (std::uint32_t i = count(); i-- > 0;) {
      transport::ConnectionOptions options = options_of(sends, number);
      options.split_receives = sends || i == 0 ? nullptr : &split->sources[i];
      const auto attached = engines_[i]->attach(options, {engines_[i]->address(), 1, "host c"},
                                                i == 0 ? ends[0] : -1, split);
      EXPECT_TRUE(attached.ok()) << attached.status().message();
      sub = *attached;
    }
    return std::make_unique<ConnectionChannel>(sub, split);
  }

  Request* send(const std::vector<std::byte>& data, transport::Tag tag = 0) {
    auto request = sends_->send(tag, data.data(), data.size());
    EXPECT_TRUE(request.ok()) << request.status().message();
    return request.ok() ? *request : nullptr;
  }

  Request* receive(std::vector<std::byte>& into, transport::Tag tag = 0) {
    const ReceivePart part{.tag = tag, .data = into.data(), .capacity_bytes = into.size()};
    auto request = receives_->receive({&part, 1});
    EXPECT_TRUE(request.ok()) << request.status().message();
    return request.ok() ? *request : nullptr;
  }

  static Completion wait(Request* request) {
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

  static std::vector<std::byte> content(std::uint64_t seed, std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      out[i] = static_cast<std::byte>(draw(seed, 0, i / 8) >> (i % 8 * 8));
    }
    return out;
  }

  /// What an engine's report says under a name.
  std::uint64_t report_of(std::size_t engine, const std::string& name) {
    const std::string report = engines_[engine]->report();
    const std::size_t at = report.find(name + " ");
    EXPECT_NE(at, std::string::npos) << report;
    return std::stoull(report.substr(at + name.size() + 1));
  }

  std::int64_t give_up_ns_ = 300'000'000;
  std::vector<MemoryNetwork> networks_;
  std::vector<Ears> ears_;
  std::vector<std::unique_ptr<Engine>> engines_;
  int sends_control_ = -1;
  int receives_control_ = -1;
  std::unique_ptr<ConnectionChannel> sends_;
  std::unique_ptr<ConnectionChannel> receives_;
};

TEST_P(SplitConnectionTest, LongMessagesAreSharedAndShortOnesAreNot) {
  const std::vector<std::byte> little = content(1, kUnit - 1);
  std::vector<std::byte> into(kUnit * 20);
  Request* const first = receive(into);
  Request* const sent = send(little);
  EXPECT_EQ(wait(first).bytes[0], little.size());
  EXPECT_TRUE(wait(sent).status.ok());
  EXPECT_GT(report_of(0, "chunks sent"), 0U);
  for (std::size_t i = 1; i < engines_.size(); ++i) {
    EXPECT_EQ(report_of(i, "datagrams sent"), 0U);
    EXPECT_EQ(report_of(i, "chunks sent"), 0U);
  }
  const std::vector<std::byte> much = content(2, kUnit * 20);
  Request* const second = receive(into);
  Request* const shared = send(much);
  EXPECT_EQ(wait(second).bytes[0], much.size());
  EXPECT_EQ(wait(shared).bytes[0], much.size());
  EXPECT_EQ(into, much);
  for (std::size_t i = 1; i < engines_.size(); ++i) {
    EXPECT_GE(report_of(i, "chunks sent"), kUnit * (20 / count()) / 8192);
  }
}

TEST_P(SplitConnectionTest, ManyOfAllSizesInGroups) {
  constexpr std::size_t kMessages = 400;
  constexpr std::size_t kGroup = 4;
  std::vector<std::vector<std::byte>> data;
  std::vector<std::vector<std::byte>> into;
  for (std::size_t i = 0; i < kMessages; ++i) {
    // Empty ones, those around a unit, around all sub-connections' first units, and long ones.
    const std::size_t edge = kUnit * (i % 7) + i % 3;
    data.push_back(content(i, edge == 0 ? 0 : edge - 1));
    into.emplace_back(data.back().size() + (i % 5 == 0 ? 3 * kUnit : 0));
  }
  std::vector<Request*> receives;
  std::vector<Request*> sends;
  std::size_t finished = 0;
  for (std::size_t i = 0; i < kMessages; i += kGroup) {
    std::array<ReceivePart, kGroup> parts;
    for (std::size_t j = 0; j < kGroup; ++j) {
      parts[j] = {.tag = static_cast<transport::Tag>(j),
                  .data = into[i + j].data(),
                  .capacity_bytes = into[i + j].size()};
    }
    Result<Request*> request = receives_->receive(parts);
    while (request.ok() && *request == nullptr) {
      EXPECT_TRUE(wait(receives[finished++]).status.ok());
      request = receives_->receive(parts);
    }
    ASSERT_TRUE(request.ok());
    receives.push_back(*request);
    for (std::size_t j = 0; j < kGroup; ++j) {
      const std::size_t at = i + (j ^ 3);
      sends.push_back(send(data[at], static_cast<transport::Tag>(at % kGroup)));
      ASSERT_NE(sends.back(), nullptr);
      if (sends.size() > 100) {
        EXPECT_TRUE(wait(sends[sends.size() - 101]).status.ok());
      }
    }
  }
  for (; finished < receives.size(); ++finished) {
    const Completion done = wait(receives[finished]);
    EXPECT_TRUE(done.status.ok());
    EXPECT_EQ(done.parts, kGroup);
  }
  for (std::size_t i = sends.size() - 100; i < sends.size(); ++i) {
    EXPECT_TRUE(wait(sends[i]).status.ok());
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(std::equal(data[i].begin(), data[i].end(), into[i].begin())) << i;
  }
}

TEST_P(SplitConnectionTest, AReceiveWaitsUntilItsNumberIsFree) {
  // One that nobody answers keeps its number: those of the same place, a round later, must wait.
  std::vector<std::byte> first(kUnit);
  Request* const open = receive(first, 1);
  std::vector<std::byte> little(8);
  const std::vector<std::byte> data(8, std::byte{5});
  for (std::size_t i = 1; i < SharedReceives::kCount; ++i) {
    Request* const request = receive(little);
    Request* const sent = send(data);
    ASSERT_NE(request, nullptr);
    EXPECT_TRUE(wait(request).status.ok());
    EXPECT_TRUE(wait(sent).status.ok());
  }
  EXPECT_EQ(receive(little), nullptr);
  Request* const sent = send(first, 1);
  EXPECT_TRUE(wait(open).status.ok());
  EXPECT_TRUE(wait(sent).status.ok());
  EXPECT_NE(receive(little), nullptr);
}

TEST_P(SplitConnectionTest, TooLongAMessageIsAnErrorOnBothSidesAndNothingElse) {
  const std::vector<std::byte> data = content(3, 10 * kUnit);
  std::vector<std::byte> into(10 * kUnit - 1, std::byte{7});
  Request* const receives = receive(into);
  Request* const sends = send(data);
  EXPECT_EQ(wait(receives).status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(wait(sends).status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(into, std::vector<std::byte>(10 * kUnit - 1, std::byte{7}));
  into.push_back({});
  Request* const again = receive(into);
  Request* const once_more = send(data);
  EXPECT_TRUE(wait(again).status.ok());
  EXPECT_TRUE(wait(once_more).status.ok());
  EXPECT_EQ(into, data);
}

TEST_P(SplitConnectionTest, ARefusedReceiveTakesNoNumber) {
  const std::vector<std::byte> data = content(3, 10 * kUnit);
  std::vector<std::byte> into(data.size());
  const std::array<ReceivePart, 2> parts{
      ReceivePart{.tag = 1, .data = into.data(), .capacity_bytes = into.size()},
      ReceivePart{
          .tag = 2, .data = into.data(), .capacity_bytes = transport::kMessageBytesMax + 1}};
  EXPECT_EQ(receives_->receive(parts).status().code(), ErrorCode::kInvalidArgument);
  Request* const received = receive(into);
  Request* const sent = send(data);
  EXPECT_TRUE(wait(received).status.ok());
  EXPECT_TRUE(wait(sent).status.ok());
  EXPECT_EQ(into, data);
}

TEST_P(SplitConnectionTest, ASubConnectionThatIsDeadEndsAllOfThem) {
  const std::uint32_t dead = count() - 1;
  const std::vector<std::byte> data = content(4, 40 * kUnit);
  std::vector<std::byte> into(data.size());
  ears_[dead].are_deaf = true;
  Request* const receives = receive(into);
  Request* const sends = send(data);
  std::vector<std::byte> little(8);
  Request* const unanswered = receive(little, 9);
  EXPECT_EQ(wait(sends).status.code(), ErrorCode::kTimeout);
  EXPECT_EQ(wait(receives).status.code(), ErrorCode::kTimeout);
  EXPECT_EQ(wait(unanswered).status.code(), ErrorCode::kTimeout);
  EXPECT_FALSE(sends_->send(0, data.data(), data.size()).ok());
}

TEST_P(SplitConnectionTest, AReceiverWhosePeerFallsSilentGivesUp) {
  // Sub-connection 0 has its part, and the others wait.
  for (std::uint32_t i = 1; i < count(); ++i) {
    ears_[i].are_deaf = true;
  }
  const std::vector<std::byte> data = content(4, 40 * kUnit);
  std::vector<std::byte> into(data.size());
  Request* const receives = receive(into);
  ASSERT_NE(send(data), nullptr);
  const auto end = Clock::now() + kWaitMax;
  while (report_of(0, "received") < 40 / count() && Clock::now() < end) {
    Completion completion;
    ASSERT_FALSE(test(receives, &completion));
  }
  ears_[0].are_deaf = true;
  EXPECT_EQ(wait(receives).status.code(), ErrorCode::kTimeout);
}

TEST_P(SplitConnectionTest, APeerThatIsGoneEndsAllOfThem) {
  std::vector<std::byte> into(40 * kUnit);
  Request* const receives = receive(into);
  Request* const little = receive(into, 3);
  shutdown(receives_control_, SHUT_RDWR);
  for (Request* const request : {receives, little}) {
    const Completion done = wait(request);
    EXPECT_EQ(done.status.code(), ErrorCode::kTimeout);
    EXPECT_NE(done.status.message().find("its process ended"), std::string::npos)
        << done.status.message();
  }
  const ReceivePart part{.data = into.data(), .capacity_bytes = into.size()};
  EXPECT_FALSE(receives_->receive({&part, 1}).ok());
}

TEST_P(SplitConnectionTest, AChannelThatGoesAmidAMessageLeavesItsBuffersAlone) {
  for (std::uint64_t i = 0; i < (kIsSanitized ? 8 : 20); ++i) {
    const std::vector<std::byte> data = content(i, 100 * kUnit);
    std::vector<std::byte> into(data.size());
    Request* const receives = receive(into);
    Request* const sends = send(data);
    const auto moment = Clock::now() + std::chrono::microseconds(draw(8, 0, i) % 2000);
    while (Clock::now() < moment && !has_ended(receives)) {
      Completion completion;
      if (i % 2 == 0 && test(sends, &completion)) {
        break;
      }
    }
    (i % 4 < 2 ? sends_ : receives_).reset();
    if (i % 4 < 2) {
      const Completion done = wait(receives);
      EXPECT_TRUE(done.status.ok() || done.status.code() == ErrorCode::kTimeout);
      EXPECT_TRUE(!done.status.ok() || into == data);
    } else {
      const std::vector<std::byte> then = into;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_EQ(into, then);
    }
    sends_.reset();
    receives_.reset();
    for (const int control : {sends_control_, receives_control_}) {
      close(control);
    }
    // Ids are in use until the last ones are forgotten: other engines.
    for (const auto& engine : engines_) {
      engine->stop();
    }
    engines_.clear();
    for (std::uint32_t sub = 0; sub < count(); ++sub) {
      EngineOptions options;
      options.is_busy = GetParam().is_busy;
      engines_.push_back(std::make_unique<Engine>(
          std::make_unique<DeafWire>(&networks_[sub], &ears_[sub]), options));
      ASSERT_TRUE(engines_.back()->start().ok());
    }
    sends_ = make(true, sends_control_);
    receives_ = make(false, receives_control_);
  }
}

TEST_P(SplitConnectionTest, AnOrderlyEndIsAnErrorForWhatIsOpen) {
  std::vector<std::byte> into(40 * kUnit);
  Request* const receives = receive(into);
  const char close_byte = 'B';
  ASSERT_EQ(::send(receives_control_, &close_byte, 1, 0), 1);
  sends_.reset();
  EXPECT_EQ(wait(receives).status.code(), ErrorCode::kTimeout);
}

TEST_P(SplitConnectionTest, AnOrderlyEndThatOneSubConnectionMissesIsAnErrorForWhatIsOpen) {
  std::vector<std::byte> into(40 * kUnit);
  Request* const receives = receive(into);
  const char close_byte = 'B';
  ASSERT_EQ(::send(receives_control_, &close_byte, 1, 0), 1);
  ears_[count() - 1].are_deaf = true;
  sends_.reset();
  shutdown(receives_control_, SHUT_RDWR);
  EXPECT_EQ(wait(receives).status.code(), ErrorCode::kTimeout);
}

TEST_P(SplitConnectionTest, AReceiversOrderlyEndThatOneSubConnectionMissesIsAnErrorForWhatIsOpen) {
  const std::vector<std::byte> data = content(6, 40 * kUnit);
  Request* const sends = send(data);
  const char close_byte = 'B';
  ASSERT_EQ(::send(sends_control_, &close_byte, 1, 0), 1);
  ears_[count() - 1].are_deaf = true;
  receives_.reset();
  shutdown(sends_control_, SHUT_RDWR);
  EXPECT_EQ(wait(sends).status.code(), ErrorCode::kTimeout);
}

/// A peer that sends what it likes on each sub-connection.
class Rogue : public SplitConnectionTest {
 protected:
  Rogue() {
    give_up_ns_ = 30'000'000'000;  // Nobody gives up while a processor is with others.
    receives_.reset();
    close(receives_control_);
    receives_ = make(false, receives_control_, 1);
    for (std::uint32_t i = 0; i < count(); ++i) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      far_ends_.push_back(ends[1]);
      const auto sub =
          engines_[i]->attach(options_of(true, 1), {engines_[i]->address(), 1, "a rogue"}, ends[0]);
      EXPECT_TRUE(sub.ok()) << sub.status().message();
      subs_.push_back(*sub);
    }
  }
  ~Rogue() override {
    for (std::uint32_t i = 0; i < count(); ++i) {
      engines_[i]->detach(subs_[i], true);
      close(far_ends_[i]);
    }
  }

  void post(std::uint32_t sub, Request& request, std::vector<std::byte>& data,
            std::uint64_t slot = transport::kNoSlot) {
    request.sub = subs_[sub];
    request.is_send = true;
    request.send = {.data = data.data(),
                    .bytes = data.size(),
                    .context = reinterpret_cast<std::uint64_t>(&request),
                    .slot = slot};
    engines_[sub]->post(&request);
  }

  /// Sub-connection 1 brings some of what sub-connection 0 then says is a short message. It is here
  /// when this returns.
  Request* begin() {
    ears_[1].packets = 6;
    Request* const received = receive(into_);
    post(1, on_one_, much_, transport::ConnectionOptions().first_number);
    const auto end = Clock::now() + kWaitMax;
    while (report_of(1, "received") == 0 || !ears_[1].are_deaf) {
      engines_[1]->help();
      EXPECT_LT(Clock::now(), end);
    }
    post(0, on_zero_, little_);
    while (!has_ended(received)) {
      engines_[0]->help();
      EXPECT_LT(Clock::now(), end);
    }
    return received;
  }

  /// The rest of it comes, and its buffer is left alone.
  void go_on() {
    into_.assign(into_.size(), std::byte{7});
    ears_[1].packets = INT64_MAX;
    ears_[1].are_deaf = false;
    const auto end = Clock::now() + std::chrono::seconds(2);
    while (report_of(1, "malformed") == 0 && Clock::now() < end) {
      engines_[1]->help();
    }
    EXPECT_GT(report_of(1, "malformed"), 0U);
    EXPECT_EQ(into_, std::vector<std::byte>(into_.size(), std::byte{7}));
  }

  std::vector<std::byte> into_ = std::vector<std::byte>(800 * kUnit);
  std::vector<std::byte> much_ = std::vector<std::byte>(80 * kUnit);
  std::vector<std::byte> little_ = std::vector<std::byte>(8);
  Request on_zero_;
  Request on_one_;
  std::vector<SubConnection*> subs_;
  std::vector<int> far_ends_;
};

TEST_P(Rogue, MoreOfAMessageThatIsDoneIsRefused) {
  EXPECT_EQ(wait(begin()).parts, 1);
  go_on();
}

TEST_P(Rogue, MoreOfAMessageOfAChannelThatIsGoneIsRefused) {
  ASSERT_NE(begin(), nullptr);
  receives_.reset();
  go_on();
}

TEST_P(Rogue, AWholeShareOfAMessageThatIsShortIsAnError) {
  Request* const received = receive(into_);
  std::vector<std::byte> share(100);
  post(1, on_one_, share, transport::ConnectionOptions().first_number);
  const auto end = Clock::now() + kWaitMax;
  while (report_of(1, "received") == 0 && Clock::now() < end) {
    engines_[1]->help();
  }
  engines_[1]->wait_for_round();
  post(0, on_zero_, little_);
  while (!has_ended(received)) {
    engines_[0]->help();
    engines_[1]->help();
    ASSERT_LT(Clock::now(), end);
  }
  EXPECT_EQ(wait(received).status.code(), ErrorCode::kTimeout);
}

INSTANTIATE_TEST_SUITE_P(All, Rogue, testing::Values(Setting{false, 2}, Setting{true, 4}),
                         [](const testing::TestParamInfo<Setting>& it) {
                           return std::string(it.param.is_busy ? "busy" : "shared") +
                                  std::to_string(it.param.sub_connections);
                         });

INSTANTIATE_TEST_SUITE_P(All, SplitConnectionTest,
                         testing::Values(Setting{false, 2}, Setting{false, 4}, Setting{true, 2},
                                         Setting{true, 8}),
                         [](const testing::TestParamInfo<Setting>& it) {
                           return std::string(it.param.is_busy ? "busy" : "shared") +
                                  std::to_string(it.param.sub_connections);
                         });

}  // namespace
}  // namespace tutti::net
