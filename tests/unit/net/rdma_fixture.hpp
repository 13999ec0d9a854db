// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Networks over the fake of libibverbs, and a channel between two of them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "net/network.hpp"

namespace tutti::net::rdma_test {

/// Directories like the kernel's, for a test.
class Directory {
 public:
  Directory() { EXPECT_NE(nullptr, mkdtemp(path_.data())); }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path whole = path_ + "/" + file;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }

 private:
  std::string path_ = ::testing::TempDir() + "rdma-XXXXXX";
};

/// The loopback interface with the fake's first device behind it.
inline NetworkOptions options_of(const Directory& directory, const std::string& service) {
  directory.write("class/fake_0/ports/1/gid_attrs/ndevs/0", "lo\n");
  NetworkOptions options;
  options.interfaces = "lo";
  options.family = "AF_INET";
  options.config.net_wire = "verbs";
  options.config.net_verbs = service;
  options.config.net_paths = 8;
  options.config.net_statistics = false;
  options.config.net_timeout_s = 5;
  options.rdma.class_directory = directory.path() + "/class";
  options.rdma.net_directory = directory.path() + "/net";
  return options;
}

/// Both ends of one channel, over two networks.
struct Ends {
  std::unique_ptr<Network> a;
  std::unique_ptr<Network> b;
  std::unique_ptr<Channel> send;
  std::unique_ptr<Channel> receive;
};

template <class Done>
bool wait(Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
  }
  return true;
}

inline Ends connect(const NetworkOptions& options) {
  Ends ends;
  for (auto* const network : {&ends.a, &ends.b}) {
    auto opened = Network::open(options, [](LogKind, const std::string&) {});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    *network = std::move(*opened);
  }
  auto listener = ends.b->listen(0);
  EXPECT_TRUE(listener.ok()) << listener.status().message();
  auto connector = ends.a->connect(0, (*listener)->handle(), kDefaultClass);
  EXPECT_TRUE(connector.ok()) << connector.status().message();
  EXPECT_TRUE(wait([&] {
    const auto ask = [](auto& channel, auto made) {
      EXPECT_TRUE(made.ok()) << made.status().message();
      if (made.ok() && *made) {
        channel = std::move(*made);
      }
    };
    if (!ends.send) {
      ask(ends.send, (*connector)->poll());
    }
    if (!ends.receive) {
      ask(ends.receive, (*listener)->accept());
    }
    return ends.send && ends.receive;
  }));
  return ends;
}

}  // namespace tutti::net::rdma_test
