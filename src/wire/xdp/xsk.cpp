// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/xsk.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/descriptors.hpp"

namespace tutti::wire::xdp {
namespace {

constexpr int kAfXdp = 44;  ///< AF_XDP and SOL_XDP, which older C libraries lack.
constexpr int kSolXdp = 283;
constexpr unsigned kQueueRetryUs = 5'000;
constexpr int kSendBufferBytes = 16 << 20;

std::uint32_t load(std::uint32_t* at) {
  return std::atomic_ref<std::uint32_t>(*at).load(std::memory_order_acquire);
}

void store(std::uint32_t* at, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(*at).store(value, std::memory_order_release);
}

// The kernel sets a flag and then looks at the ring once more; we write the ring and then look at
// the flag. Neither may overtake the other. No fence: the thread sanitizer knows none.
void store_before_look(std::uint32_t* at, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(*at).store(value, std::memory_order_seq_cst);
}
std::uint32_t look(std::uint32_t* at) {
  return std::atomic_ref<std::uint32_t>(*at).load(std::memory_order_seq_cst);
}

Status xsk_failed(const std::string& what) {
  return Status(ErrorCode::kUnavailable, "xdp wire: " + what + ": " + std::strerror(errno));
}

Result<Descriptor> open_memory(const XskOptions& options) {
  Descriptor memory(memfd_create("tutti-xdp", MFD_CLOEXEC));
  if (memory.get() < 0) {
    return xsk_failed("no memory for frames");
  }
  if (ftruncate(memory.get(), static_cast<off_t>(options.memory_bytes())) != 0) {
    return xsk_failed(std::to_string(options.memory_bytes() >> 10) + " KiB for frames");
  }
  return memory;
}

/// The frames in this process's memory, for as long as sockets are made for them.
struct Mapping {
  Mapping(int memory, std::size_t memory_bytes)
      : bytes(memory_bytes),
        at(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0)) {}
  ~Mapping() {
    if (at != MAP_FAILED) {
      munmap(at, bytes);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::size_t bytes;
  void* at;
};

/// What of a socket comes before a queue is chosen.
Result<Descriptor> open_socket(const XskOptions& options, void* memory) {
  Descriptor it(socket(kAfXdp, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (it.get() < 0) {
    if (errno == EPERM || errno == EACCES) {
      return Status(ErrorCode::kUnsupported,
                    "xdp wire: no AF_XDP socket: it needs root or CAP_NET_RAW, or a running "
                    "tutti-xdp-helper");
    }
    return Status(errno == EAFNOSUPPORT ? ErrorCode::kUnsupported : ErrorCode::kUnavailable,
                  "xdp wire: no AF_XDP socket: " + why_no_descriptor());
  }
  // What fails here leaves the system's default, which is slower.
  if (setsockopt(it.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBufferBytes,
                 sizeof kSendBufferBytes) != 0) {
    (void)setsockopt(it.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
  }
  xdp_umem_reg region{};
  region.addr = reinterpret_cast<std::uintptr_t>(memory);
  region.len = options.memory_bytes();
  region.chunk_size = options.frame_bytes;
  if (setsockopt(it.get(), kSolXdp, XDP_UMEM_REG, &region, sizeof region) != 0) {
    return xsk_failed("frames of " + std::to_string(region.len >> 10) +
                      " KiB cannot be pinned (ulimit -l, or a smaller TUTTI_NET_BUFFER)");
  }
  const std::pair<int, std::uint32_t> rings[] = {
      {XDP_UMEM_FILL_RING, options.receive_frames},
      {XDP_UMEM_COMPLETION_RING, options.send_frames},
      {XDP_RX_RING, options.receive_ring()},
      {XDP_TX_RING, options.send_frames},
  };
  for (const auto& [name, count] : rings) {
    if (setsockopt(it.get(), kSolXdp, name, &count, sizeof count) != 0) {
      return xsk_failed("a ring of " + std::to_string(count) + " frames");
    }
  }
  return it;
}

/// A socket on the first queue that has none. The kernel frees the queue of a closed socket a
/// little later, so it is tried again for a while.
Status bind_to_queue(const XskOptions& options, void* memory, XskParts* parts) {
  const std::uint64_t until_ns = monotonic_ns() + options.queue_wait_ns;
  for (std::uint32_t queue = 0;;) {
    TUTTI_ASSIGN_OR_RETURN(Descriptor socket, open_socket(options, memory));
    sockaddr_xdp address{};
    address.sxdp_family = kAfXdp;
    address.sxdp_flags =
        static_cast<std::uint16_t>(XDP_USE_NEED_WAKEUP | (options.allows_zero_copy ? 0 : XDP_COPY));
    address.sxdp_ifindex = static_cast<std::uint32_t>(options.interface);
    address.sxdp_queue_id = queue;
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      parts->socket = std::move(socket);
      parts->queue = queue;
      return {};
    }
    if (errno == EBUSY) {
      ++queue;
      continue;
    }
    if (errno != EINVAL || queue == 0) {
      return xsk_failed("no AF_XDP socket on queue " + std::to_string(queue));
    }
    if (monotonic_ns() >= until_ns) {
      return Status(ErrorCode::kTimeout,
                    "xdp wire: each of the interface's " + std::to_string(queue) +
                        " queue(s) has an AF_XDP socket already, and a process needs one for each "
                        "engine: more queues (ethtool -L DEVICE combined N) or fewer engines "
                        "(TUTTI_NET_ENGINES)");
    }
    queue = 0;
    usleep(kQueueRetryUs);
  }
}

/// The system's kernel: a socket whose memory and rings are mapped here.
class MappedXsk : public XskKernel {
 public:
  MappedXsk(int socket, bool is_zero_copy) : socket_(socket), is_zero_copy_(is_zero_copy) {}
  ~MappedXsk() override {
    for (const std::span<std::byte>& it : mappings_) {
      munmap(it.data(), it.size());
    }
  }
  MappedXsk(const MappedXsk&) = delete;
  MappedXsk& operator=(const MappedXsk&) = delete;

  Status map(int memory, const XskOptions& options);
  // What fails here fails in wake_send(), too, whose caller tells.
  void wake_receive() override {
    (void)recvfrom(socket_, nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
  }
  int wake_send() override {
    return sendto(socket_, nullptr, 0, MSG_DONTWAIT, nullptr, 0) == 0 ? 0 : errno;
  }
  std::uint64_t dropped() const override;

 private:
  std::byte* map_bytes(int descriptor, std::size_t bytes, std::uint64_t offset);
  Status map_ring(XskRing& ring, std::uint64_t page_offset, const xdp_ring_offset& offsets,
                  std::uint32_t count, std::size_t entry_bytes);

  int socket_;
  bool is_zero_copy_;
  std::vector<std::span<std::byte>> mappings_;
};

/// Null: that failed.
std::byte* MappedXsk::map_bytes(int descriptor, std::size_t bytes, std::uint64_t offset) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                        descriptor, static_cast<off_t>(offset));
  if (at == MAP_FAILED) {
    return nullptr;
  }
  return mappings_.emplace_back(static_cast<std::byte*>(at), bytes).data();
}

Status MappedXsk::map(int memory, const XskOptions& options) {
  memory_.frames = map_bytes(memory, options.memory_bytes(), 0);
  if (memory_.frames == nullptr) {
    return xsk_failed("frames cannot be mapped");
  }
  xdp_mmap_offsets offsets{};
  socklen_t bytes = sizeof offsets;
  if (getsockopt(socket_, kSolXdp, XDP_MMAP_OFFSETS, &offsets, &bytes) != 0 ||
      bytes != sizeof offsets) {
    return xsk_failed("the rings of the socket are unknown (Linux 5.9 or later is needed)");
  }
  TUTTI_RETURN_IF_ERROR(map_ring(memory_.receive, XDP_PGOFF_RX_RING, offsets.rx,
                                 options.receive_ring(), sizeof(xdp_desc)));
  TUTTI_RETURN_IF_ERROR(map_ring(memory_.fill, XDP_UMEM_PGOFF_FILL_RING, offsets.fr,
                                 options.receive_frames, sizeof(std::uint64_t)));
  TUTTI_RETURN_IF_ERROR(
      map_ring(memory_.send, XDP_PGOFF_TX_RING, offsets.tx, options.send_frames, sizeof(xdp_desc)));
  return map_ring(memory_.completed, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr,
                  options.send_frames, sizeof(std::uint64_t));
}

Status MappedXsk::map_ring(XskRing& ring, std::uint64_t page_offset, const xdp_ring_offset& offsets,
                           std::uint32_t count, std::size_t entry_bytes) {
  std::byte* const base = map_bytes(socket_, offsets.desc + count * entry_bytes, page_offset);
  if (base == nullptr) {
    return xsk_failed("a ring of the socket cannot be mapped");
  }
  ring = {.producer = reinterpret_cast<std::uint32_t*>(base + offsets.producer),
          .consumer = reinterpret_cast<std::uint32_t*>(base + offsets.consumer),
          .flags = reinterpret_cast<std::uint32_t*>(base + offsets.flags),
          .entries = base + offsets.desc,
          .count = count};
  return {};
}

std::uint64_t MappedXsk::dropped() const {
  xdp_statistics it{};
  socklen_t bytes = sizeof it;
  if (getsockopt(socket_, kSolXdp, XDP_STATISTICS, &it, &bytes) != 0) {
    return 0;
  }
  // In copy mode rx_dropped counts frames for which the fill ring was empty. In zero copy the
  // driver leaves them to the NIC, and the kernel counts how often it found the ring empty.
  return it.rx_dropped + it.rx_ring_full + (is_zero_copy_ ? it.rx_fill_ring_empty_descs : 0);
}

}  // namespace

Result<XskParts> open_xsk(const XskOptions& options, XdpProgram* program) {
  const bool fits = (options.frame_bytes == 2048 || options.frame_bytes == 4096) &&
                    std::has_single_bit(options.receive_frames) && options.receive_frames >= 2 &&
                    std::has_single_bit(options.send_frames) &&
                    options.receive_frames <= kFramesMax && options.send_frames <= kFramesMax;
  if (!fits) {
    return Status(ErrorCode::kInvalidArgument, "xdp wire: numbers of frames must be powers of two");
  }
  XskParts parts;
  TUTTI_ASSIGN_OR_RETURN(parts.memory, open_memory(options));
  // A socket keeps the pages, and needs no mapping of them.
  const Mapping memory(parts.memory.get(), options.memory_bytes());
  if (memory.at == MAP_FAILED) {
    return xsk_failed("frames cannot be mapped");
  }
  TUTTI_ASSIGN_OR_RETURN(*program, XdpProgram::open(options.interface, options.mode));
  parts.mode = program->mode();
  parts.native_error = program->native_error();
  TUTTI_RETURN_IF_ERROR(bind_to_queue(options, memory.at, &parts));
  xdp_options got{};
  socklen_t bytes = sizeof got;
  parts.is_zero_copy = getsockopt(parts.socket.get(), kSolXdp, XDP_OPTIONS, &got, &bytes) == 0 &&
                       (got.flags & XDP_OPTIONS_ZEROCOPY) != 0;
  TUTTI_RETURN_IF_ERROR(program->add(parts.queue, parts.socket.get(), options.end));
  return parts;
}

Result<std::unique_ptr<Xsk>> Xsk::open(XskParts parts, const XskOptions& options) {
  auto kernel = std::make_unique<MappedXsk>(parts.socket.get(), parts.is_zero_copy);
  TUTTI_RETURN_IF_ERROR(kernel->map(parts.memory.get(), options));
  auto self = std::make_unique<Xsk>(std::move(kernel), options);
  self->parts_ = std::move(parts);
  return self;
}

Xsk::Xsk(std::unique_ptr<XskKernel> kernel, const XskOptions& options)
    : kernel_(std::move(kernel)),
      frames_(kernel_->memory().frames),
      frame_mask_(options.frame_bytes - 1),
      receive_(kernel_->memory().receive),
      fill_(kernel_->memory().fill),
      send_(kernel_->memory().send),
      completed_(kernel_->memory().completed) {
  for (std::uint32_t i = 0; i < options.receive_frames; ++i) {
    release(std::uint64_t{i} * options.frame_bytes);
  }
  flush();
  for (std::uint32_t i = 0; i < options.send_frames; ++i) {
    free_.push_back((std::uint64_t{options.receive_frames} + i) * options.frame_bytes);
  }
}

std::size_t Xsk::receive(std::span<xdp_desc> out) {
  const std::size_t there = load(receive_.producer) - receive_.mine;
  const std::size_t count = std::min(there, out.size());
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&out[i], receive_.entries + (receive_.mine++ & receive_.mask) * sizeof(xdp_desc),
                sizeof(xdp_desc));
  }
  if (count > 0) {
    store(receive_.consumer, receive_.mine);
  }
  return count;
}

void Xsk::release(std::uint64_t address) {
  // There is room: the ring has an entry for each frame.
  const std::uint64_t begin = address & ~frame_mask_;
  std::memcpy(fill_.entries + (fill_.mine++ & fill_.mask) * sizeof begin, &begin, sizeof begin);
  is_filled_ = true;
}

void Xsk::flush(bool is_drained) {
  if (std::exchange(is_filled_, false)) {
    store_before_look(fill_.producer, fill_.mine);
  } else if (!is_drained) {
    return;
  }
  if ((look(fill_.flags) & XDP_RING_NEED_WAKEUP) != 0) {
    kernel_->wake_receive();
  }
}

std::size_t Xsk::free_frames() {
  const std::uint32_t end = load(completed_.producer);
  if (end != completed_.mine) {
    for (; completed_.mine != end; ++completed_.mine) {
      std::uint64_t address = 0;
      std::memcpy(&address,
                  completed_.entries + (completed_.mine & completed_.mask) * sizeof address,
                  sizeof address);
      free_.push_back(address & ~frame_mask_);
    }
    store(completed_.consumer, completed_.mine);
  }
  return free_.size();
}

std::uint64_t Xsk::take_frame() {
  const std::uint64_t address = free_.back();
  free_.pop_back();
  return address;
}

void Xsk::push(std::uint64_t address, std::uint32_t bytes) {
  // There is room: the ring has an entry for each frame.
  const xdp_desc it = {address, bytes, 0};
  std::memcpy(send_.entries + (send_.mine++ & send_.mask) * sizeof it, &it, sizeof it);
}

std::size_t Xsk::kick() {
  store_before_look(send_.producer, send_.mine);
  std::size_t calls = 0;
  // A call takes 32 frames or so, and none where the way is full.
  for (std::uint32_t before = look(send_.consumer);
       before != send_.mine && (look(send_.flags) & XDP_RING_NEED_WAKEUP) != 0;) {
    ++calls;
    const int error = kernel_->wake_send();
    const bool is_full = error == EAGAIN || error == EBUSY || error == ENOBUFS || error == EINTR;
    send_error_ = is_full ? 0 : error;
    const std::uint32_t after = load(send_.consumer);
    if (after == before) {
      break;
    }
    before = after;
  }
  return calls;
}

bool Xsk::has_unsent() const {
  return load(send_.consumer) != send_.mine && (load(send_.flags) & XDP_RING_NEED_WAKEUP) != 0;
}

}  // namespace tutti::wire::xdp
