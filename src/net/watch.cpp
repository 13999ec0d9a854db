// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/watch.hpp"

#include <utility>

namespace tutti::net {
namespace {

constexpr char kDirectory[] = "/dev/shm";

}  // namespace

void Watch::add(EngineOptions* engine) {
  if (!is_started_) {
    is_started_ = true;
    start();
  }
  if (statistics_ != nullptr) {
    engine->statistics = statistics_->add_engine();
  }
}

void Watch::start() {
  if (!config_.net_statistics) {
    return;
  }
  auto statistics = Statistics::open(kDirectory, static_cast<std::uint32_t>(config_.net_paths));
  if (!statistics.ok()) {
    log_(LogKind::kInfo,
         "net: `tutti top` cannot show this process: " + statistics.status().message() +
             " (TUTTI_NET_STATISTICS=0 does without it)");
    return;
  }
  statistics_ = std::move(*statistics);
}

}  // namespace tutti::net
