# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The processes that keep a lab's namespaces alive; `lifetime` starts them.

    lab      process 1 of a process table that holds the whole lab
      box    one for each box, process 1 of a table of its own (the head has none of its own)

Nothing of a lab has a name in the file system: it is there as long as these processes are. When
`lab` dies, however it dies, the kernel kills everything in its process table, and with the last
process of a namespace its devices go. So a crash leaves no more than the state file, and `tutti
lab down` is one signal.

Talks over the socket on descriptor argv[1] (sequenced packets): each process sends its box's name,
and the receiver learns its process number in its own terms from the credentials; then `lab` waits
for `keep`. End of file before that means that `tutti lab up` died, and the lab dies too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from tutti_hpc.lab import namespaces

LAB = "lab"  # What the process above the boxes calls itself.


def report(connection: socket.socket, message: dict[str, Any]) -> None:
    """Sends with this process's credentials, which the kernel translates for the receiver."""
    connection.send(json.dumps(message).encode())


def reap(*_: object) -> None:
    """Buries what has been handed to this process 1."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def wait_forever() -> NoReturn:
    """The life of a holder."""
    signal.signal(signal.SIGCHLD, reap)
    reap()
    while True:
        signal.pause()


def hold_box(box: dict[str, Any], hosts: Path, connection: socket.socket) -> NoReturn:
    """Becomes one box."""
    namespaces.private_mounts()
    if box["own_processes"]:
        namespaces.mount_process_table()
        namespaces.mount_shared_memory()
    if Path("/etc/hosts").exists():
        namespaces.bind(hosts, "/etc/hosts")
    namespaces.set_host_name(box["name"])
    report(connection, {"box": box["name"]})
    connection.close()
    wait_forever()


def start_box(box: dict[str, Any], hosts: Path, connection: socket.socket) -> None:
    """Starts one box; the process in between is there because unshare acts on children only."""
    if os.fork() != 0:
        return
    try:
        flags = namespaces.NEW_MOUNT | namespaces.NEW_NET | namespaces.NEW_UTS | namespaces.NEW_IPC
        namespaces.unshare(flags | (namespaces.NEW_PID if box["own_processes"] else 0))
        if os.fork() != 0:
            os._exit(0)
        hold_box(box, hosts, connection)
    except OSError as error:
        report(connection, {"error": f"{box['name']}: {error}", "errno": error.errno})
    os._exit(1)


def hold_lab(job: dict[str, Any], connection: socket.socket) -> NoReturn:
    """Becomes the process above the boxes."""
    os.setsid()
    report(connection, {"box": LAB})
    for box in job["boxes"]:
        start_box(box, Path(job["hosts"]), connection)
    if connection.recv(16) != b"keep":
        os._exit(1)
    connection.close()
    wait_forever()


def main() -> int:
    """Starts the lab's process and goes."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    job = json.loads(sys.argv[2])
    try:
        if job["rootless"]:
            namespaces.become_root_of_user_namespace()
        namespaces.unshare(namespaces.NEW_PID)
        if os.fork() == 0:
            hold_lab(job, connection)
    except OSError as error:
        report(connection, {"error": str(error), "errno": error.errno})
        return 1
    return 0
