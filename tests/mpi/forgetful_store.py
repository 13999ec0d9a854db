#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program between itself and Hydra's key-value store, which then forgets what was put before
the first init (PMI-1: a line asks, a line answers): forgetful_store.py PROGRAM [ARGUMENT ...]."""

from __future__ import annotations

import os
import socket
import subprocess
import sys


def main() -> int:
    hydra = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rwb", buffering=0)
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    environment = os.environ | {"PMI_FD": str(theirs.fileno())}
    child = subprocess.Popen(sys.argv[1:], env=environment, pass_fds=[theirs.fileno()])
    theirs.close()
    has_begun = False
    program = ours.makefile("rwb", buffering=0)
    while line := program.readline():
        has_begun = has_begun or line.startswith(b"cmd=init ")
        if has_begun or not line.startswith(b"cmd=put "):
            hydra.write(line)
            program.write(hydra.readline())
        else:
            program.write(b"cmd=put_result rc=0 msg=success\n")
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
