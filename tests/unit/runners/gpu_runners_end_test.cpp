// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The end that both GPU runners have in common: calls of our kernels and of a fake of the library
// behind each other on streams of the host device, where one of them is ended.
#include "runners/stream_calls.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runners/ccl/ccl_runner.hpp"
#include "runners/direct/direct_runner.hpp"
#include "support/host_device/host_device.hpp"

namespace tutti::runners {
namespace {

using namespace std::chrono_literals;
Status failure(const std::string& text) { return {ErrorCode::kTimeout, text}; }

/// One communicator of one rank. Its calls run in the order of the host device's streams. One that
/// begins counts as sent and stays until it is let go or aborted; one that begins after the abort
/// sends nothing. An abort takes its time before and after, and as NCCL's it waits for all that is
/// queued.
class HeldLibrary : public ccl::CclLibrary {
 public:
  ~HeldLibrary() override {
    while (aborts_begun != aborts_ended) {
      std::this_thread::sleep_for(1ms);
    }
  }
  const char* name() const override { return "held"; }
  std::string path() const override { return {}; }
  std::string found_by() const override { return {}; }
  int version() const override { return ccl::kMinimumVersion; }
  Result<ccl::UniqueId> unique_id() override { return ccl::UniqueId{}; }
  Result<ccl::CclComm> init_rank(int, const ccl::UniqueId&, int, double, device::Api*,
                                 int) override {
    return ccl::CclComm(this);
  }
  Status destroy(ccl::CclComm) override {
    if (on_destroy) {
      on_destroy();
    }
    return {};
  }
  Status abort(ccl::CclComm) override {
    ++aborts_begun;
    std::this_thread::sleep_for(30ms);
    is_aborted = true;
    while (queued > 0) {
      std::this_thread::sleep_for(1ms);
    }
    std::this_thread::sleep_for(30ms);
    ++aborts_ended;
    return {};
  }
  Status async_error(ccl::CclComm communicator) override {
    return communicator == nullptr || has_error
               ? Status(ErrorCode::kLibraryFailed, "held: an error behind our back")
               : Status();
  }
  Status all_reduce(const void*, void*, std::size_t, ccl::NcclType, ccl::NcclOp, ccl::CclComm,
                    device::Stream stream) override {
    ++queued;
    tutti_host_device_enqueue(
        stream,
        [](void* library) {
          auto& self = *static_cast<HeldLibrary*>(library);
          self.sent += self.is_aborted ? 0 : 1;
          while (!self.is_aborted && !self.is_let_go) {
            std::this_thread::sleep_for(1ms);
          }
          --self.queued;
        },
        this);
    return {};
  }
  Status broadcast(const void*, void*, std::size_t, ccl::NcclType, int, ccl::CclComm,
                   device::Stream) override {
    return none();
  }
  Status reduce(const void*, void*, std::size_t, ccl::NcclType, ccl::NcclOp, int, ccl::CclComm,
                device::Stream) override {
    return none();
  }
  Status all_gather(const void*, void*, std::size_t, ccl::NcclType, ccl::CclComm,
                    device::Stream) override {
    return none();
  }
  Status reduce_scatter(const void*, void*, std::size_t, ccl::NcclType, ccl::NcclOp, ccl::CclComm,
                        device::Stream) override {
    return none();
  }
  Status send(const void*, std::size_t, ccl::NcclType, int, ccl::CclComm, device::Stream) override {
    return none();
  }
  Status recv(void*, std::size_t, ccl::NcclType, int, ccl::CclComm, device::Stream) override {
    return none();
  }
  Status group_start() override { return none(); }
  Status group_end() override { return none(); }

  std::function<void()> on_destroy;
  std::atomic<bool> is_let_go{false};
  std::atomic<bool> has_error{false};
  std::atomic<bool> is_aborted{false};
  std::atomic<int> sent{0};
  std::atomic<int> queued{0};
  std::atomic<int> aborts_begun{0};
  std::atomic<int> aborts_ended{0};

 private:
  static Status none() { return {ErrorCode::kUnsupported, "not held"}; }
};

/// Knows its rank and nothing else.
class PlacedBootstrap : public Bootstrap {
 public:
  PlacedBootstrap(int rank, int ranks) : place_{rank, ranks} {}
  Status allgather(const void*, void*, Bytes) override { return none(); }
  Status max_in_place(std::uint64_t*, int) override { return none(); }
  Status make_scopes(int) override { return none(); }
  ScopeRank scope_rank(Scope) const override { return place_; }

 private:
  static Status none() { return {ErrorCode::kUnsupported, "nobody to ask"}; }
  ScopeRank place_;
};

/// One round: what a rank sends as it begins is all that its peer waits for.
constexpr std::uint64_t kCount = 8;

/// A rank of two with both runners; its arena is open once both have joined.
struct BothRank {
  BothRank(device::Api& own_api, int own_rank, double timeout_s)
      : api(own_api), rank(own_rank), bootstrap(own_rank, 2), scratch(&own_api, Bytes{1} << 20) {
    auto made =
        DirectRunner::create(api, rank, {.rank = rank, .ranks = 2}, scratch,
                             {.timeout_s = timeout_s, .wire = {}, .tuning = {}, .calls = calls});
    EXPECT_TRUE(made.ok()) << made.status().message();
    direct = std::move(*made);
    library_runner =
        std::make_unique<CclRunner>(library, api, rank, bootstrap, scratch, timeout_s, calls);
    EXPECT_TRUE(library_runner->init_scope(Scope::kWhole, {}).ok());
    for (device::Stream& stream : streams) {
      stream = *api.create_stream(rank);
    }
    data = *api.allocate_device(rank, kCount * 8);
  }
  ~BothRank() {
    direct.reset();
    library_runner.reset();
    for (const device::Stream stream : streams) {
      EXPECT_TRUE(api.destroy_stream(stream).ok());
    }
    EXPECT_TRUE(api.free_device(data).ok());
  }
  BothRank(const BothRank&) = delete;
  BothRank& operator=(const BothRank&) = delete;

  Call call() const {
    Call sum;
    sum.type = select::DataType::kInt64;
    sum.op = select::ReduceOp::kSum;
    sum.element_bytes = 8;
    sum.count = kCount;
    sum.send = sum.recv = data;
    sum.in_place = true;
    sum.send_memory = sum.recv_memory = {device::MemoryKind::kDevice, rank};
    return sum;
  }
  Status ours(device::Stream stream) const { return direct->enqueue(call(), stream); }
  Status its(device::Stream stream) const {
    return library_runner->enqueue_on(call(), stream, /*is_captured=*/false);
  }
  void wait() const {
    for (const device::Stream stream : streams) {
      EXPECT_TRUE(api.wait_stream(stream).ok());  // As the application would.
    }
  }

  device::Api& api;
  const int rank;
  PlacedBootstrap bootstrap;
  Scratch scratch;
  HeldLibrary library;
  std::shared_ptr<StreamCalls> calls = std::make_shared<StreamCalls>();
  std::unique_ptr<CclRunner> library_runner;
  std::unique_ptr<DirectRunner> direct;
  std::array<device::Stream, 2> streams{};
  void* data = nullptr;
};

class BothCarriers : public ::testing::Test {
 protected:
  void start(double timeout_s, double peer_timeout_s = 0.5) {
    self_ = std::make_unique<BothRank>(*api_, 0, timeout_s);
    peer_ = std::make_unique<BothRank>(*api_, 1, peer_timeout_s);
    void* const arenas[] = {self_->direct->arena(), peer_->direct->arena()};
    for (BothRank* rank : {self_.get(), peer_.get()}) {
      const Status opened = rank->direct->open_arenas(arenas);
      ASSERT_TRUE(opened.ok()) << opened.message();
    }
    peer_->library.is_let_go = true;  // Its calls go well.
  }
  /// The peer comes late, with calls of its own that are as those of rank 0 were. It must wait in
  /// vain for what rank 0 was kept from sending.
  void expect_nothing_for_the_peer(int calls) {
    ASSERT_TRUE(peer_->its(peer_->streams[0]).ok());
    for (int call = 0; call < calls; ++call) {
      ASSERT_TRUE(peer_->ours(peer_->streams[0]).ok());
    }
    peer_->wait();
    const Status status = peer_->calls->status(/*wait=*/true);
    EXPECT_EQ(status.code(), ErrorCode::kTimeout) << status.message();
  }

  std::unique_ptr<device::Api> api_ = device::open("host", nullptr);
  std::unique_ptr<BothRank> self_;
  std::unique_ptr<BothRank> peer_;
};

TEST_F(BothCarriers, well__calls_in_turn) {
  start(20, 20);
  self_->library.is_let_go = true;
  std::vector<std::thread> threads;
  for (BothRank* rank : {self_.get(), peer_.get()}) {
    threads.emplace_back([rank] {
      std::vector<std::int64_t> values(kCount, rank->rank + 1);
      ASSERT_TRUE(rank->api.copy(rank->data, values.data(), kCount * 8).ok());
      for (std::size_t turn = 0; turn < 12; ++turn) {
        const device::Stream stream = rank->streams[turn / 2 % 2];
        ASSERT_TRUE((turn % 3 == 0 ? rank->its(stream) : rank->ours(stream)).ok());
      }
      EXPECT_TRUE(rank->calls->status(/*wait=*/true).ok());
      ASSERT_TRUE(rank->api.copy(values.data(), rank->data, kCount * 8).ok());
      EXPECT_EQ(values, std::vector<std::int64_t>(kCount, 3 << 7));  // Eight sums of ours.
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(self_->library.sent, 4);
  EXPECT_TRUE(self_->calls->reason().ok());
}

TEST_F(BothCarriers, destroy__is_called_with_the_communicators_device) {
  start(0.5);
  const auto current = [&] {
    void* const previous = *api_->make_current(0);
    api_->restore_current(previous);
    return previous;
  };
  void* wanted = nullptr;
  {
    const auto scope = device::CurrentDevice::set(*api_, peer_->rank);
    wanted = current();
  }
  ASSERT_NE(current(), wanted);
  void* found = nullptr;
  peer_->library.on_destroy = [&] { found = current(); };
  peer_.reset();
  EXPECT_EQ(found, wanted);
}

/// That the tests below would see it.
TEST_F(BothCarriers, time_out_of_our_call__what_it_sent_reaches_a_peer_that_comes_late) {
  start(0.3, 20);
  ASSERT_TRUE(self_->ours(self_->streams[0]).ok());
  self_->wait();
  EXPECT_FALSE(self_->calls->status(/*wait=*/true).ok());
  ASSERT_TRUE(peer_->ours(peer_->streams[0]).ok());
  peer_->wait();
  const Status status = peer_->calls->status(/*wait=*/true);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(BothCarriers, time_out_of_the_librarys_call__ours_behind_it_send_nothing) {
  start(0.3);
  ASSERT_TRUE(self_->its(self_->streams[0]).ok());
  ASSERT_TRUE(self_->ours(self_->streams[0]).ok());
  ASSERT_TRUE(self_->ours(self_->streams[1]).ok());
  self_->wait();
  EXPECT_EQ(self_->library.sent, 1);  // It had begun.
  const Status status = self_->calls->status(/*wait=*/true);
  EXPECT_EQ(status.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(status.message().starts_with("held: a call on a stream")) << status.message();
  expect_nothing_for_the_peer(1);
}

TEST_F(BothCarriers, time_out_of_our_call__the_librarys_behind_it_is_not_carried_out) {
  start(0.3);
  ASSERT_TRUE(self_->ours(self_->streams[0]).ok());
  ASSERT_TRUE(self_->its(self_->streams[0]).ok());
  ASSERT_TRUE(self_->its(self_->streams[1]).ok());
  self_->wait();
  EXPECT_EQ(self_->library.sent, 0);
  EXPECT_EQ(self_->library.aborts_begun, 1);
  const Status status = self_->calls->status(/*wait=*/true);
  EXPECT_TRUE(status.message().starts_with("direct: a call on a stream")) << status.message();
}

/// The library fails behind a kernel of ours that waits: that one is ended last.
TEST_F(BothCarriers, error_of_the_library_behind_our_call__is_not_carried_out) {
  start(10);
  ASSERT_TRUE(self_->ours(self_->streams[0]).ok());
  ASSERT_TRUE(self_->its(self_->streams[0]).ok());
  self_->library.has_error = true;
  self_->wait();  // Found by the thread that watches, though its call has not begun.
  EXPECT_EQ(self_->library.sent, 0);
  EXPECT_EQ(self_->calls->status(/*wait=*/true).message(), "held: an error behind our back");
}

/// Our side fails while the library's call runs: what is behind it was closed before.
TEST_F(BothCarriers, end_during_the_librarys_call__ours_behind_it_send_nothing) {
  start(10);
  ASSERT_TRUE(self_->its(self_->streams[0]).ok());
  ASSERT_TRUE(self_->ours(self_->streams[0]).ok());
  ASSERT_TRUE(self_->ours(self_->streams[0]).ok());
  self_->calls->end(failure("the peer is gone"));
  self_->wait();
  EXPECT_EQ(self_->calls->status(/*wait=*/true).message(), "the peer is gone");
  expect_nothing_for_the_peer(1);
}

TEST_F(BothCarriers, a_long_queue_of_both_on_two_streams__ends_without_a_word_to_anybody) {
  for (const bool is_ours_first : {false, true}) {
    start(0.3);
    for (int call = 0; call < 12; ++call) {
      const device::Stream stream = self_->streams[static_cast<std::size_t>(call / 2 % 2)];
      ASSERT_TRUE(
          ((call % 3 == 0) == is_ours_first ? self_->ours(stream) : self_->its(stream)).ok());
    }
    const Status status = self_->calls->status(/*wait=*/true);
    EXPECT_EQ(status.code(), ErrorCode::kTimeout) << status.message();
    self_->wait();
    EXPECT_EQ(self_->library.sent, is_ours_first ? 0 : 1);
    if (!is_ours_first) {
      expect_nothing_for_the_peer(1);
    }
  }
}

TEST_F(BothCarriers, later_calls__fail_at_once_on_both_with_the_reason) {
  start(0.3);
  const Status waited = self_->direct->run(Scope::kWhole, self_->call());
  EXPECT_EQ(waited.code(), ErrorCode::kTimeout) << waited.message();
  for (const Status& later :
       {self_->library_runner->run(Scope::kWhole, self_->call()), self_->its(self_->streams[0]),
        self_->ours(self_->streams[0]), self_->direct->run(Scope::kWhole, self_->call())}) {
    EXPECT_EQ(later.code(), ErrorCode::kLibraryFailed);
    EXPECT_NE(later.message().find("failed before: " + waited.message()), std::string::npos)
        << later.message();
  }
  EXPECT_EQ(self_->library.sent, 0);
  const auto none = DirectRunner::create(*api_, 0, {.rank = 0, .ranks = 2}, self_->scratch,
                                         {.wire = {}, .tuning = {}, .calls = self_->calls});
  EXPECT_EQ(none.status().message(), waited.message());
}

TEST_F(BothCarriers, a_call_of_the_librarys_that_is_waited_for__ends_ours) {
  start(0.3);
  const Status waited = self_->library_runner->run(Scope::kWhole, self_->call());
  EXPECT_EQ(waited.code(), ErrorCode::kTimeout) << waited.message();
  EXPECT_EQ(self_->library.aborts_ended, 1);
  EXPECT_EQ(self_->direct->run(Scope::kWhole, self_->call()).code(), ErrorCode::kLibraryFailed);
}

}  // namespace
}  // namespace tutti::runners
