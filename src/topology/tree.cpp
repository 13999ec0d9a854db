// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "topology/tree.hpp"

#include "base/message.hpp"

namespace tutti::topology {
namespace {

constexpr int kLinksMax = 40;  // As the kernel.
constexpr std::size_t kPathMax = 4096;

std::vector<std::string> components_of(const std::string& path) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin < path.size()) {
    const std::size_t slash = std::min(path.find('/', begin), path.size());
    if (slash > begin) {
      parts.push_back(path.substr(begin, slash - begin));
    }
    begin = slash + 1;
  }
  return parts;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  return first == std::string::npos
             ? ""
             : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

Status RecordedTree::add(const std::string& path, const Entry& entry, const std::string& place) {
  const auto fail = [&](const std::string& what) {
    return Status(ErrorCode::kInvalidConfig, place + what);
  };
  if (path.empty() || path[0] != '/' || path.size() > kPathMax) {
    return fail("an absolute path is expected, not " + in_quotes(path));
  }
  const std::vector<std::string> parts = components_of(path);
  std::string parent;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == "." || parts[i] == "..") {
      return fail("a path without . and .. is expected, not " + in_quotes(path));
    }
    parent += "/" + parts[i];
    const bool is_last = i + 1 == parts.size();
    const auto [found, is_new] =
        entries_.try_emplace(parent, is_last ? entry : Entry{.is_directory = true});
    if (!is_new && is_last && !(found->second.is_directory && entry.is_directory)) {
      return fail(in_quotes(path) + " stands twice");
    }
    if (!is_new && !is_last && !found->second.is_directory) {
      return fail(in_quotes(path) + " is below what is not a directory");
    }
  }
  return {};
}

Result<RecordedTree> RecordedTree::parse(const std::string& text, const std::string& file) {
  RecordedTree tree;
  int number = 0;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    const std::string place = file + ":" + std::to_string(++number) + ": ";
    if (line.empty() || line[0] == '#') {
      continue;
    }
    const std::size_t arrow = line.find(" -> ");
    const std::size_t equals = line.find(" =");
    if (arrow < equals) {
      const Entry link{.is_link = true, .text = trimmed(line.substr(arrow + 4))};
      TUTTI_RETURN_IF_ERROR(tree.add(trimmed(line.substr(0, arrow)), link, place));
    } else if (equals != std::string::npos) {
      const Entry regular{.text = trimmed(line.substr(equals + 2))};
      TUTTI_RETURN_IF_ERROR(tree.add(trimmed(line.substr(0, equals)), regular, place));
    } else if (line.back() == '/') {
      TUTTI_RETURN_IF_ERROR(tree.add(line, Entry{.is_directory = true}, place));
    } else {
      return Status(
          ErrorCode::kInvalidConfig,
          place + "'path = text', 'path -> target' or 'path/' is expected, not " + in_quotes(line));
    }
  }
  return tree;
}

std::string RecordedTree::real_path(const std::string& path) const {
  std::vector<std::string> waiting = components_of(path);  // Still to walk, first one last.
  waiting = {waiting.rbegin(), waiting.rend()};
  std::string at;
  int links = 0;
  while (!waiting.empty()) {
    const std::string part = waiting.back();
    waiting.pop_back();
    if (part == ".") {
      continue;
    }
    if (part == "..") {
      at = at.substr(0, at.rfind('/') == std::string::npos ? 0 : at.rfind('/'));
      continue;
    }
    const auto found = entries_.find(at + "/" + part);
    if (found == entries_.end()) {
      return {};
    }
    if (!found->second.is_link) {
      at = found->first;
      continue;
    }
    const std::string& target = found->second.text;
    if (++links > kLinksMax || target.empty()) {
      return {};
    }
    at = target[0] == '/' ? "" : at;
    const std::vector<std::string> parts = components_of(target);
    waiting.insert(waiting.end(), parts.rbegin(), parts.rend());
  }
  return at.empty() ? "/" : at;
}

std::optional<std::string> RecordedTree::read(const std::string& path) const {
  const auto found = entries_.find(real_path(path));
  if (found == entries_.end() || found->second.is_directory) {
    return std::nullopt;
  }
  return found->second.text;
}

std::vector<std::string> RecordedTree::list(const std::string& path) const {
  const std::string real = real_path(path);
  if (real.empty()) {
    return {};
  }
  const std::string prefix = real == "/" ? real : real + "/";
  std::vector<std::string> names;
  for (auto entry = entries_.lower_bound(prefix);
       entry != entries_.end() && entry->first.starts_with(prefix); ++entry) {
    const std::string name = entry->first.substr(prefix.size());
    if (!name.empty() && name.find('/') == std::string::npos) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace tutti::topology
