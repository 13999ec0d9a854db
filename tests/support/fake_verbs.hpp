// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a test may tell the fake of libibverbs (fake_verbs.cpp): the symbol fake_verbs_control; and
// fake_verbs_seed(seed), from which all chances are drawn.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/clock.hpp"
#include "base/dynamic_library.hpp"

namespace tutti::testing {

/// The clock of the fake NICs, and what their driver makes of it.
struct FakeNicClock {
  std::uint64_t (*host_ns)() = nullptr;  ///< The time that it runs by. Null: the system's.
  std::uint64_t khz = 156'250;
  std::uint64_t told_khz = 156'250;      ///< What the driver tells of that; 0: nothing.
  std::int64_t drift_ppm = 0;            ///< It runs faster by.
  std::uint64_t mask = UINT64_MAX >> 1;  ///< It begins anew behind it. 0: no completion is stamped.
  std::uint64_t ticks = 0x1234'5678'9abc;  ///< It shows, in front of the mask.
  int read_error = 0;                      ///< Reading it fails with.
  bool refuses_cqs = false;                ///< No completion queue with stamps: ENOMEM.
  bool is_extended = true;                 ///< The driver has libibverbs' extended interface.
  bool is_readable = true;                 ///< It has a function that reads the clock.
  std::uint64_t readings = 0;              ///< So far.
  std::uint64_t stamps_ahead = 0;          ///< Ticks: stamps are of another clock.

  std::uint64_t now() {
    __extension__ using Wide = __int128;
    constexpr std::int64_t kParts = 1'000'000'000'000;  // Of a tick: 10^6 each of ns/kHz and ppm.
    const std::uint64_t host = host_ns == nullptr ? monotonic_ns() : host_ns();
    const auto passed_ns = static_cast<std::int64_t>(host - (at_ns_ == 0 ? host : at_ns_));
    const Wide parts =
        static_cast<Wide>(passed_ns) * static_cast<std::int64_t>(khz) * (1'000'000 + drift_ppm) +
        parts_;
    ticks += static_cast<std::uint64_t>(parts / kParts);
    parts_ = static_cast<std::int64_t>(parts % kParts);
    at_ns_ = host;
    return ticks & mask;
  }

 private:
  std::uint64_t at_ns_ = 0;
  std::int64_t parts_ = 0;
};

struct FakeVerbsControl {
  double loss = 0;       ///< Share of what UC and UD send that gets lost.
  double duplicate = 0;  ///< Share that arrives once more, up to 500 polls later.
  double hold = 0;       ///< Chance of a queue pair to send nothing at a poll.
  double fail = 0;       ///< Chance of a send of RC and UC to break its queue pair.
  bool has_uc = true;
  int uc_error = EOPNOTSUPP;  ///< Of create_qp without UC.
  bool has_events = false;    ///< Completion channels: for one who polls both ends.
  bool has_windows = true;    ///< Memory windows of type 1.
  int inline_bytes_max = 256;
  int qps_max = 1 << 20;        ///< Of all devices; create_qp fails then.
  int mtu_code = 5;             ///< ibv_mtu of all ports: 4096.
  std::uint32_t inactive = 0;   ///< Ports: bit n is device n's.
  bool refuses_memory = false;  ///< reg_mr fails with ENOMEM.
  int refused_cqs = 0;          ///< So many of the next create_cq do.
  /// Which memory is a GPU's. Null: none is.
  bool (*is_device_memory)(const void* memory) = nullptr;
  /// Copies from or to such memory. Null: memcpy().
  void (*copy)(void* to, const void* from, std::size_t bytes) = nullptr;
  bool has_peermem = true;              ///< reg_mr takes it; else it fails with EFAULT.
  bool has_dma_buf = true;              ///< reg_dmabuf_mr takes any descriptor that is open.
  std::uint64_t device_bytes_sent = 0;  ///< Gathered from there.
  bool reads_wait = false;              ///< RC's reads do.
  std::uint64_t reads = 0;              ///< Done so far.
  bool completes_at_once = false;       ///< Else a send completes some polls after it has arrived.
  bool tells_by_event = false;          ///< A refused write of UC has no completion, but an event.
  std::uint32_t fail_qp = 0;            ///< The next send of this queue pair fails, then 0 again.
  bool is_cut = false;                  ///< Nothing arrives anywhere. RC gives up at once.
  std::uint64_t qps = 0;                ///< There are now.
  std::uint64_t sends = 0;              ///< Posted so far.
  /// So many connects of UC and RC fail with ENETUNREACH; -1: all.
  int connect_refusals = 0;
  bool refuses_binds = false;  ///< bind_mw fails with EIO.
  bool keeps_memory = false;   ///< dereg_mr and dealloc_mw say EBUSY.
  bool is_stopped = false;     ///< The NICs do nothing, and nothing completes.
  FakeNicClock clock;
  bool fails_device = false;  ///< Stops, and the next device that is polled tells its failure.
};

/// That of the library which this program loads by this name, and keeps.
inline FakeVerbsControl& fake_verbs(const char* library = "libibverbs.so.1") {
  static FakeVerbsControl* const it = [&] {
    FakeVerbsControl* (*get)() = nullptr;
    const auto fake = DynamicLibrary::open(library);
    if (!fake.ok() || !fake->resolve("fake_verbs_control", &get)) {
      std::abort();
    }
    return get();
  }();
  return *it;
}

}  // namespace tutti::testing
