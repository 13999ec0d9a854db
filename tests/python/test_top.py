# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti top` and the files that it reads."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tutti_hpc import net_statistics, top
from tutti_hpc.cli import main
from tutti_hpc.errors import TuttiError
from tutti_hpc.net_statistics import Process

ENGINES, CONNECTIONS, PATHS = 2, 3, 4
ENGINES_OFFSET = 232
SLOTS_OFFSET = ENGINES_OFFSET + ENGINES * 704
SLOT_BYTES = 440 + PATHS * 48
BYTES = SLOTS_OFFSET + ENGINES * CONNECTIONS * SLOT_BYTES


def text(value: str, count: int) -> bytes:
    return value.encode().ljust(count, b"\0")


def header(**change: int | bytes) -> bytes:
    """What src/net/observe/statistics.hpp says, written down once more."""
    fields: dict[str, Any] = {
        "magic": b"tuttinet",
        "version": 3,
        "header_bytes": ENGINES_OFFSET,
        "file_bytes": BYTES,
        "engines_max": ENGINES,
        "engine_bytes": 704,
        "connections_max": CONNECTIONS,
        "connection_bytes": 440,
        "paths_max": PATHS,
        "path_bytes": 48,
        "engines_offset": ENGINES_OFFSET,
        "slots_offset": SLOTS_OFFSET,
        "slot_bytes": SLOT_BYTES,
        "process": 4711,
        "user": os.geteuid(),
        "start_unix_ns": 10**18,
        "start_ns": 5,
        "interval_ns": 10**8,
        "program": text("trainer", 64),
        "host": text("node1", 64),
    } | change
    return struct.pack("<8sIIQ6I3QII3Q64s64s", *fields.values())


def engine(sequence: int = 2, left_out: int = 0, fallbacks: int = 0) -> bytes:
    return struct.pack(
        "<QIIQ4IQ32s64s32s256s34Q",
        *(sequence, 1, 0, time.monotonic_ns(), 2, left_out, 10000, 0, fallbacks),
        *(text("eth0", 32), text("192.0.2.1", 64), text("cubic", 32), text("udp", 256)),
        *range(100, 134),
    )


def connection(
    number: int, direction: int = 1, sent: int = 1000, peer: str = "node2, process 7", **change: int
) -> bytes:
    """A connection that has sent `sent` chunks of 100 bytes, 1 of 100 twice."""
    counters = [sent, sent * 100, sent, sent * 100, 0, 0, sent // 100, *range(16)]
    paths = b"".join(
        struct.pack("<5QII", sent // 10 * (i + 1), i, 0, 20_000 + i, 0, 2 if i == 1 else 0, 0)
        for i in range(PATHS)
    )
    raw = struct.pack(
        "<QIIQQQ128s31Q5IB3x",
        *(change.get("sequence", 4), 1, direction, number, 7, time.monotonic_ns()),
        *(text(peer, 128), *counters, 65536, 4096, 0, 25_000, 0, 15_000, 9_000, 10**7),
        *(3, 6, change.get("shown", PATHS), 1, 0, 0),
    )
    return raw + paths


def write(path: Path, *slots: bytes, head: bytes | None = None, engine_raw: bytes = b"") -> Path:
    raw = bytearray(BYTES)
    head = header() if head is None else head
    raw[: len(head)] = head
    raw[ENGINES_OFFSET : ENGINES_OFFSET + 704] = engine_raw or engine()
    for index, slot in enumerate(slots):
        at = SLOTS_OFFSET + index * SLOT_BYTES
        raw[at : at + len(slot)] = slot
    path.write_bytes(raw)
    return path


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(net_statistics, "DIRECTORY", tmp_path)
    return tmp_path


def named(directory: Path, process: int = 4711, number: int = 1) -> Path:
    return directory / f"tutti-net-{os.geteuid()}-{process}-{number}"


class Alive:
    """Files whose writer lives: a child holds their locks, for a process does not see its own."""

    def __init__(self) -> None:
        self.children: list[int] = []

    def __call__(self, path: Path) -> Path:
        ready, ready_end = os.pipe()
        child = os.fork()
        if child == 0:
            descriptor = os.open(path, os.O_RDWR)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(ready_end, b"1")
            signal.pause()
            os._exit(0)
        self.children.append(child)
        os.close(ready_end)
        assert os.read(ready, 1) == b"1"
        os.close(ready)
        return path

    def end(self) -> None:
        for child in self.children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.children.clear()


@pytest.fixture
def alive() -> Iterator[Alive]:
    lives = Alive()
    yield lives
    lives.end()


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ("top", *words), prog_name="tutti")


def read(path: Path) -> Process:
    process = net_statistics.read(path)
    assert process is not None
    return process


def test_read__every_field(tmp_path: Path) -> None:
    process = read(write(tmp_path / "file", connection(1), b"", connection(2, direction=2)))
    assert (process.process, process.program, process.host) == (4711, "trainer", "node1")
    [engine] = process.engines
    assert (engine.device, engine.address, engine.controller) == ("eth0", "192.0.2.1", "cubic")
    assert engine.counters["chunks_sent"] == 100
    assert engine.counters["malformed_dropped"] == 122
    assert engine.of_strangers == {"malformed_dropped": 123, "strays_dropped": 124}
    assert engine.wire["refused"] == 133
    first, second = engine.connections
    assert (first.direction, second.direction) == ("sends", "receives")
    assert first.peer == "node2, process 7"
    assert first.counters["bytes_sent"] == 100_000
    assert first.counters["malformed_dropped"] == 15
    assert (first.window_bytes, first.srtt_ns, first.rtt_ns_min) == (65536, 25_000, None)
    assert (first.fabric_ns, first.fabric_ns_min, first.rto_ns) == (15_000, 9_000, 10**7)
    assert (first.paths_alive, first.paths_total, len(first.paths)) == (3, 6, PATHS)
    assert [path.state for path in first.paths] == ["good", "dead", "good", "good"]
    assert first.paths[3].chunks_sent == 400


def test_read__what_is_being_written_is_left_out(tmp_path: Path) -> None:
    process = read(write(tmp_path / "file", connection(1, sequence=5), connection(2)))
    assert [it.number for it in process.engines[0].connections] == [2]


def test_read__no_control_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "file", connection(1, peer="\x1b]0;x\x07\u202e\n"))
    assert read(path).engines[0].connections[0].peer == "?]0;x???"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "cut off"),
        (header()[:100], "cut off"),
        (header(), "cut off, it has 232 of"),
        (b"\x7fELF" * 100, "not a file of Tutti's"),
        (header(version=2) + bytes(BYTES), "writes version 2 of the statistics, this `tutti`"),
        (header(path_bytes=56) + bytes(BYTES), "contradicts itself"),
        (header(slot_bytes=1) + bytes(BYTES), "contradicts itself"),
        (header(connections_max=2**31) + bytes(BYTES), "contradicts itself"),
    ],
    ids=["empty", "half a header", "no records", "foreign", "newer", "paths", "slots", "huge"],
)
def test_read__what_is_wrong_with_it(tmp_path: Path, raw: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(raw)
    with pytest.raises(TuttiError, match="file: .*" + words):
        net_statistics.read(path)


def test_read__more_paths_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(TuttiError, match="5 paths where 4 fit"):
        net_statistics.read(write(tmp_path / "file", connection(1, shown=5)))


def test_read__neither_links_nor_pipes(tmp_path: Path) -> None:
    link, pipe = named(tmp_path, 1), named(tmp_path, 2)
    link.symlink_to(write(tmp_path / "file"))
    os.mkfifo(pipe)
    assert net_statistics.read(link) is None
    with pytest.raises(TuttiError, match="not a file of Tutti's"):
        net_statistics.read(pipe)


def test_stale__is_removed(directory: Path, alive: Alive) -> None:
    dead, lives = write(named(directory, 1)), alive(write(named(directory, 2), connection(1)))
    shown = invoke("--once", "--json", "--interval", "0")
    assert shown.exit_code == 0, shown.output
    assert [it["file"] for it in json.loads(shown.stdout)["processes"]] == [str(lives)]
    assert not dead.exists()
    alive.end()
    shown = invoke("--once", "--interval", "0")
    assert shown.stdout == "no process of this user has a network of Tutti in use on this host\n"
    assert not lives.exists()


def test_read__leaves_its_own_process_alone(directory: Path) -> None:
    path = write(named(directory, os.getpid()), connection(1))
    locked = (
        "import fcntl, sys\n"
        "try: fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: print('locked')\n"
    )

    def is_locked() -> bool:
        words = [sys.executable, "-c", locked, str(path)]
        return subprocess.run(words, capture_output=True, text=True).stdout == "locked\n"

    with path.open("r+b") as writer:
        fcntl.lockf(writer, fcntl.LOCK_EX)
        assert net_statistics.read(path) is None
        assert path.exists()
        assert is_locked()


def test_top__table(directory: Path, alive: Alive) -> None:
    alive(
        write(
            named(directory),
            connection(1),
            connection(2, direction=2),
            engine_raw=engine(left_out=3),
        )
    )
    shown = invoke("--once", "--interval", "0", "--paths", "2")
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("trainer 4711 on node1, since ")
    assert lines[1].startswith("  eth0 192.0.2.1 engine 0, 10 Gb/s, cubic, shared: sends ")
    assert lines[2].split()[1:6] == ["rate", "rtt", "us", "fabric", "least"]
    assert " 25      15      9 " in lines[3]
    assert "3/6" in lines[3]
    assert "10.00%/25.00%/40.00%" in lines[3]
    assert lines[5].split()[:2] == ["1", "dead"]
    assert lines[6].split()[:2] == ["3", "good"]  # The slowest of those that lost most.
    assert lines[7].strip() == "and 4 more"
    assert "receives" in lines[8]
    assert lines[9].strip() == "and 3 more connections"


def test_top__rates_are_differences(tmp_path: Path) -> None:
    path = tmp_path / "file"
    samples = []
    for sent, time_ns in ((1000, 10**12), (3000, 10**12 + 2 * 10**9)):
        process = read(write(path, connection(1, sent=sent)))
        process.engines[0].connections[0].updated_ns = time_ns - 10**7
        samples.append(top.Sample(time_ns, [process], []))
    document = top.describe(*samples)
    shown = document["processes"][0]["engines"][0]["connections"][0]
    assert document["seconds"] == 2.0
    assert shown["rates"]["bytes_per_s"] == pytest.approx(100_000)
    assert shown["rates"]["retransmissions_per_s"] == pytest.approx(10)
    assert shown["rates"]["retransmitted"] == pytest.approx(0.01)
    assert shown["share"] == pytest.approx({"min": 0.1, "median": 0.25, "max": 0.4})


def test_top__a_connection_that_stands_still(tmp_path: Path) -> None:
    process = read(write(tmp_path / "file", connection(1)))
    process.engines[0].connections[0].updated_ns = 5
    samples = [top.Sample(t * 10**12, [process], []) for t in (1, 2)]
    shown = top.describe(*samples)["processes"][0]["engines"][0]["connections"][0]
    assert shown["rates"]["bytes_per_s"] == 0
    assert shown["rates"]["retransmitted"] is None


def test_top__another_process(directory: Path, alive: Alive) -> None:
    alive(write(named(directory, 4711)))
    assert invoke("--once", "--interval", "0", "4711").exit_code == 0
    shown = invoke("--once", "4712")
    assert shown.exit_code == TuttiError.exit_code
    assert "process 4712 has no network of Tutti in use here" in shown.stderr


def test_top__one_that_cannot_be_read_among_others(directory: Path, alive: Alive) -> None:
    other = alive(write(named(directory, 8), head=header(version=9)))
    shown = invoke("--once", "--interval", "0")
    assert shown.exit_code == TuttiError.exit_code
    assert f"tutti: {other}: process 4711 writes version 9" in shown.stderr
    alive(write(named(directory, 9)))
    shown = invoke("--once", "--interval", "0")
    assert shown.exit_code == 0
    assert "trainer" in shown.stdout
    assert "version 9" in shown.stdout


def test_top__no_interval(directory: Path) -> None:
    shown = invoke("--interval", "0")
    assert shown.exit_code == 2
    assert "--interval 0 is for --once" in shown.stderr


def test_layout__counters_stand_in_the_same_order() -> None:
    root = Path(__file__).resolve().parents[2]
    for file, struct_name, names in (
        ("transport/types.hpp", "ConnectionCounters", net_statistics._COUNTERS),
        ("transport/types.hpp", "EndpointCounters", net_statistics._OF_STRANGERS),
        ("wire/wire.hpp", "WireCounters", net_statistics._WIRE),
    ):
        source = (root / "src" / file).read_text()
        body = source.split(f"struct {struct_name} {{")[1].split("};")[0]
        found = [line.split("=")[0].split()[-1] for line in body.splitlines() if " = 0;" in line]
        assert tuple(found) == names


@pytest.mark.usefixtures("default_signals")
def test_top__ends_with_the_interrupt_key() -> None:
    terminal, end = pty.openpty()
    words = [sys.executable, "-m", "tutti_hpc", "top", "--interval", "0.1"]
    started = subprocess.Popen(words, stdin=end, stdout=end, stderr=end, start_new_session=True)
    os.close(end)
    shown = b""
    while shown.count(b"\x1b[H\x1b[J") < 2:
        shown += os.read(terminal, 4096)
    started.send_signal(signal.SIGINT)
    assert started.wait(20) == 0
    os.close(terminal)
    assert b"end with ^C" in shown
    # Nothing that would have to be undone at the end.
    assert set(re.findall(rb"\x1b\[[0-9;?]*[A-Za-z]", shown)) <= {
        b"\x1b[H",
        b"\x1b[J",
        b"\x1b[1m",
        b"\x1b[0m",
    }
