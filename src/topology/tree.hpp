// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A tree of small text files with symbolic links, as sysfs is one: what discovery reads. An
// interface, so that this room opens no file: src/discover/directory_tree.hpp reads a real one, and
// a recorded one is a listing. The device path that a link leads to says which bridges a PCI device
// is behind, so a recording keeps links as links.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::topology {

class Tree {
 public:
  virtual ~Tree() = default;
  /// The file's text without blanks at its end; nothing when it is not there or cannot be read.
  virtual std::optional<std::string> read(const std::string& path) const = 0;
  /// Names in a directory, sorted; empty when it is not there.
  virtual std::vector<std::string> list(const std::string& path) const = 0;
  /// The path with every link resolved; empty when it is not there.
  virtual std::string real_path(const std::string& path) const = 0;
};

/// A tree from a listing. Lines, in any order: `# comment`, `/path/of/file = text`,
/// `/path/of/link -> target` (relative to the link's directory, or absolute),
/// `/path/of/directory/`.
class RecordedTree final : public Tree {
 public:
  /// Errors: "<file>:<line>: what is wrong".
  static Result<RecordedTree> parse(const std::string& text, const std::string& file);

  std::optional<std::string> read(const std::string& path) const override;
  std::vector<std::string> list(const std::string& path) const override;
  std::string real_path(const std::string& path) const override;

 private:
  struct Entry {
    bool is_link = false;
    bool is_directory = false;
    std::string text = {};  ///< A file's text, a link's target.
  };
  Status add(const std::string& path, const Entry& entry, const std::string& place);

  std::map<std::string, Entry> entries_;  ///< By path, parents included.
};

}  // namespace tutti::topology
