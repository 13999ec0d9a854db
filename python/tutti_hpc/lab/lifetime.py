# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Starts a lab, and runs commands in its boxes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import holder, namespaces, network, plan
from tutti_hpc.lab.state import Place, Process, State, end

START_TIMEOUT_S = 60
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid.
_PACKAGE_PATH = str(Path(__file__).resolve().parents[2])

REFUSED = (
    "this needs the right to create namespaces: {}; remedy: run as root (in a container: with "
    "--privileged, or --cap-add SYS_ADMIN --cap-add NET_ADMIN and no seccomp filter), or allow "
    "user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)"
)


def python_environment() -> dict[str, str]:
    """For children that run modules of this package, also from a checkout."""
    env = dict(os.environ)
    present = [part for part in env.get("PYTHONPATH", "").split(":") if part]
    env["PYTHONPATH"] = ":".join([_PACKAGE_PATH, *present])
    # The holders outlive this command and are no place for a preloaded library.
    env.pop("LD_PRELOAD", None)
    return env


def _receive(connection: socket.socket) -> tuple[dict[str, Any], int]:
    """(message, number of the sender's process as seen from here)."""
    try:
        data, ancillary, _, _ = connection.recvmsg(65536, socket.CMSG_SPACE(_CREDENTIALS.size))
    except TimeoutError:
        raise TuttiError(f"the lab did not start within {START_TIMEOUT_S} s") from None
    if not data:
        raise TuttiError("the lab's processes died while it started")
    message: dict[str, Any] = json.loads(data)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return message, int(_CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0])
    raise TuttiError("the kernel gave no credentials with a message")


def _started(pid: int) -> Process:
    start = namespaces.start_time(pid)
    if start is None:
        raise TuttiError(f"process {pid} of the lab died while it started")
    return Process(pid, start)


def _start_holders(place: Place, wanted: plan.Plan) -> tuple[State, socket.socket]:
    """The processes of all boxes, and the socket that keeps them alive until the lab is ready."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ours.settimeout(START_TIMEOUT_S)
    hosts = place.directory / "hosts"
    hosts.write_text(wanted.host_table)
    hosts.chmod(0o644)
    boxes = [{"name": box.name, "own_processes": box.own_processes} for box in wanted.boxes]
    job = {"boxes": boxes, "hosts": str(hosts), "rootless": os.geteuid() != 0}
    # Not `-m`: the package has imported that module already when Python comes to run it.
    start = f"import sys; from {holder.__name__} import main; sys.exit(main())"
    with theirs, (place.directory / "log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-c", start, str(theirs.fileno()), json.dumps(job)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=python_environment(),
            cwd="/",
            check=False,
        )
    state: State | None = None
    while state is None or len(state.boxes) < len(boxes):
        message, pid = _receive(ours)
        if "error" in message:
            if message.get("errno") in (errno.EPERM, errno.ENOSPC, errno.EACCES):
                raise TuttiError(REFUSED.format(message["error"]))
            raise TuttiError(f"a box did not start: {message['error']}")
        if message["box"] == holder.LAB:
            state = State(wanted.spec, _started(pid))
            place.save(state)
        elif state is not None:
            state.boxes[message["box"]] = _started(pid)
    return state, ours


def write_agent(place: Place) -> Path:
    """A command in the form of a remote shell that runs commands on nodes: AGENT NODE WORDS..."""
    agent = place.directory / "agent"
    words = [sys.executable, "-m", "tutti_hpc", "lab"]
    words += ["--directory", str(place.base), "--name", place.name, "shell"]
    # The preload is meant for the ranks: launchers hand it to them by name.
    agent.write_text(
        "#!/bin/sh\n"
        f"PYTHONPATH={shlex.quote(python_environment()['PYTHONPATH'])} LD_PRELOAD= "
        f'exec {shlex.join(words)} "$@"\n'
    )
    agent.chmod(0o755)
    return agent


def up(place: Place, spec: plan.Spec) -> State:
    """Starts a lab; leaves nothing behind when it fails. One at a time of a name."""
    network.require_library()
    place.create_base()
    with place.locked():
        return _up(place, spec)


def _up(place: Place, spec: plan.Spec) -> State:
    old = place.load()
    if old is not None and old.alive:
        raise TuttiError(f"a lab is up already; remedy: {place.command('down')}, or another --name")
    end(place)
    place.create()
    wanted = plan.make(spec)
    try:
        state, connection = _start_holders(place, wanted)
        with connection:
            network.build(wanted, {name: box.pid for name, box in state.boxes.items()})
            write_agent(place)
            state.ready = True
            place.save(state)
            connection.send(b"keep")
    except BaseException:
        # Without the connection the processes end by themselves; this does not wait for it.
        end(place)
        place.remove()
        raise
    return state


def enter_box(state: State, box: str) -> None:
    """This process, or for a node its children, are in the box from here on."""
    own_processes = plan.make(state.spec).box(box).own_processes
    directory = os.getcwd()
    flags = namespaces.NEW_MOUNT | namespaces.NEW_NET | namespaces.NEW_UTS | namespaces.NEW_IPC
    try:
        namespaces.enter(state.boxes[box].pid, flags | (namespaces.NEW_PID if own_processes else 0))
    except OSError as error:
        raise TuttiError(REFUSED.format(error)) from None
    os.chdir(directory)


def _execute(words: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    try:
        os.execvpe(words[0], list(words), dict(env))
    except OSError as error:
        os.write(2, f"tutti: {words[0]}: {error.strerror}\n".encode())
        os._exit(127)


def run_in_box(state: State, box: str, words: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs a command in a box; its exit status, 128 + N after signal N.

    The command dies with this process.
    """
    read_ready, write_ready = os.pipe()
    handle = -1
    early: list[int] = []

    def forward(number: int, _: object) -> None:
        if handle >= 0:
            # Of one that has ended meanwhile nobody hears.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
        else:
            early.append(number)  # Another thread has taken it, which does not block it.

    numbers = (signal.SIGTERM, signal.SIGHUP)
    # One that comes before there is a child to hand it to waits for it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        for number in numbers:
            signal.signal(number, forward)
        enter_box(state, box)
        child = os.fork()
        if child > 0:
            handle = os.pidfd_open(child)
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    if child == 0:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        namespaces.die_with_parent(signal.SIGKILL)
        os.close(write_ready)
        # The parent may have gone before the line above: then nobody sends.
        if os.read(read_ready, 1) != b".":
            os._exit(1)
        os.close(read_ready)
        _execute(words, env)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for one in early:
        forward(one, None)
    os.close(read_ready)
    # A signal may have ended the child; its status says so.
    with contextlib.suppress(BrokenPipeError):
        os.write(write_ready, b".")
    os.close(write_ready)
    # The terminal gives an interrupt to the command as well, which decides what to do with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _wait_for(handle)
    ended, handle = handle, -1
    os.close(ended)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _wait_for(handle: int) -> None:
    """Until the process of a pidfd has ended; signals are handled meanwhile.

    Python runs handlers on the main thread alone, and a signal that another thread takes does not
    end a system call of that one; it does write to the wake-up descriptor.
    """
    wake, written = socket.socketpair()
    with wake, written:
        wake.setblocking(False)
        written.setblocking(False)
        before = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
        try:
            both = select.poll()
            both.register(handle, select.POLLIN)
            both.register(wake, select.POLLIN)
            ready: set[int] = set()
            while handle not in ready:
                ready = {descriptor for descriptor, _ in both.poll()}
                if wake.fileno() in ready:
                    wake.recv(4096)
        finally:
            signal.set_wakeup_fd(before)
