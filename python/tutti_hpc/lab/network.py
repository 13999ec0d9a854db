# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Builds a plan's network between the boxes, and reads its counters, through netlink.

Each box is changed by a child process that enters its network namespace first, so nothing is ever
made in the machine's own. The library that speaks netlink is pyroute2; only this file knows it
(what packet_loss needs of netlink the library does not have).
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import namespaces, packet_loss
from tutti_hpc.lab.plan import Box, Link, Plan, Port, burst_bytes, queue_bytes, segment_bytes

_IFF_UP = 1  # <linux/if.h>


@dataclass(frozen=True)
class Counter:
    """Bytes that left each end of a link since the lab is up, and packets its queue dropped.

    A segment that the kernel cuts late is counted once, with one header: the sum is what the
    application sent plus a little.
    """

    a: str  # BOX:DEVICE
    b: str
    shaped: bool
    a_to_b_bytes: int
    b_to_a_bytes: int
    dropped_packets: int  # By queues, which were full.
    lost_packets: int  # As the link's loss has it.


def require_library() -> Any:
    """The netlink library; an error that names the remedy."""
    try:
        import pyroute2
    except ImportError:
        raise TuttiError(
            "`tutti lab` needs the Python package pyroute2; remedy: pip install pyroute2"
        ) from None
    return pyroute2


@contextmanager
def _netlink() -> Iterator[Any]:
    with require_library().IPRoute() as route:
        yield route


def inside(pid: int, action: Callable[[], Any]) -> Any:
    """What `action` returns (as JSON has it) in a child in the network namespace of `pid`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        answer: dict[str, Any] = {}
        try:
            namespaces.enter(pid, namespaces.NEW_NET)
            answer["value"] = action()
        except BaseException as error:
            answer["error"] = f"{type(error).__name__}: {error}"
            # The library's errors have a number as OSError has, but are none.
            answer["errno"] = getattr(error, "errno", None) or getattr(error, "code", None)
        with os.fdopen(writer, "w") as stream:
            json.dump(answer, stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    answer = json.loads(text) if text else {"error": "a child died"}
    if "error" in answer:
        if answer.get("errno") in (errno.EPERM, errno.EACCES):
            raise TuttiError(f"the kernel refused: {answer['error']}; remedy: run as root")
        raise TuttiError(f"the lab's network: {answer['error']}")
    return answer["value"]


def _index(route: Any, device: str) -> int:
    found = route.link_lookup(ifname=device)
    if not found:
        raise FileNotFoundError(errno.ENOENT, f"no device {device}")
    return int(found[0])


def _start_box(box: Box) -> None:
    for name, value in box.sysctls:
        file = Path("/proc/sys", name)
        if file.exists():  # A kernel without IPv6 need not be told to leave it.
            file.write_text(value)
    with _netlink() as route:
        route.link("set", index=_index(route, "lo"), state="up")
        for bridge in box.bridges:
            route.link("add", ifname=bridge, kind="bridge")
            route.link("set", index=_index(route, bridge), state="up")


def _shape(route: Any, index: int, rate_bps: int, queue_us: int) -> None:
    route.link("set", index=index, gso_max_size=segment_bytes(rate_bps))
    route.tc(
        "add",
        "tbf",
        index,
        # In bits per second as the library reads text, bytes as it reads numbers.
        rate=f"{rate_bps}bit",
        burst=burst_bytes(rate_bps),
        limit=queue_bytes(rate_bps, queue_us),
    )


def _add_links(links: Sequence[Link], pids: Mapping[str, int]) -> None:
    """Creates the pairs from the box of their end b; all links have that box."""
    with _netlink() as route:
        for link in links:
            descriptor = os.open(f"/proc/{pids[link.a.box]}/ns/net", os.O_RDONLY)
            try:
                route.link(
                    "add",
                    ifname=link.b.device,
                    kind="veth",
                    peer={"ifname": link.a.device, "net_ns_fd": descriptor},
                )
            finally:
                os.close(descriptor)


def _start_port(route: Any, port: Port, link: Link) -> None:
    index = _index(route, port.device)
    if port.bridge:
        route.link("set", index=index, master=_index(route, port.bridge))
    if port.address:
        address, _, length = port.address.partition("/")
        route.addr("add", index=index, address=address, prefixlen=int(length))
    if link.rate_bps is not None:
        _shape(route, index, link.rate_bps, link.queue_us)
    if link.loss_ppm:
        # The kernel then cuts each segment before it is on the link, and what is lost is a packet.
        route.link("set", index=index, gso_max_segs=1)
    route.link("set", index=index, state="up")


def _is_up(route: Any, device: str) -> bool:
    return bool(route.get_links(_index(route, device))[0]["flags"] & _IFF_UP)


def _set_routes(route: Any, plan: Plan, box: Box) -> None:
    """Those of the box's routes that have a link which is up; the kernel forgets the others."""
    for one in box.routes:
        words: dict[str, Any] = {"dst": one.destination, "table": one.table}
        if one.device:
            words["oif"] = _index(route, one.device)
        gateways = [via for via in one.via if _is_up(route, plan.device_to(box.name, via))]
        if (one.via and not gateways) or (one.device and not _is_up(route, one.device)):
            continue
        if len(gateways) == 1:
            words["gateway"] = gateways[0]
        elif gateways:
            words["multipath"] = [{"gateway": gateway} for gateway in gateways]
        else:
            words["scope"] = 253  # RT_SCOPE_LINK: the destination is on the link itself.
        route.route("replace", **words)


def _finish_box(plan: Plan, box: Box) -> None:
    with _netlink() as route:
        for link in plan.links:
            for port in (link.a, link.b):
                if port.box == box.name:
                    _start_port(route, port, link)
        _set_routes(route, plan, box)
        for rule in box.rules:
            route.rule("add", src=rule.source, src_len=32, table=rule.table, priority=rule.table)
    losses_ppm = {
        port.device: link.loss_ppm
        for link in plan.links
        for port in (link.a, link.b)
        if link.loss_ppm and port.box == box.name
    }
    if losses_ppm:
        packet_loss.start(losses_ppm)


def build(plan: Plan, pids: Mapping[str, int]) -> None:
    """Makes the whole network; `pids` has a process of each box."""
    require_library()  # Once, before the children.
    for box in plan.boxes:
        inside(pids[box.name], partial(_start_box, box))
    for box in plan.boxes:
        links = [link for link in plan.links if link.b.box == box.name]
        if links:
            inside(pids[box.name], partial(_add_links, links, pids))
    for box in plan.boxes:
        inside(pids[box.name], partial(_finish_box, plan, box))


def _set_state(devices: Sequence[str], state: str) -> None:
    with _netlink() as route:
        for device in devices:
            route.link("set", index=_index(route, device), state=state)


def _refresh_routes(plan: Plan, box: Box) -> None:
    with _netlink() as route:
        _set_routes(route, plan, box)


def set_link(plan: Plan, pids: Mapping[str, int], name: str, up: bool) -> None:
    """Plugs in or pulls the link with an end of that name, BOX:DEVICE.

    Both ends see it, and no longer route over it; nobody else is told, as without a routing
    protocol.
    """
    require_library()
    link = plan.link(name)
    for port in (link.a, link.b):
        inside(pids[port.box], partial(_set_state, [port.device], "up" if up else "down"))
    for port in (link.a, link.b):
        inside(pids[port.box], partial(_refresh_routes, plan, plan.box(port.box)))


def _read_box(is_lossy: bool) -> dict[str, tuple[int, int, int]]:
    """Device -> (bytes sent, packets dropped by its queue, packets lost that arrived)."""
    found = {}
    losses = packet_loss.lost() if is_lossy else {}
    with _netlink() as route:
        dropped: dict[int, int] = {}
        for queue in route.get_qdiscs():
            statistics = queue.get_attr("TCA_STATS2")
            counts = statistics.get_attr("TCA_STATS_QUEUE") if statistics else None
            if counts:
                dropped[queue["index"]] = dropped.get(queue["index"], 0) + int(counts["drops"])
        for device in route.get_links():
            sent = int(device.get_attr("IFLA_STATS64")["tx_bytes"])
            name = device.get_attr("IFLA_IFNAME")
            found[name] = (sent, dropped.get(device["index"], 0), losses.get(name, 0))
    return found


def counters(plan: Plan, pids: Mapping[str, int]) -> list[Counter]:
    """Of every link, in the plan's order."""
    require_library()
    lossy = {port.box for link in plan.links if link.loss_ppm for port in (link.a, link.b)}
    boxes = {
        box.name: inside(pids[box.name], partial(_read_box, box.name in lossy))
        for box in plan.boxes
    }
    found = []
    for link in plan.links:
        a_bytes, a_dropped, a_lost = boxes[link.a.box][link.a.device]
        b_bytes, b_dropped, b_lost = boxes[link.b.box][link.b.device]
        found.append(
            Counter(
                a=f"{link.a.box}:{link.a.device}",
                b=f"{link.b.box}:{link.b.device}",
                shaped=link.rate_bps is not None,
                a_to_b_bytes=a_bytes,
                b_to_a_bytes=b_bytes,
                dropped_packets=a_dropped + b_dropped,
                lost_packets=a_lost + b_lost,
            )
        )
    return found
