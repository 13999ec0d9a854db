#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own distributed tests, which come with its wheel: does a script see a difference?

    tools/torch_suites.py [--python .env/torch/bin/python] [--ranks 2] [--only REGEX] [-o FILE]

Runs every test of torch.testing._internal.distributed.distributed_test on host tensors with gloo,
and then with TUTTI_TORCH_REPLACE=gloo, in which Tutti carries what gloo is asked for. The python
needs torch and expecttest. Ranks are forked, so that a test takes less than a second. Prints each
test whose outcome differs with what it said, writes a summary to FILE (JSON), and exits with 1 if
one differs. A difference is repeated twice both ways before it counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for part in ("python", "bench"):
    sys.path.insert(0, str(ROOT / part))

SCHEMA = "tutti-torch-suites/1"
LIMIT_S = 90
REPEATS = 2
BATCH = 20  # Tests of one process.
WORDS_MAX = 3000


def drive(names: list[str]) -> None:
    """In a process of its own: runs tests, or prints the names of all."""
    import unittest

    import torch
    from torch.testing._internal.distributed import distributed_test as suite

    class Tests(suite.TestDistBackend, suite.DistributedTest._DistTestBase):  # type: ignore[misc]
        def setUp(self) -> None:
            super().setUp()
            # Not spawned, as torch's own runner has it: each rank would take seconds to import.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    if not names:
        print("\n".join(n for n in sorted(dir(Tests)) if n.startswith("test_")), flush=True)
    carried = multiprocessing.get_context("fork").Value("l", 0)
    if os.environ.get("TUTTI_TORCH_REPLACE"):
        count_calls(carried)
    # What a profiler calls a call, and the shapes it shows, are gloo's own.
    suite.PROFILING_SUPPORTED_BACKENDS = []
    meeting = os.environ["INIT_METHOD"]
    for name in names:
        os.environ["INIT_METHOD"] = suite.INIT_METHOD = f"{meeting}-{name}"
        result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(Tests(name))
        failed = result.failures + result.errors
        for _, text in failed:
            print(text)
        reason = result.skipped[0][1] if result.skipped else ""
        outcome = "failed" if failed else f"skipped: {reason}" if reason else "passed"
        print(f"OUTCOME {name} {outcome}", flush=True)
    if names:
        print(f"CARRIED {carried.value}", flush=True)
    os._exit(0)  # What a failed test has left running keeps no one.


def count_calls(carried: Any) -> None:
    """Registers Tutti and counts, over all ranks, the calls on host tensors that it carries."""
    import tutti_hpc.torch  # noqa: F401
    from tutti_hpc.torch import engine

    original = engine.Engine.run_host

    def run_host(self: Any, what: str, call: Any) -> None:
        with carried.get_lock():
            carried.value += 1
        original(self, what, call)

    engine.Engine.run_host = run_host  # type: ignore[method-assign]


class Suite:
    """The tests of one python, and how they ran."""

    def __init__(self, python: str, ranks: int, folder: Path) -> None:
        self.python = python
        self.carried = 0  # Calls, by Tutti.
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        from tutti_hpc import paths

        library = paths.require(paths.LIBRARY)
        path = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment.update(
            BACKEND="gloo",
            WORLD_SIZE=str(ranks),
            TEMP_DIR=str(folder),
            TUTTI_LIBRARY_DIR=str(library.parent),
            PYTHONPATH=os.pathsep.join(path),
            PYTHONWARNINGS="ignore",
            OMP_NUM_THREADS="1",
            MASTER_ADDR="127.0.0.1",
        )

    def names(self) -> list[str]:
        """All tests."""
        return self._call([], {})[0].split()

    def run(self, names: list[str], with_tutti: bool) -> dict[str, tuple[str, str]]:
        """The outcome of each test, and what was said; some may be missing where one hangs."""
        more = {"TUTTI_TORCH_REPLACE": "gloo"} if with_tutti else {}
        said, is_late = self._call(names, more)
        self.carried += sum(int(n) for n in re.findall(r"^CARRIED (\d+)$", said, re.MULTILINE))
        found = {}
        begin = 0
        for match in re.finditer(r"^OUTCOME (\w+) (.*)$", said, re.MULTILINE):
            found[match[1]] = (match[2], said[begin : match.end()][-WORDS_MAX:])
            begin = match.end()
        if len(names) == 1 and not found:
            found[names[0]] = ("not over in time" if is_late else "crashed", said[-WORDS_MAX:])
        return found

    def run_all(self, names: list[str], with_tutti: bool) -> dict[str, tuple[str, str]]:
        """Of each test. Those that a batch lost run alone."""
        found: dict[str, tuple[str, str]] = {}
        for begin in range(0, len(names), BATCH):
            batch = names[begin : begin + BATCH]
            found |= self.run(batch, with_tutti)
            for name in batch:
                if name not in found:
                    found |= self.run([name], with_tutti)
            print(f"{len(found)} of {len(names)}", file=sys.stderr, flush=True)
        return found

    def _call(self, names: list[str], more: dict[str, str]) -> tuple[str, bool]:
        meeting = Path(tempfile.mkdtemp(dir=self.folder)) / "init"
        environment = {**self.environment, **more, "INIT_METHOD": f"file://{meeting}"}
        process = subprocess.Popen(
            [self.python, __file__, "--drive", *names],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if names else subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            limit_s = LIMIT_S + 5 * len(names)
            return process.communicate(timeout=limit_s)[0], False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0], True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Ranks that a failed test left.


def main() -> int:
    """Runs, prints, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=str(ROOT / ".env/torch/bin/python"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="tests whose name matches")
    parser.add_argument("-o", "--output", type=Path, help="results document")
    parser.add_argument("--drive", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive is not None:
        drive(options.drive)
        return 0
    import results_head
    from tutti_hpc import files

    if options.output:
        files.check_writable(options.output)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(options.python, options.ranks, Path(folder))
        names = [name for name in suite.names() if re.search(options.only, name)]
        if not names:
            parser.error("no test; remedy: --only, or expecttest for this python")
        began = time.monotonic()
        natively, ours = (suite.run_all(names, with_tutti) for with_tutti in (False, True))
        outcomes = Counter(outcome.partition(":")[0] for outcome, _ in natively.values())
        differing: list[dict[str, Any]] = []
        unsteady: list[str] = []
        for name in names:
            pair = natively[name], ours[name]
            for _ in range(REPEATS):
                if pair[0][0] == pair[1][0]:
                    break
                unsteady.append(name)
                pair = suite.run([name], False)[name], suite.run([name], True)[name]
            if pair[0][0] != pair[1][0]:
                print(f"{name}: gloo: {pair[0][0]}; Tutti: {pair[1][0]}\n{pair[1][1]}", flush=True)
                differing.append({"test": name, "gloo": pair[0][0], "tutti": pair[1][0]})
        differ = {row["test"] for row in differing}
        unsteady = sorted(set(unsteady) - differ)
        version = subprocess.run(
            [options.python, "-c", "import torch; print(torch.__version__)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    document = results_head.head(SCHEMA)
    document["versions"]["torch"] = version
    document |= {"ranks": options.ranks, "tests": len(names), "natively": dict(outcomes)}
    document |= {"differing": differing, "unsteady": unsteady}
    document["seconds"] = round(time.monotonic() - began)
    document["calls_carried"] = suite.carried
    print(f"{suite.carried} calls were Tutti's")
    print(f"{len(names)} tests, natively {dict(outcomes)}, {len(differing)} differ")
    if options.output:
        files.write(options.output, json.dumps(document, indent=1) + "\n")
    return 1 if differing or not suite.carried else 0


if __name__ == "__main__":
    sys.exit(main())
