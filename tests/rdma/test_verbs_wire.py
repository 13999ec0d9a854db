# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The verbs wire over soft-RoCE: its contract, and the plugin as NCCL drives it.

All services (UC, RC, UD), on links that lose, delay, duplicate and reorder, under injected faults,
and with ports that go away. The driver compares every byte. What a machine costs to boot is paid
once for each group of commands; a command that fails shows what it printed. By default the contract
and short traffic run; with `-m 'deep or not deep'` the bad links and the ports, some five minutes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rdma_vm import TIMED_OUT, Machine, Outcome, VmTimeoutError, run_in_vm
from tutti_hpc import paths

from missing import unavailable

SERVICES = ("uc", "rc", "ud")
LIMIT_S = 60  # Of each command.
# Between two processes, whose timers are those of slow emulated processors.
VARIABLES = {
    "TUTTI_NET_WIRE": "verbs",
    "TUTTI_NET_PATHS": "8",
    "TUTTI_NET_TIMEOUT": "8",
    "NCCL_DEBUG": "INFO",
}

# So many packets of net1 after COMMAND has begun, its port goes away, and comes back (or not).
CUT = """#!/bin/sh
down=$1 seconds=$2 up=$3
shift 3
sent() { cat /sys/class/net/net1/statistics/tx_packets; }
begin=$(sent)
"$@" &
command=$!
while [ $(($(sent) - begin)) -lt 500 ] && kill -0 $command; do sleep 0.05; done
set_port 1 $down
echo "cut: $down"
sleep $seconds
[ $up = never ] || set_port 1 $up
wait $command
status=$?
set_port 1 plug
set_port 1 up
exit $status
"""

SHORT = ["--version", "12", "--test", "ring,alltoall,grouped", "--messages", "5"]
PATTERNS = ["--version", "11", "--test", "ring,alltoall,grouped,pingpong,threads", "--messages",
            "5", "--max", "4M"]  # fmt: skip
VERSIONS = ["--version", "6,8,12", "--test", "ring,calls", "--messages", "5"]
ENDS = ["--version", "12", "--test", "reload,fork,leave,kill", "--messages", "5"]
CANCEL = ["--version", "11", "--test", "cancel", "--messages", "5"]
LONG = ["--version", "11", "--test", "pingpong", "--messages", "1", "--bytes", "64M"]
LOSSY = ["--version", "11", "--test", "ring,alltoall", "--messages", "20", "--max", "256K"]
RING = ["--version", "11", "--test", "ring", "--messages", "20", "--max", "256K"]
MANY = ["--version", "11", "--test", "ring", "--messages", "150", "--min", "64K"]

# A link with a rate keeps the order of its packets, whatever their delay.
LINKS = {
    "loss 0.1%": "loss 0.1%",
    "loss 1%": "loss 1%",
    "jitter": "delay 1ms 0.5ms rate 1gbit",
    "duplicates": "duplicate 1%",
    "reordering": "delay 1ms reorder 95%",
    "all": "loss 1% delay 1ms 0.5ms duplicate 1% reorder 95% rate 1gbit",
}
# Nearly every packet overtakes some.
DISORDER = "delay 1ms 0.5ms"
FAULTS = "seed=7,drop=0.01,duplicate=0.01,reorder=0.02,delay=0.02:2ms,corrupt=0.01:header"


def build() -> Path:
    """The build directory; skips, or fails with CI=true, if these tests are not built."""
    plugin = paths.find(paths.NCCL_NET)
    directory = plugin.parents[1] if plugin else Path()
    for name in ("tests/nccl_net/nccl_net_driver", "tests/unit/wire/verbs_wire_test"):
        if plugin is None or not (directory / name).is_file():
            unavailable(f"{name} or {paths.NCCL_NET} is not built; remedy: make build")
    return directory


def drive(service: str, words: Sequence[str], ranks: int, *variables: str) -> list[str]:
    """The command that runs the driver; rank r has device r."""
    directory = build()
    command = ["env", f"TUTTI_NET_VERBS={service}", *variables, "timeout", str(LIMIT_S)]
    command += [str(directory / "tests/nccl_net/nccl_net_driver"), "--plugin"]
    command += [str(directory / "lib" / paths.NCCL_NET), "--watchdog", str(LIMIT_S - 10)]
    return [*command, "--verbose", *words, "--ranks", str(ranks), "--devices", str(ranks)]


def run_all(commands: dict[str, list[str]], devices: int, timeout_s: float) -> dict[str, Outcome]:
    """What became of the commands, all in one machine; of its time limit where they are later."""
    directory = build()
    machine = Machine(
        devices=devices, timeout_s=timeout_s, environment=VARIABLES,
        put=[directory / "lib" / paths.NCCL_NET, directory / "tests/nccl_net/nccl_net_driver"],
    )  # fmt: skip
    try:
        ended = run_in_vm(*commands.values(), machine=machine)
    except VmTimeoutError as error:
        late = Outcome(TIMED_OUT, str(error))
        ended = [*error.outcomes, *[late] * (len(commands) - len(error.outcomes))]
    return dict(zip(commands, ended, strict=True))


def counted(outcome: Outcome, what: str) -> int:
    """The sum of one of the counters that the plugin tells at its end."""
    return sum(int(number) for number in re.findall(rf" {what} (\d+)", outcome.output))


def check(outcomes: dict[str, Outcome], name: str, service: str) -> Outcome:
    """It has ended well, and over the service that it was to use."""
    outcome = outcomes[name]
    assert outcome.status == 0, f"{name}: status {outcome.status}\n{outcome.output}"
    assert f"RDMA {service.upper()} on rxe1" in outcome.output, outcome.output
    return outcome


@pytest.fixture(scope="module")
def traffic(vm: None) -> dict[str, Outcome]:
    commands = {}
    for service in SERVICES:
        commands[f"{service} short"] = drive(service, SHORT, 3, "TUTTI_NET_TIMESTAMPS=on")
        commands[f"{service} faults"] = drive(service, LOSSY, 2, f"TUTTI_FAULT={FAULTS}")
    return run_all(commands, 3, 200)


@pytest.fixture(scope="module")
def more_traffic(vm: None) -> dict[str, Outcome]:
    commands = {}
    for service in SERVICES:
        commands[f"{service} patterns"] = drive(service, PATTERNS, 4)
        commands[f"{service} versions"] = drive(service, VERSIONS, 2)
        commands[f"{service} ends"] = drive(service, ENDS, 3)
        commands[f"{service} long"] = drive(service, LONG, 2)
    return run_all(commands, 4, 300)


@pytest.fixture(scope="module")
def lossy(vm: None) -> dict[str, Outcome]:
    commands = {}
    for link, words in LINKS.items():
        commands[f"no netem before {link}"] = ["set_netem"]
        commands[f"netem {link}"] = ["set_netem", *words.split()]
        for service in SERVICES:
            commands[f"{service} {link}"] = drive(service, LOSSY, 3)
    for service in SERVICES:
        commands[f"{service} cancel"] = drive(service, CANCEL, 2)
    commands["no netem before disorder"] = ["set_netem"]
    commands["netem disorder"] = ["set_netem", *DISORDER.split()]
    for service in SERVICES:
        seconds = 1 if service == "uc" else 8  # UC is to give up.
        commands[f"{service} disorder"] = drive(service, RING, 2, f"TUTTI_NET_TIMEOUT={seconds}")
    return run_all(commands, 3, 200)


@pytest.fixture(scope="module")
def cut(vm: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    script = tmp_path_factory.mktemp("cut") / "cut"
    script.write_text(CUT)
    script.chmod(0o755)
    commands = {}
    for service in SERVICES:
        many = drive(service, MANY, 2)
        commands[f"{service} down"] = [str(script), "down", "1", "up", *many]
        commands[f"{service} unplug"] = [str(script), "unplug", "1", "plug", *many]
        silence = drive(service, ["--version", "11", "--test", "silence"], 2, "TUTTI_NET_TIMEOUT=2")
        commands[f"{service} silence"] = [str(script), "unplug", "0", "never", *silence]
    return run_all(commands, 2, 150)


def test_contract(vm: None) -> None:
    """All that tests/support/wire_contract.hpp asks of a wire, on two devices."""
    program = build() / "tests/unit/wire/verbs_wire_test"
    command = ["timeout", "120", str(program), "--gtest_filter=*VerbsContract*"]
    machine = Machine(timeout_s=150, environment={"TUTTI_TEST_VERBS": "rxe0,rxe1"})
    (outcome,) = run_in_vm(command, machine=machine)
    assert outcome.status == 0, outcome.output
    passed = re.search(r"\[  PASSED  \] (\d+) tests", outcome.output)
    assert passed, outcome.output
    assert int(passed[1]) >= 60
    assert "SKIPPED" not in outcome.output, outcome.output


@pytest.mark.parametrize("service", SERVICES)
def test_plugin(traffic: dict[str, Outcome], service: str) -> None:
    outcome = check(traffic, f"{service} short", service)
    lack = "has no time stamps of the NIC: the NIC does not stamp completions"
    assert lack in outcome.output, outcome.output


@pytest.mark.deep
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("name", ["patterns", "versions", "ends", "long"])
def test_plugin__all_that_it_does(
    more_traffic: dict[str, Outcome], service: str, name: str
) -> None:
    outcome = check(more_traffic, f"{service} {name}", service)
    assert "skipped" not in re.sub(r"\b0 skipped", "", outcome.output), outcome.output


@pytest.mark.parametrize("service", SERVICES)
def test_plugin__injected_faults(traffic: dict[str, Outcome], service: str) -> None:
    outcome = check(traffic, f"{service} faults", service)
    assert counted(outcome, "retransmissions") > 0, outcome.output


@pytest.mark.deep
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("link", [*LINKS, "cancel"])
def test_plugin__on_bad_links(lossy: dict[str, Outcome], service: str, link: str) -> None:
    """`cancel` is on the link that has all faults."""
    outcome = check(lossy, f"{service} {link}", service)
    if link in ("loss 1%", "all") and service != "rc":
        assert counted(outcome, "retransmissions") > 0, outcome.output


@pytest.mark.deep
@pytest.mark.parametrize("service", SERVICES)
def test_plugin__on_links_without_order(lossy: dict[str, Outcome], service: str) -> None:
    """A chunk of several packets needs their order: UC may lose all, and then says so."""
    name = f"{service} disorder"
    outcome = lossy[name]
    if service == "uc" and outcome.status != 0:
        assert "is unreachable: nothing arrived for TUTTI_NET_TIMEOUT" in outcome.output
        for word in ("differs", "watchdog", "signal", "behind its end"):
            assert word not in outcome.output, outcome.output
    else:
        check(lossy, name, service)


@pytest.mark.deep
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("how", ["down", "unplug"])
def test_plugin__a_port_that_comes_back(cut: dict[str, Outcome], service: str, how: str) -> None:
    """Traffic goes on, over new queue pairs where the NIC has given up the old ones."""
    outcome = check(cut, f"{service} {how}", service)
    assert f"cut: {how}" in outcome.output
    assert counted(outcome, "timeouts") > 0, outcome.output
    if (service, how) == ("rc", "unplug"):
        assert "replaced (transport retry counter exceeded)" in outcome.output, outcome.output
    if service != "ud":
        assert "queue pair(s) failed and were replaced" in outcome.output, outcome.output


@pytest.mark.deep
@pytest.mark.parametrize("service", SERVICES)
def test_plugin__a_port_that_does_not(cut: dict[str, Outcome], service: str) -> None:
    """Every request ends with an error, soon."""
    outcome = check(cut, f"{service} silence", service)
    assert "is unreachable: nothing arrived for TUTTI_NET_TIMEOUT" in outcome.output, outcome.output
