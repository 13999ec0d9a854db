// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the direct backend's kernels cost by launch shape and form, one process per GPU, without
// MPI: where the defaults of src/runners/direct/launch.cpp come from. Also what a call costs before
// any work: an empty kernel by a launch and by a graph of one kernel, completed by a word in host
// memory or by waiting for the stream.
//
// direct-sweep RANKS [OUT.json [defaults]]   RANKS GPUs (or ordinals of the host device with
// TUTTI_DEVICE=host and build/dev/lib in LD_LIBRARY_PATH); defaults: only the launch shapes that a
// call gets, rows with 0 blocks.
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "device/kernels/images.hpp"
#include "runners/direct/direct_runner.hpp"

namespace {

using tutti::Bytes;
using tutti::Status;
using tutti::device::Api;
using tutti::runners::Call;
using tutti::runners::DirectRunner;
using tutti::runners::DirectTuning;
using tutti::select::Collective;

constexpr int kRanksMax = 8;
constexpr int kIterations = 300;
constexpr int kWarmUp = 40;

/// Memory of all processes.
struct Board {
  std::atomic<int> waiting;
  std::atomic<int> generation;
  DirectRunner::Handle handles[kRanksMax];
  double values[kRanksMax];
};

struct Process {
  Board* board;
  int rank;
  int ranks;

  void barrier() const {
    const int mine = board->generation.load();
    if (board->waiting.fetch_add(1) + 1 == ranks) {
      board->waiting.store(0);
      board->generation.fetch_add(1);
      return;
    }
    for (int i = 0; board->generation.load() == mine; ++i) {
      if (i > 10000) {
        sched_yield();
      }
    }
  }
  double max(double value) const {
    board->values[rank] = value;
    barrier();
    const double result = *std::max_element(board->values, board->values + ranks);
    barrier();
    return result;
  }
};

void check(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "direct-sweep: %s\n", status.message().c_str());
    _exit(1);
  }
}
template <class T>
T take(tutti::Result<T> result) {
  check(result.status());
  return std::move(*result);
}

/// Median of one blocking call in microseconds, the slowest rank's.
template <class Body>
double median_us(const Process& process, Body body) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < kWarmUp; ++i) {
    body();
  }
  process.barrier();
  std::vector<double> times;
  for (int i = 0; i < kIterations; ++i) {
    const auto start = Clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + kIterations / 2, times.end());
  return process.max(times[kIterations / 2]);
}

/// A kernel that does nothing but store its word.
class EmptyKernel {
 public:
  EmptyKernel(Api& api, int device) : api_(api) {
    const std::string runtime = api.name();
    for (const auto& image : tutti::device::kernels::images()) {
      if (runtime == image.runtime && function_ == nullptr) {
        const auto bytes = take(tutti::device::kernels::unpack(image));
        const auto module = api.load_module(device, bytes.data());
        function_ = module.ok() ? take(api.find_function(*module, "empty")) : nullptr;
      }
    }
    if (const void* own = api.kernel_image(); own != nullptr) {
      function_ = take(api.find_function(take(api.load_module(device, own)), "empty"));
    }
    stream_ = take(api.create_stream(device));
    word_ = static_cast<tutti::device::kernels::Wide*>(take(api.allocate_pinned(64, device)));
    *word_ = 0;
  }
  tutti::device::Function function() const { return function_; }
  tutti::device::Stream stream() const { return stream_; }
  tutti::device::kernels::DirectArguments next() {
    tutti::device::kernels::DirectArguments arguments{};
    arguments.blocks = arguments.warps = arguments.ranks = 1;
    arguments.done = word_;
    arguments.sequence = ++sequence_;
    return arguments;
  }
  void launch() {
    auto arguments = next();
    void* pointers[] = {&arguments};
    check(api_.launch(function_, {.block = {32, 1, 1}}, stream_, pointers));
  }
  void wait_word() const {
    while (std::atomic_ref(*word_).load(std::memory_order_acquire) != sequence_) {
    }
  }

 private:
  Api& api_;
  tutti::device::Function function_ = nullptr;
  tutti::device::Stream stream_ = nullptr;
  tutti::device::kernels::Wide* word_ = nullptr;
  tutti::device::kernels::Wide sequence_ = 0;
};

/// CUDA's graphs, which the device table does not have: this asks whether it should. 0: no CUDA.
double graph_us(const Process& process, EmptyKernel& kernel) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return 0;
  }
  struct KernelParameters {  // CUDA_KERNEL_NODE_PARAMS_v2 of CUDA 12.
    void* function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void** arguments;
    void** extra;
    void* kernel;
    void* context;
  };
  const auto load = [&](const char* name, auto* function) {
    *reinterpret_cast<void**>(function) = dlsym(library, name);
    return *function != nullptr;
  };
  int (*create)(void**, unsigned);
  int (*add)(void**, void*, const void*, std::size_t, const KernelParameters*);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*set)(void*, void*, const KernelParameters*);
  int (*launch)(void*, void*);
  int (*retain)(void**, int);
  int (*current)(void*);
  if (!load("cuGraphCreate", &create) || !load("cuGraphAddKernelNode_v2", &add) ||
      !load("cuGraphInstantiateWithFlags", &instantiate) ||
      !load("cuGraphExecKernelNodeSetParams_v2", &set) || !load("cuGraphLaunch", &launch) ||
      !load("cuDevicePrimaryCtxRetain", &retain) || !load("cuCtxSetCurrent", &current)) {
    return 0;
  }
  void* context = nullptr;
  int code = retain(&context, process.rank);
  code |= current(context);
  auto arguments = kernel.next();
  void* pointers[] = {&arguments};
  KernelParameters parameters{};
  parameters.function = kernel.function();
  std::fill(parameters.grid, parameters.grid + 3, 1U);
  std::fill(parameters.block, parameters.block + 3, 1U);
  parameters.block[0] = 32;
  parameters.arguments = pointers;
  void* graph = nullptr;
  void* node = nullptr;
  void* executable = nullptr;
  code |= create(&graph, 0);
  code |= add(&node, graph, nullptr, 0, &parameters);
  code |= instantiate(&executable, graph, 0);
  code |= launch(executable, kernel.stream());
  if (code != 0) {
    std::fprintf(stderr, "direct-sweep: graphs: error %d\n", code);
    return 0;
  }
  kernel.wait_word();
  return median_us(process, [&] {
    arguments = kernel.next();
    code |= set(executable, node, &parameters);
    code |= launch(executable, kernel.stream());
    if (code == 0) {
      kernel.wait_word();
    }
  });
}

void sweep(const Process& process, std::FILE* out, bool defaults_only) {
  tutti::device::OpenReport report;
  auto api = tutti::device::open(
      std::getenv("TUTTI_DEVICE") == nullptr ? "auto" : std::getenv("TUTTI_DEVICE"), &report);
  if (api == nullptr) {
    std::fprintf(stderr, "direct-sweep: no device: %s\n", report.reason.c_str());
    _exit(1);
  }
  check(api->initialize());
  const int device = process.rank % take(api->device_count());
  tutti::runners::Scratch scratch(api.get(), Bytes{1} << 30);
  auto runner = take(DirectRunner::create(*api, device, {process.rank, process.ranks}, scratch,
                                          {.timeout_s = 30, .wire = {}, .tuning = {}}));
  process.board->handles[process.rank] = take(runner->handle());
  process.barrier();
  check(runner->open_peers({process.board->handles, static_cast<std::size_t>(process.ranks)}));
  process.barrier();
  check(runner->self_test());

  constexpr Bytes kMost = Bytes{64} << 20;
  void* const send = take(api->allocate_device(device, kMost * 2));
  void* const recv = take(api->allocate_device(device, kMost * 2));
  const bool speaks = process.rank == 0;
  EmptyKernel empty(*api, device);
  const double floor = median_us(process, [&] {
    empty.launch();
    empty.wait_word();
  });
  const double stream_floor = median_us(process, [&] {
    empty.launch();
    check(api->wait_stream(empty.stream()));
  });
  const double graph = graph_us(process, empty);
  if (speaks) {
    std::fprintf(out,
                 "{\"ranks\": %d, \"device\": \"%s\", \"floor_us\": %.3f, "
                 "\"stream_floor_us\": %.3f, \"graph_floor_us\": %.3f, \"rows\": [",
                 process.ranks, take(api->device_name(device)).c_str(), floor, stream_floor, graph);
    std::fprintf(stderr,
                 "empty kernel: launch and word %.2f us, launch and stream %.2f us, graph and "
                 "word %.2f us\n",
                 floor, stream_floor, graph);
  }
  bool first = true;
  struct Form {
    const char* name;
    Collective collective;
    bool one_shot;
  };
  const Form forms[] = {{"allreduce one-shot", Collective::kAllreduce, true},
                        {"allreduce two-shot", Collective::kAllreduce, false},
                        {"allgather", Collective::kAllgather, false},
                        {"alltoall", Collective::kAlltoall, false},
                        {"bcast", Collective::kBcast, false},
                        {"reduce_scatter", Collective::kReduceScatterBlock, false}};
  for (const Form& form : forms) {
    for (Bytes bytes = 8; bytes <= kMost; bytes *= bytes < 1024 ? 8 : 4) {
      const bool whole =
          form.collective == Collective::kAllreduce || form.collective == Collective::kBcast;
      const Bytes block = whole ? bytes : bytes / static_cast<Bytes>(process.ranks);
      if (block < 4 || (form.one_shot && bytes > (Bytes{16} << 20))) {
        continue;
      }
      Call call;
      call.collective = form.collective;
      if (form.collective == Collective::kAllreduce ||
          form.collective == Collective::kReduceScatterBlock) {
        call.type = tutti::select::DataType::kFloat32;
        call.op = tutti::select::ReduceOp::kSum;
        call.element_bytes = 4;
      }
      call.count = block / call.element_bytes;
      call.send = send;
      call.recv = recv;
      call.send_memory = call.recv_memory = {tutti::device::MemoryKind::kDevice, device};
      double best = 1e9;
      DirectTuning best_shape;
      const auto write = [&](const DirectTuning& shape, double us) {
        if (speaks) {
          std::fprintf(out,
                       "%s\n {\"form\": \"%s\", \"bytes\": %llu, \"blocks\": %u, "
                       "\"warps\": %u, \"us\": %.3f}",
                       first ? "" : ",", form.name, static_cast<unsigned long long>(bytes),
                       shape.blocks, shape.warps, us);
          first = false;
        }
      };
      for (const std::uint32_t blocks : {1U, 2U, 4U, 8U, 16U, 32U, 48U, 64U}) {
        for (const std::uint32_t warps : {1U, 2U, 4U, 8U, 16U}) {
          // Shapes far too small or large for the size only cost time.
          const Bytes reach = Bytes{blocks} * warps * 448;
          if (defaults_only || reach > std::max<Bytes>(block * 4, 448 * 4) ||
              (reach * 64 < block && blocks * warps < 256)) {
            continue;
          }
          DirectTuning tuning;
          tuning.blocks = blocks;
          tuning.warps = warps;
          tuning.one_shot_default = false;
          tuning.one_shot_bytes_max = form.one_shot ? UINT64_MAX : 0;
          runner->set_tuning(tuning);
          const double us =
              median_us(process, [&] { check(runner->run(tutti::runners::Scope::kWhole, call)); });
          write(tuning, us);
          if (us < best) {
            best = us;
            best_shape = tuning;
          }
        }
      }
      // The form stays, only the shape is what a call gets.
      DirectTuning shape;
      shape.one_shot_default = false;
      shape.one_shot_bytes_max = form.one_shot ? UINT64_MAX : 0;
      runner->set_tuning(shape);
      const double own =
          median_us(process, [&] { check(runner->run(tutti::runners::Scope::kWhole, call)); });
      write(shape, own);
      if (speaks) {
        std::fprintf(stderr, "%-20s %9llu B: by default %8.2f us", form.name,
                     static_cast<unsigned long long>(bytes), own);
        std::fprintf(stderr, defaults_only ? "\n" : ", best %8.2f us (%u x %u)\n", best,
                     best_shape.blocks, best_shape.warps);
      }
    }
  }
  if (speaks) {
    std::fprintf(out, "\n]}\n");
  }
  check(api->free_device(send));
  check(api->free_device(recv));
  process.barrier();
}

}  // namespace

int main(int count, char** values) {
  const int ranks = count > 1 ? std::atoi(values[1]) : 0;
  if (ranks < 1 || ranks > kRanksMax) {
    std::fprintf(stderr, "usage: direct-sweep RANKS [OUT.json [defaults]]\n");
    return 2;
  }
  std::FILE* const out = count > 2 ? std::fopen(values[2], "w") : stdout;
  if (out == nullptr) {
    std::perror(values[2]);
    return 2;
  }
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 2;
  }
  auto* const board = new (memory) Board{};
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      sweep({board, rank, ranks}, out, count > 3 && std::strcmp(values[3], "defaults") == 0);
      std::fflush(out);
      _exit(0);
    }
    children.push_back(child);
  }
  int failed = 0;
  for (std::size_t i = 0; i < children.size(); ++i) {
    int status = 0;
    waitpid(-1, &status, 0);
    if (status != 0 && failed == 0) {
      failed = 1;
      for (const pid_t child : children) {
        kill(child, SIGKILL);
      }
    }
  }
  return failed;
}
