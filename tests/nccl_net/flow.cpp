// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "flow.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

namespace tutti::driver {
namespace {

constexpr int kPartsMax = 8;

/// Memory with its registration.
class Buffer {
 public:
  Buffer(const Link& link, std::size_t bytes)
      : link_(link), bytes_(bytes), data_(std::make_unique_for_overwrite<std::byte[]>(bytes + 1)) {
    link_.session->rank.report.check(
        link_.plugin().reg_mr(link_.comm, data_.get(), bytes, nccl_net::abi::kPointerHost,
                              &mhandle_) == Result::kSuccess,
        link_.label() + ": regMr");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { link_.plugin().dereg_mr(link_.comm, mhandle_); }

  std::span<std::byte> bytes() const { return {data_.get(), bytes_}; }
  void* mhandle() const { return mhandle_; }

 private:
  Link link_;
  std::size_t bytes_;
  std::unique_ptr<std::byte[]> data_;
  void* mhandle_ = nullptr;
};

/// Small and large ones as often, and those around which something may break.
std::size_t random_size(const Options& options, std::uint64_t random) {
  if (options.is_fixed_size) {
    return options.bytes_max;
  }
  constexpr std::size_t kSpecial[] = {0,    1,    7,    8,     1471,  1472,
                                      4095, 4096, 4097, 65535, 65536, 65537};
  const std::uint64_t more = mix(random);
  if (random % 4 == 0) {
    return std::clamp(kSpecial[more % std::size(kSpecial)], options.bytes_min, options.bytes_max);
  }
  const int bits = std::bit_width(options.bytes_max);
  const std::size_t limit = std::size_t{1} << (more % static_cast<unsigned>(bits + 1));
  return std::clamp(mix(more) % limit, options.bytes_min, options.bytes_max);
}

class SendFlow : public Flow {
 public:
  using Flow::Flow;

 private:
  std::size_t count() const override { return script_.messages.size(); }

  Result post(std::size_t index, void** request) override {
    const Script::Message& message = script_.messages[script_.send_order[index]];
    if (prepared_ == nullptr) {
      prepared_ = std::make_unique<Buffer>(link_, message.bytes);
      fill(prepared_->bytes(), message.seed);
    }
    *request = &prepared_;  // Has to be overwritten.
    const Result result = plugin().isend(link_.comm, prepared_->bytes().data(), message.bytes,
                                         message.tag, prepared_->mhandle(), request);
    if (result == Result::kSuccess && *request != nullptr) {
      buffers_.push_back(std::move(prepared_));
    }
    return result;
  }

  Result test(std::size_t index, void* request, int* done) override {
    const Script::Message& message = script_.messages[script_.send_order[index]];
    int bytes = -1;
    const bool wants_size = index % 2 == 0;
    const Result result = plugin().test(request, done, wants_size ? &bytes : nullptr);
    if (result == Result::kSuccess && *done != 0) {
      report().check(!wants_size || bytes == static_cast<int>(message.bytes),
                     link_.label() + ": a send of " + std::to_string(message.bytes) +
                         " bytes says " + std::to_string(bytes));
      buffers_.pop_front();
    }
    return result;
  }

  std::unique_ptr<Buffer> prepared_;
  std::deque<std::unique_ptr<Buffer>> buffers_;
};

class ReceiveFlow : public Flow {
 public:
  using Flow::Flow;

 private:
  using Group = std::vector<std::unique_ptr<Buffer>>;

  std::size_t count() const override { return script_.group_begin.size() - 1; }

  std::span<const Script::Message> group(std::size_t index) const {
    const std::size_t begin = script_.group_begin[index];
    return std::span(script_.messages).subspan(begin, script_.group_begin[index + 1] - begin);
  }

  /// Often larger than the message.
  static std::size_t capacity_of(const Script::Message& message) {
    constexpr std::size_t kMore[] = {0, 0, 1, 100, 5000};
    return message.bytes + kMore[message.seed % std::size(kMore)];
  }

  Result post(std::size_t index, void** request) override {
    const std::span<const Script::Message> messages = group(index);
    if (prepared_.empty()) {
      for (const Script::Message& message : messages) {
        prepared_.push_back(std::make_unique<Buffer>(link_, capacity_of(message)));
        const std::span<std::byte> bytes = prepared_.back()->bytes();
        std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(message.bytes), bytes.end(),
                  kUntouched);
      }
    }
    std::array<void*, kPartsMax> data{};
    std::array<std::size_t, kPartsMax> bytes{};
    std::array<int, kPartsMax> tags{};
    std::array<void*, kPartsMax> mhandles{};
    for (std::size_t i = 0; i < messages.size(); ++i) {
      data[i] = prepared_[i]->bytes().data();
      bytes[i] = prepared_[i]->bytes().size();
      tags[i] = messages[i].tag;
      mhandles[i] = prepared_[i]->mhandle();
    }
    const bool hints = plugin().version() >= 9 && messages.size() == 1 && index % 3 == 0;
    *request = hints ? nccl_net::abi::kOptionalCompletion : nullptr;
    const Result result = plugin().irecv(link_.comm, static_cast<int>(messages.size()), data.data(),
                                         bytes.data(), tags.data(), mhandles.data(), request);
    if (result == Result::kSuccess && *request != nullptr) {
      report().check(*request != nccl_net::abi::kOptionalCompletion,
                     link_.label() + ": irecv left *request as it was");
      groups_.push_back(std::move(prepared_));
      prepared_.clear();
    }
    return result;
  }

  Result test(std::size_t index, void* request, int* done) override {
    std::array<int, kPartsMax + 1> bytes;
    bytes.fill(-1);
    const Result result = plugin().test(request, done, bytes.data());
    if (result == Result::kSuccess && *done != 0) {
      check(index, bytes);
      groups_.pop_front();
    }
    return result;
  }

  void check(std::size_t index, std::span<const int> bytes) {
    const std::span<const Script::Message> messages = group(index);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Script::Message& message = messages[i];
      const std::string label = link_.label() + ": receive " + std::to_string(index) + " part " +
                                std::to_string(i) + " of " + std::to_string(message.bytes) +
                                " bytes";
      report().check(bytes[i] == static_cast<int>(message.bytes),
                     label + " says " + std::to_string(bytes[i]));
      const std::span<const std::byte> data = groups_.front()[i]->bytes();
      const std::size_t offset = first_difference(data.first(message.bytes), message.seed);
      report().check(offset == message.bytes, label + " differs at " + std::to_string(offset));
      const std::span<const std::byte> rest = data.subspan(message.bytes);
      report().check(
          std::all_of(rest.begin(), rest.end(), [](std::byte byte) { return byte == kUntouched; }),
          label + " wrote behind its end");
    }
    const std::span<const int> others = bytes.subspan(messages.size());
    report().check(std::all_of(others.begin(), others.end(), [](int size) { return size == -1; }),
                   link_.label() + ": test wrote more sizes than there are parts");
  }

  Group prepared_;
  std::deque<Group> groups_;
};

}  // namespace

Script::Script(const Options& options, const Edge& edge, int group_max) {
  const std::uint64_t seed = mix(options.seed ^ mix(static_cast<std::uint64_t>(edge.from) << 40 ^
                                                    static_cast<std::uint64_t>(edge.to) << 20 ^
                                                    static_cast<std::uint64_t>(edge.channel)));
  std::uint64_t random = seed;
  const auto next = [&] { return random = mix(random); };
  for (int i = 0; i < options.messages; ++i) {
    const std::uint64_t of_size = next();
    messages.push_back({random_size(options, of_size), 0, next()});
  }
  for (std::size_t begin = 0; begin < messages.size();) {
    group_begin.push_back(begin);
    const std::size_t parts =
        std::min(1 + next() % static_cast<unsigned>(group_max), messages.size() - begin);
    // Tags tell the parts apart; later groups use the same ones again.
    std::vector<std::size_t> order(parts);
    std::iota(order.begin(), order.end(), begin);
    for (std::size_t i = 0; i < parts; ++i) {
      messages[begin + i].tag = group_max == 1 ? edge.from : static_cast<int>(10 + i);
      std::swap(order[i], order[i + next() % (parts - i)]);
    }
    send_order.insert(send_order.end(), order.begin(), order.end());
    begin += parts;
  }
  group_begin.push_back(messages.size());
}

void fill(std::span<std::byte> data, std::uint64_t seed) {
  std::size_t offset = 0;
  for (; offset < data.size(); offset += sizeof seed) {
    const std::uint64_t word = mix(seed + offset);
    std::memcpy(data.data() + offset, &word, std::min(sizeof word, data.size() - offset));
  }
}

std::size_t first_difference(std::span<const std::byte> data, std::uint64_t seed) {
  for (std::size_t offset = 0; offset < data.size(); offset += sizeof seed) {
    const std::uint64_t word = mix(seed + offset);
    const std::size_t bytes = std::min(sizeof word, data.size() - offset);
    if (std::memcmp(data.data() + offset, &word, bytes) != 0) {
      const auto* const wanted = reinterpret_cast<const std::byte*>(&word);
      return static_cast<std::size_t>(
          std::mismatch(wanted, wanted + bytes, data.begin() + static_cast<std::ptrdiff_t>(offset))
              .second -
          data.begin());
    }
  }
  return data.size();
}

void Flow::fail(Result result, const char* call) {
  error_ = result;
  if (!expects_errors_) {
    report().check(false, link_.label() + ": " + call + ": " + to_string(result) + " (" +
                              Warnings::last() + ")");
  }
}

bool Flow::step() {
  bool has_moved = false;
  while (error_ == Result::kSuccess && posted_ < count() && requests_.size() < window_) {
    void* request = nullptr;
    const Result result = post(posted_, &request);
    if (result != Result::kSuccess) {
      fail(result, link_.sends ? "isend" : "irecv");
      return true;
    }
    if (request == nullptr) {
      break;
    }
    requests_.push_back(request);
    ++posted_;
    has_moved = true;
  }
  pending_ = requests_.size();
  if (error_ != Result::kSuccess || requests_.empty()) {
    return has_moved;
  }
  int done = 7;  // Has to be overwritten.
  const Result result = test(finished_, requests_.front(), &done);
  if (result != Result::kSuccess) {
    fail(result, "test");
    return true;
  }
  if (done != 0) {
    requests_.pop_front();
    ++finished_;
    has_moved = true;
    if (runs_for_ever_ && finished_ == count()) {
      posted_ = finished_ = 0;
    }
  }
  return has_moved;
}

std::unique_ptr<Flow> make_flow(const Link& link, int group_max) {
  const Options& options = link.session->rank.options;
  Script script(options, link.edge, group_max);
  // A grouped receive ends only when all its parts have been sent.
  const int window = std::max(options.window, group_max);
  if (link.sends) {
    return std::make_unique<SendFlow>(link, std::move(script), window);
  }
  return std::make_unique<ReceiveFlow>(link, std::move(script), options.window);
}

void run(std::span<const std::unique_ptr<Flow>> flows) {
  bool is_busy = true;
  while (is_busy) {
    is_busy = false;
    bool has_moved = false;
    for (const std::unique_ptr<Flow>& flow : flows) {
      has_moved |= flow->step();
      is_busy |= !flow->is_over();
    }
    if (!has_moved) {
      sched_yield();
    }
  }
}

}  // namespace tutti::driver
