// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/validate.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.hpp"

namespace tutti::schedule {
namespace {

constexpr std::size_t kErrorsMax = 10;

std::string text(const Region& region) {
  constexpr const char* kNames[] = {"input", "output", "scratch"};
  return std::string(kNames[static_cast<int>(region.buffer)]) + "[" +
         std::to_string(region.offset) + ", " + std::to_string(region.end()) + ")";
}

/// Dense set of small numbers.
class Bits {
 public:
  explicit Bits(std::size_t size) : words_((size + 63) / 64) {}
  void set(std::size_t at) { words_[at / 64] |= std::uint64_t{1} << (at % 64); }
  bool has(std::size_t at) const { return (words_[at / 64] >> (at % 64) & 1) != 0; }
  void add(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] |= other.words_[i];
    }
  }
  bool meets(const Bits& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & other.words_[i]) != 0) {
        return true;
      }
    }
    return false;
  }
  bool operator<(const Bits& other) const { return words_ < other.words_; }

 private:
  std::vector<std::uint64_t> words_;
};

/// Sets of ranks by number; rank r's own set is number r.
class Sets {
 public:
  explicit Sets(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      Bits one(static_cast<std::size_t>(ranks));
      one.set(static_cast<std::size_t>(rank));
      number_of(one);
    }
    Bits all(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      all.set(static_cast<std::size_t>(rank));
    }
    all_ = number_of(all);
  }
  std::uint32_t all() const { return all_; }
  /// Absent when a rank is in both: it would count twice.
  std::optional<std::uint32_t> join(std::uint32_t a, std::uint32_t b) {
    const auto key = std::minmax(a, b);
    const auto known = joined_.find(key);
    if (known != joined_.end()) {
      return known->second;
    }
    std::optional<std::uint32_t> result;
    if (!sets_[a].meets(sets_[b])) {
      Bits both = sets_[a];
      both.add(sets_[b]);
      result = number_of(both);
    }
    joined_.emplace(key, result);
    return result;
  }

 private:
  std::uint32_t number_of(const Bits& set) {
    const auto [entry, is_new] =
        numbers_.try_emplace(set, static_cast<std::uint32_t>(sets_.size()));
    if (is_new) {
      sets_.push_back(set);
    }
    return entry->second;
  }
  std::vector<Bits> sets_;
  std::map<Bits, std::uint32_t> numbers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::optional<std::uint32_t>> joined_;
  std::uint32_t all_ = 0;
};

/// `count` elements: the inputs of the ranks of a set from element `origin` on, combined.
struct Piece {
  std::uint64_t count = 0;
  std::uint32_t set = 0;
  std::uint64_t origin = 0;

  Piece part(std::uint64_t from, std::uint64_t elements) const {
    return {elements, set, origin + from};
  }
};
using Pieces = std::vector<Piece>;

/// Neighbours that continue one another become one, so that equal contents compare equal.
void append(Pieces* pieces, const Piece& piece) {
  if (piece.count == 0) {
    return;
  }
  if (!pieces->empty() && pieces->back().set == piece.set &&
      pieces->back().origin + pieces->back().count == piece.origin) {
    pieces->back().count += piece.count;
    return;
  }
  pieces->push_back(piece);
}

class Contents {
 public:
  void write(std::uint64_t offset, const Pieces& pieces) {
    std::uint64_t end = offset;
    for (const Piece& piece : pieces) {
      end += piece.count;
    }
    cut(offset);
    cut(end);
    at_.erase(at_.lower_bound(offset), at_.lower_bound(end));
    for (const Piece& piece : pieces) {
      at_.emplace(offset, piece);
      offset += piece.count;
    }
  }
  /// Absent when an element was never written.
  std::optional<Pieces> read(std::uint64_t offset, std::uint64_t count) const {
    Pieces pieces;
    const std::uint64_t end = offset + count;
    auto next = at_.upper_bound(offset);
    if (count > 0 && next == at_.begin()) {
      return std::nullopt;
    }
    for (auto entry = count > 0 ? std::prev(next) : at_.end(); offset < end; ++entry) {
      if (entry == at_.end() || entry->first > offset ||
          entry->first + entry->second.count <= offset) {
        return std::nullopt;
      }
      const std::uint64_t skip = offset - entry->first;
      const std::uint64_t many = std::min(end - offset, entry->second.count - skip);
      append(&pieces, entry->second.part(skip, many));
      offset += many;
    }
    return pieces;
  }

 private:
  void cut(std::uint64_t where) {
    auto next = at_.lower_bound(where);
    if (next == at_.begin()) {
      return;
    }
    auto [start, piece] = *std::prev(next);
    if (start + piece.count > where) {
      at_[start] = piece.part(0, where - start);
      at_[where] = piece.part(where - start, start + piece.count - where);
    }
  }
  std::map<std::uint64_t, Piece> at_;
};

/// The pieces that the definition demands of a rank's output; empty: none.
Pieces expected_output(const Problem& problem, int rank, std::uint32_t all) {
  Pieces pieces;
  const auto many = static_cast<std::uint64_t>(problem.ranks);
  const auto me = static_cast<std::uint64_t>(rank);
  switch (problem.collective) {
    case Collective::kBcast:
      append(&pieces, {problem.counts[0], static_cast<std::uint32_t>(problem.root), 0});
      break;
    case Collective::kAllreduce:
      append(&pieces, {problem.counts[0], all, 0});
      break;
    case Collective::kReduce:
      if (rank == problem.root) {
        append(&pieces, {problem.counts[0], all, 0});
      }
      break;
    case Collective::kGather:
    case Collective::kGatherv:
      if (rank != problem.root) {
        break;
      }
      [[fallthrough]];
    case Collective::kAllgather:
    case Collective::kAllgatherv:
      for (std::uint32_t peer = 0; peer < many; ++peer) {
        append(&pieces, {problem.counts[peer], peer, 0});
      }
      break;
    case Collective::kScatter:
    case Collective::kScatterv:
      append(&pieces, {problem.counts[me], static_cast<std::uint32_t>(problem.root),
                       blocks_of(problem).offset(rank)});
      break;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterBlock:
      append(&pieces, {problem.counts[me], all, blocks_of(problem).offset(rank)});
      break;
    case Collective::kAlltoall:
      for (std::uint32_t peer = 0; peer < many; ++peer) {
        append(&pieces, {problem.counts[0], peer, me * problem.counts[0]});
      }
      break;
    case Collective::kAlltoallv:
      for (std::uint32_t peer = 0; peer < many; ++peer) {
        std::uint64_t before = 0;
        for (std::uint64_t other = 0; other < me; ++other) {
          before += problem.matrix[peer * many + other];
        }
        append(&pieces, {problem.matrix[peer * many + me], peer, before});
      }
      break;
    case Collective::kBarrier:
      break;
    case Collective::kAlltoallw:
    case Collective::kScan:
    case Collective::kExscan:
      CHECK(false, "no schedule has this collective");
  }
  return pieces;
}

bool equal(const Pieces& a, const Pieces& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Piece& x, const Piece& y) {
    return x.count == y.count && x.set == y.set && x.origin == y.origin;
  });
}

/// In place, a region that is the same memory as one of another buffer.
struct Alias {
  Region region;
  Region is;
};

/// Absent: input and output of the rank are apart.
std::optional<Alias> alias_of(const Problem& problem, int rank) {
  const Region input{Buffer::kInput, 0, input_count(problem, rank)};
  const Region output{Buffer::kOutput, 0, output_count(problem, rank)};
  switch (problem.collective) {
    case Collective::kAllreduce:
      return Alias{input, output};
    case Collective::kBcast:
    case Collective::kReduce:
      return rank == problem.root ? std::optional(Alias{input, output}) : std::nullopt;
    case Collective::kAllgather:
    case Collective::kAllgatherv:
      return Alias{input, blocks_of(problem).in(Buffer::kOutput, rank)};
    case Collective::kGather:
    case Collective::kGatherv:
      return rank == problem.root
                 ? std::optional(Alias{input, blocks_of(problem).in(Buffer::kOutput, rank)})
                 : std::nullopt;
    case Collective::kScatter:
    case Collective::kScatterv:
      return rank == problem.root
                 ? std::optional(Alias{output, blocks_of(problem).in(Buffer::kInput, rank)})
                 : std::nullopt;
    default:
      return std::nullopt;
  }
}

/// The program with aliased regions named as what they are; a copy onto itself does nothing.
Program with_alias(const Program& program, const Alias& alias) {
  Program named = program;
  for (Step& step : named.steps) {
    for (Region* region : {&step.source, &step.destination}) {
      if (region->buffer == alias.region.buffer) {
        *region = {alias.is.buffer, alias.is.offset + region->offset, region->count};
      }
    }
    if (step.kind == StepKind::kCopy && step.source == step.destination) {
      step.source.count = step.destination.count = 0;
    }
  }
  return named;
}

/// All programs, carried out together.
class Execution {
 public:
  Execution(const Problem& problem, const std::vector<Program>& programs, bool in_place,
            Report* report)
      : problem_(problem),
        programs_(programs),
        in_place_(in_place),
        report_(*report),
        sets_(problem.ranks) {}

  void run() {
    if (!pair_messages()) {
      return;
    }
    start();
    while (!ready_.empty()) {
      const StepId id = ready_.back();
      ready_.pop_back();
      begin(id);
    }
    check_all_done();
    if (report_.ok()) {
      check_outputs();
      check_barrier();
    }
  }

 private:
  struct StepId {
    int rank = 0;
    std::uint32_t step = 0;
  };
  struct State {
    std::uint32_t waits_for = 0;
    bool begun = false;
    bool done = false;
    int level = 0;  ///< Messages in the longest chain up to here.
    StepId partner;
    std::vector<std::uint32_t> followers;
  };

  void error(const std::string& what) {
    if (report_.errors.size() < kErrorsMax) {
      report_.errors.push_back(what);
    }
  }
  const Step& step(const StepId& id) const {
    return programs_[static_cast<std::size_t>(id.rank)].steps[id.step];
  }
  State& state(const StepId& id) { return states_[static_cast<std::size_t>(id.rank)][id.step]; }
  std::string name(const StepId& id) const { return describe(id.rank, id.step, step(id)); }

  bool pair_messages() {
    std::map<std::tuple<int, int, std::uint32_t>, StepId> sends;  // From, to, tag.
    states_.resize(programs_.size());
    for_each([&](const StepId& id, const Step& one) {
      states_[static_cast<std::size_t>(id.rank)].emplace_back();
      if (one.kind == StepKind::kSend &&
          !sends.try_emplace({id.rank, one.peer, one.tag}, id).second) {
        error(name(id) + " has the tag of another send to that rank");
      }
    });
    for_each([&](const StepId& id, const Step& one) {
      if (one.kind != StepKind::kRecv) {
        return;
      }
      const auto found = sends.find({one.peer, id.rank, one.tag});
      if (found == sends.end()) {
        error(name(id) + " has no send");
        return;
      }
      if (step(found->second).count() != one.count()) {
        error(name(id) + " meets " + name(found->second) + " of another size");
      }
      state(id).partner = found->second;
      state(found->second).partner = id;
      sends.erase(found);
    });
    for (const auto& [key, id] : sends) {
      error(name(id) + " has no receive");
    }
    return report_.ok();
  }

  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
      for (std::uint32_t i = 0; i < programs_[rank].steps.size(); ++i) {
        visit(StepId{static_cast<int>(rank), i}, programs_[rank].steps[i]);
      }
    }
  }

  void start() {
    const auto ranks = programs_.size();
    memories_.resize(ranks);
    known_.assign(ranks, {});
    report_.sent.assign(ranks, 0);
    report_.received.assign(ranks, 0);
    report_.messages.assign(ranks, 0);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      Pieces own;
      append(&own,
             {input_count(problem_, static_cast<int>(rank)), static_cast<std::uint32_t>(rank), 0});
      Region region{Buffer::kInput, 0, 0};
      const auto alias = alias_of(problem_, static_cast<int>(rank));
      if (in_place_ && alias && alias->region.buffer == Buffer::kInput) {
        region = alias->is;
      }
      contents(static_cast<int>(rank), region.buffer).write(region.offset, own);
    }
    for_each([&](const StepId& id, const Step& one) {
      const Program& program = programs_[static_cast<std::size_t>(id.rank)];
      state(id).waits_for = one.dependency_count;
      for (const std::uint32_t before : program.dependencies_of(one)) {
        state({id.rank, before}).followers.push_back(id.step);
      }
      if (one.dependency_count == 0) {
        ready_.push_back(id);
      }
      Bits known(programs_.size());
      known.set(static_cast<std::size_t>(id.rank));
      known_[static_cast<std::size_t>(id.rank)].push_back(known);
    });
  }

  /// All that the step waits for is complete.
  void begin(const StepId& id) {
    const Step& one = step(id);
    State& mine = state(id);
    mine.begun = true;
    if (one.kind == StepKind::kCopy || one.kind == StepKind::kReduce) {
      carry_out(id, id);
      finish(id);
      return;
    }
    State& other = state(mine.partner);
    if (!other.begun) {
      return;
    }
    const bool is_send = one.kind == StepKind::kSend;
    const StepId from = is_send ? id : mine.partner;
    const StepId to = is_send ? mine.partner : id;
    carry_out(from, to);
    mine.level = other.level = std::max(mine.level, other.level) + 1;
    report_.rounds = std::max(report_.rounds, mine.level);
    Bits& sender = known(from);
    Bits& receiver = known(to);
    receiver.add(sender);
    report_.sent[static_cast<std::size_t>(from.rank)] += one.count();
    report_.received[static_cast<std::size_t>(to.rank)] += one.count();
    ++report_.messages[static_cast<std::size_t>(from.rank)];
    finish(from);
    finish(to);
  }
  Bits& known(const StepId& id) { return known_[static_cast<std::size_t>(id.rank)][id.step]; }

  void carry_out(const StepId& from, const StepId& to) {
    const Step& source = step(from);
    const Step& sink = step(to);
    if (source.count() == 0) {
      return;
    }
    auto pieces =
        contents(from.rank, source.source.buffer).read(source.source.offset, source.source.count);
    if (!pieces) {
      error(name(from) + " reads what was never written");
      return;
    }
    Contents& target = contents(to.rank, sink.destination.buffer);
    if (sink.kind == StepKind::kReduce) {
      const auto old = target.read(sink.destination.offset, sink.destination.count);
      pieces = old ? join(*old, *pieces) : std::nullopt;
      if (!pieces) {
        error(name(to) + " combines what was never written, other elements, or a rank twice");
        return;
      }
    }
    target.write(sink.destination.offset, *pieces);
  }

  std::optional<Pieces> join(const Pieces& a, const Pieces& b) {
    Pieces joined;
    std::size_t i = 0;
    std::size_t j = 0;
    std::uint64_t from_a = 0;
    std::uint64_t from_b = 0;
    while (i < a.size() && j < b.size()) {
      const std::uint64_t many = std::min(a[i].count - from_a, b[j].count - from_b);
      const auto set = sets_.join(a[i].set, b[j].set);
      if (!set || a[i].origin + from_a != b[j].origin + from_b) {
        return std::nullopt;
      }
      append(&joined, {many, *set, a[i].origin + from_a});
      from_a += many;
      from_b += many;
      if (from_a == a[i].count) {
        ++i;
        from_a = 0;
      }
      if (from_b == b[j].count) {
        ++j;
        from_b = 0;
      }
    }
    return joined;
  }

  Contents& contents(int rank, Buffer buffer) {
    return memories_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(buffer)];
  }

  void finish(const StepId& id) {
    State& mine = state(id);
    mine.done = true;
    for (const std::uint32_t number : mine.followers) {
      const StepId next{id.rank, number};
      State& follower = state(next);
      follower.level = std::max(follower.level, mine.level);
      known(next).add(known(id));
      if (--follower.waits_for == 0) {
        ready_.push_back(next);
      }
    }
  }

  void check_all_done() {
    for_each([&](const StepId& id, const Step&) {
      if (state(id).begun && !state(id).done) {
        error(name(id) + " never completes: its partner, " + name(state(id).partner) +
              ", waits for something else");
      }
    });
  }

  void check_outputs() {
    for (int rank = 0; rank < problem_.ranks; ++rank) {
      const Pieces wanted = expected_output(problem_, rank, sets_.all());
      std::uint64_t count = 0;
      for (const Piece& piece : wanted) {
        count += piece.count;
      }
      Region region{Buffer::kOutput, 0, 0};
      const auto alias = alias_of(problem_, rank);
      if (in_place_ && alias && alias->region.buffer == Buffer::kOutput) {
        region = alias->is;
      }
      const auto found = contents(rank, region.buffer).read(region.offset, count);
      if (!found || !equal(*found, wanted)) {
        error("rank " + std::to_string(rank) + ": the output is not what " +
              select::to_string(problem_.collective) + " says");
      }
    }
  }

  void check_barrier() {
    if (problem_.collective != Collective::kBarrier) {
      return;
    }
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
      Bits heard(programs_.size());
      heard.set(rank);
      for (const Bits& at_step : known_[rank]) {
        heard.add(at_step);
      }
      for (std::size_t peer = 0; peer < programs_.size(); ++peer) {
        if (!heard.has(peer)) {
          error("rank " + std::to_string(rank) +
                " leaves the barrier without having heard of rank " + std::to_string(peer));
        }
      }
    }
  }

  const Problem& problem_;
  const std::vector<Program>& programs_;
  bool in_place_;
  Report& report_;
  Sets sets_;
  std::vector<std::vector<State>> states_;
  std::vector<std::array<Contents, 3>> memories_;
  std::vector<std::vector<Bits>> known_;  ///< Ranks whose start each step has heard of.
  std::vector<StepId> ready_;
};

bool overlaps(const Region& a, const Region& b) {
  return a.count > 0 && b.count > 0 && a.buffer == b.buffer && a.offset < b.end() &&
         b.offset < a.end();
}

const Region* read_region(const Step& step) {
  return step.kind == StepKind::kRecv ? nullptr : &step.source;
}
const Region* written_region(const Step& step) {
  return step.kind == StepKind::kSend ? nullptr : &step.destination;
}

/// The later and the earlier of two steps of which one writes what the other reads or writes.
using Conflict = std::pair<std::size_t, std::size_t>;

/// All of a program whose earlier step is not among those that come `before` the later, by number.
std::vector<Conflict> conflicts_of(const Program& program, const std::vector<Bits>& before) {
  struct Use {
    const Region* region;
    std::size_t step;
    bool writes;
  };
  std::vector<Use> uses;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    if (const Region* read = read_region(program.steps[i])) {
      uses.push_back({read, i, false});
    }
    if (const Region* written = written_region(program.steps[i])) {
      uses.push_back({written, i, true});
    }
  }
  // By their places in memory, so that what overlaps stands close together.
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    return std::tie(a.region->buffer, a.region->offset, a.step) <
           std::tie(b.region->buffer, b.region->offset, b.step);
  });
  std::vector<Conflict> conflicts;
  for (auto a = uses.begin(); a != uses.end(); ++a) {
    for (auto b = a + 1; b != uses.end() && b->region->buffer == a->region->buffer &&
                         b->region->offset < a->region->end();
         ++b) {
      const auto [earlier, later] = std::minmax(a->step, b->step);
      if (earlier != later && (a->writes || b->writes) && !before[later].has(earlier) &&
          overlaps(*a->region, *b->region)) {
        conflicts.emplace_back(later, earlier);
      }
    }
  }
  std::sort(conflicts.begin(), conflicts.end());
  conflicts.erase(std::unique(conflicts.begin(), conflicts.end()), conflicts.end());
  return conflicts;
}

}  // namespace

std::string describe(int rank, std::size_t number, const Step& step) {
  std::string what;
  switch (step.kind) {
    case StepKind::kSend:
      what = "send of " + text(step.source) + " to " + std::to_string(step.peer) + ", tag " +
             std::to_string(step.tag);
      break;
    case StepKind::kRecv:
      what = "receive of " + text(step.destination) + " from " + std::to_string(step.peer) +
             ", tag " + std::to_string(step.tag);
      break;
    case StepKind::kCopy:
      what = "copy of " + text(step.source) + " to " + text(step.destination);
      break;
    case StepKind::kReduce:
      what = "reduction of " + text(step.source) + " into " + text(step.destination);
      break;
  }
  return "rank " + std::to_string(rank) + ", step " + std::to_string(number) + " (" + what + ")";
}

std::vector<std::string> validate_local(const Problem& problem, int rank, const Program& program) {
  std::vector<std::string> errors;
  auto error = [&](std::size_t number, const std::string& what) {
    if (errors.size() < kErrorsMax) {
      errors.push_back(describe(rank, number, program.steps[number]) + what);
    }
  };
  const std::uint64_t sizes[] = {input_count(problem, rank), output_count(problem, rank),
                                 program.scratch_count};
  const std::size_t steps = program.steps.size();
  std::vector<Bits> before(steps, Bits(steps));
  for (std::size_t i = 0; i < steps; ++i) {
    for (const std::uint32_t earlier : program.dependencies_of(program.steps[i])) {
      if (earlier < i) {
        before[i].set(earlier);
        before[i].add(before[earlier]);
      }
    }
  }
  const auto conflicts = conflicts_of(program, before);
  auto next = conflicts.begin();
  for (std::size_t i = 0; i < steps; ++i) {
    const Step& step = program.steps[i];
    for (const Region* region : {read_region(step), written_region(step)}) {
      if (region != nullptr && (region->end() < region->offset ||
                                region->end() > sizes[static_cast<std::size_t>(region->buffer)])) {
        error(i, " leaves the buffer");
      }
    }
    if (written_region(step) != nullptr && step.count() > 0 &&
        step.destination.buffer == Buffer::kInput) {
      error(i, " writes to the input");
    }
    const bool is_message = step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
    if (is_message && (step.peer < 0 || step.peer >= problem.ranks || step.peer == rank)) {
      error(i, " names no other rank");
    }
    if (!is_message && step.source.count != step.destination.count) {
      error(i, " has two sizes");
    }
    for (const std::uint32_t earlier : program.dependencies_of(step)) {
      if (earlier >= i) {
        error(i, " depends on a later step");
      }
    }
    for (; next != conflicts.end() && next->first == i; ++next) {
      const std::size_t j = next->second;
      error(i, " may run while " + describe(rank, j, program.steps[j]) + " does");
    }
  }
  return errors;
}

Report validate(const Problem& problem, const std::vector<Program>& programs, bool in_place) {
  Report report;
  if (programs.size() != static_cast<std::size_t>(problem.ranks)) {
    report.errors.push_back(std::to_string(programs.size()) + " programs for " +
                            std::to_string(problem.ranks) + " ranks");
    return report;
  }
  auto check = [&](int rank, const Program& program) {
    auto errors = validate_local(problem, rank, program);
    std::move(errors.begin(), errors.end(), std::back_inserter(report.errors));
  };
  std::vector<Program> named;  // As they are in place.
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const Program& program = programs[static_cast<std::size_t>(rank)];
    const auto alias = alias_of(problem, rank);
    if (!in_place || !alias) {
      check(rank, program);
      if (in_place) {
        named.push_back(program);
      }
    } else {
      check(rank, named.emplace_back(with_alias(program, *alias)));
    }
  }
  if (report.ok()) {
    Execution(problem, in_place ? named : programs, in_place, &report).run();
  }
  return report;
}

std::vector<std::uint64_t> network_out(const std::vector<Program>& programs,
                                       const topology::Layout& layout) {
  std::vector<std::uint64_t> out(static_cast<std::size_t>(layout.nodes()));
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const int node = layout.node_of[rank];
    for (const Step& step : programs[rank].steps) {
      if (step.kind == StepKind::kSend &&
          layout.node_of[static_cast<std::size_t>(step.peer)] != node) {
        out[static_cast<std::size_t>(node)] += step.count();
      }
    }
  }
  return out;
}

}  // namespace tutti::schedule
