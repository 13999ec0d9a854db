// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The frame of a datagram: written, read, malformed ones refused.
#include "wire/udp/frame.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.hpp"
#include "wire/udp/assembly.hpp"

namespace tutti::wire::udp {
namespace {

struct Fragment {
  Prefix prefix;
  std::vector<std::byte> content;
};

std::vector<std::byte> content(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>(draw(seed, 0, i));
  }
  return out;
}

std::vector<Fragment> cut(const std::vector<std::byte>& whole, std::size_t each,
                          std::uint64_t packet) {
  Prefix prefix;
  prefix.count = static_cast<std::uint8_t>((whole.size() + each - 1) / each);
  prefix.header_bytes = 48;
  prefix.packet = packet;
  prefix.content_bytes = static_cast<std::uint16_t>(whole.size());
  std::vector<Fragment> out;
  for (std::size_t at = 0; at < whole.size(); at += each) {
    prefix.index = static_cast<std::uint8_t>(out.size());
    const std::size_t bytes = std::min(each, whole.size() - at);
    out.push_back({prefix,
                   {whole.begin() + static_cast<std::ptrdiff_t>(at),
                    whole.begin() + static_cast<std::ptrdiff_t>(at + bytes)}});
  }
  return out;
}

TEST(UdpFrame, PrefixIsReadAsItWasWritten) {
  Prefix prefix{.index = 3,
                .count = 44,
                .header_bytes = 48,
                .content_bytes = 64416,
                .packet = 0xfedcba987654};
  std::byte bytes[kPrefixBytes];
  encode(prefix, bytes);
  Prefix read;
  ASSERT_TRUE(decode(bytes, read));
  EXPECT_EQ(read, prefix);
  EXPECT_EQ(read.payload_bytes(), 64416U - 48U);
}

TEST(UdpFrame, WhatMakesNoSenseIsRefused) {
  Prefix good{.index = 0, .count = 2, .header_bytes = 48, .content_bytes = 2000, .packet = 1};
  const auto is_read = [](const Prefix& prefix, std::size_t bytes = kPrefixBytes) {
    std::byte out[kPrefixBytes];
    encode(prefix, out);
    Prefix read;
    return decode({out, bytes}, read);
  };
  EXPECT_TRUE(is_read(good));
  EXPECT_FALSE(is_read(good, kPrefixBytes - 1));
  for (auto [field, value] : {std::pair{&Prefix::index, 2},
                              {&Prefix::count, 0},
                              {&Prefix::count, 65},
                              {&Prefix::header_bytes, 0},
                              {&Prefix::header_bytes, 97}}) {
    Prefix bad = good;
    bad.*field = static_cast<std::uint8_t>(value);
    EXPECT_FALSE(is_read(bad));
  }
  Prefix short_one = good;
  short_one.content_bytes = 47;
  EXPECT_FALSE(is_read(short_one));
}

TEST(UdpFrame, EveryFragmentKnowsItsPlace) {
  for (const std::size_t each : {100UL, 1464UL, 8956UL}) {
    for (const std::size_t bytes : {60UL, 100UL, 101UL, 200UL, 1464UL, 1465UL, 6000UL}) {
      if ((bytes + each - 1) / each > kFragmentsMax) {
        continue;
      }
      std::uint32_t at = 0;
      for (const Fragment& fragment : cut(content(bytes, 1), each, 1)) {
        const auto size = static_cast<std::uint32_t>(fragment.content.size());
        EXPECT_EQ(offset_of(fragment.prefix, size), at);
        at += size;
      }
    }
  }
}

TEST(UdpFrame, SizesThatCannotBeHaveNoPlace) {
  const Prefix first{
      .index = 0, .count = 3, .header_bytes = 48, .content_bytes = 2500, .packet = 1};
  EXPECT_EQ(offset_of(first, 1000), 0U);
  EXPECT_EQ(offset_of(first, 1250), UINT32_MAX);  // Two of them are all.
  EXPECT_EQ(offset_of(first, 800), UINT32_MAX);   // The last would be longer.
  EXPECT_EQ(offset_of(first, 2501), UINT32_MAX);
  Prefix last = first;
  last.index = 2;
  EXPECT_EQ(offset_of(last, 500), 2000U);
  EXPECT_EQ(offset_of(last, 501), UINT32_MAX);
  EXPECT_EQ(offset_of(last, 0), UINT32_MAX);
}

TEST(UdpAssembly, AnyOrderGivesThePacket) {
  Assembly assembly(4);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::size_t bytes = 49 + draw(seed, 1, 0) % 60'000;
    const std::vector<std::byte> whole = content(bytes, seed);
    std::vector<Fragment> fragments = cut(whole, 1464, seed);
    for (std::size_t i = fragments.size(); i > 1; --i) {
      std::swap(fragments[i - 1], fragments[draw(seed, 2, i) % i]);
    }
    bool ecn_all = false;
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      bool ecn = i == seed % fragments.size();
      const auto got = assembly.add(1, 9, fragments[i].prefix, fragments[i].content, ecn);
      if (i + 1 < fragments.size()) {
        ASSERT_TRUE(got.empty());
        // Once more changes nothing.
        bool none = false;
        ASSERT_TRUE(assembly.add(1, 9, fragments[i].prefix, fragments[i].content, none).empty());
      } else {
        ASSERT_TRUE(std::equal(got.begin(), got.end(), whole.begin(), whole.end()));
        ecn_all = ecn;
      }
    }
    ASSERT_TRUE(ecn_all);
  }
  EXPECT_EQ(assembly.dropped(), 0U);
}

TEST(UdpAssembly, PacketsOfSeveralSourcesDoNotMix) {
  Assembly assembly(4);
  const std::vector<std::byte> a = content(5000, 1);
  const std::vector<std::byte> b = content(5000, 2);
  const std::vector<Fragment> of_a = cut(a, 1464, 7);
  const std::vector<Fragment> of_b = cut(b, 1464, 7);
  bool ecn = false;
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    const auto got_a = assembly.add(1, 1, of_a[i].prefix, of_a[i].content, ecn);
    ASSERT_TRUE(got_a.empty() || std::equal(got_a.begin(), got_a.end(), a.begin(), a.end()));
    const auto got_b = assembly.add(1, 2, of_b[i].prefix, of_b[i].content, ecn);
    ASSERT_TRUE(got_b.empty() || std::equal(got_b.begin(), got_b.end(), b.begin(), b.end()));
    ASSERT_EQ(got_b.empty(), i + 1 < of_b.size());
  }
}

// Packets of equal sizes whose numbers are alike in their low bits; fragments of several at a time
// come in any order, some twice and some never.
TEST(UdpAssembly, WhateverIsLostNoPacketHasPartsOfAnother) {
  constexpr std::uint64_t kPackets = 2'000;
  constexpr std::size_t kBytes = 2'500;
  Assembly assembly(32);
  Random random(1);
  std::vector<Fragment> under_way;
  std::uint64_t whole = 0;
  for (std::uint64_t i = 0; i < kPackets; ++i) {
    for (const Fragment& fragment : cut(content(kBytes, i), 600, i << 16 | 7)) {
      const std::uint32_t fate = random.below(100);
      for (std::uint32_t copies = fate < 20 ? 0 : fate < 25 ? 2 : 1; copies > 0; --copies) {
        under_way.push_back(fragment);
      }
    }
    while (under_way.size() > 20) {
      std::swap(under_way[random.below(static_cast<std::uint32_t>(under_way.size()))],
                under_way.back());
      const Fragment fragment = std::move(under_way.back());
      under_way.pop_back();
      bool ecn = false;
      const auto got = assembly.add(1, 1, fragment.prefix, fragment.content, ecn);
      if (!got.empty()) {
        const std::vector<std::byte> sent = content(kBytes, fragment.prefix.packet >> 16);
        ASSERT_TRUE(std::equal(got.begin(), got.end(), sent.begin(), sent.end())) << i;
        ++whole;
      }
    }
  }
  // Of five fragments of a packet none is lost in a third of all.
  EXPECT_GT(whole, kPackets / 5);
  EXPECT_GT(assembly.dropped(), kPackets);
}

/// An assembly, and a time that goes on by 1 us with each fragment.
struct Timed {
  Assembly assembly{1024};
  std::uint64_t packet = 0;
  transport::TimeNs now = 1'000'000;

  std::vector<Fragment> next() {
    ++packet;
    return cut(content(8000, packet), 1000, packet);
  }
  /// The bytes of the packet that has become whole.
  std::size_t add(const std::vector<Fragment>& fragments, const std::vector<std::size_t>& order) {
    std::size_t bytes = 0;
    for (const std::size_t i : order) {
      bool ecn = false;
      now += 1'000;
      bytes += assembly.add(now, 1, fragments[i].prefix, fragments[i].content, ecn).size();
    }
    return bytes;
  }
  /// How many packets are reported as partial when all that arrives in that time has been added.
  std::size_t wait(transport::TimeNs time_ns) {
    std::size_t told = 0;
    for (const transport::TimeNs until = now + time_ns; now < until; now += 1'000) {
      assembly.on_all_added(now, [&](std::span<const std::byte> header) {
        EXPECT_EQ(header.size(), 48U);
        ++told;
      });
    }
    return told;
  }
};

TEST(UdpAssembly, AGapThatLastsIsToldOnce) {
  constexpr transport::TimeNs kWaitNs = 3 * Assembly::kReorderingNsMin;
  struct Case {
    std::vector<std::size_t> order;
    std::size_t told;
  };
  const std::vector<Case> cases = {
      {{0, 1, 2, 3, 4, 5, 6, 7}, 0},
      {{0, 2, 3, 5}, 1},
      {{0, 1, 2, 3, 4, 5, 7}, 1},
      {{0, 1, 2, 3}, 0},           // The rest may be on its way.
      {{1, 2, 3, 4, 5, 6, 7}, 0},  // Without a header.
      {{0, 1, 1, 2, 0, 2}, 0},     // The network doubles some.
      {{0, 2, 1, 3}, 0},           // In time.
  };
  Timed it;
  for (const Case& one : cases) {
    it.add(it.next(), one.order);
    EXPECT_TRUE(one.told == 0 || it.assembly.due_ns() != transport::kNever);
    EXPECT_EQ(it.wait(kWaitNs), one.told) << one.order.size();
    EXPECT_EQ(it.wait(kWaitNs), 0U);
    EXPECT_EQ(it.assembly.due_ns(), transport::kNever);
  }
}

TEST(UdpAssembly, TheHeaderIsThatOfThePartialChunk) {
  Timed it;
  std::vector<std::vector<Fragment>> partial;
  for (int i = 0; i < 5; ++i) {
    it.add(partial.emplace_back(it.next()), {0, 3});
    it.add(it.next(), {0, 1, 2, 3, 4, 5, 6, 7});
  }
  std::size_t told = 0;
  it.assembly.on_all_added(
      it.now + Assembly::kReorderingNsMin, [&](std::span<const std::byte> header) {
        EXPECT_EQ(std::count_if(partial.begin(), partial.end(),
                                [&](const std::vector<Fragment>& packet) {
                                  return std::equal(header.begin(), header.end(),
                                                    packet[0].content.begin());
                                }),
                  1);
        ++told;
      });
  EXPECT_EQ(told, 5U);
}

// What comes late by less than the wait makes it longer, what comes later is told once in vain.
TEST(UdpAssembly, APathThatReordersIsBelievedLess) {
  Timed it;
  const std::vector<Fragment> late = it.next();
  it.add(late, {0, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(it.wait(1'000'000), 1U);
  EXPECT_EQ(it.add(late, {1}), 8000U);
  const std::vector<Fragment> later = it.next();
  it.add(later, {0, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(it.wait(1'900'000), 0U);
  EXPECT_EQ(it.add(later, {1}), 8000U);
  it.add(it.next(), {0, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(it.wait(3'700'000), 0U);
  EXPECT_EQ(it.wait(200'000), 1U);
  // Order comes back, and with it the short wait.
  for (int i = 0; i < 30'000; ++i) {
    it.add(it.next(), {0, 1, 2, 3, 4, 5, 6, 7});
  }
  it.add(it.next(), {0, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(it.wait(2 * Assembly::kReorderingNsMin), 1U);
}

// Any fragments of 64, in order: told if and only if the first is here and one before the last is
// not.
TEST(UdpAssembly, GapsOfTheLongestPacket) {
  Random random(1);
  Timed it;
  for (int i = 0; i < 2'000; ++i) {
    std::uint64_t here = random.next() | random.next() | (i % 4 == 0 ? ~7ULL : random.next());
    here |= i % 3 == 0 ? 1ULL << 63 : 0;
    ++it.packet;
    const std::vector<Fragment> fragments = cut(content(6'400, it.packet), 100, it.packet);
    ASSERT_EQ(fragments.size(), 64U);
    std::vector<std::size_t> order;
    for (std::size_t bit = 0; bit < 64; ++bit) {
      if ((here >> bit & 1) != 0) {
        order.push_back(bit);
      }
    }
    const bool is_whole = here == ~0ULL;
    const bool has_gap = (here & 1) != 0 && (here & (here + 1)) != 0;
    EXPECT_EQ(it.add(fragments, order), is_whole ? 6'400U : 0U);
    std::size_t told = 0;
    it.now += 2 * Assembly::kReorderingNsMin;
    it.assembly.on_all_added(it.now, [&](std::span<const std::byte>) { ++told; });
    EXPECT_EQ(told, has_gap ? 1U : 0U) << std::hex << here;
  }
}

TEST(UdpAssembly, NothingIsDueWhereNothingIsMissing) {
  Timed it;
  EXPECT_EQ(it.add(it.next(), {0, 2, 1, 3, 4, 5, 6, 7}), 8000U);
  EXPECT_FALSE(it.assembly.is_waiting());
  EXPECT_EQ(it.assembly.due_ns(), transport::kNever);
}

// A thread that waits for its processor finds all of it in the socket.
TEST(UdpAssembly, WhatLiesUnreadIsNotMissing) {
  Timed it;
  const std::vector<Fragment> fragments = it.next();
  it.add(fragments, {0, 2});
  it.wait(10'000);
  it.now += 50'000'000;
  EXPECT_EQ(it.add(fragments, {1, 3, 4, 5, 6, 7}), 8000U);
  it.add(it.next(), {0, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(it.wait(2 * Assembly::kReorderingNsMin), 1U);
}

TEST(UdpAssembly, TheOldestGoesWhenThereIsNoPlace) {
  Assembly assembly(2);
  bool ecn = false;
  for (std::uint64_t packet = 0; packet < 10; ++packet) {
    const std::vector<Fragment> fragments = cut(content(5000, packet), 1464, packet);
    ASSERT_TRUE(assembly.add(1, 1, fragments[0].prefix, fragments[0].content, ecn).empty());
  }
  EXPECT_EQ(assembly.dropped(), 8U);
  for (std::uint64_t packet = 8; packet < 10; ++packet) {
    const std::vector<Fragment> fragments = cut(content(5000, packet), 1464, packet);
    for (std::size_t i = 1; i < fragments.size(); ++i) {
      const auto got = assembly.add(1, 1, fragments[i].prefix, fragments[i].content, ecn);
      EXPECT_EQ(got.empty(), i + 1 < fragments.size());
    }
  }
}

// The places of packets whose rest never comes are found again, whoever sent them.
TEST(UdpAssembly, ManySourcesShareThePlaces) {
  Assembly assembly(16);
  Random random(1);
  for (std::uint64_t packet = 0; packet < 5'000; ++packet) {
    const std::uint64_t source = random.below(40);
    const std::vector<std::byte> whole = content(3'000, packet);
    const bool is_lost = random.below(2) == 0;
    bool ecn = false;
    for (const Fragment& fragment : cut(whole, 1'000, packet)) {
      if (is_lost && fragment.prefix.index == 1) {
        continue;
      }
      const auto got = assembly.add(1, source, fragment.prefix, fragment.content, ecn);
      ASSERT_EQ(got.empty(), is_lost || fragment.prefix.index < 2);
      ASSERT_TRUE(got.empty() || std::equal(got.begin(), got.end(), whole.begin(), whole.end()));
    }
  }
}

}  // namespace
}  // namespace tutti::wire::udp
