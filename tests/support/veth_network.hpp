// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Two hosts with a cable between them: two network namespaces and a veth pair, whose ends have the
// addresses 10.77.0.1 and 10.77.0.2 and the name "wire0". For tests that need what no user
// namespace allows (BPF); they run in a process of their own, which the namespaces end with.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/forked_ranks.hpp"

namespace tutti::test {

/// A message that asks the kernel to make or change a device.
class LinkMessage {
 public:
  explicit LinkMessage(std::uint16_t flags) {
    head().nlmsg_len = NLMSG_LENGTH(sizeof(ifinfomsg));
    head().nlmsg_type = RTM_NEWLINK;
    head().nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
  }
  ifinfomsg& info() { return *static_cast<ifinfomsg*>(NLMSG_DATA(&head())); }

  void add(int type, const void* data, std::size_t bytes) {
    auto* const at = reinterpret_cast<rtattr*>(end());
    at->rta_type = static_cast<unsigned short>(type);
    at->rta_len = static_cast<unsigned short>(RTA_LENGTH(bytes));
    if (bytes > 0) {
      std::memcpy(RTA_DATA(at), data, bytes);
    }
    head().nlmsg_len += static_cast<std::uint32_t>(RTA_SPACE(bytes));
  }
  void add(int type, const std::string& text) { add(type, text.c_str(), text.size() + 1); }
  void add(int type, std::uint32_t value) { add(type, &value, sizeof value); }

  /// What `fill` adds lies within this attribute; `body_bytes` of zeros before it.
  void nest(int type, std::size_t body_bytes, const std::function<void()>& fill) {
    auto* const at = reinterpret_cast<rtattr*>(end());
    at->rta_type = static_cast<unsigned short>(type);
    head().nlmsg_len += static_cast<std::uint32_t>(RTA_LENGTH(0) + body_bytes);
    fill();
    at->rta_len = static_cast<unsigned short>(end() - reinterpret_cast<char*>(at));
  }

  /// 0, or an errno.
  int send() {
    const int socket = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    std::array<char, 8192> answer{};
    int error = errno;
    if (socket >= 0 && ::send(socket, bytes_.data(), head().nlmsg_len, 0) >= 0 &&
        recv(socket, answer.data(), answer.size(), 0) > 0) {
      error = -static_cast<nlmsgerr*>(NLMSG_DATA(answer.data()))->error;
    }
    close(socket);
    return error;
  }

 private:
  nlmsghdr& head() { return *reinterpret_cast<nlmsghdr*>(bytes_.data()); }
  char* end() { return bytes_.data() + NLMSG_ALIGN(head().nlmsg_len); }
  alignas(nlmsghdr) std::array<char, 2048> bytes_{};
};

class VethNetwork {
 public:
  static constexpr const char* kDevice = "wire0";
  static constexpr const char* kAddresses[] = {"10.77.0.1", "10.77.0.2"};

  struct Options {
    std::uint32_t queues = 1;
    int mtu_bytes = 1500;
  };

  /// Null, and why.
  static std::unique_ptr<VethNetwork> make(const Options& options, std::string* why) {
    std::unique_ptr<VethNetwork> self(new VethNetwork);
    for (int& side : self->sides_) {
      if (unshare(CLONE_NEWNET) != 0) {
        *why = std::string("no network namespaces: ") + std::strerror(errno);
        return nullptr;
      }
      side = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    }
    self->enter(0);
    LinkMessage pair(NLM_F_CREATE | NLM_F_EXCL);
    const auto describe = [&] {
      pair.add(IFLA_IFNAME, kDevice);
      pair.add(IFLA_NUM_TX_QUEUES, options.queues);
      pair.add(IFLA_NUM_RX_QUEUES, options.queues);
    };
    describe();
    pair.nest(IFLA_LINKINFO, 0, [&] {
      pair.add(IFLA_INFO_KIND, "veth", 4);
      pair.nest(IFLA_INFO_DATA, 0, [&] {
        pair.nest(VETH_INFO_PEER, sizeof(ifinfomsg), [&] {
          describe();
          pair.add(IFLA_NET_NS_FD, static_cast<std::uint32_t>(self->sides_[1]));
        });
      });
    });
    if (const int error = pair.send(); error != 0) {
      *why = std::string("no veth devices: ") + std::strerror(error);
      return nullptr;
    }
    for (int side = 0; side < 2; ++side) {
      self->enter(side);
      if (!set_up(kAddresses[side], options.mtu_bytes)) {
        *why = std::string("veth: ") + std::strerror(errno);
        return nullptr;
      }
    }
    return self;
  }
  ~VethNetwork() {
    for (const int side : sides_) {
      close(side);
    }
  }

  /// What this thread opens from now on belongs to this host.
  void enter(int side) const { ASSERT_EQ(0, setns(sides_[side], CLONE_NEWNET)); }

  /// Both hosts know each other's MAC address then: the kernel asks when it has something to send.
  void meet() const {
    for (int side = 0; side < 2; ++side) {
      enter(side);
      const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      sockaddr_in to = address_of(1 - side);
      to.sin_port = htons(9);
      (void)!sendto(socket, "", 0, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
      close(socket);
    }
    usleep(20'000);
  }

  static sockaddr_in address_of(int side) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, kAddresses[side], &address.sin_addr);
    return address;
  }

 private:
  VethNetwork() = default;

  static bool set_up(const char* address, int mtu_bytes) {
    const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    bool is_done = ioctl(socket, SIOCSIFFLAGS, &request) == 0;
    std::strcpy(request.ifr_name, kDevice);
    request.ifr_mtu = mtu_bytes;
    is_done = is_done && ioctl(socket, SIOCSIFMTU, &request) == 0;
    auto* const value = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
    for (const auto& [name, text] : {std::pair<unsigned long, const char*>{SIOCSIFADDR, address},
                                     {SIOCSIFNETMASK, "255.255.255.0"}}) {
      *value = {};
      value->sin_family = AF_INET;
      inet_pton(AF_INET, text, &value->sin_addr);
      is_done = is_done && ioctl(socket, name, &request) == 0;
    }
    request.ifr_flags = IFF_UP;
    is_done = is_done && ioctl(socket, SIOCSIFFLAGS, &request) == 0;
    close(socket);
    return is_done;
  }

  int sides_[2] = {-1, -1};
};

/// Runs it in a process with such a network; what it returns, if anything, is why it must be
/// skipped.
inline void with_veth_network(const VethNetwork::Options& options,
                              const std::function<std::string(const VethNetwork&)>& body) {
  std::fflush(stdout);
  const std::vector<std::string> answers = in_ranks(1, [&](int, Shared&) -> std::string {
    std::string why;
    const auto network = VethNetwork::make(options, &why);
    if (network != nullptr) {
      why = body(*network);
    }
    std::fflush(stdout);
    return ::testing::Test::HasFailure() ? "failed" : why.empty() ? "" : "skip: " + why;
  });
  ASSERT_EQ(answers.size(), 1U);
  if (answers[0].starts_with("skip: ")) {
    GTEST_SKIP() << answers[0].substr(6);
  }
  EXPECT_EQ(answers[0], "");
}

}  // namespace tutti::test
