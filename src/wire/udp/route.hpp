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

/// Whether what `from` sends to `to` may be told to leave by `interface` (the kernel's number): the
/// table has a way there by it, as specific as the one that it would take, and the peer is not this
/// host. False as well where the kernel does not say.
bool has_way(int interface, const SocketAddress& from, const SocketAddress& to);

}  // namespace tutti::wire::udp
