// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace tutti::wire::xdp {

class OwnedFd {
 public:
  explicit OwnedFd(int value = -1) : value_(value) {}
  ~OwnedFd() { reset(); }
  OwnedFd(OwnedFd&& other) noexcept : value_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
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

}  // namespace tutti::wire::xdp
