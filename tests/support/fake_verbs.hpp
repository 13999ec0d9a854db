// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a test may tell the fake of libibverbs (fake_verbs.cpp): the symbol fake_verbs_control; and
// fake_verbs_seed(seed), from which all chances are drawn.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::testing {

struct FakeVerbsControl {
  double loss = 0;       ///< Share of what UC and UD send that gets lost.
  double duplicate = 0;  ///< Share that arrives once more, up to 500 polls later.
  double hold = 0;       ///< Chance of a queue pair to send nothing at a poll.
  double fail = 0;       ///< Chance of a send of RC and UC to break its queue pair.
  bool has_uc = true;
  bool has_windows = true;  ///< Memory windows of type 1.
  int inline_bytes_max = 256;
  int qps_max = 1 << 20;        ///< Of all devices; create_qp fails then.
  int mtu_code = 5;             ///< ibv_mtu of all ports: 4096.
  bool is_active = true;        ///< All ports.
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
};

}  // namespace tutti::testing
