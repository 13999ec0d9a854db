// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Tests in which something goes wrong, or is done in an order that NCCL may choose.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "flow.hpp"
#include "tests.hpp"

namespace tutti::driver {
namespace {

namespace abi = nccl_net::abi;

constexpr std::size_t kLargeBytes = std::size_t{8} << 20;

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

const Link* find_link(const std::vector<Link>& links, bool sends) {
  const auto found = std::find_if(links.begin(), links.end(),
                                  [&](const Link& link) { return link.sends == sends; });
  return found == links.end() ? nullptr : &*found;
}

/// Posts one receive or send of plain memory.
Result post(const Link& link, std::span<std::byte> data, void** request) {
  *request = nullptr;
  if (link.sends) {
    return link.plugin().isend(link.comm, data.data(), data.size(), 0, nullptr, request);
  }
  void* buffer = data.data();
  const std::size_t bytes = data.size();
  int tag = 0;
  void* mhandle = nullptr;
  return link.plugin().irecv(link.comm, 1, &buffer, &bytes, &tag, &mhandle, request);
}

/// Tests until it is done, has failed or `seconds` are over.
Result wait_for(const Link& link, void* request, double seconds, bool* is_done) {
  const double deadline = seconds_now() + seconds;
  int done = 0;
  Result result = Result::kSuccess;
  while (done == 0 && result == Result::kSuccess && seconds_now() < deadline) {
    int bytes = 0;
    result = link.plugin().test(request, &done, &bytes);
  }
  *is_done = done != 0;
  return result;
}

void check_properties(Session& session) {
  Report& report = session.rank.report;
  NetPlugin& plugin = *session.plugin;
  int count = 0;
  require(plugin.devices(&count), "devices");
  std::map<std::uint64_t, int> guids;
  for (int device = 0; device < count; ++device) {
    DeviceProperties first;
    DeviceProperties second;
    require(plugin.properties(device, &first), "getProperties");
    require(plugin.properties(device, &second), "getProperties");
    report.check(first.name != nullptr && first.name[0] != '\0', "a device has no name");
    report.check(first.name == second.name && first.pci_path == second.pci_path,
                 "a device's strings move");
    report.check((first.pointer_support & abi::kPointerHost) != 0, "no host memory");
    report.check(first.comms_max > 0 && first.receives_max >= 1, "maxComms or maxRecvs");
    report.check(first.latency_us >= 0 && first.latency_us < 1e6F, "latency");
    report.check(first.message_bytes_max > 0 && first.message_bytes_max <= abi::kMessageBytesMax,
                 "maxP2pBytes or maxCollBytes");
    report.check(first.member_count == 1, "vProps.ndevs");
    report.check(++guids[first.guid] == 1, "two devices have one guid");
  }
}

/// What is only required of our own plugin.
void check_bad_arguments(Session& session) {
  Report& report = session.rank.report;
  NetPlugin& plugin = *session.plugin;
  int count = 0;
  require(plugin.devices(&count), "devices");
  DeviceProperties properties;
  HandleBuffer handle{};
  for (const int device : {-1, count}) {
    void* comm = &handle;
    report.check(plugin.properties(device, &properties) == Result::kInvalidArgument,
                 "properties of no device");
    report.check(
        plugin.listen(session.context, device, handle.data(), &comm) == Result::kInvalidArgument &&
            comm == nullptr,
        "listen on no device");
  }
  void* comm = &handle;
  const std::size_t warnings = Warnings::count();
  report.check(plugin.connect(session.context, 0, handle.data(), &comm) == Result::kSystemError &&
                   comm == nullptr && Warnings::count() > warnings &&
                   Warnings::last().find("NCCL_NET=Tutti") != std::string::npos,
               "connect to another plugin's handle");
  // The part that is Tutti's was shorter once, and what followed was the plugin's.
  constexpr std::size_t kVersionAt = 4;
  constexpr std::ptrdiff_t kShortest = 64;
  void* listener = nullptr;
  require(plugin.listen(session.context, 0, handle.data(), &listener), "listen");
  handle[kVersionAt] ^= std::byte{1};
  std::fill(handle.begin() + kShortest, handle.end(), HandleBuffer::value_type{0x71});
  comm = &handle;
  report.check(plugin.connect(session.context, 0, handle.data(), &comm) == Result::kSystemError &&
                   comm == nullptr && Warnings::last().find("is of protocol") != std::string::npos,
               "connect to a handle of another version");
  require(plugin.close_listen(listener), "closeListen");
  report.check(plugin.close_send(nullptr) == Result::kSuccess &&
                   plugin.close_recv(nullptr) == Result::kSuccess &&
                   plugin.close_listen(nullptr) == Result::kSuccess,
               "closing nothing");
}

/// Listeners and attempts that come to nothing, communicators that do not use the network.
void check_unused(Session& session) {
  Report& report = session.rank.report;
  NetPlugin& plugin = *session.plugin;
  void* other = nullptr;
  require(plugin.init(&other), "init again");
  HandleBuffer handle{};
  void* listener = nullptr;
  require(plugin.listen(other, session.number, handle.data(), &listener), "listen");
  void* comm = nullptr;
  require(plugin.accept(listener, &comm), "accept of nobody");
  report.check(comm == nullptr, "somebody came who does not exist");
  require(plugin.close_listen(listener), "closeListen");
  require(plugin.finalize(other), "finalize of an unused context");
}

/// A handle that was copied, with the buffer moved between the calls: the state is in its bytes.
void check_copied_handle(Session& session) {
  Report& report = session.rank.report;
  NetPlugin& plugin = *session.plugin;
  const int device = session.number;
  HandleBuffer first{};
  void* listener = nullptr;
  require(plugin.listen(session.context, device, first.data(), &listener), "listen");
  HandleBuffer second = first;
  first.fill(std::byte{0xee});
  void* sender = nullptr;
  void* receiver = nullptr;
  for (int i = 0; sender == nullptr || receiver == nullptr; ++i) {
    if (sender == nullptr) {
      auto moved = std::make_unique<HandleBuffer>(second);
      second.fill(std::byte{0xee});
      require(plugin.connect(session.context, device, moved->data(), &sender), "connect");
      second = *moved;
    }
    if (receiver == nullptr) {
      require(plugin.accept(listener, &receiver), "accept");
    }
  }
  require(plugin.close_listen(listener), "closeListen");
  report.check(plugin.close_send(sender) == Result::kSuccess, "closeSend");
  report.check(plugin.close_recv(receiver) == Result::kSuccess, "closeRecv");
}

void check_memory(const Link& link) {
  Report& report = link.session->rank.report;
  std::array<std::byte, 64> data;
  void* mhandle = nullptr;
  report.check(link.plugin().reg_mr(link.comm, data.data(), data.size(), abi::kPointerHost,
                                    &mhandle) == Result::kSuccess,
               "regMr of host memory");
  report.check(link.plugin().dereg_mr(link.comm, mhandle) == Result::kSuccess, "deregMr");
  if ((link.session->device.pointer_support & abi::kPointerCuda) == 0) {
    const std::size_t warnings = Warnings::count();
    report.check(link.plugin().reg_mr(link.comm, data.data(), data.size(), abi::kPointerCuda,
                                      &mhandle) != Result::kSuccess,
                 "regMr of GPU memory succeeds");
    report.check(Warnings::count() > warnings, "regMr of GPU memory fails without a word");
  }
}

/// As many requests as NCCL may have, posted before the peer posts one.
void check_depth(Session& session, const std::vector<Link>& links) {
  Report& report = session.rank.report;
  const Link* const in = find_link(links, false);
  const Link* const out = find_link(links, true);
  std::array<std::uint64_t, abi::kRequestsMax> received{};
  std::array<std::uint64_t, abi::kRequestsMax> sent{};
  std::vector<void*> receives;
  std::vector<void*> sends;
  for (auto& value : received) {
    void* request = nullptr;
    require(post(*in, std::as_writable_bytes(std::span(&value, 1)), &request), "irecv");
    report.check(request != nullptr,
                 "only " + std::to_string(receives.size()) + " receives are possible");
    if (request == nullptr) {
      break;
    }
    receives.push_back(request);
  }
  session.rank.barrier();
  for (std::size_t i = 0; i < receives.size(); ++i) {
    sent[i] = mix(i);
    void* request = nullptr;
    require(post(*out, std::as_writable_bytes(std::span(&sent[i], 1)), &request), "isend");
    report.check(request != nullptr,
                 "only " + std::to_string(sends.size()) + " sends are possible");
    if (request == nullptr) {
      break;
    }
    sends.push_back(request);
  }
  // Both directions in turns: a plugin may move data in test() alone.
  std::size_t sends_done = 0;
  std::size_t receives_done = 0;
  while (sends_done < sends.size() || receives_done < sends.size()) {
    int done = 0;
    if (sends_done < sends.size()) {
      require(in->plugin().test(sends[sends_done], &done, nullptr), "test of a send");
      sends_done += static_cast<std::size_t>(done);
    }
    done = 0;
    int bytes = 0;
    if (receives_done < sends.size()) {
      require(in->plugin().test(receives[receives_done], &done, &bytes), "test of a receive");
      if (done != 0) {
        report.check(received[receives_done] == mix(receives_done), "messages in another order");
        ++receives_done;
      }
    }
  }
}

void check_flush(const Link& link) {
  Report& report = link.session->rank.report;
  std::array<std::byte, 64> data{};
  void* request = &data;
  report.check(
      link.plugin().iflush(link.comm, data.data(), 64, nullptr, &request) == Result::kSuccess &&
          request != &data,
      "iflush");
  if (request != nullptr) {
    int done = 0;
    while (done == 0) {
      require(link.plugin().test(request, &done, nullptr), "test of a flush");
    }
  }
}

/// The receiver must hear of it; the sender may.
void check_too_long(Session& session) {
  Rank& rank = session.rank;
  std::vector<Link> links = connect(session, edges_of("pingpong", rank.ranks, 1));
  // One direction is enough.
  std::erase_if(links, [](Link& link) {
    const bool is_other = link.edge.from % 2 != 0;
    if (is_other) {
      link.close();
    }
    return is_other;
  });
  std::vector<std::byte> data(links.empty() || links[0].sends ? 200000 : 100, kUntouched);
  if (!links.empty()) {
    const Link& link = links[0];
    void* request = nullptr;
    const std::size_t warnings = Warnings::count();
    require(post(link, data, &request), "posting");
    bool is_done = false;
    const Result result = wait_for(link, request, link.sends ? 1 : rank.options.bound_s, &is_done);
    if (!link.sends) {
      rank.report.check(result == Result::kInvalidUsage,
                        std::string("a message too long for its buffer: ") + to_string(result));
      rank.report.check(Warnings::count() > warnings, "nothing is said of a message too long");
    }
  }
  rank.barrier();
  close_links(links);
}

}  // namespace

void test_calls(Rank& rank) {
  Session session(rank);
  rank.phase = "checking calls";
  check_properties(session);
  check_unused(session);
  check_copied_handle(session);
  if (session.is_tutti) {
    check_bad_arguments(session);
  }
  std::vector<Link> links = connect(session, edges_of("ring", rank.ranks, 1));
  for (const Link& link : links) {
    check_memory(link);
  }
  check_flush(*find_link(links, false));
  rank.phase = "posting as much as possible";
  check_depth(session, links);
  rank.barrier();
  close_links(links);
  rank.phase = "sending too long a message";
  check_too_long(session);
}

void test_cancel(Rank& rank) {
  Session session(rank);
  constexpr std::size_t kRequests = 4;
  for (int round = 0; round < 3; ++round) {
    std::vector<Link> links = connect(session, edges_of("ring", rank.ranks, 1));
    std::map<bool, std::vector<std::vector<std::byte>>> buffers;
    for (const Link& link : links) {
      for (std::size_t i = 0; i < kRequests; ++i) {
        std::vector<std::byte>& data = buffers[link.sends].emplace_back(kLargeBytes, kUntouched);
        if (link.sends) {
          std::fill(data.begin(), data.end(), std::byte{1});
        }
        void* request = nullptr;
        // The receiver waits for more than comes.
        if (!link.sends || i < kRequests / 2) {
          require(post(link, data, &request), "posting");
          int done = 0;
          link.plugin().test(request, &done, nullptr);
        }
      }
    }
    rank.barrier();
    // In the middle of it, at another moment each time.
    sleep_ms(round * 3);
    rank.phase = "closing with unfinished requests";
    const double begin = seconds_now();
    std::sort(links.begin(), links.end(), [&](const Link& a, const Link& b) {
      return (a.sends != b.sends) && a.sends == (round % 2 == 0);
    });
    close_links(links);
    rank.report.check(seconds_now() - begin < rank.options.bound_s, "closing took too long");
    const auto before = buffers[false];
    for (auto& data : buffers[true]) {
      std::fill(data.begin(), data.end(), std::byte{2});
    }
    sleep_ms(100);
    rank.report.check(before == buffers[false], "a buffer changes after its comm was closed");
    // What was sent before the close is all that may have come.
    const bool is_clean = std::all_of(before.begin(), before.end(), [](const auto& data) {
      return std::all_of(data.begin(), data.end(),
                         [](std::byte byte) { return byte == kUntouched || byte == std::byte{1}; });
    });
    rank.report.check(is_clean, "a closed comm's buffer was still sent");
    rank.barrier();
  }
  rank.phase = "using it again";
  run_pattern(session, "ring", 1);
}

namespace {

/// Messages between all ranks, without end to and from the last one, until it is gone.
void outlive_the_last(Rank& rank, bool is_killed) {
  Session session(rank);
  std::vector<Link> links =
      connect(session, edges_of("alltoall", rank.ranks, rank.options.channels));
  // What the plugin does without is told at its start, and says nothing of a peer.
  const std::size_t warnings = Warnings::count();
  const int victim = rank.ranks - 1;
  {
    std::vector<std::unique_ptr<Flow>> flows;
    for (const Link& link : links) {
      flows.push_back(make_flow(link));
      if (rank.rank == victim || link.peer() == victim) {
        flows.back()->expect_errors();
        flows.back()->run_for_ever();
      }
    }
    rank.phase = "moving messages until a peer is gone";
    double deadline = 0;
    bool is_busy = true;
    while (is_busy) {
      is_busy = false;
      bool has_moved = false;
      std::size_t through = 0;
      for (const std::unique_ptr<Flow>& flow : flows) {
        has_moved |= flow->step();
        is_busy |= !flow->is_over();
        through += flow->finished();
      }
      if (is_killed && rank.rank == victim &&
          through >= static_cast<std::size_t>(rank.options.messages)) {
        kill(getpid(), SIGKILL);
      }
      if (!has_moved) {
        std::this_thread::yield();
        if (deadline == 0) {
          deadline = seconds_now() + rank.options.bound_s;
        }
      } else {
        deadline = 0;
      }
      if (deadline != 0 && seconds_now() > deadline) {
        break;
      }
    }
    for (const std::unique_ptr<Flow>& flow : flows) {
      if (flow->link().peer() == victim || rank.rank == victim) {
        rank.report.check(flow->error() != Result::kSuccess,
                          flow->link().label() + ": a dead peer is no error after " +
                              std::to_string(rank.options.bound_s) + " s");
        rank.report.check(!session.is_tutti || flow->error() == Result::kRemoteError,
                          flow->link().label() + ": a dead peer is " + to_string(flow->error()));
      } else {
        rank.report.check(flow->is_over(), flow->link().label() + " has stopped");
      }
    }
    rank.report.check(Warnings::count() > warnings, "nothing is said of a dead peer");
    if (!is_killed) {
      // For who silences it and may want to wake it up again.
      std::printf("rank %d: %s\n", rank.rank, Warnings::last().c_str());
      std::fflush(stdout);
    }
    rank.phase = "closing links to a dead peer";
    const double begin = seconds_now();
    // The buffers are still there: as in NCCL.
    close_links(links);
    rank.report.check(seconds_now() - begin < rank.options.bound_s, "closing took too long");
  }
}

}  // namespace

void test_kill(Rank& rank) { outlive_the_last(rank, true); }

void test_silence(Rank& rank) { outlive_the_last(rank, false); }

void test_fork(Rank& rank) {
  Session session(rank);
  std::vector<Link> links = connect(session, edges_of("ring", rank.ranks, 1));
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    int failed = 0;
    if (session.is_tutti) {
      int count = 0;
      void* request = nullptr;
      std::array<std::byte, 8> data{};
      HandleBuffer handle{};
      void* comm = nullptr;
      failed |= session.plugin->devices(&count) != Result::kSystemError ? 1 : 0;
      failed |= post(links[0], data, &request) != Result::kSystemError ? 2 : 0;
      failed |= post(links[1], data, &request) != Result::kSystemError ? 4 : 0;
      failed |=
          session.plugin->listen(session.context, 0, handle.data(), &comm) != Result::kSystemError
              ? 8
              : 0;
      for (Link& link : links) {
        failed |= (link.sends ? session.plugin->close_send(link.comm)
                              : session.plugin->close_recv(link.comm)) != Result::kSuccess
                      ? 16
                      : 0;
      }
    }
    std::exit(failed);  // With the destructors of all libraries.
  }
  int status = 0;
  waitpid(child, &status, 0);
  rank.report.check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                    "the forked child ended with " + std::to_string(status));
  {
    std::vector<std::unique_ptr<Flow>> flows;
    for (const Link& link : links) {
      flows.push_back(make_flow(link));
    }
    rank.phase = "moving messages after a fork";
    run(flows);
  }
  rank.barrier();
  close_links(links);
}

void test_leave(Rank& rank) {
  // Never freed: the plugin goes on with them until the process is gone.
  static auto& buffers = *new std::array<std::vector<std::byte>, 4>;
  Session session(rank);
  std::vector<Link> links = connect(session, edges_of("ring", rank.ranks, 1));
  if (!session.is_tutti) {
    rank.report.skip("leave: this plugin does not promise that it can be unloaded while in use");
    close_links(links);
    return;
  }
  session.is_abandoned = true;
  {
    std::vector<std::unique_ptr<Flow>> flows;
    for (const Link& link : links) {
      flows.push_back(make_flow(link));
    }
    run(flows);
  }
  rank.barrier();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    buffers[i].assign(kLargeBytes, std::byte{0});
    void* request = nullptr;
    const Link& link = links[i % links.size()];
    const Result result = post(link, buffers[i], &request);
    // The peer may have left by now.
    rank.report.check(result == Result::kSuccess || result == Result::kRemoteError, "posting");
  }
  sleep_ms(rank.rank * 5);
}

namespace {

struct Test {
  const char* name;
  void (*run)(Rank& rank);
};

constexpr Test kTests[] = {
    {"ring", test_ring},       {"alltoall", test_alltoall}, {"pingpong", test_pingpong},
    {"grouped", test_grouped}, {"threads", test_threads},   {"calls", test_calls},
    {"cancel", test_cancel},   {"kill", test_kill},         {"reload", test_reload},
    {"fork", test_fork},       {"leave", test_leave},       {"silence", test_silence},
};

}  // namespace

bool run_test(const std::string& name, Rank& rank) {
  for (const Test& test : kTests) {
    if (name == test.name) {
      test.run(rank);
      return true;
    }
  }
  return false;
}

std::vector<std::string> test_names() {
  std::vector<std::string> names;
  for (const Test& test : kTests) {
    names.emplace_back(test.name);
  }
  return names;
}

}  // namespace tutti::driver
