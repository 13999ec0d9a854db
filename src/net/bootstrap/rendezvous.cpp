// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/bootstrap/rendezvous.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/host_name.hpp"
#include "base/system_random.hpp"

namespace tutti::net {
namespace {

using transport::Key;
using wire::udp::SocketAddress;

constexpr int kStrangersTold = 8;  ///< Of a listener; a scanner may call for ever.

/// The handshakes fit into the empty buffer of any socket.
Status write_handshakes(int socket, const std::vector<Handshake>& handshakes, const Key& key) {
  std::vector<std::byte> bytes;
  for (const Handshake& handshake : handshakes) {
    const HandshakeBytes one = encode(handshake, key);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  const ssize_t put = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put != static_cast<ssize_t>(bytes.size())) {
    return Status(ErrorCode::kTimeout, "net: the peer does not accept our handshake: " +
                                           (put < 0 ? std::string(std::strerror(errno))
                                                    : std::string("its window is closed")));
  }
  return {};
}

std::string address_of_caller(int socket) {
  SocketAddress caller;
  caller.bytes = sizeof caller.storage;
  if (getpeername(socket, caller.get(), &caller.bytes) != 0) {
    return std::string("?: ") + std::strerror(errno);
  }
  return to_text(caller);
}

}  // namespace

Status with_peer(const Status& status, const std::string& peer) {
  return Status(status.code(), status.message() + "; the peer is " + peer);
}

Result<bool> IncomingHandshakes::read(int socket, const Key& key) {
  while (handshakes_.empty() || handshakes_.size() < handshakes_[0].sub_connections) {
    TUTTI_ASSIGN_OR_RETURN(const bool is_here, read_one(socket));
    if (!is_here) {
      return false;
    }
    const Result<Handshake> handshake = decode(bytes_, key);
    if (!handshake.ok()) {
      has_stranger_ = true;
      return handshake.status();
    }
    handshakes_.push_back(*handshake);
    have_ = 0;
  }
  return true;
}

Result<bool> IncomingHandshakes::read_one(int socket) {
  while (have_ < bytes_.size()) {
    const ssize_t got = recv(socket, bytes_.data() + have_, bytes_.size() - have_, MSG_DONTWAIT);
    if (got > 0) {
      have_ += static_cast<std::size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return false;
    } else {
      return Status(ErrorCode::kTimeout,
                    "net: the peer ended while the channel was made" +
                        (got < 0 ? std::string(": ") + std::strerror(errno) : std::string()));
    }
  }
  return true;
}

Status RendezvousListener::listen(const SocketAddress& local, std::uint64_t device) {
  socket_.reset(::socket(local.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  SocketAddress bound = local;
  if (socket_.get() < 0 || bind(socket_.get(), bound.get(), bound.bytes) != 0 ||
      ::listen(socket_.get(), SOMAXCONN) != 0 ||
      getsockname(socket_.get(), bound.get(), &bound.bytes) != 0) {
    return Status(ErrorCode::kUnavailable,
                  "net: cannot listen at the interface's address: " + why_no_descriptor());
  }
  TUTTI_RETURN_IF_ERROR(system_random(&key_, sizeof key_));
  handle_ = to_handle({.address = bound,
                       .key = key_,
                       .device = device,
                       .process = static_cast<std::uint32_t>(getpid()),
                       .host = host_name()});
  return {};
}

Result<std::optional<Caller>> RendezvousListener::hear_pending(std::size_t* next) {
  while (*next < pending_.size()) {
    Result<std::optional<Caller>> heard = hear(*next);
    if (!heard.ok() || *heard) {
      return heard;
    }
  }
  return std::optional<Caller>();
}

Result<std::optional<Caller>> RendezvousListener::take_new(std::size_t* left) {
  for (; *left > 0; --*left) {
    Descriptor caller(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (caller.get() < 0) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) {
        break;
      }
      return Status(ErrorCode::kUnavailable, "net: cannot accept the peer: " + why_no_descriptor());
    }
    pending_.push_back({std::move(caller), {}, monotonic_ns()});
    // Before any caller is dropped: a peer sends its handshake at once.
    std::size_t last = pending_.size() - 1;
    Result<std::optional<Caller>> heard = hear(last);
    if (!heard.ok() || *heard) {
      --*left;
      return heard;
    }
    if (pending_.size() > kPendingMax) {
      drop_a_stranger();
    }
  }
  return std::optional<Caller>();
}

/// Empty: this caller is nobody now; `i` is then the index of the next one.
Result<std::optional<Caller>> RendezvousListener::hear(std::size_t& i) {
  const Result<bool> is_here = pending_[i].handshakes.read(pending_[i].socket.get(), key_);
  if (is_here.ok() && !*is_here && !is_late(pending_[i])) {
    ++i;
    return std::optional<Caller>();
  }
  PendingCaller caller = std::move(pending_[i]);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
  if (caller.handshakes.has_stranger()) {
    // A caller without our key, or of another version (which a peer learns from the handle), does
    // not belong to the job: a scanner, or a process of another job. It must not end ours.
    if (strangers_told_++ < kStrangersTold) {
      log_(LogKind::kInfo, "net: refused a caller from " + address_of_caller(caller.socket.get()) +
                               ": " + is_here.status().message());
    }
    refuse(caller.socket.get(), is_here.status());
    return std::optional<Caller>();
  }
  if (!is_here.ok()) {
    return std::optional<Caller>();  // It has gone.
  }
  if (!*is_here) {
    return Status(ErrorCode::kTimeout,
                  "net: " + caller.handshakes.get()[0].who() +
                      " has not finished its handshake for TUTTI_NET_TIMEOUT seconds");
  }
  return std::optional<Caller>(Caller{std::move(caller.socket), caller.handshakes.get()});
}

/// Drops the oldest caller without a handshake; if there is none, the oldest.
void RendezvousListener::drop_a_stranger() {
  const auto silent = std::find_if(pending_.begin(), pending_.end(), [](const PendingCaller& it) {
    return it.handshakes.get().empty();
  });
  pending_.erase(silent == pending_.end() ? pending_.begin() : silent);
}

/// A peer of the job has begun its handshake and not finished it within the timeout.
bool RendezvousListener::is_late(const PendingCaller& caller) const {
  const std::vector<Handshake>& handshakes = caller.handshakes.get();
  return !handshakes.empty() && handshakes.size() < handshakes[0].sub_connections &&
         monotonic_ns() - caller.called_ns > timeout_ns_;
}

Status RendezvousListener::send_handshakes(int socket, const std::vector<Handshake>& mine) const {
  return write_handshakes(socket, mine, key_);
}

void RendezvousListener::refuse(int socket, const Status& why) const {
  Handshake handshake;
  handshake.host = host_name();
  handshake.process = static_cast<std::uint32_t>(getpid());
  handshake.refusal = why.message();
  (void)write_handshakes(socket, {handshake}, key_);
}

Status RendezvousConnector::begin(const SocketAddress& local, const Handle& handle) {
  TUTTI_ASSIGN_OR_RETURN(peer_, from_handle(handle, local.storage.ss_family));
  SocketAddress peer = peer_.address;
  SocketAddress from = local;
  if (from.storage.ss_family == AF_INET6) {
    auto& from_v6 = reinterpret_cast<sockaddr_in6&>(from.storage);
    reinterpret_cast<sockaddr_in6&>(peer.storage).sin6_scope_id = from_v6.sin6_scope_id;
    from_v6.sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in&>(from.storage).sin_port = 0;
  }
  socket_.reset(::socket(local.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket_.get() < 0 || bind(socket_.get(), from.get(), from.bytes) != 0 ||
      (connect(socket_.get(), peer.get(), peer.bytes) != 0 && errno != EINPROGRESS)) {
    return Status(ErrorCode::kUnavailable,
                  "net: cannot connect to " + peer_.who() + ": " + why_no_descriptor());
  }
  return {};
}

Result<std::optional<Caller>> RendezvousConnector::poll(const MakeHandshakes& make) {
  const int socket = socket_.get();
  if (mine_.empty()) {
    pollfd writable = {socket, POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) {
      return std::optional<Caller>();
    }
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) {
      return Status(ErrorCode::kTimeout,
                    "net: cannot connect to " + peer_.who() + ": " + std::strerror(error));
    }
    TUTTI_ASSIGN_OR_RETURN(mine_, make(peer_.device, socket));
    const Status written = write_handshakes(socket, mine_, peer_.key);
    if (!written.ok()) {
      return with_peer(written, peer_.who());
    }
  }
  const Result<bool> is_here = answer_.read(socket, peer_.key);
  if (!is_here.ok()) {
    return with_peer(is_here.status(), peer_.who());
  }
  if (!*is_here) {
    return std::optional<Caller>();
  }
  const std::vector<Handshake>& theirs = answer_.get();
  if (!theirs[0].refusal.empty()) {
    return Status(ErrorCode::kInvalidArgument,
                  "net: " + peer_.who() + " refuses the channel: " + theirs[0].refusal);
  }
  return std::optional<Caller>(Caller{std::move(socket_), theirs});
}

}  // namespace tutti::net
