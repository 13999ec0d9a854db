// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// AF_XDP sockets for processes that may not open them: a helper with the privileges does, and
// passes the descriptors through a UNIX socket (SCM_RIGHTS). One connection is one AF_XDP socket;
// it is given up when either side closes it.
//
// What a client may ask for: a socket that receives what comes to a UDP port that it has bound,
// which it proves by the UDP socket. What it gets beyond: it may send any frame by the interface.
// So the UNIX socket is for users who are trusted with that.
#pragma once

#include <memory>
#include <string>

#include "base/result.hpp"
#include "wire/xdp/owned_fd.hpp"
#include "wire/xdp/xsk.hpp"

namespace tutti::wire::xdp {

/// Where the helper listens if nobody says otherwise.
inline constexpr const char* kHelperPath = "/run/tutti-xdp-helper.sock";

struct HelpedSocket {
  XskParts parts;
  OwnedFd connection;  ///< The socket is served as long as it is open.
};

/// `kernel_socket`: the UDP socket whose address and port `options.end` is. Errors: nobody listens
/// there (kUnavailable), or the helper's own.
Result<HelpedSocket> ask_helper(const std::string& path, const XskOptions& options,
                                int kernel_socket);

class HelperServer {
 public:
  /// Listens there. Errors: another helper does, or the path cannot be written.
  static Result<HelperServer> open(const std::string& path, unsigned mode);
  HelperServer(HelperServer&&) noexcept;
  HelperServer& operator=(HelperServer&&) noexcept;
  ~HelperServer();

  /// Serves for up to `timeout_ms` (-1: until something happens).
  void serve(int timeout_ms);
  std::size_t clients() const;

 private:
  struct State;
  explicit HelperServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tutti::wire::xdp
