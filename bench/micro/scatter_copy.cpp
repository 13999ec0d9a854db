// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The scattered copy (device/scatter_copy.hpp) on one GPU: throughput beside the library's own copy
// of as many bytes, by length of the pieces, and what a small batch costs beside an empty kernel.
// Every shape that is measured is checked first: all bytes of all destinations.
//
// scatter-copy [OUT.json [MOST_BYTES [sweep]]]   The first GPU (or the host device with
// TUTTI_DEVICE=host and build/dev/lib in LD_LIBRARY_PATH); MOST_BYTES: the largest batch, 256 MiB
// where nothing is said; sweep: also other numbers of pieces and blocks than a batch gets, where
// the defaults of src/device/scatter_copy.cpp come from.
//
// Sources are slots in order, as packets fill a bounce buffer: 64 bytes longer than a piece, which
// begins at the slot's start or behind a header of 42 bytes. Destinations are pieces of one buffer
// in a random order.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "device/scatter_copy.hpp"

namespace {

using tutti::Bytes;
using tutti::Status;
using tutti::device::Api;
using tutti::device::Function;
using tutti::device::ScatterCopy;
using tutti::device::ScatterPiece;
using tutti::device::ScatterTuning;
using tutti::device::Stream;
namespace kernels = tutti::device::kernels;

constexpr int kDevice = 0;
constexpr Bytes kHeaderBytes = 42;  // Ethernet, IPv4 and UDP.
constexpr Bytes kSlotExtraBytes = 64;
constexpr Bytes kShortestPiece = 256;
constexpr int kRepeats = 5;
constexpr double kRepeatUs = 8000;

void check(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "scatter-copy: %s\n", status.message().c_str());
    std::exit(1);
  }
}
template <class T>
T take(tutti::Result<T> result) {
  check(result.status());
  return std::move(*result);
}

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What a copy is measured with; all sources, also those in host memory, hold the same bytes.
class Bench {
 public:
  Bench(Api& api, Bytes most)
      : api_(api),
        source_bytes_(most + most / kShortestPiece * kSlotExtraBytes + kSlotExtraBytes),
        copy_(take(ScatterCopy::create(api, kDevice))),
        stream_(take(api.create_stream(kDevice))),
        device_source_(static_cast<char*>(take(api.allocate_device(kDevice, source_bytes_)))),
        pinned_source_(static_cast<char*>(take(api.allocate_pinned(source_bytes_, kDevice)))),
        destination_(static_cast<char*>(take(api.allocate_device(kDevice, most)))),
        seen_(static_cast<char*>(take(api.allocate_pinned(most, kDevice)))),
        pieces_(static_cast<ScatterPiece*>(
            take(api.allocate_pinned(most / kShortestPiece * sizeof(ScatterPiece), kDevice)))),
        empty_(take(copy_.find("scatter_copy"))) {
    std::mt19937_64 random(source_bytes_);
    for (Bytes at = 0; at + 8 <= source_bytes_; at += 8) {
      const std::uint64_t value = random();
      std::memcpy(pinned_source_ + at, &value, 8);
    }
    check(api_.copy(device_source_, pinned_source_, source_bytes_));
    void* pointers[] = {&nothing_};
    launcher_ = take(api_.create_launcher(empty_, kDevice, kEmptyShape, pointers));
  }

  struct Shape {
    Bytes piece = 0;
    Bytes count = 0;
    Bytes offset = 0;  ///< Of a piece in its slot.
    bool is_pinned = false;
  };

  /// The pieces of the next batches; the first batch is checked.
  void prepare(const Shape& shape, const ScatterTuning& tuning = {}) {
    shape_ = shape;
    copy_.set_tuning(tuning);
    std::vector<Bytes> order(shape.count);
    std::iota(order.begin(), order.end(), Bytes{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(shape.count));
    char* const source = shape.is_pinned ? pinned_source_ : device_source_;
    for (Bytes i = 0; i < shape.count; ++i) {
      pieces_[i] = {source + source_at(i), destination_ + order[i] * shape.piece, shape.piece};
    }
    check(api_.fill_async(destination_, 0xee, bytes(), stream_));
    batch();
    check(api_.copy_async(seen_, destination_, bytes(), stream_));
    wait();
    for (Bytes i = 0; i < shape.count; ++i) {
      if (std::memcmp(seen_ + order[i] * shape.piece, pinned_source_ + source_at(i), shape.piece) !=
          0) {
        std::fprintf(stderr, "scatter-copy: piece %llu of %llu, %llu bytes each, is wrong\n",
                     static_cast<unsigned long long>(i),
                     static_cast<unsigned long long>(shape.count),
                     static_cast<unsigned long long>(shape.piece));
        std::exit(1);
      }
    }
  }

  Bytes bytes() const { return shape_.piece * shape_.count; }
  void batch() { check(copy_.copy(stream_, pieces_, shape_.count)); }
  void memcpy_batch() {
    check(api_.copy_async(destination_, shape_.is_pinned ? pinned_source_ : device_source_, bytes(),
                          stream_));
  }
  void wait() { check(api_.wait_stream(stream_)); }
  /// A kernel that reads and writes nothing: that of the copies, without pieces.
  void empty(bool is_prepared) {
    void* pointers[] = {&nothing_};
    check(is_prepared ? api_.launch_again(launcher_, kEmptyShape, stream_, pointers)
                      : api_.launch(empty_, kEmptyShape, stream_, pointers));
  }
  bool has_prepared() const { return launcher_ != nullptr; }
  const ScatterCopy& copy() const { return copy_; }

  /// One after the other in the stream, microseconds each: the median of a few series.
  template <class Body>
  double stream_us(Body body) {
    body();
    wait();
    auto start = Clock::now();
    body();
    wait();
    const int count = std::clamp(static_cast<int>(kRepeatUs / us_since(start)), 3, 500);
    std::vector<double> times;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      start = Clock::now();
      for (int i = 0; i < count; ++i) {
        body();
      }
      wait();
      times.push_back(us_since(start) / count);
    }
    return median(times);
  }
  /// From the call until the stream's end is seen, microseconds: the median.
  template <class Body>
  double call_us(Body body) {
    constexpr int kCalls = 1000;
    constexpr int kWarmUp = 100;
    std::vector<double> times;
    for (int i = 0; i < kWarmUp + kCalls; ++i) {
      const auto start = Clock::now();
      body();
      wait();
      if (i >= kWarmUp) {
        times.push_back(us_since(start));
      }
    }
    return median(times);
  }

 private:
  static constexpr tutti::device::LaunchShape kEmptyShape{.block = {32, 1, 1}};
  Bytes source_at(Bytes piece) const {
    return piece * (shape_.piece + kSlotExtraBytes) + shape_.offset;
  }

  Api& api_;
  Bytes source_bytes_;
  ScatterCopy copy_;
  Stream stream_;
  char* device_source_;
  char* pinned_source_;
  char* destination_;
  char* seen_;
  ScatterPiece* pieces_;
  Function empty_;
  tutti::device::Launcher launcher_ = nullptr;
  kernels::ScatterArguments nothing_{.pieces = nullptr, .count = 0, .group = 1, .split_shift = 0};
  Shape shape_;
};

/// What the memory's clock and width allow, GB/s; 0: not known.
double memory_limit(const Api& api) {
  void* const library =
      std::string(api.name()) == "cuda" ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) {
    return 0;
  }
  int (*get)(int*, int, int);
  *reinterpret_cast<void**>(&get) = dlsym(library, "cuDeviceGetAttribute");
  constexpr int kMemoryClockKhz = 36;
  constexpr int kMemoryBusBits = 37;
  int clock = 0;
  int bits = 0;
  if (get == nullptr || get(&clock, kMemoryClockKhz, kDevice) != 0 ||
      get(&bits, kMemoryBusBits, kDevice) != 0) {
    return 0;
  }
  return 2.0 * clock * bits / 8 / 1e6;
}

class Rows {
 public:
  explicit Rows(std::FILE* out) : out_(out) {}
  void begin(const char* name) {
    std::fprintf(out_, ", \"%s\": [", name);
    is_first_ = true;
  }
  template <class... Values>
  void row(const char* format, Values... values) {
    std::fputs(is_first_ ? "\n {" : ",\n {", out_);
    std::fprintf(out_, format, values...);
    std::fputs("}", out_);
    is_first_ = false;
  }
  void end() { std::fputs("\n]", out_); }

 private:
  std::FILE* out_;
  bool is_first_ = true;
};

unsigned long long wide(Bytes bytes) { return bytes; }

constexpr Bytes kPieces[] = {256, 1 << 10, 4 << 10, 16 << 10, 64 << 10};

void measure_throughput(Bench& bench, Rows& rows, Bytes most, double limit) {
  rows.begin("rows");
  for (const bool is_pinned : {false, true}) {
    for (const Bytes offset : {Bytes{0}, kHeaderBytes}) {
      for (const Bytes piece : kPieces) {
        for (Bytes total = 64 << 10; total <= most; total *= 4) {
          // Host memory is behind a bus: the ends of the range say enough.
          if (is_pinned && (offset == 0 || (total != (1 << 20) && total != (16 << 20)))) {
            continue;
          }
          bench.prepare(
              {.piece = piece, .count = total / piece, .offset = offset, .is_pinned = is_pinned});
          const double us = bench.stream_us([&] { bench.batch(); });
          const double memcpy_us = bench.stream_us([&] { bench.memcpy_batch(); });
          // Memory of the device is read and written; the bus to host memory is read.
          const double moved = static_cast<double>(total) * (is_pinned ? 1 : 2);
          const double gbps = moved / us / 1e3;
          const double memcpy_gbps = moved / memcpy_us / 1e3;
          const double of_limit = limit > 0 && !is_pinned ? gbps / limit : 0;
          rows.row(
              "\"source\": \"%s\", \"offset_bytes\": %llu, \"piece_bytes\": %llu, \"bytes\": "
              "%llu, \"us\": %.3f, \"memcpy_us\": %.3f, \"gbps\": %.1f, \"memcpy_gbps\": %.1f, "
              "\"of_memcpy\": %.3f, \"of_limit\": %.3f",
              is_pinned ? "pinned" : "device", wide(offset), wide(piece), wide(total), us,
              memcpy_us, gbps, memcpy_gbps, gbps / memcpy_gbps, of_limit);
          std::fprintf(stderr,
                       "%s + %2llu, pieces of %5llu, %9llu bytes: %9.2f us, %7.1f GB/s; copy "
                       "%9.2f us, %7.1f GB/s; %3.0f %% of it, %3.0f %% of the memory's\n",
                       is_pinned ? "pinned" : "device", wide(offset), wide(piece), wide(total), us,
                       gbps, memcpy_us, memcpy_gbps, 100 * gbps / memcpy_gbps, 100 * of_limit);
        }
      }
    }
  }
  rows.end();
}

void measure_latency(Bench& bench, Rows& rows) {
  constexpr Bytes kPiece = 4 << 10;
  bench.prepare({.piece = kPiece, .count = 1});
  const double empty = bench.call_us([&] { bench.empty(false); });
  const double prepared = bench.has_prepared() ? bench.call_us([&] { bench.empty(true); }) : empty;
  rows.begin("latency");
  rows.row("\"what\": \"empty kernel\", \"us\": %.3f", empty);
  rows.row("\"what\": \"empty kernel, prepared launch\", \"us\": %.3f", prepared);
  std::fprintf(stderr, "empty kernel: %.2f us, by a prepared launch %.2f us\n", empty, prepared);
  for (const bool is_pinned : {false, true}) {
    for (const Bytes offset : {Bytes{0}, kHeaderBytes}) {
      for (const Bytes count : {1, 8, 64}) {
        bench.prepare({.piece = kPiece, .count = count, .offset = offset, .is_pinned = is_pinned});
        const double us = bench.call_us([&] { bench.batch(); });
        const double memcpy_us = bench.call_us([&] { bench.memcpy_batch(); });
        rows.row(
            "\"what\": \"batch\", \"source\": \"%s\", \"offset_bytes\": %llu, \"piece_bytes\": "
            "%llu, \"pieces\": %llu, \"us\": %.3f, \"added_us\": %.3f, \"added_to_prepared_us\": "
            "%.3f, \"memcpy_us\": %.3f",
            is_pinned ? "pinned" : "device", wide(offset), wide(kPiece), wide(count), us,
            us - empty, us - prepared, memcpy_us);
        std::fprintf(stderr,
                     "%s + %2llu, %2llu pieces of 4 KiB: %6.2f us, %+.2f us to an empty kernel, "
                     "%+.2f us to a prepared one; one copy %6.2f us\n",
                     is_pinned ? "pinned" : "device", wide(offset), wide(count), us, us - empty,
                     us - prepared, memcpy_us);
      }
    }
  }
  rows.end();
}

void sweep(Bench& bench, Rows& rows, Bytes most) {
  rows.begin("sweep");
  const auto measure = [&](const Bench::Shape& shape, const ScatterTuning& tuning) {
    bench.prepare(shape, tuning);
    const double us = bench.stream_us([&] { bench.batch(); });
    const double call = bench.call_us([&] { bench.batch(); });
    rows.row(
        "\"piece_bytes\": %llu, \"pieces\": %llu, \"group\": %u, \"split\": %u, \"us\": %.3f, "
        "\"call_us\": %.3f",
        wide(shape.piece), wide(shape.count), tuning.group, tuning.split, us, call);
    std::fprintf(stderr, "pieces of %5llu, %7llu: group %2u, split %2u: %9.2f us, alone %9.2f us\n",
                 wide(shape.piece), wide(shape.count), tuning.group, tuning.split, us, call);
  };
  for (const Bytes piece : kPieces) {
    for (const Bytes total : {Bytes{1} << 20, Bytes{16} << 20, Bytes{128} << 20}) {
      for (const unsigned group : {0U, 1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
        if (total <= most && (group <= 4 || total / piece / group >= 64)) {
          measure({.piece = piece, .count = total / piece, .offset = kHeaderBytes},
                  {.group = group, .split = group == 0 ? 0U : 1U});
        }
      }
    }
  }
  for (const Bytes piece : {Bytes{4} << 10, Bytes{64} << 10}) {
    for (const Bytes count : {1, 8, 64}) {
      for (const unsigned split : {0U, 1U, 2U, 4U, 8U, 16U, 32U}) {
        if (piece * count <= most) {
          measure({.piece = piece, .count = count, .offset = kHeaderBytes},
                  {.group = split == 0 ? 0U : 1U, .split = split});
        }
      }
    }
  }
  rows.end();
}

}  // namespace

int main(int count, char** values) {
  const Bytes most = count > 2 ? std::strtoull(values[2], nullptr, 10) : Bytes{256} << 20;
  if (most < (1 << 20) || (count > 3 && std::strcmp(values[3], "sweep") != 0)) {
    std::fprintf(stderr, "usage: scatter-copy [OUT.json [MOST_BYTES [sweep]]], a MiB at least\n");
    return 2;
  }
  tutti::device::OpenReport report;
  const char* const wanted = std::getenv("TUTTI_DEVICE");
  const auto api = tutti::device::open(wanted == nullptr ? "auto" : wanted, &report);
  if (api == nullptr) {
    std::fprintf(stderr, "scatter-copy: no device: %s\n", report.reason.c_str());
    return 1;
  }
  std::FILE* const out = count > 1 ? std::fopen(values[1], "w") : stdout;
  if (out == nullptr) {
    std::perror(values[1]);
    return 2;
  }
  check(api->initialize());
  Bench bench(*api, most);
  const double limit = memory_limit(*api);
  std::fprintf(out,
               "{\"device\": \"%s\", \"library\": \"%s\", \"image\": \"%s\", "
               "\"memory_limit_gbps\": %.1f",
               take(api->device_name(kDevice)).c_str(), api->library().c_str(),
               bench.copy().target().c_str(), limit);
  Rows rows(out);
  measure_latency(bench, rows);
  measure_throughput(bench, rows, most, limit);
  if (count > 3) {
    sweep(bench, rows, most);
  }
  std::fprintf(out, "}\n");
  return std::fclose(out) == 0 ? 0 : 1;
}
