#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Runs ctest and pytest and closes with one line: `N passed, N failed, N skipped`.

    tools/run_tests.py --ctest build/dev --pytest
    tools/run_tests.py --ctest build/tsan --label '^unit$'

Every part runs, also after a failure. The exit code is 0 only if nothing failed, each part ran at
least one test and none is missing; pytest's two parts count as one where arguments choose tests.
--total adds what earlier runs left in build/test-counts to the closing line.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass
from pathlib import Path

COUNTS = Path("build/test-counts")
SHOWN_LINES = 60
# Tests at a time for each processor: most of a test's time it waits for a time-out or a peer.
TESTS_PER_JOB = 2

PYTEST_PROCESSES_MAX = 8
PYTEST_NOTHING_CHOSEN = 5  # Its exit status.

# Halts at the first report: a sanitizer's finding is a failed test.
SANITIZERS = {
    # No fake stacks: the classification of pointers knows the real one.
    "ASAN_OPTIONS": "detect_stack_use_after_return=0:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


@dataclass
class Counts:
    """Number of tests by outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_junit(path: Path, parts: Path | None = None) -> Counts:
    """Counts the cases of a JUnit file, whoever wrote it.

    A case that ran many has a file of its own in the directory `parts`, unless it died.
    """
    counts = Counts()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        own = Counts()
        if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            own.skipped = 1
        elif case.find("failure") is not None or case.find("error") is not None:
            own.failed = 1
        else:
            own.passed = 1
        if parts and (many := parts / f"{case.get('name')}.xml").exists():
            failed = own.failed
            own = read_junit(many)
            own.failed = max(own.failed, failed)  # Also what is found after the last: a leak.
        counts += own
    return counts


def show_failures(path: Path) -> None:
    """Prints the failed cases of a JUnit file with the end of what they wrote."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None:
            lines = without_passed(case.findtext("system-out") or "")
            print(f"-- {case.get('name')} failed", *lines[-SHOWN_LINES:], sep="\n")


def without_passed(output: str) -> list[str]:
    """Lines of a GoogleTest program but for those of a case that passed without a word."""
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith("[       OK ") and lines and lines[-1].startswith("[ RUN "):
            lines.pop()
        else:
            lines.append(line)
    return lines


def run(
    name: str,
    command: list[str],
    junit: Path,
    environment: dict[str, str] | None = None,
    parts: Path | None = None,
    *,
    may_be_empty: bool = False,
) -> Counts:
    """Runs one test runner; a runner that ran nothing, or died, counts as one failure.

    `may_be_empty`: pytest's, which may choose none of what it is told to look at.
    """
    junit.unlink(missing_ok=True)
    print(f"== {name}", flush=True)
    status = subprocess.run(
        command, check=False, env={**os.environ, **(environment or {})}
    ).returncode
    counts = read_junit(junit, parts) if junit.exists() else Counts()
    if may_be_empty and (status == PYTEST_NOTHING_CHOSEN or (status == 0 and counts.skipped)):
        return counts
    if counts.passed + counts.failed == 0:
        print(f"{name}: no test ran (exit code {status}); remedy: make build", file=sys.stderr)
        counts.failed += 1
    elif status != 0 and counts.failed == 0:
        print(f"{name}: exit code {status} though no case failed", file=sys.stderr)
        counts.failed += 1
    return counts


def run_ctest(build: Path, label: str, jobs: int) -> Counts:
    """Runs the ctest cases of one build directory."""
    junit = (COUNTS / f"ctest-{build.name}.xml").resolve()
    command = ["ctest", "--test-dir", str(build), "--no-tests=error", "--timeout", "600"]
    command += ["--parallel", str(TESTS_PER_JOB * jobs), "--output-junit", str(junit)]
    command += ["--progress"] if sys.stdout.isatty() else ["--quiet"]
    if label:
        command += ["--label-regex", label]
    parts = build / "gtest"  # tutti_shards() of tests/CMakeLists.txt
    shutil.rmtree(parts, ignore_errors=True)
    counts = run(f"ctest {build}", command, junit, SANITIZERS, parts)
    if junit.exists():
        show_failures(junit)
    return counts + missing(build)


def missing(build: Path) -> Counts:
    """A failure for each kind of test that CMake left out, with what there is to do."""
    listed = build / "missing_tests.txt"
    lines = listed.read_text().splitlines() if listed.exists() else []
    for line in lines:
        print(f"{build}: {line}", file=sys.stderr)
    return Counts(failed=len(lines))


def run_pytest(arguments: list[str], marks: str, jobs: int) -> Counts:
    """Runs the Python tests; `marks`: what a user's -m says."""
    for module in ("pytest", "xdist"):
        if importlib.util.find_spec(module) is None:
            print(
                f"{module} not found: the Python tests do not run; remedy: tools/set_up.sh tools, "
                f"or {sys.executable} -m pip install -r requirements-dev.txt",
                file=sys.stderr,
            )
            return Counts(failed=1)
    if any(blank in tempfile.gettempdir() for blank in " :"):
        print(
            f"TMPDIR={tempfile.gettempdir()}: the Python tests preload libraries from there, and "
            "LD_PRELOAD is split at blanks and colons; remedy: another TMPDIR",
            file=sys.stderr,
        )
        return Counts(failed=1)
    # Jobs whose ranks spin take several times as long beside much else. The rest waits for
    # time-outs, peers and a single core for much of its time.
    chosen_by_user = f"({marks}) and " if marks else ""
    # Deep ones may take most of the memory.
    spinning = 1 if "deep" in marks.replace("not deep", "") else jobs
    parts = {
        "pytest of what spins": ("spins", spinning, "load"),
        "pytest of the rest": ("not spins", jobs + 1, "loadfile"),
    }
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    total = Counts()
    for name, (chosen, processes, order) in parts.items():
        junit = COUNTS / f"{name.replace(' ', '-')}.xml"
        words = [*command, "-m", f"{chosen_by_user}{chosen}", f"--junit-xml={junit}"]
        words += ["-n", str(min(processes, PYTEST_PROCESSES_MAX)), "--dist", order]
        total += run(name, words, junit, may_be_empty=bool(arguments or marks))
    if total.passed + total.failed == 0:
        print("pytest: no test ran", file=sys.stderr)
        total.failed += 1
    return total


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ctest", action="append", default=[], type=Path, metavar="BUILD")
    parser.add_argument("--label", default="", help="only ctest cases with such a label")
    parser.add_argument("--pytest", action="store_true")
    parser.add_argument("-m", dest="marks", default="", help="pytest's: only tests so marked")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--name", default="", help="keep the counts for --total under this name")
    parser.add_argument("--total", action="store_true", help="add up the counts kept so far")
    options, rest = parser.parse_known_args()
    if (rest or options.marks) and not options.pytest:
        words = " ".join([*rest, *(["-m"] if options.marks else [])])
        parser.error(f"unknown: {words}; arguments for pytest need --pytest")
    if not (options.ctest or options.pytest or options.total):
        parser.error("nothing to run; remedy: --ctest BUILD, --pytest or --total")

    COUNTS.mkdir(parents=True, exist_ok=True)
    total = Counts()
    for build in options.ctest:
        total += run_ctest(build, options.label, options.jobs)
    if options.pytest:
        total += run_pytest(rest, options.marks, options.jobs)
    if options.name:
        (COUNTS / f"{options.name}.json").write_text(json.dumps(asdict(total)))
    if options.total:
        for kept in COUNTS.glob("*.json"):
            total += Counts(**json.loads(kept.read_text()))
        shutil.rmtree(COUNTS)
        if total.passed == 0:
            total.failed += 1
    print(total, flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
