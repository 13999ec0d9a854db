// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The XDP program of an interface, and its two maps. It hands UDP datagrams over IPv4 to AF_XDP
// sockets, where their address and port are those that a wire has for their queue; everything else
// goes on to the kernel. Written as instructions here, loaded by bpf(2): why is told in
// docs/decisions/0024.
//
// All wires of an interface share one program, also those of other processes: whoever opens one
// holds its link (BPF_LINK_TYPE_XDP), and with the last holder the kernel takes the program off the
// interface. A program of somebody else is an error, and stays.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptors.hpp"
#include "base/result.hpp"
#include "wire/xdp/packet.hpp"

namespace tutti::wire::xdp {

/// Where frames meet the program.
enum class AttachMode : std::uint8_t {
  kAny,      ///< In the driver; where that has no XDP, in the kernel's network stack.
  kNative,   ///< In the driver.
  kGeneric,  ///< In the kernel's network stack, which copies them once more.
};
const char* to_string(AttachMode mode);

inline constexpr std::uint32_t kQueuesMax = 256;
inline constexpr const char* kProgramName = "tutti_xdp";

/// `sockets` and `ends`: descriptors of its maps, by queue: AF_XDP sockets (XSKMAP), and UdpEnd
/// values (ARRAY).
std::vector<bpf_insn> program_of(int sockets, int ends);

class XdpProgram {
 public:
  /// Puts it on the interface, or finds it there. Errors: the process may not (kUnsupported), a
  /// program of somebody else is there (kUnavailable), the interface takes none
  /// (kUnsupported), the kernel's verifier refuses it (kLibraryFailed).
  static Result<XdpProgram> open(int interface, AttachMode mode);

  /// Datagrams for `end` that arrive at the queue go to this socket from now on.
  Status add(std::uint32_t queue, int socket, const UdpEnd& end) const;
  /// Ends what add() began, even if another process still has the socket. Nothing happens if the
  /// queue serves another end by now.
  void remove(std::uint32_t queue, const UdpEnd& end) const;
  AttachMode mode() const { return mode_; }
  /// Why it is in generic mode; 0: nobody asked for another, or another process put it there.
  int native_error() const { return native_error_; }
  /// What keeps it on the interface.
  const Descriptor& link() const { return link_; }

 private:
  static Result<XdpProgram> attach(int interface, AttachMode mode);
  static Result<XdpProgram> find(int interface, std::uint32_t id, AttachMode mode);

  Descriptor link_;
  Descriptor sockets_;
  Descriptor ends_;
  AttachMode mode_ = AttachMode::kGeneric;
  int native_error_ = 0;
};

}  // namespace tutti::wire::xdp
