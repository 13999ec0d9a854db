// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What is left to do where a scope did not end well, in whichever way it is left: by an early
// return or by an exception.
#pragma once

#include <utility>

namespace tutti {

template <class Body>
class OnFailure {
 public:
  /// `body` runs at the end of the scope, unless succeed() was called; it must not throw.
  explicit OnFailure(Body body) : body_(std::move(body)) {}
  OnFailure(const OnFailure&) = delete;
  OnFailure& operator=(const OnFailure&) = delete;
  ~OnFailure() {
    if (!has_succeeded_) {
      body_();
    }
  }
  void succeed() { has_succeeded_ = true; }

 private:
  Body body_;
  bool has_succeeded_ = false;
};

}  // namespace tutti
