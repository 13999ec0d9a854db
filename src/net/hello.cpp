// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/hello.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "transport/siphash.hpp"

namespace tutti::net {
namespace {

constexpr std::uint32_t kHelloMagic = 0x49545554;  // "TUTI"
constexpr Bytes kUnitBytesMin = 160 << 10;
constexpr std::uint64_t kMbpsForPs = 8'000'000;  ///< Over ps for a byte: megabits per second.
static_assert(std::endian::native == std::endian::little, "Layout is copied");

/// As it crosses the network.
struct Layout {
  std::uint32_t magic = kHelloMagic;
  std::uint16_t version = kProtocolVersion;
  std::uint16_t bytes = kHelloBytes;
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
  std::uint32_t lanes = 1;
  std::byte rest[60] = {};
  std::uint64_t device = 0;
  std::uint64_t proof = 0;
};
static_assert(sizeof(Layout) == kHelloBytes && std::is_trivially_copyable_v<Layout>);

std::uint64_t proof_of(const Layout& layout, const transport::Key& key) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&layout);
  return transport::SipHash(key).finish({bytes, offsetof(Layout, proof)});
}

Status differs(const char* what, const Hello& mine, const std::string& my_value,
               const Hello& theirs, const std::string& their_value) {
  return Status(ErrorCode::kInvalidArgument, std::string("net: ") + what + " differs: " + my_value +
                                                 " on " + mine.who() + ", " + their_value + " on " +
                                                 theirs.who() + "; set the same on all hosts");
}

}  // namespace

std::string who_is(const std::string& host, std::uint32_t process) {
  return host + ", process " + std::to_string(process);
}

HelloBytes encode(const Hello& hello, const transport::Key& key) {
  Layout it;
  it.process = hello.process;
  it.id = hello.id;
  it.incarnation = hello.incarnation;
  it.device = hello.device;
  it.traffic_class = hello.traffic_class;
  it.base_rtt_ns = hello.capabilities.base_rtt_ns;
  it.window_bytes = hello.window_bytes;
  it.lanes = hello.lanes;
  it.chunk_bytes = hello.capabilities.chunk_bytes;
  it.mtu_bytes = hello.capabilities.mtu_bytes;
  it.paths = hello.capabilities.paths;
  it.rails = hello.capabilities.rails;
  it.ps_per_byte = hello.capabilities.ps_per_byte;
  it.authenticates = hello.authenticates ? 1 : 0;
  it.marks_ecn = hello.capabilities.marks_ecn ? 1 : 0;
  it.address_bytes = hello.address.length;
  std::copy(hello.address.bytes.begin(), hello.address.bytes.end(), it.address);
  put_text(hello.refusal, it.refusal);
  put_text(hello.host, it.host);
  put_text(hello.wire, it.wire);
  put_text(hello.controller, it.controller);
  HelloBytes out;
  std::memcpy(out.data(), &it, sizeof it);
  seal(out, key);
  return out;
}

void seal(HelloBytes& bytes, const transport::Key& key) {
  Layout it;
  std::memcpy(&it, bytes.data(), sizeof it);
  it.proof = proof_of(it, key);
  std::memcpy(bytes.data(), &it, sizeof it);
}

Result<Hello> decode(std::span<const std::byte> bytes, const transport::Key& key) {
  Layout it;
  if (bytes.size() != sizeof it) {
    return Status(ErrorCode::kInvalidArgument, "net: a greeting of the wrong length");
  }
  std::memcpy(&it, bytes.data(), sizeof it);
  if (it.magic != kHelloMagic) {
    return Status(ErrorCode::kInvalidArgument, "net: not a greeting of Tutti");
  }
  if (it.version != kProtocolVersion || it.bytes != kHelloBytes) {
    // What else it says stands elsewhere.
    return Status(ErrorCode::kUnsupported, "net: a greeting of protocol " +
                                               std::to_string(it.version) + ", this host's is " +
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
    return Status(ErrorCode::kInvalidArgument, "net: a greeting with a senseless address");
  }
  if (it.lanes == 0 || it.lanes > kLanesMax) {
    return Status(ErrorCode::kInvalidArgument, "net: a greeting of a senseless number of lanes");
  }
  Hello hello;
  hello.refusal = get_text(it.refusal);
  hello.host = get_text(it.host);
  hello.process = it.process;
  hello.wire = get_text(it.wire);
  hello.address.length = it.address_bytes;
  std::copy(std::begin(it.address), std::end(it.address), hello.address.bytes.begin());
  hello.capabilities.chunk_bytes = it.chunk_bytes;
  hello.capabilities.mtu_bytes = it.mtu_bytes;
  hello.capabilities.paths = it.paths;
  hello.capabilities.rails = it.rails;
  hello.capabilities.ps_per_byte = it.ps_per_byte;
  hello.capabilities.base_rtt_ns = it.base_rtt_ns;
  hello.capabilities.marks_ecn = it.marks_ecn != 0;
  hello.controller = get_text(it.controller);
  hello.authenticates = it.authenticates != 0;
  hello.id = it.id;
  hello.incarnation = it.incarnation;
  hello.device = it.device;
  hello.traffic_class = it.traffic_class;
  hello.window_bytes = it.window_bytes;
  hello.lanes = it.lanes;
  return hello;
}

Result<transport::ConnectionOptions> agree(const Hello& mine, const Hello& theirs,
                                           const transport::Key& key) {
  for (const Hello* hello : {&mine, &theirs}) {
    const transport::WireCapabilities& it = hello->capabilities;
    if (it.chunk_bytes == 0 || it.mtu_bytes == 0 || it.paths == 0 || it.rails == 0 ||
        it.ps_per_byte == 0) {
      return Status(
          ErrorCode::kInvalidArgument,
          "net: " + hello->who() + " has a wire without a chunk, MTU, path, rail or rate");
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

std::string differences(const Hello& mine, const Hello& theirs) {
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
  compare("lanes", mine.lanes, theirs.lanes);
  compare("Mb/s of a link", kMbpsForPs / mine.capabilities.ps_per_byte,
          kMbpsForPs / theirs.capabilities.ps_per_byte);
  compare("ECN", mine.capabilities.marks_ecn ? 1 : 0, theirs.capabilities.marks_ecn ? 1 : 0);
  return text.empty() ? text
                      : "net: " + theirs.host + " differs: " + text + "; what both can do is used";
}

void take_share(transport::ConnectionOptions& options, std::uint32_t lanes) {
  options.wire.paths = std::max(options.wire.paths / lanes, options.wire.rails);
  options.wire.ps_per_byte *= lanes;
  options.window_bytes_max /= lanes;
}

Bytes unit_bytes_of(const transport::ConnectionOptions& options) {
  const Bytes chunk_bytes = options.wire.chunk_bytes;
  return (kUnitBytesMin + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

}  // namespace tutti::net
