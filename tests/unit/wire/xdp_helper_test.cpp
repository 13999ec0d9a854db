// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A helper that is root, in a thread, and wires of a thread that is nobody. As root.
#include "wire/xdp/xdp_helper.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
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
#include <vector>

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

HelperOptions helper_options(const std::string& path) {
  HelperOptions options;
  options.path = path;
  return options;
}

/// A helper of one host.
class Helper {
 public:
  Helper(const VethNetwork& network, int side)
      : thread_([this, &network, side] {
          network.enter(side);
          HelperOptions options = helper_options(path_of(side));
          options.mode = 0666;
          options.interfaces = {VethNetwork::kDevice};
          auto server = HelperServer::open(options);
          EXPECT_TRUE(server.ok()) << server.status().message();
          is_ready_ = true;
          while (!is_over_) {
            server->serve(10);
            clients_ = server->clients();
          }
          (void)unlink((path_of(side) + ".lock").c_str());
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

Result<std::unique_ptr<XdpWire>> open_on(const VethNetwork& network, int side, bool has_helper,
                                         std::vector<std::string>* told = nullptr) {
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
  if (told != nullptr) {
    options.on_fallback = [told](const std::string& what, const std::string&) {
      told->push_back(what);
    };
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
    std::vector<std::string> told;
    testing::Conversation talk([&] {
      WirePair pair;
      auto a = open_on(network, 0, true);
      auto b = open_on(network, 1, true, &told);
      EXPECT_TRUE(a.ok() && b.ok()) << a.status().message() << b.status().message();
      pair.a = std::move(*a);
      pair.b = std::move(*b);
      return pair;
    });
    EXPECT_NE(std::string::npos, talk.pair.b->description().find("by the helper"));
    const std::size_t before = told.size();
    first.reset();
    second.reset();
    become_root();
    EXPECT_EQ(0U, Netlink().attached_program(if_nametoindex(VethNetwork::kDevice)).id);
    for (std::uint64_t number = 1; number <= 5; ++number) {
      const testing::TestPacket packet(number, talk.b_named_by_a, 40, 20'000);
      testing::expect_equal(packet, talk.pass(packet));
    }
    EXPECT_GT(dynamic_cast<const XdpWire&>(*talk.pair.b).kernel_received(), 50U);
    ASSERT_EQ(before + 1, told.size());
    EXPECT_EQ(
        told.back(),
        "tutti-xdp-helper serves wire0 no more: packets arrive by the kernel's UDP and not by "
        "AF_XDP");
    EXPECT_EQ(std::string::npos, talk.pair.b->description().find("by the helper"));
  });
}

// It then cannot see who is bound to which port. That is no reason to end anybody's service.
TEST(XdpHelper, ServesOnWithoutAFreeDescriptor) {
  with_helpers([](const VethNetwork& network) {
    const Helper first(network, 0);
    const Helper second(network, 1);
    std::vector<std::string> told;
    testing::Conversation talk([&] {
      WirePair pair;
      auto a = open_on(network, 0, true);
      auto b = open_on(network, 1, true, &told);
      EXPECT_TRUE(a.ok() && b.ok()) << a.status().message() << b.status().message();
      pair.a = std::move(*a);
      pair.b = std::move(*b);
      return pair;
    });
    const std::size_t before = told.size();
    rlimit limit{};
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
    rlimit none = limit;
    none.rlim_cur = 4;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
    usleep(1'200'000);  // It looks twice a second.
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
    for (std::uint64_t number = 1; number <= 5; ++number) {
      const testing::TestPacket packet(number, talk.b_named_by_a, 40, 20'000);
      testing::expect_equal(packet, talk.pass(packet));
    }
    EXPECT_EQ(0U, dynamic_cast<const XdpWire&>(*talk.pair.b).kernel_received());
    EXPECT_EQ(before, told.size());
  });
}

Result<HelpedSocket> ask_for(const VethNetwork& network, int kernel_socket,
                             const char* interface = VethNetwork::kDevice) {
  network.enter(0);
  XskOptions options;
  options.interface = static_cast<int>(if_nametoindex(interface));
  return ask_helper(path_of(0), options, kernel_socket);
}

Status ask_with(const VethNetwork& network, int kernel_socket,
                const char* interface = VethNetwork::kDevice) {
  const auto asked = ask_for(network, kernel_socket, interface);
  return asked.ok() ? Status() : asked.status();
}

/// A UDP socket of a host. `option`: of SOL_SOCKET, set to 1 before bind().
Descriptor bound_socket(const VethNetwork& network, int side, std::uint16_t port, int option = 0) {
  network.enter(side);
  Descriptor it(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (option != 0) {
    EXPECT_EQ(0, setsockopt(it.get(), SOL_SOCKET, option, &on, sizeof on));
  }
  sockaddr_in address = VethNetwork::address_of(side);
  address.sin_port = htons(port);
  if (bind(it.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    it.reset();
  }
  return it;
}

std::uint16_t port_of(const Descriptor& socket) {
  sockaddr_in bound{};
  socklen_t bytes = sizeof bound;
  EXPECT_EQ(0, getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes));
  return ntohs(bound.sin_port);
}

constexpr int kArriving = 16;

/// Sends datagrams from as many ports of the other host, as their queue depends on that, to this
/// port of host 0; how many `receiver` gets.
int arriving(const VethNetwork& network, const Descriptor& receiver, std::uint16_t port) {
  sockaddr_in to = VethNetwork::address_of(0);
  to.sin_port = htons(port);
  for (int i = 0; i < kArriving; ++i) {
    const Descriptor sender = bound_socket(network, 1, 0);
    EXPECT_EQ(1,
              sendto(sender.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to));
  }
  usleep(50'000);
  int count = 0;
  for (char got = 0; recv(receiver.get(), &got, 1, MSG_DONTWAIT) == 1;) {
    ++count;
  }
  return count;
}

// A client that keeps the AF_XDP socket gets nothing more, though another keeps the program.
TEST(XdpHelper, WhoLeavesGetsNothingMore) {
  with_helpers(
      [](const VethNetwork& network) {
        const Helper helper(network, 0);
        Descriptor own = bound_socket(network, 0, 0);
        const std::uint16_t port = port_of(own);
        auto leaver = ask_for(network, own.get());
        ASSERT_TRUE(leaver.ok()) << leaver.status().message();
        EXPECT_EQ(0U, leaver->parts.queue);
        const Descriptor others = bound_socket(network, 0, 0);
        const auto other = ask_for(network, others.get());
        ASSERT_TRUE(other.ok()) << other.status().message();
        EXPECT_TRUE(helper.has_clients(2));
        EXPECT_LT(arriving(network, own, port), kArriving);  // The others are in its ring.
        own.reset();
        leaver->connection.reset();
        EXPECT_TRUE(helper.has_clients(1));
        const Descriptor next = bound_socket(network, 0, port);
        ASSERT_GE(next.get(), 0) << "the port is not free";
        EXPECT_EQ(kArriving, arriving(network, next, port));
        network.enter(0);
        EXPECT_NE(0U, Netlink().attached_program(if_nametoindex(VethNetwork::kDevice)).id);
      },
      2);
}

// The helper's descriptor is of the same socket: it must not be unbound by the client's.
TEST(XdpHelper, PortsAreKeptWhileTheyAreServed) {
  with_helpers([](const VethNetwork& network) {
    const Helper helper(network, 0);
    for (const std::uint16_t wanted : {0, 5010}) {
      const Descriptor own = bound_socket(network, 0, wanted);
      const std::uint16_t port = port_of(own);
      const auto asked = ask_for(network, own.get());
      ASSERT_TRUE(asked.ok()) << asked.status().message();
      EXPECT_EQ(port, port_of(own));
      const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
      EXPECT_EQ(0, connect(own.get(), &none, sizeof none));
      EXPECT_EQ(port, port_of(own));
      EXPECT_LT(bound_socket(network, 0, port).get(), 0);
      EXPECT_EQ(EADDRINUSE, errno);
    }
    EXPECT_TRUE(helper.has_clients(0));
  });
}

TEST(XdpHelper, SharedPortsAreRefused) {
  with_helpers([](const VethNetwork& network) {
    const Helper helper(network, 0);
    for (const auto& [option, port] : {std::pair(SO_REUSEADDR, 5022), {SO_REUSEPORT, 5023}}) {
      const Descriptor own = bound_socket(network, 0, static_cast<std::uint16_t>(port), option);
      const Status status = ask_with(network, own.get());
      EXPECT_NE(std::string::npos, status.message().find("another socket's")) << status.message();
    }
    Descriptor own = bound_socket(network, 0, 0);
    ASSERT_EQ(0, setsockopt(own.get(), SOL_SOCKET, SO_BINDTODEVICE, "wire0", 6));
    EXPECT_FALSE(ask_with(network, own.get()).ok());
    // What allowed it before is forgotten: two have the port, though neither shares it now.
    own = bound_socket(network, 0, 5021, SO_REUSEADDR);
    const Descriptor other = bound_socket(network, 0, 5021, SO_REUSEADDR);
    ASSERT_GE(other.get(), 0);
    const int off = 0;
    ASSERT_EQ(0, setsockopt(own.get(), SOL_SOCKET, SO_REUSEADDR, &off, sizeof off));
    EXPECT_FALSE(ask_with(network, own.get()).ok());
    // One that is shared later ends the service.
    own = bound_socket(network, 0, 0);
    const auto asked = ask_for(network, own.get());
    ASSERT_TRUE(asked.ok()) << asked.status().message();
    EXPECT_TRUE(helper.has_clients(1));
    const int on = 1;
    ASSERT_EQ(0, setsockopt(own.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    EXPECT_TRUE(helper.has_clients(0));
  });
}

TEST(XdpHelper, OnlyItsInterfacesAreServed) {
  with_helpers([](const VethNetwork& network) {
    const Helper helper(network, 0);
    const Descriptor own = bound_socket(network, 0, 0);
    const Status status = ask_with(network, own.get(), "lo");
    EXPECT_NE(std::string::npos, status.message().find("does not serve interface 'lo'"))
        << status.message();
    network.enter(0);
    HelperOptions options = helper_options(path_of(1));
    options.interfaces = {"lo"};
    EXPECT_FALSE(HelperServer::open(options).ok());
  });
}

Descriptor connected(int side) {
  Descriptor it(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_of(side).copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(0, connect(it.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
  return it;
}

// Those who ask for nothing leave after a while, and a user has a limited number.
TEST(XdpHelper, IdleConnectionsAreLimited) {
  with_helpers([](const VethNetwork& network) {
    const Helper helper(network, 0);
    std::vector<Descriptor> idle;
    become_nobody();
    for (int i = 0; i < 70; ++i) {
      idle.push_back(connected(0));
    }
    become_root();
    EXPECT_TRUE(helper.has_clients(64));
    idle.push_back(connected(0));
    EXPECT_TRUE(helper.has_clients(65));
    usleep(1'000'000);
    EXPECT_TRUE(helper.has_clients(0));
    EXPECT_TRUE(open_on(network, 0, true).ok());
  });
}

// Descriptors whose closing waits for a peer do not hold up others.
TEST(XdpHelper, RefusedDescriptorsDoNotBlockIt) {
  with_helpers([](const VethNetwork& network) {
    const Helper helper(network, 0);
    network.enter(0);
    const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = VethNetwork::address_of(0);
    address.sin_port = htons(5030);
    const auto* const at = reinterpret_cast<const sockaddr*>(&address);
    ASSERT_EQ(0, bind(listener.get(), at, sizeof address));
    ASSERT_EQ(0, listen(listener.get(), 1));
    {
      const Descriptor sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)connect(sender.get(), at, sizeof address);
      const std::vector<char> much(1 << 20);
      while (send(sender.get(), much.data(), much.size(), 0) > 0) {
      }
      const linger hour{.l_onoff = 1, .l_linger = 3600};
      ASSERT_EQ(0, setsockopt(sender.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof hour));
      // The helper's is the last descriptor when it closes it.
      const Descriptor client = connected(0);
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
      iovec part = {control, 1};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* const head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(sizeof(int));
      const int passed = sender.get();
      std::memcpy(CMSG_DATA(head), &passed, sizeof passed);
      ASSERT_EQ(1, sendmsg(client.get(), &message, 0));
    }
    EXPECT_TRUE(helper.has_clients(0));
    EXPECT_TRUE(open_on(network, 0, true).ok());
  });
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
      return Descriptor(socket);
    };
    const std::pair<const char*, Descriptor> refused[] = {
        {"not bound", socket_of(0, SOCK_DGRAM, "0.0.0.0", 0)},
        {"any address", socket_of(0, SOCK_DGRAM, "0.0.0.0", 5001)},
        {"another interface", socket_of(0, SOCK_DGRAM, "127.0.0.1", 5002)},
        {"TCP", socket_of(0, SOCK_STREAM, "10.77.0.1", 5003)},
        {"another network", socket_of(1, SOCK_DGRAM, "10.77.0.2", 5004)},
        {"no socket", Descriptor(dup(0))},
    };
    for (const auto& [name, socket] : refused) {
      EXPECT_FALSE(ask_with(network, socket.get()).ok()) << name;
    }
    const Descriptor own = socket_of(0, SOCK_DGRAM, "10.77.0.1", 5005);
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
      const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
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
  const HelperOptions options = helper_options(path);
  auto first = HelperServer::open(options);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_FALSE(HelperServer::open(options).ok());
  EXPECT_EQ(0, access(path.c_str(), F_OK));
  { const HelperServer gone = std::move(*first); }
  EXPECT_NE(0, access(path.c_str(), F_OK));
  EXPECT_TRUE(HelperServer::open(options).ok());
  EXPECT_FALSE(HelperServer::open(helper_options("")).ok());
  EXPECT_FALSE(HelperServer::open(helper_options(std::string(200, 'x'))).ok());
  // A socket that nobody listens at is of one that was killed.
  {
    const Descriptor killed(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(0, bind(killed.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
  }
  EXPECT_TRUE(HelperServer::open(options).ok());
  (void)unlink((path + ".lock").c_str());
}

TEST(XdpHelper, FilesThatAreNoSocketsStay) {
  const std::string path = path_of(0);
  const std::string link = path + ".link";
  Descriptor(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_EQ(0, symlink(path.c_str(), link.c_str()));
  for (const std::string& it : {path, link}) {
    const auto server = HelperServer::open(helper_options(it));
    ASSERT_FALSE(server.ok());
    EXPECT_NE(std::string::npos, server.status().message().find("is no socket"))
        << server.status().message();
    EXPECT_EQ(0, access(it.c_str(), F_OK));
    (void)unlink((it + ".lock").c_str());
  }
  (void)unlink(link.c_str());
  (void)unlink(path.c_str());
}

}  // namespace
}  // namespace tutti::wire::xdp
