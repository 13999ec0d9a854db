// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/graph_order.hpp"

#include <utility>

namespace tutti::runners {

GraphOrder::~GraphOrder() {
  if (graphs_->load() != 0) {
    static_cast<void>(new SharedEvent(order_));  // A graph that is still there names it.
  }
}

void GraphOrder::use(device::Api& api, SharedEvent order, SharedEvent within) {
  api_ = &api;
  order_ = std::move(order);
  within_ = std::move(within);
  has_order_ = order_.get();
}

Status GraphOrder::open(device::Stream stream, bool* is_first) {
  TUTTI_ASSIGN_OR_RETURN(const std::uint64_t capture, api_->capture_id(stream));
  *is_first = capture != capture_;
  capture_ = 0;  // Until close(): what fails here is behind no call of this capture.
  if (capture == 0) {
    return Status(ErrorCode::kInvalidArgument, "the stream captures no graph");
  }
  TUTTI_RETURN_IF_ERROR(*is_first ? begin_graph(stream)
                                  : api_->stream_wait_event(stream, within_.get()));
  capture_ = capture;
  return {};
}

Status GraphOrder::begin_graph(device::Stream stream) {
  recorded_ = nullptr;
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
  static_cast<void>(held.release());
  return api_->wait_at_launch(stream, order_.get());
}

Status GraphOrder::close(device::Stream stream) {
  TUTTI_RETURN_IF_ERROR(api_->record_event(within_.get(), stream));
  TUTTI_ASSIGN_OR_RETURN(recorded_, api_->record_at_launch(stream, order_.get(), recorded_));
  return {};
}

bool GraphOrder::is_over() const {
  const device::Event event = has_order_;
  if (event == nullptr) {
    return true;
  }
  const auto is_done = api_->event_done(event);
  return !is_done.ok() || *is_done;
}

}  // namespace tutti::runners
