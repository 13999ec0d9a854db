#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program in a virtual machine that has soft-RoCE (rdma_rxe) devices on links that lose.

    tools/rdma_vm.py [--devices 2] [--loss 1%] [--delay '1ms 0.2ms'] [--put FILE]... -- COMMAND...

For kernels without RDMA: boots Debian's kernel (tools/set_up.sh rdma_vm) under QEMU with an
initramfs of busybox, ip, tc, rdma and COMMAND. Prints what COMMAND writes, both streams in one, and
exits with its status; 124 after --timeout, 125 where the machine itself fails. COMMAND has no
standard input. Programs and files named by a path, --put too, have the same path inside, and
programs their shared libraries; the working directory is the same. What they write is lost.

Inside, device rxeI is on network device netI (192.0.2.I+1, MAC 02:00:00:00:00:0I+1), whose other
end portI is in one bridge. All devices are in one network namespace: rxe of Linux 6.1 looks up
routes in the initial one. Two commands help scripts:

    set_netem [WORDS]        netem of all links, as `tc qdisc ... netem WORDS`; without WORDS none
    set_port I down|up       the network device's own state, as `ip link set netI`, and its routes
    set_port I unplug|plug   its carrier, by the other end's state

Linux would send from one local address to another over `lo`, and rxe hands packets to itself where
the destination's MAC is that of its own device. Policy rules prevent both: local output with the
source or the device of netI has a routing table in which the other addresses are on the link, and
`local` comes after it. So the kernel resolves the peer's own MAC, and each packet passes the qdisc
of its sender's netI, the bridge, and with accept_local=1 its receiver's netI. This holds for IPv4
GIDs, link-local IPv6 GIDs (index 0) and for ping, TCP and UDP between these addresses. A packet to
the sender's own address does not leave the device.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import secrets
import selectors
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNEL = ROOT / ".env" / "rdma_vm"
TIMED_OUT, VM_FAILED = 124, 125
# A machine is up after some 6 s, ten times as much where others run beside it. Now and then QEMU's
# emulated processors never get there: they spin in the kernel's start.
BOOT_S, BOOTS = 60.0, 3
TOOL_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
# Debian's busybox as a shell, or as `timeout`, takes its own `ip` for /usr/bin/ip.
TOOLS = ("ip", "tc", "bridge", "rdma", "sh", "env", "timeout")
OPTIONAL_TOOLS = ("ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong")
# Those that programs open by name.
OPENED_LIBRARIES = (
    "libibverbs.so.1",
    "libibverbs/librxe-rdmav*.so",
    "libnl-3.so.200",
    "libnl-route-3.so.200",
    "libgcc_s.so.1",
)
LIBRARY_DIRECTORIES = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64")
NETEM_WORDS = ("loss", "delay", "duplicate", "reorder", "rate")

INIT = r"""#!/bin/sh
export PATH=/usr/local/bin:/usr/bin:/usr/sbin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
ulimit -l unlimited
hostname rdma-vm
stty -F /dev/ttyS1 raw -echo
sh /rdma_vm/commands.sh </dev/null >/dev/ttyS1 2>&1
echo "rdma_vm: done after $(cut -d ' ' -f 1 /proc/uptime) s"
poweroff -f
"""

SET_UP = r"""
for module in /rdma_vm/modules/*; do insmod "$module" || exit; done
echo 1 >/proc/sys/net/ipv4/conf/all/accept_local
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip -batch /rdma_vm/links && ip -4 -batch /rdma_vm/rules4 && ip -6 -batch /rdma_vm/rules6 || exit
for i in $(seq 0 $((DEVICES - 1))); do
  ip -batch /rdma_vm/up$i || exit
  rdma link add rxe$i type rxe netdev net$i || exit
done
"""

SET_PORT = r"""#!/bin/sh
case $2 in
  down) ip link set "net$1" down ;;
  up) ip -batch "/rdma_vm/up$1" ;;
  unplug) ip link set "port$1" down ;;
  plug) ip link set "port$1" up ;;
  *) echo "set_port: $*: not a change of a port; remedy: set_port INDEX down|up|unplug|plug" >&2
    exit 2 ;;
esac
"""

SET_NETEM = r"""#!/bin/sh
for path in /sys/class/net/net*; do
  if [ $# -gt 0 ]; then
    tc qdisc replace dev "${path##*/}" root netem limit 100000 "$@" || exit
  else
    tc qdisc del dev "${path##*/}" root 2>/dev/null
  fi
done
true
"""


class VmError(Exception):
    """The machine could not be made, or ended before its commands did; says what to do."""


class VmTimeoutError(VmError):
    """The machine was ended at its time limit. `outcomes` are those of the commands that ended."""

    def __init__(self, text: str, outcomes: list[Outcome]) -> None:
        super().__init__(text)
        self.outcomes = outcomes


@dataclass(frozen=True)
class Outcome:
    """What became of one command: exit status, 128 + N after signal N; both output streams."""

    status: int
    output: str


@dataclass(frozen=True)
class Machine:
    """A virtual machine to be.

    Attributes:
        devices: number of soft-RoCE devices, 1 to 9.
        mtu: of the network devices, bytes; 4200 is the least for an RDMA MTU of 4096.
        netem: words of `tc qdisc ... netem`, for the output of each device; none: no netem.
        put: further files and directories, which keep their paths.
        environment: variables of the commands. Nothing else is passed on.
        timeout_s: limit from the start of a machine that comes up, boot included.
        memory_mib: beside what the files need.
        cpus: number of processors, all emulated.
        accelerator: QEMU's; "kvm" is ten times as fast, but hangs in some nested machines.
    """

    devices: int = 2
    mtu: int = 4200
    netem: Sequence[str] = ()
    put: Sequence[Path | str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120
    memory_mib: int = 1024
    cpus: int = 2
    accelerator: str = "tcg,thread=multi"


def why_not() -> str:
    """Why no such machine can run here, with the remedy; empty: it can."""
    remedy = "remedy: tools/set_up.sh rdma_vm, as root"
    for name in ("qemu-system-x86_64", "setpriv", "busybox", *TOOLS):
        if shutil.which(name, path=TOOL_PATH) is None:
            return f"{name} not found; {remedy}"
    if not (KERNEL / "vmlinuz").exists():
        return f"{KERNEL}/vmlinuz not found; {remedy}"
    if not Path("/etc/libibverbs.d/rxe.driver").exists():
        return f"libibverbs' provider for rxe not found; {remedy}"
    return ""


class Initramfs:
    """A cpio archive (format newc) of files that keep the paths they have on this machine."""

    def __init__(self) -> None:
        self._archive = io.BytesIO()
        self._names: set[str] = set()
        self._inode = 0
        for directory in ("dev", "proc", "sys", "root", "tmp", "etc", "run", "var", "usr"):
            self.directory(f"/{directory}")
        for name in ("bin", "sbin", "lib", "lib64"):
            self.directory(f"/usr/{name}")
            self.link(f"/{name}", f"usr/{name}")

    def _entry(self, name: str, mode: int, content: bytes) -> None:
        self._inode += 1
        encoded = os.fsencode(name.lstrip("/")) + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + "".join(f"{value:08x}" for value in fields).encode()
        for part in (header + encoded, content):
            self._archive.write(part)
            self._archive.write(bytes(-self._archive.tell() % 4))

    def _is_new(self, path: str) -> str:
        """The path in the archive where nothing has it yet; its directories are made."""
        first, slash, rest = path.lstrip("/").partition("/")
        path = (
            f"/usr/{first}/{rest}" if slash and first in ("bin", "sbin", "lib", "lib64") else path
        )
        if path in self._names:
            return ""
        self._names.add(path)
        parent = os.path.dirname(path)
        if parent != "/":
            self.directory(parent)
        return path

    def directory(self, path: str) -> None:
        """Adds an empty directory."""
        if name := self._is_new(path):
            self._entry(name, stat.S_IFDIR | 0o755, b"")

    def link(self, path: str, target: str) -> None:
        """Adds a symbolic link."""
        if name := self._is_new(path):
            self._entry(name, stat.S_IFLNK | 0o777, os.fsencode(target))

    def text(self, path: str, content: str, mode: int = 0o755) -> None:
        """Adds a file with this content."""
        if name := self._is_new(path):
            self._entry(name, stat.S_IFREG | mode, content.encode())

    def file(self, path: str, source: Path | None = None) -> None:
        """Adds a file of this machine, and what it needs in order to run."""
        name = self._is_new(path)
        if not name:
            return
        source = source or Path(path)
        content = source.read_bytes()
        self._entry(name, stat.S_IFREG | stat.S_IMODE(source.stat().st_mode) | 0o400, content)
        if content[:4] == b"\x7fELF" and not path.endswith(".ko"):
            for library in shared_libraries(source):
                self.file(library)
        elif content[:2] == b"#!":
            interpreter = os.fsdecode(content[2:].split(maxsplit=1)[0])
            if interpreter != "/bin/sh" and os.path.isfile(interpreter):
                self.file(interpreter)

    def tree(self, path: str) -> None:
        """Adds a file or a directory with all below it. Links inside stay links."""
        if not os.path.isdir(path):
            self.file(path)
            return
        self.directory(path)
        for directory, directories, files in os.walk(path):
            for name in (*directories, *files):
                inner = os.path.join(directory, name)
                if os.path.islink(inner):
                    self.link(inner, os.readlink(inner))
                elif os.path.isdir(inner):
                    self.directory(inner)
                elif os.path.isfile(inner):
                    self.file(inner)

    def content(self) -> bytes:
        """The archive."""
        self._entry("TRAILER!!!", 0, b"")
        return self._archive.getvalue()


def shared_libraries(program: Path) -> list[str]:
    """Those that the loader would load, and the loader; none of a static program."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    missing = re.findall(r"^\s*(\S+) => not found", done.stdout, re.MULTILINE)
    if missing:
        raise VmError(
            f"{program}: no library {', '.join(missing)}; remedy: set LD_LIBRARY_PATH, for the "
            "machine with --env, too"
        )
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", done.stdout, re.MULTILINE)


def address(index: int) -> str:
    """IPv4 address of a device."""
    return f"192.0.2.{index + 1}"


def links(machine: Machine) -> str:
    """What `ip -batch` makes the network of."""
    lines = ["link set lo up", "link add switch type bridge mcast_snooping 0"]
    lines.append("link set switch addrgenmode none up")
    for i in range(machine.devices):
        lines += [
            f"link add net{i} mtu {machine.mtu} address {mac(i)} type veth "
            f"peer name port{i} mtu {machine.mtu}",
            f"link set port{i} addrgenmode none master switch up",
            f"addr add {address(i)}/24 dev net{i}",
        ]
    return "\n".join(lines) + "\n"


def rules(machine: Machine, address_of: Callable[[int], str]) -> str:
    """What `ip -batch` sets one address family's rules with: links before local addresses."""
    lines = ["rule add pref 1000 lookup local", "rule del pref 0"]
    for i in range(machine.devices):
        lines += [
            f"rule add pref 100 iif lo oif net{i} lookup {100 + i}",
            f"rule add pref 200 iif lo from {address_of(i)} lookup {100 + i}",
        ]
    return "\n".join(lines) + "\n"


def up(machine: Machine, index: int) -> str:
    """What `ip -batch` sets a device up with; neighbours are fixed, netem would lose requests."""
    table = f"table {100 + index}"
    lines = [
        f"link set net{index} up",
        f"route replace throw {address(index)}/32 {table}",
        f"route replace 192.0.2.0/24 dev net{index} src {address(index)} {table}",
        f"route replace throw {link_local(index)}/128 {table}",
        f"route replace fe80::/64 dev net{index} {table}",
    ]
    for i in range(machine.devices):
        if i != index:
            for peer in (address(i), link_local(i)):
                lines.append(f"neigh replace {peer} lladdr {mac(i)} dev net{index} nud permanent")
    return "\n".join(lines) + "\n"


def mac(index: int) -> str:
    """MAC address of a device."""
    return f"02:00:00:00:00:0{index + 1}"


def link_local(index: int) -> str:
    """IPv6 address that a MAC address gives."""
    return f"fe80::ff:fe00:{index + 1}"


def script(machine: Machine, commands: Sequence[Sequence[str]], token: str) -> str:
    """The shell script that sets the devices up and runs the commands."""
    netem = f"set_netem {shlex.join(machine.netem)} || exit\n" if machine.netem else ""
    variables = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in machine.environment.items()
    )
    lines = f"DEVICES={machine.devices}\n{SET_UP}{netem}{variables}"
    lines += f"cd {shlex.quote(os.getcwd())}\nprintf '\\036%s ready\\n' {token}\n"
    for command in commands:
        lines += f"{shlex.join(command)}\nprintf '\\036%s %s\\n' {token} $?\n"
    return lines


def initramfs(machine: Machine, commands: Sequence[Sequence[str]], token: str) -> bytes:
    """What the machine's kernel starts with."""
    archive = Initramfs()
    archive.text("/init", INIT)
    archive.text("/rdma_vm/commands.sh", script(machine, commands, token))
    archive.text("/rdma_vm/links", links(machine))
    archive.text("/rdma_vm/rules4", rules(machine, address))
    archive.text("/rdma_vm/rules6", rules(machine, link_local))
    for i in range(machine.devices):
        archive.text(f"/rdma_vm/up{i}", up(machine, i))
    archive.text("/usr/bin/set_port", SET_PORT)
    archive.text("/usr/bin/set_netem", SET_NETEM)
    archive.text("/etc/hosts", "127.0.0.1 localhost rdma-vm\n", 0o644)
    archive.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644)
    for module in sorted((KERNEL / "modules").glob("*.ko")):
        archive.file(f"/rdma_vm/modules/{module.name}", module)
    for name in (*TOOLS, *OPTIONAL_TOOLS):
        found = shutil.which(name, path=TOOL_PATH)
        if found:
            archive.file(f"/usr/bin/{name}", Path(found))
    for library in OPENED_LIBRARIES:
        for directory in map(Path, LIBRARY_DIRECTORIES):
            for path in directory.glob(library):
                archive.file(str(path))
    archive.file("/etc/libibverbs.d/rxe.driver")
    for given in machine.put:
        archive.tree(os.path.abspath(given))
    for command in commands:
        for word in command:
            if "/" in word and os.path.isfile(word):
                archive.file(os.path.abspath(word))
    busybox = shutil.which("busybox", path=TOOL_PATH) or ""
    archive.file("/usr/bin/busybox", Path(busybox))
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for name in applets.stdout.split():
        archive.link(f"/usr/bin/{name}", "busybox")
    archive.directory(os.getcwd())
    return archive.content()


def qemu(machine: Machine, initrd: Path, console: Path) -> list[str]:
    """The command that is the machine: its console is a file, its second serial port stdout."""
    memory_mib = machine.memory_mib + 3 * initrd.stat().st_size // 2**20
    words = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"]
    words += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    words += ["-accel", machine.accelerator, "-cpu", "max", "-smp", str(machine.cpus)]
    words += ["-m", str(memory_mib)]
    words += ["-serial", f"file:{console}", "-serial", "stdio"]
    words += ["-kernel", str(KERNEL / "vmlinuz"), "-initrd", str(initrd), "-append"]
    # Without its check of the timer, which fails where this machine is busy and ticks come late.
    return [
        *words,
        "console=ttyS0 quiet panic=1 oops=panic mitigations=off random.trust_cpu=on "
        "audit=0 cryptomgr.notests no_timer_check",
    ]


class Outcomes:
    """Divides the serial output into those of the commands, and hands it on as it comes."""

    def __init__(self, token: str, sink: Callable[[bytes], object] | None) -> None:
        self.ready = False
        self.all: list[Outcome] = []
        self._mark = re.compile(rb"\x1e" + token.encode() + rb" (ready|\d+)\n")
        self._longest = len(token) + 12
        self._sink = sink
        self._rest = b""
        self._output = b""

    def add(self, data: bytes) -> None:
        """Takes what was read."""
        self._rest += data
        while found := self._mark.search(self._rest):
            self._pass(self._rest[: found.start()])
            self._rest = self._rest[found.end() :]
            if found[1] == b"ready":
                self.ready = True
            else:
                self.all.append(Outcome(int(found[1]), self.unfinished()))
            self._output = b""
        start = self._rest.rfind(b"\x1e", max(0, len(self._rest) - self._longest))
        start = len(self._rest) if start < 0 else start
        self._pass(self._rest[:start])
        self._rest = self._rest[start:]

    def unfinished(self) -> str:
        """Output of the command that runs."""
        return self._output.decode(errors="replace")

    def _pass(self, data: bytes) -> None:
        self._output += data
        if self._sink and data:
            self._sink(data)


def run_once(machine: Machine, initrd: Path, outcomes: Outcomes) -> tuple[bool, str]:
    """Runs one machine. Returns whether it ended by itself, and what it and QEMU said."""
    console, errors = initrd.with_name("console"), initrd.with_name("errors")
    console.write_text("")
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            qemu(machine, initrd, console),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
            env={**os.environ, "PATH": TOOL_PATH},
        )  # fmt: skip
    start_s = time.monotonic()
    has_ended = False
    assert process.stdout is not None
    with process.stdout, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        try:
            while not has_ended:
                limit_s = machine.timeout_s if outcomes.ready else min(machine.timeout_s, BOOT_S)
                left_s = start_s + limit_s - time.monotonic()
                if left_s <= 0:
                    break
                if selector.select(left_s):
                    data = os.read(process.stdout.fileno(), 1 << 16)
                    outcomes.add(data)
                    has_ended = not data
        finally:
            if not has_ended:
                process.kill()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:  # Its output has ended, and it has not.
                process.kill()
                process.wait()
    return has_ended, errors.read_text(errors="replace") + console.read_text(errors="replace")


def run_in_vm(
    *commands: Sequence[str],
    machine: Machine | None = None,
    sink: Callable[[bytes], object] | None = None,
) -> list[Outcome]:
    """Boots one machine and runs the commands in it, one after the other.

    Each command is a program with its arguments; for a time limit of its own begin it with
    `timeout SECONDS`. All run, whatever the others' status. `sink` takes the output as it comes.
    A machine that is not up after BOOT_S is ended and says so; another one is booted, up to BOOTS.

    Raises:
        VmError: there is no such machine here, or its kernel or set-up failed.
        VmTimeoutError: `machine.timeout_s` are over, or no machine came up.
    """
    machine = machine or Machine()
    if reason := why_not():
        raise VmError(reason)
    token = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="rdma_vm-") as directory:
        initrd = Path(directory, "initrd")
        initrd.write_bytes(initramfs(machine, commands, token))
        for boots_left in reversed(range(BOOTS)):
            outcomes = Outcomes(token, sink)
            has_ended, said = run_once(machine, initrd, outcomes)
            if has_ended or outcomes.ready or not boots_left or machine.timeout_s <= BOOT_S:
                break
            print(f"rdma_vm: not up after {BOOT_S:g} s, another boot", file=sys.stderr)
    if len(outcomes.all) == len(commands):
        return outcomes.all
    where = f"in command {len(outcomes.all) + 1}" if outcomes.ready else "before the first command"
    ends = "".join(
        f"\n--- the end of its {name}:\n{text[-3000:].strip()}"
        for name, text in (("console", said), ("output", outcomes.unfinished()))
        if text.strip()
    )
    if not has_ended:
        limit_s = machine.timeout_s if outcomes.ready else min(machine.timeout_s, BOOT_S)
        text = f"not done after {limit_s:g} s, {where}; remedy: a longer time limit{ends}"
        raise VmTimeoutError(f"rdma_vm: {text}", outcomes.all)
    what = "its kernel panicked" if "Kernel panic" in said else "it ended"
    raise VmError(f"rdma_vm: {what} {where}; remedy: see what it wrote{ends}")


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--devices", type=int, choices=range(1, 10), default=2, metavar="N",
        help="soft-RoCE devices, 1 to 9 (default 2)")  # fmt: skip
    add("--mtu", type=int, default=4200, metavar="BYTES",
        help="MTU of the links (default 4200, the least for an RDMA MTU of 4096)")  # fmt: skip
    for name in NETEM_WORDS:
        add(f"--{name}", metavar="WORDS", help=f"tc netem's {name}, at the output of each device")
    add("--timeout", type=float, default=120, metavar="S",
        help="limit in seconds, with its last boot; exit status 124 (default 120)")  # fmt: skip
    add("--put", action="append", default=[], metavar="PATH",
        help="file or directory to copy in, same path inside; may be repeated")  # fmt: skip
    add("--env", action="append", default=[], metavar="NAME=VALUE",
        help="environment variable of COMMAND; may be repeated")  # fmt: skip
    add("--memory", type=int, default=1024, metavar="MIB",
        help="memory in MiB, beside what the files need (default 1024)")  # fmt: skip
    add("--cpus", type=int, default=2, metavar="N", help="processors of the machine (default 2)")
    add("--accelerator", default=Machine.accelerator,
        help="QEMU's: tcg (default %(default)s) or kvm")  # fmt: skip
    add("command", nargs="+", metavar="COMMAND", help="program to run, and its arguments")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command."""
    given = options(arguments)
    netem = [
        word
        for name in NETEM_WORDS
        if getattr(given, name) is not None
        for word in (name, *getattr(given, name).split())
    ]
    machine = Machine(
        devices=given.devices, mtu=given.mtu, netem=netem, put=given.put,
        environment=dict(pair.partition("=")[::2] for pair in given.env),
        timeout_s=given.timeout, memory_mib=given.memory, cpus=given.cpus,
        accelerator=given.accelerator,
    )  # fmt: skip

    def show(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    try:
        return run_in_vm(given.command, machine=machine, sink=show)[0].status
    except VmError as error:
        print(error, file=sys.stderr)
        return TIMED_OUT if isinstance(error, VmTimeoutError) else VM_FAILED


if __name__ == "__main__":
    sys.exit(main())
