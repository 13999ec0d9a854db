# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Reads what the network engines of this host's processes write to shared memory.

The layout is src/net/observe/statistics.hpp's. What comes from a file is not believed: sizes are
checked, and texts hold no control characters afterwards.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tutti_hpc.errors import TuttiError

DIRECTORY = Path("/dev/shm")
MAGIC = b"tuttinet"
VERSION = 3

_NAME = re.compile(r"tutti-net-(?P<user>\d+)-(?P<process>\d+)-\d+")
_HEADER = struct.Struct("<8sIIQIIIIIIQQQIIQQQ64s64s")
_ENGINE = struct.Struct("<QIIQIIIIQ32s64s32s256s23Q2Q9Q")
_CONNECTION = struct.Struct("<QIIQQQ128s23Q8QIIIIIB3x")
_PATH = struct.Struct("<5QI4x")

_COUNTERS = (
    "chunks_sent",
    "bytes_sent",
    "chunks_received",
    "bytes_received",
    "acks_sent",
    "acks_received",
    "retransmissions",
    "spurious_retransmissions",
    "nacks",
    "lost_same_path",
    "lost_rack",
    "lost_timeout",
    "timeouts",
    "tail_probes",
    "marks",
    "undone",
    "path_deaths",
    "rail_deaths",
    "duplicates_received",
    "trims_received",
    "replays_dropped",
    "forgeries_dropped",
    "malformed_dropped",
)
_OF_STRANGERS = ("malformed_dropped", "strays_dropped")
_WIRE = (
    "datagrams_sent",
    "datagrams_received",
    "calls_sent",
    "calls_received",
    "payload_bytes_placed",
    "payload_bytes_copied",
    "fragments_dropped",
    "malformed_dropped",
    "refused",
)
_STATES = ("unused", "open", "ended")
_DIRECTIONS = ("none", "sends", "receives")
_PATH_STATES = ("good", "suspect", "dead")
_OUTCOMES = ("ok", "cancelled", "truncated", "closed", "aborted", "reset", "unreachable")
# Of the writer; a file that claims more is not of it.
_ENGINES_MAX = 32
_CONNECTIONS_MAX = 128
_PATHS_MAX = 256
_READS_MAX = 1000  # Of one record that its writer changes all the time.


@dataclass
class PathState:
    """One path of a connection."""

    number: int
    state: str
    chunks_sent: int
    losses: int
    marks: int
    rtt_ns: int | None
    inflight_bytes: int


@dataclass
class Connection:
    """One direction between two processes, seen from this one."""

    number: int
    state: str
    direction: str
    peer: str
    opened_ns: int
    updated_ns: int
    counters: dict[str, int]
    window_bytes: int
    inflight_bytes: int
    backlog_bytes: int
    srtt_ns: int | None
    rtt_ns_min: int | None
    fabric_ns: int | None
    fabric_ns_min: int | None
    rto_ns: int
    paths_alive: int
    paths_total: int
    open_requests: int
    is_in_recovery: bool
    outcome: str
    paths: list[PathState]


@dataclass
class Engine:
    """One engine: a device's, with a thread of its own."""

    index: int
    number: int
    device: str
    address: str
    controller: str
    description: str
    speed_mbps: int
    is_busy: bool
    fallbacks: int
    updated_ns: int
    connections_open: int
    connections_left_out: int
    counters: dict[str, int]
    of_strangers: dict[str, int]
    wire: dict[str, int]
    connections: list[Connection] = field(default_factory=list)


@dataclass
class Process:
    """One network of a process."""

    process: int
    user: int
    program: str
    host: str
    file: str
    start_unix_ns: int
    start_ns: int
    interval_ns: int
    engines: list[Engine]


def _text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode("utf-8", errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if number < len(words) else f"unknown ({number})"


def _numbers(names: tuple[str, ...], values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(names, values))


class _File:
    """One open file whose header is in order."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor
        raw = self.read(0, _HEADER.size)
        if raw[:8] != MAGIC:
            raise TuttiError(f"{name}: not a file of Tutti's network statistics")
        (_, version, header_bytes, file_bytes, self.engines_max, self.engine_bytes,
         self.connections_max, self.connection_bytes, self.paths_max, self.path_bytes,
         self.engines_offset, self.slots_offset, self.slot_bytes, self.process, self.user,
         self.start_unix_ns, self.start_ns, self.interval_ns, program, host,
        ) = _HEADER.unpack(raw)  # fmt: skip
        if version != VERSION:
            raise TuttiError(
                f"{name}: process {self.process} writes version {version} of the statistics, this "
                f"`tutti` reads version {VERSION}; use the `tutti` of the Tutti that it runs with"
            )
        slots = self.engines_max * self.connections_max
        fits = (
            header_bytes == _HEADER.size
            and self.engines_max <= _ENGINES_MAX
            and self.connections_max <= _CONNECTIONS_MAX
            and self.paths_max <= _PATHS_MAX
            and self.engine_bytes == _ENGINE.size
            and self.connection_bytes == _CONNECTION.size
            and self.path_bytes == _PATH.size
            and self.slot_bytes == _CONNECTION.size + self.paths_max * _PATH.size
            and self.engines_offset >= _HEADER.size
            and self.slots_offset >= self.engines_offset + self.engines_max * _ENGINE.size
            and file_bytes == self.slots_offset + slots * self.slot_bytes
        )
        if not fits:
            raise TuttiError(f"{name}: its header contradicts itself: it is damaged")
        held = os.fstat(descriptor).st_size
        if held < file_bytes:
            raise TuttiError(f"{name}: cut off, it has {held} of {file_bytes} bytes")
        self.program, self.host = _text(program), _text(host)

    def read(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes."""
        raw = os.pread(self.descriptor, count, offset)
        if len(raw) < count:
            raise TuttiError(f"{self.name}: cut off, it ends before byte {offset + count}")
        return raw

    def record(self, offset: int, count: int) -> bytes | None:
        """A whole record; None if it changes too often, or was never written."""
        for _ in range(_READS_MAX):
            before = self.read(offset, 8)
            if not any(before):
                return None
            raw = self.read(offset, count)
            if before[0] % 2 == 0 and before == self.read(offset, 8):
                return raw
        return None


def _path(number: int, raw: bytes) -> PathState:
    sent, losses, marks, rtt_ns, inflight, state = _PATH.unpack(raw)
    return PathState(
        number, _word(_PATH_STATES, state), sent, losses, marks, rtt_ns or None, inflight
    )


def _connection(file: _File, raw: bytes) -> Connection | None:
    _, state, direction, number, opened_ns, updated_ns, peer, *rest = _CONNECTION.unpack_from(raw)
    if _word(_STATES, state) == "unused":
        return None
    counters, rest = rest[: len(_COUNTERS)], rest[len(_COUNTERS) :]
    window, inflight, backlog, srtt_ns, rtt_ns_min, fabric_ns, fabric_ns_min, rto_ns = rest[:8]
    alive, total, shown, open_requests, is_in_recovery, outcome = rest[8:]
    if shown > file.paths_max:
        raise TuttiError(f"{file.name}: {shown} paths where {file.paths_max} fit: it is damaged")
    paths = [_path(i, raw[_CONNECTION.size + i * _PATH.size :][: _PATH.size]) for i in range(shown)]
    return Connection(
        number=number,
        state=_word(_STATES, state),
        direction=_word(_DIRECTIONS, direction),
        peer=_text(peer),
        opened_ns=opened_ns,
        updated_ns=updated_ns,
        counters=_numbers(_COUNTERS, tuple(counters)),
        window_bytes=window,
        inflight_bytes=inflight,
        backlog_bytes=backlog,
        srtt_ns=srtt_ns or None,
        rtt_ns_min=rtt_ns_min or None,
        fabric_ns=fabric_ns or None,
        fabric_ns_min=fabric_ns_min or None,
        rto_ns=rto_ns,
        paths_alive=alive,
        paths_total=total,
        open_requests=open_requests,
        is_in_recovery=bool(is_in_recovery),
        outcome=_word(_OUTCOMES, outcome),
        paths=paths,
    )


def _engine(file: _File, index: int) -> Engine | None:
    raw = file.record(file.engines_offset + index * _ENGINE.size, _ENGINE.size)
    if raw is None:
        return None
    (_, state, number, updated_ns, connections, left_out, speed_mbps, is_busy,
     fallbacks, device, address, controller, description, *rest,
    ) = _ENGINE.unpack(raw)  # fmt: skip
    if _word(_STATES, state) == "unused":
        return None
    counters, rest = rest[: len(_COUNTERS)], rest[len(_COUNTERS) :]
    strangers, wire = rest[: len(_OF_STRANGERS)], rest[len(_OF_STRANGERS) :]
    engine = Engine(
        index=index,
        number=number,
        device=_text(device),
        address=_text(address),
        controller=_text(controller),
        description=_text(description),
        speed_mbps=speed_mbps,
        is_busy=bool(is_busy),
        fallbacks=fallbacks,
        updated_ns=updated_ns,
        connections_open=connections,
        connections_left_out=left_out,
        counters=_numbers(_COUNTERS, tuple(counters)),
        of_strangers=_numbers(_OF_STRANGERS, tuple(strangers)),
        wire=_numbers(_WIRE, tuple(wire)),
    )
    for slot in range(file.connections_max):
        offset = file.slots_offset + (index * file.connections_max + slot) * file.slot_bytes
        slot_raw = file.record(offset, file.slot_bytes)
        connection = None if slot_raw is None else _connection(file, slot_raw)
        if connection is not None:
            engine.connections.append(connection)
    engine.connections.sort(key=lambda connection: connection.number)
    return engine


def _is_stale(descriptor: int) -> bool:
    """Nobody has the lock that the writer holds for as long as it lives."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _open(path: Path) -> int | None:
    """None: it is gone, or not ours to read."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


def read(path: Path) -> Process | None:
    """The statistics in a file; None if its process is gone, and then the file is removed.

    None as well for a file that is named after this process, which is left alone: its writer's lock
    is the process's, so that it would not show here, and would be gone once the file is closed.

    Raises:
        TuttiError: It is not such a file, is damaged, or of another version.
    """
    if process_of(path) == os.getpid():
        return None
    descriptor = _open(path)
    if descriptor is None:
        return None
    try:
        about = os.fstat(descriptor)
        named = _NAME.fullmatch(path.name)
        if not stat.S_ISREG(about.st_mode) or (named and int(named["user"]) != about.st_uid):
            raise TuttiError(f"{path}: not a file of Tutti's network statistics")
        if named and _is_stale(descriptor):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        file = _File(str(path), descriptor)
        engines = (_engine(file, index) for index in range(file.engines_max))
        return Process(
            process=file.process,
            user=about.st_uid,
            program=file.program,
            host=file.host,
            file=str(path),
            start_unix_ns=file.start_unix_ns,
            start_ns=file.start_ns,
            interval_ns=file.interval_ns,
            engines=[engine for engine in engines if engine is not None],
        )
    finally:
        os.close(descriptor)


def process_of(path: Path) -> int:
    """The process that a file is named after."""
    named = _NAME.fullmatch(path.name)
    return int(named["process"]) if named else 0


def files(directory: Path) -> Iterator[Path]:
    """Those of this user's processes; root sees everybody's."""
    user = os.geteuid()
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise TuttiError(f"{directory}: {error.strerror}") from None
    for name in names:
        named = _NAME.fullmatch(name)
        if named and (user == 0 or int(named["user"]) == user):
            yield directory / name
