// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// An AF_XDP socket (Documentation/networking/af_xdp.rst): opening one, which needs privileges, and
// its four rings, which do not. Its frames (UMEM) lie in a memfd, so that one process can open the
// socket and another one use it (xdp_helper.hpp). Frames of the first half are received into, those
// of the second sent from; a frame is named by its offset. Not what is in them.
#pragma once

#include <linux/if_xdp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/descriptors.hpp"
#include "base/result.hpp"
#include "wire/xdp/packet.hpp"
#include "wire/xdp/xdp_program.hpp"

namespace tutti::wire::xdp {

/// Frames of one half: with both halves of 4096-byte frames 64 MiB are pinned.
inline constexpr std::uint32_t kFramesMax = 1U << 13;
/// The kernel keeps so much of a received frame free in front of the packet (XDP_PACKET_HEADROOM).
inline constexpr std::uint32_t kHeadroomBytes = 256;

/// The kernel frees the queue of a closed socket a little later.
inline constexpr std::uint64_t kQueueWaitNs = 500'000'000;

struct XskOptions {
  int interface = 0;  ///< The kernel's number.
  UdpEnd end;         ///< Datagrams to it are received.
  AttachMode mode = AttachMode::kAny;
  std::uint32_t frame_bytes = 2048;     ///< 2048 or 4096.
  std::uint32_t receive_frames = 4096;  ///< A power of two, to kFramesMax; so are the next.
  std::uint32_t send_frames = 2048;
  /// With zero copy the socket's owner sees and can hold up all traffic of the queue.
  bool allows_zero_copy = true;
  /// How long to wait for a free queue.
  std::uint64_t queue_wait_ns = kQueueWaitNs;

  /// Received frames that wait for this process. Half: in zero copy the frames of the fill ring are
  /// all that the queue has, and the kernel's own traffic goes on while this process is stopped.
  std::uint32_t receive_ring() const { return receive_frames / 2; }
  std::size_t memory_bytes() const {
    return std::size_t{frame_bytes} * (receive_frames + send_frames);
  }
};

/// What opening one gives.
struct XskParts {
  Descriptor socket;
  Descriptor memory;  ///< A memfd of XskOptions::memory_bytes().
  std::uint32_t queue = 0;
  AttachMode mode = AttachMode::kGeneric;
  bool is_zero_copy = false;
  int native_error = 0;  ///< XdpProgram::native_error().
};

/// One of the four rings, in memory that the kernel shares.
struct XskRing {
  std::uint32_t* producer = nullptr;
  std::uint32_t* consumer = nullptr;
  std::uint32_t* flags = nullptr;
  std::byte* entries = nullptr;
  std::uint32_t count = 0;  ///< Of entries, a power of two.
};

/// Where frames and rings lie. All live as long as the kernel's side does.
struct XskMemory {
  std::byte* frames = nullptr;  ///< XskOptions::memory_bytes() of them.
  XskRing receive;
  XskRing fill;
  XskRing send;
  XskRing completed;
};

/// The kernel's side of a socket: memory that both share, and the calls that wake the kernel. Tests
/// have one of their own (tests/support/fake_xsk.hpp).
class XskKernel {
 public:
  virtual ~XskKernel() = default;
  const XskMemory& memory() const { return memory_; }
  /// Lets it look at the fill ring.
  virtual void wake_receive() = 0;
  /// Lets it send some of what lies in the ring. 0, or an error number.
  virtual int wake_send() = 0;
  /// As Xsk::dropped().
  virtual std::uint64_t dropped() const = 0;

 protected:
  XskMemory memory_;
};

/// On the first queue that has no AF_XDP socket. `program`: is on the interface as long as that
/// lives. Errors: the process may not, the interface has no free queue (kTimeout), or takes no
/// program.
Result<XskParts> open_xsk(const XskOptions& options, XdpProgram* program);

class Xsk {
 public:
  /// Maps memory and rings.
  static Result<std::unique_ptr<Xsk>> open(XskParts parts, const XskOptions& options);
  /// All frames to receive into are the kernel's then.
  Xsk(std::unique_ptr<XskKernel> kernel, const XskOptions& options);
  Xsk(const Xsk&) = delete;
  Xsk& operator=(const Xsk&) = delete;

  int descriptor() const { return parts_.socket.get(); }
  const XskParts& parts() const { return parts_; }

  /// Moves up to `out.size()` received frames there; how many. They are the caller's until
  /// release().
  std::size_t receive(std::span<xdp_desc> out);
  std::span<const std::byte> frame(const xdp_desc& it) const { return {frames_ + it.addr, it.len}; }
  /// Gives frames that were received back to the kernel, which notices at flush().
  void release(std::uint64_t address);
  /// `is_drained`: receive() found nothing. The driver may then wait to be woken although this
  /// process released nothing since the last call.
  void flush(bool is_drained = false);

  /// Frames that can be sent from now.
  std::size_t free_frames();
  /// One of them; there is one. It is sent by push().
  std::uint64_t take_frame();
  std::byte* at(std::uint64_t address) { return frames_ + address; }
  void push(std::uint64_t address, std::uint32_t bytes);
  /// Tells the kernel of what was pushed. System calls that it took.
  std::size_t kick();
  /// Why the last kick() sent nothing, such as ENETDOWN; 0: it did, or the way is full for now.
  int send_error() const { return send_error_; }
  /// The kernel has not taken all of it yet: kick() again soon.
  bool has_unsent() const;

  /// Frames that came and were dropped: nobody had emptied the rings in time, or they are too long.
  std::uint64_t dropped() const { return kernel_->dropped(); }

 private:
  struct Ring : XskRing {
    explicit Ring(const XskRing& ring) : XskRing(ring), mask(ring.count - 1) {}
    std::uint32_t mask = 0;
    std::uint32_t mine = 0;  ///< Our index: of the next entry that we read or write.
  };

  XskParts parts_;
  std::unique_ptr<XskKernel> kernel_;
  std::byte* frames_;
  std::uint64_t frame_mask_;
  Ring receive_;
  Ring fill_;
  Ring send_;
  Ring completed_;
  std::vector<std::uint64_t> free_;
  int send_error_ = 0;
  bool is_filled_ = false;  ///< fill_ has entries that the kernel does not know of.
};

}  // namespace tutti::wire::xdp
