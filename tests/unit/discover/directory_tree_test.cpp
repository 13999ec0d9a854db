// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "discover/directory_tree.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::discover {
namespace {

namespace fs = std::filesystem;

class DirectoryTreeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            ("tutti-tree-" + std::to_string(getpid()) + "-" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_ / "sys/devices/a/b");
    fs::create_directories(root_ / "sys/class/x");
    std::ofstream(root_ / "sys/devices/a/b/speed") << "400 Gb/sec\n\n";
    std::ofstream(root_ / "outside") << "secret";
    fs::create_symlink("../../devices/a/b", root_ / "sys/class/x/b");
    fs::create_symlink("/etc", root_ / "sys/class/x/out");
    fs::create_symlink("nowhere", root_ / "sys/class/x/broken");
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path root_;
};

TEST_F(DirectoryTreeTest, read_list_and_links_stay_below_the_root) {
  const DirectoryTree tree(root_.string() + "/");
  EXPECT_EQ("400 Gb/sec", tree.read("/sys/class/x/b/speed"));
  EXPECT_EQ("/sys/devices/a/b", tree.real_path("/sys/class/x/b"));
  EXPECT_EQ("", tree.real_path("/sys/class/x/out"));
  EXPECT_EQ("", tree.real_path("/sys/class/x/broken"));
  EXPECT_EQ("", tree.real_path("/../.."));
  EXPECT_EQ("/", tree.real_path("/"));
  EXPECT_EQ((std::vector<std::string>{"b", "broken", "out"}), tree.list("/sys/class/x"));
  EXPECT_TRUE(tree.list("/sys/class/x/out").empty());
  EXPECT_EQ(std::nullopt, tree.read("/sys/class/x"));
  EXPECT_EQ(std::nullopt, tree.read("/sys/none"));
}

TEST_F(DirectoryTreeTest, a_sibling_with_the_same_beginning_is_outside) {
  fs::create_directories(root_ / "sys2");
  fs::create_symlink("../sys2", root_ / "sys/two");
  EXPECT_EQ("", DirectoryTree((root_ / "sys").string()).real_path("/two"));
}

TEST_F(DirectoryTreeTest, a_fifo_is_not_waited_for) {
  ASSERT_EQ(0, mkfifo((root_ / "sys/pipe").c_str(), 0600));
  EXPECT_EQ(std::nullopt, DirectoryTree(root_.string()).read("/sys/pipe"));
}

TEST(directory_tree, no_root_is_the_real_one) {
  EXPECT_EQ("/proc", DirectoryTree("").real_path("/proc/../proc"));
  EXPECT_FALSE(DirectoryTree("/").list("/proc").empty());
}

}  // namespace
}  // namespace tutti::discover
