// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A group of the library's calls as a scope.
#pragma once

#include <utility>

#include "ccl/ccl.hpp"

namespace tutti::runners {

/// Closes a group on every path: an open group would swallow the next call.
class Group {
 public:
  static Result<Group> open(ccl::CclLibrary& library) {
    TUTTI_RETURN_IF_ERROR(library.group_start());
    return Group(&library);
  }
  Group(Group&& other) noexcept : library_(std::exchange(other.library_, nullptr)) {}
  Group& operator=(Group&&) = delete;
  ~Group() {
    if (library_ != nullptr) {
      Status ignored = library_->group_end();  // Already failing: the first error is the story.
      static_cast<void>(ignored);
    }
  }
  Status close() { return std::exchange(library_, nullptr)->group_end(); }

 private:
  explicit Group(ccl::CclLibrary* library) : library_(library) {}
  ccl::CclLibrary* library_;
};

}  // namespace tutti::runners
