// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The real file system, or a copy of a part of it below another directory, as a topology::Tree.
#pragma once

#include <string>

#include "topology/tree.hpp"

namespace tutti::discover {

class DirectoryTree final : public topology::Tree {
 public:
  /// `root`: empty for this machine, else a directory that holds sys/. Links that lead out of it
  /// lead nowhere.
  explicit DirectoryTree(const std::string& root);

  std::optional<std::string> read(const std::string& path) const override;
  std::vector<std::string> list(const std::string& path) const override;
  std::string real_path(const std::string& path) const override;

 private:
  std::string root_;  ///< Resolved, without a slash at its end.
};

}  // namespace tutti::discover
