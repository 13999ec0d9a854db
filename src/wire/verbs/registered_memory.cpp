// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/registered_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace tutti::wire::verbs {
namespace {

bool contains(const Mr& mr, std::uintptr_t begin, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(mr.address);
  return begin >= first && bytes <= mr.bytes && begin - first <= mr.bytes - bytes;
}

}  // namespace

RegisteredMemory::~RegisteredMemory() {
  for (const auto& [key, region] : regions_) {
    verbs_.dereg_mr(region.mr);
  }
}

Status RegisteredMemory::add(std::span<std::byte> memory) {
  if (memory.empty()) {
    return {};
  }
  Region& region = regions_[{reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()}];
  if (region.mr == nullptr) {
    region.mr = verbs_.reg_mr(pd_, memory.data(), memory.size(), kLocalWrite | kMayBind);
    if (region.mr == nullptr) {
      const int error = errno;
      regions_.erase({reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()});
      return Status(ErrorCode::kUnavailable,
                    "RDMA: " + std::to_string(memory.size()) +
                        " bytes cannot be registered: " + std::strerror(error) +
                        (error == ENOMEM ? "; remedy: a higher ulimit -l" : ""));
    }
    longest_bytes_ = std::max(longest_bytes_, memory.size());
  }
  ++region.users;
  return {};
}

void RegisteredMemory::remove(std::span<std::byte> memory) {
  const auto found =
      regions_.find({reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()});
  if (found == regions_.end() || --found->second.users > 0) {
    return;
  }
  if (last_ == found->second.mr) {
    last_ = nullptr;
  }
  verbs_.dereg_mr(found->second.mr);
  regions_.erase(found);
}

Mr* RegisteredMemory::find(const std::byte* begin, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  if (last_ != nullptr && contains(*last_, address, bytes)) {
    return last_;
  }
  // From the last region that begins there or before, back to where none is long enough.
  auto it = regions_.upper_bound({address, SIZE_MAX});
  while (it != regions_.begin()) {
    --it;
    if (contains(*it->second.mr, address, bytes)) {
      return last_ = it->second.mr;
    }
    if (address - it->first.first >= longest_bytes_) {
      break;
    }
  }
  return nullptr;
}

}  // namespace tutti::wire::verbs
