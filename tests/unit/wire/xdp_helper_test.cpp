// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A helper that is root, in a thread, and wires of a thread that is nobody. As root.
#include "wire/xdp/xdp_helper.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "support/veth_network.hpp"
#include "support/wire_contract.hpp"
#include "wire/xdp/xdp_wire.hpp"

namespace tutti::wire::xdp {
namespace {

using test::VethNetwork;
using testing::WirePair;

constexpr unsigned kNobody = 65534;

std::string path_of(int side) {
  return "/tmp/tutti-xdp-helper-test-" + std::to_string(getpid()) + "-" + std::to_string(side);
}

/// A helper of one host.
class Helper {
 public:
  Helper(const VethNetwork& network, int side)
      : thread_([this, &network, side] {
          network.enter(side);
          auto server = HelperServer::open(path_of(side), 0666);
          EXPECT_TRUE(server.ok()) << server.status().message();
          is_ready_ = true;
          while (!is_over_) {
            server->serve(10);
            clients_ = server->clients();
          }
        }) {
    while (!is_ready_) {
      std::this_thread::yield();
    }
  }
  ~Helper() {
    is_over_ = true;
    thread_.join();
  }
  bool has_clients(std::size_t count) const {
    for (int i = 0; i < 200 && clients_ != count; ++i) {
      usleep(10'000);
    }
    return clients_ == count;
  }

 private:
  std::atomic<bool> is_ready_ = false;
  std::atomic<bool> is_over_ = false;
  std::atomic<std::size_t> clients_ = 0;
  std::thread thread_;
};

/// This thread, and no other, is somebody without privileges from now on.
void become_nobody() { ASSERT_EQ(0, syscall(SYS_setresuid, -1, kNobody, -1)); }
void become_root() { ASSERT_EQ(0, syscall(SYS_setresuid, -1, 0, -1)); }

Result<std::unique_ptr<XdpWire>> open_on(const VethNetwork& network, int side, bool has_helper) {
  become_root();
  network.enter(side);
  become_nobody();
  XdpOptions options;
  const sockaddr_in address = VethNetwork::address_of(side);
  std::memcpy(&options.local.storage, &address, sizeof address);
  options.local.bytes = sizeof address;
  options.interface = VethNetwork::kDevice;
  options.paths = 8;
  if (has_helper) {
    options.helper = path_of(side);
  }
  return XdpWire::open(options);
}

/// Runs `body` where AF_XDP works, between two hosts with helpers.
void with_helpers(const std::function<void(const VethNetwork&)>& body, std::uint32_t queues = 1) {
  test::with_veth_network({.queues = queues}, [&](const VethNetwork& network) {
    network.enter(0);
    {
      XdpProgram program;
      XskOptions options;
      options.interface = static_cast<int>(if_nametoindex(VethNetwork::kDevice));
      const auto tried = open_xsk(options, &program);
      if (!tried.ok() && tried.status().code() == ErrorCode::kUnsupported) {
        return tried.status().message();
      }
    }
    network.meet();
    body(network);
    become_root();
    return std::string();
  });
}

TEST(XdpHelper, ItsContractHolds) {
  for (const testing::WireCheck& check : testing::wire_checks()) {
    SCOPED_TRACE(check.name);
    with_helpers([&](const VethNetwork& network) {
      const Helper first(network, 0);
      const Helper second(network, 1);
      check.run([&] {
        WirePair pair;
        auto a = open_on(network, 0, true);
        auto b = open_on(network, 1, true);
        EXPECT_TRUE(a.ok()) << a.status().message();
        EXPECT_TRUE(b.ok()) << b.status().message();
        EXPECT_NE(std::string::npos, (*a)->description().find("by the helper"));
        pair.a = std::move(*a);
        pair.b = std::move(*b);
        return pair;
      });
      EXPECT_TRUE(first.has_clients(0));
    });
  }
}

TEST(XdpHelper, NobodyToAskIsAnError) {
  with_helpers([](const VethNetwork& network) {
    const auto alone = open_on(network, 0, false);
    ASSERT_FALSE(alone.ok());
    EXPECT_EQ(ErrorCode::kUnsupported, alone.status().code());
    EXPECT_NE(std::string::npos, alone.status().message().find("tutti-xdp-helper"))
        << alone.status().message();
    const auto in_vain = open_on(network, 0, true);
    ASSERT_FALSE(in_vain.ok());
    EXPECT_NE(std::string::npos, in_vain.status().message().find("nobody listens at"))
        << in_vain.status().message();
  });
}

TEST(XdpHelper, OneSocketForEachQueue) {
  with_helpers(
      [](const VethNetwork& network) {
        const Helper helper(network, 0);
        auto first = open_on(network, 0, true);
        auto second = open_on(network, 0, true);
        ASSERT_TRUE(first.ok() && second.ok()) << second.status().message();
        EXPECT_TRUE(helper.has_clients(2));
        const auto third = open_on(network, 0, true);
        ASSERT_FALSE(third.ok());
        EXPECT_NE(std::string::npos, third.status().message().find("queue"));
        first->reset();
        EXPECT_TRUE(helper.has_clients(1));
        EXPECT_TRUE(open_on(network, 0, true).ok());
      },
      2);
}

// The program leaves with it; the wire's UDP socket gets what comes.
TEST(XdpHelper, WiresGoOnWithoutIt) {
  with_helpers([](const VethNetwork& network) {
    std::optional<Helper> first(std::in_place, network, 0);
    std::optional<Helper> second(std::in_place, network, 1);
    testing::Conversation talk([&] {
      WirePair pair;
      pair.a = std::move(*open_on(network, 0, true));
      pair.b = std::move(*open_on(network, 1, true));
      return pair;
    });
    first.reset();
    second.reset();
    become_root();
    EXPECT_EQ(0U, Netlink().attached_program(if_nametoindex(VethNetwork::kDevice)).id);
    for (std::uint64_t number = 1; number <= 5; ++number) {
      const testing::TestPacket packet(number, talk.b_named_by_a, 40, 20'000);
      testing::expect_equal(packet, talk.pass(packet));
    }
    EXPECT_GT(dynamic_cast<const XdpWire&>(*talk.pair.b).kernel_received(), 50U);
  });
}

Status ask_with(const VethNetwork& network, int kernel_socket) {
  network.enter(0);
  XskOptions options;
  options.interface = static_cast<int>(if_nametoindex(VethNetwork::kDevice));
  const auto asked = ask_helper(path_of(0), options, kernel_socket);
  return asked.ok() ? Status() : asked.status();
}

// What comes to a port is for who has it, in the network that the helper is of.
TEST(XdpHelper, PortsOfOthersAreRefused) {
  with_helpers([](const VethNetwork& network) {
    const Helper helper(network, 0);
    const auto socket_of = [&](int side, int type, const char* address, std::uint16_t port) {
      network.enter(side);
      const int socket = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
      sockaddr_in bound{};
      bound.sin_family = AF_INET;
      inet_pton(AF_INET, address, &bound.sin_addr);
      bound.sin_port = htons(port);
      if (port != 0) {
        EXPECT_EQ(0, bind(socket, reinterpret_cast<const sockaddr*>(&bound), sizeof bound));
      }
      return OwnedFd(socket);
    };
    const std::pair<const char*, OwnedFd> refused[] = {
        {"not bound", socket_of(0, SOCK_DGRAM, "0.0.0.0", 0)},
        {"any address", socket_of(0, SOCK_DGRAM, "0.0.0.0", 5001)},
        {"another interface", socket_of(0, SOCK_DGRAM, "127.0.0.1", 5002)},
        {"TCP", socket_of(0, SOCK_STREAM, "10.77.0.1", 5003)},
        {"another network", socket_of(1, SOCK_DGRAM, "10.77.0.2", 5004)},
        {"no socket", OwnedFd(dup(0))},
    };
    for (const auto& [name, socket] : refused) {
      EXPECT_FALSE(ask_with(network, socket.get()).ok()) << name;
    }
    const OwnedFd own = socket_of(0, SOCK_DGRAM, "10.77.0.1", 5005);
    const Status status = ask_with(network, own.get());
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(helper.has_clients(0));
  });
}

// What is no request ends its connection, and nothing else.
TEST(XdpHelper, NoiseIsHarmless) {
  with_helpers([](const VethNetwork& network) {
    const Helper helper(network, 0);
    for (const std::size_t bytes : {0, 1, 4, 35, 36, 37, 1000}) {
      const OwnedFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      path_of(0).copy(address.sun_path, sizeof address.sun_path - 1);
      ASSERT_EQ(0,
                connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
      const std::string noise(bytes, '\xa5');
      (void)!send(socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
      char got = 0;
      EXPECT_LE(recv(socket.get(), &got, 1, 0), 0) << bytes;
    }
    EXPECT_TRUE(helper.has_clients(0));
    EXPECT_TRUE(open_on(network, 0, true).ok());
  });
}

TEST(XdpHelper, OnePathHasOneHelper) {
  const std::string path = path_of(0);
  auto first = HelperServer::open(path, 0600);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_FALSE(HelperServer::open(path, 0600).ok());
  { const HelperServer gone = std::move(*first); }
  EXPECT_NE(0, access(path.c_str(), F_OK));
  EXPECT_TRUE(HelperServer::open(path, 0600).ok());
  EXPECT_FALSE(HelperServer::open("", 0600).ok());
  EXPECT_FALSE(HelperServer::open(std::string(200, 'x'), 0600).ok());
}

}  // namespace
}  // namespace tutti::wire::xdp
