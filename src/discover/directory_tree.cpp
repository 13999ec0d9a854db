// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "discover/directory_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

namespace tutti::discover {
namespace {

std::string resolved(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), free);
  return real == nullptr ? "" : real.get();
}

}  // namespace

DirectoryTree::DirectoryTree(const std::string& root) : root_(root.empty() ? "" : resolved(root)) {
  if (root_ == "/") {
    root_.clear();
  }
}

std::optional<std::string> DirectoryTree::read(const std::string& path) const {
  const std::string real = real_path(path);
  if (real.empty()) {
    return std::nullopt;
  }
  // Non-blocking: a FIFO in a directory that somebody names must not be waited for.
  const int file = open((root_ + real).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return std::nullopt;
  }
  std::array<char, 4096> buffer;  // A sysfs file is at most a page.
  struct stat info {};
  ssize_t got = -1;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode)) {
    do {
      got = ::read(file, buffer.data(), buffer.size());
    } while (got < 0 && errno == EINTR);
  }
  close(file);
  if (got < 0) {
    return std::nullopt;  // Drivers refuse some files at times, a speed without a cable for one.
  }
  std::string text(buffer.data(), static_cast<std::size_t>(got));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

std::vector<std::string> DirectoryTree::list(const std::string& path) const {
  std::vector<std::string> names;
  const std::string real = real_path(path);
  DIR* directory = real.empty() ? nullptr : opendir((root_ + real).c_str());
  if (directory == nullptr) {
    return names;
  }
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      names.push_back(name);
    }
  }
  closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

std::string DirectoryTree::real_path(const std::string& path) const {
  const std::string real = resolved(root_ + path);
  if (real.compare(0, root_.size(), root_) != 0) {
    return {};
  }
  const std::string below = real.substr(root_.size());
  return below.empty() ? "/" : below[0] == '/' ? below : "";
}

}  // namespace tutti::discover
