// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Ethernet frames from anybody: the datagram that is read lies within the frame, and is written as
// it was. The input is a frame. Answers of the kernel's tables: nothing is read behind them.
#include <cstring>
#include <vector>

#include "fuzz.hpp"
#include "wire/xdp/netlink.hpp"
#include "wire/xdp/packet.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::wire::xdp;
  const std::span<const std::byte> input(reinterpret_cast<const std::byte*>(data), size);
  (void)read_next_hop(input, 1, 0);
  (void)read_neighbour(input);
  (void)read_attached_program(input);
  Datagram datagram;
  // Changed input has a wrong checksum nearly always: once with it and once with none.
  std::vector<std::byte> frame(input.begin(), input.end());
  for (int i = 0; i < 2; ++i) {
    if (read_frame(frame, datagram)) {
      FUZZ_ASSERT(datagram.payload.data() == frame.data() + kHeadBytes &&
                  datagram.payload.size() <= frame.size() - kHeadBytes);
      std::vector<std::byte> again(kHeadBytes + datagram.payload.size());
      std::memcpy(again.data() + kHeadBytes, frame.data() + kHeadBytes, datagram.payload.size());
      PacketHead head;
      head.source = datagram.source;
      head.target = datagram.target;
      head.tos = datagram.tos;
      write_head(head, datagram.payload.size(), again.data());
      Datagram same;
      FUZZ_ASSERT(read_frame(again, same) && same.source == datagram.source &&
                  same.target == datagram.target && same.tos == datagram.tos &&
                  same.payload.size() == datagram.payload.size());
    }
    if (frame.size() >= kHeadBytes) {
      frame[kHeadBytes - 2] = frame[kHeadBytes - 1] = std::byte{0};
    }
  }
  return 0;
}
