// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "ccl/search.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace tutti::ccl {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class TemporaryTree {
 public:
  TemporaryTree() {
    char name[] = "/tmp/tutti-search-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~TemporaryTree() { fs::remove_all(root_); }
  std::string make(const std::string& directory) const {
    fs::create_directories(root_ / directory);
    return (root_ / directory).string();
  }
  std::string path(const std::string& below) const { return (root_ / below).string(); }

 private:
  fs::path root_;
};

TEST(CclSearch, is_copy_of__library_names_of_each_brand) {
  EXPECT_TRUE(is_copy_of(Brand::kNccl, "/a/b/libnccl.so.2"));
  EXPECT_TRUE(is_copy_of(Brand::kNccl, "libnccl.so"));
  EXPECT_TRUE(is_copy_of(Brand::kNccl, "/a/libnccl.so.2.28.9"));
  EXPECT_TRUE(is_copy_of(Brand::kRccl, "/opt/rocm/lib/librccl.so.1"));
}

TEST(CclSearch, is_copy_of__neighbours_are_not_taken) {
  EXPECT_FALSE(is_copy_of(Brand::kNccl, "/a/libnccl-net.so"));
  EXPECT_FALSE(is_copy_of(Brand::kNccl, "/a/libnccl_static.a"));
  EXPECT_FALSE(is_copy_of(Brand::kNccl, "/a/libnccl.source"));
  EXPECT_FALSE(is_copy_of(Brand::kNccl, "/libnccl.so.2/readme"));
  EXPECT_FALSE(is_copy_of(Brand::kNccl, "librccl.so.1"));
  EXPECT_FALSE(is_copy_of(Brand::kRccl, "libnccl.so.2"));
  EXPECT_FALSE(is_copy_of(Brand::kNccl, ""));
}

TEST(CclSearch, loaded_copies__keep_load_order_and_drop_repeats) {
  ProcessFacts facts;
  facts.loaded = {"/lib/libc.so.6", "/x/libnccl.so.2", "/y/libnccl.so.2.99", "/x/libnccl.so.2",
                  "/z/librccl.so"};
  EXPECT_EQ(loaded_copies(Brand::kNccl, facts), (Names{"/x/libnccl.so.2", "/y/libnccl.so.2.99"}));
  EXPECT_EQ(loaded_copies(Brand::kRccl, facts), (Names{"/z/librccl.so"}));
}

TEST(CclSearch, site_packages__of_loaded_extension_modules) {
  ProcessFacts facts;
  facts.executable = "/usr/bin/app";
  facts.loaded = {"/e/lib/python3.11/site-packages/numpy/core/x.so",
                  "/e/lib/python3.11/site-packages/mpi4py/MPI.so", "/lib/libm.so.6",
                  "/f/site-packages/torch/lib/libtorch.so"};
  EXPECT_EQ(site_packages(facts), (Names{"/e/lib/python3.11/site-packages", "/f/site-packages"}));
}

TEST(CclSearch, site_packages__of_the_environment) {
  const TemporaryTree tree;
  const std::string venv = tree.make("venv/lib/python3.12/site-packages");
  const std::string conda_new = tree.make("conda/lib/python3.9/site-packages");
  const std::string conda_old = tree.make("conda/lib/python3.8/site-packages");
  tree.make("conda/lib/python2.7/site-packages");
  ProcessFacts facts;
  facts.executable = "/usr/bin/app";
  facts.virtual_env = tree.path("venv");
  facts.conda_prefix = tree.path("conda");
  EXPECT_EQ(site_packages(facts), (Names{venv, conda_new, conda_old}));
}

TEST(CclSearch, site_packages__of_a_python_executable) {
  const TemporaryTree tree;
  const std::string venv = tree.make("venv/lib/python3.12/site-packages");
  const std::string base = tree.make("base/lib/python3.12/site-packages");
  const std::string user = tree.make("home/.local/lib/python3.12/site-packages");
  ProcessFacts facts;
  facts.executable = tree.path("base/bin/python3.12");
  facts.invoked_as = tree.path("venv/bin/python");
  facts.python_path = "/p::/q";
  facts.home = tree.path("home");
  EXPECT_EQ(site_packages(facts), (Names{"/p", "/q", venv, base, user}));
}

TEST(CclSearch, site_packages__another_executable_does_not_make_its_prefix_count) {
  const TemporaryTree tree;
  tree.make("base/lib/python3.12/site-packages");
  ProcessFacts facts;
  facts.executable = tree.path("base/bin/app");
  facts.invoked_as = "app";
  facts.python_path = "/p";
  EXPECT_EQ(site_packages(facts), Names{});
}

TEST(CclSearch, wheel_copies__lie_where_the_wheels_put_them) {
  ProcessFacts facts;
  facts.loaded = {"/e/site-packages/x.so"};
  EXPECT_EQ(wheel_copies(Brand::kNccl, facts),
            (Names{"/e/site-packages/nvidia/nccl/lib/libnccl.so.2"}));
  EXPECT_EQ(wheel_copies(Brand::kRccl, facts), (Names{"/e/site-packages/torch/lib/librccl.so"}));
}

TEST(CclSearch, system_copies__ask_the_loader_first) {
  ProcessFacts facts;
  EXPECT_EQ(system_copies(Brand::kNccl, facts), (Names{"libnccl.so.2"}));
  EXPECT_EQ(system_copies(Brand::kRccl, facts),
            (Names{"librccl.so.1", "librccl.so", "/opt/rocm/lib/librccl.so.1"}));
  facts.conda_prefix = "/c";
  facts.rocm_path = "/r";
  EXPECT_EQ(system_copies(Brand::kNccl, facts), (Names{"libnccl.so.2", "/c/lib/libnccl.so.2"}));
  EXPECT_EQ(system_copies(Brand::kRccl, facts).back(), "/r/lib/librccl.so.1");
}

TEST(CclSearch, process_facts__name_this_process) {
  const ProcessFacts facts = process_facts();
  EXPECT_EQ(facts.executable, fs::read_symlink("/proc/self/exe").string());
  EXPECT_FALSE(facts.invoked_as.empty());
  EXPECT_TRUE(std::any_of(facts.loaded.begin(), facts.loaded.end(), [](const std::string& path) {
    return path.find("libc.so") != std::string::npos;
  }));
}

}  // namespace
}  // namespace tutti::ccl
