// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/windows.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::wire::verbs {

Windows::~Windows() {
  for (Window& window : windows_) {
    release(window);
  }
}

/// The NIC forgets a window, open or not.
void Windows::release(Window& window) {
  if (window.mw == nullptr) {
    return;
  }
  const int error = context_->ops.dealloc_mw(std::exchange(window.mw, nullptr));
  has_all_ = has_all_ && error != 0;
  const bool may_be_open = window.state == State::kOpening || window.state == State::kOpen ||
                           window.state == State::kClosing;
  if (error != 0 && may_be_open) {
    on_kept_(std::string("the NIC keeps a memory window: ") + std::strerror(error));
  }
}

int Windows::try_one() {
  if (context_->ops.alloc_mw == nullptr) {
    return ENOSYS;
  }
  Window tried;
  tried.mw = context_->ops.alloc_mw(pd_, kWindowOfDomain);
  const int error = tried.mw == nullptr ? errno : 0;
  release(tried);
  return error;
}

Windows::Window* Windows::find(std::uint64_t name) {
  const std::uint64_t index = (name & UINT32_MAX) - 1;
  return index < windows_.size() && windows_[index].uses == name >> 32 ? &windows_[index] : nullptr;
}

/// False: there is no room in the send queue, or it takes no more.
bool Windows::request(std::uint32_t index, std::uint64_t address, std::uint64_t bytes) {
  if (requests_ >= kRequestsMax || has_failed_) {
    return false;
  }
  Bind bind{};
  bind.id = kCompletion | index;
  bind.flags = kSignaled;
  bind.mr = windows_[index].mr;
  bind.address = address;
  bind.bytes = bytes;
  bind.access = bytes == 0 ? 0 : kRemoteWrite;
  if (context_->ops.bind_mw(qp_, windows_[index].mw, &bind) != 0) {
    return false;
  }
  ++requests_;
  return true;
}

std::uint64_t Windows::open(Mr* mr, std::span<std::byte> memory) {
  if (has_failed_) {
    return 0;
  }
  if (!has_all_ && free_.size() < kFreeMin && free_.size() + in_use_ < kWindowsMax) {
    Window made;
    made.mw = context_->ops.alloc_mw(pd_, kWindowOfDomain);
    has_all_ = made.mw == nullptr;
    if (made.mw != nullptr) {
      free_.push_front(static_cast<std::uint32_t>(windows_.size()));
      windows_.push_back(made);
    }
  }
  if (free_.empty()) {
    return 0;
  }
  const std::uint32_t index = free_.front();
  Window& window = windows_[index];
  window.mr = mr;
  window.address = reinterpret_cast<std::uint64_t>(memory.data());
  if (!request(index, window.address, memory.size())) {
    has_failed_ = requests_ == 0;  // An empty send queue has room.
    return 0;
  }
  free_.pop_front();
  ++in_use_;
  window.state = State::kOpening;
  window.is_unwanted = false;
  ++window.uses;
  return std::uint64_t{window.uses} << 32 | (index + 1);
}

bool Windows::has_opened(std::uint64_t name, transport::RemoteMemory* remote) {
  const Window* const window = find(name);
  if (window != nullptr && window->state == State::kOpening) {
    return false;
  }
  *remote = {};
  if (window != nullptr && window->state == State::kOpen) {
    *remote = {window->address, window->mw->remote_key};
  }
  return true;
}

void Windows::close(std::uint64_t name) {
  Window* const window = find(name);
  if (window != nullptr && !std::exchange(window->is_unwanted, true)) {
    ask_to_close(static_cast<std::uint32_t>(window - windows_.data()));
  }
}

void Windows::ask_to_close(std::uint32_t index) {
  Window& window = windows_[index];
  if (window.state == State::kOpening) {
    return;  // When that is complete.
  }
  if (window.state == State::kRefused) {
    window.state = State::kClosed;
  } else if (has_failed_) {
    release(window);
    window.state = State::kClosed;
  } else if (request(index, window.address, 0)) {
    window.state = State::kClosing;
  } else if (requests_ == 0) {
    // An empty send queue has room: what it refuses it refuses for good.
    has_failed_ = true;
    release(window);
    window.state = State::kClosed;
  } else {
    pending_.push_back(index);
  }
}

bool Windows::has_closed(std::uint64_t name) {
  Window* const window = find(name);
  if (window == nullptr) {
    return true;
  }
  if (window->state != State::kClosed) {
    return false;
  }
  --in_use_;
  window->state = State::kFree;
  if (window->mw != nullptr) {
    free_.push_back(static_cast<std::uint32_t>(window - windows_.data()));
  }
  ++window->uses;  // The name is void.
  return true;
}

void Windows::complete(std::uint64_t id, int status) {
  const auto index = static_cast<std::uint32_t>(id & UINT32_MAX);
  if (requests_ == 0) {
    return;  // Of a queue pair that is gone.
  }
  Window& window = windows_[index];
  --requests_;
  ++completed_;
  has_failed_ = has_failed_ || status != kSuccess;
  if (window.state == State::kOpening) {
    window.state = status == kSuccess ? State::kOpen : State::kRefused;
    if (window.is_unwanted) {
      ask_to_close(index);
    }
  } else if (window.state == State::kClosing) {
    if (status != kSuccess) {
      release(window);
    }
    window.state = State::kClosed;
  }
}

bool Windows::revoke(const Mr* mr) {
  bool are_closed = true;
  for (Window& window : windows_) {
    if (window.mr != mr) {
      continue;
    }
    are_closed = are_closed && window.state != State::kOpening && window.state != State::kClosing;
    if (window.state == State::kOpen) {
      release(window);
      window.state = State::kRefused;
    }
  }
  return are_closed;
}

void Windows::abandon() {
  has_failed_ = true;
  requests_ = 0;
  pending_.clear();
  for (Window& window : windows_) {
    release(window);
    if (window.state == State::kOpening || window.state == State::kOpen) {
      window.state = window.is_unwanted ? State::kClosed : State::kRefused;
    } else if (window.state == State::kClosing) {
      window.state = State::kClosed;
    }
  }
}

void Windows::poll() {
  for (const std::uint32_t index : std::exchange(pending_, {})) {
    ask_to_close(index);
  }
}

}  // namespace tutti::wire::verbs
