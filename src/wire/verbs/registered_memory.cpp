// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/registered_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace tutti::wire::verbs {
namespace {

/// A GPU's memory that the NIC has refused.
Status refused(const DeviceMemory& memory, int error) {
  const bool is_dma_buf = memory.descriptor >= 0;
  return Status(
      ErrorCode::kUnavailable,
      "RDMA: " + std::to_string(memory.span.size()) +
          " bytes of a GPU's memory cannot be "
          "registered " +
          (is_dma_buf ? "by dma-buf: " : "by their address: ") + std::strerror(error) +
          (is_dma_buf ? "; remedy: a kernel and a driver of the NIC with dma-buf, or the "
                        "module nvidia-peermem and NCCL_DMABUF_ENABLE=0"
                      : "; remedy: the module nvidia-peermem (modprobe nvidia-peermem), or "
                        "a kernel and a GPU driver with dma-buf"));
}

}  // namespace

RegisteredMemory::~RegisteredMemory() {
  for (const auto& [key, region] : regions_) {
    deregister(region);
  }
}

void RegisteredMemory::deregister(const Region& region) {
  const int error = verbs_.dereg_mr(region.mr);
  if (error != 0) {
    on_kept_(std::string("the NIC keeps memory registered: ") + std::strerror(error));
  }
}

/// `register_it(region)`: sets its mr, or gives an error.
template <class Register>
Status RegisteredMemory::add(std::span<std::byte> memory, Register register_it) {
  if (memory.empty()) {
    return {};
  }
  const Key key = {reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()};
  Region& region = regions_[key];
  if (region.mr == nullptr) {
    region.address = key.first;
    region.bytes = key.second;
    const Status status = register_it(region);
    if (!status.ok()) {
      regions_.erase(key);
      return status;
    }
    longest_bytes_ = std::max(longest_bytes_, memory.size());
  }
  ++region.users;
  return {};
}

Status RegisteredMemory::add(std::span<std::byte> memory) {
  return add(memory, [&](Region& region) -> Status {
    region.mr = verbs_.reg_mr(pd_, memory.data(), memory.size(), access_);
    if (region.mr != nullptr) {
      return {};
    }
    const int error = errno;
    return Status(ErrorCode::kUnavailable,
                  "RDMA: " + std::to_string(memory.size()) +
                      " bytes cannot be registered: " + std::strerror(error) +
                      (error == ENOMEM ? "; remedy: a higher ulimit -l" : ""));
  });
}

Status RegisteredMemory::add(const DeviceMemory& memory) {
  return add(memory.span, [&](Region& region) -> Status {
    region.device = memory.device;
    region.is_dma_buf = memory.descriptor >= 0;
    // Reads are this wire's own (start_flush), of what peers write into: queue pairs of peers allow
    // none.
    const int read = (access_ & kMayBind) != 0 ? kRemoteRead : 0;
    if (!region.is_dma_buf) {
      region.mr = verbs_.reg_mr(pd_, memory.span.data(), memory.span.size(), access_ | read);
    } else if (verbs_.reg_dmabuf_mr != nullptr) {
      region.mr = verbs_.reg_dmabuf_mr(pd_, memory.offset, memory.span.size(), region.address,
                                       memory.descriptor, kLocalWrite);
    } else {
      errno = ENOSYS;
    }
    return region.mr == nullptr ? refused(memory, errno) : Status();
  });
}

const Mr* RegisteredMemory::last_use(std::span<std::byte> memory) const {
  const auto found =
      regions_.find({reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()});
  return found != regions_.end() && found->second.users == 1 ? found->second.mr : nullptr;
}

void RegisteredMemory::remove(std::span<std::byte> memory) {
  const auto found =
      regions_.find({reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()});
  if (found == regions_.end() || --found->second.users > 0) {
    return;
  }
  if (last_ == &found->second) {
    last_ = nullptr;
  }
  deregister(found->second);
  regions_.erase(found);
}

const RegisteredMemory::Region* RegisteredMemory::search(std::uintptr_t address,
                                                         std::size_t bytes) const {
  // From the last region that begins there or before, back to where none is long enough.
  auto it = regions_.upper_bound({address, SIZE_MAX});
  while (it != regions_.begin()) {
    --it;
    if (contains(it->second, address, bytes)) {
      return last_ = &it->second;
    }
    if (address - it->first.first >= longest_bytes_) {
      break;
    }
  }
  return nullptr;
}

}  // namespace tutti::wire::verbs
