# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the network plugin makes of trouble under a real NCCL: dead ranks, dead links, faults.

Each case is one job and ends in one line: what was expected, what came, and how long it took.
`nccl_network.py trouble` runs them. No case may hang: a rank ends with an error within a bound, or
the data are right. Where paths are cut, the plugin's own counters must say so: chunks were sent
again while they were (paths are left after their first losses, and hardly ever given up where all
are gone at once). Else the case has cut nothing that the job uses.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import nccl_jobs
from nccl_jobs import SPINES, TUTTI, Job, Layout, Outcome, Rendezvous, Setup, Way
from network_parts import Lab
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import network, plan

TIMEOUT_S = 4  # TUTTI_NET_TIMEOUT of the cases in which a host falls silent.
SLACK_S = 4  # For the way of an error through NCCL and the ranks between.
# A process that ends is told of by its TCP connections, at once; the rest is NCCL's way. Less than
# TIMEOUT_S: silence must not be what told.
KILLED_MAX_S = 3
STALL_MAX_S = 2  # The longest call while a path dies.
VICTIM = 1
RUN_LIMIT_S = 120
SETTLE_S = 2  # Between the first call and the trouble.
WORK_S = 6  # Of each collective, while a path dies and comes back.
LARGE = "16M"

# Of a wire that does everything wrong; corrupted payload is UDP's checksum's to find, and faults
# come after it.
FAULTS = (
    "seed={seed},drop=0.01,duplicate=0.001:1ms,reorder=0.01,delay=0.01:500us,corrupt=0.001:header",
    "seed={seed},drop=0.05,reorder=0.05,kill_path=3@1s:2s",
)


@dataclass(frozen=True)
class Case:
    """A name and what runs it; the answer is (it went as expected, what happened)."""

    name: str
    run: Callable[[Setup, Lab | None, Layout], tuple[bool, str]]
    layout: str = "fabric"


def words(collectives: str, sizes: str, seconds: float, *more: str) -> list[str]:
    """Of nccl_ranks."""
    found = ["--collectives", collectives, "--sizes", sizes, "--time-cap", str(seconds)]
    return [*found, "--iterations-max", "1000000", "--watchdog", "60", *more]


def way_with(env: Mapping[str, str]) -> Way:
    """The plugin with settings."""
    return replace(TUTTI, env={**TUTTI.env, **env})


class Counters:
    """What the plugin counts in each rank of a job, in files that outlive the ranks."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="tutti-metrics-")

    def __enter__(self) -> Counters:
        return self

    def __exit__(self, *_: object) -> None:
        self.directory.cleanup()

    @property
    def env(self) -> dict[str, str]:
        """Of each rank. Hosts of a lab number their processes alike."""
        return {"TUTTI_METRICS": f"{self.directory.name}/%h-%p.prom"}

    def total(self, name: str) -> int:
        """Over all engines of all ranks."""
        sample = re.compile(rf"^tutti_engine_{name}_total{{.*}} (\d+)$", re.MULTILINE)
        texts = (file.read_text() for file in Path(self.directory.name).glob("*.prom"))
        return sum(int(number) for text in texts for number in sample.findall(text))

    def lost(self) -> int:
        """Chunks that were sent again, and not in vain."""
        return self.total("retransmissions") - self.total("spurious_retransmissions")


def with_losses(answer: tuple[bool, str], lost: int) -> tuple[bool, str]:
    """The answer of a case in which so many chunks were lost while paths were cut."""
    return answer[0] and lost > 0, f"{lost} chunks were lost; {answer[1]}"


def has_begun(line: Mapping[str, Any]) -> bool:
    """The ranks are connected and at work."""
    return line.get("event") == "begin"


def survivors(
    outcome: Outcome, at_s: float, victims: Sequence[int], bound_s: float
) -> tuple[bool, str]:
    """Every other rank has said an error in time, by itself and not by its watchdog."""
    noticed_s, taken, wrong = [], [], []
    texts: list[str] = []
    for rank, code in enumerate(outcome.codes):
        if rank in victims:
            continue
        errors = outcome.events(rank, "error")
        noticed = [line["at_s"] - at_s for line in outcome.events(rank, "failed")]
        noticed_s.extend(noticed[:1])
        if not errors or code != 3:
            what = f"noticed after {noticed[0]:.1f} s, aborting" if noticed else "noticed nothing"
            wrong.append(f"rank {rank} {what} and ended with status {code}")
            continue
        # The communicator is aborted by the time of the error's line: that counts, too.
        taken.append(errors[0]["at_s"] - at_s)
        texts.append(errors[0]["text"])

    def listed(times_s: Sequence[float]) -> str:
        return ", ".join(f"{one:.1f}" for one in times_s)

    good = not wrong and all(one <= bound_s for one in taken)
    said = texts[0] if texts else outcome.failure
    noticed_at = listed(noticed_s)
    when = f"noticed after {noticed_at} s, aborted after {listed(taken)} s, bound {bound_s} s"
    return good, "; ".join([when, *wrong, said[:160]])


def hit(
    setup: Setup,
    lab: Lab | None,
    layout: Layout,
    *,
    name: str,
    strike: Callable[[Job], None],
    victims: Sequence[int],
    bound_s: float = TIMEOUT_S + SLACK_S,
    cuts_paths: bool = False,
) -> tuple[bool, str]:
    """Strikes a running job that cannot go on after it."""
    with Rendezvous() as rendezvous, Counters() as counters:
        way = way_with({"TUTTI_NET_TIMEOUT": str(TIMEOUT_S), **counters.env})
        command = nccl_jobs.ranks_command(
            setup, rendezvous.next(), words("allreduce", LARGE, RUN_LIMIT_S)
        )
        with Job(setup, layout, lab, way, name, command) as job:
            job.wait_for(0, has_begun, RUN_LIMIT_S)
            time.sleep(SETTLE_S)
            lost = counters.lost()
            at_s = time.monotonic()
            strike(job)
            while time.monotonic() < at_s + bound_s + SLACK_S and any(
                process.poll() is None
                for rank, process in enumerate(job.processes)
                if rank not in victims
            ):
                time.sleep(nccl_jobs.POLL_S)
            outcome = job.finish(0)
        answer = survivors(outcome, at_s, victims, bound_s)
        return with_losses(answer, counters.lost() - lost) if cuts_paths else answer


def send_signal(number: signal.Signals, job: Job) -> None:
    """To the victim."""
    job.processes[VICTIM].send_signal(number)


def set_links(lab: Lab, names: Sequence[str], up: bool) -> None:
    """Pulls links or plugs them in."""
    for name in names:
        network.set_link(lab.plan, lab.pids, name, up)


def pull(lab: Lab, names: Sequence[str], _: Job) -> None:
    """As a strike."""
    set_links(lab, names, up=False)


def signalled(
    number: signal.Signals, setup: Setup, lab: Lab | None, layout: Layout
) -> tuple[bool, str]:
    """A rank is killed, or stopped: then its host keeps its connections open and says nothing."""
    return hit(
        setup,
        lab,
        layout,
        name=f"trouble {number.name}",
        strike=partial(send_signal, number),
        victims=[VICTIM],
        bound_s=KILLED_MAX_S if number == signal.SIGKILL else TIMEOUT_S + SLACK_S,
    )


def cut_off(
    links: Sequence[str], setup: Setup, lab: Lab | None, layout: Layout
) -> tuple[bool, str]:
    """All links of a host go down; the host's own rank has to notice, too."""
    assert lab is not None
    try:
        return hit(
            setup,
            lab,
            layout,
            name=f"trouble {links[0]} down",
            strike=partial(pull, lab, links),
            victims=[],
            cuts_paths=True,
        )
    finally:
        set_links(lab, links, up=True)


def one_path(setup: Setup, lab: Lab | None, layout: Layout) -> tuple[bool, str]:
    """One of the links between a leaf and a spine goes down, and comes back: the job goes on."""
    assert lab is not None
    link = f"leaf{VICTIM}:up3"
    with Rendezvous() as rendezvous, Counters() as counters:
        job_words = words("allreduce,alltoall", LARGE, WORK_S, "--check", "all")
        command = nccl_jobs.ranks_command(setup, rendezvous.next(), job_words)
        way = way_with(counters.env)
        with Job(setup, layout, lab, way, "trouble one path", command) as job:
            job.wait_for(0, has_begun, RUN_LIMIT_S)
            time.sleep(SETTLE_S)
            lost = counters.lost()
            set_links(lab, [link], up=False)
            time.sleep(SETTLE_S)
            lost = counters.lost() - lost
            set_links(lab, [link], up=True)
            outcome = job.finish(RUN_LIMIT_S)
        return with_losses(undisturbed(outcome, results_wanted=2), lost)


def undisturbed(
    outcome: Outcome, results_wanted: int, stall_max_s: float = STALL_MAX_S
) -> tuple[bool, str]:
    """All results came, all elements are right, no call took very long."""
    if outcome.failure:
        return False, outcome.failure
    lines = [line for lines in outcome.results() for line in lines]
    wrong = sum(line["wrong"] for line in lines)
    calls = sum(line["iterations"] for line in outcome.results()[0])
    longest_s = max((line["us_max"] for line in lines), default=0) / 1e6
    good = (
        wrong == 0
        and len(lines) == results_wanted * len(outcome.codes)
        and longest_s <= stall_max_s
    )
    said = nccl_jobs.plugin_lines(outcome.logs[0])
    counters = next((line for line in reversed(said) if "chunks sent" in line), "no counters")
    return good, (
        f"{calls} calls, {wrong} wrong elements, the longest {longest_s:.2f} s (bound "
        f"{stall_max_s} s); rank 0: {counters[:200]}"
    )


def faults(text: str, setup: Setup, lab: Lab | None, layout: Layout) -> tuple[bool, str]:
    """A wire with faults under every rank, of another seed each time: data are right."""
    collectives, sizes = "allreduce,allgather,reduce_scatter,alltoall", "4,60,64K,1M,16M"
    more = ("--check", "all", "--iterations-min", "2", "--iterations-max", "100")
    with Rendezvous() as rendezvous:
        job_words = words(collectives, sizes, 0.3, *more)
        command = nccl_jobs.ranks_command(setup, rendezvous.next(), job_words)
        way = way_with({"TUTTI_FAULT": text})
        with Job(setup, layout, lab, way, f"trouble {text[:12]}", command) as job:
            outcome = job.finish(RUN_LIMIT_S)
    return undisturbed(outcome, results_wanted=4 * 5, stall_max_s=20)


def cases(seeds: int) -> Iterator[Case]:
    """All of them; those of one layout stand together."""
    yield Case("a rank is killed", partial(signalled, signal.SIGKILL))
    yield Case("a rank is stopped", partial(signalled, signal.SIGSTOP))
    yield Case("one path dies and comes back", one_path)
    yield Case("a host's link goes down", partial(cut_off, [f"n{VICTIM}:{plan.rail_device(0)}"]))
    uplinks = [f"leaf{VICTIM}:up{spine}" for spine in range(SPINES)]
    yield Case("all paths of a host go down", partial(cut_off, uplinks))
    for seed in range(1, seeds + 1):
        text = FAULTS[seed % len(FAULTS)].format(seed=seed)
        yield Case(f"faults: {text}", partial(faults, text))
    yield Case("a rank is killed", partial(signalled, signal.SIGKILL), "loopback")
    text = FAULTS[0].format(seed=seeds + 1)
    yield Case(f"faults: {text}", partial(faults, text), "loopback")


def run(
    options: argparse.Namespace, setup: Setup, layouts: Mapping[str, Layout]
) -> list[dict[str, Any]]:
    """Every case in a lab of its own; what came of it. A case left out for time does not hold."""
    end_s = time.monotonic() + options.budget
    chosen = dict(options.set)
    done = []
    for case in cases(options.seeds):
        if case.layout not in options.layouts or options.only not in case.name:
            continue
        name = f"{case.layout}: {case.name}"
        if time.monotonic() > end_s:
            text = "left out, the time is over"
            done.append({"case": name, "holds": False, "text": text, "seconds": 0.0})
            print(f"{name}: {text}", flush=True)
            continue
        layout = layouts[case.layout]
        begin_s = time.monotonic()
        try:
            with nccl_jobs.lab_of(layout) as lab:
                good, text = case.run(replace(setup, env={**setup.env, **chosen}), lab, layout)
        except TuttiError as error:
            good, text = False, error.format_message()
        seconds = round(time.monotonic() - begin_s, 1)
        done.append({"case": name, "holds": good, "text": text, "seconds": seconds})
        print(f"{name}: {'holds' if good else 'FAILED'}: {text} [{seconds} s]", flush=True)
    failed = sum(not one["holds"] for one in done)
    print(f"{len(done)} cases, {failed} failed or left out", flush=True)
    if not done:
        print("no case was chosen", file=sys.stderr)
    return done
