// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/sim/sim_runner.hpp"

#include <algorithm>
#include <queue>
#include <utility>

#include "base/check.hpp"
#include "simulate/time.hpp"

namespace tutti::runners::sim {
namespace {

using schedule::Program;
using schedule::Step;
using schedule::StepKind;

/// Millionths of a byte: MB/s times picoseconds.
using Work = std::uint64_t;
constexpr Work kWorkPerByte = 1'000'000;
/// So that service of an end, the sum of all that comes in, fits Work.
constexpr Bytes kSumMax = UINT64_MAX / kWorkPerByte / 2;
constexpr std::uint32_t kNone = UINT32_MAX;
constexpr TimePs kNever = UINT64_MAX;

using Wide = unsigned __int128;

Work floor_divide(Wide dividend, std::uint64_t divisor) {
  return static_cast<Work>(dividend / divisor);
}
Work ceil_divide(Wide dividend, std::uint64_t divisor) {
  return static_cast<Work>((dividend + divisor - 1) / divisor);
}

/// Smallest first: (time or service, message). Messages are numbered by (sender, step).
using Entry = std::pair<std::uint64_t, std::uint32_t>;
using Heap = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

enum class State : std::uint8_t { kWaiting, kQueued, kHeld, kFlowing, kDone };

struct Message {
  std::uint32_t send = 0;  ///< Step, among those of all ranks.
  std::uint32_t recv = 0;
  int from = 0;
  int to = 0;
  LinkRoute route;
  Bytes bytes = 0;
  State state = State::kWaiting;
  std::uint8_t steps_ready = 0;
  TimePs due_ps = 0;  ///< Of the event that counts; others in the queue are out of date.
  TimePs ready_ps = 0;
  TimePs start_ps = 0;
  TimePs end_ps = 0;
};

/// The sending half of an end (R1).
struct Engine {
  Heap queue;
  bool is_held = false;
  bool is_listed = false;  ///< Among those to look at when the instant's events are through.
};

/// The receiving half of an end (R2). All that comes in moves at one rate, so one number, the
/// service each message has had since the beginning, says when which is through.
struct Inbound {
  Work service = 0;
  TimePs as_of_ps = 0;
  Heap flows;                   ///< By the service at which they are through.
  std::uint32_t first = kNone;  ///< The one whose event is scheduled.
};

class Run {
 public:
  Run(std::span<const Program> programs, const topology::Layout& layout, const Cluster& cluster,
      Bytes element_bytes)
      : programs_(programs), cluster_(cluster), wires_(layout), element_bytes_(element_bytes) {}

  Status prepare();
  Status carry_out();
  SimOutcome take(bool keep_transfers);

 private:
  struct Mate {
    std::uint64_t pair;  ///< Sender and receiver.
    std::uint32_t tag;
    std::uint32_t step;  ///< Among those of all ranks.
    bool operator<(const Mate& other) const {
      return std::pair(pair, tag) < std::pair(other.pair, other.tag);
    }
  };

  void link_steps();
  Status match();
  std::uint32_t global(int rank, std::uint32_t step) const {
    return first_step_[topology::Layout::index(rank)] + step;
  }
  std::string name_of(const Mate& mate) const;

  void step_ready(std::uint32_t step, int rank);
  void step_done(std::uint32_t step, int rank);
  void settle();
  void start_listed();
  void begin_flow(std::uint32_t number);
  void complete(std::uint32_t number);
  void schedule_event(std::uint32_t number, TimePs at_ps);
  void advance(Inbound& inbound, std::uint32_t end, const LinkModel& link);
  void schedule_first(Inbound& inbound, const LinkModel& link);
  /// Of one of `flows` messages: rate = first / second in MB/s.
  static std::pair<std::uint64_t, std::uint64_t> rate(const LinkModel& link, std::size_t flows) {
    return flows < 2 ? std::pair(link.mb_per_s, std::uint64_t{1})
                     : std::pair(link.mb_per_s * link.incast_percent,
                                 std::uint64_t{100} * static_cast<std::uint64_t>(flows));
  }
  const LinkModel& link_of(const Message& message) const {
    return cluster_.link(message.route.kind);
  }

  std::span<const Program> programs_;
  const Cluster& cluster_;
  Wires wires_;
  Bytes element_bytes_;

  std::vector<std::uint32_t> first_step_;  ///< By rank; one more than ranks.
  std::vector<std::uint32_t> waits_for_;   ///< By step: dependencies that are not complete.
  std::vector<std::uint32_t> first_follower_;
  std::vector<std::uint32_t> followers_;
  std::vector<std::uint32_t> message_of_;  ///< By step.
  std::vector<Message> messages_;

  std::vector<Engine> engines_;
  std::vector<Inbound> inbounds_;
  std::vector<std::uint32_t> listed_;  ///< Engines that may be able to start a message.
  Heap events_;
  std::vector<std::pair<std::uint32_t, int>> ready_;  ///< Steps (and ranks) to begin now.
  TimePs now_ps_ = 0;
  std::size_t steps_done_ = 0;
  SimOutcome outcome_;
};

std::string Run::name_of(const Mate& mate) const {
  return "from rank " + std::to_string(mate.pair >> 32) + " to rank " +
         std::to_string(mate.pair & UINT32_MAX) + ", tag " + std::to_string(mate.tag);
}

Status Run::prepare() {
  std::uint64_t steps = 0;
  for (const Program& program : programs_) {
    first_step_.push_back(static_cast<std::uint32_t>(steps));
    steps += program.steps.size();
    if (steps >= kNone) {
      return {ErrorCode::kUnsupported, "simulation: more than 2^32 steps"};
    }
  }
  first_step_.push_back(static_cast<std::uint32_t>(steps));
  link_steps();
  TUTTI_RETURN_IF_ERROR(match());
  engines_.resize(wires_.ends().size());
  inbounds_.resize(wires_.ends().size());
  outcome_.ends = wires_.ends();
  outcome_.out.resize(wires_.ends().size());
  outcome_.in.resize(wires_.ends().size());
  outcome_.finish_ps.resize(programs_.size());
  return {};
}

void Run::link_steps() {
  const std::size_t steps = first_step_.back();
  waits_for_.resize(steps);
  first_follower_.assign(steps + 1, 0);
  for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
    for (const std::uint32_t before : programs_[rank].dependencies) {
      ++first_follower_[first_step_[rank] + before + 1];
    }
  }
  for (std::size_t step = 0; step < steps; ++step) {
    first_follower_[step + 1] += first_follower_[step];
  }
  followers_.resize(first_follower_.back());
  std::vector<std::uint32_t> next(first_follower_.begin(), first_follower_.end() - 1);
  for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
    const Program& program = programs_[rank];
    for (std::uint32_t number = 0; number < program.steps.size(); ++number) {
      const std::uint32_t step = first_step_[rank] + number;
      waits_for_[step] = program.steps[number].dependency_count;
      for (const std::uint32_t before : program.dependencies_of(program.steps[number])) {
        followers_[next[first_step_[rank] + before]++] = step;
      }
    }
  }
}

Status Run::match() {
  std::vector<Mate> sends;
  std::vector<Mate> receives;
  message_of_.assign(first_step_.back(), kNone);
  const int ranks = static_cast<int>(programs_.size());
  Bytes total = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Program& program = programs_[topology::Layout::index(rank)];
    std::uint32_t network_before = 0;
    for (std::uint32_t number = 0; number < program.steps.size(); ++number) {
      const Step& step = program.steps[number];
      if (step.kind != StepKind::kSend && step.kind != StepKind::kRecv) {
        continue;
      }
      if (step.peer < 0 || step.peer >= ranks || step.peer == rank) {
        return {ErrorCode::kInvalidArgument, "simulation: rank " + std::to_string(rank) +
                                                 ", step " + std::to_string(number) + ": peer " +
                                                 std::to_string(step.peer)};
      }
      const bool is_send = step.kind == StepKind::kSend;
      const auto from = static_cast<std::uint64_t>(is_send ? rank : step.peer);
      const auto to = static_cast<std::uint64_t>(is_send ? step.peer : rank);
      (is_send ? sends : receives).push_back({from << 32 | to, step.tag, global(rank, number)});
      if (!is_send) {
        continue;
      }
      Message message;
      message.send = global(rank, number);
      message.from = rank;
      message.to = step.peer;
      if (step.count() > (kSumMax - total) / element_bytes_) {
        return {ErrorCode::kUnsupported, "simulation: too many bytes for 64-bit arithmetic"};
      }
      message.bytes = step.count() * element_bytes_;
      total += message.bytes;
      message.route = wires_.route(rank, step.peer, network_before);
      network_before += message.route.kind == LinkClass::kNetwork ? 1 : 0;
      if (cluster_.link(message.route.kind).mb_per_s == 0) {
        return {ErrorCode::kInvalidArgument,
                std::string("simulation: the cluster has no ") + to_string(message.route.kind) +
                    " link, which rank " + std::to_string(rank) + " needs to reach rank " +
                    std::to_string(step.peer)};
      }
      message_of_[message.send] = static_cast<std::uint32_t>(messages_.size());
      messages_.push_back(message);
    }
  }
  std::sort(sends.begin(), sends.end());
  std::sort(receives.begin(), receives.end());
  for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    const bool has_both = i < sends.size() && i < receives.size();
    if (has_both && !(sends[i] < receives[i]) && !(receives[i] < sends[i])) {
      messages_[message_of_[sends[i].step]].recv = receives[i].step;
      message_of_[receives[i].step] = message_of_[sends[i].step];
      continue;
    }
    const bool lacks_receive = i >= receives.size() || (has_both && sends[i] < receives[i]);
    return {ErrorCode::kInvalidArgument,
            std::string("simulation: a ") + (lacks_receive ? "send" : "receive") +
                " without its other end: " + name_of(lacks_receive ? sends[i] : receives[i])};
  }
  return {};
}

void Run::step_ready(std::uint32_t step, int rank) {
  const std::uint32_t number = message_of_[step];
  if (number == kNone) {
    step_done(step, rank);
    return;
  }
  Message& message = messages_[number];
  if (++message.steps_ready < 2) {
    return;
  }
  message.state = State::kQueued;
  message.ready_ps = now_ps_;
  Engine& engine = engines_[message.route.from];
  engine.queue.push({now_ps_, number});
  if (!engine.is_listed) {
    engine.is_listed = true;
    listed_.push_back(message.route.from);
  }
}

void Run::step_done(std::uint32_t step, int rank) {
  ++steps_done_;
  TimePs& finish = outcome_.finish_ps[topology::Layout::index(rank)];
  finish = std::max(finish, now_ps_);
  for (std::uint32_t i = first_follower_[step]; i < first_follower_[step + 1]; ++i) {
    if (--waits_for_[followers_[i]] == 0) {
      ready_.emplace_back(followers_[i], rank);
    }
  }
}

/// Begins all steps that have become ready, and those that become so on the way (copies).
void Run::settle() {
  while (!ready_.empty()) {
    const auto [step, rank] = ready_.back();
    ready_.pop_back();
    step_ready(step, rank);
  }
}

/// All events of an instant come first: the queues then hold whatever became ready in it, and the
/// order in which events of one instant are handled does not matter.
void Run::start_listed() {
  for (const std::uint32_t end : std::exchange(listed_, {})) {
    Engine& engine = engines_[end];
    engine.is_listed = false;
    if (engine.is_held || engine.queue.empty()) {
      continue;
    }
    const std::uint32_t number = engine.queue.top().second;
    engine.queue.pop();
    engine.is_held = true;
    Message& message = messages_[number];
    message.start_ps = now_ps_;
    message.state = State::kHeld;
    schedule_event(number, now_ps_ + link_of(message).message_ns * simulate::kPsPerNs);
  }
}

void Run::schedule_event(std::uint32_t number, TimePs at_ps) {
  messages_[number].due_ps = at_ps;
  events_.push({at_ps, number});
}

void Run::begin_flow(std::uint32_t number) {
  Message& message = messages_[number];
  const LinkModel& link = link_of(message);
  const Work work = message.bytes * kWorkPerByte;
  message.state = State::kFlowing;
  if (!link.shares_inbound) {
    schedule_event(number, now_ps_ + ceil_divide(work, link.mb_per_s));
    return;
  }
  Inbound& inbound = inbounds_[message.route.to];
  advance(inbound, message.route.to, link);
  inbound.flows.push({inbound.service + work, number});
  schedule_first(inbound, link);
}

void Run::advance(Inbound& inbound, std::uint32_t end, const LinkModel& link) {
  const TimePs elapsed = now_ps_ - std::exchange(inbound.as_of_ps, now_ps_);
  const std::size_t flows = inbound.flows.size();
  if (flows == 0) {
    return;
  }
  const auto [first, second] = rate(link, flows);
  inbound.service += floor_divide(Wide{elapsed} * first, second);
  outcome_.in[end].busy_ps += elapsed;
  outcome_.in[end].incast_ps += flows > 1 ? elapsed : 0;
}

/// The event of the message that is through first, if nothing changes before.
void Run::schedule_first(Inbound& inbound, const LinkModel& link) {
  if (inbound.first != kNone && messages_[inbound.first].state == State::kFlowing) {
    messages_[inbound.first].due_ps = kNever;
  }
  inbound.first = kNone;
  if (inbound.flows.empty()) {
    return;
  }
  const auto [through, number] = inbound.flows.top();
  inbound.first = number;
  const auto [first, second] = rate(link, inbound.flows.size());
  const Work left = through > inbound.service ? through - inbound.service : 0;
  schedule_event(number, now_ps_ + ceil_divide(Wide{left} * second, first));
}

void Run::complete(std::uint32_t number) {
  Message& message = messages_[number];
  const LinkModel& link = link_of(message);
  message.state = State::kDone;
  message.end_ps = now_ps_;
  if (link.shares_inbound) {
    Inbound& inbound = inbounds_[message.route.to];
    advance(inbound, message.route.to, link);
    CHECK(inbound.flows.top().second == number, std::to_string(number));
    inbound.flows.pop();
    schedule_first(inbound, link);
  }
  Engine& engine = engines_[message.route.from];
  engine.is_held = false;
  if (!engine.is_listed) {
    engine.is_listed = true;
    listed_.push_back(message.route.from);
  }
  outcome_.out[message.route.from].bytes += message.bytes;
  outcome_.out[message.route.from].busy_ps += now_ps_ - message.start_ps;
  outcome_.in[message.route.to].bytes += message.bytes;
  step_done(message.send, message.from);
  step_done(message.recv, message.to);
}

Status Run::carry_out() {
  for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
    for (std::uint32_t step = global(rank, 0); step < global(rank + 1, 0); ++step) {
      if (waits_for_[step] == 0) {
        ready_.emplace_back(step, rank);
      }
    }
  }
  settle();
  start_listed();
  while (!events_.empty()) {
    now_ps_ = events_.top().first;
    while (!events_.empty() && events_.top().first == now_ps_) {
      const std::uint32_t number = events_.top().second;
      events_.pop();
      const Message& message = messages_[number];
      if (message.due_ps != now_ps_) {
        continue;
      }
      if (message.state == State::kHeld) {
        begin_flow(number);
      } else if (message.state == State::kFlowing) {
        complete(number);
      }
    }
    settle();
    start_listed();
  }
  if (steps_done_ != first_step_.back()) {
    return {ErrorCode::kInvalidArgument,
            "simulation: " + std::to_string(first_step_.back() - steps_done_) +
                " steps wait for each other for ever"};
  }
  outcome_.end_ps = now_ps_;
  return {};
}

SimOutcome Run::take(bool keep_transfers) {
  if (keep_transfers) {
    outcome_.transfers.reserve(messages_.size());
    for (const Message& message : messages_) {
      outcome_.transfers.push_back(
          {.from = message.from,
           .to = message.to,
           .send_step = message.send - first_step_[topology::Layout::index(message.from)],
           .recv_step = message.recv - first_step_[topology::Layout::index(message.to)],
           .bytes = message.bytes,
           .kind = message.route.kind,
           .ready_ps = message.ready_ps,
           .start_ps = message.start_ps,
           .end_ps = message.end_ps});
    }
  }
  return std::move(outcome_);
}

}  // namespace

Result<SimOutcome> run(std::span<const Program> programs, const topology::Layout& layout,
                       const Cluster& cluster, Bytes element_bytes, bool keep_transfers) {
  CHECK(programs.size() == layout.node_of.size() && element_bytes > 0,
        std::to_string(programs.size()) + " programs");
  Run run(programs, layout, cluster, element_bytes);
  TUTTI_RETURN_IF_ERROR(run.prepare());
  TUTTI_RETURN_IF_ERROR(run.carry_out());
  return run.take(keep_transfers);
}

}  // namespace tutti::runners::sim
