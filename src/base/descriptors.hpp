// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// File descriptors: owned, passed to other processes (SCM_RIGHTS, unix(7)), and how many this
// process may have open (ulimit -n).
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

/// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }
  void reset(int value = -1) {
    if (value_ >= 0) {
      close(value_);
    }
    value_ = value;
  }

 private:
  int value_;
};

/// As many as one message passes, here and at most.
constexpr std::size_t kPassedMax = 253;  // The kernel's SCM_MAX_FD.

/// Sends a message with at most kPassedMax descriptors by a Unix socket. `to`, null for a connected
/// socket, has `to_bytes`. False: not sent, or not whole; errno says why.
bool send_with_descriptors(int socket, std::span<const std::byte> content,
                           std::span<const int> descriptors, const sockaddr* to = nullptr,
                           socklen_t to_bytes = 0);

/// Receives one. All descriptors that came are in `descriptors`, also after a message of another
/// size: closed with it, none is left behind by a stranger. False: nothing, or not of this size.
bool receive_with_descriptors(int socket, int flags, std::span<std::byte> content,
                              std::vector<Descriptor>* descriptors);

/// Most that it may have; raising that is its user's business.
int descriptors_max();

/// How many more it may open now. Others open some meanwhile.
int descriptors_left();

/// What errno says about a call that should have given one, with a remedy where the limit is why.
std::string why_no_descriptor();

}  // namespace tutti
