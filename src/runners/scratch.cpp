// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/scratch.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/log.hpp"

namespace tutti::runners {
namespace {

constexpr int kSmallestClass = 12;  // 4 KiB: a page.
constexpr int kLargestClass = 46;

int class_of(Bytes bytes) {
  return std::max(kSmallestClass, static_cast<int>(std::bit_width(bytes == 0 ? 0 : bytes - 1)));
}

}  // namespace

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = other.pool_;
    data_ = std::exchange(other.data_, nullptr);
    device_ = other.device_;
    size_class_ = other.size_class_;
  }
  return *this;
}

void Lease::give_back() {
  if (data_ != nullptr) {
    pool_->put(device_, size_class_, std::exchange(data_, nullptr));
  }
}

Result<Lease> Scratch::lease(int device, Bytes bytes, bool may_wait) {
  Lease lease;
  lease.pool_ = this;
  lease.device_ = device;
  lease.size_class_ = class_of(bytes);
  if (lease.size_class_ > kLargestClass) {
    return Status(ErrorCode::kOutOfMemory,
                  "staging buffer of " + std::to_string(bytes) + " bytes is over any memory");
  }
  {
    const std::lock_guard lock(mutex_);
    auto found = free_.find({device, lease.size_class_});
    if (found != free_.end() && !found->second.empty()) {
      lease.data_ = found->second.back();
      found->second.pop_back();
      if (device < 0) {
        cached_pinned_bytes_ -= Bytes{1} << lease.size_class_;
      }
      return lease;
    }
  }
  TUTTI_ASSIGN_OR_RETURN(lease.data_, allocate(device, Bytes{1} << lease.size_class_, may_wait));
  return lease;
}

Result<void*> Scratch::allocate(int device, Bytes bytes, bool may_wait) {
  if (device >= 0) {
    auto allocated = api_->allocate_device(device, bytes);
    if (allocated.status().code() == ErrorCode::kOutOfMemory && may_wait && free_cached(device)) {
      return api_->allocate_device(device, bytes);  // What other sizes had was in the way.
    }
    return allocated;
  }
  if (api_ != nullptr) {
    auto pinned = api_->allocate_pinned(bytes, device::Api::kAnyDevice);
    if (pinned.ok()) {
      return pinned;
    }
    // Ordinary memory gives slower copies and the same result; an error here would leave the other
    // ranks alone in the collective. Without a usable device there is nothing to be slow.
    if (pinned.status().code() != ErrorCode::kUnavailable && !is_told_.exchange(true)) {
      log(LogLevel::kWarn,
          "staging through memory that is not pinned: " + pinned.status().message());
    }
  }
  void* data = std::aligned_alloc(4096, bytes);
  if (data == nullptr) {
    return Status(ErrorCode::kOutOfMemory,
                  "no host memory for a staging buffer of " + std::to_string(bytes) + " bytes");
  }
  const std::lock_guard lock(mutex_);
  plain_.insert(data);
  return data;
}

void Scratch::free(int device, void* data) {
  {
    const std::lock_guard lock(mutex_);
    if (device < 0 && plain_.erase(data) != 0) {
      std::free(data);
      return;
    }
  }
  Status ignored = device >= 0 ? api_->free_device(data) : api_->free_pinned(data);
  static_cast<void>(ignored);
}

void Scratch::put(int device, int size_class, void* data) {
  const Bytes bytes = Bytes{1} << size_class;
  {
    const std::lock_guard lock(mutex_);
    if (device >= 0 || cached_pinned_bytes_ + bytes <= cached_pinned_bytes_max_) {
      free_[{device, size_class}].push_back(data);
      if (device < 0) {
        cached_pinned_bytes_ += bytes;
      }
      return;
    }
  }
  free(device, data);
}

bool Scratch::free_cached(std::optional<int> device) {
  std::vector<std::pair<int, void*>> buffers;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [key, cached] : free_) {
      if (!device || key.first == *device) {
        for (void* const data : std::exchange(cached, {})) {
          buffers.emplace_back(key.first, data);
        }
        cached_pinned_bytes_ = key.first < 0 ? 0 : cached_pinned_bytes_;
      }
    }
  }
  for (const auto& [own_device, data] : buffers) {
    free(own_device, data);
  }
  return !buffers.empty();
}

}  // namespace tutti::runners
