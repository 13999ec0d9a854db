#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Does the simulation of the transport find bugs? Plants some, one at a time, and runs it.

    tools/planted_bugs.py [--seeds 2000] [--only WORD] [-o FILE]

Each bug is a textual change of one file of src/transport, made in a copy in a temporary directory;
the tree itself is never touched. Prints a table of which checker caught each at which seed, writes
it to FILE (JSON), and exits with 1 if a bug escapes, or if a change no longer fits its file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++20", "-O1", "-w"]
SECONDS = 300


@dataclass(frozen=True)
class Bug:
    """`old` occurs once in `file` of src/transport and becomes `new`."""

    kind: str
    name: str
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Finding:
    """What became of one bug. `seed` 0: it escaped."""

    kind: str
    name: str
    file: str
    seed: int
    checker: str
    text: str


BUGS = [
    Bug("loss", "a lost chunk stays in its group's sum", "connection_send.cpp",
        "  inflight_bytes_[index] -= chunk.bytes;\n  flight_.lose(number);",
        "  flight_.lose(number);"),
    Bug("loss", "the bitmap is read one chunk too far", "connection_receive.cpp",
        "flight_.open_bits(base64) & ack.sack_bitmap)",
        "flight_.open_bits(base64) & (ack.sack_bitmap | ack.sack_bitmap << 1))"),
    Bug("loss", "a trimmed chunk counts as received", "acknowledgement.cpp",
        "} else if (!is_trimmed) {", "} else {"),
    Bug("loss", "the cumulative number takes in the first hole", "acknowledgement.cpp",
        "static_cast<std::uint32_t>(cumulative_);",
        "static_cast<std::uint32_t>(cumulative_ + (highest_ > cumulative_ ? 1 : 0));"),
    Bug("window", "only what is in the air counts, not what is added", "connection.hpp",
        "inflight + bytes <= groups_[group].controller->window_bytes()",
        "inflight <= 4 * groups_[group].controller->window_bytes()"),
    Bug("credit", "each grant adds a unit", "credit.cpp",
        "(granted - pulled_units_) * kCreditUnitBytes",
        "(granted + 1 - pulled_units_) * kCreditUnitBytes"),
    Bug("credit", "a repeated grant counts again", "credit.cpp",
        "  pulled_units_ = granted;\n", "  pulled_units_ = granted - 1;\n"),
    Bug("credit", "the pacer grants twice what the link takes", "credit.cpp",
        "ps_per_byte_ * 1024 / rate_ * 100 / 99", "ps_per_byte_ * 512 / rate_ * 100 / 99"),
    Bug("credit", "a lost grant is not told again", "connection_receive.cpp",
        "control_ |= pacer_.grants(index_) ? kGrant : 0U;", ""),
    Bug("credit", "empty messages need credit", "connection_send.cpp",
        "if (credit_ && bytes > 0 && !credit_->can_send())",
        "if (credit_ && !credit_->can_send())"),
    Bug("reassembly", "a message is whole when its end is here", "reassembly.hpp",
        "return has_end && received_bytes == total_bytes;", "return has_end;"),
    Bug("reassembly", "a chunk that is here already is placed again", "connection_receive.cpp",
        "const bool is_new = kind == Acknowledger::Kind::kNew;",
        "const bool is_new = kind != Acknowledger::Kind::kOutside;"),
    Bug("reassembly", "a slot is reused while its advert may be repeated", "incoming.cpp",
        "while (first_ != next_ && first_ < known_ && slot(first_).request == kNoRequest) {",
        "while (first_ != next_ && slot(first_).request == kNoRequest) {"),
    Bug("reassembly", "a send ends before all of it is cut", "outgoing.hpp",
        "if (--it.open_chunks > 0 || it.state != Outgoing::State::kCut) {",
        "if (--it.open_chunks > 0) {"),
    Bug("reassembly", "an advert that has not come is taken", "outgoing.cpp",
        "    if (!next.is_early) {\n      break;\n    }\n", ""),
    Bug("incarnation", "keys do not depend on the incarnations", "packet.cpp",
        "    hash.add_word(source_incarnation);\n    hash.add_word(destination_incarnation);\n",
        ""),
    Bug("incarnation", "tags are not compared", "connection_receive.cpp",
        "if (received_tags_.tag_of(arrival.header, covered, number) != read_tag(arrival.header)) {",
        "if (received_tags_.tag_of(arrival.header, covered, number) == 1) {"),
    Bug("incarnation", "a packet of the newest word counts again", "replay.hpp",
        "const std::uint64_t old_word = (next_ + 63) / 64;",
        "const std::uint64_t old_word = next_ / 64;"),
    Bug("incarnation", "old packets count as new", "replay.hpp",
        "    } else if (next_ - number > words_.size() * 64 - 64) {\n      return false;\n    }",
        "    } else if (next_ - number > words_.size() * 64 - 64) {\n      return true;\n    }"),
    Bug("timers", "the timeout that fires early is not set again", "connection_timeouts.cpp",
        "  if (now < due) {\n    timers_.set(Timer::kRetransmit, due);\n    return;\n  }",
        "  if (now < due) {\n    return;\n  }"),
    Bug("timers", "a request for credit is sent once", "connection_timeouts.cpp",
        "  control_backoff_ = std::min(control_backoff_ + 1, kControlBackoffMax);\n"
        "  timers_.set(Timer::kRequest, now + control_rto_ns());",
        ""),
    Bug("timers", "adverts and closes are repeated once", "connection_timeouts.cpp",
        "  control_backoff_ = std::min(control_backoff_ + 1, kControlBackoffMax);\n"
        "  timers_.set(Timer::kControl, now + control_rto_ns());",
        ""),
    Bug("timers", "a silent peer is asked once", "connection_timeouts.cpp",
        "wire().paths);\n  }\n  timers_.set(Timer::kKeepAlive, now + interval);",
        "wire().paths);\n  }"),
    Bug("timers", "a step back of the clock is believed", "endpoint.cpp",
        "  now_ = std::max(now_, now);\n", "  now_ = now;\n"),
    Bug("paths", "control packets go strictly in turn", "connection_control.cpp",
        "      control_first_ = random_.below(paths);\n", ""),
    Bug("paths", "the last path stays the only one", "path.cpp", "    revive_all();\n", ""),
]  # fmt: skip


def simulation_sources() -> list[str]:
    """Those of transport_simulation; beside it there is the simulation of wires."""
    lists = (ROOT / "tests/simulation/CMakeLists.txt").read_text()
    found = re.search(r"add_executable\(transport_simulation\s+([^)]*)\)", lists)
    assert found is not None
    return found[1].split()


class Builder:
    """Objects of the unchanged sources, and programs that differ from it in one file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sources = directory / "tree"
        for part in ("src/base", "src/transport", "include", "tests/simulation"):
            shutil.copytree(ROOT / part, self.sources / part)
        self.compiler = os.environ.get("CXX", "c++")
        units = [
            path
            for part in ("src/base", "src/transport")
            for path in sorted((self.sources / part).rglob("*.cpp"))
        ]
        units += [self.sources / "tests/simulation" / name for name in simulation_sources()]
        self.objects = {path: directory / f"{i}.o" for i, path in enumerate(units)}
        self.compile(list(self.objects))

    def compile(self, units: list[Path], suffix: str = "") -> None:
        """Two at a time; raises if one does not compile."""
        waiting = list(units)
        running: list[subprocess.Popen[bytes]] = []
        while waiting or running:
            while waiting and len(running) < 2:
                unit = waiting.pop()
                target = str(self.objects[unit]) + suffix
                include = [f"-I{self.sources / part}" for part in ("src", "include", "tests")]
                running.append(
                    subprocess.Popen(
                        [self.compiler, *FLAGS, *include, "-c", str(unit), "-o", target]
                    )
                )
            if running.pop(0).wait() != 0:
                raise SystemExit("tools/planted_bugs.py: a source does not compile")

    def program(self, changed: Path | None) -> Path:
        """Links; rebuilds what the changed file (or any includer of a changed header) needs."""
        units: list[Path] = []
        if changed is not None:
            units = [changed]
            if changed.suffix == ".hpp":
                units = [unit for unit in self.objects if "transport" in unit.parts]
        self.compile(units, ".changed")
        objects = [str(o) + (".changed" if u in units else "") for u, o in self.objects.items()]
        program = self.directory / "simulation"
        subprocess.run(
            [self.compiler, *objects, "-o", str(program), "-ldl", "-lpthread"], check=True
        )
        return program


def simulate(program: Path, seeds: int) -> tuple[int, str, str]:
    """Seed, checker and text of the first failure; seed 0: none."""
    try:
        run = subprocess.run(
            [str(program), "--seeds", str(seeds)], capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return 0, "", f"no end after {SECONDS} s"
    found = re.findall(r"^seed (\d+): (\w+): (.*)$", run.stdout, re.MULTILINE)
    if run.returncode == 0 or not found:
        return 0, "", run.stdout[-200:]
    seed, checker, text = found[-1]
    if checker == "core":
        text = next((line for line in run.stderr.splitlines() if "CHECK" in line), text)
        text = re.sub(r"\S*/src/", "src/", text)
    return int(seed), checker, text


def plant(builder: Builder, bug: Bug, seeds: int) -> Finding:
    """Changes the copy, runs it and takes the change back."""
    file = builder.sources / "src/transport" / bug.file
    original = file.read_text()
    if original.count(bug.old) != 1:
        return Finding(bug.kind, bug.name, bug.file, 0, "", "the change does not fit the file")
    file.write_text(original.replace(bug.old, bug.new))
    try:
        seed, checker, text = simulate(builder.program(file), seeds)
    finally:
        file.write_text(original)
    return Finding(bug.kind, bug.name, bug.file, seed, checker, text)


def main() -> int:
    """Prints the table; see the head of the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000, help="seeds to run at most (2000)")
    parser.add_argument("--only", default="", help="bugs whose kind or name contains this")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the findings")
    arguments = parser.parse_args()
    findings = []
    with tempfile.TemporaryDirectory() as directory:
        builder = Builder(Path(directory))
        seed, checker, text = simulate(builder.program(None), arguments.seeds)
        if seed != 0:
            print(f"without any bug, seed {seed} fails: {checker}: {text}")
            return 1
        print("| kind | bug | file | caught by | seed |\n|---|---|---|---|---|")
        for bug in BUGS:
            if arguments.only not in f"{bug.kind} {bug.name}":
                continue
            it = plant(builder, bug, arguments.seeds)
            caught = f"{it.checker} | {it.seed}" if it.seed else f"**escaped** {it.text} | |"
            print(f"| {it.kind} | {it.name} | {it.file} | {caught} |", flush=True)
            findings.append(it)
    if arguments.output:
        record = {"seeds": arguments.seeds, "bugs": [asdict(it) for it in findings]}
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
    escaped = sum(it.seed == 0 for it in findings)
    print(f"\n{len(findings)} bugs, {escaped} escaped")
    return 1 if escaped or not findings else 0


if __name__ == "__main__":
    sys.exit(main())
