// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/bootstrap/handle.hpp"

#include <cstring>
#include <type_traits>

#include "net/bootstrap/handshake.hpp"

namespace tutti::net {
namespace {

using wire::udp::SocketAddress;

constexpr std::uint32_t kHandleMagic = 0x48545554;  // "TUTH"
constexpr std::uint8_t kIpv4 = 4;
constexpr std::uint8_t kIpv6 = 6;

/// As it crosses the bootstrap. Magic to port are those of every version.
struct HandleLayout {
  std::uint32_t magic = kHandleMagic;
  std::uint8_t version = kProtocolVersion;
  std::uint8_t family = 0;
  std::uint16_t port = 0;  ///< In the network's order, as the address.
  std::byte address[16] = {};
  std::uint64_t key_low = 0;
  std::uint64_t key_high = 0;
  std::uint64_t device = 0;
  std::uint32_t process = 0;
  char host[52] = {};
};
static_assert(sizeof(HandleLayout) == Handle::kBytes && std::is_trivially_copyable_v<HandleLayout>);

SocketAddress address_of(const HandleLayout& it) {
  SocketAddress address;
  if (it.family == kIpv6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = it.port;
    std::memcpy(&v6.sin6_addr, it.address, sizeof v6.sin6_addr);
    address.bytes = sizeof v6;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    v4.sin_port = it.port;
    std::memcpy(&v4.sin_addr, it.address, sizeof v4.sin_addr);
    address.bytes = sizeof v4;
  }
  return address;
}

}  // namespace

std::string HandleContent::who() const {
  return who_is(host, process) + ", at " + to_text(address);
}

Handle to_handle(const HandleContent& content) {
  HandleLayout it;
  if (content.address.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(content.address.storage);
    it.family = kIpv6;
    it.port = v6.sin6_port;
    std::memcpy(it.address, &v6.sin6_addr, sizeof v6.sin6_addr);
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(content.address.storage);
    it.family = kIpv4;
    it.port = v4.sin_port;
    std::memcpy(it.address, &v4.sin_addr, sizeof v4.sin_addr);
  }
  it.key_low = content.key.low;
  it.key_high = content.key.high;
  it.device = content.device;
  it.process = content.process;
  put_text(content.host, it.host);
  Handle handle;
  std::memcpy(handle.bytes.data(), &it, sizeof it);
  return handle;
}

Result<HandleContent> from_handle(const Handle& handle, int family) {
  HandleLayout it;
  std::memcpy(&it, handle.bytes.data(), sizeof it);
  if (it.magic != kHandleMagic) {
    return Status(ErrorCode::kUnsupported,
                  "net: the handle is not Tutti's: the peer uses another network; remedy: "
                  "NCCL_NET_PLUGIN and NCCL_NET=Tutti on all ranks (tutti env nccl-net)");
  }
  HandleContent content;
  content.address = address_of(it);
  if (it.version != kProtocolVersion) {
    return Status(ErrorCode::kUnsupported,
                  "net: the handle of the peer at " + to_text(content.address) +
                      " is of protocol " + std::to_string(it.version) + ", this host has " +
                      std::to_string(kProtocolVersion) + "; install the same Tutti on all hosts");
  }
  content.key = {it.key_low, it.key_high};
  content.device = it.device;
  content.process = it.process;
  content.host = get_text(it.host);
  if (content.address.storage.ss_family != family) {
    return Status(ErrorCode::kInvalidArgument,
                  "net: this host uses " + std::string(family == AF_INET6 ? "IPv6" : "IPv4") +
                      ", and " + content.who() +
                      " does not; set NCCL_SOCKET_FAMILY to the same on all hosts");
  }
  return content;
}

}  // namespace tutti::net
