// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/summary.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

namespace tutti::engine {
namespace {

/// Upper bounds of the size classes, bytes. The class after the last is of sizes that not every
/// rank knows.
constexpr std::array<Bytes, 9> kClassBytesMax = {0,       64,       1 << 10, 16 << 10, 256 << 10,
                                                 4 << 20, 64 << 20, 1 << 30, kBytesMax};

std::string class_name(std::size_t index) {
  if (index == kClassBytesMax.size()) {
    return "unknown";
  }
  if (index == 0) {
    return "0";
  }
  return index + 1 == kClassBytesMax.size() ? "> " + format_bytes(kClassBytesMax[index - 1])
                                            : "<= " + format_bytes(kClassBytesMax[index]);
}

struct Row {
  std::string collective;
  std::string bytes;
  std::string plan;
  std::uint64_t calls = 0;
  std::uint64_t elapsed_ns = 0;
};

std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

}  // namespace

Summary::Cell* Summary::cell(select::Collective collective, std::optional<Bytes> bytes,
                             const std::string& plan) {
  std::size_t index = kClassBytesMax.size();
  if (bytes) {
    index = static_cast<std::size_t>(
        std::lower_bound(kClassBytesMax.begin(), kClassBytesMax.end(), *bytes) -
        kClassBytesMax.begin());
  }
  const std::lock_guard lock(mutex_);
  return &cells_[{collective, index, plan}];
}

std::string Summary::table(int rank, int ranks) const {
  std::vector<Row> rows;
  Row sum{.collective = "all", .bytes = "", .plan = ""};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, cell] : cells_) {
      const auto& [collective, index, plan] = key;
      Row row{select::to_string(collective), class_name(index), plan, cell.calls.load(),
              cell.elapsed_ns.load()};
      if (row.calls == 0) {
        continue;  // A route that was chosen for a call that then failed.
      }
      sum.calls += row.calls;
      sum.elapsed_ns += row.elapsed_ns;
      rows.push_back(std::move(row));
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.elapsed_ns > b.elapsed_ns; });
  rows.push_back(std::move(sum));

  using Line = std::array<std::string, 6>;
  std::vector<Line> lines = {{"collective", "bytes", "plan", "calls", "seconds", "us/call"}};
  for (const Row& row : rows) {
    const auto elapsed_ns = static_cast<double>(row.elapsed_ns);
    const double calls = static_cast<double>(std::max<std::uint64_t>(row.calls, 1));
    lines.push_back({row.collective, row.bytes, row.plan, std::to_string(row.calls),
                     fixed(elapsed_ns / 1e9, 6), fixed(elapsed_ns / 1e3 / calls, 2)});
  }
  std::array<std::size_t, 6> widths{};
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text = "tutti summary: blocking collectives of rank " + std::to_string(rank) +
                     " of " + std::to_string(ranks) + "; bytes as plan lists count them\n";
  constexpr std::size_t kFirstNumber = 3;
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - line[i].size(), ' ');
      text += "  " + (i < kFirstNumber ? line[i] + blanks : blanks + line[i]);
    }
    text += '\n';
  }
  return text;
}

void TimedCall::finish() noexcept {
  const std::uint64_t elapsed_ns = monotonic_ns() - start_ns_;
  try {
    Summary::Cell* const current = Summary::current();
    Summary::Cell* const cell =
        current != nullptr ? current : summary_->cell(collective_, Bytes{0}, "native");
    cell->calls.fetch_add(1, std::memory_order_relaxed);
    cell->elapsed_ns.fetch_add(elapsed_ns, std::memory_order_relaxed);
  } catch (...) {
    Summary::current() = nullptr;  // No memory for a row: the call went well, and is not counted.
  }
}

}  // namespace tutti::engine
