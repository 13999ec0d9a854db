// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/shared_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "base/system_random.hpp"

namespace tutti::runners {
namespace {

using Key = std::array<std::uint64_t, 2>;

std::string with_errno(const std::string& what, int error) {
  return what + ": " + std::strerror(error);
}

/// The segments that this process has mapped.
class Mapped {
 public:
  std::shared_ptr<SharedSegment> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = segments_.find(key);
    return found == segments_.end() ? nullptr : found->second.lock();
  }
  void add(const std::shared_ptr<SharedSegment>& segment) {
    const std::lock_guard lock(mutex_);
    std::erase_if(segments_, [](const auto& entry) { return entry.second.expired(); });
    segments_[segment->ticket().key] = segment;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<SharedSegment>> segments_;
};

Mapped& mapped() {
  static auto* const kept = new Mapped;  // Communicators may be freed after static destructors.
  return *kept;
}

}  // namespace

Result<std::shared_ptr<SharedSegment>> SharedSegment::make(Bytes bytes) {
  auto segment = std::shared_ptr<SharedSegment>(new SharedSegment);
  SegmentTicket& ticket = segment->ticket_;
  ticket.bytes = bytes;
  ticket.process = getpid();
  TUTTI_RETURN_IF_ERROR(system_random(ticket.key.data(), sizeof(ticket.key)));
  segment->descriptor_ = memfd_create("tutti-direct", MFD_CLOEXEC);
  if (segment->descriptor_ < 0) {
    return Status(ErrorCode::kUnavailable, with_errno("a shared memory file", errno));
  }
  ticket.descriptor = segment->descriptor_;
  if (ftruncate(segment->descriptor_, static_cast<off_t>(bytes)) != 0) {
    return Status(ErrorCode::kOutOfMemory,
                  with_errno("a shared memory file of " + format_bytes(bytes), errno));
  }
  TUTTI_RETURN_IF_ERROR(segment->reserve(0, kHeadBytes));
  TUTTI_RETURN_IF_ERROR(segment->map());
  std::memcpy(segment->data_, ticket.key.data(), sizeof(ticket.key));
  mapped().add(segment);
  return segment;
}

Result<std::shared_ptr<SharedSegment>> SharedSegment::open(const SegmentTicket& ticket) {
  if (auto own = mapped().find(ticket.key)) {
    return own;
  }
  auto segment = std::shared_ptr<SharedSegment>(new SharedSegment);
  segment->ticket_ = ticket;
  const std::string path =
      "/proc/" + std::to_string(ticket.process) + "/fd/" + std::to_string(ticket.descriptor);
  segment->descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (segment->descriptor_ < 0) {
    return Status(ErrorCode::kUnavailable,
                  with_errno("shared memory of another rank, " + path, errno) +
                      "; the ranks of a node need one user, one PID namespace and one user "
                      "namespace");
  }
  Key key{};
  if (pread(segment->descriptor_, key.data(), sizeof(key), 0) != sizeof(key) || key != ticket.key) {
    return Status(ErrorCode::kUnavailable,
                  path +
                      " is not the shared memory of another rank; the ranks of a node need one "
                      "PID namespace");
  }
  TUTTI_RETURN_IF_ERROR(segment->map());
  segment->close_file();
  mapped().add(segment);
  return segment;
}

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) {
    munmap(data_, ticket_.bytes);
  }
  close_file();
}

Status SharedSegment::map() {
  void* address = mmap(nullptr, ticket_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (address == MAP_FAILED) {
    return Status(
        ErrorCode::kOutOfMemory,
        with_errno("mapping " + format_bytes(ticket_.bytes) + " of shared memory", errno));
  }
  data_ = static_cast<std::byte*>(address);
  return {};
}

Status SharedSegment::reserve(Bytes offset, Bytes bytes) {
  const int error =
      posix_fallocate(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (error != 0) {
    return Status(ErrorCode::kOutOfMemory,
                  with_errno(format_bytes(bytes) + " of shared memory", error) +
                      "; give the job or its container more memory");
  }
  return {};
}

void SharedSegment::close_file() {
  if (const int descriptor = descriptor_.exchange(-1); descriptor >= 0) {
    close(descriptor);
  }
}

void SharedSegment::touch(Bytes offset, Bytes bytes) {
#ifdef MADV_POPULATE_WRITE
  static_cast<void>(madvise(data_ + offset, bytes, MADV_POPULATE_WRITE));
#else
  static_cast<void>(offset);
  static_cast<void>(bytes);
#endif
}

}  // namespace tutti::runners
