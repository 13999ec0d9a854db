// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/goal.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/message.hpp"

namespace tutti::simulate {
namespace {

constexpr std::uint32_t kRanksMax = 1 << 20;

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
    return std::move(workload_);
  }

 private:
  struct Begins {
    std::uint32_t later;
    std::uint32_t earlier;
  };

  Status rank() {
    TUTTI_RETURN_IF_ERROR(expect("rank"));
    TUTTI_ASSIGN_OR_RETURN(const std::uint64_t rank, peer());
    work_ = &workload_.hosts[rank];
    labels_.clear();
    begins_.clear();
    TUTTI_RETURN_IF_ERROR(expect("{"));
    while (!take("}")) {
      TUTTI_RETURN_IF_ERROR(statement());
      take(";");
    }
    // A statement that has begun has everything that it requires behind it.
    const std::vector<std::pair<std::uint32_t, std::uint32_t>> required = work_->after;
    for (const Begins& link : begins_) {
      for (const auto& [earlier, later] : required) {
        if (later == link.earlier) {
          work_->after.emplace_back(earlier, link.later);
        }
      }
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
    TUTTI_ASSIGN_OR_RETURN(const std::uint32_t later, label());
    ++at_;
    TUTTI_ASSIGN_OR_RETURN(const std::uint32_t earlier, label());
    if (later == earlier) {
      return error("a label requires itself");
    }
    if (starts_only) {
      begins_.push_back({later, earlier});
    } else {
      work_->after.emplace_back(earlier, later);
    }
    return {};
  }

  Result<std::uint32_t> operation() {
    Op op;
    if (take("calc")) {
      TUTTI_ASSIGN_OR_RETURN(const std::uint64_t wait_ns, number("nanoseconds"));
      op = {.kind = OpKind::kWait, .wait_ps = wait_ns * kPsPerNs};
    } else if (take("send")) {
      op.kind = OpKind::kSend;
      TUTTI_RETURN_IF_ERROR(message("to", &op));
    } else if (take("recv")) {
      op.kind = OpKind::kReceive;
      TUTTI_RETURN_IF_ERROR(message("from", &op));
    } else {
      return error("expected send, recv, calc or a dependency, found " + found());
    }
    for (;;) {
      if (take("tag")) {
        TUTTI_ASSIGN_OR_RETURN(const std::uint64_t tag, number("a tag"));
        op.tag = static_cast<std::uint32_t>(tag);
      } else if (take("cpu") || take("nic")) {
        TUTTI_RETURN_IF_ERROR(number("an index").status());
      } else {
        return work_->add(op);
      }
    }
  }

  Status message(std::string_view direction, Op* op) {
    TUTTI_ASSIGN_OR_RETURN(op->bytes, number("a size such as 1024b"));
    TUTTI_RETURN_IF_ERROR(expect(direction));
    TUTTI_ASSIGN_OR_RETURN(const std::uint64_t rank, peer());
    op->peer = static_cast<std::uint32_t>(rank);
    if (&workload_.hosts[rank] == work_) {
      return error("a rank cannot " + std::string(direction == "to" ? "send to" : "receive from") +
                   " itself");
    }
    return {};
  }

  // A circle among one rank's operations could never end.
  Status check_order() {
    std::vector<std::uint32_t> missing(work_->ops.size());
    std::vector<std::vector<std::uint32_t>> successors(work_->ops.size());
    for (const auto& [earlier, later] : work_->after) {
      ++missing[later];
      successors[earlier].push_back(later);
    }
    std::vector<std::uint32_t> ready;
    for (std::uint32_t index = 0; index < missing.size(); ++index) {
      if (missing[index] == 0) {
        ready.push_back(index);
      }
    }
    for (std::size_t i = 0; i < ready.size(); ++i) {
      for (const std::uint32_t later : successors[ready[i]]) {
        if (--missing[later] == 0) {
          ready.push_back(later);
        }
      }
    }
    return ready.size() == missing.size() ? Status()
                                          : error("operations of this rank require each other");
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
  Result<std::uint64_t> number(const std::string& what) {
    std::uint64_t value = 0;
    if (at_ < tokens_.size()) {
      const std::string_view text = tokens_[at_].text;
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
      const std::string_view rest(parsed.ptr, text.data() + text.size());
      if (parsed.ec == std::errc() && (rest.empty() || rest == "b")) {
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
  std::map<std::string, std::uint32_t> labels_;
  std::vector<Begins> begins_;  ///< Of irequires.
};

}  // namespace

Result<Workload> parse_goal(const std::string& text, const std::string& file) {
  return Parser(text, file).parse();
}

}  // namespace tutti::simulate
