// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/kernel_stack.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::wire::xdp {

int SystemStack::send(const UdpEnd& target, int tos, std::span<const std::byte> payload) {
  const sockaddr_in address = socket_address_of(target);
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  // MSG_MORE makes the kernel compute the checksum while it copies; the empty call sends. In one
  // call it leaves the checksum to the device, and a virtual device hands the packet on without:
  // the receiver's AF_XDP socket would take it for a wrong one.
  iovec part = {const_cast<std::byte*>(payload.data()), payload.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof tos)] = {};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(at);
  message.msg_namelen = sizeof address;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = IPPROTO_IP;
  head->cmsg_type = IP_TOS;
  head->cmsg_len = CMSG_LEN(sizeof tos);
  std::memcpy(CMSG_DATA(head), &tos, sizeof tos);
  const bool is_sent =
      sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) >= 0 &&
      sendto(socket_, nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL, at, sizeof address) >= 0;
  return is_sent ? 0 : errno;
}

bool SystemStack::receive(std::span<std::byte> buffer, Datagram& out) {
  sockaddr_in source{};
  iovec part = {buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_name = &source;
  message.msg_namelen = sizeof source;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = recvmsg(socket_, &message, MSG_DONTWAIT | MSG_TRUNC);
  if (bytes < 0) {
    return false;
  }
  out = {};
  out.source = {source.sin_addr.s_addr, source.sin_port};
  out.payload = buffer.first(std::min(static_cast<std::size_t>(bytes), buffer.size()));
  if (const cmsghdr* const head = CMSG_FIRSTHDR(&message);
      head != nullptr && head->cmsg_level == IPPROTO_IP && head->cmsg_type == IP_TOS) {
    out.tos = *CMSG_DATA(head);
  }
  return true;
}

}  // namespace tutti::wire::xdp
