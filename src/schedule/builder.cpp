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
    add({.kind = StepKind::kSend, .peer = peer, .tag = sent_[peer]++, .source = from});
  }
}

void Builder::recv(int peer, const Region& into) {
  if (into.count > 0) {
    add({.kind = StepKind::kRecv, .peer = peer, .tag = received_[peer]++, .destination = into});
  }
}

void Builder::copy(const Region& from, const Region& to) {
  CHECK(from.count == to.count, std::to_string(from.count) + " to " + std::to_string(to.count));
  if (from.count > 0 && from != to) {
    add({.kind = StepKind::kCopy, .source = from, .destination = to});
  }
}

void Builder::reduce(const Region& from, const Region& into) {
  CHECK(from.count == into.count, std::to_string(from.count) + " to " + std::to_string(into.count));
  if (from.count > 0) {
    add({.kind = StepKind::kReduce, .source = from, .destination = into});
  }
}

Region Builder::scratch(std::uint64_t count) {
  const Region taken{Buffer::kScratch, program_.scratch_count, count};
  program_.scratch_count += count;
  return taken;
}

Program Builder::finish() && { return std::move(program_); }

Builder::Stretches::iterator Builder::split(Stretches& stretches, std::uint64_t at) {
  auto next = stretches.lower_bound(at);
  if (next != stretches.begin()) {
    auto before = std::prev(next);
    if (before->second.end > at) {
      Stretch right = before->second;
      before->second.end = at;
      next = stretches.emplace_hint(next, at, std::move(right));
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
  auto at = split(stretches, region.offset);
  split(stretches, region.end());
  std::uint64_t from = region.offset;
  auto fresh = [&](std::uint64_t begin, std::uint64_t end) {
    Stretch stretch{.end = end, .writer = writes ? std::int64_t{step} : -1, .readers = {}};
    if (!writes) {
      stretch.readers.push_back(step);
    }
    stretches.emplace_hint(at, begin, std::move(stretch));
  };
  at = stretches.lower_bound(region.offset);
  while (at != stretches.end() && at->first < region.end()) {
    if (from < at->first) {
      fresh(from, at->first);
    }
    Stretch& stretch = at->second;
    if (stretch.writer >= 0) {
      waits_for->push_back(static_cast<std::uint32_t>(stretch.writer));
    }
    if (writes) {
      waits_for->insert(waits_for->end(), stretch.readers.begin(), stretch.readers.end());
      stretch.writer = step;
      stretch.readers.clear();
    } else {
      stretch.readers.push_back(step);
    }
    from = stretch.end;
    ++at;
  }
  if (from < region.end()) {
    fresh(from, region.end());
  }
}

void Builder::add(Step step) {
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
  std::sort(waits_for_.begin(), waits_for_.end());
  waits_for_.erase(std::unique(waits_for_.begin(), waits_for_.end()), waits_for_.end());
  // A reduction reads and writes its destination: its own number may have come in.
  std::erase(waits_for_, number);
  step.first_dependency = static_cast<std::uint32_t>(program_.dependencies.size());
  step.dependency_count = static_cast<std::uint32_t>(waits_for_.size());
  program_.dependencies.insert(program_.dependencies.end(), waits_for_.begin(), waits_for_.end());
  program_.steps.push_back(step);
}

void Builder::send_token(int peer) {
  add({.kind = StepKind::kSend, .peer = peer, .tag = sent_[peer]++});
}

void Builder::recv_token(int peer) {
  add({.kind = StepKind::kRecv, .peer = peer, .tag = received_[peer]++});
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
    part.tag = sent_[step.peer]++;
  } else if (step.kind == StepKind::kRecv) {
    part.tag = received_[step.peer]++;
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
