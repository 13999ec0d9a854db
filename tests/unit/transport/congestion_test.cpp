// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Congestion controllers: what each does of marks, delays and losses.
#include "transport/congestion/controller.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "transport/congestion/roots.hpp"

namespace tutti::transport {
namespace {

constexpr std::uint32_t kMtu = 4096;
constexpr TimeNs kBase = 12'000;
constexpr Bytes kBdp = 600'000;

ControllerOptions options_of(std::uint32_t chunk_bytes = kMtu) {
  ControllerOptions options;
  options.chunk_bytes = chunk_bytes;
  options.mtu_bytes = kMtu;
  options.base_rtt_ns = kBase;
  options.bdp_bytes = kBdp;
  options.window_bytes_max = kBdp * 3 / 2;
  return options;
}

Feedback feedback_of(TimeNs now, Bytes bytes, TimeNs rtt_ns, bool ecn = false) {
  Feedback feedback;
  feedback.now = now;
  feedback.bytes = bytes;
  feedback.round_trip_ns = rtt_ns;
  feedback.fabric_ns = rtt_ns;
  feedback.ecn = ecn;
  feedback.srtt_ns = rtt_ns != 0 ? rtt_ns : kBase;
  feedback.inflight_bytes = kBdp;
  return feedback;
}

/// Windows that share one link: what exceeds the bandwidth-delay product queues, marks above a
/// quarter of it, and is dropped above `buffer_bytes`. Time goes in round trips.
class Bottleneck {
 public:
  explicit Bottleneck(Bytes buffer_bytes = 10 * kBdp) : buffer_bytes_(buffer_bytes) {}
  void add(Controller& controller) { controllers_.push_back(&controller); }
  Bytes total() const {
    return std::accumulate(controllers_.begin(), controllers_.end(), Bytes{0},
                           [](Bytes sum, Controller* c) { return sum + c->window_bytes(); });
  }
  void round() {
    const Bytes sum = total();
    const Bytes queue = sum > kBdp ? sum - kBdp : 0;
    const TimeNs rtt_ns = kBase + queue * kBase / kBdp;
    const bool mark = queue > kBdp / 4;
    const bool drop = queue > buffer_bytes_;
    for (Controller* controller : controllers_) {
      const Bytes window = controller->window_bytes();
      for (Bytes sent = 0; sent < window; sent += kMtu) {
        now_ += rtt_ns * kMtu / std::max<Bytes>(sum, kMtu);
        Feedback feedback = feedback_of(now_, kMtu, rtt_ns, mark);
        feedback.inflight_bytes = window;
        controller->on_ack(feedback);
      }
      if (drop) {
        controller->on_loss(feedback_of(now_, kMtu, 0));
      }
    }
    now_ += sum < kBdp ? kBase - sum * kBase / kBdp : 0;
  }

 private:
  Bytes buffer_bytes_;
  std::vector<Controller*> controllers_;
  TimeNs now_ = 1'000'000;
};

std::unique_ptr<Controller> make(const std::string& name,
                                 const ControllerOptions& options = options_of()) {
  auto made = make_controller(name, options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(*made);
}

TEST(controller, make_controller__by_name) {
  for (const char* name : {"", "nscc", "swift", "cubic", "dctcp", "timely", "fixed", "rccc", "eqds",
                           "nscc+rccc", "swift+rccc"}) {
    EXPECT_GT(make(name)->window_bytes(), kBdp / 2) << name;
  }
  const auto unknown = make_controller("vegas", options_of());
  EXPECT_EQ(ErrorCode::kInvalidArgument, unknown.status().code());
  EXPECT_TRUE(uses_credit("rccc"));
  EXPECT_TRUE(uses_credit("eqds"));
  EXPECT_TRUE(uses_credit("nscc+rccc"));
  EXPECT_FALSE(uses_credit("nscc"));
  for (const char* name : {"", "nscc", "swift", "timely", "nscc+rccc", "swift+rccc"}) {
    EXPECT_TRUE(uses_delay(name)) << name;
  }
  for (const char* name : {"cubic", "dctcp", "fixed", "rccc", "eqds", "cubic+rccc"}) {
    EXPECT_FALSE(uses_delay(name)) << name;
  }
}

class Converges : public ::testing::TestWithParam<std::tuple<std::string, int, std::uint32_t>> {};

// Many flows on one link: it stays busy and the queue short.
TEST_P(Converges, bottleneck__busy_and_short_queue) {
  const auto& [name, flows, chunk] = GetParam();
  std::vector<std::unique_ptr<Controller>> controllers;
  Bottleneck link(kBdp * 2);
  for (int i = 0; i < flows; ++i) {
    controllers.push_back(make(name, options_of(chunk)));
    link.add(*controllers.back());
  }
  for (int i = 0; i < 300; ++i) {
    link.round();
  }
  Bytes least = UINT64_MAX;
  Bytes most = 0;
  for (int i = 0; i < 300; ++i) {
    link.round();
    least = std::min(least, link.total());
    most = std::max(most, link.total());
  }
  EXPECT_GT(least, kBdp * 85 / 100);
  EXPECT_LT(most, kBdp * (name == "cubic" ? 340 : 260) / 100);
  for (const auto& controller : controllers) {
    EXPECT_GE(controller->window_bytes(), std::min<Bytes>(chunk, kMtu));
    EXPECT_LE(controller->window_bytes(), kBdp * 3 / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(congestion, Converges,
                         ::testing::Combine(::testing::Values("nscc", "swift", "dctcp", "cubic"),
                                            ::testing::Values(2, 8, 16),
                                            ::testing::Values(kMtu, 32'768U)),
                         [](const auto& tested) {
                           return std::get<0>(tested.param) + "_" +
                                  std::to_string(std::get<1>(tested.param)) + "_" +
                                  std::to_string(std::get<2>(tested.param));
                         });

TEST(nscc, on_ack__the_four_cases) {
  const auto empty = make("nscc");
  empty->on_nack(feedback_of(1'000'000, 400'000, 0));
  const Bytes start = empty->window_bytes();
  EXPECT_EQ(kBdp * 3 / 2 - 400'000, start);
  TimeNs now = 1'000'000;
  for (int i = 0; i < 50; ++i, now += 100) {  // Unmarked, early: grows in proportion.
    empty->on_ack(feedback_of(now, kMtu, kBase + 2'000));
  }
  const Bytes early = empty->window_bytes() - start;
  EXPECT_GT(early, 5U * kMtu);

  const auto late = make("nscc");
  late->on_nack(feedback_of(1'000'000, 400'000, 0));
  now = 1'000'000;
  for (int i = 0; i < 50; ++i, now += 100) {  // Unmarked, late: a small equal share.
    late->on_ack(feedback_of(now, kMtu, kBase * 3));
  }
  EXPECT_GT(late->window_bytes(), start);
  EXPECT_LT(late->window_bytes() - start, 10 * Bytes{kMtu});

  const auto marked_early = make("nscc");
  marked_early->on_nack(feedback_of(1'000'000, 400'000, 0));
  now = 1'000'000;
  for (int i = 0; i < 50; ++i, now += 100) {  // Marked, early: only the path is changed.
    marked_early->on_ack(feedback_of(now, kMtu, kBase + 2'000, true));
  }
  EXPECT_LT(marked_early->window_bytes() - start, 8 * Bytes{kMtu});

  const auto marked_late = make("nscc");
  now = 1'000'000;
  std::vector<Bytes> windows = {marked_late->window_bytes()};
  for (int i = 0; i < 600; ++i, now += 100) {  // Marked and late: at most once per round trip.
    marked_late->on_ack(feedback_of(now, kMtu, kBase * 3, true));
    if (marked_late->window_bytes() + 2 * kMtu < windows.back()) {
      windows.push_back(marked_late->window_bytes());
    }
  }
  EXPECT_LE(windows.size(), 1U + 600 * 100 / kBase + 1);
  EXPECT_GE(windows.size(), 3U);
  for (std::size_t i = 1; i < windows.size(); ++i) {
    EXPECT_GE(windows[i] + 10 * kMtu, windows[i - 1] / 2);
  }
}

TEST(nscc, quick_adapt__the_window_becomes_what_was_delivered) {
  const auto controller = make("nscc");
  controller->on_ack(feedback_of(1'000'000, kMtu, kBase));  // Starts a period.
  for (TimeNs now = 1'001'000; now < 1'024'000; now += 2'300) {
    controller->on_ack(feedback_of(now, kMtu, kBase * 6, true));
  }
  controller->on_ack(feedback_of(1'030'000, kMtu, kBase * 6, true));
  EXPECT_LE(controller->window_bytes(), 14U * kMtu);
  EXPECT_GE(controller->window_bytes(), 5U * kMtu);
}

TEST(nscc, quick_adapt__what_is_lost_is_heard_of_too) {
  for (const bool by_timeout : {false, true}) {
    const auto controller = make("nscc");
    controller->on_ack(feedback_of(1'000'000, kMtu, kBase));  // Starts a period.
    controller->on_ack(feedback_of(1'010'000, 80'000, kBase));
    Feedback loss = feedback_of(1'030'000, kMtu, 0);
    loss.inflight_bytes = 25 * kMtu;
    controller->on_loss(loss);
    const Bytes adapted = controller->window_bytes();
    EXPECT_EQ(80'000U, adapted);
    // All that was in the air then is lost. What comes later is of the new window.
    if (by_timeout) {
      controller->on_timeout(feedback_of(1'031'000, 25 * kMtu, 0));
    } else {
      for (int i = 0; i < 25; ++i) {
        controller->on_loss(feedback_of(1'031'000, kMtu, 0));
      }
    }
    controller->on_spurious(1'031'000);
    const Bytes before = controller->window_bytes();
    controller->on_ack(feedback_of(1'044'000, kMtu, 100 * kBase, true));
    EXPECT_LT(controller->window_bytes(), before * 9 / 10) << by_timeout;
  }
}

TEST(nscc, on_ack__a_lower_round_trip_moves_the_base) {
  const auto controller = make("nscc");
  controller->on_ack(feedback_of(1'000'000, kMtu, kBase / 2));
  EXPECT_EQ(kBdp * 3 / 4, controller->window_bytes());  // Scaled by as much.
  Feedback tail = feedback_of(1'000'000, 10, kBase / 4);
  tail.is_full_chunk = false;
  controller->on_ack(tail);
  EXPECT_EQ(kBdp * 3 / 4, controller->window_bytes());
}

// 400 Gb/s over 600 ms: products of a window and a time have more than 64 bits.
TEST(nscc, scale__holds_for_the_longest_and_fastest_networks) {
  ControllerOptions options;
  options.chunk_bytes = 65'536;
  options.mtu_bytes = 9000;
  options.base_rtt_ns = 600'000'000;
  options.bdp_bytes = options.base_rtt_ns * 1000 / 20;
  options.window_bytes_max = options.bdp_bytes * 3 / 2;
  const auto base = static_cast<double>(options.base_rtt_ns);
  const auto bdp = static_cast<double>(options.bdp_bytes);
  const auto controller = make("nscc", options);
  EXPECT_EQ(options.window_bytes_max, controller->window_bytes());

  controller->on_nack(feedback_of(1'000'000'000, options.bdp_bytes, 0));
  const auto lowered = static_cast<double>(controller->window_bytes());
  EXPECT_EQ(bdp / 2, lowered);
  controller->on_ack(feedback_of(1'000'000'001, 1'000'000, options.base_rtt_ns * 3 / 2));
  const double bump = 3.0 * 9000 * bdp / (20 * 150'000.0);
  const double grown = 4.0 * 9000 * bdp / (150'000.0 * 12'000) * (base / 2) * 1e6 / lowered + bump;
  EXPECT_NEAR(grown, static_cast<double>(controller->window_bytes()) - lowered, grown / 1000);

  const auto late = make("nscc", options);
  for (int i = 0; i < 200; ++i) {
    late->on_ack(feedback_of(1'000'000'000, options.chunk_bytes, 3 * options.base_rtt_ns, true));
  }
  EXPECT_LT(late->window_bytes(), options.window_bytes_max);
  EXPECT_GE(late->window_bytes(), options.window_bytes_max / 2);
}

TEST(nscc, on_spurious__takes_the_decrease_back) {
  const auto controller = make("nscc");
  controller->on_loss(feedback_of(1'000'000, 100'000, 0));
  EXPECT_EQ(kBdp * 3 / 2 - 100'000, controller->window_bytes());
  controller->on_spurious(1'010'000);
  EXPECT_EQ(kBdp * 3 / 2, controller->window_bytes());
}

/// Whether Swift's window grows when all samples are `delay_ns`. They say nothing of the idle round
/// trip, and all come before the next decrease.
bool grows_at(Controller& swift, TimeNs delay_ns) {
  Feedback sample = feedback_of(1'000'000'000, 0, delay_ns);
  sample.is_full_chunk = false;
  sample.srtt_ns = sample.now;
  for (int i = 0; i < 32; ++i) {
    swift.on_ack(sample);
  }
  const Bytes before = swift.window_bytes();
  sample.bytes = 100 * Bytes{kMtu};
  swift.on_ack(sample);
  return swift.window_bytes() > before;
}

/// The delay that Swift aims at: the least at which its window does not grow. Each probe takes a
/// new controller from `prepare`.
template <class Prepare>
TimeNs target_ns(Prepare prepare) {
  TimeNs low = 1;
  TimeNs high = 100 * kBase;
  while (low < high) {
    const TimeNs delay = (low + high) / 2;
    const std::unique_ptr<Controller> controller = prepare();
    if (grows_at(*controller, delay)) {
      low = delay + 1;
    } else {
      high = delay;
    }
  }
  return low;
}

TEST(swift, target__grows_as_the_window_shrinks) {
  // More than 100 packets.
  EXPECT_EQ(kBase * 3 / 2, target_ns([] { return make("swift"); }));
  const auto after = [](int losses) {
    auto controller = make("swift");
    for (int i = 0; i < losses; ++i) {
      controller->on_loss(feedback_of((1 + i) * 1'000'000, kMtu, 0));
    }
    return controller;
  };
  TimeNs last = kBase * 3 / 2;
  for (int losses = 1; losses <= 30; ++losses) {
    const TimeNs target = target_ns([&] { return after(losses); });
    EXPECT_GE(target, last);
    last = target;
  }
  EXPECT_EQ(kBase * 3 / 2 + 5 * (kBase / 2), last);  // A tenth of a packet or less.
  EXPECT_EQ(40U, after(30)->window_bytes());         // A hundredth of an MTU.
  EXPECT_GT(after(30)->gap_ns(kMtu), 100 * kBase / 2);
}

TEST(swift, on_ack__one_packet_per_round_trip_up_and_one_decrease_per_round_trip_down) {
  const auto controller = make("swift");
  controller->on_loss(feedback_of(1'000'000, kMtu, 0));
  const Bytes start = controller->window_bytes();
  EXPECT_EQ(kBdp / 2, start);
  for (Bytes acked = 0; acked < start; acked += kMtu) {
    controller->on_ack(feedback_of(1'001'000, kMtu, kBase));
  }
  EXPECT_NEAR(static_cast<double>(start + kMtu), static_cast<double>(controller->window_bytes()),
              kMtu / 16.0);
  const Bytes before = controller->window_bytes();
  for (int i = 0; i < 200; ++i) {
    controller->on_ack(feedback_of(2'000'000, kMtu, kBase * 4));
  }
  EXPECT_LT(controller->window_bytes(), before);
  EXPECT_GE(controller->window_bytes(), before / 2);
}

TEST(swift, on_ack__a_few_bad_paths_do_not_move_the_median) {
  const auto controller = make("swift");
  controller->on_loss(feedback_of(1'000'000, kMtu, 0));
  const Bytes start = controller->window_bytes();
  TimeNs now = 2'000'000;
  for (int i = 0; i < 1000; ++i, now += 100) {
    controller->on_ack(feedback_of(now, kMtu, i % 4 == 3 ? kBase * 10 : kBase));
  }
  EXPECT_GT(controller->window_bytes(), start);
}

TEST(swift, base_rtt_is_guess__what_no_chunk_undercuts_is_the_idle_round_trip) {
  ControllerOptions options = options_of();
  options.base_rtt_is_guess = true;
  constexpr TimeNs kStart = 2'000'000;
  constexpr TimeNs kEnd = kStart + 100'000;
  const auto late = [&] {
    auto controller = make("swift", options);
    controller->on_loss(feedback_of(1'000'000, kMtu, 0));
    for (TimeNs now = kStart; now < kEnd; now += 100) {
      controller->on_ack(feedback_of(now, kMtu, 10 * kBase));
    }
    return controller;
  };
  EXPECT_GT(late()->window_bytes(), kBdp / 2);  // What the loss left.
  EXPECT_NEAR(15.0 * kBase, static_cast<double>(target_ns(late)), kBase / 2.0);
  const auto corrected = [&] {
    auto controller = late();
    controller->on_ack(feedback_of(kEnd, kMtu, kBase / 2));
    return controller;
  };
  EXPECT_NEAR(kBase * 1.5, static_cast<double>(target_ns(corrected)), kBase / 2.0);
}

TEST(swift, window_bytes_min__is_the_floor_of_a_late_host) {
  ControllerOptions options = options_of();
  options.window_bytes_min = 2 * kMtu;
  const auto controller = make("swift", options);
  TimeNs now = 1'000'000;
  for (int i = 0; i < 100; ++i, now += 1'000'000) {
    controller->on_loss(feedback_of(now, kMtu, 0));
    controller->on_ack(feedback_of(now, kMtu, 1000 * kBase));
  }
  EXPECT_EQ(2U * kMtu, controller->window_bytes());
  EXPECT_LT(controller->gap_ns(kMtu), 1000 * kBase);
}

TEST(cubic, on_loss__keeps_seven_tenths_and_climbs_as_rfc_9438) {
  ControllerOptions options = options_of();
  options.bdp_bytes = 128 * kMtu;
  options.window_bytes_max = 1000 * kMtu;
  const auto controller = make("cubic", options);
  EXPECT_EQ(1U, options.cubic_time_scale);
  Feedback loss = feedback_of(1'000'000, kMtu, 0);
  loss.inflight_bytes = 127 * kMtu;
  controller->on_loss(loss);
  EXPECT_NEAR(128 * 0.7, static_cast<double>(controller->window_bytes()) / kMtu, 0.01);
  // K = cbrt(128 * 0.3 / 0.4) = 4.58 s; Reno-friendly growth of 9/17 per round trip goes first.
  TimeNs now = 1'100'000;
  const Bytes start = controller->window_bytes();
  for (int rounds = 0; rounds < 20; ++rounds) {
    for (int i = 0; i < 90; ++i, now += 133) {
      controller->on_ack(feedback_of(now, kMtu, kBase));
    }
  }
  EXPECT_NEAR(20 * 9.0 / 17, static_cast<double>(controller->window_bytes() - start) / kMtu, 1.0);
}

TEST(cubic, time_scale__makes_k_fifty_round_trips) {
  ControllerOptions options = options_of();
  options.cubic_time_scale = 0;
  const auto controller = make("cubic", options);
  // K of the RFC: cbrt(0.3 * 146.5 / 0.4) = 4.79 s, which is 399 000 round trips of 12 us.
  options.cubic_time_scale = 4'790'000 / 600;
  const auto scaled = make("cubic", options);
  const Feedback loss = feedback_of(1'000'000, kMtu, 0);
  controller->on_loss(loss);
  scaled->on_loss(loss);
  const Bytes low = controller->window_bytes();
  TimeNs now = 1'000'000;
  for (; now < 1'000'000 + 50 * kBase; now += 120) {
    controller->on_ack(feedback_of(now, kMtu, kBase));
    scaled->on_ack(feedback_of(now, kMtu, kBase));
    EXPECT_NEAR(static_cast<double>(scaled->window_bytes()),
                static_cast<double>(controller->window_bytes()), kBdp / 2000.0);
  }
  EXPECT_LT(low, kBdp * 72 / 100);
  EXPECT_GT(controller->window_bytes(), kBdp * 95 / 100);  // Back at W_max after K.
  EXPECT_LT(controller->window_bytes(), kBdp * 105 / 100);
}

TEST(cubic, on_spurious__restores_all) {
  const auto controller = make("cubic");
  const Bytes before = controller->window_bytes();
  controller->on_timeout(feedback_of(1'000'000, kMtu, 0));
  EXPECT_EQ(Bytes{kMtu}, controller->window_bytes());
  controller->on_spurious(1'010'000);
  EXPECT_EQ(before, controller->window_bytes());
}

TEST(dctcp, alpha__follows_the_share_of_marks) {
  const auto controller = make("dctcp");
  TimeNs now = 1'000'000;
  int decreases = 0;
  for (int i = 0; i < 40'000; ++i, now += 100) {
    const bool is_marked = i % 4 == 0;
    const Bytes before = controller->window_bytes();
    controller->on_ack(feedback_of(now, kMtu, kBase, is_marked));
    // Nothing is added at a mark: the window falls by alpha / 2, of which 1024 are a whole.
    if (const Bytes after = controller->window_bytes();
        i >= 30'000 && is_marked && after < before) {
      EXPECT_NEAR(256, static_cast<double>((before - after) * 2048 / before), 80);
      ++decreases;
    }
  }
  EXPECT_GT(decreases, 10);
}

TEST(timely, gap__follows_the_rate) {
  const auto controller = make("timely");
  EXPECT_EQ(kBase * kMtu / kBdp, controller->gap_ns(kMtu));
  TimeNs now = 1'000'000;
  for (int i = 0; i < 100; ++i, now += kBase) {
    controller->on_ack(feedback_of(now, kMtu, kBase * 6));
  }
  const TimeNs slow = controller->gap_ns(kMtu);
  EXPECT_GT(slow, 20 * kBase * kMtu / kBdp);
  for (int i = 0; i < 1000; ++i, now += kBase) {
    controller->on_ack(feedback_of(now, kMtu, kBase));
  }
  EXPECT_EQ(kBase * kMtu / kBdp, controller->gap_ns(kMtu));
}

TEST(roots, square_and_cube__round_down) {
  for (std::uint64_t x :
       std::initializer_list<std::uint64_t>{0, 1, 2, 3, 4, 99, 100, 1ULL << 40, UINT64_MAX}) {
    const unsigned __int128 root = square_root(x);
    EXPECT_LE(root * root, x);
    EXPECT_GT((root + 1) * (root + 1), x);
  }
  for (std::uint64_t base : std::initializer_list<std::uint64_t>{0, 1, 2, 7, 1000, 4'000'000'000}) {
    const unsigned __int128 cube = static_cast<unsigned __int128>(base) * base * base;
    EXPECT_EQ(base, cube_root(cube));
    EXPECT_EQ(base == 0 ? 0 : base - 1, cube == 0 ? 0 : cube_root(cube - 1));
    EXPECT_EQ(base, base == 0 ? 0 : cube_root(cube + 1));
  }
}

}  // namespace
}  // namespace tutti::transport
