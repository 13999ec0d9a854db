// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the ranks of TcpBootstrap say to each other: frames on a TCP connection, 4 bytes of length,
// one of kind, the text. Not who says what when (tcp_bootstrap.cpp).
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/descriptors.hpp"

namespace tutti::net::bootstrap {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

inline constexpr std::size_t kHeadBytes = 5;  ///< 4 of length, 1 of kind.
inline constexpr std::size_t kFrameBytesMax = 1 << 30;
inline constexpr double kWriteS = 10;  ///< Most that a write to a rank waits.

enum class Kind : std::uint8_t {
  kHandshake,  ///< To rank 0: magic, version, rank, ranks, key, who.
  kWelcome,    ///< From rank 0: who it is; all are here.
  kRefusal,    ///< From rank 0, before a welcome: why.
  kText,       ///< To rank 0: a contribution.
  kTexts,      ///< From rank 0: all of them.
  kFailure,    ///< Either way: why the job ends.
  kClose       ///< Either way: an orderly end.
};

struct Frame {
  Kind kind = Kind::kHandshake;
  std::string text;
};

inline Deadline after(double seconds) {
  // A year is for ever; more would overflow the clock.
  const double bounded = seconds <= 0 ? 3.2e7 : std::min(seconds, 3.2e7);
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded));
}

/// For poll(); of a long time only a part. That a poll() came back empty says nothing, then, and
/// one that never does so must not hold anybody up: ask has_passed() in each turn.
inline int left_ms(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<long long>(left.count(), 0, 3'600'000));
}

inline bool has_passed(Deadline deadline) { return Clock::now() >= deadline; }

inline void put(std::string& out, std::uint32_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}
inline void put(std::string& out, const std::string& text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

/// Takes numbers and texts off the front; `is_good` is false from the first that is not there.
struct Reader {
  std::string_view rest;
  bool is_good = true;

  std::string_view bytes(std::size_t count) {
    is_good = is_good && count <= rest.size();
    const std::string_view taken = is_good ? rest.substr(0, count) : std::string_view();
    rest.remove_prefix(taken.size());
    return taken;
  }
  std::uint32_t number() {
    std::uint32_t value = 0;
    if (const std::string_view taken = bytes(sizeof value); is_good) {
      std::memcpy(&value, taken.data(), sizeof value);
    }
    return value;
  }
  std::string text() { return std::string(bytes(number())); }
};

/// One TCP connection as frames. Never blocks but in write().
class Stream {
 public:
  Stream() = default;
  Stream(Descriptor socket, std::size_t frame_bytes_max)
      : socket_(std::move(socket)), frame_bytes_max_(frame_bytes_max) {
    const int one = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }

  int get() const { return socket_.get(); }
  bool is_open() const { return socket_.get() >= 0; }
  void close() { socket_.reset(); }
  void trust() { frame_bytes_max_ = kFrameBytesMax; }

  /// False: the other side is gone, or takes nothing.
  bool write(Kind kind, const std::string& text) {
    std::string bytes;
    put(bytes, static_cast<std::uint32_t>(text.size()));
    bytes += static_cast<char>(kind);
    bytes += text;
    const Deadline deadline = after(kWriteS);
    for (std::size_t offset = 0; offset < bytes.size();) {
      const ssize_t wrote = send(socket_.get(), bytes.data() + offset, bytes.size() - offset,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
      if (wrote > 0) {
        offset += static_cast<std::size_t>(wrote);
        continue;
      }
      pollfd writable = {socket_.get(), POLLOUT, 0};
      if ((errno != EAGAIN && errno != EINTR) || poll(&writable, 1, left_ms(deadline)) == 0) {
        return false;
      }
    }
    return true;
  }

  /// Takes in some of what is there: who never stops sending does not keep us here. False: the
  /// connection has ended, or is not of our kind.
  bool read() {
    char buffer[65536];
    const ssize_t got = recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got <= 0) {
      return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    input_.append(buffer, static_cast<std::size_t>(got));
    return cut();
  }
  std::optional<Frame> take() {
    if (frames_.empty()) {
      return std::nullopt;
    }
    std::optional<Frame> frame = std::move(frames_.front());
    frames_.pop_front();
    return frame;
  }

 private:
  bool cut() {
    Reader reader{input_};
    std::size_t done = 0;
    bool is_ours = true;
    while (reader.rest.size() >= kHeadBytes) {
      const std::size_t bytes = reader.number();
      const auto kind = static_cast<std::uint8_t>(reader.bytes(1)[0]);
      is_ours = bytes <= frame_bytes_max_ && kind <= static_cast<std::uint8_t>(Kind::kClose);
      if (!is_ours || reader.rest.size() < bytes) {
        break;
      }
      frames_.push_back({static_cast<Kind>(kind), std::string(reader.bytes(bytes))});
      done = input_.size() - reader.rest.size();
    }
    input_.erase(0, done);
    return is_ours;
  }

  Descriptor socket_;
  std::size_t frame_bytes_max_ = kFrameBytesMax;
  std::string input_;
  std::deque<Frame> frames_;
};

}  // namespace tutti::net::bootstrap
