// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/bootstrap/handshake.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "transport/siphash.hpp"

namespace tutti::net {
namespace {

constexpr std::uint32_t kHandshakeMagic = 0x49545554;  // "TUTI"
constexpr Bytes kUnitBytesMin = 160 << 10;
constexpr std::uint64_t kMbpsForPs = 8'000'000;  ///< Over ps for a byte: megabits per second.
static_assert(std::endian::native == std::endian::little, "Layout is copied");

/// As it crosses the network.
struct Layout {
  std::uint32_t magic = kHandshakeMagic;
  std::uint16_t version = kProtocolVersion;
  std::uint16_t bytes = kHandshakeBytes;
  std::uint32_t process = 0;
  std::uint32_t id = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t base_rtt_ns = 0;
  std::uint64_t window_bytes = 0;
  std::uint32_t chunk_bytes = 0;
  std::uint32_t mtu_bytes = 0;
  std::uint32_t paths = 0;
  std::uint32_t rails = 0;
  std::uint32_t ps_per_byte = 0;
  std::uint8_t authenticates = 0;
  std::uint8_t marks_ecn = 0;
  std::uint8_t address_bytes = 0;
  std::uint8_t traffic_class = 0;
  std::byte address[sizeof(wire::WireAddress::bytes)] = {};
  char refusal[kRefusalBytes] = {};
  char host[kTextBytes] = {};
  char wire[16] = {};
  char controller[32] = {};
  std::uint32_t sub_connections = 1;
  std::byte rest[60] = {};
  std::uint64_t device = 0;
  std::uint64_t proof = 0;
};
static_assert(sizeof(Layout) == kHandshakeBytes && std::is_trivially_copyable_v<Layout>);

std::uint64_t proof_of(const Layout& layout, const transport::Key& key) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&layout);
  return transport::SipHash<2, 4>(key).finish({bytes, offsetof(Layout, proof)});
}

Status differs(const char* what, const Handshake& mine, const std::string& my_value,
               const Handshake& theirs, const std::string& their_value) {
  return Status(ErrorCode::kInvalidArgument, std::string("net: ") + what + " differs: " + my_value +
                                                 " on " + mine.who() + ", " + their_value + " on " +
                                                 theirs.who() + "; set the same on all hosts");
}

}  // namespace

std::string who_is(const std::string& host, std::uint32_t process) {
  return host + ", process " + std::to_string(process);
}

HandshakeBytes encode(const Handshake& handshake, const transport::Key& key) {
  Layout it;
  it.process = handshake.process;
  it.id = handshake.id;
  it.incarnation = handshake.incarnation;
  it.device = handshake.device;
  it.traffic_class = handshake.traffic_class;
  it.base_rtt_ns = handshake.capabilities.base_rtt_ns;
  it.window_bytes = handshake.window_bytes;
  it.sub_connections = handshake.sub_connections;
  it.chunk_bytes = handshake.capabilities.chunk_bytes;
  it.mtu_bytes = handshake.capabilities.mtu_bytes;
  it.paths = handshake.capabilities.paths;
  it.rails = handshake.capabilities.rails;
  it.ps_per_byte = handshake.capabilities.ps_per_byte;
  it.authenticates = handshake.authenticates ? 1 : 0;
  it.marks_ecn = handshake.capabilities.marks_ecn ? 1 : 0;
  it.address_bytes = handshake.address.length;
  std::copy(handshake.address.bytes.begin(), handshake.address.bytes.end(), it.address);
  put_text(handshake.refusal, it.refusal);
  put_text(handshake.host, it.host);
  put_text(handshake.wire, it.wire);
  put_text(handshake.controller, it.controller);
  HandshakeBytes out;
  std::memcpy(out.data(), &it, sizeof it);
  seal(out, key);
  return out;
}

void seal(HandshakeBytes& bytes, const transport::Key& key) {
  Layout it;
  std::memcpy(&it, bytes.data(), sizeof it);
  it.proof = proof_of(it, key);
  std::memcpy(bytes.data(), &it, sizeof it);
}

Result<Handshake> decode(std::span<const std::byte> bytes, const transport::Key& key) {
  Layout it;
  if (bytes.size() != sizeof it) {
    return Status(ErrorCode::kInvalidArgument, "net: handshake: wrong length");
  }
  std::memcpy(&it, bytes.data(), sizeof it);
  if (it.magic != kHandshakeMagic) {
    return Status(ErrorCode::kInvalidArgument, "net: handshake: not from Tutti");
  }
  if (it.version != kProtocolVersion || it.bytes != kHandshakeBytes) {
    // What else it says stands elsewhere.
    return Status(ErrorCode::kUnsupported, "net: handshake: protocol version " +
                                               std::to_string(it.version) + ", this host has " +
                                               std::to_string(kProtocolVersion) +
                                               "; install the same Tutti on all hosts");
  }
  if (it.proof != proof_of(it, key)) {
    return Status(ErrorCode::kUnavailable,
                  "net: " + who_is(get_text(it.host), it.process) +
                      " has another key than the handle: it is of another job, or of another "
                      "listener");
  }
  if (it.address_bytes > sizeof it.address) {
    return Status(ErrorCode::kInvalidArgument, "net: handshake: invalid address");
  }
  if (it.sub_connections == 0 || it.sub_connections > kSubConnectionsMax) {
    return Status(ErrorCode::kInvalidArgument, "net: handshake: invalid number of sub-connections");
  }
  Handshake handshake;
  handshake.refusal = get_text(it.refusal);
  handshake.host = get_text(it.host);
  handshake.process = it.process;
  handshake.wire = get_text(it.wire);
  handshake.address.length = it.address_bytes;
  std::copy(std::begin(it.address), std::end(it.address), handshake.address.bytes.begin());
  handshake.capabilities.chunk_bytes = it.chunk_bytes;
  handshake.capabilities.mtu_bytes = it.mtu_bytes;
  handshake.capabilities.paths = it.paths;
  handshake.capabilities.rails = it.rails;
  handshake.capabilities.ps_per_byte = it.ps_per_byte;
  handshake.capabilities.base_rtt_ns = it.base_rtt_ns;
  handshake.capabilities.marks_ecn = it.marks_ecn != 0;
  handshake.controller = get_text(it.controller);
  handshake.authenticates = it.authenticates != 0;
  handshake.id = it.id;
  handshake.incarnation = it.incarnation;
  handshake.device = it.device;
  handshake.traffic_class = it.traffic_class;
  handshake.window_bytes = it.window_bytes;
  handshake.sub_connections = it.sub_connections;
  return handshake;
}

Result<transport::ConnectionOptions> agree(const Handshake& mine, const Handshake& theirs,
                                           const transport::Key& key) {
  for (const Handshake* handshake : {&mine, &theirs}) {
    const transport::WireCapabilities& it = handshake->capabilities;
    if (it.chunk_bytes == 0 || it.mtu_bytes == 0 || it.paths == 0 || it.rails == 0 ||
        it.ps_per_byte == 0) {
      return Status(
          ErrorCode::kInvalidArgument,
          "net: " + handshake->who() + " has a wire without a chunk, MTU, path, rail or rate");
    }
  }
  if (mine.wire != theirs.wire) {
    return differs("the wire", mine, mine.wire, theirs, theirs.wire);
  }
  if (mine.controller != theirs.controller) {
    return differs("TUTTI_NET_CONTROLLER", mine, mine.controller, theirs, theirs.controller);
  }
  if (mine.authenticates != theirs.authenticates) {
    const auto text = [](bool on) { return on ? "1" : "0"; };
    return differs("TUTTI_NET_AUTHENTICATE", mine, text(mine.authenticates), theirs,
                   text(theirs.authenticates));
  }
  const transport::WireCapabilities& a = mine.capabilities;
  const transport::WireCapabilities& b = theirs.capabilities;
  transport::ConnectionOptions options;
  options.local_id = mine.id;
  options.remote_id = theirs.id;
  options.local_incarnation = mine.incarnation;
  options.remote_incarnation = theirs.incarnation;
  options.key = key;
  options.authenticates = mine.authenticates;
  options.controller = mine.controller;
  options.wire.chunk_bytes = std::min(a.chunk_bytes, b.chunk_bytes);
  options.wire.mtu_bytes = std::min(a.mtu_bytes, b.mtu_bytes);
  options.wire.paths = std::min(a.paths, b.paths);
  options.wire.rails = std::min(a.rails, b.rails);
  options.wire.ps_per_byte = std::max(a.ps_per_byte, b.ps_per_byte);
  options.wire.base_rtt_ns = std::min(a.base_rtt_ns, b.base_rtt_ns);
  options.wire.base_rtt_is_guess = a.base_rtt_is_guess || b.base_rtt_is_guess;
  options.wire.marks_ecn = a.marks_ecn && b.marks_ecn;
  if (mine.window_bytes != 0 || theirs.window_bytes != 0) {
    const Bytes most = UINT64_MAX;
    options.window_bytes_max = std::min(mine.window_bytes == 0 ? most : mine.window_bytes,
                                        theirs.window_bytes == 0 ? most : theirs.window_bytes);
  }
  return options;
}

std::string differences(const Handshake& mine, const Handshake& theirs) {
  std::string text;
  const auto compare = [&](const char* what, std::uint64_t here, std::uint64_t there) {
    if (here != there) {
      text += (text.empty() ? "" : ", ") + std::string(what) + " " + std::to_string(there) +
              " (here " + std::to_string(here) + ")";
    }
  };
  compare("bytes of a datagram", mine.capabilities.mtu_bytes, theirs.capabilities.mtu_bytes);
  compare("bytes of a chunk", mine.capabilities.chunk_bytes, theirs.capabilities.chunk_bytes);
  compare("paths", mine.capabilities.paths, theirs.capabilities.paths);
  compare("rails", mine.capabilities.rails, theirs.capabilities.rails);
  compare("sub-connections", mine.sub_connections, theirs.sub_connections);
  compare("Mb/s of a link", kMbpsForPs / mine.capabilities.ps_per_byte,
          kMbpsForPs / theirs.capabilities.ps_per_byte);
  compare("ECN", mine.capabilities.marks_ecn ? 1 : 0, theirs.capabilities.marks_ecn ? 1 : 0);
  return text.empty() ? text
                      : "net: " + theirs.host + " differs: " + text + "; what both can do is used";
}

void take_share(transport::ConnectionOptions& options, std::uint32_t sub_connections) {
  options.wire.paths = std::max(options.wire.paths / sub_connections, options.wire.rails);
  options.wire.ps_per_byte *= sub_connections;
  options.window_bytes_max /= sub_connections;
}

Bytes unit_bytes_of(const transport::ConnectionOptions& options) {
  const Bytes chunk_bytes = options.wire.chunk_bytes;
  return (kUnitBytesMin + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

}  // namespace tutti::net
