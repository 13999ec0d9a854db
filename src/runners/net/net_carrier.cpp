// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/net/net_carrier.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "runners/direct/host_reduce.hpp"

namespace tutti::runners {

using Clock = std::chrono::steady_clock;
using schedule::StepKind;

namespace {

/// Of a flow; half of what a channel takes.
constexpr std::uint32_t kWindow = 128;
constexpr auto kBetweenLooks = std::chrono::milliseconds(10);
/// A peer that leaves us may do so because of another: who was first is known soon after.
constexpr double kNewsWaitS = 0.5;
/// For all ranks that wait in a call to find out so, too.
constexpr double kRollCallS = 1;

bool is_later(std::uint32_t tag, std::uint32_t other) { return tag > other; }

Status abandoned() {
  return Status(ErrorCode::kTimeout, "net: an earlier call of this job has failed");
}

/// Of an introduction; no collective has the number that it names.
constexpr transport::Tag kIntroductionTag = 0xFFFFFFFF;
/// Of a message: its number in the program, above that the collective and the call's number, low
/// bits of all. Far more than the messages that are open, and the calls that can overlap.
constexpr unsigned kMessageBits = 20;
constexpr unsigned kCollectiveBits = 5;

}  // namespace

NetCarrier::NetCarrier(net::Network& network, net::TcpBootstrap& bootstrap, int rank,
                       topology::Layout layout, std::vector<int> devices, double timeout_s,
                       std::function<Status()> look)
    : network_(network),
      bootstrap_(bootstrap),
      rank_(rank),
      layout_(std::move(layout)),
      devices_(std::move(devices)),
      timeout_s_(timeout_s),
      look_(std::move(look)),
      to_(static_cast<std::size_t>(layout_.ranks())),
      from_(static_cast<std::size_t>(layout_.ranks())),
      looked_(Clock::now()) {}

Status NetCarrier::open() {
  std::string handles;
  for (int device = 0; device < devices_[topology::Layout::index(rank_)]; ++device) {
    TUTTI_ASSIGN_OR_RETURN(listeners_.emplace_back(), network_.listen(device));
    listeners_.back()->leave_wait_to_caller();
    handles.append(reinterpret_cast<const char*>(listeners_.back()->handle().bytes.data()),
                   net::Handle::kBytes);
  }
  TUTTI_ASSIGN_OR_RETURN(handles_, bootstrap_.all_gather(handles, set_up_timeout_s(timeout_s_)));
  for (std::size_t peer = 0; peer < handles_.size(); ++peer) {
    if (handles_[peer].size() != static_cast<std::size_t>(devices_[peer]) * net::Handle::kBytes) {
      return Status(ErrorCode::kInvalidArgument,
                    "net: rank " + std::to_string(peer) + " sent handles of another number");
    }
  }
  return {};
}

Status NetCarrier::prepare(const schedule::Program& program) {
  if (is_abandoned_) {
    return abandoned();
  }
  std::vector<Missing> missing = missing_for(program);
  if (missing.empty()) {
    return {};
  }
  Status status = connect(missing);
  if (!status.ok()) {
    missing.clear();
    bootstrap_.give_up("rank " + std::to_string(rank_) + " has given up: " + status.message());
    static_cast<void>(abandon());
    return status;
  }
  for (Missing& one : missing) {
    flows_with(one.peer, one.sends).push_back(static_cast<std::uint32_t>(flows_.size()));
    Flow& flow = flows_.emplace_back();
    flow.peer = one.peer;
    flow.sends = one.sends;
    flow.channel = std::move(one.channel);
    flow.rails = one.rails;
  }
  return {};
}

std::vector<NetCarrier::Missing> NetCarrier::missing_for(const schedule::Program& program) {
  std::vector<Missing> missing;
  for (const bool sends : {false, true}) {
    std::vector<bool> is_used(to_.size(), false);
    for (const schedule::Step& step : program.steps) {
      if (step.kind == (sends ? StepKind::kSend : StepKind::kRecv)) {
        is_used[topology::Layout::index(step.peer)] = true;
      }
    }
    for (int peer = 0; peer < layout_.ranks(); ++peer) {
      if (!is_used[topology::Layout::index(peer)] || !flows_with(peer, sends).empty()) {
        continue;
      }
      const std::vector<RailEnds> rails =
          rails_between(layout_, devices_, sends ? rank_ : peer, sends ? peer : rank_);
      for (std::uint32_t rail = 0; rail < rails.size(); ++rail) {
        Missing& one = missing.emplace_back();
        one.peer = peer;
        one.sends = sends;
        one.rail = rail;
        one.rails = static_cast<std::uint32_t>(rails.size());
        one.ends = rails[rail];
      }
    }
  }
  return missing;
}

/// A rank that is not in a call that connects to it answers nobody: it is late, and the call's own
/// time bounds the wait. One that is gone is news.
Status NetCarrier::connect(std::vector<Missing>& missing) {
  const auto start = Clock::now();
  while (true) {
    TUTTI_RETURN_IF_ERROR(welcome_guests());
    int waits_for = -1;
    for (Missing& one : missing) {
      if (!one.is_ready) {
        TUTTI_RETURN_IF_ERROR(advance(&one));
        waits_for = one.is_ready || waits_for >= 0 ? waits_for : one.peer;
      }
    }
    if (waits_for < 0) {
      return {};
    }
    TUTTI_RETURN_IF_ERROR(look_around());
    if (timeout_s_ > 0 &&
        std::chrono::duration<double>(Clock::now() - start).count() > timeout_s_) {
      return failed(waits_for, Status(ErrorCode::kTimeout,
                                      "net: no channel with it after " + time_limit(timeout_s_) +
                                          "; it may be stopped or not in the call"));
    }
    sched_yield();
  }
}

Status NetCarrier::advance(Missing* one) {
  if (one->sends) {
    const Status status = advance_sender(one);
    return status.ok() ? status : failed(one->peer, status);
  }
  for (Guest& guest : guests_) {
    if (guest.request == nullptr && guest.introduction->rail == one->rail &&
        guest.introduction->sender == static_cast<std::uint32_t>(one->peer)) {
      one->channel = std::move(guest.channel);
      one->is_ready = true;
      guest = std::move(guests_.back());
      guests_.pop_back();
      break;
    }
  }
  return {};
}

Status NetCarrier::advance_sender(Missing* one) {
  if (one->connector == nullptr) {
    net::Handle handle;
    std::memcpy(handle.bytes.data(),
                handles_[topology::Layout::index(one->peer)].data() +
                    static_cast<std::size_t>(one->ends.receiver_device) * net::Handle::kBytes,
                net::Handle::kBytes);
    TUTTI_ASSIGN_OR_RETURN(one->connector,
                           network_.connect(one->ends.sender_device, handle, net::kDefaultClass));
    one->connector->leave_wait_to_caller();
  }
  if (one->channel == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(one->channel, one->connector->poll());
    if (one->channel == nullptr) {
      return {};
    }
    one->introduction = std::make_unique<Introduction>();
    *one->introduction = {static_cast<std::uint32_t>(rank_), one->rail};
    TUTTI_ASSIGN_OR_RETURN(
        one->request,
        one->channel->send(kIntroductionTag, one->introduction.get(), sizeof(Introduction)));
  }
  net::Completion completion;
  if (net::test(one->request, &completion)) {
    TUTTI_RETURN_IF_ERROR(completion.status);
    one->is_ready = true;
  }
  return {};
}

/// A set-up that fails because the peer ends it or is silent is no error of this rank's call: the
/// sender reports its own error to all ranks, and connect() bounds the waits of this rank.
Status NetCarrier::welcome_guests() {
  for (const auto& listener : listeners_) {
    auto channel = listener->accept();
    if (!channel.ok() && channel.status().code() != ErrorCode::kTimeout) {
      return channel.status();
    }
    if (!channel.ok() || *channel == nullptr) {
      continue;
    }
    Guest guest;
    guest.channel = std::move(*channel);
    transport::ReceivePart part;
    part.tag = kIntroductionTag;
    part.data = reinterpret_cast<std::byte*>(guest.introduction.get());
    part.capacity_bytes = sizeof(Introduction);
    const auto request = guest.channel->receive({&part, 1});
    if (request.ok()) {
      guest.request = *request;
      guests_.push_back(std::move(guest));
    }
  }
  std::erase_if(guests_, [](Guest& guest) {
    net::Completion completion;
    if (guest.request == nullptr || !net::test(guest.request, &completion)) {
      return false;
    }
    guest.request = nullptr;
    return !completion.status.ok();
  });
  return {};
}

Status NetCarrier::look_around() {
  TUTTI_RETURN_IF_ERROR(bootstrap_.news(0));
  return look_ ? look_() : Status();
}

void NetCarrier::start(select::Collective collective) {
  ++runs_;
  stamp_ = (((runs_ + refused_calls_) << kCollectiveBits) | static_cast<std::uint32_t>(collective))
           << kMessageBits;
  collective_ = collective;
  for (Flow& flow : flows_) {
    flow.first = 0;
    flow.is_complete.clear();
  }
}

Status NetCarrier::isend(const void* data, Bytes bytes, int peer, int tag, int slot) {
  auto* const first = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  return add(true, peer, {first, bytes, static_cast<std::uint32_t>(tag), slot, nullptr});
}

Status NetCarrier::irecv(void* data, Bytes bytes, int peer, int tag, int slot) {
  return add(
      false, peer,
      {static_cast<std::byte*>(data), bytes, static_cast<std::uint32_t>(tag), slot, nullptr});
}

Status NetCarrier::add(bool sends, int peer, Message message) {
  if (is_abandoned_) {
    return abandoned();
  }
  const std::vector<std::uint32_t>& rails = flows_with(peer, sends);
  Flow& flow = flows_[rails[message.tag % rails.size()]];
  flow.waiting.push_back(message);
  std::push_heap(flow.waiting.begin(), flow.waiting.end(),
                 [](const Message& a, const Message& b) { return is_later(a.tag, b.tag); });
  return hand_over(flow);
}

Status NetCarrier::hand_over(Flow& flow) {
  while (!flow.waiting.empty() && flow.waiting.front().tag / flow.rails < flow.first + kWindow) {
    Message& message = flow.waiting.front();
    const transport::Tag tag = stamp_ | (message.tag & ((1U << kMessageBits) - 1));
    Result<net::Request*> request = nullptr;
    if (flow.sends) {
      request = flow.channel->send(tag, message.data, message.bytes);
    } else {
      transport::ReceivePart part;
      part.tag = tag;
      part.data = message.data;
      part.capacity_bytes = message.bytes;
      request = flow.channel->receive({&part, 1});
    }
    if (!request.ok()) {
      return failed(flow.peer, request.status());
    }
    if (*request == nullptr) {
      return {};
    }
    message.request = *request;
    flow.open.push_back(message);
    std::pop_heap(flow.waiting.begin(), flow.waiting.end(),
                  [](const Message& a, const Message& b) { return is_later(a.tag, b.tag); });
    flow.waiting.pop_back();
  }
  return {};
}

Status NetCarrier::test_some(int slots, std::vector<int>* completed) {
  static_cast<void>(slots);  // There are no others.
  if (is_abandoned_) {
    return abandoned();
  }
  bool has_news = false;
  for (Flow& flow : flows_) {
    TUTTI_ASSIGN_OR_RETURN(const bool took, take(flow, completed));
    has_news = has_news || took;
  }
  return has_news ? Status() : help(completed);
}

Result<bool> NetCarrier::take(Flow& flow, std::vector<int>* completed) {
  bool took = false;
  for (std::size_t i = 0; i < flow.open.size();) {
    net::Completion completion;
    if (!net::has_ended(flow.open[i].request) || !net::test(flow.open[i].request, &completion)) {
      ++i;
      continue;
    }
    const Message message = flow.open[i];
    flow.open[i] = flow.open.back();
    flow.open.pop_back();
    TUTTI_RETURN_IF_ERROR(complete(flow, message, completion));
    completed->push_back(message.slot);
    took = true;
  }
  if (took) {
    TUTTI_RETURN_IF_ERROR(hand_over(flow));
  }
  return took;
}

Status NetCarrier::complete(Flow& flow, const Message& message, const net::Completion& completion) {
  if (!completion.status.ok()) {
    return failed(flow.peer, completion.status);
  }
  if (completion.bytes[0] != message.bytes) {
    return failed(flow.peer, Status(ErrorCode::kInvalidArgument,
                                    "net: a message of " + std::to_string(completion.bytes[0]) +
                                        " bytes where " + std::to_string(message.bytes) +
                                        " were expected; do all ranks make the same call?"));
  }
  const std::uint32_t place = message.tag / flow.rails;
  if (place >= flow.is_complete.size()) {
    flow.is_complete.resize(place + 1, false);
  }
  flow.is_complete[place] = true;
  while (flow.first < flow.is_complete.size() && flow.is_complete[flow.first]) {
    ++flow.first;
  }
  return {};
}

/// Nothing has ended: moves the network along where nobody else does, one flow's device at a time.
Status NetCarrier::help(std::vector<int>* completed) {
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    Flow& flow = flows_[++helped_ % flows_.size()];
    if (flow.open.empty()) {
      continue;
    }
    net::Completion completion;
    const Message message = flow.open.front();
    if (net::test(message.request, &completion)) {
      flow.open.front() = flow.open.back();
      flow.open.pop_back();
      TUTTI_RETURN_IF_ERROR(complete(flow, message, completion));
      completed->push_back(message.slot);
      return hand_over(flow);
    }
    break;
  }
  sched_yield();
  if (const auto now = Clock::now(); now - looked_ > kBetweenLooks) {
    looked_ = now;
    return look_around();
  }
  return {};
}

Status NetCarrier::reduce_local(const void* in, void* inout, std::uint64_t count,
                                const Call& call) {
  const ReduceFunction reduce = reduce_function(best_isa(), call.type, call.op);
  if (reduce == nullptr) {
    return Status(ErrorCode::kUnsupported, std::string("net: no reduction ") + to_string(call.op) +
                                               " of " + to_string(call.type));
  }
  const void* const inputs[] = {in, inout};
  reduce(inout, inputs, 2, count);
  return {};
}

/// The first reason is the one that counts, on all ranks: who left because of another says so.
Status NetCarrier::failed(int peer, const Status& why) {
  if (why.code() == ErrorCode::kTimeout) {
    TUTTI_RETURN_IF_ERROR(bootstrap_.news(kNewsWaitS));
  }
  const std::string text = "rank " + std::to_string(peer) + ": " + why.message();
  bootstrap_.give_up("rank " + std::to_string(rank_) + " has given up: " + text);
  return Status(why.code(), text);
}

Status NetCarrier::late(const Status& why) {
  TUTTI_RETURN_IF_ERROR(bootstrap_.news(0));
  // The rank that this one waits for may itself wait for another: ask all that are in the call.
  const std::string mine =
      "call " + std::to_string(runs_ + refused_calls_) + " (" + to_string(collective_) + ")";
  const auto calls = bootstrap_.all_gather(mine, kRollCallS);
  if (!calls.ok()) {
    return Status(why.code(), why.message() + "; " + calls.status().message());
  }
  for (std::size_t rank = 0; rank < calls->size(); ++rank) {
    if ((*calls)[rank] != mine) {
      return Status(why.code(), why.message() + "; rank " + std::to_string(rank_) + " is in " +
                                    mine + ", rank " + std::to_string(rank) + " in " +
                                    (*calls)[rank] + "; do all ranks make the same calls?");
    }
  }
  return why;
}

bool NetCarrier::abandon() {
  is_abandoned_ = true;
  flows_.clear();
  guests_.clear();
  listeners_.clear();
  return true;
}

}  // namespace tutti::runners
