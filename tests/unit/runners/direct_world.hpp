// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks of the direct backend in one process, and what their calls must give. The same tests run on
// the host device and, with TUTTI_TEST_DEVICE=cuda or hip, on one GPU that all ranks share: their
// launches are small enough to be resident together. The reference is from the definition, element
// by element in rank order, and knows nothing of the code under test.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "runners/direct/deferred_free.hpp"
#include "runners/direct/direct_runner.hpp"
#include "runners/stream_calls.hpp"
#include "select/shape.hpp"
#include "support/host_device/host_device.hpp"

namespace tutti::testing {

using runners::Call;
using select::Collective;
using select::DataType;
using select::ReduceOp;
using Buffer = std::vector<unsigned char>;

// --- The reference ------------------------------------------------------------------------------

inline float half_to_float(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return fraction != 0 ? std::nanf("") : sign * INFINITY;
  }
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25));
}

/// The nearest of all 65536 values, ties to the even one: slow and obvious.
inline std::uint16_t float_to_half(float value) {
  if (std::isnan(value)) {
    return 0x7e00;
  }
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0F) {
    return sign | 0x7c00;
  }
  std::uint16_t below = 0;  // The largest that is not above.
  for (std::uint16_t bit = 1 << 14; bit != 0; bit >>= 1) {
    const std::uint16_t candidate = below | bit;
    if (candidate < 0x7c00 && half_to_float(candidate) <= magnitude) {
      below = candidate;
    }
  }
  const double low = half_to_float(below);
  const double high = below == 0x7bff ? 65536.0 : half_to_float(below + 1);
  const double middle = (low + high) / 2;
  const bool up = magnitude > middle || (magnitude == middle && (below & 1) != 0);
  return sign | static_cast<std::uint16_t>(below + (up ? 1 : 0));
}

inline float brain_to_float(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
inline std::uint16_t float_to_brain(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint16_t low = static_cast<std::uint16_t>(bits);
  auto high = static_cast<std::uint16_t>(bits >> 16);
  if (std::isnan(value)) {
    return high | 0x40;
  }
  if (low > 0x8000 || (low == 0x8000 && (high & 1) != 0)) {
    ++high;
  }
  return high;
}

template <class T>
T apply(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return static_cast<T>(a + b);
    case ReduceOp::kProd:
      return static_cast<T>(a * b);
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kLand:
      return static_cast<T>(a != 0 && b != 0);
    case ReduceOp::kLor:
      return static_cast<T>(a != 0 || b != 0);
    case ReduceOp::kLxor:
      return static_cast<T>((a != 0) != (b != 0));
    default:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(op == ReduceOp::kBand ? a & b : op == ReduceOp::kBor ? a | b : a ^ b);
      }
      return a;
  }
}

/// Sums and products of signed numbers wrap as their unsigned bits do.
template <class T>
T apply_wrapping(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    using Unsigned = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;
    if (op == ReduceOp::kSum || op == ReduceOp::kProd) {
      const auto x = static_cast<Unsigned>(a);
      const auto y = static_cast<Unsigned>(b);
      return static_cast<T>(op == ReduceOp::kSum ? x + y : x * y);
    }
  }
  return apply(op, a, b);
}

/// What becomes of the sum of `ranks` values.
template <class T>
T finished(ReduceOp op, T value, std::size_t ranks) {
  return op == ReduceOp::kAvg ? value * static_cast<T>(1.0 / static_cast<double>(ranks)) : value;
}

template <class T>
T element(const unsigned char* data, std::uint64_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void reduce_plain(ReduceOp op, const std::vector<const unsigned char*>& inputs, std::uint64_t i,
                  unsigned char* out) {
  T result = element<T>(inputs[0], i);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    result = apply_wrapping(op, result, element<T>(inputs[rank], i));
  }
  if constexpr (std::is_floating_point_v<T>) {
    result = finished(op, result, inputs.size());
  }
  std::memcpy(out + i * sizeof(T), &result, sizeof(T));
}

template <class T>
void reduce_complex(ReduceOp op, const std::vector<const unsigned char*>& inputs, std::uint64_t i,
                    unsigned char* out) {
  T re = element<T>(inputs[0], 2 * i);
  T im = element<T>(inputs[0], 2 * i + 1);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const T b_re = element<T>(inputs[rank], 2 * i);
    const T b_im = element<T>(inputs[rank], 2 * i + 1);
    // Volatile: each product is rounded by itself.
    volatile const T rr = re * b_re;
    volatile const T ii = im * b_im;
    volatile const T ri = re * b_im;
    volatile const T ir = im * b_re;
    const T sum_re = re + b_re;
    const T sum_im = im + b_im;
    re = op != ReduceOp::kProd ? sum_re : static_cast<T>(rr - ii);
    im = op != ReduceOp::kProd ? sum_im : static_cast<T>(ri + ir);
  }
  re = finished(op, re, inputs.size());
  im = finished(op, im, inputs.size());
  std::memcpy(out + 2 * i * sizeof(T), &re, sizeof(T));
  std::memcpy(out + (2 * i + 1) * sizeof(T), &im, sizeof(T));
}

template <class V, class I>
void reduce_pair(ReduceOp op, const std::vector<const unsigned char*>& inputs, std::uint64_t i,
                 unsigned char* out) {
  struct Pair {
    V value;
    I index;
  };
  auto best = element<Pair>(inputs[0], i);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const auto next = element<Pair>(inputs[rank], i);
    const bool better = op == ReduceOp::kMinloc ? next.value < best.value : next.value > best.value;
    if (better || (next.value == best.value && next.index < best.index)) {
      best = next;
    }
  }
  std::memcpy(out + i * sizeof(Pair), &best.value, sizeof(V));
  std::memcpy(out + i * sizeof(Pair) + offsetof(Pair, index), &best.index, sizeof(I));
}

inline void reduce_element(DataType type, ReduceOp op,
                           const std::vector<const unsigned char*>& inputs, std::uint64_t i,
                           unsigned char* out) {
  const auto small = [&](auto decode, auto encode) {
    float result = decode(element<std::uint16_t>(inputs[0], i));
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      result = apply(op, result, decode(element<std::uint16_t>(inputs[rank], i)));
    }
    const std::uint16_t bits = encode(finished(op, result, inputs.size()));
    std::memcpy(out + i * 2, &bits, 2);
  };
  switch (type) {
    case DataType::kInt8:
      return reduce_plain<std::int8_t>(op, inputs, i, out);
    case DataType::kByte:
    case DataType::kUint8:
    case DataType::kBool:
      return reduce_plain<std::uint8_t>(op, inputs, i, out);
    case DataType::kInt16:
      return reduce_plain<std::int16_t>(op, inputs, i, out);
    case DataType::kUint16:
      return reduce_plain<std::uint16_t>(op, inputs, i, out);
    case DataType::kInt32:
    case DataType::kLogical32:
      return reduce_plain<std::int32_t>(op, inputs, i, out);
    case DataType::kUint32:
      return reduce_plain<std::uint32_t>(op, inputs, i, out);
    case DataType::kInt64:
      return reduce_plain<std::int64_t>(op, inputs, i, out);
    case DataType::kUint64:
      return reduce_plain<std::uint64_t>(op, inputs, i, out);
    case DataType::kFloat16:
      return small(half_to_float, float_to_half);
    case DataType::kBfloat16:
      return small(brain_to_float, float_to_brain);
    case DataType::kFloat32:
      return reduce_plain<float>(op, inputs, i, out);
    case DataType::kFloat64:
      return reduce_plain<double>(op, inputs, i, out);
    case DataType::kComplex64:
      return reduce_complex<float>(op, inputs, i, out);
    case DataType::kComplex128:
      return reduce_complex<double>(op, inputs, i, out);
    case DataType::kInt16Int:
      return reduce_pair<std::int16_t, std::int32_t>(op, inputs, i, out);
    case DataType::kInt32Int:
      return reduce_pair<std::int32_t, std::int32_t>(op, inputs, i, out);
    case DataType::kInt64Int:
      return reduce_pair<std::int64_t, std::int32_t>(op, inputs, i, out);
    case DataType::kFloat32Int:
      return reduce_pair<float, std::int32_t>(op, inputs, i, out);
    case DataType::kFloat64Int:
      return reduce_pair<double, std::int32_t>(op, inputs, i, out);
    case DataType::kFloat32Pair:
      return reduce_pair<float, float>(op, inputs, i, out);
    case DataType::kFloat64Pair:
      return reduce_pair<double, double>(op, inputs, i, out);
    case DataType::kOther:
      break;
  }
}

/// Where an element of a pair holds padding: what no result is compared on.
inline bool is_padding(DataType type, std::uint64_t byte) {
  switch (type) {
    case DataType::kInt16Int:
      return byte % 8 == 2 || byte % 8 == 3;
    case DataType::kInt64Int:
    case DataType::kFloat64Int:
      return byte % 16 >= 12;
    default:
      return false;
  }
}

/// Input of any type: values that make every operation do something, no NaN, few ties.
inline void fill_input(DataType type, std::mt19937_64& random, unsigned char* data,
                       std::uint64_t count) {
  const auto real = [&] {
    return static_cast<double>(static_cast<int>(random() % 4001) - 2000) / 8;
  };
  const auto put = [&](std::uint64_t at, auto value) {
    std::memcpy(data + at, &value, sizeof value);
  };
  const Bytes size = select::size_of(type);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = i * size;
    switch (type) {
      case DataType::kFloat16:
        put(at, float_to_half(static_cast<float>(real())));
        break;
      case DataType::kBfloat16:
        put(at, float_to_brain(static_cast<float>(real())));
        break;
      case DataType::kFloat32:
        put(at, static_cast<float>(real() * 1.1));
        break;
      case DataType::kFloat64:
        put(at, real() * 1.1);
        break;
      case DataType::kComplex64:
        put(at, static_cast<float>(real() * 1.1));
        put(at + 4, static_cast<float>(real() * 1.3));
        break;
      case DataType::kComplex128:
        put(at, real() * 1.1);
        put(at + 8, real() * 1.3);
        break;
      case DataType::kBool:
        data[at] = random() % 2;
        break;
      case DataType::kLogical32:
        put(at, static_cast<std::int32_t>(random() % 2));
        break;
      case DataType::kInt16Int:
        put(at, static_cast<std::int16_t>(random() % 5));
        put(at + 4, static_cast<std::int32_t>(random() % 100));
        break;
      case DataType::kInt32Int:
        put(at, static_cast<std::int32_t>(random() % 5));
        put(at + 4, static_cast<std::int32_t>(random() % 100));
        break;
      case DataType::kInt64Int:
        put(at, static_cast<std::int64_t>(random() % 5));
        put(at + 8, static_cast<std::int32_t>(random() % 100));
        break;
      case DataType::kFloat32Int:
        put(at, static_cast<float>(random() % 5));
        put(at + 4, static_cast<std::int32_t>(random() % 100));
        break;
      case DataType::kFloat64Int:
        put(at, static_cast<double>(random() % 5));
        put(at + 8, static_cast<std::int32_t>(random() % 100));
        break;
      case DataType::kFloat32Pair:
        put(at, static_cast<float>(random() % 5));
        put(at + 4, static_cast<float>(random() % 100));
        break;
      case DataType::kFloat64Pair:
        put(at, static_cast<double>(random() % 5));
        put(at + 8, static_cast<double>(random() % 100));
        break;
      default:  // Integers: every bit; a zero now and then for the logical operations.
        for (Bytes byte = 0; byte < size; ++byte) {
          data[at + byte] = static_cast<unsigned char>(random());
        }
        if (random() % 4 == 0) {
          std::memset(data + at, 0, size);
        }
    }
  }
}

// --- A case -------------------------------------------------------------------------------------

/// A collective at all ranks: inputs, arguments, and the result from the definition.
struct Case {
  Collective collective = Collective::kAllreduce;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kNone;
  std::uint64_t count = 0;  ///< Of a block; counted forms draw theirs around it.
  int root = 0;
  bool in_place = false;
  unsigned misalignment = 0;  ///< Elements that buffers begin after an aligned address.

  std::string text(int ranks) const {
    return std::string(select::to_string(collective)) + " " + select::to_string(type) + " " +
           select::to_string(op) + " count " + std::to_string(count) + " root " +
           std::to_string(root) + (in_place ? " in place" : "") + " misaligned " +
           std::to_string(misalignment) + " ranks " + std::to_string(ranks);
  }
};

/// One rank's side of a case, in host memory: buffers of `send` and `recv`, arguments, expectation.
struct RankCase {
  Buffer send;
  Buffer recv;
  Buffer expected;  ///< Of recv, all of it: what is not written stays.
  Bytes send_at = 0;
  Bytes recv_at = 0;
  bool send_is_recv = false;  ///< In place: `send_at` counts in recv.
  bool recv_is_send = false;  ///< Scatter in place at the root: `recv_at` counts in send.
  Call call;
  std::vector<std::uint64_t> send_counts, send_offsets, recv_counts, recv_offsets;
};

std::vector<RankCase> make_case(const Case& test, int ranks, std::mt19937_64& random);

// --- Ranks --------------------------------------------------------------------------------------

inline std::string test_device() {
  const char* name = std::getenv("TUTTI_TEST_DEVICE");
  return name == nullptr ? "host" : name;
}

/// A graph on the device under test, as an application has it; with that device current.
class Graph {
 public:
  static void begin(device::Stream stream) {
    if (is_host()) {
      tutti_host_device_begin_capture(stream);
    } else {
      constexpr int kRelaxed = 2;
      call<int(void*, int)>("cuStreamBeginCapture_v2", stream, kRelaxed);
    }
  }
  explicit Graph(device::Stream captured_on) {
    if (is_host()) {
      graph_ = tutti_host_device_end_capture(captured_on);
    } else {
      call<int(void*, void**)>("cuStreamEndCapture", captured_on, &graph_);
      call<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags", &executable_,
                                                   graph_, 0ULL);
    }
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (is_host()) {
      tutti_host_device_destroy_graph(graph_);
    } else {
      call<int(void*)>("cuGraphExecDestroy", executable_);
      call<int(void*)>("cuGraphDestroy", graph_);
    }
  }
  void launch(device::Stream stream) const {
    if (is_host()) {
      tutti_host_device_launch_graph(graph_, stream);
    } else {
      call<int(void*, void*)>("cuGraphLaunch", executable_, stream);
    }
  }

 private:
  static bool is_host() { return test_device() == "host"; }
  template <class Type, class... Arguments>
  static void call(const char* symbol, Arguments... arguments) {
    static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    auto* const function = reinterpret_cast<Type*>(dlsym(library, symbol));
    ASSERT_NE(function, nullptr) << symbol;
    EXPECT_EQ(function(arguments...), 0) << symbol;
  }

  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

/// How a case is carried.
enum class Way {
  kWhole,
  kCopied,    ///< By copies; allgather and alltoall.
  kCaptured,  ///< As a graph of the application's repeats it.
  kPairs,     ///< Small pieces first, then those that large_pairs() leaves out, as beside the CCL.
};

/// Ranks that are threads of this process, each with a runner and a buffer of device memory.
class DirectWorld {
 public:
  explicit DirectWorld(int ranks, double timeout_s = 60, Bytes buffer_bytes = Bytes{6} << 20,
                       std::uint64_t first_epoch = 1)
      : ranks_(ranks), buffer_bytes_(buffer_bytes) {
    // On one GPU a rank's copies must not stand in a queue behind the kernel of a rank that waits
    // for them: CUDA has 8 queues unless told otherwise, and each rank three streams.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    api_ = device::open(test_device(), nullptr);
    if (api_ == nullptr || !api_->initialize().ok()) {
      ADD_FAILURE() << "no device '" << test_device() << "'";
      return;
    }
    const bool host = test_device() == "host";
    scratch_ = std::make_unique<runners::Scratch>(api_.get(), Bytes{1} << 30);
    std::vector<void*> arenas;
    std::vector<void*> memories;
    std::vector<runners::PeerLiveness::Identity> identities;
    for (int rank = 0; rank < ranks; ++rank) {
      devices_.push_back(host ? rank : 0);
      auto runner = runners::DirectRunner::create(
          *api_, devices_.back(), {.rank = rank, .ranks = ranks}, *scratch_,
          {.timeout_s = timeout_s,
           .wire = {},
           .tuning = {},
           .first_epoch = first_epoch,
           .calls = calls_.emplace_back(std::make_shared<runners::StreamCalls>())});
      if (!runner.ok()) {
        ADD_FAILURE() << runner.status().message();
        return;
      }
      runners_.push_back(std::move(*runner));
      arenas.push_back(runners_.back()->arena());
      const auto handle = runners_.back()->handle();
      if (!handle.ok()) {
        ADD_FAILURE() << handle.status().message();
        return;
      }
      identities.push_back(handle->identity);
      const auto copies = runners_.back()->make_copies();
      if (!copies.ok()) {
        ADD_FAILURE() << copies.status().message();
        return;
      }
      memories.push_back(runners_.back()->copies().memory());
      for (auto* buffers : {&sends_, &recvs_}) {
        auto buffer = api_->allocate_device(devices_.back(), buffer_bytes_);
        if (!buffer.ok()) {
          ADD_FAILURE() << buffer.status().message();
          return;
        }
        buffers->push_back(*buffer);
      }
    }
    for (auto& runner : runners_) {
      const Status status = runner->open_arenas(arenas, identities);
      EXPECT_TRUE(status.ok()) << status.message();
      runner->copies().set_memories(memories);
    }
    ready_ = true;
  }
  ~DirectWorld() {
    // Together: each waits a while for the others.
    run([&](int rank) { runners_[static_cast<std::size_t>(rank)].reset(); });
    calls_.clear();  // Before what is left is looked for: theirs is among it.
    for (auto* buffers : {&sends_, &recvs_}) {
      for (void* buffer : *buffers) {
        static_cast<void>(api_->free_device(buffer));
      }
    }
    // In the product it lives as long as the process. Here the next world begins with a context and
    // queues of its own, unless calls that were ended still run.
    if (!devices_.empty() && !free_what_is_left()) {
      static_cast<void>(api_.release());
    }
  }
  DirectWorld(const DirectWorld&) = delete;
  DirectWorld& operator=(const DirectWorld&) = delete;

  bool ready() const { return ready_; }
  /// A GPU has so few queues for the copies and the graphs of one process that those of one rank
  /// may stand behind those of another that waits for it. In processes of their own eight ranks
  /// copy (tests/mpi) and launch graphs (tests/c_api).
  bool has_own_queues() const { return test_device() == "host"; }
  static constexpr const char* kSharedQueues =
      "on a GPU, copies and graphs of several ranks of one process stand in each other's way";
  int ranks() const { return ranks_; }
  device::Api& api() { return *api_; }
  int device_of(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }
  void* recv_buffer(int rank) const { return recvs_[static_cast<std::size_t>(rank)]; }
  /// Ends a rank's calls as a failure does.
  void fail(int rank) {
    calls_[static_cast<std::size_t>(rank)]->end(Status(ErrorCode::kTimeout, "a test"));
  }
  /// Ends a rank's communicator.
  void end(int rank) { runners_[static_cast<std::size_t>(rank)].reset(); }
  runners::DirectRunner& runner(int rank) { return *runners_[static_cast<std::size_t>(rank)]; }
  void tune(const runners::DirectTuning& tuning) {
    tuning_ = tuning;
    for (auto& runner : runners_) {
      runner->set_tuning(tuning);
    }
  }

  /// Runs `body(rank)` on a thread per rank.
  void run(const std::function<void(int)>& body) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&body, rank] { body(rank); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  /// A graph of that call, launched once; returns at its end.
  Status run_captured(int rank, const Call& call) {
    const auto i = static_cast<std::size_t>(rank);
    TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(*api_, devices_[i]));
    TUTTI_ASSIGN_OR_RETURN(const device::Stream stream, calls_[i]->own_stream());
    Graph::begin(stream);
    const Status captured = runners_[i]->capture(call, stream);
    const Graph graph(stream);
    TUTTI_RETURN_IF_ERROR(captured);
    graph.launch(stream);
    TUTTI_RETURN_IF_ERROR(api_->wait_stream(stream));
    return calls_[i]->status(/*wait=*/false);
  }
  /// The second part is carried by the same runner, which takes all ranks, in the place of a CCL.
  Status run_pairs(int rank, const Call& call) {
    const runners::ScopeRank me{.rank = rank, .ranks = ranks_};
    const auto large = runners::large_pairs(call, me, tuning_.pair_bytes_max);
    runners::DirectRunner& runner = *runners_[static_cast<std::size_t>(rank)];
    if (large.has_others) {
      Status status = runner.run(runners::Scope::kWhole, call);
      if (!status.ok()) {
        return status;
      }
    }
    runners::DirectTuning all = tuning_;
    all.pair_bytes_max = UINT64_MAX;
    runner.set_tuning(all);
    runners::CountsOfPairs counts;
    Status status =
        runner.run(runners::Scope::kWhole,
                   runners::only_pairs(call, me, large.has_large ? large.peers : 0, &counts));
    runner.set_tuning(tuning_);
    return status;
  }

  /// Runs the case on all ranks and compares every byte; false after the first difference.
  bool check(const Case& test, std::mt19937_64& random, Way way = Way::kWhole) {
    std::vector<RankCase> cases = make_case(test, ranks_, random);
    for (std::size_t rank = 0; rank < cases.size(); ++rank) {
      RankCase& mine = cases[rank];
      EXPECT_LE(std::max(mine.send.size(), mine.recv.size()), buffer_bytes_);
      auto* const send = static_cast<std::byte*>(sends_[rank]);
      auto* const recv = static_cast<std::byte*>(recvs_[rank]);
      if (!mine.send.empty()) {
        EXPECT_TRUE(api_->copy(send, mine.send.data(), mine.send.size()).ok());
      }
      if (!mine.recv.empty()) {
        EXPECT_TRUE(api_->copy(recv, mine.recv.data(), mine.recv.size()).ok());
      }
      mine.call.send = mine.send_is_recv   ? recv + mine.send_at
                       : mine.send.empty() ? nullptr
                                           : send + mine.send_at;
      mine.call.recv = mine.recv_is_send   ? send + mine.recv_at
                       : mine.recv.empty() ? nullptr
                                           : recv + mine.recv_at;
      // What is no buffer is no memory of a device either.
      const device::PointerInfo mine_memory{device::MemoryKind::kDevice, devices_[rank]};
      mine.call.send_memory = mine.call.send != nullptr ? mine_memory : device::PointerInfo{};
      mine.call.recv_memory = mine.call.recv != nullptr ? mine_memory : device::PointerInfo{};
      mine.call.send_counts = mine.send_counts;
      mine.call.send_offsets = mine.send_offsets;
      mine.call.recv_counts = mine.recv_counts;
      mine.call.recv_offsets = mine.recv_offsets;
    }
    std::vector<Status> statuses(cases.size());
    run([&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      statuses[i] = way == Way::kCopied     ? runners_[i]->run_copied(cases[i].call)
                    : way == Way::kCaptured ? run_captured(rank, cases[i].call)
                    : way == Way::kPairs    ? run_pairs(rank, cases[i].call)
                                         : runners_[i]->run(runners::Scope::kWhole, cases[i].call);
    });
    for (std::size_t rank = 0; rank < cases.size(); ++rank) {
      if (!statuses[rank].ok()) {
        ADD_FAILURE() << test.text(ranks_) << ": rank " << rank << ": " << statuses[rank].message();
        return false;
      }
      Buffer got(cases[rank].recv.size());
      if (got.empty()) {
        continue;
      }
      EXPECT_TRUE(api_->copy(got.data(), recvs_[rank], got.size()).ok());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const bool in_result = i >= cases[rank].recv_at;
        if (got[i] != cases[rank].expected[i] &&
            !(in_result && is_padding(test.type, i - cases[rank].recv_at))) {
          ADD_FAILURE() << test.text(ranks_) << ": rank " << rank << " byte " << i << " of "
                        << got.size() << ": " << int{got[i]} << ", not "
                        << int{cases[rank].expected[i]};
          return false;
        }
      }
    }
    return true;
  }

 private:
  /// When nothing of this world runs on its devices any more, for which it waits. (Its runners were
  /// given the addresses of their peers' arenas, and have mapped none.)
  bool free_what_is_left() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    for (const int device : devices_) {
      while (!runners::StreamCalls::is_quiet(*api_, device)) {
        if (std::chrono::steady_clock::now() > until) {
          return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    runners::free_deferred(*api_);
    return true;
  }

  int ranks_;
  runners::DirectTuning tuning_;
  Bytes buffer_bytes_;
  bool ready_ = false;
  std::unique_ptr<device::Api> api_;
  std::unique_ptr<runners::Scratch> scratch_;
  std::vector<int> devices_;
  std::vector<std::shared_ptr<runners::StreamCalls>> calls_;
  std::vector<std::unique_ptr<runners::DirectRunner>> runners_;
  std::vector<void*> sends_;
  std::vector<void*> recvs_;
};

// --- Making a case ------------------------------------------------------------------------------

inline std::vector<RankCase> make_case(const Case& test, int ranks, std::mt19937_64& random) {
  const auto n = static_cast<std::size_t>(ranks);
  const bool reduces = select::is_reduction(test.collective);
  const Bytes size = reduces ? select::size_of(test.type) : 1;
  const bool counted = runners::has_counts(test.collective);
  const auto root = static_cast<std::size_t>(test.root);
  // Elements from rank to rank, and where each rank keeps them; holes between counted blocks.
  std::vector<std::vector<std::uint64_t>> counts(n, std::vector<std::uint64_t>(n, test.count));
  std::vector<std::uint64_t> own(n, test.count);  // By rank: gatherv, scatterv, reduce_scatter.
  if (counted) {
    for (std::size_t i = 0; i < n; ++i) {
      own[i] = random() % 3 == 0 ? 0 : random() % (test.count + 2);
      for (std::size_t j = 0; j < n; ++j) {
        counts[i][j] = random() % 3 == 0 ? 0 : random() % (test.count + 2);
      }
    }
    if (test.in_place &&
        (test.collective == Collective::kAlltoallv || test.collective == Collective::kAlltoallw)) {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          counts[i][j] = counts[j][i];
        }
      }
    }
  }
  const auto layout = [&](const std::vector<std::uint64_t>& of,
                          std::vector<std::uint64_t>* offsets) {
    std::uint64_t end = 0;
    offsets->clear();
    for (const std::uint64_t count : of) {
      offsets->push_back(end);
      end += count + (counted ? random() % 4 : 0);
    }
    return end;
  };
  constexpr Bytes kGuard = 64;
  std::vector<RankCase> cases(n);
  for (std::size_t rank = 0; rank < n; ++rank) {
    RankCase& mine = cases[rank];
    const bool is_root = rank == root;
    std::uint64_t sends = 0;
    std::uint64_t recvs = 0;
    const std::vector<std::uint64_t> equal(n, test.count);
    mine.call.count = test.count;
    switch (test.collective) {
      case Collective::kBarrier:
        break;
      case Collective::kBcast:
        recvs = test.count;
        break;
      case Collective::kGather:
      case Collective::kGatherv:
        sends = mine.call.count = counted ? own[rank] : test.count;
        if (is_root) {
          mine.recv_counts = counted ? own : equal;
          recvs = layout(mine.recv_counts, &mine.recv_offsets);
        }
        break;
      case Collective::kScatter:
      case Collective::kScatterv:
        recvs = mine.call.count = counted ? own[rank] : test.count;
        if (is_root) {
          mine.send_counts = counted ? own : equal;
          sends = layout(mine.send_counts, &mine.send_offsets);
        }
        break;
      case Collective::kAllgather:
      case Collective::kAllgatherv:
        sends = mine.call.count = counted ? own[rank] : test.count;
        mine.recv_counts = counted ? own : equal;
        recvs = layout(mine.recv_counts, &mine.recv_offsets);
        break;
      case Collective::kAlltoall:
      case Collective::kAlltoallv:
      case Collective::kAlltoallw:
        mine.send_counts = counts[rank];
        sends = layout(mine.send_counts, &mine.send_offsets);
        for (std::size_t from = 0; from < n; ++from) {
          mine.recv_counts.push_back(counts[from][rank]);
        }
        recvs = layout(mine.recv_counts, &mine.recv_offsets);
        if (test.in_place) {
          mine.send_offsets = mine.recv_offsets;
          sends = recvs;
        }
        break;
      case Collective::kReduceScatter:
        mine.recv_counts = own;
        for (const std::uint64_t count : own) {
          sends += count;
        }
        recvs = own[rank];
        break;
      case Collective::kReduceScatterBlock:
        sends = test.count * n;
        recvs = test.count;
        break;
      case Collective::kReduce:
        sends = test.count;
        recvs = is_root ? test.count : 0;
        break;
      default:
        sends = recvs = test.count;
    }
    mine.call.collective = test.collective;
    mine.call.root = test.root;
    mine.call.element_bytes = size;
    if (reduces) {
      mine.call.type = test.type;
      mine.call.op = test.op;
    }
    const bool rooted_away =
        !is_root &&
        (test.collective == Collective::kReduce || test.collective == Collective::kGather ||
         test.collective == Collective::kGatherv || test.collective == Collective::kScatter ||
         test.collective == Collective::kScatterv);
    mine.call.in_place = test.in_place && !rooted_away && test.collective != Collective::kBcast &&
                         test.collective != Collective::kBarrier;
    mine.recv_at = kGuard + test.misalignment * size;
    mine.send_at = kGuard + (test.misalignment * 3 % 7) * size;
    // In place: the input lies where the result will, or the own block does.
    std::uint64_t recv_room = recvs;
    const auto aliasing = runners::aliasing_of(mine.call);
    if (aliasing == runners::Aliasing::kRecvInSend) {
      mine.recv_is_send = true;  // Scatter at the root: what is sent stays.
      recv_room = 0;
    }
    if (aliasing == runners::Aliasing::kSame) {
      recv_room = std::max(sends, recvs);
    }
    if (recv_room > 0) {
      mine.recv.assign(2 * kGuard + (recv_room + test.misalignment) * size, 0xa5);
    }
    if (sends > 0) {
      mine.send.assign(2 * kGuard + (sends + 7) * size, 0x5a);
      fill_input(reduces ? test.type : DataType::kByte, random, mine.send.data() + mine.send_at,
                 sends);
      if (!reduces) {
        for (std::uint64_t i = 0; i < sends; ++i) {
          mine.send[mine.send_at + i] = static_cast<unsigned char>(random());
        }
      }
    }
    if (test.collective == Collective::kBcast && is_root) {
      for (std::uint64_t i = 0; i < recvs; ++i) {
        mine.recv[mine.recv_at + i] = static_cast<unsigned char>(random());
      }
    }
  }
  // Inputs as they are now are what the definition speaks of.
  const auto input = [&](std::size_t rank, std::uint64_t at) {
    return cases[rank].send.data() + cases[rank].send_at + at * size;
  };
  for (std::size_t rank = 0; rank < n; ++rank) {
    RankCase& mine = cases[rank];
    const auto aliasing = runners::aliasing_of(mine.call);
    const std::uint64_t offset =
        aliasing == runners::Aliasing::kSendInRecv ? mine.recv_offsets[rank] : 0;
    if (aliasing == runners::Aliasing::kSame || aliasing == runners::Aliasing::kSendInRecv) {
      mine.send_is_recv = true;
      // All input of reductions and alltoall, the own block of gathers.
      std::uint64_t elements = aliasing == runners::Aliasing::kSendInRecv ? mine.call.count : 0;
      if (aliasing == runners::Aliasing::kSame) {
        elements = mine.send.empty() ? 0 : (mine.send.size() - 2 * kGuard) / size - 7;
      }
      if (elements > 0) {
        std::memcpy(mine.recv.data() + mine.recv_at + offset * size, input(rank, 0),
                    elements * size);
      }
    }
    mine.expected = mine.recv;
    unsigned char* const out = mine.expected.data() + mine.recv_at;
    const auto take = [&](std::size_t from, std::uint64_t at, std::uint64_t to,
                          std::uint64_t count) {
      if (count > 0) {
        std::memcpy(out + to * size, input(from, at), count * size);
      }
    };
    const auto reduce = [&](std::uint64_t at, std::uint64_t count) {
      std::vector<const unsigned char*> inputs;
      for (std::size_t from = 0; from < n; ++from) {
        inputs.push_back(input(from, at));
      }
      for (std::uint64_t i = 0; i < count; ++i) {
        reduce_element(test.type, test.op, inputs, i, out);
      }
    };
    switch (test.collective) {
      case Collective::kBcast:
        if (test.count > 0) {
          std::memcpy(out, cases[root].recv.data() + cases[root].recv_at, test.count);
        }
        break;
      case Collective::kGather:
      case Collective::kGatherv:
      case Collective::kAllgather:
      case Collective::kAllgatherv:
        for (std::size_t from = 0; from < mine.recv_counts.size(); ++from) {
          take(from, 0, mine.recv_offsets[from], mine.recv_counts[from]);
        }
        break;
      case Collective::kScatter:
      case Collective::kScatterv:
        if (!mine.recv_is_send) {
          take(root, cases[root].send_offsets[rank], 0, mine.call.count);
        }
        break;
      case Collective::kAlltoall:
      case Collective::kAlltoallv:
      case Collective::kAlltoallw:
        for (std::size_t from = 0; from < n; ++from) {
          take(from, cases[from].send_offsets[rank], mine.recv_offsets[from],
               mine.recv_counts[from]);
        }
        break;
      case Collective::kReduceScatter:
      case Collective::kReduceScatterBlock: {
        std::uint64_t at = 0;
        for (std::size_t peer = 0; peer < rank; ++peer) {
          at += counted ? own[peer] : test.count;
        }
        reduce(at, counted ? own[rank] : test.count);
        break;
      }
      case Collective::kReduce:
        if (rank == root) {
          reduce(0, test.count);
        }
        break;
      case Collective::kAllreduce:
        reduce(0, test.count);
        break;
      default:
        break;
    }
  }
  for (std::size_t rank = 0; rank < n; ++rank) {
    RankCase& mine = cases[rank];
    const auto aliasing = runners::aliasing_of(mine.call);
    if (aliasing == runners::Aliasing::kSame) {
      mine.send_at = mine.recv_at;
    } else if (aliasing == runners::Aliasing::kSendInRecv) {
      mine.send_at = mine.recv_at + mine.recv_offsets[rank] * size;
    } else if (mine.recv_is_send) {
      mine.recv_at = mine.send_at + mine.send_offsets[rank] * size;
    }
    if (!counted) {
      mine.send_counts.clear();
      mine.send_offsets.clear();
      mine.recv_counts.clear();
      mine.recv_offsets.clear();
    } else if (test.collective == Collective::kReduceScatter) {
      mine.recv_offsets.clear();
    }
  }
  return cases;
}

}  // namespace tutti::testing
