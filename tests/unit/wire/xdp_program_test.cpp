// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The program's instructions, run by an interpreter of those that it has: which frames it takes.
// That the kernel loads it, and does the same: xdp_wire_test.cpp.
#include "wire/xdp/xdp_program.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "wire/xdp/packet.hpp"

namespace tutti::wire::xdp {
namespace {

constexpr int kSockets = 11;
constexpr int kEnds = 12;
constexpr std::uint64_t kRedirect = 4;  ///< XDP_REDIRECT

/// What the program says to a frame at a queue, where these queues have sockets. It may read the
/// frame and nothing behind it.
class Interpreter {
 public:
  explicit Interpreter(std::map<std::uint32_t, UdpEnd> ends) : ends_(std::move(ends)) {}

  std::uint64_t run(std::span<const std::byte> frame, std::uint32_t queue) {
    const std::vector<bpf_insn> program = program_of(kSockets, kEnds);
    std::array<std::uint64_t, 11> r{};
    std::array<std::byte, 512> stack{};
    // Addresses: the context at 1000, the frame at 100'000, a map's value at 200'000, the end of
    // the stack at 300'000.
    r[1] = 1000;
    r[10] = 300'000;
    std::array<std::byte, 8> value{};
    const auto read = [&](std::uint64_t at, std::size_t size) -> std::uint64_t {
      std::uint64_t got = 0;
      if (at >= 1000 && at < 1024) {
        const std::uint64_t fields[] = {100'000, 100'000 + frame.size(), 0, 0, queue, 0};
        return fields[(at - 1000) / 4];
      }
      const std::byte* from = nullptr;
      if (at >= 100'000 && at + size <= 100'000 + frame.size()) {
        from = frame.data() + (at - 100'000);
      } else if (at >= 200'000 && at + size <= 200'000 + value.size()) {
        from = value.data() + (at - 200'000);
      } else if (at >= 300'000 - stack.size() && at + size <= 300'000) {
        from = stack.data() + (at - (300'000 - stack.size()));
      }
      EXPECT_NE(nullptr, from) << at;
      if (from != nullptr) {
        std::memcpy(&got, from, size);
      }
      return got;
    };
    for (std::size_t pc = 0; pc < program.size(); ++pc) {
      const bpf_insn& it = program[pc];
      std::uint64_t& to = r[it.dst_reg];
      const std::uint64_t operand =
          BPF_SRC(it.code) == BPF_X ? r[it.src_reg] : static_cast<std::uint64_t>(it.imm);
      bool jumps = false;
      switch (BPF_CLASS(it.code)) {
        case BPF_ALU64:
          to = BPF_OP(it.code) == BPF_MOV   ? operand
               : BPF_OP(it.code) == BPF_ADD ? to + operand
                                            : to & operand;
          break;
        case BPF_LDX:
          to = read(r[it.src_reg] + static_cast<std::uint64_t>(it.off),
                    BPF_SIZE(it.code) == BPF_W   ? 4
                    : BPF_SIZE(it.code) == BPF_H ? 2
                                                 : 1);
          break;
        case BPF_STX:
          std::memcpy(stack.data() + stack.size() + it.off, &r[it.src_reg], 4);
          break;
        case BPF_LD:
          to = static_cast<std::uint64_t>(it.imm);
          EXPECT_EQ(BPF_PSEUDO_MAP_FD, it.src_reg);
          ++pc;
          break;
        case BPF_JMP:
          if (BPF_OP(it.code) == BPF_EXIT) {
            return r[0];
          }
          if (BPF_OP(it.code) == BPF_CALL) {
            r[0] = call(it.imm, r, read, value);
            break;
          }
          jumps = BPF_OP(it.code) == BPF_JGT   ? to > operand
                  : BPF_OP(it.code) == BPF_JEQ ? to == operand
                                               : to != operand;
          pc += jumps ? static_cast<std::size_t>(it.off) : 0;
          break;
        default:
          ADD_FAILURE() << "instruction " << int{it.code};
          return 0;
      }
    }
    ADD_FAILURE() << "no end";
    return 0;
  }

 private:
  template <class Read>
  std::uint64_t call(int function, const std::array<std::uint64_t, 11>& r, const Read& read,
                     std::array<std::byte, 8>& value) {
    if (function == BPF_FUNC_map_lookup_elem) {
      EXPECT_EQ(kEnds, static_cast<int>(r[1]));
      const auto key = static_cast<std::uint32_t>(read(r[2], 4));
      if (key >= kQueuesMax) {
        return 0;
      }
      const UdpEnd end = ends_.count(key) == 0 ? UdpEnd{} : ends_[key];
      std::memcpy(value.data(), &end.address, 4);
      std::memcpy(value.data() + 4, &end.port, 2);
      return 200'000;
    }
    EXPECT_EQ(BPF_FUNC_redirect_map, function);
    EXPECT_EQ(kSockets, static_cast<int>(r[1]));
    return ends_.count(static_cast<std::uint32_t>(r[2])) != 0 ? kRedirect : r[3];
  }

  std::map<std::uint32_t, UdpEnd> ends_;
};

const UdpEnd kEnd = {htonl(0x0a000002), htons(40000)};

std::vector<std::byte> frame_to(const UdpEnd& end, std::size_t payload_bytes) {
  PacketHead head;
  head.source = {htonl(0x0a000001), htons(33333)};
  head.target = end;
  std::vector<std::byte> frame(kHeadBytes + payload_bytes);
  write_head(head, payload_bytes, frame.data());
  return frame;
}

TEST(XdpProgram, TakesWhatIsForTheQueuesEnd) {
  Interpreter program({{0, kEnd}, {3, {kEnd.address, htons(40001)}}});
  for (const std::size_t bytes : {0, 1, 1472}) {
    EXPECT_EQ(kRedirect, program.run(frame_to(kEnd, bytes), 0));
  }
  EXPECT_EQ(kRedirect, program.run(frame_to({kEnd.address, htons(40001)}, 100), 3));
}

TEST(XdpProgram, PassesAllElse) {
  Interpreter program({{0, kEnd}});
  const auto passes = [&](const std::vector<std::byte>& frame, std::uint32_t queue = 0) {
    return program.run(frame, queue) == XDP_PASS;
  };
  const auto frame = frame_to(kEnd, 100);
  EXPECT_TRUE(passes(frame, 1)) << "another queue";
  EXPECT_TRUE(passes(frame, kQueuesMax)) << "a queue beyond the maps";
  EXPECT_TRUE(passes(frame_to({kEnd.address, htons(40001)}, 100))) << "another port";
  EXPECT_TRUE(passes(frame_to({htonl(0x0a000003), kEnd.port}, 100))) << "another address";
  const auto changed = [&](std::size_t at, int value) {
    auto it = frame;
    it[at] = static_cast<std::byte>(value);
    return it;
  };
  EXPECT_TRUE(passes(changed(12, 0x86))) << "IPv6 or ARP";
  EXPECT_TRUE(passes(changed(14, 0x46))) << "IP options";
  EXPECT_TRUE(passes(changed(23, 6))) << "TCP";
  EXPECT_TRUE(passes(changed(20, 0x20))) << "a first fragment";
  EXPECT_TRUE(passes(changed(21, 1))) << "a later fragment";
  EXPECT_FALSE(passes(changed(20, 0x40))) << "do not fragment";
  for (std::size_t bytes = 0; bytes < kHeadBytes; ++bytes) {
    EXPECT_TRUE(passes({frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes)}));
  }
}

// Whose socket has gone: the kernel's UDP socket gets it.
TEST(XdpProgram, PassesWhatHasNoSocket) {
  Interpreter program({});
  EXPECT_EQ(XDP_PASS, program.run(frame_to(UdpEnd{}, 100), 0));
}

}  // namespace
}  // namespace tutti::wire::xdp
