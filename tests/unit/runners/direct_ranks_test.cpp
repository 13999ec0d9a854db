// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks of the direct backend in a process each, on the host device: what becomes of the others
// when one leaves or dies.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "runners/direct/deferred_free.hpp"
#include "runners/direct/direct_runner.hpp"
#include "runners/direct/peer_liveness.hpp"
#include "runners/stream_calls.hpp"
#include "support/forked_ranks.hpp"
#include "support/host_device/host_device.hpp"

namespace tutti::runners {
namespace {

using select::Collective;

/// `mine` of all ranks, in rank order.
template <class T>
std::vector<T> gathered(test::Shared& shared, int rank, const T& mine) {
  std::vector<T> all;
  for (int source = 0; source < shared.ranks(); ++source) {
    all.push_back(shared.from_rank_zero((rank + shared.ranks() - source) % shared.ranks(), mine));
  }
  return all;
}

void wait_for_end(const HostProcess& process) {
  while (process.runs()) {
    usleep(1000);
  }
}

struct Rank {
  Rank(int own_rank, test::Shared& board) : rank(own_rank), shared(board) {}
  ~Rank() {
    for (void* buffer : buffers) {
      static_cast<void>(api->free_device(buffer));
    }
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  std::string start(double timeout_s) {
    auto made = DirectRunner::create(*api, rank, {.rank = rank, .ranks = shared.ranks()}, scratch,
                                     {.timeout_s = timeout_s, .wire = {}, .tuning = {}});
    CHILD_OK(made.status());
    runner = std::move(*made);
    const auto own = runner->handle();
    CHILD_OK(own.status());
    const auto handles = gathered(shared, rank, *own);
    for (const auto& handle : handles) {
      processes.push_back(handle.identity.process);
    }
    CHILD_OK(runner->open_peers(handles));
    shared.barrier();
    CHILD_OK(runner->self_test());
    return "";
  }
  std::string start_copies() {
    const auto own = runner->make_copies();
    CHILD_OK(own.status());
    CHILD_OK(runner->open_copies(gathered(shared, rank, *own)));
    shared.barrier();
    CHILD_OK(runner->self_test_copies());
    shared.barrier();
    return "";
  }
  std::byte* buffer(Bytes bytes) {
    buffers.push_back(*api->allocate_device(rank, bytes));
    return static_cast<std::byte*>(buffers.back());
  }
  /// Of nothing, from and to nobody.
  Call call(Collective collective) const {
    Call made;
    made.collective = collective;
    made.element_bytes = 1;
    made.send_memory = made.recv_memory = {device::MemoryKind::kDevice, rank};
    return made;
  }

  const int rank;
  test::Shared& shared;
  std::unique_ptr<device::Api> api = device::open("host", nullptr);
  Scratch scratch{&*api, Bytes{1} << 20};
  std::unique_ptr<DirectRunner> runner;
  std::vector<HostProcess> processes;
  std::vector<void*> buffers;
};

enum class Way { kWaits, kOnStream };

/// What a barrier comes to that rank 0 never enters.
Status barrier_without_peer(Rank& self, Way way) {
  wait_for_end(self.processes[0]);
  const Call barrier = self.call(Collective::kBarrier);
  if (way == Way::kWaits) {
    return self.runner->run(Scope::kWhole, barrier);
  }
  TUTTI_ASSIGN_OR_RETURN(device::Stream stream, self.api->create_stream(self.rank));
  TUTTI_RETURN_IF_ERROR(self.runner->enqueue(barrier, stream));
  return self.runner->calls().status(/*wait=*/true);
}

TEST(DirectRanks, wait__a_peer_that_left_and_ended_is_not_dead) {
  for (const Way way : {Way::kWaits, Way::kOnStream}) {
    const auto answers = test::in_ranks(2, [&](int rank, test::Shared& shared) -> std::string {
      Rank self(rank, shared);
      const std::string started = self.start(1.3);
      CHILD_EXPECT(started.empty(), started);
      if (rank == 0) {
        return "";  // As after its last call: others may still be in theirs.
      }
      const Status status = barrier_without_peer(self, way);
      CHILD_EXPECT(status.message().find("not finished after") != std::string::npos,
                   status.message());
      return "";
    });
    EXPECT_EQ(answers, test::all_well(2));
  }
}

TEST(DirectRanks, wait__a_peer_that_died_ends_it) {
  for (const Way way : {Way::kWaits, Way::kOnStream}) {
    const auto answers = test::in_ranks(2, [&](int rank, test::Shared& shared) -> std::string {
      Rank self(rank, shared);
      const std::string started = self.start(60);
      CHILD_EXPECT(started.empty(), started);
      if (rank == 0) {
        raise(SIGKILL);
      }
      const Status status = barrier_without_peer(self, way);
      CHILD_EXPECT(status.message().find("the process of rank 0 is gone") != std::string::npos,
                   status.message());
      return "";
    });
    EXPECT_EQ(answers, (std::vector<std::string>{"died of signal 9", ""}));
  }
}

/// As a program's other communicator whose call waits for a peer.
class HeldCall {
 public:
  HeldCall(device::Api& api, int device) : api_(api), device_(device) {
    calls_.join(StreamCalls::Carrier::kKernels, api, device, {});
  }
  ~HeldCall() {
    gate_.release();
    calls_.leave(StreamCalls::Carrier::kKernels);
    static_cast<void>(api_.destroy_stream(stream_));
  }
  HeldCall(const HeldCall&) = delete;
  HeldCall& operator=(const HeldCall&) = delete;

  Status begin() {
    TUTTI_ASSIGN_OR_RETURN(stream_, api_.create_stream(device_));
    return calls_.add(StreamCalls::Carrier::kKernels, stream_, [&](Lease*) -> Status {
      tutti_host_device_enqueue(
          stream_, [](void* gate) { static_cast<std::binary_semaphore*>(gate)->acquire(); },
          &gate_);
      return {};
    });
  }

 private:
  device::Api& api_;
  int device_;
  device::Stream stream_ = nullptr;
  std::binary_semaphore gate_{0};
  StreamCalls calls_;
};

TEST(DirectRanks, wait__a_peer_that_could_not_let_go_before_it_ended_is_not_dead) {
  const auto answers = test::in_ranks(2, [&](int rank, test::Shared& shared) -> std::string {
    Rank self(rank, shared);
    const std::string started = self.start(1.3);
    CHILD_EXPECT(started.empty(), started);
    if (rank == 0) {
      HeldCall other(*self.api, rank);
      CHILD_OK(other.begin());
      self.runner.reset();
      return "";
    }
    const Status status = barrier_without_peer(self, Way::kWaits);
    CHILD_EXPECT(status.message().find("not finished after") != std::string::npos,
                 status.message());
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

/// Stops a process for longer than it takes others to look for one that has ended.
void hold(const HostProcess& process) {
  kill(process.number, SIGSTOP);
  if (fork() == 0) {
    usleep(900000);
    kill(process.number, SIGCONT);
    _exit(0);
  }
}

/// Rank 0 has nothing to give and nothing to get, and is through with a call while the others are
/// still in it.
TEST(DirectRanks, wait__a_rank_that_was_ready_sooner_may_end) {
  constexpr Bytes kBytes = Bytes{4} << 20;
  const auto answers = test::in_ranks(3, [&](int rank, test::Shared& shared) -> std::string {
    Rank self(rank, shared);
    const std::string started = self.start(60);
    CHILD_EXPECT(started.empty(), started);
    DirectTuning tuning;
    tuning.blocks = tuning.warps = 1;
    self.runner->set_tuning(tuning);
    std::byte* const send = self.buffer(kBytes);
    std::byte* const recv = self.buffer(kBytes);
    std::fill_n(send, kBytes, static_cast<std::byte>(rank));
    Call call = self.call(Collective::kAlltoallv);
    const std::vector<std::uint64_t> none(3, 0);
    std::vector<std::uint64_t> counts(3, 0);
    if (rank != 0) {
      counts[rank == 1 ? 2 : 1] = kBytes;
    }
    call.send = send;
    call.recv = recv;
    call.send_counts = call.recv_counts = counts;
    call.send_offsets = call.recv_offsets = none;
    CHILD_OK(self.runner->run(Scope::kWhole, call));
    if (rank == 0) {
      hold(self.processes[2]);
      return "";
    }
    CHILD_EXPECT(
        std::all_of(recv, recv + kBytes,
                    [&](std::byte byte) { return byte == static_cast<std::byte>(3 - rank); }),
        "wrong");
    return "";
  });
  EXPECT_EQ(answers, test::all_well(3));
}

/// Both kinds of a runner's memory that peers map.
struct MappedMemory {
  explicit MappedMemory(Rank& rank)
      : api(*rank.api), memories{rank.runner->arena(), rank.runner->copies().memory()} {}
  /// How many the device still has.
  int count() const {
    return static_cast<int>(std::count_if(memories.begin(), memories.end(), [&](void* memory) {
      return api.classify(memory).kind == device::MemoryKind::kDevice;
    }));
  }

  device::Api& api;
  std::vector<void*> memories;
};

TEST(DirectRanks, end__memory_stays_as_long_as_a_peer_has_it_mapped) {
  const auto answers = test::in_ranks(2, [&](int rank, test::Shared& shared) -> std::string {
    Rank self(rank, shared);
    std::string started = self.start(60);
    started += self.start_copies();
    CHILD_EXPECT(started.empty(), started);
    const MappedMemory mapped(self);
    CHILD_EXPECT(mapped.count() == 2, std::to_string(mapped.count()));
    if (rank == 0) {
      self.runner.reset();  // The peer does not end before this has.
      CHILD_EXPECT(mapped.count() == 2, std::to_string(mapped.count()));
      free_deferred(*self.api);
      CHILD_EXPECT(mapped.count() == 2, std::to_string(mapped.count()));
    }
    shared.barrier();
    if (rank == 1) {
      self.runner.reset();
      CHILD_EXPECT(mapped.count() == 0, std::to_string(mapped.count()));
    }
    shared.barrier();
    free_deferred(*self.api);
    CHILD_EXPECT(mapped.count() == 0, std::to_string(mapped.count()));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(DirectRanks, end__memory_stays_beside_a_call_that_came_while_peers_were_waited_for) {
  const auto answers = test::in_ranks(2, [&](int rank, test::Shared& shared) -> std::string {
    Rank self(rank, shared);
    std::string started = self.start(60);
    started += self.start_copies();
    CHILD_EXPECT(started.empty(), started);
    const MappedMemory mapped(self);
    if (rank == 1) {
      shared.barrier();
      self.runner.reset();
      return "";
    }
    {
      HeldCall other(*self.api, rank);
      Status begun;
      std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // The other thread waits.
        begun = other.begin();
        shared.barrier();
      });
      self.runner.reset();
      later.join();
      CHILD_OK(begun);
      CHILD_EXPECT(mapped.count() == 2, std::to_string(mapped.count()));
    }
    wait_for_end(self.processes[1]);
    free_deferred(*self.api);
    CHILD_EXPECT(mapped.count() == 0, std::to_string(mapped.count()));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(DirectRanks, begin_end__of_all_is_enough_to_free_it) {
  const auto answers = test::in_ranks(3, [&](int rank, test::Shared& shared) -> std::string {
    Rank self(rank, shared);
    std::string started = self.start(60);
    started += self.start_copies();
    CHILD_EXPECT(started.empty(), started);
    const MappedMemory mapped(self);
    self.runner->begin_end();
    CHILD_EXPECT(mapped.count() == 2, std::to_string(mapped.count()));
    shared.barrier();
    self.runner.reset();
    CHILD_EXPECT(mapped.count() == 0, std::to_string(mapped.count()));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(3));
}

TEST(DirectRanks, end__a_dead_peer_holds_no_memory) {
  const auto answers = test::in_ranks(2, [&](int rank, test::Shared& shared) -> std::string {
    Rank self(rank, shared);
    std::string started = self.start(60);
    started += self.start_copies();
    CHILD_EXPECT(started.empty(), started);
    if (rank == 1) {
      raise(SIGKILL);
    }
    wait_for_end(self.processes[1]);
    const MappedMemory mapped(self);
    self.runner.reset();
    CHILD_EXPECT(mapped.count() == 0, std::to_string(mapped.count()));
    return "";
  });
  EXPECT_EQ(answers, (std::vector<std::string>{"", "died of signal 9"}));
}

TEST(PeerLiveness, dead_peer__is_whose_process_ended_before_it_told) {
  for (const bool tells : {true, false}) {
    const auto answers = test::in_ranks(2, [&](int rank, test::Shared& shared) -> std::string {
      PeerLiveness self = PeerLiveness::make();
      const auto identities = gathered(shared, rank, self.identity());
      self.open(identities, rank);
      shared.barrier();
      self.close_files();
      CHILD_EXPECT(self.dead_peer() == -1, std::to_string(self.dead_peer()));
      CHILD_EXPECT(!self.is_alone(), "alone at once");
      shared.barrier();
      if (rank == 0) {
        if (tells) {
          self.end();
        }
        shared.barrier();
        shared.barrier();
        return "";
      }
      shared.barrier();
      CHILD_EXPECT(!self.is_alone(), "alone while it may have memory mapped");
      shared.barrier();
      wait_for_end(identities[0].process);
      CHILD_EXPECT(self.dead_peer() == (tells ? -1 : 0), std::to_string(self.dead_peer()));
      CHILD_EXPECT(self.is_alone(), "not alone");
      return "";
    });
    EXPECT_EQ(answers, test::all_well(2));
  }
}

TEST(PeerLiveness, is_alone__once_the_peer_has_left) {
  const auto answers = test::in_ranks(2, [&](int rank, test::Shared& shared) -> std::string {
    PeerLiveness self = PeerLiveness::make();
    self.open(gathered(shared, rank, self.identity()), rank);
    shared.barrier();
    self.end();
    CHILD_EXPECT(!self.is_alone(), "alone at once");
    shared.barrier();
    self.leave();
    shared.barrier();
    CHILD_EXPECT(self.is_alone(), "not alone");
    shared.barrier();
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

TEST(PeerLiveness, open__who_cannot_be_seen_is_taken_to_be_there) {
  PeerLiveness self = PeerLiveness::make();
  PeerLiveness::Identity unseen;
  const PeerLiveness::Identity identities[] = {self.identity(), unseen};
  self.open(identities, 0);
  EXPECT_EQ(self.dead_peer(), -1);
  EXPECT_TRUE(self.is_alone());  // As far as it can be seen.
}

}  // namespace
}  // namespace tutti::runners
