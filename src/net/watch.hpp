// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a Network keeps for those who watch it: statistics in shared memory for `tutti top`. Nothing
// here is there before the first engine, and nothing that fails here stops the network.
#pragma once

#include <memory>

#include "base/config.hpp"
#include "net/engine.hpp"
#include "net/network.hpp"
#include "net/statistics.hpp"

namespace tutti::net {

class Watch {
 public:
  /// Both outlive it.
  Watch(const Config& config, const Log& log) : config_(config), log_(log) {}

  /// Tells an engine that is about to be made what it writes to. One thread at a time.
  void add(EngineOptions* engine);

 private:
  void start();

  const Config& config_;
  const Log& log_;
  bool is_started_ = false;
  std::unique_ptr<Statistics> statistics_;
};

}  // namespace tutti::net
