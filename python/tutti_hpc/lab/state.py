# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Which lab is up: a file with the numbers of its processes, one directory for each lab.

The directory is /run/tutti-lab for root, else tutti-lab under XDG_RUNTIME_DIR; a lab's name is a
directory there. The file says only where the lab is; what it is follows from its specification.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import namespaces
from tutti_hpc.lab.plan import Spec

SCHEMA = "tutti-lab-state/1"  # Of the file.
DEFAULT_NAME = "lab"
DEATH_TIMEOUT_S = 10


@dataclass(frozen=True)
class Process:
    """A process of a lab, named so that a later one with its number is not taken for it."""

    pid: int
    start: int

    @property
    def alive(self) -> bool:
        """True while it is there."""
        return namespaces.start_time(self.pid) == self.start


@dataclass
class State:
    """A lab as its file describes it."""

    spec: Spec
    lab: Process
    boxes: dict[str, Process] = field(default_factory=dict)
    ready: bool = False

    @property
    def alive(self) -> bool:
        """True when it is complete and its processes are there."""
        return self.ready and self.lab.alive and all(box.alive for box in self.boxes.values())


def default_base() -> Path:
    """Where labs of this user are kept."""
    if os.geteuid() == 0:
        return Path("/run/tutti-lab")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "tutti-lab"
    return Path(tempfile.gettempdir()) / f"tutti-lab-{os.geteuid()}"


def check_name(name: str) -> str:
    """A lab's name is a file name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", name):
        raise TuttiError(f"--name {name}: letters, digits, - and _, at most 32")
    return name


@dataclass(frozen=True)
class Place:
    """The directory of one lab."""

    base: Path
    name: str

    @property
    def directory(self) -> Path:
        """Of this lab's files."""
        return self.base / self.name

    @property
    def file(self) -> Path:
        """The state."""
        return self.directory / "state.json"

    def command(self, word: str) -> str:
        """What a user types for a subcommand of `tutti lab` on this lab."""
        words = ["tutti", "lab"]
        words += ["--directory", str(self.base)] if self.base != default_base() else []
        words += ["--name", self.name] if self.name != DEFAULT_NAME else []
        return shlex.join([*words, word])

    def check_owner(self) -> None:
        """Commands trust what is in the directory, so it must be this user's."""
        if self.base.stat().st_uid != os.geteuid():
            raise TuttiError(f"{self.base} belongs to another user; remedy: --directory")

    def create_base(self) -> None:
        """The directory of all labs."""
        try:
            self.base.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.check_owner()
        except OSError as error:
            raise TuttiError(f"{self.base}: {error.strerror}") from None

    def create(self) -> None:
        """The directories."""
        self.create_base()
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise TuttiError(f"{self.directory}: {error.strerror}") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One at a time starts or ends this lab; the others wait. The directory must be there."""
        path = self.base / f".{self.name}.lock"
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise TuttiError(f"{path}: {error.strerror}") from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                # Who held it has removed the file: whoever comes next makes another.
                if not _is_at(descriptor, path):
                    continue
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
            finally:
                os.close(descriptor)

    def save(self, state: State) -> None:
        """Writes the file whole or not at all."""
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"schema": SCHEMA, **asdict(state)}, indent=1) + "\n")
        new.replace(self.file)

    def _read(self) -> Any:
        """The file's document; None when there is none."""
        try:
            self.check_owner()
            return json.loads(self.file.read_text())
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise TuttiError(f"{self.file}: {error.strerror}") from None
        except ValueError:
            raise TuttiError(f"{self.file} is damaged; {self._by_hand()}") from None

    def _by_hand(self) -> str:
        return (
            "its processes are not known; remedy: end those that have "
            f"{self.directory / 'hosts'} on their command lines, then remove {self.directory}"
        )

    def load(self) -> State | None:
        """The state; None when there is none."""
        found = self._read()
        if found is None:
            return None
        try:
            if found["schema"] != SCHEMA:
                raise ValueError
            return State(
                spec=Spec(**found["spec"]),
                lab=Process(**found["lab"]),
                boxes={name: Process(**box) for name, box in found["boxes"].items()},
                ready=found["ready"],
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TuttiError(
                f"{self.file} is damaged or of another version of Tutti; "
                f"remedy: {self.command('down')}"
            ) from None

    def processes(self) -> list[Process] | None:
        """The lab's upper process and those of its boxes, whichever version wrote the file."""
        found = self._read()
        if found is None:
            return None
        try:
            named = [found["lab"], *found["boxes"].values()]
            return [Process(int(one["pid"]), int(one["start"])) for one in named]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TuttiError(f"{self.file} is damaged; {self._by_hand()}") from None

    def require(self) -> State:
        """The state of a living lab; an error that names the remedy."""
        state = self.load()
        if state is None:
            others = sorted(file.parent.name for file in self.base.glob(f"*/{self.file.name}"))
            which = f"no lab {self.name} is up, there are {', '.join(others)}"
            raise TuttiError(f"{which if others else 'no lab is up'}; remedy: {self.command('up')}")
        if not state.alive:
            raise TuttiError(
                f"the lab has crashed; remedy: {self.command('down')}, then {self.command('up')}"
            )
        return state

    def remove(self) -> None:
        """The lab's files."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _is_at(descriptor: int, path: Path) -> bool:
    """An open file is the one that a path names."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def kill(process: Process) -> bool:
    """Kills a process of a lab and waits for its end; False when it was not there."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # Asked after the descriptor is open: from here on it is this process or none.
        if not process.alive:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        if not select.select([descriptor], [], [], DEATH_TIMEOUT_S)[0]:
            raise TuttiError(f"process {process.pid} of the lab does not end")
    finally:
        os.close(descriptor)
    return True


def take_down(place: Place) -> bool:
    """Ends what is left of a lab, in whatever state it is; False when there was none."""
    if not place.base.is_dir():
        return False
    place.check_owner()
    with place.locked():
        return end(place)


def end(place: Place) -> bool:
    """The same of a lab that the caller has locked."""
    processes = place.processes()
    if processes is None:
        return False
    # The kernel kills the boxes with the process above them; those of a lab whose upper process
    # was killed are dead already. Each is looked at all the same.
    for process in processes:
        kill(process)
    place.remove()
    return True
