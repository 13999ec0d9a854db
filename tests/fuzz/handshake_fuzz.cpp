// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A caller may send anything: its handshake (and its report of what has arrived) is read, or
// refused with a message that a terminal can show; what was read is the same when it is encoded
// and read again. The key here is known, so that proofs can fit.
#include <algorithm>
#include <cstring>

#include "fuzz.hpp"
#include "net/bootstrap/handshake.hpp"
#include "net/bootstrap/reach_check.hpp"
#include "wire/rails/rails_wire.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::net;
  const tutti::transport::Key key{1, 2};
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto report = decode_report(bytes);
  if (report.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable("net: " + report->failure, "net: "));
    FUZZ_ASSERT(*decode_report(encode(*report)) == *report);
    ReachCheck check(8);
    check.hear(1, *report);
    check.hear(1 + ReachCheck::kEvidenceNs, *report);
    FUZZ_ASSERT(check.evidence().empty() || !report->is_done);
  }
  auto handshake = decode(bytes, key);
  if (!handshake.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable(handshake.status().message(), "net: "));
    // The same fields of this version, with a proof that fits: the rest is reached, too.
    constexpr std::size_t kStart = 8;  // Magic, version, length.
    HandshakeBytes sealed = encode(Handshake{}, key);
    if (size > kStart) {
      std::memcpy(&sealed[kStart], data + kStart, std::min(size, sealed.size()) - kStart);
    }
    seal(sealed, key);
    handshake = decode(sealed, key);
    if (!handshake.ok()) {
      return 0;
    }
  }
  FUZZ_ASSERT(handshake->address.length <= handshake->address.bytes.size());
  const auto again = decode(encode(*handshake, key), key);
  FUZZ_ASSERT(again.ok() && again->who() == handshake->who() && again->wire == handshake->wire);
  const auto first = tutti::wire::rails::RailsWire::first_of(handshake->address);
  FUZZ_ASSERT(!first.ok() || first->length <= handshake->address.length);
  const auto options = agree(*handshake, *again, key);
  if (!options.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable(options.status().message(), "net: "));
    return 0;
  }
  Handshake other = *again;
  other.capabilities.mtu_bytes ^= 1;
  FUZZ_ASSERT(differences(*handshake, *again).empty());
  FUZZ_ASSERT(tutti::fuzz::readable(differences(*handshake, other), "net: "));
  FUZZ_ASSERT(unit_bytes_of(*options) % options->wire.chunk_bytes == 0);
  return 0;
}
