// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/copies.hpp"

#include <cstring>
#include <utility>

namespace tutti::runners {
namespace {

bool on_device(const device::PointerInfo& memory) {
  return memory.kind == device::MemoryKind::kDevice;
}

}  // namespace

Status copy_any(device::Api* api, void* destination, const device::PointerInfo& destination_memory,
                const void* source, const device::PointerInfo& source_memory, Bytes bytes) {
  if (bytes == 0 || destination == source) {
    return {};
  }
  if (api == nullptr || (!on_device(destination_memory) && !on_device(source_memory))) {
    std::memmove(destination, source, bytes);
    return {};
  }
  return api->copy(destination, source, bytes);
}

Status Copies::add(void* destination, const device::PointerInfo& destination_memory,
                   const void* source, const device::PointerInfo& source_memory, Bytes bytes) {
  if (stream_ == nullptr || (!on_device(destination_memory) && !on_device(source_memory)) ||
      bytes == 0) {
    return copy_any(api_, destination, destination_memory, source, source_memory, bytes);
  }
  copying_ = true;
  return api_->copy_async(destination, source, bytes, stream_);
}

Status Copies::mark(int device) {
  if (!copying_) {
    return {};
  }
  if (event_ == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(event_, api_->create_event(device));
  }
  TUTTI_RETURN_IF_ERROR(api_->record_event(event_, stream_));
  is_marked_ = true;
  return {};
}

Status Copies::finish() {
  if (!std::exchange(copying_, false)) {
    return {};
  }
  if (!std::exchange(is_marked_, false)) {
    return api_->wait_stream(stream_);
  }
  while (true) {
    TUTTI_ASSIGN_OR_RETURN(const bool is_done, api_->event_done(event_));
    if (is_done) {
      return {};
    }
  }
}

Copies::~Copies() {
  Status ignored = finish();
  if (event_ != nullptr) {
    ignored = api_->destroy_event(event_);
  }
  static_cast<void>(ignored);
}

}  // namespace tutti::runners
