# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Ranks as forks of a process that has torch already: to load it takes longer than most cases.

    python torch_fork.py

Reads jobs from stdin, one JSON object a line: `words` of the script that each rank runs, its
`environment` with RANK and LOCAL_RANK to come, number of `ranks`, `limit_s`. Writes a line for each
job, a list of [exit status, output] by rank; status null: a rank that had to be killed, -N: one
that signal N has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import runpy
import signal
import sys
import tempfile
import time
from typing import IO, Any

import torch.distributed  # noqa: F401


def end_of(pid: int, output: IO[bytes], end: float) -> tuple[int | None, str]:
    """Waits for a rank, kills it when time is up."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(0.01)
    output.seek(0)
    text = output.read().decode(errors="replace")
    return (os.waitstatus_to_exitcode(status) if done else None), text


def serve() -> list[str]:
    """Returns in each rank alone, with the words that it runs."""
    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        with contextlib.ExitStack() as files:
            outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in range(job["ranks"])]
            started = []
            for rank, output in enumerate(outputs):
                pid = os.fork()
                if pid == 0:
                    become(rank, job["environment"], output)
                    words: list[str] = job["words"]
                    return words
                started.append(pid)
            end = time.monotonic() + job["limit_s"]
            ended = [end_of(pid, output, end) for pid, output in zip(started, outputs)]
        print(json.dumps(ended), flush=True)
    sys.exit()


def die_with_parent() -> None:
    """A test that ends in any way leaves no process behind."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def become(rank: int, environment: dict[str, str], output: IO[bytes]) -> None:
    """This process is that rank."""
    die_with_parent()
    os.environ.clear()
    os.environ.update(environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)


if __name__ == "__main__":
    die_with_parent()
    sys.argv = serve()
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
