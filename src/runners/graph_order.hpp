// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The place of calls in graphs that the application captures, among the other calls of their
// communicator. Within a graph each call stands behind the one before it, whatever the streams.
// Across launches there is one event: a graph waits for it before its first call and records it
// behind its last, as if the launch had done so, and calls outside of graphs do the same. So all
// run in the order in which the program launches and makes them, as NCCL's do. Communicators that
// take turns have one event for all of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.hpp"

namespace tutti::runners {

class GraphOrder {
 public:
  GraphOrder() = default;
  ~GraphOrder();
  GraphOrder(const GraphOrder&) = delete;
  GraphOrder& operator=(const GraphOrder&) = delete;

  /// Destroyed when nobody waits for it any more.
  using SharedEvent = std::shared_ptr<void>;
  static Result<SharedEvent> make_event(device::Api& api, int device);

  /// The event, from the first call in a graph on; it stays.
  void use(device::Api& api, int device, SharedEvent order);
  /// Before a call goes into the graph that `stream` captures. `is_behind_other`: what it stands
  /// behind in a launch may be of another kind, since it is the graph's first or follows such a
  /// one.
  Status open(device::Stream stream, int kind, bool* is_behind_other);
  /// Behind it.
  Status close(device::Stream stream, int kind);

  // What follows is for any thread.
  bool has_event() const { return has_order_ != nullptr; }
  /// Whether no launch is under way, of who has the same event. Asks the driver; its failure is an
  /// end, too.
  bool is_over() const;
  /// Graphs that hold calls, or may be launched yet; lives as long as they do.
  using Count = std::shared_ptr<std::atomic<int>>;
  const Count& graphs() const { return graphs_; }

 private:
  /// A capture that has a call.
  struct Capture {
    std::uint64_t id = 0;
    SharedEvent within{};  ///< Behind its last call.
    int kind = 0;          ///< Of that call.
    device::GraphNode recorded = nullptr;
  };
  /// Captures that may go on at a time, on streams that a program has in turn.
  static constexpr std::size_t kCapturesMax = 16;

  Status begin_graph(device::Stream stream);

  device::Api* api_ = nullptr;
  int device_ = -1;
  Count graphs_ = std::make_shared<std::atomic<int>>(0);
  SharedEvent order_;
  std::atomic<device::Event> has_order_{nullptr};  ///< order_, for other threads.
  std::vector<Capture> captures_;                  ///< The last ones; the latest is at the end.
  std::uint64_t opened_ = 0;                       ///< Of open(), until close().
};

}  // namespace tutti::runners
