# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Network devices that lose some IPv4 packets which arrive at them, of this network namespace.

By a rule of the kernel's packet filter (nf_tables) where a device hands over what it received: it
draws a number for each packet, and counts and drops the packet if that is below the loss. The
queueing discipline made for this, netem, is a module that not every kernel has. Speaks netlink by
itself: the names in capitals are those of <linux/netfilter/nf_tables.h> and <linux/netlink.h>.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Mapping

MILLION = 1_000_000
TIMEOUT_S = 10

_TABLE = "lab"
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port.
_FAMILY = struct.Struct(">BBH")  # struct nfgenmsg: family, version, resource.
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_DUMP, _NLM_F_CREATE, _NLM_F_APPEND = 1, 4, 0x300, 0x400, 0x800
_NLA_F_NESTED, _NLA_TYPE_MASK = 0x8000, 0x3FFF
_NETLINK_NETFILTER = 12
_NFNL_SUBSYS_NFTABLES = 10
_NFNL_MSG_BATCH_BEGIN, _NFNL_MSG_BATCH_END = 0x10, 0x11
_NFPROTO_UNSPEC, _NFPROTO_NETDEV = 0, 5
_NFT_MSG_NEWTABLE, _NFT_MSG_NEWCHAIN, _NFT_MSG_NEWRULE, _NFT_MSG_GETRULE = 0, 3, 6, 7
_NF_NETDEV_INGRESS, _NF_DROP, _NF_ACCEPT = 0, 0, 1
_NFT_REG_VERDICT, _NFT_REG_1 = 0, 1
_NFT_META_PROTOCOL, _NFT_CMP_EQ, _NFT_CMP_LT = 1, 0, 2
_NFT_NG_RANDOM, _NFT_BYTEORDER_HTON = 1, 1
_ETHERTYPE_IPV4 = b"\x08\x00"
_NFTA_RULE_CHAIN, _NFTA_RULE_EXPRESSIONS = 2, 4
_NFTA_EXPR_NAME, _NFTA_EXPR_DATA, _NFTA_COUNTER_PACKETS = 1, 2, 2

# An attribute's number -> its content: text, a number of 32 bits, bytes, or attributes.
_Attributes = Mapping[int, "str | int | bytes | _Attributes"]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _attribute(number: int, content: bytes) -> bytes:
    return _padded(struct.pack("=HH", 4 + len(content), number) + content)


def _encoded(attributes: _Attributes) -> bytes:
    parts = []
    for number, value in attributes.items():
        if isinstance(value, str):
            parts.append(_attribute(number, value.encode() + b"\0"))
        elif isinstance(value, int):
            parts.append(_attribute(number, struct.pack(">I", value)))
        elif isinstance(value, bytes):
            parts.append(_attribute(number, value))
        else:
            parts.append(_attribute(number | _NLA_F_NESTED, _encoded(value)))
    return b"".join(parts)


def _decoded(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, number = struct.unpack_from("=HH", data)
        if length < 4:
            return
        yield number & _NLA_TYPE_MASK, data[4:length]
        data = data[(length + 3) & ~3 :]


def _message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    length = _HEADER.size + len(body)
    return _padded(_HEADER.pack(length, kind, _NLM_F_REQUEST | flags, sequence, 0) + body)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, body) of each message of a datagram."""
    while len(data) >= _HEADER.size:
        length, kind, _, _, _ = _HEADER.unpack_from(data)
        if length < _HEADER.size:
            return
        yield kind, data[_HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def _raise(body: bytes) -> None:
    """If an answer tells an error."""
    number = -struct.unpack_from("=i", body)[0]
    if number:
        # A kernel without it does not know who is spoken to.
        hint = "; the kernel has no nf_tables" if number in (errno.EINVAL, errno.EOPNOTSUPP) else ""
        raise OSError(number, f"packet filter: {os.strerror(number)}{hint}")


def _netlink() -> socket.socket:
    found = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    found.settimeout(TIMEOUT_S)
    found.bind((0, 0))
    return found


def _rule(loss_ppm: int) -> bytes:
    """The expressions of one rule, in their order."""
    expressions: list[tuple[str, _Attributes]] = [
        # A lost answer to ARP would cut off a whole host for a second, and that is not asked for.
        ("meta", {1: _NFT_REG_1, 2: _NFT_META_PROTOCOL}),
        ("cmp", {1: _NFT_REG_1, 2: _NFT_CMP_EQ, 3: {1: _ETHERTYPE_IPV4}}),
        ("numgen", {1: _NFT_REG_1, 2: MILLION, 3: _NFT_NG_RANDOM}),
        # Values are compared as bytes: the most significant one of the number has to be the first.
        ("byteorder", {1: _NFT_REG_1, 2: _NFT_REG_1, 3: _NFT_BYTEORDER_HTON, 4: 4, 5: 4}),
        ("cmp", {1: _NFT_REG_1, 2: _NFT_CMP_LT, 3: {1: struct.pack(">I", loss_ppm)}}),
        ("counter", {1: bytes(8), 2: bytes(8)}),
        ("immediate", {1: _NFT_REG_VERDICT, 2: {2: {1: _NF_DROP}}}),
    ]
    return b"".join(
        _encoded({1: {_NFTA_EXPR_NAME: name, _NFTA_EXPR_DATA: data}}) for name, data in expressions
    )


def start(losses_ppm: Mapping[str, int]) -> None:
    """Device -> packets lost of a million that arrive. Once for all devices of a namespace."""
    family = _FAMILY.pack(_NFPROTO_NETDEV, 0, 0)
    steps: list[tuple[int, int, bytes]] = [(_NFT_MSG_NEWTABLE, 0, _encoded({1: _TABLE}))]
    for device, loss_ppm in losses_ppm.items():
        hook: _Attributes = {1: _NF_NETDEV_INGRESS, 2: 0, 3: device}
        chain: _Attributes = {1: _TABLE, 3: device, 4: hook, 5: _NF_ACCEPT, 7: "filter"}
        steps.append((_NFT_MSG_NEWCHAIN, 0, _encoded(chain)))
        rule: _Attributes = {
            1: _TABLE,
            _NFTA_RULE_CHAIN: device,
            _NFTA_RULE_EXPRESSIONS | _NLA_F_NESTED: _rule(loss_ppm),
        }
        steps.append((_NFT_MSG_NEWRULE, _NLM_F_APPEND, _encoded(rule)))
    batch_body = _FAMILY.pack(_NFPROTO_UNSPEC, 0, _NFNL_SUBSYS_NFTABLES)
    batch = _message(_NFNL_MSG_BATCH_BEGIN, 0, 0, batch_body)
    for sequence, (kind, flags, body) in enumerate(steps, 1):
        kind |= _NFNL_SUBSYS_NFTABLES << 8
        batch += _message(kind, _NLM_F_ACK | _NLM_F_CREATE | flags, sequence, family + body)
    batch += _message(_NFNL_MSG_BATCH_END, 0, len(steps) + 1, batch_body)
    with _netlink() as connection:
        connection.send(batch)
        answers = 0
        while answers < len(steps):
            for kind, body in _messages(connection.recv(65536)):
                if kind == _NLMSG_ERROR:
                    _raise(body)
                    answers += 1


def _lost_by(rule: bytes) -> tuple[str, int]:
    """(device, packets lost) of a rule's attributes."""
    device, packets = "", 0
    for number, content in _decoded(rule):
        if number == _NFTA_RULE_CHAIN:
            device = content.rstrip(b"\0").decode()
        elif number == _NFTA_RULE_EXPRESSIONS:
            for _, expression in _decoded(content):
                parts = dict(_decoded(expression))
                if parts[_NFTA_EXPR_NAME].rstrip(b"\0") == b"counter":
                    counts = dict(_decoded(parts[_NFTA_EXPR_DATA]))
                    packets = int.from_bytes(counts[_NFTA_COUNTER_PACKETS], "big")
    return device, packets


def lost() -> dict[str, int]:
    """Device -> packets lost since start()."""
    kind = _NFT_MSG_GETRULE | _NFNL_SUBSYS_NFTABLES << 8
    found: dict[str, int] = {}
    with _netlink() as connection:
        connection.send(_message(kind, _NLM_F_DUMP, 1, _FAMILY.pack(_NFPROTO_NETDEV, 0, 0)))
        while True:
            for kind, body in _messages(connection.recv(65536)):
                if kind == _NLMSG_DONE:
                    return found
                if kind == _NLMSG_ERROR:
                    _raise(body)
                else:
                    device, packets = _lost_by(body[_FAMILY.size :])
                    found[device] = packets
