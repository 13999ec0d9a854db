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

#include "base/dynamic_library.hpp"

namespace tutti::testing {

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
  bool fails_device = false;   ///< Stops, and the next device that is polled tells its failure.
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
