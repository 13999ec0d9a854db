// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/netlink.hpp"

#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::wire::xdp {
namespace {

constexpr std::size_t kAnswerBytes = 16384;
constexpr int kUnrelatedMessagesMax = 16;  ///< Messages that are no answer, and are skipped.

/// A message that is being written: head, body, attributes.
class Question {
 public:
  template <class Body>
  Question(std::uint16_t type, const Body& body) {
    head_.nlmsg_type = type;
    head_.nlmsg_flags = NLM_F_REQUEST;
    add(&body, sizeof body);
  }

  void add_attribute(std::uint16_t type, const void* value, std::size_t bytes) {
    const rtattr attribute = {static_cast<std::uint16_t>(RTA_LENGTH(bytes)), type};
    add(&attribute, sizeof attribute);
    add(value, bytes);
  }

  std::span<const std::byte> finish(std::uint32_t number) {
    head_.nlmsg_seq = number;
    head_.nlmsg_len = static_cast<std::uint32_t>(used_);
    std::memcpy(bytes_.data(), &head_, sizeof head_);
    return std::span(bytes_).first(used_);
  }

 private:
  void add(const void* data, std::size_t bytes) {
    std::memcpy(bytes_.data() + used_, data, bytes);
    used_ += NLMSG_ALIGN(bytes);
  }

  nlmsghdr head_{};
  std::array<std::byte, 256> bytes_{};
  std::size_t used_ = NLMSG_HDRLEN;
};

/// The answer to it; empty: none, or an error.
std::vector<std::byte> ask(int socket, Question& question) {
  static thread_local std::uint32_t number = 0;
  const auto asked = question.finish(++number);
  if (send(socket, asked.data(), asked.size(), 0) < 0) {
    return {};
  }
  // The kernel answers before send() returns.
  std::vector<std::byte> answer(kAnswerBytes);
  for (int i = 0; i < kUnrelatedMessagesMax; ++i) {
    const ssize_t got = recv(socket, answer.data(), answer.size(), MSG_DONTWAIT);
    nlmsghdr head;
    if (got < static_cast<ssize_t>(sizeof head)) {
      return {};
    }
    std::memcpy(&head, answer.data(), sizeof head);
    if (head.nlmsg_seq == number && head.nlmsg_len <= static_cast<std::size_t>(got)) {
      answer.resize(head.nlmsg_type == NLMSG_ERROR ? 0 : head.nlmsg_len);
      return answer;
    }
  }
  return {};
}

/// The body of a message of this type, and what follows it. False: it is no such message.
template <class Body>
bool split(std::span<const std::byte> message, std::uint16_t type, Body* body,
           std::span<const std::byte>* attributes) {
  nlmsghdr head;
  constexpr std::size_t kBegin = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(Body));
  if (message.size() < kBegin) {
    return false;
  }
  std::memcpy(&head, message.data(), sizeof head);
  std::memcpy(body, message.data() + NLMSG_HDRLEN, sizeof *body);
  *attributes = message.subspan(kBegin);
  return head.nlmsg_type == type;
}

/// Calls take(type, value) for each attribute, until one is cut off.
template <class Take>
void for_attributes(std::span<const std::byte> bytes, Take&& take) {
  while (bytes.size() >= sizeof(rtattr)) {
    rtattr attribute;
    std::memcpy(&attribute, bytes.data(), sizeof attribute);
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > bytes.size()) {
      return;
    }
    take(attribute.rta_type & NLA_TYPE_MASK,
         bytes.subspan(sizeof attribute, attribute.rta_len - sizeof attribute));
    bytes = bytes.subspan(std::min<std::size_t>(RTA_ALIGN(attribute.rta_len), bytes.size()));
  }
}

template <class T>
void read(std::span<const std::byte> value, T* out) {
  if (value.size() >= sizeof *out) {
    std::memcpy(out, value.data(), sizeof *out);
  }
}

}  // namespace

Netlink::Netlink() : socket_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {}

NextHop Netlink::next_hop(int interface, std::uint32_t source, std::uint32_t target) const {
  rtmsg route{};
  route.rtm_family = AF_INET;
  route.rtm_dst_len = 32;
  route.rtm_src_len = 32;
  // First by any interface: asked for one, the kernel makes up a way to its own addresses.
  const auto answer = [&](int by, std::uint32_t flags) {
    route.rtm_flags = flags;
    Question question(RTM_GETROUTE, route);
    question.add_attribute(RTA_DST, &target, sizeof target);
    question.add_attribute(RTA_SRC, &source, sizeof source);
    if (by != 0) {
      question.add_attribute(RTA_OIF, &by, sizeof by);
    }
    return ask(socket_.get(), question);
  };
  const NextHop by_any = read_next_hop(answer(0, 0), 0, target);
  if (by_any.kind == NextHop::Kind::kLocal) {
    return by_any;
  }
  // Where the tables have nothing for the interface, the kernel takes the target for a neighbour:
  // only with this flag does it answer with an entry of the tables, or an error. The entry of
  // several gateways names all, so the one that is used takes another question.
  if (!is_route(answer(interface, RTM_F_FIB_MATCH))) {
    return {};
  }
  return read_next_hop(answer(interface, 0), interface, target);
}

std::optional<Neighbour> Netlink::neighbour(int interface, std::uint32_t address) const {
  ndmsg body{};
  body.ndm_family = AF_INET;
  body.ndm_ifindex = interface;
  Question question(RTM_GETNEIGH, body);
  question.add_attribute(NDA_DST, &address, sizeof address);
  return read_neighbour(ask(socket_.get(), question));
}

AttachedProgram Netlink::attached_program(int interface) const {
  ifinfomsg body{};
  body.ifi_index = interface;
  Question question(RTM_GETLINK, body);
  return read_attached_program(ask(socket_.get(), question));
}

bool is_route(std::span<const std::byte> message) {
  rtmsg route{};
  std::span<const std::byte> attributes;
  return split(message, RTM_NEWROUTE, &route, &attributes) && route.rtm_type == RTN_UNICAST;
}

NextHop read_next_hop(std::span<const std::byte> message, int interface, std::uint32_t target) {
  rtmsg route{};
  std::span<const std::byte> attributes;
  if (!split(message, RTM_NEWROUTE, &route, &attributes)) {
    return {};
  }
  if (route.rtm_type == RTN_LOCAL) {
    return {NextHop::Kind::kLocal, target};
  }
  std::uint32_t address = target;
  int out = 0;
  bool is_special = false;
  for_attributes(attributes, [&](int type, std::span<const std::byte> value) {
    if (type == RTA_GATEWAY) {
      read(value, &address);
    } else if (type == RTA_OIF) {
      read(value, &out);
    } else if (type == RTA_VIA || type == RTA_ENCAP || type == RTA_ENCAP_TYPE) {
      is_special = true;  // A gateway of IPv6, or a tunnel.
    }
  });
  const bool fits = route.rtm_family == AF_INET && route.rtm_type == RTN_UNICAST && !is_special &&
                    (interface == 0 || out == interface);
  return fits ? NextHop{NextHop::Kind::kNeighbour, address} : NextHop{};
}

std::optional<Neighbour> read_neighbour(std::span<const std::byte> message) {
  ndmsg body{};
  std::span<const std::byte> attributes;
  if (!split(message, RTM_NEWNEIGH, &body, &attributes) ||
      (body.ndm_state & (NUD_INCOMPLETE | NUD_FAILED)) != 0 || body.ndm_state == NUD_NONE) {
    return std::nullopt;
  }
  std::optional<Neighbour> found;
  for_attributes(attributes, [&](int type, std::span<const std::byte> value) {
    if (type == NDA_LLADDR && value.size() == sizeof(MacAddress)) {
      found.emplace();
      read(value, &found->mac);
      found->is_stale = (body.ndm_state & NUD_STALE) != 0;
    }
  });
  return found;
}

AttachedProgram read_attached_program(std::span<const std::byte> message) {
  ifinfomsg body{};
  std::span<const std::byte> attributes;
  AttachedProgram found;
  if (!split(message, RTM_NEWLINK, &body, &attributes)) {
    return found;
  }
  for_attributes(attributes, [&](int type, std::span<const std::byte> value) {
    if (type != IFLA_XDP) {
      return;
    }
    for_attributes(value, [&](int inner, std::span<const std::byte> content) {
      // Where there are several, the second kind of numbers names them.
      const bool is_one_of_several = inner == IFLA_XDP_DRV_PROG_ID ||
                                     inner == IFLA_XDP_SKB_PROG_ID || inner == IFLA_XDP_HW_PROG_ID;
      if (inner == IFLA_XDP_PROG_ID || (is_one_of_several && found.id == 0)) {
        read(content, &found.id);
      } else if (inner == IFLA_XDP_ATTACHED && !content.empty()) {
        found.is_generic = content[0] == std::byte{XDP_ATTACHED_SKB};
      }
    });
  });
  return found;
}

}  // namespace tutti::wire::xdp
