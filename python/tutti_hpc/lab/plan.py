# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What a lab consists of, as data: boxes (one set of namespaces each), links, addresses, routes.

Pure: nothing here touches the machine. Rates are bits per second, sizes are bytes.

Addresses, which exist in the lab's own namespaces only:

    10.(rail + 1).(node + 1).2    rail `rail` of node `node`; .1 is its leaf in a leaf-spine
    172.16.0.0 + 2 k, /31         uplink k between a leaf and a spine
    192.168.0.(node + 1)          management, unshaped; .254 is the box that launches jobs
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_interface

from tutti_hpc.errors import TuttiError

NODES_MAX = 64
RAILS_MAX = 16
SPINES_MAX = 16
RATE_MIN_BPS = 1_000_000
RATE_MAX_BPS = 100_000_000_000  # More than any machine forwards; the limit catches wrong units.

HEAD = "head"
SWITCH = "switch"
MANAGEMENT = "mgmt"

MAIN_TABLE = 254
RAIL_TABLE = 100  # Table of rail r is RAIL_TABLE + r.

# Ethernet header, IP and TCP with time stamps: what a full frame of 1514 bytes carries is 1448.
FRAME_BYTES = 1514
PAYLOAD_BYTES = 1448

QUEUE_US = 80_000  # What a switch with a shared buffer gives a busy port.
QUEUE_US_MIN, QUEUE_US_MAX = 10, 10_000_000

_RATE = re.compile(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)")
_LOSS = re.compile(r"(\d+(?:\.\d+)?)%")
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_TIME_UNITS_US = {"us": 1, "ms": 10**3, "s": 10**6}
_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def parse_rate(text: str) -> int:
    """`100mbit` -> bits per second; units as in tc: bit, kbit, mbit, gbit (powers of ten)."""
    match = _RATE.fullmatch(text.strip().lower())
    if not match:
        raise ValueError(f"{text}: write a number with bit, kbit, mbit or gbit, as in 100mbit")
    rate_bps = round(float(match[1]) * _UNITS[match[2]])
    if not RATE_MIN_BPS <= rate_bps <= RATE_MAX_BPS:
        raise ValueError(f"{text}: outside 1mbit to 100gbit")
    return rate_bps


def parse_loss(text: str) -> int:
    """`0.1%` -> packets lost of a million."""
    match = _LOSS.fullmatch(text.strip())
    loss_ppm = round(float(match[1]) * 10_000) if match else 0
    if not match or loss_ppm > 1_000_000:
        raise ValueError(f"{text}: write a number from 0 to 100 with % behind it, as in 0.1%")
    return loss_ppm


def parse_queue(text: str) -> int:
    """`5ms` -> microseconds."""
    match = _TIME.fullmatch(text.strip().lower())
    if not match:
        raise ValueError(f"{text}: write a number with us, ms or s, as in 5ms")
    queue_us = round(float(match[1]) * _TIME_UNITS_US[match[2]])
    if not QUEUE_US_MIN <= queue_us <= QUEUE_US_MAX:
        raise ValueError(f"{text}: outside 10us to 10s")
    return queue_us


def parse_fabric(text: str) -> int:
    """`flat` -> 0, `leaf-spine:4` -> 4 spines."""
    if text == "flat":
        return 0
    kind, colon, count = text.partition(":")
    if kind != "leaf-spine" or not colon or not count.isascii() or not count.isdigit():
        raise ValueError(f"{text}: flat, or leaf-spine:SPINES as in leaf-spine:4")
    if not 1 <= int(count) <= SPINES_MAX:
        raise ValueError(f"{text}: 1 to {SPINES_MAX} spines")
    return int(count)


@dataclass(frozen=True)
class Spec:
    """What the user asks for."""

    nodes: int
    rails: int
    rate_bps: int
    spines: int = 0  # 0: flat, one switch that never blocks.
    spine_rate_bps: int = 0  # Of the links between leaves and spines; 0: as all others.
    loss_ppm: int = 0  # Of the packets on each of these links, in each direction.
    queue_us: int = QUEUE_US  # Of each link: as much as it sends in this time.

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX or not 1 <= self.rails <= RAILS_MAX:
            raise TuttiError(f"a lab has 1 to {NODES_MAX} nodes and 1 to {RAILS_MAX} rails")
        if not self.spines and (self.spine_rate_bps or self.loss_ppm):
            raise TuttiError(
                "links of a rate or a loss of their own are those of spines; "
                "remedy: --fabric leaf-spine:SPINES"
            )

    @property
    def fabric(self) -> str:
        """As the user writes it."""
        return f"leaf-spine:{self.spines}" if self.spines else "flat"

    @property
    def payload_bytes_per_s(self) -> float:
        """Application bytes that one link carries in one direction."""
        return self.rate_bps / 8 * PAYLOAD_BYTES / FRAME_BYTES


@dataclass(frozen=True)
class Port:
    """One end of a link: a network device of a box."""

    box: str
    device: str
    address: str | None = None  # With its prefix length; None: a port of a bridge.
    bridge: str | None = None


@dataclass(frozen=True)
class Link:
    """A pair of virtual Ethernet devices; both directions have the rate, None is unshaped."""

    a: Port
    b: Port
    rate_bps: int | None
    loss_ppm: int = 0  # In each direction.
    queue_us: int = QUEUE_US


@dataclass(frozen=True)
class Route:
    """A route of a box: by its device alone, or through gateways that share the flows."""

    destination: str
    device: str | None = None
    via: tuple[str, ...] = ()
    table: int = MAIN_TABLE


@dataclass(frozen=True)
class Rule:
    """Packets with this source address look into this table first."""

    source: str
    table: int


@dataclass(frozen=True)
class Box:
    """One machine or switch of the lab."""

    name: str
    bridges: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    sysctls: tuple[tuple[str, str], ...] = ()
    own_processes: bool = True  # Has a process table and shared memory of its own.


@dataclass(frozen=True)
class Plan:
    """A whole lab."""

    spec: Spec
    boxes: tuple[Box, ...] = ()
    links: tuple[Link, ...] = ()
    host_table: str = field(default="", repr=False)

    def box(self, name: str) -> Box:
        """The box of that name; an error that lists the names."""
        for box in self.boxes:
            if box.name == name:
                return box
        names = ", ".join(box.name for box in self.boxes)
        raise TuttiError(f"no box {name} in this lab; there are {names}")

    def link(self, name: str) -> Link:
        """The link with an end of that name, BOX:DEVICE; an error that names the remedy."""
        box, _, device = name.partition(":")
        for link in self.links:
            if any((port.box, port.device) == (box, device) for port in (link.a, link.b)):
                return link
        raise TuttiError(f"no link {name} in this lab; `tutti lab links` lists both ends of each")

    def device_to(self, box: str, gateway: str) -> str:
        """The device of a box on whose link a gateway is."""
        for link in self.links:
            for port in (link.a, link.b):
                on_link = (
                    port.address and IPv4Address(gateway) in ip_interface(port.address).network
                )
                if port.box == box and on_link:
                    return port.device
        raise TuttiError(f"{box} has no link to {gateway}")


def node_name(node: int) -> str:
    """Also its host name."""
    return f"n{node}"


def rail_device(rail: int) -> str:
    """The network device of a rail, the same on each node."""
    return f"rail{rail}"


def rail_address(node: int, rail: int) -> str:
    """Of a node's rail."""
    return f"10.{rail + 1}.{node + 1}.2"


def leaf_address(node: int, rail: int) -> str:
    """Of the leaf's end of a node's rail."""
    return f"10.{rail + 1}.{node + 1}.1"


def management_address(node: int | None) -> str:
    """Of a node, or of the head."""
    return f"192.168.0.{254 if node is None else node + 1}"


def uplink_addresses(spec: Spec, leaf: int, spine: int) -> tuple[str, str]:
    """(leaf's end, spine's end)."""
    first = IPv4Address("172.16.0.0") + 2 * (leaf * spec.spines + spine)
    return str(first), str(first + 1)


# A packet with the address of one rail leaves and arrives by that rail: answers to ARP come from
# the device that has the address, and the reverse path is not compared with the main table.
_SYSCTLS = (("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1"))
_NODE_SYSCTLS = (
    *_SYSCTLS,
    ("net/ipv4/conf/all/arp_ignore", "1"),
    ("net/ipv4/conf/all/arp_announce", "2"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    # The same for every job, whatever the machine has, and no memory of the job before. Reno is the
    # one algorithm that each kernel has and lets each namespace choose.
    ("net/ipv4/tcp_congestion_control", "reno"),
    ("net/ipv4/tcp_no_metrics_save", "1"),
)
_ROUTER_SYSCTLS = (
    *_SYSCTLS,
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    # Equal-cost routes share flows by addresses and ports, as switches do.
    ("net/ipv4/fib_multipath_hash_policy", "1"),
)


def _node(spec: Spec, node: int) -> Box:
    """Traffic follows its source address: a process bound to a rail uses no other."""
    routes: list[Route] = []
    for rail in range(spec.rails):
        device, table = rail_device(rail), RAIL_TABLE + rail
        if spec.spines:
            gateway = (leaf_address(node, rail),)
            routes.append(Route("10.0.0.0/8", device, gateway, table))
            routes.append(Route(f"10.{rail + 1}.0.0/16", device, gateway))
        else:
            routes.append(Route("10.0.0.0/8", device, table=table))
    return Box(
        node_name(node),
        routes=tuple(routes),
        rules=tuple(
            Rule(rail_address(node, rail), RAIL_TABLE + rail) for rail in range(spec.rails)
        ),
        sysctls=_NODE_SYSCTLS,
    )


def _management_links(spec: Spec) -> list[Link]:
    links = []
    for node in [*range(spec.nodes), None]:
        box = HEAD if node is None else node_name(node)
        links.append(
            Link(
                Port(box, MANAGEMENT, f"{management_address(node)}/24"),
                Port(SWITCH, f"{MANAGEMENT}-{box}", bridge=MANAGEMENT),
                None,
            )
        )
    return links


def _flat(spec: Spec) -> tuple[list[Box], list[Link]]:
    """One switch that all rails of all nodes are plugged into."""
    links = [
        Link(
            Port(node_name(node), rail_device(rail), f"{rail_address(node, rail)}/16"),
            Port(SWITCH, f"{node_name(node)}-{rail_device(rail)}", bridge="rails"),
            spec.rate_bps,
            queue_us=spec.queue_us,
        )
        for node in range(spec.nodes)
        for rail in range(spec.rails)
    ]
    return [Box(SWITCH, bridges=(MANAGEMENT, "rails"), sysctls=_SYSCTLS)], links


def _leaf_spine(spec: Spec) -> tuple[list[Box], list[Link]]:
    """A leaf for each node, each leaf connected with each spine by one link."""
    boxes, links = [Box(SWITCH, bridges=(MANAGEMENT,), sysctls=_SYSCTLS)], []
    for node in range(spec.nodes):
        for rail in range(spec.rails):
            links.append(
                Link(
                    Port(node_name(node), rail_device(rail), f"{rail_address(node, rail)}/24"),
                    Port(f"leaf{node}", rail_device(rail), f"{leaf_address(node, rail)}/24"),
                    spec.rate_bps,
                    queue_us=spec.queue_us,
                )
            )
        gateways = tuple(uplink_addresses(spec, node, spine)[1] for spine in range(spec.spines))
        route = Route("10.0.0.0/8", via=gateways)
        boxes.append(Box(f"leaf{node}", routes=(route,), sysctls=_ROUTER_SYSCTLS))
    for spine in range(spec.spines):
        routes = []
        for node in range(spec.nodes):
            down, up = uplink_addresses(spec, node, spine)
            links.append(
                Link(
                    Port(f"leaf{node}", f"up{spine}", f"{down}/31"),
                    Port(f"spine{spine}", f"down{node}", f"{up}/31"),
                    spec.spine_rate_bps or spec.rate_bps,
                    spec.loss_ppm,
                    spec.queue_us,
                )
            )
            routes += [
                Route(f"10.{rail + 1}.{node + 1}.0/24", via=(down,)) for rail in range(spec.rails)
            ]
        boxes.append(Box(f"spine{spine}", routes=tuple(routes), sysctls=_ROUTER_SYSCTLS))
    return boxes, links


def make(spec: Spec) -> Plan:
    """The lab for a specification."""
    boxes, links = _leaf_spine(spec) if spec.spines else _flat(spec)
    # The head shares its process table with the machine, so that a launcher which runs in it can
    # enter the nodes.
    boxes.append(Box(HEAD, sysctls=_SYSCTLS, own_processes=False))
    boxes += [_node(spec, node) for node in range(spec.nodes)]
    hosts = ["127.0.0.1 localhost", f"{management_address(None)} {HEAD}"]
    hosts += [f"{management_address(node)} {node_name(node)}" for node in range(spec.nodes)]
    return Plan(spec, tuple(boxes), tuple(_management_links(spec) + links), "\n".join(hosts) + "\n")


def segment_bytes(rate_bps: int) -> int:
    """The largest segment that the kernel hands to a link before it is cut into frames.

    A millisecond of the link, so that a segment waits no longer for its turn than in a network;
    at least 16 KiB, since each costs processor time that a small machine needs for the ranks.
    """
    return min(max(rate_bps // 8 // 1000, 16384), 65536)


def burst_bytes(rate_bps: int) -> int:
    """Of the token bucket: one segment with the headers of its frames, or two milliseconds.

    A smaller bucket makes the kernel cut each segment before it is queued. That costs so much
    processor time that links of 200 Mb/s look no faster than of 100.
    """
    return max(rate_bps // 8 // 500, segment_bytes(rate_bps) * 9 // 8)


def queue_bytes(rate_bps: int, queue_us: int = QUEUE_US) -> int:
    """Of the queue behind the bucket, which has room for four segments in any case."""
    return max(rate_bps // 8 * queue_us // 1_000_000, segment_bytes(rate_bps) * 9 // 8 * 4)


def chunk_bytes(rate_bps: int, queue_us: int = QUEUE_US) -> int:
    """What a transport over UDP should send in one piece: payload of a super-packet.

    The token bucket takes it whole; a larger one is cut into packets before it is queued, each with
    its way through the kernel. And the queue holds 64, which is a sender's window.
    """
    headers = 9 / 10  # 42 bytes for each 1472, and a margin.
    whole = burst_bytes(rate_bps) * headers
    return int(min(whole, queue_bytes(rate_bps, queue_us) * headers / 64))
