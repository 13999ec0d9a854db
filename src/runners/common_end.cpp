// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/common_end.hpp"

namespace tutti::runners {

void CommonEnd::join(Turn turn, Member member) {
  const std::lock_guard lock(members_mutex_);
  Member& joined = members_[static_cast<std::size_t>(turn)];
  joined = std::move(member);
  if (!reason().ok()) {
    joined.close();
    joined.end();
  }
}

void CommonEnd::leave(Turn turn) {
  const std::lock_guard lock(members_mutex_);
  members_[static_cast<std::size_t>(turn)] = {};
}

void CommonEnd::end(const Status& reason) {
  const std::lock_guard lock(members_mutex_);
  {
    const std::lock_guard reason_lock(reason_mutex_);
    if (!reason_.ok()) {
      return;
    }
    reason_ = reason;
  }
  for (const auto step : {&Member::close, &Member::end}) {
    for (const Member& member : members_) {
      if (member.*step != nullptr) {
        (member.*step)();
      }
    }
  }
}

Status CommonEnd::reason() const {
  const std::lock_guard lock(reason_mutex_);
  return reason_;
}

}  // namespace tutti::runners
