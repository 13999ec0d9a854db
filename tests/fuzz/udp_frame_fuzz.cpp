// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Datagrams from anybody: what is decoded lies within the datagram and, put together, within a
// packet; a probe is what it says it is. The input is a list of datagrams, each after its length in
// two bytes.
#include <algorithm>

#include "fuzz.hpp"
#include "wire/udp/assembly.hpp"
#include "wire/udp/frame.hpp"
#include "wire/udp/prober.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::wire::udp;
  Assembly assembly(4);
  Prober prober({.bytes = 8972, .least_bytes = 1036, .ip_bytes = 28, .paths = 4, .is_near = false});
  tutti::transport::TimeNs now = 1;
  std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(data), size);
  while (rest.size() >= 2) {
    const std::size_t wanted =
        std::to_integer<std::size_t>(rest[0]) | std::to_integer<std::size_t>(rest[1]) << 8;
    rest = rest.subspan(2);
    const auto datagram = rest.first(std::min(wanted, rest.size()));
    rest = rest.subspan(datagram.size());
    std::size_t taken = 0;
    decode_together(
        datagram, [&](std::span<const std::byte> header, std::span<const std::byte> payload) {
          FUZZ_ASSERT(!header.empty() && header.size() <= tutti::transport::kHeaderBytesMax);
          taken += header.size() + payload.size();
        });
    FUZZ_ASSERT(taken <= datagram.size());
    ProbeHead probe;
    if (decode_probe(datagram, probe)) {
      FUZZ_ASSERT(probe.is_answer ? probe.address.empty()
                                  : probe.bytes == datagram.size() && !probe.address.empty() &&
                                        probe.address.size() <= kProbeAddressBytesMax);
      std::byte again[kProbeHeadBytes + kProbeAddressBytesMax];
      const std::size_t bytes = encode_probe(probe, again);
      FUZZ_ASSERT(bytes <= datagram.size() && std::equal(again, again + bytes, datagram.begin()));
      // What is answered has taken the ways that are asked after, and in a state of theirs.
      const Prober::Probe of = {probe.path, probe.bytes, probe.round};
      prober.poll(now, [](const Prober::Probe& sent) { FUZZ_ASSERT(sent.path < 4); });
      prober.on_answer(now, of);
      while (const auto finding = prober.take_finding()) {
        FUZZ_ASSERT(finding->bytes <= 8972 && finding->paths.size() <= 4);
      }
      FUZZ_ASSERT(prober.bytes() >= 1036 && prober.bytes() <= 8972);
    }
    Prefix prefix;
    if (!decode(datagram, prefix)) {
      continue;
    }
    const auto content = datagram.subspan(kPrefixBytes);
    const std::uint32_t offset = offset_of(prefix, static_cast<std::uint32_t>(content.size()));
    FUZZ_ASSERT(offset == UINT32_MAX || offset + content.size() <= prefix.content_bytes);
    bool ecn = false;
    now += wanted * 1'000;
    const auto packet = assembly.add(now, wanted & 1, prefix, content, ecn);
    FUZZ_ASSERT(packet.empty() || packet.size() == prefix.content_bytes);
    if (wanted % 3 == 0 && assembly.is_waiting()) {
      assembly.on_all_added(now, [](std::span<const std::byte> header) {
        FUZZ_ASSERT(!header.empty() && header.size() <= tutti::transport::kHeaderBytesMax);
      });
      FUZZ_ASSERT(assembly.due_ns() > now);
    }
    FUZZ_ASSERT(assembly.is_waiting() || assembly.due_ns() == tutti::transport::kNever);
  }
  return 0;
}
