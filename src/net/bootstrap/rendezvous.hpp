// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How the two processes of a channel meet: a TCP connection from the connector to the listener
// whose address and key are in the handle, and the handshakes of all sub-connections in both
// directions. What they make of it is net/channel_setup.hpp's. The TCP connection stays open: the
// kernel closes it when a process dies, so the other one learns of that before any timeout. Nothing
// here blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptors.hpp"
#include "base/result.hpp"
#include "net/bootstrap/handle.hpp"
#include "net/bootstrap/handshake.hpp"
#include "net/observe/log.hpp"
#include "transport/types.hpp"
#include "wire/udp/socket_address.hpp"

namespace tutti::net {

/// Reads the handshakes of the other side, as many as the first one says. Errors: the connection
/// has ended, or one of them is invalid, which makes the caller a stranger.
class IncomingHandshakes {
 public:
  /// True: they are here.
  Result<bool> read(int socket, const transport::Key& key);
  const std::vector<Handshake>& get() const { return handshakes_; }
  /// What came is not a valid handshake for this listener.
  bool has_stranger() const { return has_stranger_; }

 private:
  Result<bool> read_one(int socket);

  HandshakeBytes bytes_{};
  std::size_t have_ = 0;
  std::vector<Handshake> handshakes_;
  bool has_stranger_ = false;
};

/// A peer whose handshakes are here.
struct Caller {
  Descriptor socket;
  std::vector<Handshake> theirs;  ///< One at least.
};

class RendezvousListener {
 public:
  RendezvousListener(transport::TimeNs timeout_ns, Log log)
      : timeout_ns_(timeout_ns), log_(std::move(log)) {}

  /// `device`: Handshake::device of this side. Errors: the address is not this host's, no
  /// descriptor (kUnavailable).
  Status listen(const wire::udp::SocketAddress& local, std::uint64_t device);
  const Handle& handle() const { return handle_; }
  const transport::Key& key() const { return key_; }

  static constexpr std::size_t kPendingMax = 64;  ///< Callers without complete handshakes.

  /// The next one of those who have called before and whose handshakes are all here now, from
  /// `*next` on; empty: there is none. Errors: a peer of the job has not finished its handshakes in
  /// time (kTimeout).
  Result<std::optional<Caller>> hear_pending(std::size_t* next);
  /// The same of those who call now; of `*left` callers it is the one after which so many are left.
  /// Errors: also that no caller can be taken (kUnavailable).
  Result<std::optional<Caller>> take_new(std::size_t* left);
  /// To one of these.
  Status send_handshakes(int socket, const std::vector<Handshake>& mine) const;
  void refuse(int socket, const Status& why) const;

 private:
  struct PendingCaller {
    Descriptor socket;
    IncomingHandshakes handshakes;
    transport::TimeNs called_ns = 0;
  };

  Result<std::optional<Caller>> hear(std::size_t& i);
  void drop_a_stranger();
  bool is_late(const PendingCaller& caller) const;

  transport::TimeNs timeout_ns_;
  Log log_;
  Descriptor socket_;
  transport::Key key_;
  Handle handle_;
  std::vector<PendingCaller> pending_;
  int strangers_told_ = 0;
};

/// This side's handshakes, one at least, for a peer's device, once the socket is connected.
using MakeHandshakes =
    std::function<Result<std::vector<Handshake>>(std::uint64_t peer_device, int socket)>;

class RendezvousConnector {
 public:
  /// Errors: not a handle of ours, or of another family of addresses; no descriptor.
  Status begin(const wire::udp::SocketAddress& local, const Handle& handle);
  /// The peer once its handshakes are here; empty: not yet. Errors: nobody there or it has gone
  /// (kTimeout), it refuses (kInvalidArgument).
  Result<std::optional<Caller>> poll(const MakeHandshakes& make);
  const HandleContent& peer() const { return peer_; }
  /// What this side has told; empty: nothing yet.
  const std::vector<Handshake>& mine() const { return mine_; }

 private:
  Descriptor socket_;
  HandleContent peer_;
  std::vector<Handshake> mine_;
  IncomingHandshakes answer_;
};

/// A peer's error with its name.
Status with_peer(const Status& status, const std::string& peer);

}  // namespace tutti::net
