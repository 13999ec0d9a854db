// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// By which interface datagrams leave. The routing table looks at where they go, and not at the
// address that they are from: of two interfaces in one subnet it takes the first for both. A sender
// may name another one, but where the table has no way there by it, Linux takes the peer for a
// neighbour, and looks for it on a link where it is not. So the table is asked beforehand.
#pragma once

#include "wire/udp/socket_address.hpp"

namespace tutti::wire::udp {

enum class Way {
  kByInterface,  ///< It may be named: the table has a way by it, as specific as the one it would
                 ///< take.
  kByRoutes,     ///< There is none, or the peer is this host: the routes alone decide.
  kUnknown,      ///< So they do where the kernel does not say.
};

/// How what `from` sends to `to` may leave by `interface` (the kernel's number).
Way find_way(int interface, const SocketAddress& from, const SocketAddress& to);

}  // namespace tutti::wire::udp
