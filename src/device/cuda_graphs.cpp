// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Graphs that the application captures: their place among other work. CUDA driver API, "Graph
// Management" and "Stream Management": an event that a graph waits for or records as an external
// one acts as if the launch itself had waited or recorded.
#include "device/cuda.hpp"

namespace tutti::device {

bool CudaApi::orders_graphs() const {
  return cu_.stream_get_capture_info && cu_.graph_add_event_record_node && cu_.user_object_create &&
         cu_.graph_retain_user_object;
}

Result<CudaApi::Capture> CudaApi::capture_of(Stream stream) {
  int status = cuda::kCaptureStatusNone;
  Capture capture;
  const cuda::GraphNode* last = nullptr;
  const void* edges = nullptr;
  std::size_t count = 0;
  TUTTI_RETURN_IF_ERROR(check(cu_.stream_get_capture_info(
      native_stream(stream), &status, &capture.id, &capture.graph, &last, &edges, &count)));
  if (status == cuda::kCaptureStatusNone) {
    return Capture();
  }
  capture.last.assign(last, last + count);
  return capture;
}

Result<std::uint64_t> CudaApi::capture_id(Stream stream) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  TUTTI_ASSIGN_OR_RETURN(const Capture capture, capture_of(stream));
  return capture.id;
}

Status CudaApi::wait_at_launch(Stream stream, Event event) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  return check(gpu_.stream_wait_event(native_stream(stream), event, cuda::kEventWaitExternal));
}

Result<GraphNode> CudaApi::record_at_launch(Stream stream, Event event, GraphNode before) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  TUTTI_ASSIGN_OR_RETURN(Capture capture, capture_of(stream));
  if (before != nullptr) {
    capture.last.push_back(static_cast<cuda::GraphNode>(before));
  }
  cuda::GraphNode node = nullptr;
  TUTTI_RETURN_IF_ERROR(check(cu_.graph_add_event_record_node(
      &node, capture.graph, capture.last.data(), capture.last.size(), event)));
  return static_cast<GraphNode>(node);
}

Status CudaApi::on_graph_end(Stream stream, void (*release)(void*), void* argument) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  TUTTI_ASSIGN_OR_RETURN(const Capture capture, capture_of(stream));
  cuda::UserObject object = nullptr;
  TUTTI_RETURN_IF_ERROR(check(
      cu_.user_object_create(&object, argument, release, 1, cuda::kUserObjectNoDestructorSync)));
  return check(cu_.graph_retain_user_object(capture.graph, object, 1, cuda::kGraphUserObjectMove));
}

}  // namespace tutti::device
