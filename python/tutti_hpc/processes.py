# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Child processes: tools that are asked, and jobs that end with the command that started them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

# From a process's SIGTERM to its SIGKILL: launchers end their ranks in between. A stopped process
# takes no other signal.
KILL_AFTER_S = 10.0
_LOOK_S = 0.02

Process = subprocess.Popen[Any]


def ask(
    command: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Runs a foreign tool without input. None: it cannot be run, or takes longer."""
    try:
        return subprocess.run(
            command,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def end(processes: Sequence[Process], kill_after_s: float | None = None) -> list[int]:
    """Ends those that have not ended; the exit statuses. `kill_after_s`: else KILL_AFTER_S."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + (KILL_AFTER_S if kill_after_s is None else kill_after_s)
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    return [process.wait() for process in processes]


def wait(processes: Sequence[Process], after_failure_s: float) -> list[int]:
    """The exit statuses; when one has failed, the others have so long to end by themselves.

    None outlives this call, however it ends.
    """
    deadline = float("inf")
    try:
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            if any(process.poll() for process in processes):
                deadline = min(deadline, time.monotonic() + after_failure_s)
            time.sleep(_LOOK_S)
    finally:
        statuses = end(processes)
    return statuses


@contextlib.contextmanager
def ended_with(process: Process) -> Iterator[None]:
    """The process does not outlive a scope that ends by an exception."""
    try:
        yield
    except BaseException:
        end([process])
        raise


def _exit(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


@contextlib.contextmanager
def signals_as_exits() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit in the scope, so that jobs and labs are cleaned up."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    # nohup ignores SIGHUP, and means it.
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
