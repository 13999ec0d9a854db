// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Memory of the host device. Each ordinal owns one range of addresses, reserved once, 2 MiB aligned
// and never given back: an address that was device memory of ordinal n never becomes anything else,
// so a stale pointer is an error and never somebody else's memory. Behind the range is one memory
// file, so another process maps an allocation by (process, descriptor, offset); nothing is left
// behind by a crash, and ten thousand allocations need one descriptor.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "device/device.hpp"
#include "support/host_device/host_device.hpp"

namespace tutti::device::host_device {

inline constexpr Bytes kAlignment = 512;                    // What GPU allocators give.
inline constexpr Bytes kReserveAlignment = Bytes{2} << 20;  // What GPU drivers reserve in.
inline constexpr Bytes kArenaBytesWanted = Bytes{64}
                                           << 30;  // Addresses only; pages come when touched.
inline constexpr Bytes kArenaBytesLeast = Bytes{64} << 20;  // Under a tight address space limit.
inline constexpr std::uint64_t kIpcMagic = 0x3163706974747574ULL;

inline Bytes round_up(Bytes value, Bytes unit) { return (value + unit - 1) / unit * unit; }
inline Bytes round_down(Bytes value, Bytes unit) { return value / unit * unit; }

inline std::string errno_text(const char* what) {
  return std::string("host device: ") + what + ": " + std::strerror(errno);
}

inline Status invalid(const std::string& what) {
  return Status(ErrorCode::kInvalidArgument, "host device: " + what);
}

inline std::string pointer_text(const void* pointer) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", pointer);
  return text;
}

/// Reserves addresses that start at a multiple of 2 MiB; null when there are none.
inline char* reserve(Bytes bytes) {
  const Bytes padded = bytes + kReserveAlignment;
  void* raw = mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return nullptr;
  }
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = round_up(start, kReserveAlignment);
  if (aligned != start) {
    munmap(raw, aligned - start);
  }
  const std::uintptr_t end = aligned + bytes;
  if (start + padded != end) {
    munmap(reinterpret_cast<void*>(end), start + padded - end);
  }
  return reinterpret_cast<char*>(aligned);
}

/// What an IpcHandle of the host device holds.
struct IpcRecord {
  std::uint64_t magic;
  std::uint64_t inode;  // With `filesystem`: proves that the descriptor is still the same file.
  std::uint64_t filesystem;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::int32_t process;
  std::int32_t descriptor;
};
static_assert(sizeof(IpcRecord) <= sizeof(IpcHandle));

/// The address range of one ordinal and the memory file behind it.
class Arena {
 public:
  /// False, with errno, when neither addresses nor a memory file could be had.
  bool open(int device) {
    const std::string name = "tutti-device-" + std::to_string(device);
    descriptor_ = memfd_create(name.c_str(), MFD_CLOEXEC);
    if (descriptor_ < 0) {
      return false;
    }
    struct stat state {};
    if (fstat(descriptor_, &state) != 0) {
      return false;
    }
    inode_ = state.st_ino;
    filesystem_ = state.st_dev;
    for (bytes_ = kArenaBytesWanted; bytes_ >= kArenaBytesLeast; bytes_ /= 2) {
      if (map()) {
        free_.emplace(0, bytes_);
        return true;
      }
    }
    return false;
  }

  bool is_open() const { return base_ != nullptr; }
  bool contains(std::uintptr_t address) const {
    const auto base = reinterpret_cast<std::uintptr_t>(base_);
    return base_ != nullptr && address >= base && address - base < bytes_;
  }

  /// First fit; null when no span is long enough.
  char* take(Bytes bytes) {
    for (auto span = free_.begin(); span != free_.end(); ++span) {
      const auto [offset, length] = *span;
      if (length >= bytes) {
        free_.erase(span);
        if (length > bytes) {
          free_.emplace(offset + bytes, length - bytes);
        }
        return base_ + offset;
      }
    }
    return nullptr;
  }

  /// Returns a span to the free list and its pages to the system.
  void give(char* pointer, Bytes bytes) {
    Bytes offset = static_cast<Bytes>(pointer - base_);
    Bytes end = offset + bytes;
    const Bytes freed_begin = offset;
    const Bytes freed_end = end;
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == end) {
      end += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        free_.erase(before);
      }
    }
    free_.emplace(offset, end - offset);
    // Pages that the freed span shares with a live neighbour stay.
    const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
    const Bytes first = std::max(round_up(offset, page), round_down(freed_begin, page));
    const Bytes last = std::min(round_down(end, page), round_up(freed_end, page));
    if (last > first) {
      // Failure only means that the pages are kept.
      (void)fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(first), static_cast<off_t>(last - first));
    }
  }

  /// The place of an allocation for another process; an error when the program closed our file.
  Result<IpcRecord> export_span(const char* pointer, Bytes bytes) const {
    struct stat state {};
    if (fstat(descriptor_, &state) != 0 || state.st_ino != inode_ || state.st_dev != filesystem_) {
      return Status(ErrorCode::kUnavailable,
                    "host device: the program closed the file behind the device memory");
    }
    return IpcRecord{.magic = kIpcMagic,
                     .inode = inode_,
                     .filesystem = filesystem_,
                     .offset = static_cast<std::uint64_t>(pointer - base_),
                     .bytes = bytes,
                     .process = getpid(),
                     .descriptor = descriptor_};
  }

 private:
  bool map() {
    if (ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0) {
      return false;
    }
    char* addresses = reserve(bytes_);
    if (addresses == nullptr) {
      return false;
    }
    if (mmap(addresses, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             descriptor_, 0) == MAP_FAILED) {
      munmap(addresses, bytes_);
      return false;
    }
    madvise(addresses, bytes_, MADV_DONTDUMP);
    base_ = addresses;
    return true;
  }

  int descriptor_ = -1;
  std::uint64_t inode_ = 0;
  std::uint64_t filesystem_ = 0;
  char* base_ = nullptr;
  Bytes bytes_ = 0;
  std::map<Bytes, Bytes> free_;  // Offset -> length, never two adjacent ones.
};

struct Allocation {
  Bytes bytes = 0;       // As asked for.
  Bytes span_bytes = 0;  // As taken: from the arena, or as mapped by an import.
  char* span = nullptr;  // Start of the span; not the pointer itself for an import.
  int device = -1;
  HostMemoryOrigin origin = HostMemoryOrigin::kUnknown;
};

/// Every allocation of the process by address.
class Memory {
 public:
  Result<void*> allocate(int device, Bytes bytes) {
    if (bytes == 0) {
      return invalid("an allocation of 0 bytes");
    }
    if (bytes > kArenaBytesWanted) {
      return out_of_memory(device, bytes);
    }
    const std::unique_lock lock(mutex_);
    Arena& arena = arenas_[device];
    if (!arena.is_open() && !arena.open(device)) {
      return Status(ErrorCode::kOutOfMemory, errno_text("no memory for an ordinal"));
    }
    const Bytes span_bytes = round_up(bytes, kAlignment);
    char* pointer = arena.take(span_bytes);
    if (pointer == nullptr) {
      return out_of_memory(device, bytes);
    }
    allocations_[address_of(pointer)] = {.bytes = bytes,
                                         .span_bytes = span_bytes,
                                         .span = pointer,
                                         .device = device,
                                         .origin = HostMemoryOrigin::kAllocated};
    return static_cast<void*>(pointer);
  }

  Status free(void* pointer) {
    const std::unique_lock lock(mutex_);
    const auto found = find_exact(pointer, HostMemoryOrigin::kAllocated);
    if (found == allocations_.end()) {
      return invalid(pointer_text(pointer) + " is not the start of device memory");
    }
    arenas_[found->second.device].give(found->second.span, found->second.span_bytes);
    allocations_.erase(found);
    return {};
  }

  Result<void*> allocate_pinned(Bytes bytes) {
    if (bytes == 0) {
      return invalid("an allocation of 0 bytes");
    }
    void* pointer =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pointer == MAP_FAILED) {
      return Status(ErrorCode::kOutOfMemory, errno_text("pinned memory"));
    }
    const std::unique_lock lock(mutex_);
    allocations_[address_of(pointer)] = {.bytes = bytes,
                                         .span_bytes = bytes,
                                         .span = static_cast<char*>(pointer),
                                         .device = -1,
                                         .origin = HostMemoryOrigin::kPinned};
    return pointer;
  }

  Status free_pinned(void* pointer) {
    const std::unique_lock lock(mutex_);
    const auto found = find_exact(pointer, HostMemoryOrigin::kPinned);
    if (found == allocations_.end()) {
      return invalid(pointer_text(pointer) + " is not the start of pinned memory");
    }
    munmap(pointer, found->second.bytes);
    allocations_.erase(found);
    return {};
  }

  Result<IpcRecord> export_memory(void* pointer) {
    const std::shared_lock lock(mutex_);
    const auto found = find_exact(pointer, HostMemoryOrigin::kAllocated);
    if (found == allocations_.end()) {
      return invalid(pointer_text(pointer) + " is not the start of device memory");
    }
    const Allocation& allocation = found->second;
    return arenas_[allocation.device].export_span(allocation.span, allocation.bytes);
  }

  /// `given`: a descriptor of the exporter's memory, the caller's; -1: it is looked up.
  Result<void*> import(int device, const IpcRecord& record, int given) {
    if (record.magic != kIpcMagic || record.bytes == 0) {
      return invalid("not a memory handle of the host device");
    }
    if (given >= 0) {
      return import_from(given, device, record);
    }
    const std::string path =
        "/proc/" + std::to_string(record.process) + "/fd/" + std::to_string(record.descriptor);
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) {
      return Status(ErrorCode::kUnavailable, errno_text(("memory of " + path).c_str()));
    }
    Result<void*> mapped = import_from(descriptor, device, record);
    close(descriptor);
    return mapped;
  }

  Status close_import(void* pointer) {
    const std::unique_lock lock(mutex_);
    const auto found = find_exact(pointer, HostMemoryOrigin::kImported);
    if (found == allocations_.end()) {
      return invalid(pointer_text(pointer) + " was not opened by a handle");
    }
    const Allocation& allocation = found->second;
    // The addresses stay reserved for later imports of the same device.
    if (mmap(allocation.span, allocation.span_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
      return Status(ErrorCode::kLibraryFailed, errno_text("unmapping"));
    }
    parked_.emplace(std::pair(allocation.device, allocation.span_bytes), allocation.span);
    allocations_.erase(found);
    return {};
  }

  HostMemoryRange range(const void* pointer) const {
    const std::shared_lock lock(mutex_);
    const auto found = find_containing(address_of(pointer));
    if (found == allocations_.end()) {
      return {};
    }
    return {.origin = found->second.origin,
            .base = reinterpret_cast<void*>(found->first),
            .bytes = found->second.bytes,
            .device = found->second.device};
  }

  /// An error when [pointer, pointer + bytes) starts in our memory and leaves its allocation.
  Status check(const void* pointer, Bytes bytes) const {
    const std::uintptr_t address = address_of(pointer);
    if (pointer == nullptr) {
      return invalid("a null pointer");
    }
    const std::shared_lock lock(mutex_);
    const auto found = find_containing(address);
    if (found != allocations_.end()) {
      if (bytes <= found->first + found->second.bytes - address) {
        return {};
      }
      return invalid(std::to_string(bytes) + " bytes at " + pointer_text(pointer) +
                     " leave their allocation");
    }
    for (const Arena& arena : arenas_) {
      if (arena.contains(address)) {
        return invalid(pointer_text(pointer) + " is device memory that is not allocated");
      }
    }
    return {};
  }

 private:
  using Allocations = std::map<std::uintptr_t, Allocation>;

  static std::uintptr_t address_of(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }

  static Status out_of_memory(int device, Bytes bytes) {
    return Status(ErrorCode::kOutOfMemory, "host device " + std::to_string(device) + ": no " +
                                               std::to_string(bytes) + " bytes left");
  }

  Allocations::iterator find_exact(const void* pointer, HostMemoryOrigin origin) {
    const auto found = allocations_.find(address_of(pointer));
    return found != allocations_.end() && found->second.origin == origin ? found
                                                                         : allocations_.end();
  }

  Allocations::const_iterator find_containing(std::uintptr_t address) const {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) {
      return allocations_.end();
    }
    const auto before = std::prev(after);
    return address - before->first < before->second.bytes ? before : allocations_.end();
  }

  Result<void*> import_from(int descriptor, int device, const IpcRecord& record) {
    struct stat state {};
    if (fstat(descriptor, &state) != 0 || state.st_ino != record.inode ||
        state.st_dev != record.filesystem) {
      return Status(ErrorCode::kUnavailable,
                    "host device: the memory of a handle is gone (its process has ended)");
    }
    if (record.offset + record.bytes > static_cast<std::uint64_t>(state.st_size)) {
      return invalid("a memory handle that leaves its file");
    }
    const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
    const Bytes begin = round_down(record.offset, page);
    const Bytes bytes = round_up(record.offset + record.bytes, page) - begin;
    const Bytes span_bytes = round_up(bytes, kReserveAlignment);

    const std::unique_lock lock(mutex_);
    char* span = nullptr;
    if (const auto parked = parked_.find({device, span_bytes}); parked != parked_.end()) {
      span = parked->second;
      parked_.erase(parked);
    } else {
      span = reserve(span_bytes);
    }
    if (span == nullptr) {
      return Status(ErrorCode::kOutOfMemory, errno_text("addresses for a handle"));
    }
    if (mmap(span, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             descriptor, static_cast<off_t>(begin)) == MAP_FAILED) {
      const Status failed(ErrorCode::kLibraryFailed, errno_text("mapping a handle"));
      parked_.emplace(std::pair(device, span_bytes), span);
      return failed;
    }
    char* pointer = span + (record.offset - begin);
    allocations_[address_of(pointer)] = {.bytes = record.bytes,
                                         .span_bytes = span_bytes,
                                         .span = span,
                                         .device = device,
                                         .origin = HostMemoryOrigin::kImported};
    return static_cast<void*>(pointer);
  }

  mutable std::shared_mutex mutex_;
  Arena arenas_[kHostDeviceCount];
  Allocations allocations_;
  std::multimap<std::pair<int, Bytes>, char*> parked_;  // (device, bytes) -> reserved addresses.
};

}  // namespace tutti::device::host_device
