// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/goal.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/message.hpp"

namespace tutti::simulate {
namespace {

constexpr std::uint32_t kRanksMax = 1 << 20;
constexpr std::uint64_t kBytesMaxMessage = 1ULL << 40;  // The transport's own limit.
/// Eleven days, of all pauses of a rank together: 64 bits of picoseconds hold 213.
constexpr std::uint64_t kCalcNsMax = 1'000'000'000'000'000;
constexpr std::size_t kNamesMax = 4;  // Of a circle, in an error.

struct Token {
  std::string_view text;
  int line = 0;
};

bool is_punctuation(char c) { return c == '{' || c == '}' || c == ':' || c == ';'; }

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// Words and { } : ; without blanks and comments (//, #, C's own).
std::vector<Token> tokens(std::string_view text) {
  std::vector<Token> found;
  int line = 1;
  const auto starts = [&](std::size_t at, std::string_view with) {
    return text.substr(at, with.size()) == with;
  };
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\n') {
      ++line;
    }
    if (is_space(c)) {
      ++at;
    } else if (c == '#' || starts(at, "//")) {
      at = std::min(text.find('\n', at), text.size());
    } else if (starts(at, "/*")) {
      const std::size_t end = std::min(text.find("*/", at + 2), text.size());
      for (; at < end; ++at) {
        line += text[at] == '\n' ? 1 : 0;
      }
      at = std::min(at + 2, text.size());
    } else if (is_punctuation(c)) {
      found.push_back({text.substr(at++, 1), line});
    } else {
      const std::size_t begin = at;
      while (at < text.size() && !is_space(text[at]) && !is_punctuation(text[at])) {
        ++at;
      }
      found.push_back({text.substr(begin, at - begin), line});
    }
  }
  return found;
}

class Parser {
 public:
  Parser(const std::string& text, const std::string& file) : file_(file), tokens_(tokens(text)) {}

  Result<Workload> parse() {
    TUTTI_RETURN_IF_ERROR(expect("num_ranks"));
    TUTTI_ASSIGN_OR_RETURN(const std::uint64_t ranks, number("the number of ranks"));
    if (ranks < 1 || ranks > kRanksMax) {
      return error("the number of ranks must be 1 to " + std::to_string(kRanksMax));
    }
    workload_.hosts.resize(ranks);
    while (at_ < tokens_.size()) {
      TUTTI_RETURN_IF_ERROR(rank());
    }
    TUTTI_RETURN_IF_ERROR(check_pairs());
    return std::move(workload_);
  }

 private:
  /// `later` waits for `earlier`, of one block.
  struct Link {
    std::uint32_t earlier = 0;
    std::uint32_t later = 0;
    int line = 0;
  };

  /// A send or a receive, as one end of a message.
  struct End {
    std::uint32_t src = 0;
    std::uint32_t dst = 0;
    std::uint32_t tag = 0;
    bool is_receive = false;
    std::uint64_t bytes = 0;
    int line = 0;

    auto order() const { return std::tuple(src, dst, tag, is_receive, bytes, line); }
    bool is_with(const End& other) const {
      return src == other.src && dst == other.dst && tag == other.tag;
    }
  };

  Status rank() {
    TUTTI_RETURN_IF_ERROR(expect("rank"));
    TUTTI_ASSIGN_OR_RETURN(const std::uint64_t rank, peer());
    rank_ = static_cast<std::uint32_t>(rank);
    work_ = &workload_.hosts[rank];
    first_op_ = static_cast<std::uint32_t>(work_->ops.size());
    labels_.clear();
    links_.clear();
    calc_ns_ = 0;
    TUTTI_RETURN_IF_ERROR(expect("{"));
    while (!take("}")) {
      TUTTI_RETURN_IF_ERROR(statement());
      take(";");
    }
    return check_order();
  }

  Status statement() {
    if (at_ >= tokens_.size()) {
      return error("the file ends within a rank; a '}' is missing");
    }
    const Token first = tokens_[at_];
    const std::string_view next = at_ + 1 < tokens_.size() ? tokens_[at_ + 1].text : "";
    if (next == "requires" || next == "irequires") {
      return dependency(next == "irequires");
    }
    if (next != ":") {
      return operation().status();
    }
    at_ += 2;
    TUTTI_ASSIGN_OR_RETURN(const std::uint32_t index, operation());
    if (!labels_.emplace(std::string(first.text), index).second) {
      return error("label " + in_quotes(first.text) + " stands twice", first.line);
    }
    return {};
  }

  Status dependency(bool starts_only) {
    const int line = tokens_[at_].line;
    TUTTI_ASSIGN_OR_RETURN(const std::uint32_t later, label());
    ++at_;
    TUTTI_ASSIGN_OR_RETURN(const std::uint32_t earlier, label());
    (starts_only ? work_->begins : work_->after).emplace_back(earlier, later);
    links_.push_back({earlier, later, line});
    return {};
  }

  Result<std::uint32_t> operation() {
    Operation op;
    const int line = at_ < tokens_.size() ? tokens_[at_].line : 0;
    if (take("calc")) {
      TUTTI_ASSIGN_OR_RETURN(const std::uint64_t wait_ns, number("nanoseconds", kCalcNsMax));
      op = {.kind = OperationKind::kWait, .wait_ps = wait_ns * kPsPerNs};
      calc_ns_ += wait_ns;
      if (calc_ns_ > kCalcNsMax) {
        return error("the calcs of rank " + std::to_string(rank_) + " come to more than " +
                     std::to_string(kCalcNsMax) + " ns; scale the trace down");
      }
    } else if (take("send")) {
      op.kind = OperationKind::kSend;
      TUTTI_RETURN_IF_ERROR(message("to", &op));
    } else if (take("recv")) {
      op.kind = OperationKind::kReceive;
      TUTTI_RETURN_IF_ERROR(message("from", &op));
    } else {
      return error("expected send, recv, calc or a dependency, found " + found());
    }
    for (;;) {
      if (take("tag")) {
        TUTTI_ASSIGN_OR_RETURN(const std::uint64_t tag, number("a tag", UINT32_MAX));
        op.tag = static_cast<std::uint32_t>(tag);
      } else if (take("cpu") || take("nic")) {
        TUTTI_RETURN_IF_ERROR(number("an index").status());
      } else {
        add_end(op, line);
        return work_->add(op);
      }
    }
  }

  Status message(std::string_view direction, Operation* op) {
    TUTTI_ASSIGN_OR_RETURN(op->bytes, number("a size such as 1024b", kBytesMaxMessage));
    TUTTI_RETURN_IF_ERROR(expect(direction));
    TUTTI_ASSIGN_OR_RETURN(const std::uint64_t rank, peer());
    op->peer = static_cast<std::uint32_t>(rank);
    if (&workload_.hosts[rank] == work_) {
      return error("a rank cannot " + std::string(direction == "to" ? "send to" : "receive from") +
                   " itself");
    }
    return {};
  }

  void add_end(const Operation& op, int line) {
    const bool is_receive = op.kind == OperationKind::kReceive;
    if (op.kind != OperationKind::kWait) {
      ends_.push_back({.src = is_receive ? op.peer : rank_,
                       .dst = is_receive ? rank_ : op.peer,
                       .tag = op.tag,
                       .is_receive = is_receive,
                       .bytes = op.bytes,
                       .line = line});
    }
  }

  // A circle among one rank's operations could never end. Takes away whatever waits for nothing
  // that is left; what stays is circles and what waits for them.
  Status check_order() {
    const std::size_t count = work_->ops.size() - first_op_;
    std::vector<std::uint32_t> missing(count);
    std::vector<std::vector<std::uint32_t>> successors(count);
    for (const Link& link : links_) {
      ++missing[link.later - first_op_];
      successors[link.earlier - first_op_].push_back(link.later - first_op_);
    }
    std::vector<std::uint32_t> ready;
    for (std::uint32_t at = 0; at < count; ++at) {
      if (missing[at] == 0) {
        ready.push_back(at);
      }
    }
    for (std::size_t i = 0; i < ready.size(); ++i) {
      for (const std::uint32_t later : successors[ready[i]]) {
        if (--missing[later] == 0) {
          ready.push_back(later);
        }
      }
    }
    return ready.size() == count ? Status() : circle(missing);
  }

  /// Names one circle among the operations of the block for which something is missing.
  Status circle(const std::vector<std::uint32_t>& missing) const {
    std::vector<const Link*> link_of(missing.size());  // Any to one that stays, too.
    const Link* at = nullptr;
    for (const Link& link : links_) {
      if (missing[link.later - first_op_] > 0 && missing[link.earlier - first_op_] > 0) {
        at = link_of[link.later - first_op_] = &link;
      }
    }
    // As many steps as there are operations end on a circle, wherever they began.
    for (std::size_t step = 0; step < missing.size(); ++step) {
      at = link_of[at->earlier - first_op_];
    }
    std::string names;
    int line = 0;
    std::size_t length = 0;
    const Link* const begin = at;
    do {
      if (length++ < kNamesMax) {
        names += in_quotes(label_of(at->later)) + " waits for ";
      }
      line = std::max(line, at->line);
      at = link_of[at->earlier - first_op_];
    } while (at != begin);
    names += length > kNamesMax ? "... for " : "";
    return error("rank " + std::to_string(rank_) + ": " + names + in_quotes(label_of(at->later)) +
                     ", a circle that can never begin; remedy: take one of its 'requires' out",
                 line);
  }

  std::string label_of(std::uint32_t index) const {
    for (const auto& [label, op] : labels_) {
      if (op == index) {
        return label;
      }
    }
    return {};
  }

  // Per source, destination and tag the sends and receives have the same sizes. Which send meets
  // which receive is decided by the order in which they begin, so sizes are compared as a set.
  Status check_pairs() {
    std::sort(ends_.begin(), ends_.end(),
              [](const End& a, const End& b) { return a.order() < b.order(); });
    for (std::size_t first = 0; first < ends_.size();) {
      std::size_t receive = first;
      while (receive < ends_.size() && ends_[receive].is_with(ends_[first]) &&
             !ends_[receive].is_receive) {
        ++receive;
      }
      std::size_t last = receive;
      while (last < ends_.size() && ends_[last].is_with(ends_[first])) {
        ++last;
      }
      const std::span all(ends_);
      TUTTI_RETURN_IF_ERROR(
          check_pair(all.subspan(first, receive - first), all.subspan(receive, last - receive)));
      first = last;
    }
    return {};
  }

  Status check_pair(std::span<const End> sends, std::span<const End> receives) const {
    if (sends.size() != receives.size()) {
      // Where the longer side ends is where something is too many, or missing opposite.
      const std::span<const End> longer = sends.size() > receives.size() ? sends : receives;
      const End& end = *std::max_element(longer.begin(), longer.end(),
                                         [](auto& a, auto& b) { return a.line < b.line; });
      return error(way(end) + ": " + std::to_string(sends.size()) + " sends and " +
                       std::to_string(receives.size()) + " receives; remedy: a " +
                       (end.is_receive ? "send" : "recv") + " in rank " +
                       std::to_string(end.is_receive ? end.src : end.dst) + " for each " +
                       (end.is_receive ? "recv" : "send") + " in rank " +
                       std::to_string(end.is_receive ? end.dst : end.src),
                   end.line);
    }
    for (std::size_t i = 0; i < sends.size(); ++i) {
      if (sends[i].bytes != receives[i].bytes) {
        return error(way(sends[i]) + ": a send of " + std::to_string(sends[i].bytes) +
                         " bytes (line " + std::to_string(sends[i].line) + ") and a receive of " +
                         std::to_string(receives[i].bytes) + "; remedy: equal sizes",
                     receives[i].line);
      }
    }
    return {};
  }

  static std::string way(const End& end) {
    return "rank " + std::to_string(end.src) + " to rank " + std::to_string(end.dst) + ", tag " +
           std::to_string(end.tag);
  }

  Result<std::uint64_t> peer() {
    TUTTI_ASSIGN_OR_RETURN(const std::uint64_t rank, number("a rank"));
    if (rank >= workload_.hosts.size()) {
      return error("rank " + std::to_string(rank) + " is not below num_ranks " +
                   std::to_string(workload_.hosts.size()));
    }
    return rank;
  }

  Result<std::uint32_t> label() {
    const auto known =
        at_ < tokens_.size() ? labels_.find(std::string(tokens_[at_].text)) : labels_.end();
    if (known == labels_.end()) {
      return error("no label " + found() + " above");
    }
    ++at_;
    return known->second;
  }

  /// Digits, and for sizes a "b" behind them.
  Result<std::uint64_t> number(const std::string& what, std::uint64_t max = UINT64_MAX) {
    std::uint64_t value = 0;
    if (at_ < tokens_.size()) {
      const std::string_view text = tokens_[at_].text;
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
      const std::string_view rest(parsed.ptr, text.data() + text.size());
      if (parsed.ec == std::errc() && (rest.empty() || rest == "b")) {
        if (value > max) {
          return error(what + ": " + std::string(text) + " is over " + std::to_string(max));
        }
        ++at_;
        return value;
      }
    }
    return error("expected " + what + ", found " + found());
  }

  bool take(std::string_view text) {
    const bool is_next = at_ < tokens_.size() && tokens_[at_].text == text;
    at_ += is_next ? 1 : 0;
    return is_next;
  }

  Status expect(std::string_view text) {
    return take(text) ? Status() : error("expected " + in_quotes(text) + ", found " + found());
  }

  std::string found() const {
    return at_ < tokens_.size() ? in_quotes(tokens_[at_].text) : "the end of the file";
  }

  /// `line` 0: where the next word is.
  Status error(const std::string& what, int line = 0) const {
    if (line == 0) {
      line = tokens_.empty() ? 1 : tokens_[std::min(at_, tokens_.size() - 1)].line;
    }
    return {ErrorCode::kInvalidArgument, file_ + ":" + std::to_string(line) + ": " + what};
  }

  std::string file_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Workload workload_;
  HostWork* work_ = nullptr;
  std::uint32_t rank_ = 0;
  std::uint64_t calc_ns_ = 0;                    ///< Of the rank so far.
  std::uint32_t first_op_ = 0;                   ///< Of the block; a rank may have several.
  std::map<std::string, std::uint32_t> labels_;  ///< Of the block.
  std::vector<Link> links_;                      ///< Of the block, of both kinds.
  std::vector<End> ends_;                        ///< Of all ranks.
};

}  // namespace

Result<Workload> parse_goal(const std::string& text, const std::string& file) {
  return Parser(text, file).parse();
}

}  // namespace tutti::simulate
