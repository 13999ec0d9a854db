// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/nic_clock.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "wire/verbs/library.hpp"

namespace tutti::wire::verbs {
namespace {

constexpr int kReadingsAtFirst = 8;
constexpr int kReadingsOfLook = 3;
/// A reading that took no longer is a good one.
constexpr transport::TimeNs kTookNsMin = 500;

Status no_clock(const std::string& why) { return Status(ErrorCode::kUnavailable, why); }

}  // namespace

NicClock::NicClock(Context* context, HostClock host_clock, std::uint64_t time_mask,
                   std::uint64_t khz)
    : context_(context),
      host_clock_(std::move(host_clock)),
      unused_bits_(std::countl_zero(time_mask)),
      khz_(khz),
      ns_per_tick_q32_(static_cast<std::int64_t>((std::uint64_t{1'000'000} << 32) / khz)) {}

Result<NicClock> NicClock::open(Context* context, HostClock host_clock) {
  const auto query = function_of(context, &ExtendedContext::query_device);
  if (query == nullptr) {
    return no_clock("libibverbs or its driver has no ibv_query_device_ex");
  }
  ExtendedDeviceAttributes attributes{};
  const std::uint32_t input = 0;
  if (const int error = query(context, &input, &attributes, sizeof attributes); error != 0) {
    return no_clock(std::string("ibv_query_device_ex: ") + std::strerror(error));
  }
  if (attributes.time_mask == 0) {
    return no_clock("the NIC does not stamp completions");
  }
  if (attributes.clock_khz == 0) {
    return no_clock("the driver reports no clock frequency");
  }
  NicClock clock(context, std::move(host_clock), attributes.time_mask, attributes.clock_khz);
  TUTTI_ASSIGN_OR_RETURN(const Sample first, clock.read_once());
  TUTTI_ASSIGN_OR_RETURN(clock.seen_, clock.read(kReadingsAtFirst, 0));
  TUTTI_ASSIGN_OR_RETURN(const Sample last, clock.read_once());
  // A frequency in another unit would have all stamps wrong until the first looks.
  const auto passed_ns = static_cast<std::int64_t>(last.host_ns - first.host_ns);
  const auto off_ns = clock.ns_of(clock.ticks_between(first.ticks, last.ticks)) - passed_ns;
  if (std::abs(off_ns) > static_cast<std::int64_t>(first.took_ns + last.took_ns) + passed_ns / 4) {
    return clock.wrong_frequency();
  }
  clock.opened_ns_ = clock.seen_ns_ = clock.seen_.host_ns;
  clock.took_ns_max_ = std::max(2 * clock.seen_.took_ns, kTookNsMin);
  clock.clock_ = ReceptionClock(kDriftPpmMax, clock.took_ns_max_);
  clock.clock_.look({clock.seen_.host_ns, clock.seen_ns_, clock.seen_.took_ns});
  clock.look_due_ns_ = clock.seen_.host_ns + kLookNs;
  return clock;
}

Result<NicClock::Sample> NicClock::read_once() const {
  const auto query = function_of(context_, &ExtendedContext::query_real_time);
  RealTimeValues values{};
  values.valid = kRawClock;
  const TimeNs before_ns = host_clock_();
  const int error = query == nullptr ? EOPNOTSUPP : query(context_, &values);
  const TimeNs took_ns = host_clock_() - before_ns;
  if (error != 0 || (values.valid & kRawClock) == 0) {
    return no_clock(std::string("its clock cannot be read: ") +
                    std::strerror(error != 0 ? error : EOPNOTSUPP));
  }
  Sample sample;
  sample.host_ns = before_ns + took_ns / 2;
  sample.took_ns = took_ns;
  sample.ticks = static_cast<std::uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000U +
                 static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
  return sample;
}

/// The fastest of so many readings, or the first that took no longer than `fast_ns`.
Result<NicClock::Sample> NicClock::read(int readings, TimeNs fast_ns) const {
  Sample best;
  for (int i = 0; i < readings && best.took_ns > fast_ns; ++i) {
    TUTTI_ASSIGN_OR_RETURN(const Sample sample, read_once());
    if (sample.took_ns < best.took_ns) {
      best = sample;
    }
  }
  return best;
}

Status NicClock::look(TimeNs now) {
  TUTTI_ASSIGN_OR_RETURN(const Sample sample, read(kReadingsOfLook, took_ns_max_));
  // How often the counter has begun anew since the last look only our own clock can tell.
  __extension__ using Wide = __int128;
  const auto passed_ns = static_cast<std::int64_t>(sample.host_ns - seen_.host_ns);
  const auto expected = static_cast<std::int64_t>(static_cast<Wide>(passed_ns) *
                                                  static_cast<std::int64_t>(khz_) / 1'000'000);
  const std::int64_t passed =
      expected + ticks_between(seen_.ticks + static_cast<std::uint64_t>(expected), sample.ticks);
  seen_ns_ += static_cast<TimeNs>(ns_of(passed));
  seen_ = sample;
  switch (clock_.look({sample.host_ns, seen_ns_, sample.took_ns})) {
    case ReceptionClock::Seen::kTooSlow:
      look_due_ns_ = now + kLookNs / 16;  // Not at each poll: it is slow just then.
      return {};
    case ReceptionClock::Seen::kSet:
      ++set_;
      break;
    case ReceptionClock::Seen::kAsBefore:
      set_ = 0;
      break;
  }
  look_due_ns_ = now + kLookNs;
  strange_ = is_strange_ ? strange_ + 1 : 0;
  is_strange_ = false;
  if (strange_ >= kSetMax) {
    return no_clock("the stamps are of another clock than the one that the driver reads");
  }
  return set_ < kSetMax ? Status() : wrong_frequency();
}

Status NicClock::wrong_frequency() const {
  return no_clock("its clock does not run at " + std::to_string(khz_) + " kHz");
}

}  // namespace tutti::wire::verbs
