// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "topology/tree.hpp"

#include <gtest/gtest.h>

namespace tutti::topology {
namespace {

RecordedTree tree_of(const std::string& text) {
  auto tree = RecordedTree::parse(text, "f");
  EXPECT_TRUE(tree.ok()) << tree.status().message();
  return *tree;
}

std::string error_of(const std::string& text) {
  const auto tree = RecordedTree::parse(text, "f");
  return tree.ok() ? "" : tree.status().message();
}

TEST(tree, parse__files_links_and_directories) {
  const RecordedTree tree = tree_of(
      "# comment\n\n"
      "/sys/devices/a/b/speed = 32.0 GT/s = much \r\n"
      "/sys/devices/a/empty =\n"
      "/sys/class/x/b -> ../../devices/a/b\n"
      "/sys/class/x/absolute -> /sys/devices/a\n"
      "/sys/class/y/\n");
  EXPECT_EQ("32.0 GT/s = much", tree.read("/sys/class/x/b/speed"));
  EXPECT_EQ("", tree.read("/sys/class/x/absolute/empty"));
  EXPECT_EQ(std::nullopt, tree.read("/sys/class/x/b"));
  EXPECT_EQ(std::nullopt, tree.read("/sys/none"));
  EXPECT_EQ("/sys/devices/a/b", tree.real_path("/sys/class/x/b"));
  EXPECT_EQ("/sys/devices/a", tree.real_path("/sys/class/x/b/.."));
  EXPECT_EQ("", tree.real_path("/sys/class/x/c"));
  EXPECT_EQ((std::vector<std::string>{"absolute", "b"}), tree.list("/sys/class/x"));
  EXPECT_EQ((std::vector<std::string>{"b", "empty"}), tree.list("/sys/class/x/absolute"));
  EXPECT_EQ((std::vector<std::string>{"sys"}), tree.list("/"));
  EXPECT_TRUE(tree.list("/sys/class/y").empty());
  EXPECT_TRUE(tree.list("/none").empty());
}

TEST(tree, real_path__a_circle_of_links_ends) {
  const RecordedTree tree = tree_of("/a -> b\n/b -> a\n/c -> c/d\n/f -> ../../..\n");
  EXPECT_EQ("", tree.real_path("/a"));
  EXPECT_EQ("", tree.real_path("/c"));
  EXPECT_EQ("/", tree.real_path("/f"));
}

TEST(tree, parse__errors_name_the_line) {
  EXPECT_EQ("f:2: 'path = text', 'path -> target' or 'path/' is expected, not 'what'",
            error_of("/a = 1\nwhat\n"));
  EXPECT_EQ("f:1: an absolute path is expected, not 'a'", error_of("a = 1"));
  EXPECT_EQ("f:1: a path without . and .. is expected, not '/a/../b'", error_of("/a/../b = 1"));
  EXPECT_EQ("f:2: '/a' stands twice", error_of("/a = 1\n/a = 2"));
  EXPECT_EQ("f:2: '/a/b' is below what is not a directory", error_of("/a -> c\n/a/b = 2"));
  EXPECT_EQ("f:2: '/a' stands twice", error_of("/a/b = 1\n/a = 2"));
}

}  // namespace
}  // namespace tutti::topology
