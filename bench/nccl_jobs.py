# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs under a real NCCL whose ranks are hosts of their own: layouts, environment, output, end.

NCCL_HOSTID makes every process a host of its own for NCCL, so all traffic takes the network and
several ranks may share a GPU. NVLink multicast is always off: all published results are without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from network_parts import Lab, enter, raise_priority, tcp_of
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import plan

RANKS = 4
SPINES = 8
HOST_RATE_BPS = 16_000_000_000
QUEUE_US = 8000  # 2 MB at a link of a spine.
LOSS_PPM = 1000
GRACE_S = 15  # For the other ranks when one has failed: they should notice by themselves.
POLL_S = 0.02
LOG_KINDS = ("out", "err", "nccl")


@dataclass(frozen=True)
class Layout:
    """Where ranks are: all on the machine's loopback, or each on a node of a lab."""

    name: str
    spec: plan.Spec | None = None
    tcp: str = ""  # Congestion control in the lab; empty: the machine's.

    @property
    def interfaces(self) -> str:
        """Of each rank, as NCCL lists them."""
        return ",".join(map(plan.rail_device, range(self.spec.rails))) if self.spec else "lo"


def layouts(
    rate_bps: int = HOST_RATE_BPS,
    queue_us: int = QUEUE_US,
    loss_ppm: int = LOSS_PPM,
    ranks: int = RANKS,
    tcp: str = "",
) -> dict[str, Layout]:
    """By name. A fabric has a leaf for each rank, and eight spines.

    On `fabric` a flow gets at most an eighth of its host; on `bisection` a path is as fast as a
    host, and so cannot be the limit. `rails` has no spines: a host has two links of half its rate.
    """
    spec = plan.Spec(
        nodes=ranks,
        rails=1,
        rate_bps=rate_bps,
        spines=SPINES,
        spine_rate_bps=rate_bps // SPINES,
        queue_us=queue_us,
    )
    found = [
        Layout("loopback"),
        Layout("fabric", spec, tcp),
        Layout("bisection", replace(spec, spine_rate_bps=rate_bps), tcp),
        Layout("lossy", replace(spec, loss_ppm=loss_ppm), tcp),
        Layout("rails", replace(spec, rails=2, rate_bps=rate_bps // 2, spines=0, spine_rate_bps=0)),
    ]
    return {layout.name: layout for layout in found}


LAYOUTS = layouts()


@dataclass(frozen=True)
class Way:
    """A network for NCCL, by the name that NCCL has for it, with its settings."""

    name: str
    network: str
    env: Mapping[str, str] = field(default_factory=dict)
    layouts: tuple[str, ...] = tuple(LAYOUTS)


def sockets(threads: int, streams: int, layouts: Sequence[str] = tuple(LAYOUTS)) -> Way:
    """NCCL's own sockets with so many threads and sockets for each of them."""
    env = {"NCCL_SOCKET_NTHREADS": str(threads), "NCCL_NSOCKS_PERTHREAD": str(streams)}
    return Way(f"NCCL {threads}x{streams}", "Socket", env, tuple(layouts))


DEFAULT = Way("NCCL", "Socket")
TUTTI = Way("Tutti", "Tutti")
# One device of both links, where NCCL otherwise has a channel's traffic on one of them.
MERGED = Way(
    "Tutti merged",
    "Tutti",
    {"NCCL_NET_FORCE_MERGE": LAYOUTS["rails"].interfaces},
    ("rails",),
)
WAYS = {
    way.name: way for way in (DEFAULT, sockets(2, 8), sockets(4, 4, ("loopback",)), TUTTI, MERGED)
}


def find_nccl(given: str | None) -> str:
    """The library's path; empty: the program's own search has to find it."""
    if given:
        if not Path(given).exists():
            raise TuttiError(f"--nccl {given}: no such file")
        return str(Path(given).resolve())
    for place in [*sys.path, *site.getsitepackages()]:
        path = Path(place, "nvidia/nccl/lib/libnccl.so.2")
        if path.exists():
            return str(path)
    return ""


def count_gpus() -> int:
    """Device files: asking the driver takes seconds."""
    return sum(bool(re.fullmatch(r"nvidia\d+", entry.name)) for entry in Path("/dev").iterdir())


@dataclass(frozen=True)
class Setup:
    """What all jobs have in common."""

    build: Path
    logs: Path
    nccl: str
    gpus: int
    env: Mapping[str, str] = field(default_factory=dict)  # Of every rank, as of MPS.
    ranks: int = RANKS
    asserts_network: bool = True  # A fake of NCCL writes no log that names it.

    def require(self) -> None:
        """Errors that name what is missing."""
        for path in (self.ranks_program, self.build / "lib/libnccl-net-tutti.so"):
            if not path.exists():
                raise TuttiError(f"{path} is missing; remedy: make build")
        if self.gpus < 1:
            raise TuttiError("no GPU: /dev has no nvidia0; remedy: --gpus N")
        self.logs.mkdir(parents=True, exist_ok=True)

    @property
    def ranks_program(self) -> Path:
        """The measured program."""
        return self.build / "bench/net/nccl_ranks"


def rank_env(setup: Setup, layout: Layout, way: Way, rank: int, log: Path) -> dict[str, str]:
    """The whole environment of a rank; settings of NCCL and Tutti from outside are not taken."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL_", "TUTTI_NET_", "TUTTI_FAULT"))
    }
    libraries = [str(setup.build / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    env |= {
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_MNNVL_ENABLE": "0",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_HOSTID": f"node{rank}",
        "NCCL_SOCKET_IFNAME": f"={layout.interfaces}",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "NCCL_NET": way.network,
        "NCCL_NET_PLUGIN": way.network.lower() if way.network == TUTTI.network else "none",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
        "NCCL_DEBUG_FILE": str(log),
    }
    if layout.spec and way.network == TUTTI.network:
        env["TUTTI_NET_SPEED"] = str(layout.spec.rate_bps // 1_000_000)
    return env | setup.env | way.env


def networks_of(log: str) -> set[str]:
    """Those that NCCL says in its log that it uses."""
    return set(re.findall(r"Using network (\S+)", log))


def plugin_lines(log: str) -> list[str]:
    """What the plugin says, without what NCCL puts before it."""
    found = re.findall(r"NET/Tutti : (.*)", log)
    return list(dict.fromkeys(found))


def warnings_of(log: str) -> list[str]:
    """NCCL's and the plugin's."""
    return [line.partition("NCCL WARN ")[2] for line in log.splitlines() if "NCCL WARN " in line]


@dataclass
class Outcome:
    """What a job left behind."""

    codes: list[int]
    lines: list[list[dict[str, Any]]]  # Of each rank, what it printed as JSON.
    errs: list[str]
    logs: list[str]
    seconds: float
    failure: str = ""  # Why the job does not count; empty: it does.

    def results(self) -> list[list[dict[str, Any]]]:
        """Of each rank, without the events."""
        return [[line for line in lines if "event" not in line] for lines in self.lines]

    def events(self, rank: int, name: str) -> list[dict[str, Any]]:
        """Of one kind."""
        return [line for line in self.lines[rank] if line.get("event") == name]


def json_lines(text: str) -> list[dict[str, Any]]:
    """The objects among the lines; a killed rank may leave half of one."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(value)
    return found


def reason(
    codes: Sequence[int],
    lines: Sequence[Sequence[dict[str, Any]]],
    errs: Sequence[str],
    logs: Sequence[str],
) -> str:
    """Why ranks failed, in their own words, one of each kind."""
    said: dict[str, list[int]] = {}
    for rank, code in enumerate(codes):
        if code == 0:
            continue
        texts = [line["text"] for line in lines[rank] if line.get("event") == "error"]
        texts += warnings_of(logs[rank])[:2]
        texts += errs[rank].strip().splitlines()[-1:]
        for text in texts or [f"status {code} without a word"]:
            said.setdefault(text, []).append(rank)
    return " | ".join(f"rank {','.join(map(str, ranks))}: {text}" for text, ranks in said.items())[
        :1500
    ]


class Job:
    """Ranks that run; ends them at the latest when the scope ends."""

    def __init__(
        self,
        setup: Setup,
        layout: Layout,
        lab: Lab | None,
        way: Way,
        name: str,
        command: Callable[[int], Sequence[str]],
    ) -> None:
        self.setup, self.way = setup, way
        self.processes: list[subprocess.Popen[bytes]] = []
        base = setup.logs / re.sub(r"[^A-Za-z0-9.-]+", "-", name)
        self.paths = [
            {kind: base.with_name(f"{base.name}.{rank}.{kind}") for kind in LOG_KINDS}
            for rank in range(setup.ranks)
        ]
        for paths in self.paths:
            for path in paths.values():
                path.unlink(missing_ok=True)
        self.begin_s = time.monotonic()
        try:
            for rank, paths in enumerate(self.paths):
                with paths["out"].open("wb") as out, paths["err"].open("wb") as err:
                    self.processes.append(
                        subprocess.Popen(
                            command(rank),
                            env=rank_env(setup, layout, way, rank, paths["nccl"]),
                            stdin=subprocess.DEVNULL,
                            stdout=out,
                            stderr=err,
                            preexec_fn=partial(enter, lab.pids[plan.node_name(rank)])
                            if lab
                            else raise_priority,
                        )
                    )
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """All that are left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()

    def text(self, rank: int, kind: str) -> str:
        """What a rank has written so far."""
        path = self.paths[rank][kind]
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, rank: int, what: Callable[[dict[str, Any]], bool], limit_s: float) -> float:
        """Until a rank prints a line; time.monotonic() then. Errors: it ended, or time is over."""
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            if any(map(what, json_lines(self.text(rank, "out")))):
                return time.monotonic()
            if self.processes[rank].poll() is not None:
                break
            time.sleep(POLL_S)
        outcome = self.finish(0)
        raise TuttiError(f"rank {rank} did not get there: {outcome.failure}")

    def finish(self, limit_s: float, grace_s: float = GRACE_S) -> Outcome:
        """Waits for all. After a failure the others have `grace_s` to end by themselves."""
        end_s = time.monotonic() + limit_s
        has_failed = is_late = False
        while any(process.poll() is None for process in self.processes):
            if not has_failed and any(process.poll() for process in self.processes):
                has_failed = True
                end_s = min(end_s, time.monotonic() + grace_s)
            if time.monotonic() > end_s:
                is_late = True
                break
            time.sleep(POLL_S)
        seconds = time.monotonic() - self.begin_s
        late = [rank for rank, one in enumerate(self.processes) if one.poll() is None]
        self.kill()
        ranks = range(self.setup.ranks)
        outcome = Outcome(
            codes=[process.returncode for process in self.processes],
            lines=[json_lines(self.text(rank, "out")) for rank in ranks],
            errs=[self.text(rank, "err") for rank in ranks],
            logs=[self.text(rank, "nccl") for rank in ranks],
            seconds=seconds,
        )
        if is_late:
            why = "after another failed" if has_failed else f"within {limit_s:g} s"
            outcome.failure = f"ranks {late} did not end {why}: "
        if any(outcome.codes):
            outcome.failure += reason(outcome.codes, outcome.lines, outcome.errs, outcome.logs)
        if not outcome.failure and self.setup.asserts_network:
            used = set().union(*map(networks_of, outcome.logs))
            if used != {self.way.network}:
                names = ", ".join(sorted(used)) or "none that its log names"
                outcome.failure = f"NCCL used {names}, not {self.way.network}"
        return outcome


def remove_logs(job: Job) -> None:
    """Of a job that nobody will ask about."""
    for paths in job.paths:
        for path in paths.values():
            path.unlink(missing_ok=True)


class Rendezvous:
    """A name of a file that is not there yet, for NCCL's id."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="tutti-nccl-")
        self.used = 0

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, *_: object) -> None:
        self.directory.cleanup()

    def next(self) -> str:
        """Another one."""
        self.used += 1
        return str(Path(self.directory.name, f"id{self.used}"))


def ranks_command(
    setup: Setup, id_path: str, words: Sequence[str]
) -> Callable[[int], Sequence[str]]:
    """nccl_ranks, rank r on GPU r modulo their number."""
    common = [str(setup.ranks_program), "--ranks", str(setup.ranks), "--id", id_path]
    common += ["--library", setup.nccl] if setup.nccl else []
    return lambda rank: [*common, "--rank", str(rank), "--device", str(rank % setup.gpus), *words]


@contextlib.contextmanager
def lab_of(layout: Layout):
    """The layout's lab, or none."""
    if layout.spec is None:
        yield None
        return
    with Lab(layout.spec, "bench-nccl") as lab:
        lab.use_tcp(layout.tcp or tcp_of(None))
        if layout.tcp not in ("", lab.tcp()):
            raise TuttiError(f"--tcp {layout.tcp}: the kernel has none that a namespace may choose")
        yield lab


class Mps:
    """NVIDIA's multi-process service, without which ranks on one GPU run in turns.

    Only for ranks that end in order: one that is killed can take the others' work with it.
    """

    def __init__(self, setup: Setup, wanted: str) -> None:
        self.setup = setup
        self.wanted = wanted
        self.directory: tempfile.TemporaryDirectory[str] | None = None
        self.says = ""

    @property
    def env(self) -> dict[str, str]:
        """Of clients and of the daemon."""
        if self.directory is None:
            return {}
        return {
            "CUDA_MPS_PIPE_DIRECTORY": f"{self.directory.name}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": f"{self.directory.name}/log",
        }

    def __enter__(self) -> Setup:
        if self.wanted == "off" or (self.wanted == "auto" and self.setup.gpus >= self.setup.ranks):
            self.says = "not asked for"
            return self.setup
        search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/nvidia/bin", "/usr/bin"])
        self.control = shutil.which("nvidia-cuda-mps-control", path=search)
        if self.control is None:
            return self._without("there is no nvidia-cuda-mps-control")
        self.directory = tempfile.TemporaryDirectory(prefix="tutti-mps-")
        for name in ("pipe", "log"):
            Path(self.directory.name, name).mkdir()
        search = os.pathsep.join([str(Path(self.control).parent), search])
        self.daemon_env = {**os.environ, **self.env, "PATH": search}
        # Without pipes, which the daemon might keep open.
        code = subprocess.run(
            [self.control, "-d"],
            env=self.daemon_env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
        if code != 0:
            return self._without(f"the daemon does not start: status {code}")
        setup = replace(self.setup, env={**self.setup.env, **self.env})
        why = probe(replace(setup, ranks=1))
        servers = self._tell("get_server_list\n")
        if why or not servers:
            return self._without(f"a rank under it fails: {why}" if why else "no server came up")
        self.says = "on"
        return setup

    def _tell(self, text: str) -> str:
        """The daemon's answer; empty when there is none."""
        assert self.control is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                [self.control],
                input=text,
                env=self.daemon_env,
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            ).stdout.strip()
        return ""

    def _without(self, why: str) -> Setup:
        self.says = f"off: {why}"
        self._end()
        if self.wanted == "on":
            raise TuttiError(f"--mps on: {why}")
        return self.setup

    def _end(self) -> None:
        if self.directory is not None:
            self._tell("quit\n")
            self.directory.cleanup()
            self.directory = None

    def __exit__(self, *_: object) -> None:
        self._end()


def probe(setup: Setup) -> str:
    """Why one rank by itself does not work; empty: it does."""
    words = ["--collectives", "allreduce", "--sizes", "4", "--time-cap", "0", "--watchdog", "40"]
    way = replace(DEFAULT, env={"NCCL_DEBUG": "WARN"})
    setup = replace(setup, asserts_network=False)
    # In a network namespace, as most ranks will be.
    layout = Layout("probe", plan.Spec(nodes=1, rails=1, rate_bps=HOST_RATE_BPS))
    with lab_of(layout) as lab, Rendezvous() as rendezvous:
        command = ranks_command(setup, rendezvous.next(), words)
        with Job(setup, layout, lab, way, "probe", command) as job:
            return job.finish(60).failure
