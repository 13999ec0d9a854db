# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti top`: what the network engines of this host's processes do, as it happens."""

from __future__ import annotations

import dataclasses
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click

from tutti_hpc import net_statistics, output
from tutti_hpc.errors import TuttiError
from tutti_hpc.net_statistics import Connection, Process

Document = dict[str, Any]
# A record that is older than this many intervals of its writer is of one that does nothing now.
_FRESH_INTERVALS = 3
_CLEAR = "\x1b[H\x1b[J"


@dataclasses.dataclass
class Sample:
    """All processes at one moment of CLOCK_MONOTONIC."""

    time_ns: int
    processes: list[Process]
    problems: list[str]


def take(chosen: Sequence[int]) -> Sample:
    """Reads the chosen processes, or all.

    Raises:
        TuttiError: There is something to read, and none of it can be read.
    """
    processes, problems = [], []
    for path in net_statistics.files(net_statistics.DIRECTORY):
        if chosen and net_statistics.process_of(path) not in chosen:
            continue
        try:
            process = net_statistics.read(path)
        except TuttiError as error:
            problems.append(error.message)
            continue
        if process is not None:
            processes.append(process)
    if problems and not processes:
        raise TuttiError("; ".join(problems))
    return Sample(time.monotonic_ns(), processes, problems)


def take_first(chosen: Sequence[int]) -> Sample:
    """The same.

    Raises:
        TuttiError: Also when a chosen process is not there.
    """
    sample = take(chosen)
    missing = sorted(set(chosen) - {process.process for process in sample.processes})
    if missing:
        raise TuttiError(
            f"process {', '.join(map(str, missing))} has no network of Tutti in use here; "
            "`tutti top` without a number shows those that have"
        )
    return sample


def _by_number(sample: Sample | None) -> dict[tuple[str, int], Connection]:
    """The connections of a sample."""
    return {
        (process.file, connection.number): connection
        for process in (sample.processes if sample else [])
        for engine in process.engines
        for connection in engine.connections
    }


def _written_ns(process: Process, connection: Connection, sample: Sample) -> int:
    """When a connection's numbers were what they are in the sample."""
    age_ns = sample.time_ns - connection.updated_ns
    is_fresh = age_ns <= _FRESH_INTERVALS * process.interval_ns
    return connection.updated_ns if is_fresh else sample.time_ns


def _quotient(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _shares(old: Connection | None, new: Connection) -> list[float]:
    """What part of the chunks went over each path; since the start where there was none of late."""
    sent = [path.chunks_sent for path in new.paths]
    of_late = sent
    if old is not None and len(old.paths) == len(new.paths):
        of_late = [a.chunks_sent - b.chunks_sent for a, b in zip(new.paths, old.paths)]
    for chunks in (of_late, sent):
        if sum(chunks) > 0:
            return [count / sum(chunks) for count in chunks]
    return [0.0] * len(sent)


def _badness(path: Document) -> tuple[int, int, float, int]:
    """Worst first: not in use, then what was lost and marked of late, then the round trip."""
    state = {"dead": 0, "suspect": 1}.get(path["state"], 2)
    return (state, -path["losses_of_late"], -path["marks_of_late"], -(path["rtt_ns"] or 0))


def _connection(
    process: Process, connection: Connection, old: Connection | None, samples: tuple[Any, Any]
) -> Document:
    """One connection, with what it did between the two samples."""
    before, now = samples
    seconds = 0.0
    began: dict[str, int] = dict.fromkeys(connection.counters, 0)
    if old is not None:
        began = old.counters
        seconds = _written_ns(process, connection, now) - _written_ns(process, old, before)
    elif before is None or connection.opened_ns > before.time_ns:
        seconds = _written_ns(process, connection, now) - connection.opened_ns
    seconds /= 1e9
    delta = {name: value - began[name] for name, value in connection.counters.items()}
    way = "sent" if connection.direction == "sends" else "received"
    shares = _shares(old, connection)
    paths = []
    for index, (path, share) in enumerate(zip(connection.paths, shares)):
        last = old.paths[index] if old is not None and index < len(old.paths) else None
        paths.append(
            dataclasses.asdict(path)
            | {
                "share": share,
                "losses_of_late": path.losses - (last.losses if last else 0),
                "marks_of_late": path.marks - (last.marks if last else 0),
            }
        )
    document = dataclasses.asdict(connection)
    document["paths"] = paths
    document["rates"] = {
        "bytes_per_s": _quotient(delta[f"bytes_{way}"], seconds),
        "chunks_per_s": _quotient(delta[f"chunks_{way}"], seconds),
        "retransmissions_per_s": _quotient(delta["retransmissions"], seconds),
        "retransmitted": _quotient(delta["retransmissions"], delta["chunks_sent"]),
        "timeouts": delta["timeouts"],
    }
    if shares:
        document["share"] = {
            "min": min(shares),
            "median": statistics.median(shares),
            "max": max(shares),
        }
    return document


def describe(before: Sample | None, now: Sample) -> Document:
    """The newer sample with rates since the older one; without one, since each connection began."""
    old = _by_number(before)
    processes = []
    for process in now.processes:
        document = dataclasses.asdict(process)
        for engine, shown in zip(process.engines, document["engines"]):
            shown["connections"] = [
                _connection(process, it, old.get((process.file, it.number)), (before, now))
                for it in engine.connections
            ]
            shown["updated_s_ago"] = max(0, now.time_ns - engine.updated_ns) / 1e9
        processes.append(document)
    return {
        "seconds": (now.time_ns - before.time_ns) / 1e9 if before else None,
        "processes": processes,
        "problems": now.problems,
    }


def _rate(bytes_per_s: float | None) -> str:
    if bytes_per_s is None:
        return "-"
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("KB/s", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.2f} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def _size(count: int) -> str:
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def _us(time_ns: int | None) -> str:
    return "-" if time_ns is None else f"{time_ns / 1e3:.0f}"


def _part(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _peer(connection: Document) -> str:
    state = connection["state"]
    if state == "open":
        return str(connection["peer"])
    why = "" if connection["outcome"] == "ok" else f": {connection['outcome']}"
    return f"{connection['peer']} ({state}{why})"


_HEADINGS = (
    "peer",
    "",
    "rate",
    "rtt us",
    "fabric",
    "least",
    "window",
    "in flight",
    "resent/s",
    "resent",
    "timeouts",
    "paths",
    "share least/median/most",
)


def _row(connection: Document) -> list[str]:
    rates, sends = connection["rates"], connection["direction"] == "sends"
    cells = [_peer(connection), connection["direction"], _rate(rates["bytes_per_s"])]
    if not sends:
        return cells + ["-"] * (len(_HEADINGS) - len(cells))
    share = connection.get("share")
    resent = rates["retransmissions_per_s"]
    return [
        *cells,
        _us(connection["srtt_ns"]),
        _us(connection["fabric_ns"]),
        _us(connection["fabric_ns_min"]),
        _size(connection["window_bytes"]),
        _size(connection["inflight_bytes"]),
        "-" if resent is None else f"{resent:.0f}",
        _part(rates["retransmitted"]),
        str(connection["counters"]["timeouts"]),
        f"{connection['paths_alive']}/{connection['paths_total']}",
        "/".join(_part(share[key]) for key in ("min", "median", "max")) if share else "-",
    ]


def _path_lines(connection: Document, count: int) -> list[str]:
    """The worst paths of a sender."""
    if count == 0 or connection["direction"] != "sends":
        return []
    worst = sorted(connection["paths"], key=_badness)[:count]
    rows = [["path", "", "rtt us", "in flight", "share", "lost", "marks", "lost in all", "chunks"]]
    rows += [
        [
            str(path["number"]),
            path["state"],
            _us(path["rtt_ns"]),
            _size(path["inflight_bytes"]),
            _part(path["share"]),
            str(path["losses_of_late"]),
            str(path["marks_of_late"]),
            str(path["losses"]),
            str(path["chunks_sent"]),
        ]
        for path in worst
    ]
    more = connection["paths_total"] - len(worst)
    lines = output.columns(rows, "      ").splitlines()
    return [*lines, f"      and {more} more"] if more else lines


def _engine_lines(engine: Document, path_count: int, limit: int | None) -> list[str]:
    """An engine and its connections, those with the most traffic first."""
    connections = sorted(engine["connections"], key=lambda it: -(it["rates"]["bytes_per_s"] or 0.0))
    flow = {
        way: sum(it["rates"]["bytes_per_s"] or 0.0 for it in connections if it["direction"] == way)
        for way in ("sends", "receives")
    }
    speed = f", {engine['speed_mbps'] / 1000:g} Gb/s" if engine["speed_mbps"] else ""
    polling = "busy" if engine["is_busy"] else "shared"
    fallbacks = f", {engine['fallbacks']} fall-backs" if engine["fallbacks"] else ""
    lines = [
        f"  {engine['device']} {engine['address']} engine {engine['number']}{speed}, "
        f"{engine['controller']}, {polling}{fallbacks}: "
        f"sends {_rate(flow['sends'])}, receives {_rate(flow['receives'])}"
    ]
    shown = connections[:limit]
    if shown:
        table = output.columns([_HEADINGS, *map(_row, shown)], "    ").splitlines()
        lines.append(table[0])
        for line, connection in zip(table[1:], shown):
            lines += [line, *_path_lines(connection, path_count)]
    more = len(connections) - len(shown) + engine["connections_left_out"]
    return [*lines, f"    and {more} more connections"] if more else lines


def text(document: Document, path_count: int = 0, limit: int | None = None) -> str:
    """The document for people; of each engine at most `limit` connections."""
    lines = []
    for process in document["processes"]:
        began = time.strftime("%H:%M:%S", time.localtime(process["start_unix_ns"] / 1e9))
        name = f"{process['program']} {process['process']}"
        lines.append(click.style(name, bold=True) + f" on {process['host']}, since {began}")
        for engine in process["engines"]:
            lines += _engine_lines(engine, path_count, limit)
    lines += document["problems"]
    return "\n".join(
        lines or ["no process of this user has a network of Tutti in use on this host"]
    )


def _fitting(document: Document, path_count: int) -> int | None:
    """How many connections of each engine a terminal has lines for."""
    engines = [engine for process in document["processes"] for engine in process["engines"]]
    if not engines:
        return None
    lines = shutil.get_terminal_size().lines - len(document["processes"]) - 2
    of_each = lines // len(engines) - 3
    return max(1, of_each // (path_count + 3 if path_count else 1))


def records(document: Document) -> list[Document]:
    """Of each connection, all with the same keys; its paths are in the JSON document alone."""
    now_s = round(time.time(), 3)
    no_share = dict.fromkeys(("min", "median", "max"))
    return [
        {
            "unix_s": now_s,
            "seconds": document["seconds"],
            "host": process["host"],
            "process": process["process"],
            "device": engine["device"],
            "engine": engine["number"],
            **{key: value for key, value in connection.items() if key not in ("paths", "share")},
            "share": connection.get("share", no_share),
        }
        for process in document["processes"]
        for engine in process["engines"]
        for connection in engine["connections"]
    ]


def _show(document: Document, form: str, path_count: int, on_screen: bool, header: bool) -> bool:
    """Shows one interval; `header`: of CSV, which has one. Returns whether it has to come still."""
    if form == output.CSV:
        rows = records(document)
        if rows:
            output.echo(output.to_csv(rows, header))
        return header and not rows
    if form == output.JSON:
        output.echo_json(document)
        return header
    limit = _fitting(document, path_count) if on_screen else None
    shown = text(document, path_count, limit)
    if on_screen:
        heading = f"{time.strftime('%H:%M:%S')}  end with ^C"
        width = shutil.get_terminal_size().columns
        lines = [line if "\x1b" in line else line[:width] for line in shown.splitlines()]
        shown = _CLEAR + "\n".join([heading, *lines])
    output.echo(shown)
    return header


def _watch(chosen: Sequence[int], interval_s: float, form: str, path_count: int) -> None:
    """Until ^C, or until the chosen processes have ended."""
    on_screen = sys.stdout.isatty() and form == output.TEXT
    before, header = take_first(chosen), True
    while True:
        time.sleep(interval_s)
        now = take(chosen)
        if chosen and not now.processes:
            output.note("the chosen processes have ended, or do not use their network any more")
            return
        header = _show(describe(before, now), form, path_count, on_screen, header)
        if not on_screen and form == output.TEXT:
            output.echo("\n")
        sys.stdout.flush()
        before = now


@click.command()
@click.argument("processes", metavar="[PID]...", type=int, nargs=-1)
@click.option("--once", is_flag=True, help="Show one interval and end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0, 3600),
    default=1.0,
    show_default=True,
    help="Seconds over which rates are taken; with --once 0: since each connection began.",
)
@click.option(
    "--paths",
    "path_count",
    type=click.IntRange(0, 1024),
    default=0,
    help="Also the worst paths of each connection that sends, so many.",
)
@output.form_options
def command(
    processes: Iterable[int], once: bool, form: str, interval_s: float, path_count: int
) -> None:
    """Watch the network engines of this host's processes: connections, rates, loss, paths.

    --json and --csv print one document, or one line for each connection, an interval.
    Of your own processes, as root of everybody's; PID chooses some. What each process writes is in
    /dev/shm while it has a network of Tutti in use (docs/network.md).
    """
    chosen = list(processes)
    try:
        if not once:
            if interval_s == 0:
                raise click.UsageError("--interval 0 is for --once")
            _watch(chosen, interval_s, form, path_count)
            return
        before, now = None, take_first(chosen)
        if interval_s > 0:
            time.sleep(interval_s)
            before, now = now, take(chosen)
        _show(describe(before, now), form, path_count, on_screen=False, header=True)
    except KeyboardInterrupt:
        click.echo()
