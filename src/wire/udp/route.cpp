// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/route.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace tutti::wire::udp {
namespace {

/// RTM_F_FIB_MATCH, which older headers lack (Linux 4.13): the route itself, and an error where
/// there is none. Without it the answer has this flag, and is what the kernel would make up.
constexpr unsigned kFibMatch = 0x2000;
constexpr unsigned kMadeUp = RTM_F_CLONED;

struct Question {
  nlmsghdr head{};
  rtmsg route{};
  std::byte attributes[3 * RTA_SPACE(sizeof(in6_addr))] = {};

  void add(std::uint16_t type, const void* value, std::size_t bytes) {
    std::byte* const at = attributes + (head.nlmsg_len - offsetof(Question, attributes));
    const rtattr attribute = {static_cast<std::uint16_t>(RTA_LENGTH(bytes)), type};
    std::memcpy(at, &attribute, sizeof attribute);
    std::memcpy(at + RTA_LENGTH(0), value, bytes);
    head.nlmsg_len += RTA_SPACE(bytes);
  }
};

struct Answer {
  nlmsghdr head{};
  rtmsg route{};         ///< Or the begin of an error.
  std::byte rest[4096];  ///< Attributes, which nobody reads.
};

std::span<const std::byte> bytes_of(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    return std::as_bytes(std::span(&v6.sin6_addr, 1));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
  return std::as_bytes(std::span(&v4.sin_addr, 1));
}

/// The route that the table has, by `interface` (0: by any). Null: none, or nobody knows.
std::optional<rtmsg> route_of(int netlink, int interface, const SocketAddress& from,
                              const SocketAddress& to) {
  Question question;
  question.head.nlmsg_len = offsetof(Question, attributes);
  question.head.nlmsg_type = RTM_GETROUTE;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.route.rtm_family = static_cast<std::uint8_t>(to.storage.ss_family);
  question.route.rtm_flags = kFibMatch;
  question.route.rtm_dst_len = static_cast<std::uint8_t>(8 * bytes_of(to).size());
  question.add(RTA_DST, bytes_of(to).data(), bytes_of(to).size());
  // With a source, IPv6 takes the interface for a wish.
  if (to.storage.ss_family == AF_INET) {
    question.route.rtm_src_len = question.route.rtm_dst_len;
    question.add(RTA_SRC, bytes_of(from).data(), bytes_of(from).size());
  }
  if (interface != 0) {
    question.add(RTA_OIF, &interface, sizeof interface);
  }
  // The kernel answers before send() returns.
  Answer answer;
  if (send(netlink, &question, question.head.nlmsg_len, 0) < 0 ||
      recv(netlink, &answer, sizeof answer, MSG_DONTWAIT) <
          static_cast<ssize_t>(NLMSG_SPACE(sizeof(rtmsg))) ||
      answer.head.nlmsg_type != RTM_NEWROUTE || (answer.route.rtm_flags & kMadeUp) != 0) {
    return std::nullopt;
  }
  return answer.route;
}

}  // namespace

Way find_way(int interface, const SocketAddress& from, const SocketAddress& to) {
  const int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (netlink < 0) {
    return Way::kUnknown;
  }
  const std::optional<rtmsg> best = route_of(netlink, 0, from, to);
  const std::optional<rtmsg> own = best ? route_of(netlink, interface, from, to) : std::nullopt;
  close(netlink);
  if (!best) {
    return Way::kUnknown;
  }
  return own && best->rtm_type == RTN_UNICAST && own->rtm_type == RTN_UNICAST &&
                 own->rtm_dst_len == best->rtm_dst_len
             ? Way::kByInterface
             : Way::kByRoutes;
}

}  // namespace tutti::wire::udp
