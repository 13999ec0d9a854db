// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/builder.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.hpp"

namespace tutti::schedule {

void Builder::send(int peer, const Region& from) {
  if (from.count > 0) {
    add({.kind = StepKind::kSend, .peer = peer, .tag = next_tag(&sent_, peer), .source = from});
  }
}

void Builder::recv(int peer, const Region& into) {
  if (into.count > 0) {
    add({.kind = StepKind::kRecv,
         .peer = peer,
         .tag = next_tag(&received_, peer),
         .destination = into});
  }
}

void Builder::copy(const Region& from, const Region& to) {
  CHECK(from.count == to.count, std::to_string(from.count) + " to " + std::to_string(to.count));
  if (from.count == 0) {
    return;
  }
  const Region& source = places_[static_cast<std::size_t>(from.buffer)];
  const Region& destination = places_[static_cast<std::size_t>(to.buffer)];
  if (source.part(from.offset, from.count) != destination.part(to.offset, to.count)) {
    add({.kind = StepKind::kCopy, .source = from, .destination = to});
  }
}

void Builder::reduce(const Region& from, const Region& into) {
  CHECK(from.count == into.count, std::to_string(from.count) + " to " + std::to_string(into.count));
  if (from.count > 0) {
    add({.kind = StepKind::kReduce, .source = from, .destination = into});
  }
}

std::uint32_t Builder::next_tag(std::vector<std::uint32_t>* messages, int peer) {
  const auto at = static_cast<std::size_t>(peer);
  if (at >= messages->size()) {
    messages->resize(at + 1);
  }
  return (*messages)[at]++;
}

Region Builder::scratch(std::uint64_t count) {
  const Region taken{Buffer::kScratch, program_.scratch_count, count};
  program_.scratch_count += count;
  return taken;
}

void Builder::reserve(std::size_t steps) {
  program_.steps.reserve(program_.steps.size() + steps);
  program_.dependencies.reserve(program_.dependencies.size() + steps + steps / 2);
}

Program Builder::finish() && { return std::move(program_); }

Builder::Stretches::iterator Builder::Stretches::from(std::uint64_t at, bool writes) {
  iterator& last = found[writes ? 1 : 0];
  if (empty() || std::prev(end())->first < at) {
    last = end();
    return last;
  }
  constexpr int kNeighbors = 3;
  for (int i = 0; i < kNeighbors && last != end() && last->first < at; ++i) {
    ++last;
  }
  if (last == end() || last->first < at || (last != begin() && std::prev(last)->first >= at)) {
    last = lower_bound(at);
  }
  return last;
}

Builder::Stretches::iterator Builder::split(Stretches& stretches, std::uint64_t at, bool writes) {
  auto next = stretches.from(at, writes);
  if (next != stretches.begin()) {
    auto before = std::prev(next);
    if (before->second.end > at) {
      const Stretch right = before->second;  // Both halves have the same readers: lists are shared.
      before->second.end = at;
      next = stretches.emplace_hint(next, at, right);
    }
  }
  return next;
}

void Builder::touch(const Region& region, bool writes, std::uint32_t step,
                    std::vector<std::uint32_t>* waits_for) {
  if (region.count == 0) {
    return;
  }
  Stretches& stretches = stretches_[static_cast<std::size_t>(region.buffer)];
  const auto visit = [&](Stretch& stretch) {
    if (stretch.writer >= 0) {
      waits_for->push_back(static_cast<std::uint32_t>(stretch.writer));
    }
    if (writes) {
      if (stretch.reader >= 0) {
        waits_for->push_back(static_cast<std::uint32_t>(stretch.reader));
        for (std::uint32_t more = stretch.more; more != kNoReaders;
             more = more_readers_[more].next) {
          waits_for->push_back(more_readers_[more].step);
        }
      }
      stretch.writer = step;
      stretch.reader = -1;
      stretch.more = kNoReaders;
    } else if (stretch.reader < 0) {
      stretch.reader = step;
    } else {
      more_readers_.push_back({.step = step, .next = stretch.more});
      stretch.more = static_cast<std::uint32_t>(more_readers_.size() - 1);
    }
  };
  const auto fresh = [&](Stretches::iterator before, std::uint64_t begin, std::uint64_t end) {
    stretches.emplace_hint(before, begin,
                           Stretch{.end = end,
                                   .writer = writes ? std::int64_t{step} : -1,
                                   .reader = writes ? -1 : std::int64_t{step},
                                   .more = kNoReaders});
  };
  // Most regions are those of an earlier step, or touch none.
  auto at = stretches.from(region.offset, writes);
  if (at != stretches.end() && at->first == region.offset && at->second.end == region.end()) {
    visit(at->second);
    return;
  }
  at = split(stretches, region.offset, writes);
  split(stretches, region.end(), writes);
  std::uint64_t from = region.offset;
  while (at != stretches.end() && at->first < region.end()) {
    if (from < at->first) {
      fresh(at, from, at->first);
    }
    visit(at->second);
    from = at->second.end;
    ++at;
  }
  if (from < region.end()) {
    fresh(at, from, region.end());
  }
}

void Builder::place(const Region& input, const Region& output) {
  places_[0] = input;
  places_[1] = output;
}

void Builder::add(Step step) {
  const auto placed = [&](const Region& region) {
    return places_[static_cast<std::size_t>(region.buffer)].part(region.offset, region.count);
  };
  step.source = placed(step.source);
  step.destination = placed(step.destination);
  const auto number = static_cast<std::uint32_t>(program_.steps.size());
  waits_for_.clear();
  for (std::uint32_t before = fenced_begin_; before < fenced_end_; ++before) {
    waits_for_.push_back(before);
  }
  waits_for_.insert(waits_for_.end(), explicit_.begin(), explicit_.end());
  explicit_.clear();
  for (std::uint32_t before = also_begin_; before < also_end_; ++before) {
    waits_for_.push_back(before);
  }
  if (step.kind != StepKind::kRecv) {
    touch(step.source, false, number, &waits_for_);
  }
  if (step.kind != StepKind::kSend) {
    touch(step.destination, true, number, &waits_for_);
  }
  if (waits_for_.size() > 1) {
    std::sort(waits_for_.begin(), waits_for_.end());
    waits_for_.erase(std::unique(waits_for_.begin(), waits_for_.end()), waits_for_.end());
  }
  // A reduction reads and writes its destination: its own number may have come in.
  std::erase(waits_for_, number);
  step.first_dependency = static_cast<std::uint32_t>(program_.dependencies.size());
  step.dependency_count = static_cast<std::uint32_t>(waits_for_.size());
  program_.dependencies.insert(program_.dependencies.end(), waits_for_.begin(), waits_for_.end());
  program_.steps.push_back(step);
}

void Builder::send_token(int peer) {
  add({.kind = StepKind::kSend, .peer = peer, .tag = next_tag(&sent_, peer)});
}

void Builder::recv_token(int peer) {
  add({.kind = StepKind::kRecv, .peer = peer, .tag = next_tag(&received_, peer)});
}

void Builder::add_part(const Step& step, std::uint64_t from, std::uint64_t count) {
  Step part = step;
  if (step.kind != StepKind::kRecv) {
    part.source = step.source.part(from, count);
  }
  if (step.kind != StepKind::kSend) {
    part.destination = step.destination.part(from, count);
  }
  if (step.kind == StepKind::kSend) {
    part.tag = next_tag(&sent_, step.peer);
  } else if (step.kind == StepKind::kRecv) {
    part.tag = next_tag(&received_, step.peer);
  }
  add(part);
}

void Builder::append(const Program& program, const std::vector<int>& ranks, const Region& input,
                     const Region& output) {
  constexpr std::uint32_t kNone = ~0U;
  const Region bases[] = {input, output, scratch(program.scratch_count)};
  const auto here = [&](const Region& region) {
    const Region& base = bases[static_cast<std::size_t>(region.buffer)];
    return base.part(region.offset, region.count);
  };
  std::vector<std::uint32_t> numbers;  // By step of `program`; kNone: nothing is left of it.
  numbers.reserve(program.steps.size());
  reserve(program.steps.size());
  for (const Step& step : program.steps) {
    Step moved = step;
    moved.source = here(step.source);
    moved.destination = here(step.destination);
    if (step.kind == StepKind::kCopy && moved.source == moved.destination) {
      numbers.push_back(kNone);
      continue;
    }
    if (moved.peer >= 0 && !ranks.empty()) {
      moved.peer = ranks[static_cast<std::size_t>(step.peer)];
    }
    for (const std::uint32_t before : program.dependencies_of(step)) {
      if (numbers[before] != kNone) {
        explicit_.push_back(numbers[before]);
      }
    }
    numbers.push_back(next());
    add_part(moved, 0, step.count());
  }
}

Program Builder::segmented(const Program& program, int segments) {
  Builder builder;
  builder.scratch(program.scratch_count);
  std::vector<std::uint32_t> first;  // By step of `program`: the first of its parts.
  for (const Step& step : program.steps) {
    first.push_back(builder.next());
    const std::uint64_t count = step.count();
    if (count == 0) {
      for (const std::uint32_t before : program.dependencies_of(step)) {
        const std::uint32_t end = before + 1 < first.size() ? first[before + 1] : builder.next();
        for (std::uint32_t part = first[before]; part < end; ++part) {
          builder.explicit_.push_back(part);
        }
      }
      builder.add_part(step, 0, 0);
      continue;
    }
    const auto parts = std::min<std::uint64_t>(count, static_cast<std::uint64_t>(segments));
    for (std::uint64_t part = 0; part < parts; ++part) {
      const std::uint64_t from = count * part / parts;
      for (const std::uint32_t before : program.dependencies_of(step)) {
        if (program.steps[before].count() == 0) {
          builder.explicit_.push_back(first[before]);
        }
      }
      builder.add_part(step, from, count * (part + 1) / parts - from);
    }
  }
  return std::move(builder).finish();
}

void Builder::wait_also(std::uint32_t first, std::uint32_t last) {
  also_begin_ = first;
  also_end_ = last;
}

void Builder::fence() {
  const auto here = static_cast<std::uint32_t>(program_.steps.size());
  if (here > fenced_end_) {
    fenced_begin_ = fenced_end_;
    fenced_end_ = here;
  }
}

}  // namespace tutti::schedule
