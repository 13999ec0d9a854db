// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/graph_order.hpp"

#include <algorithm>
#include <utility>

namespace tutti::runners {

Result<GraphOrder::SharedEvent> GraphOrder::make_event(device::Api& api, int device) {
  TUTTI_ASSIGN_OR_RETURN(const device::Event event, api.create_event(device));
  return SharedEvent(event, [&api](device::Event made) {
    Status ignored = api.destroy_event(made);
    static_cast<void>(ignored);
  });
}

GraphOrder::~GraphOrder() {
  if (graphs_->load() != 0) {
    // A graph that is still there names it.
    [[maybe_unused]] const auto* const kept = std::make_unique<SharedEvent>(order_).release();
  }
}

void GraphOrder::use(device::Api& api, int device, SharedEvent order) {
  api_ = &api;
  device_ = device;
  order_ = std::move(order);
  has_order_ = order_.get();
}

Status GraphOrder::open(device::Stream stream, int kind, bool* is_behind_other) {
  TUTTI_ASSIGN_OR_RETURN(opened_, api_->capture_id(stream));
  if (opened_ == 0) {
    return Status(ErrorCode::kInvalidArgument, "the stream captures no graph");
  }
  const auto found = std::find_if(captures_.begin(), captures_.end(),
                                  [&](const Capture& one) { return one.id == opened_; });
  const bool is_first = found == captures_.end();
  *is_behind_other = is_first || found->kind != kind;
  return is_first ? begin_graph(stream) : api_->stream_wait_event(stream, found->within.get());
}

Status GraphOrder::begin_graph(device::Stream stream) {
  auto held = std::make_unique<Count>(graphs_);
  const auto release = [](void* argument) {
    const std::unique_ptr<Count> count(static_cast<Count*>(argument));
    --**count;
  };
  ++*graphs_;
  if (Status status = api_->on_graph_end(stream, release, held.get()); !status.ok()) {
    --*graphs_;
    return status;
  }
  [[maybe_unused]] const auto* const kept = held.release();
  return api_->wait_at_launch(stream, order_.get());
}

Status GraphOrder::close(device::Stream stream, int kind) {
  const auto found = std::find_if(captures_.begin(), captures_.end(),
                                  [&](const Capture& one) { return one.id == opened_; });
  Capture capture = found != captures_.end() ? *found : Capture{.id = opened_};
  if (capture.within == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(capture.within, make_event(*api_, device_));
  }
  capture.kind = kind;
  TUTTI_RETURN_IF_ERROR(api_->record_event(capture.within.get(), stream));
  TUTTI_ASSIGN_OR_RETURN(capture.recorded,
                         api_->record_at_launch(stream, order_.get(), capture.recorded));
  if (found != captures_.end()) {
    captures_.erase(found);
  } else if (captures_.size() == kCapturesMax) {
    captures_.erase(captures_.begin());
  }
  captures_.push_back(std::move(capture));
  return {};
}

bool GraphOrder::is_over() const {
  const device::Event event = has_order_;
  if (event == nullptr) {
    return true;
  }
  const device::RelaxedCapture relaxed(*api_);
  const auto is_done = api_->event_done(event);
  return !is_done.ok() || *is_done;
}

}  // namespace tutti::runners
