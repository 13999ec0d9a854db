// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Bytes from the network. What decodes is encoded to the same bytes again; and an endpoint without
// authentication, to which all of it is thrown, keeps its invariants and never writes outside of a
// posted buffer. The first byte says how many bytes the first packet has, and so on.
#include <array>
#include <vector>

#include "fuzz.hpp"
#include "transport/endpoint.hpp"
#include "transport/packet.hpp"

namespace {

using namespace tutti::transport;

void decode_and_encode(std::span<const std::byte> bytes) {
  Packet packet;
  if (!decode(bytes, packet)) {
    return;
  }
  HeaderBytes again{};
  std::size_t size = 0;
  switch (packet.common.type) {
    case PacketType::kData:
      size = encode_data(packet.common, packet.data, again);
      break;
    case PacketType::kAck:
      size = encode_ack(packet.common, packet.ack, again);
      break;
    case PacketType::kAdvert:
      size = encode_advert(packet.common, packet.advert, again);
      break;
    case PacketType::kCredit:
    case PacketType::kRequest:
    case PacketType::kAdvertAck:
      size = encode_number(packet.common, packet.number.value, again);
      break;
    case PacketType::kPong:
      size = encode_pong(packet.common, packet.pong, again);
      break;
    default:
      size = encode_plain(packet.common, again);
  }
  write_tag({again.data(), size}, read_tag(bytes));
  FUZZ_ASSERT(size == bytes.size());
  FUZZ_ASSERT(std::equal(bytes.begin(), bytes.end(), again.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> all(reinterpret_cast<const std::byte*>(data), size);
  decode_and_encode(all.first(std::min(size, kHeaderBytesMax)));

  ConnectionOptions options;
  options.local_id = 1;
  options.remote_id = 2;
  options.authenticates = false;
  options.controller = "nscc+rccc";
  options.wire.paths = 8;
  options.wire.rails = 2;
  Endpoint end({1});
  TimeNs now = 1000;
  const auto connection = end.connect(now, options);
  FUZZ_ASSERT(connection.ok());
  std::array<std::byte, 300> guarded;
  guarded.fill(std::byte{0x5a});
  const std::vector<std::byte> outgoing(20'000);
  ReceiveRequest receive;
  receive.parts[0] = {1, guarded.data() + 100, 100};
  FUZZ_ASSERT(end.post_receive(now, *connection, receive).ok());
  FUZZ_ASSERT(end.post_send(now, *connection, {1, outgoing.data(), outgoing.size(), 2}).ok());

  int ended = 0;
  for (std::size_t at = 0; at < size; now += 10'000) {
    std::size_t bytes = std::to_integer<std::size_t>(all[at++]) % 112;
    bytes = std::min(bytes, size - at);
    Arrival arrival;
    arrival.header = all.subspan(at, std::min(bytes, kHeaderBytesMax));
    Packet packet;
    std::vector<std::byte> payload;
    if (decode(arrival.header, packet) && packet.common.type == PacketType::kData) {
      payload.assign(std::min<std::size_t>(packet.data.payload_bytes, 200), std::byte{0x77});
      arrival.payload = payload;
      arrival.payload_bytes = packet.data.payload_bytes;
    }
    arrival.trimmed = bytes % 7 == 3;
    arrival.ecn = bytes % 2 == 1;
    arrival.received_ns = bytes % 3 == 0 ? kNever : now + 5'000 - bytes * 1'000;
    end.handle_datagram(now, arrival);
    end.handle_timeout(now);
    at += bytes;
    Transmission out;
    for (int i = 0; i < 8 && end.poll_transmit(now, &out); ++i) {
      decode_and_encode({out.header.data(), out.header_bytes});
    }
    Event event;
    while (end.poll_event(&event)) {
      ended += event.kind == EventKind::kConnectionDone ? 1 : 0;
    }
    end.check_invariants();
  }
  FUZZ_ASSERT(ended <= 1);
  for (std::size_t i = 0; i < 100; ++i) {
    FUZZ_ASSERT(guarded[i] == std::byte{0x5a});
    FUZZ_ASSERT(guarded[200 + i] == std::byte{0x5a});
  }
  return 0;
}
