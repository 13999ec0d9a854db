# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""tools/rdma_vm.py: exit statuses, devices, links that lose and delay, ports that go down, ends."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import rdma_vm
from rdma_vm import Machine, Outcome, Outcomes, VmError, VmTimeoutError, run_in_vm

# Prints the packets that net0, net1 and lo have sent, and runs both ends of a program of
# ibverbs-utils. GID 0 is link-local, GID 1 has the IPv4 address.
SCRIPT = """#!/bin/sh
sent() {
  for device in net0 net1 lo; do cat /sys/class/net/$device/statistics/tx_packets; done | xargs
}
program=$1
shift
echo "before $(sent)"
$program -d rxe0 "$@" >/dev/null &
sleep 0.5
timeout ${LIMIT_S:-20} $program -d rxe1 "$@" localhost
status=$?
kill $! 2>/dev/null
wait
echo "after $(sent)"
exit $status
"""

COMMANDS = {
    "status 7": ["sh", "-c", "echo some; echo words >&2; exit 7"],
    "a signal": ["sh", "-c", "kill -9 $$"],
    "no such command": ["no-such-command"],
    "devices": ["rdma", "link", "show"],
    "devinfo": ["ibv_devinfo", "-d", "rxe1"],
}

ON_LINKS = {
    "datagrams": ["./pingpong", "ibv_ud_pingpong", "-g", "1", "-n", "100"],
    "link-local": ["./pingpong", "ibv_ud_pingpong", "-g", "0", "-n", "100"],
    "loss": ["sh", "-c", "set_netem loss 30%; ping -I net0 -c 200 -i 0.01 -W 1 192.0.2.2"],
    "lost datagrams": ["env", "LIMIT_S=4", "./pingpong", "ibv_ud_pingpong", "-g", "1"],
    "lost": ["tc", "-s", "qdisc", "show", "dev", "net0"],
    "delay": ["sh", "-c", "set_netem delay 20ms; ./pingpong ibv_ud_pingpong -g 1 -n 10"],
    "no netem": ["set_netem"],
    "unplugged": ["sh", "-c", "set_port 0 unplug; sleep 0.5; rdma link show rxe0/1"],
    "plugged": ["sh", "-c", "set_port 0 plug; sleep 0.5; rdma link show rxe0/1"],
    "down": ["sh", "-c", "set_port 1 down; sleep 0.5; rdma link show rxe1/1"],
    "up": ["sh", "-c", "set_port 1 up; sleep 0.5; rdma link show rxe1/1"],
    "healed": ["./pingpong", "ibv_rc_pingpong", "-g", "1", "-n", "100"],
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(vm: None) -> dict[str, Outcome]:
    """What became of COMMANDS, all in one machine."""
    return dict(zip(COMMANDS, run_in_vm(*COMMANDS.values(), machine=Machine(timeout_s=120))))


@pytest.fixture(scope="module")
def on_links(vm: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Same, of ON_LINKS."""
    directory = tmp_path_factory.mktemp("vm")
    script = directory / "pingpong"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        ended = run_in_vm(*ON_LINKS.values(), machine=Machine(put=[script], timeout_s=240))
    return dict(zip(ON_LINKS, ended))


def sent(outcome: Outcome) -> list[int]:
    """Packets that net0, net1 and lo have sent while both ends ran."""
    before, after = (
        [int(word) for word in line.split()[1:]]
        for line in outcome.output.splitlines()
        if line.startswith(("before", "after"))
    )
    return [late - early for early, late in zip(before, after)]


def test_run_in_vm__statuses(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["status 7"] == Outcome(7, "some\nwords\n")
    assert outcomes["a signal"].status == 137
    assert outcomes["no such command"].status == 127


def test_run_in_vm__devices(outcomes: dict[str, Outcome]) -> None:
    for index in (0, 1):
        line = f"link rxe{index}/1 state ACTIVE physical_state LINK_UP netdev net{index}"
        assert line in outcomes["devices"].output
    assert re.search(r"state:\s+PORT_ACTIVE", outcomes["devinfo"].output)
    assert re.search(r"active_mtu:\s+4096", outcomes["devinfo"].output)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["datagrams", "link-local", "healed"])
def test_run_in_vm__packets_are_on_the_link(on_links: dict[str, Outcome], name: str) -> None:
    """And only the few of the programs' TCP connection are not."""
    assert on_links[name].status == 0, on_links[name].output
    *on_links, on_lo = sent(on_links[name])
    assert all(packets >= 100 for packets in on_links)
    assert on_lo < 50


@pytest.mark.deep
def test_set_netem__loss(on_links: dict[str, Outcome]) -> None:
    found = re.search(r"(\d+)% packet loss", on_links["loss"].output)
    assert found, on_links["loss"].output
    assert 35 <= int(found[1]) <= 65  # Of both ways 51.
    assert "remote address" in on_links["lost datagrams"].output
    assert on_links["lost datagrams"].status == 124  # It waits for one.
    lost = re.search(r"loss 30%.*dropped (\d+)", on_links["lost"].output, re.DOTALL)
    assert lost
    assert int(lost[1]) > 20


@pytest.mark.deep
def test_set_netem__delay(on_links: dict[str, Outcome]) -> None:
    found = re.search(r"([\d.]+) usec/iter", on_links["delay"].output)
    assert found, on_links["delay"].output
    assert float(found[1]) > 40_000


@pytest.mark.deep
def test_set_port(on_links: dict[str, Outcome]) -> None:
    assert "rxe0/1 state DOWN" in on_links["unplugged"].output
    assert "rxe0/1 state ACTIVE" in on_links["plugged"].output
    assert "rxe1/1 state DOWN" in on_links["down"].output
    assert "rxe1/1 state ACTIVE" in on_links["up"].output


def test_main__options(vm: None, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A script of this machine, its input, variables, devices, a link that loses everything."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").write_text("content\n")
    script = tmp_path / "script"
    script.write_text(
        f"#!/bin/bash\ncat {tmp_path}/directory/file; echo $NAME; rdma link | wc -l\n"
        "ping -I net0 -c 3 -i 0.1 -W 1 192.0.2.3 >/dev/null; [[ $? == 1 ]] && exit 3\n"
    )
    script.chmod(0o755)
    words = ["--devices", "3", "--loss", "100%", "--put", f"{tmp_path}/directory"]
    assert rdma_vm.main([*words, "--env", "NAME=a 'b'", "--", str(script)]) == 3
    assert capfdbinary.readouterr().out == b"content\na 'b'\n3\n"


def test_run_in_vm__ends_at_its_time_limit(vm: None) -> None:
    start_s = time.monotonic()
    with pytest.raises(VmTimeoutError, match=r"not done after 6 s"):
        run_in_vm(["sleep", "100"], machine=Machine(timeout_s=6))
    assert time.monotonic() - start_s < 60


def test_run_in_vm__boots_again(
    vm: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a machine that does not come up: this one waits for a debugger."""
    boots = 0
    command_of = rdma_vm.qemu

    def stopped_at_first(machine: Machine, initrd: Path, console: Path) -> list[str]:
        nonlocal boots
        boots += 1
        monkeypatch.setattr(rdma_vm, "BOOT_S", 0.5 if boots == 1 else 60)
        return [*command_of(machine, initrd, console), *(["-S"] if boots == 1 else [])]

    monkeypatch.setattr(rdma_vm, "qemu", stopped_at_first)
    assert run_in_vm(["true"], machine=Machine(timeout_s=90)) == [Outcome(0, "")]
    assert boots == 2
    assert "not up after 0.5 s, another boot" in capsys.readouterr().err


def test_run_in_vm__a_kernel_that_panics(vm: None) -> None:
    crash = ["sh", "-c", "echo c >/proc/sysrq-trigger"]
    with pytest.raises(VmError, match=r"its kernel panicked in command 2; remedy: (.|\n)*sysrq"):
        run_in_vm(["true"], crash, ["true"])


def test_run_in_vm__without_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rdma_vm, "KERNEL", tmp_path)
    assert rdma_vm.main(["true"]) == rdma_vm.VM_FAILED
    assert "not found; remedy: tools/set_up.sh rdma_vm" in capsys.readouterr().err


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_outcomes__whatever_the_pieces(piece: int) -> None:
    data = b"set-up\x1eT ready\none\x1e\x1eT 0\n\x1eT 12\nrest\x1e"
    shown: list[bytes] = []
    outcomes = Outcomes("T", shown.append)
    for start in range(0, len(data), piece):
        outcomes.add(data[start : start + piece])
    assert outcomes.ready
    assert outcomes.all == [Outcome(0, "one\x1e"), Outcome(12, "")]
    assert outcomes.unfinished() == "rest"
    assert b"".join(shown) == b"set-upone\x1erest"
