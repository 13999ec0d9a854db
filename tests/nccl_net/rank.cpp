// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "rank.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>

namespace tutti::driver {

bool Report::check(bool holds, const std::string& what) {
  constexpr std::size_t kShownMax = 20;
  const std::scoped_lock lock(mutex_);
  ++checks_;
  if (!holds && ++failed_ <= kShownMax) {
    std::fprintf(stderr, "rank %d: FAILED: %s\n", rank_, what.c_str());
  }
  return holds;
}

void Report::skip(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  ++skipped_;
  if (rank_ == 0) {
    std::fprintf(stderr, "skipped: %s\n", why.c_str());
  }
}

std::string Report::counts() const {
  const std::scoped_lock lock(mutex_);
  return std::to_string(checks_) + " " + std::to_string(failed_) + " " + std::to_string(skipped_);
}

void require(Result result, const std::string& what) {
  if (result != Result::kSuccess) {
    throw std::runtime_error(what + ": " + to_string(result) + " (" + Warnings::last() + ")");
  }
}

std::uint64_t mix(std::uint64_t value) {
  // splitmix64 (Steele, Lea, Flood 2014).
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<Edge> edges_of(const std::string& pattern, int ranks, int channels) {
  std::vector<Edge> edges;
  for (int channel = 0; channel < channels; ++channel) {
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        const bool is_there = pattern == "ring"       ? to == (from + 1) % ranks
                              : pattern == "alltoall" ? to != from
                                                      : to == (from ^ 1);
        if (is_there) {
          edges.push_back({from, to, channel});
        }
      }
    }
  }
  return edges;
}

Session::Session(Rank& of_rank) : rank(of_rank) {
  rank.phase = "loading";
  std::string why;
  if (rank.options.rails > 1) {
    setenv("NCCL_NET_FORCE_MERGE", "these", 0);  // Else ours offers none.
  }
  plugin = NetPlugin::load(rank.options.plugin, rank.version, &why);
  if (plugin == nullptr) {
    throw std::runtime_error(why);
  }
  is_tutti = plugin->name() == "Tutti";
  rank.phase = "init";
  require(plugin->init(&context), "init");
  int count = 0;
  require(plugin->devices(&count), "devices");
  number = rank.options.device + rank.rank % rank.options.devices;
  if (count < std::max(number + 1, rank.options.rails)) {
    throw std::runtime_error("the plugin has " + std::to_string(count) + " devices");
  }
  if (rank.options.rails > 1) {
    require(plugin->merge(rank.options.rails, &number), "makeVDevice");
  }
  require(plugin->properties(number, &device), "getProperties");
}

Session::~Session() {
  if (!is_abandoned) {
    rank.phase = "finalize";
    rank.report.check(plugin->finalize(context) == Result::kSuccess, "finalize");
  }
  rank.phase = "dlclose";
  plugin.reset();
  rank.phase = "between tests";
}

std::string Link::label() const {
  return std::to_string(edge.from) + "->" + std::to_string(edge.to) + " channel " +
         std::to_string(edge.channel);
}

void Link::close() {
  if (comm != nullptr) {
    const Result result = sends ? plugin().close_send(comm) : plugin().close_recv(comm);
    session->rank.report.check(result == Result::kSuccess, label() + ": close");
    comm = nullptr;
  }
}

void close_links(std::vector<Link>& links) {
  for (Link& link : links) {
    link.close();
  }
}

std::vector<Link> connect(Session& session, const std::vector<Edge>& edges) {
  Rank& rank = session.rank;
  NetPlugin& plugin = *session.plugin;
  const int device = session.number;
  rank.phase = "listening";
  struct Open {
    std::size_t edge;
    HandleBuffer handle;
    void* listener;
    void* comm;
  };
  std::vector<Open> open;
  std::string mine;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].to == rank.rank) {
      Open& at = open.emplace_back(Open{i, {}, nullptr, nullptr});
      require(plugin.listen(session.context, device, at.handle.data(), &at.listener), "listen");
      if (at.listener == nullptr) {
        throw std::runtime_error("listen gave no comm");
      }
      mine.append(reinterpret_cast<const char*>(at.handle.data()), at.handle.size());
    }
  }
  const std::vector<std::string> handles = rank.rendezvous.all_gather(mine);
  std::vector<std::size_t> taken(handles.size(), 0);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto to = static_cast<std::size_t>(edges[i].to);
    const std::size_t offset = taken[to]++ * sizeof(HandleBuffer);
    if (edges[i].from == rank.rank) {
      Open& at = open.emplace_back(Open{i, {}, nullptr, nullptr});
      if (handles[to].size() < offset + sizeof(HandleBuffer)) {
        throw std::runtime_error("rank " + std::to_string(to) + " gave no handle");
      }
      std::memcpy(at.handle.data(), handles[to].data() + offset, sizeof(HandleBuffer));
    }
  }
  rank.phase = "connecting";
  for (std::size_t left = open.size(); left > 0;) {
    const std::size_t before = left;
    for (Open& at : open) {
      if (at.comm != nullptr) {
        continue;
      }
      at.comm = &at;  // Has to be overwritten.
      if (at.listener != nullptr) {
        require(plugin.accept(at.listener, &at.comm), "accept");
      } else {
        require(plugin.connect(session.context, device, at.handle.data(), &at.comm), "connect");
      }
      if (at.comm == nullptr) {
        continue;
      }
      --left;
      if (at.listener != nullptr) {
        require(plugin.close_listen(at.listener), "closeListen");
      }
    }
    if (left == before) {
      sched_yield();
    }
  }
  std::vector<Link> links;
  for (const Open& at : open) {
    links.push_back({&session, edges[at.edge], at.comm, at.listener == nullptr});
  }
  rank.phase = "connected";
  return links;
}

}  // namespace tutti::driver
