// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/bootstrap/reach_check.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "net/bootstrap/handshake.hpp"

namespace tutti::net {
namespace {

using transport::kNever;

constexpr std::uint32_t kReportMagic = 0x48434152;  // "RACH"
constexpr const char* kOpenUdp =
    "; remedy: let UDP pass (firewall, security group) between both hosts, in both directions, "
    "from and to all ports of net.ipv4.ip_local_port_range";

/// As it crosses the network.
struct SharedReach {
  std::uint32_t magic = kReportMagic;
  std::uint32_t is_done = 0;
  std::uint32_t heard = 0;
  std::uint32_t tried = 0;
  char failure[kFailureBytes] = {};
};
static_assert(sizeof(SharedReach) == kReportBytes && std::is_trivially_copyable_v<SharedReach>);
static_assert(std::endian::native == std::endian::little, "SharedReach is copied");

}  // namespace

ReportBytes encode(const ReachReport& report) {
  SharedReach it;
  it.is_done = report.is_done ? 1 : 0;
  it.heard = report.heard;
  it.tried = report.tried;
  put_text(report.failure, it.failure);
  ReportBytes out;
  std::memcpy(out.data(), &it, sizeof it);
  return out;
}

Result<ReachReport> decode_report(std::span<const std::byte> bytes) {
  SharedReach it;
  if (bytes.size() == sizeof it) {
    std::memcpy(&it, bytes.data(), sizeof it);
  }
  if (bytes.size() != sizeof it || it.magic != kReportMagic || it.is_done > 1) {
    return Status(ErrorCode::kInvalidArgument,
                  "net: what follows the peer's handshake is not a reach report");
  }
  return ReachReport{it.is_done != 0, it.heard, it.tried, get_text(it.failure)};
}

void ReachCheck::look(TimeNs now, std::span<const wire::Reach> sub_connections) {
  report_ns_ = std::min(report_ns_, now + 2 * kReportNs);
  is_known_ = true;
  mine_.heard = mine_.tried = too_small_ = 0;
  for (std::uint32_t i = 0; i < sub_connections_; ++i) {
    const wire::Reach& it = sub_connections[i];
    is_known_ = is_known_ && it.is_known;
    mine_.heard |= (it.is_heard ? 1U : 0U) << i;
    too_small_ |= (!it.is_known && it.is_too_small ? 1U : 0U) << i;
    const bool is_tried = !it.is_known && it.is_tried;
    mine_.tried |= (is_tried ? 1U : 0U) << i;
    tried_ns_[i] = is_tried ? std::min(tried_ns_[i], now) : kNever;
  }
  mine_.is_done = is_known_;
}

void ReachCheck::hear(TimeNs now, const ReachReport& report) {
  theirs_ = report;
  heard_ns_ = now;
  tells_ns_ = report.tried == 0 ? kNever : std::min(tells_ns_, now);
}

std::optional<ReachReport> ReachCheck::report(TimeNs now) {
  if (has_said_done_ || (!is_known_ && now < report_ns_)) {
    return std::nullopt;
  }
  has_said_done_ = is_known_;
  report_ns_ = now + kReportNs;
  return mine_;
}

std::vector<ReachCheck::Blocked> ReachCheck::evidence() const {
  std::vector<Blocked> found;
  for (std::uint32_t i = 0; i < sub_connections_; ++i) {
    const auto has = [i](std::uint32_t sub_connections) { return (sub_connections >> i & 1) != 0; };
    if (has(too_small_)) {
      found.push_back({i, Direction::kTooSmall});
      continue;
    }
    if (!theirs_ || theirs_->is_done) {
      continue;
    }
    // They have been at work since we asked, and nothing has come.
    if (tried_ns_[i] != kNever && heard_ns_ >= tried_ns_[i] + kEvidenceNs && !has(theirs_->heard)) {
      found.push_back({i, Direction::kTo});
    }
    if (has(theirs_->tried) && heard_ns_ >= tells_ns_ + kEvidenceNs && !has(mine_.heard)) {
      found.push_back({i, Direction::kFrom});
    }
  }
  return found;
}

std::vector<ReachCheck::Blocked> ReachCheck::blocked(TimeNs now) {
  std::vector<Blocked> found = evidence();
  evident_ns_ = found.empty() ? kNever : std::min(evident_ns_, now);
  // The other direction's may be in the next report.
  if (!found.empty() && too_small_ == 0 && now < evident_ns_ + kReportNs + kEvidenceNs) {
    found.clear();
  }
  return found;
}

std::string text_of(std::span<const ReachCheck::Blocked> blocked, std::span<const wire::Ends> ends,
                    const std::string& who, const std::string& me) {
  std::string text;
  bool has_too_small = false;
  for (const ReachCheck::Blocked& it : blocked) {
    const wire::Ends& of = ends[it.sub];
    const bool is_from = it.direction == ReachCheck::Direction::kFrom;
    has_too_small = has_too_small || it.direction == ReachCheck::Direction::kTooSmall;
    text += text.empty() ? "net: no " : "; no ";
    text += it.direction == ReachCheck::Direction::kTooSmall ? "full UDP datagram" : "UDP datagram";
    text += is_from ? " of " + of.peer_host + " (" + who + ") arrives at " + of.receiver + " (" + me
                    : " of " + of.senders + " (" + me + ") arrives at " + of.peer + " (" + who;
    text += ')';
  }
  return text + (has_too_small ? ", though short ones do; remedy: an MTU of at least 1100 bytes on "
                                 "all switches and routers between the hosts"
                               : std::string(", though TCP passes") + kOpenUdp);
}

}  // namespace tutti::net
