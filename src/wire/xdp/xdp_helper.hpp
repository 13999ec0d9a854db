// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// AF_XDP sockets for processes that may not open them: a helper with the privileges does, and
// passes the descriptors through a UNIX socket (SCM_RIGHTS). One connection is one AF_XDP socket,
// which receives until either side closes the connection: the helper then takes it out of the
// program's maps, even if the client keeps the descriptor.
//
// What a client may ask for: a socket that receives what comes to a UDP port that it has bound,
// which it proves by the UDP socket. The helper pins the port, so that the client cannot give it to
// somebody else while it is served. What a client gets beyond: it may send any frame by the
// interface, past the host's firewall, IPsec and traffic shaping. With zero copy it also sees and
// changes all traffic of its queue. So the UNIX socket is for users who are trusted with that.
//
// The server's thread waits for no client: what a client's descriptor can block (locks of its
// socket, close()) is done by detached threads. Where none is to be had, requests are refused.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptors.hpp"
#include "base/result.hpp"
#include "wire/xdp/xsk.hpp"

namespace tutti::wire::xdp {

/// Where the helper listens if nobody says otherwise.
inline constexpr const char* kHelperPath = "/run/tutti-xdp-helper.sock";

struct HelpedSocket {
  XskParts parts;
  Descriptor connection;  ///< The socket is served as long as it is open.
};

/// `kernel_socket`: the UDP socket whose address and port `options.end` is. Errors: nobody listens
/// there (kUnavailable), or the helper's own. Waits for a free queue as open_xsk() does.
Result<HelpedSocket> ask_helper(const std::string& path, const XskOptions& options,
                                int kernel_socket);

struct HelperOptions {
  std::string path = kHelperPath;
  unsigned mode = 0600;  ///< Of the UNIX socket.
  std::vector<std::string> interfaces;
  bool allows_zero_copy = false;
  /// Told of a client that is served no more though it has not left. Null: nobody wants to know.
  std::function<void(const std::string&)> on_refusal;
};

class HelperServer {
 public:
  /// Listens there; PATH.lock is locked while it does, and stays. Errors: another helper listens,
  /// something else than a socket is there, the path cannot be written, or an interface is not one
  /// of Ethernet.
  static Result<HelperServer> open(HelperOptions options);
  HelperServer(HelperServer&&) noexcept;
  HelperServer& operator=(HelperServer&&) noexcept;
  ~HelperServer();

  /// Serves for up to `timeout_ms` (-1: until something happens), at most half a second.
  void serve(int timeout_ms);
  std::size_t clients() const;

 private:
  struct State;
  explicit HelperServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tutti::wire::xdp
