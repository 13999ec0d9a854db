# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The kernel calls a lab is made of, which Python 3.11 has no functions for.

Everything raises OSError with the kernel's errno.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

NEW_MOUNT = 0x00020000
NEW_UTS = 0x04000000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NET = 0x40000000

_MOUNT_REMOUNT_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_MOUNT_BIND = 0x1000
_MOUNT_PLAIN = 0x2 | 0x4 | 0x8  # MS_NOSUID | MS_NODEV | MS_NOEXEC
_SET_PARENT_DEATH_SIGNAL = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """New namespaces for this process; a new process table is for its next children."""
    _check(_libc.unshare(flags), "unshare")


def die_with_parent(signal_number: int) -> None:
    """This process gets the signal when its parent ends."""
    _check(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal_number, 0, 0, 0), "prctl")


def become_root_of_user_namespace() -> None:
    """A user namespace in which this user, and nobody else, exists and is root."""
    user, group = os.geteuid(), os.getegid()
    unshare(NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def set_host_name(name: str) -> None:
    """Of this UTS namespace."""
    encoded = name.encode()
    _check(_libc.sethostname(encoded, len(encoded)), "sethostname")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(result, f"mount on {target}")


def private_mounts() -> None:
    """What is mounted here from now on is seen by nobody else."""
    _mount("none", "/", "none", _MOUNT_REMOUNT_PRIVATE)


def mount_process_table() -> None:
    """/proc of this process table."""
    _mount("proc", "/proc", "proc", _MOUNT_PLAIN)


def mount_shared_memory() -> None:
    """An own /dev/shm."""
    _mount("tmpfs", "/dev/shm", "tmpfs", _MOUNT_PLAIN & ~0x8, "mode=1777")


def bind(source: Path, target: str) -> None:
    """`source` in the place of `target`."""
    _mount(str(source), target, "none", _MOUNT_BIND)


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which a process began; None: there is none.

    With the number it names a process for good, since numbers are used again.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])


def same_user_namespace(pid: int) -> bool:
    """True when `pid` lives in the user namespace of this process."""
    return os.stat(f"/proc/{pid}/ns/user").st_ino == os.stat("/proc/self/ns/user").st_ino


def enter(pid: int, flags: int) -> None:
    """Makes the namespaces of `pid` those of this process, and its user namespace if another."""
    if not same_user_namespace(pid):
        flags |= NEW_USER
    descriptor = os.pidfd_open(pid)
    try:
        _check(_libc.setns(descriptor, flags), f"setns to process {pid}")
    finally:
        os.close(descriptor)
