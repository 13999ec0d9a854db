// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The driver's bootstrap: every rank has one stream to a server, which hands round what the ranks
// give. The server notices ranks that die. Not what is tested.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace tutti::driver {

/// A rank's end.
class Rendezvous {
 public:
  explicit Rendezvous(int fd) : fd_(fd) {}
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  ~Rendezvous();

  /// Everybody's text, by rank; of a rank that is gone: empty, and is_alive() is false from then.
  std::vector<std::string> all_gather(const std::string& mine);
  bool is_alive(int rank) const { return alive_[static_cast<std::size_t>(rank)]; }
  int fd() const { return fd_; }

 private:
  int fd_;
  std::vector<bool> alive_;
};

/// Serves one stream per rank, in rank order, until all have ended or `stop`. Gives each rank's
/// last text: what it gave in the round in which all others had ended or given theirs too.
std::vector<std::string> serve(const std::vector<int>& fds, const std::atomic<bool>& stop);

/// For ranks that are started alone: rank 0 calls listen_at() once and accepts the others, which
/// call dial(). Gives file descriptors; throws std::runtime_error.
int listen_at(const std::string& host_and_port);
std::vector<int> accept_ranks(int listener, int ranks);
int dial(const std::string& host_and_port, int rank, int timeout_s);

}  // namespace tutti::driver
