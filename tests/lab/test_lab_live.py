# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Real labs: namespaces, shaped links, MPI jobs across nodes, crashes.

Skipped with the reason where namespaces are not permitted or a piece is missing; with CI=true that
is a failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tutti_hpc import mpi, paths, results
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import lifetime, plan, state

from missing import unavailable

ROOT = Path(__file__).resolve().parents[2]
RATE_BPS = 200_000_000
TIMEOUT_S = 60

# Sends argv[3] bytes from argv[1] to argv[2] and prints the seconds until all have arrived.
SENDER = """
import socket, sys, time
with socket.create_connection((sys.argv[2], 5000), 10, (sys.argv[1], 0)) as connection:
    start = time.monotonic()
    connection.sendall(bytes(int(sys.argv[3])))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    print(time.monotonic() - start)
"""
RECEIVER = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print("listening", flush=True)
    for _ in range(int(sys.argv[2])):
        with server.accept()[0] as connection:
            while connection.recv(1 << 20):
                pass
            connection.sendall(b".")
"""

# Sends argv[3] super-packets of 44 datagrams each from argv[1] to argv[2], over argv[4] ports.
UDP_SENDER = """
import socket, sys, time
sockets = []
for port in range(int(sys.argv[4])):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.IPPROTO_UDP, 103, 1472)  # UDP_SEGMENT
    one.bind((sys.argv[1], 6000 + port))
    one.connect((sys.argv[2], 5000))
    sockets.append(one)
for number in range(int(sys.argv[3])):
    sockets[number % len(sockets)].send(number.to_bytes(4, "big") * (44 * 1472 // 4))
    time.sleep(0.006)
"""
# Prints the datagrams that came to argv[1], until there are argv[2] or none for a while, and how
# many super-packets are whole and how many came in part.
UDP_RECEIVER = """
import collections, socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    one.bind((sys.argv[1], 5000))
    print("listening", flush=True)
    one.settimeout(10)
    parts = collections.Counter()
    try:
        while parts.total() < int(sys.argv[2]):
            parts[one.recv(65536)[:4]] += 1
            one.settimeout(2)
    except TimeoutError:
        pass
    whole = sum(count == 44 for count in parts.values())
    print(parts.total(), whole, len(parts) - whole)
"""
DATAGRAMS = 44  # Of one super-packet.

# Two hosts with two interfaces each, all in one subnet on one switch, in a network of its own. Runs
# the words behind it with `--rank` on both, and prints what each interface of theirs has sent.
ONE_SUBNET = """
set -e
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
ip link add name switch type bridge
ip link set switch up
for host in 0 1; do
  unshare --net sleep 300 &
  hosts[host]=$!
  until [ "$(readlink /proc/${hosts[host]}/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
  within="nsenter --net --target ${hosts[host]}"
  $within sh -ec 'cd /proc/sys/net/ipv4/conf
    echo 1 > all/arp_ignore; echo 2 > all/arp_announce
    echo 0 > all/rp_filter; echo 0 > default/rp_filter'
  $within ip link set lo up
  for rail in 0 1; do
    ip link add rail$rail netns ${hosts[host]} type veth peer name port$host$rail
    ip link set port$host$rail master switch up
    $within ip addr add 10.9.0.$((1 + host * 2 + rail))/24 dev rail$rail
    $within ip link set rail$rail up
  done
done
nsenter --net --target ${hosts[0]} "$@" --rank 0 > /dev/null &
first=$!
nsenter --net --target ${hosts[1]} "$@" --rank 1 >&2
wait $first
for host in 0 1; do
  for rail in 0 1; do
    ip -s -j link show port$host$rail
  done
done
"""


class Lab:
    """One lab of this test run, driven by the command line."""

    def __init__(self, base: Path) -> None:
        self.place = state.Place(base, "test")

    def words(self, *words: str) -> list[str]:
        name = ["--directory", str(self.place.base), "--name", self.place.name]
        return [sys.executable, "-m", "tutti_hpc", "lab", *name, *words]

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words),
            env=environment(variables),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(*words), env=environment({}), stdout=subprocess.PIPE, text=True
        )

    def start_sleeper(self, node: str) -> subprocess.Popen[str]:
        """A command that ends only from outside, once it runs."""
        sleeper = self.start("exec", node, "--", "sh", "-c", "echo started; exec sleep 600")
        assert sleeper.stdout is not None
        assert sleeper.stdout.readline() == "started\n"
        return sleeper

    def up(self, *options: str) -> state.State:
        done = self.run("up", "--rate", f"{RATE_BPS}bit", *options)
        assert done.returncode == 0, done.stderr
        found = self.place.load()
        assert found is not None
        return found

    def links(self) -> dict[str, dict[str, Any]]:
        done = self.run("links", "--json")
        assert done.returncode == 0, done.stderr
        return {link["a"]: link for link in json.loads(done.stdout)}

    def send(self, source: str, destination: str, size: int, flows: int = 1) -> float:
        """Seconds for `size` bytes from n0 to n1, one flow after the other."""
        receiver = self.start(
            "exec", "n1", "--", sys.executable, "-c", RECEIVER, destination, str(flows)
        )
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        seconds = 0.0
        with receiver:
            for _ in range(flows):
                words = [sys.executable, "-c", SENDER, source, destination, str(size)]
                done = self.run("exec", "n0", "--", *words)
                assert done.returncode == 0, done.stderr
                seconds += float(done.stdout)
        return seconds

    def send_datagrams(self, packets: int, ports: int) -> tuple[int, int, int]:
        """From n0 to n1; (datagrams that came, super-packets that came whole, and in part)."""
        source, destination = plan.rail_address(0, 0), plan.rail_address(1, 0)
        words = [UDP_RECEIVER, destination, str(packets * DATAGRAMS)]
        with self.start("exec", "n1", "--", sys.executable, "-c", *words) as receiver:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "listening\n"
            words = [UDP_SENDER, source, destination, str(packets), str(ports)]
            done = self.run("exec", "n0", "--", sys.executable, "-c", *words)
            assert done.returncode == 0, done.stderr
            total, whole, partly = receiver.stdout.readline().split()
        return int(total), int(whole), int(partly)


def environment(variables: dict[str, str]) -> dict[str, str]:
    present = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "OMPI_", "FI_"))}
    for name in ("TUTTI_LIBRARY_DIR", "TUTTI_BUILD_DIR"):
        if name in os.environ:
            present[name] = os.environ[name]
    search = [str(ROOT / "python"), *present.get("PYTHONPATH", "").split(":")]
    return {**present, "PYTHONPATH": ":".join(part for part in search if part), **variables}


@pytest.fixture(scope="session")
def permitted(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = state.Place(tmp_path_factory.mktemp("probe"), "probe")
    try:
        lifetime.up(place, plan.Spec(1, 1, RATE_BPS))
    except TuttiError as error:
        unavailable(f"no lab on this machine: {error.format_message()}")
    state.take_down(place)


@pytest.fixture
def lab(permitted: None, tmp_path: Path) -> Iterator[Lab]:
    one = Lab(tmp_path / "labs")
    yield one
    state.take_down(one.place)


def wait_for(condition: Any) -> bool:
    deadline = time.monotonic() + 10
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def processes(found: state.State) -> list[state.Process]:
    return [found.lab, *found.boxes.values()]


def test_nodes_are_hosts_of_their_own(lab: Lab) -> None:
    devices = sorted(os.listdir("/sys/class/net"))
    mounts = Path("/proc/self/mounts").read_text()
    lab.up("--nodes", "2", "--rails", "2")
    assert lab.run("exec", "n1", "--", "hostname").stdout == "n1\n"
    shown = lab.run("exec", "n0", "--", "cat", "/proc/net/dev").stdout
    assert all(f"{device}:" in shown for device in ("lo", "mgmt", "rail0", "rail1"))
    lab.run("exec", "n0", "--", "touch", "/dev/shm/mine")
    assert lab.run("exec", "n1", "--", "ls", "/dev/shm").stdout == ""
    assert sorted(os.listdir("/sys/class/net")) == devices
    assert Path("/proc/self/mounts").read_text() == mounts


def test_exec__hands_on_status_signals_and_directory(lab: Lab) -> None:
    lab.up("--nodes", "1")
    assert lab.run("exec", "n0", "--", "sh", "-c", "exit 7").returncode == 7
    assert lab.run("exec", "n0", "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert lab.run("exec", "n0", "--", "pwd").stdout == f"{os.getcwd()}\n"
    missing = lab.run("exec", "n0", "--", "no-such-command")
    assert missing.returncode == 127
    assert "no-such-command" in missing.stderr
    wrong = lab.run("exec", "n1", "--", "true")
    assert wrong.returncode == 2
    assert "no box n1" in wrong.stderr
    again = lab.run("up")
    assert again.returncode == 2
    assert "up already" in again.stderr


def test_a_link_has_its_rate_and_counts_its_bytes(lab: Lab) -> None:
    lab.up("--nodes", "2", "--rails", "2")
    size = 4_000_000
    # From rail 1 to rail 0: it leaves by the one and arrives by the other.
    seconds = lab.send(plan.rail_address(0, 1), plan.rail_address(1, 0), size)
    payload = plan.Spec(2, 2, RATE_BPS).payload_bytes_per_s
    ideal = (size - plan.burst_bytes(RATE_BPS)) / payload
    assert seconds > ideal
    assert seconds < 3 * ideal
    links = lab.links()
    assert size < links["n0:rail1"]["a_to_b_bytes"] < 1.1 * size
    assert size < links["n1:rail0"]["b_to_a_bytes"] < 1.1 * size
    for idle in (
        links["n0:rail0"]["a_to_b_bytes"],
        links["n1:rail1"]["b_to_a_bytes"],
        links["n0:mgmt"]["a_to_b_bytes"],
    ):
        assert idle < 10_000


def test_leaf_spine__a_flow_takes_one_spine_many_flows_take_all(lab: Lab) -> None:
    lab.up("--nodes", "2", "--rails", "1", "--fabric", "leaf-spine:2")
    size = 100_000

    def through(links: dict[str, dict[str, Any]]) -> list[int]:
        return [links[f"leaf0:up{spine}"]["a_to_b_bytes"] for spine in range(2)]

    lab.send(plan.rail_address(0, 0), plan.rail_address(1, 0), size)
    one = sorted(through(lab.links()))
    assert one[0] < size / 10
    assert one[1] > size
    # That all of these take the same spine has a chance of 1 in 4000.
    lab.send(plan.rail_address(0, 0), plan.rail_address(1, 0), size, flows=12)
    assert min(through(lab.links())) > size


def test_leaf_spine__datagrams_take_all_spines_and_super_packets_stay_whole(lab: Lab) -> None:
    lab.up("--nodes", "2", "--fabric", "leaf-spine:2", "--rate", "1gbit")
    packets = 48
    # That 24 ports all take the same spine has a chance of 1 in 8 million.
    assert lab.send_datagrams(packets, 24) == (packets * DATAGRAMS, packets, 0)
    links = lab.links()
    assert min(links[f"leaf0:up{spine}"]["a_to_b_bytes"] for spine in range(2)) > 2 * 44 * 1472
    assert sum(link["dropped_packets"] + link["lost_packets"] for link in links.values()) == 0


def test_spine_rate__is_what_the_spines_links_have(lab: Lab) -> None:
    lab.up("--nodes", "2", "--fabric", "leaf-spine:1", "--rate", "1gbit", "--spine-rate", "80mbit")
    size = 2_000_000
    seconds = lab.send(plan.rail_address(0, 0), plan.rail_address(1, 0), size)
    payload = plan.Spec(2, 1, 80_000_000).payload_bytes_per_s
    assert seconds > (size - plan.burst_bytes(80_000_000)) / payload


def test_loss__is_of_packets_and_not_of_super_packets(lab: Lab) -> None:
    options = ("--fabric", "leaf-spine:2", "--rate", "1gbit", "--loss", "2%")
    lab.up("--nodes", "2", *options)
    packets = 150
    came, whole, partly = lab.send_datagrams(packets, 8)
    lost = packets * DATAGRAMS - came
    # Two links with a loss: 261 of 6600 are expected, with a standard deviation of 16. Of the
    # super-packets 17 % come whole; by super-packets it would be 96 %, and none in part.
    assert 160 < lost < 360
    assert whole + partly == packets
    assert partly > packets / 2
    links = lab.links()
    assert sum(link["lost_packets"] for link in links.values()) == lost
    assert links["n0:rail0"]["lost_packets"] == 0
    assert sum(link["dropped_packets"] for link in links.values()) == 0


def test_failing_spine__loses_packets_and_the_others_do_not(lab: Lab) -> None:
    sys.path.insert(0, str(ROOT / "bench"))
    import network_parts

    spec = plan.Spec(2, 1, 1_000_000_000, spines=2)
    bench_lab = network_parts.Lab(spec)
    bench_lab.place = lab.place
    with bench_lab:
        bench_lab.fail_spine(0, 200_000)
        packets = 100
        came, whole, partly = lab.send_datagrams(packets, 24)
        lost = packets * DATAGRAMS - came
        # Half of the ports take it: 440 of 4400 are expected, and the ports may be shared unevenly.
        assert 150 < lost < 800
        assert whole > packets / 5
        assert partly > packets / 5
        assert bench_lab.count() == (0, lost)


def test_link__is_pulled_and_plugged_in_while_a_program_runs(lab: Lab) -> None:
    lab.up("--nodes", "2", "--fabric", "leaf-spine:2", "--rate", "1gbit")
    size = 100_000
    source, destination = plan.rail_address(0, 0), plan.rail_address(1, 0)
    assert lab.run("link", "leaf0:up1", "down").returncode == 0
    assert lab.run("link", "spine1:down1", "down").returncode == 0
    lab.send(source, destination, size, flows=6)
    links = lab.links()
    assert links["leaf0:up0"]["a_to_b_bytes"] > 6 * size
    assert links["leaf0:up1"]["a_to_b_bytes"] < size
    # No way at all, in the middle of a transfer, and back again.
    words = [RECEIVER, destination, "1"]
    with lab.start("exec", "n1", "--", sys.executable, "-c", *words) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        words = [SENDER, source, destination, str(60_000_000)]
        with lab.start("exec", "n0", "--", sys.executable, "-c", *words) as sender:
            assert wait_for(lambda: lab.links()["leaf0:up0"]["a_to_b_bytes"] > 2_000_000)
            assert lab.run("link", "spine0:down0", "down").returncode == 0
            assert lab.run("link", "n0:rail0", "down").returncode == 0
            for end in ("leaf0:rail0", "leaf0:up0", "leaf0:up1", "leaf1:up1"):
                assert lab.run("link", end, "up").returncode == 0
            assert sender.wait(timeout=TIMEOUT_S) == 0
    lab.send(source, destination, size, flows=12)
    now = lab.links()
    assert now["leaf0:up1"]["a_to_b_bytes"] > links["leaf0:up1"]["a_to_b_bytes"] + size
    wrong = lab.run("link", "leaf0:up9", "down")
    assert wrong.returncode == 2
    assert "no link leaf0:up9 in this lab; `tutti lab links` lists" in wrong.stderr


@pytest.mark.parametrize("flavour", ["openmpi", "mpich"])
def test_mpi_job__every_byte_between_nodes_is_on_its_rail(lab: Lab, flavour: str) -> None:
    try:
        mpi.find(flavour)
        program = paths.require_measure(flavour)
        paths.require(paths.PRELOAD)
    except TuttiError as error:
        unavailable(error.format_message())
    lab.up("--nodes", "2", "--rails", "2")
    block, calls = 256 << 10, 6
    size = str(4 * block)
    words = ["--collective", "allgather", "--begin", size, "--end", size, "--check"]
    words += ["--iterations", str(calls - 3), "--warmup", "1", "--report-info", "tutti_plan_used"]
    done = lab.run(
        *["run", "-n", "4", "--ppn", "2", "--strict"],
        *["--plan", "allgather=rings", "--", str(program), *words],
    )
    assert done.returncode == 0, done.stderr
    # Nobody said which MPI it is: the launcher is that of the program's.
    assert f"uses the {mpi.ABI_NAMES[flavour]}: started by" in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines[0]["nodes"] == 2
    (row,) = [line for line in lines if "variant" in line]
    assert row["checked"]
    assert row["wrong"] == 0
    assert row["plan_used"] == "rings"
    # Each call takes each rank's block to the other node, over its own rail and no other way.
    links = lab.links().values()
    for direction in ("a_to_b_bytes", "b_to_a_bytes"):
        rails = [link[direction] for link in links if link["shaped"]]
        assert min(rails) >= calls * block
        assert max(rails) < 1.1 * min(rails)
        assert all(link[direction] < block for link in links if not link["shaped"])


def test_mpi_job__of_another_mpi_is_refused(lab: Lab) -> None:
    try:
        mpi.find("openmpi")
        mpi.find("mpich")
        program = paths.require_measure("openmpi")
    except TuttiError as error:
        unavailable(error.format_message())
    lab.up("--nodes", "1")
    done = lab.run("run", "--mpi", "mpich", "-n", "2", "--ppn", "2", "--", str(program))
    assert (done.returncode, done.stdout) == (2, "")
    assert "its ranks would not see each other; remedy: --mpi openmpi" in done.stderr


def test_links__as_comma_separated_values(lab: Lab) -> None:
    lab.up("--nodes", "1")
    done = lab.run("links", "--csv")
    assert done.returncode == 0, done.stderr
    heading, *rows = done.stdout.splitlines()
    assert heading.startswith("a,b,")
    assert {row.split(",")[0] for row in rows} == set(lab.links())


def test_net_job__every_byte_between_nodes_is_on_its_rail(lab: Lab, tmp_path: Path) -> None:
    try:
        paths.require_measure("net")
    except TuttiError as error:
        unavailable(error.format_message())
    lab.up("--nodes", "2", "--rails", "2")
    # Calls: 2 that are checked, 6 timed, and one or more to warm up.
    block, calls = 256 << 10, 9
    size, out = str(4 * block), tmp_path / "results.json"
    words = ["bench", "allgather", "-n", "4", "--lab", str(lab.place.directory), "--ppn", "2"]
    words += ["--plans", "net:rings", "-b", size, "-e", size, "--check"]
    done = subprocess.run(
        [sys.executable, "-m", "tutti_hpc", *words, "-i", "6", "-w", "1", "-o", str(out)],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    (document,) = results.load(out)
    assert (document.ranks, document.nodes) == (4, 2)
    assert [(row.plan, row.wrong) for row in document.rows] == [("net:rings", 0)]
    # Each rank's block goes to the other node once in a call, over its own rail and no other way.
    links = lab.links().values()
    for direction in ("a_to_b_bytes", "b_to_a_bytes"):
        rails = [link[direction] for link in links if link["shaped"]]
        assert min(rails) >= calls * block
        assert max(rails) < 1.3 * min(rails)
        assert all(link[direction] < block for link in links if not link["shaped"])


def plugin_and_driver() -> tuple[Path, Path]:
    plugin = paths.find(paths.NCCL_NET)
    driver = plugin.parents[1] / "tests/nccl_net/nccl_net_driver" if plugin else None
    if plugin is None or driver is None or not driver.is_file():
        unavailable("nccl_net_driver or the network plugin is not built")
    return plugin, driver


def test_plugin__a_connection_has_all_rails_and_outlives_one(lab: Lab) -> None:
    """The driver in two nodes whose device is made of both rails, one of which is pulled."""
    plugin, driver = plugin_and_driver()
    lab.up("--nodes", "2", "--rails", "2", "--rate", "500mbit")
    size = 1 << 20
    words = [str(driver), "--plugin", str(plugin), "--version", "11", "--test", "ring"]
    words += ["--rails", "2", "--bytes", str(size), "--rendezvous"]

    def sent() -> list[int]:
        links = lab.links()
        return [links[f"n0:rail{rail}"]["a_to_b_bytes"] for rail in range(2)]

    def least_since(begin: list[int]) -> int:
        return min(now - then for now, then in zip(sent(), begin, strict=True))

    def start(node: int, *more: str) -> subprocess.Popen[str]:
        variables = ["NCCL_SOCKET_IFNAME=rail", "TUTTI_NET_SPEED=500"]
        command = ["env", *variables, *words, *more, "--rank", str(node)]
        return lab.start("exec", plan.node_name(node), "--", *command)

    def pull_while_they_send(messages: int) -> tuple[list[int], list[int]]:
        """Bytes of each rail when one has been pulled, and from then on."""
        assert lab.run("link", "n0:rail1", "up").returncode == 0
        begin = sent()
        more = (f"{plan.rail_address(0, 0)}:{5000 + messages}", "--messages", str(messages))
        with start(0, *more) as first, start(1, *more) as second:
            assert wait_for(lambda: least_since(begin) > 4 * size), (begin, sent())
            assert lab.run("link", "n0:rail1", "down").returncode == 0
            pulled = sent()
            for rank in (first, second):
                out, _ = rank.communicate(timeout=TIMEOUT_S)
                assert rank.returncode == 0, out
                assert out.splitlines()[-1].endswith(" checks, 0 failed"), out
        end = sent()
        assert sum(end) - sum(begin) > messages * size
        rest = [now - then for now, then in zip(end, pulled, strict=True)]
        assert rest[1] < size
        return pulled, rest

    # On a busy machine all may have been sent when the rail goes.
    for messages in (500, 1000, 2000):
        pulled, rest = pull_while_they_send(messages)
        if rest[0] > 16 * size:
            break
    # The one that is left carries the rest.
    assert rest[0] > 16 * size, pulled


def test_plugin__each_rank_uses_the_device_that_it_names(lab: Lab) -> None:
    """As NCCL may (PXN): one end on its first rail, the other on its second, and the rest idle."""
    plugin, driver = plugin_and_driver()
    lab.up("--nodes", "2", "--rails", "2", "--rate", "500mbit")
    size, messages = 1 << 20, 20
    words = [str(driver), "--plugin", str(plugin), "--version", "11", "--test", "ring"]
    words += ["--devices", "2", "--bytes", str(size), "--messages", str(messages)]
    words += ["--rendezvous", f"{plan.management_address(0)}:5000"]
    variables = ["NCCL_SOCKET_IFNAME=rail", "TUTTI_NET_SPEED=500"]

    def start(node: int) -> subprocess.Popen[str]:
        command = ["env", *variables, *words, "--rank", str(node)]
        return lab.start("exec", plan.node_name(node), "--", *command)

    with start(0) as first, start(1) as second:
        for rank in (first, second):
            out, _ = rank.communicate(timeout=TIMEOUT_S)
            assert rank.returncode == 0, out
            assert out.splitlines()[-1].endswith(" checks, 0 failed"), out
    links = lab.links()
    for direction in ("a_to_b_bytes", "b_to_a_bytes"):
        sent = {name: link[direction] for name, link in links.items()}
        assert sent["n0:rail0"] > messages * size, sent
        assert sent["n1:rail1"] > messages * size, sent
        assert max(sent["n0:rail1"], sent["n1:rail0"]) < size, sent


@pytest.mark.parametrize("how", ["cut_off", "stopped"])
def test_plugin__a_host_that_falls_silent_is_an_error_on_its_peers(lab: Lab, how: str) -> None:
    """The last of three hosts loses its only link, or its process is stopped: no connection ends.
    The driver bounds the time until each end says so, and the two others go on with each other."""
    plugin, driver = plugin_and_driver()
    ranks, victim = 3, 2
    lab.up("--nodes", str(ranks), "--rate", "500mbit")
    words = [str(driver), "--plugin", str(plugin), "--version", "11", "--test", "silence"]
    words += ["--ranks", str(ranks), "--bytes", str(1 << 20), "--messages", "20"]
    words += ["--rendezvous", f"{plan.management_address(0)}:5000"]
    variables = ["NCCL_SOCKET_IFNAME=rail", "TUTTI_NET_SPEED=500", "TUTTI_NET_TIMEOUT=2"]
    # Its number, in the node's own process table.
    shell = ["sh", "-c", 'echo $$; exec "$@"', "driver"]

    def start(node: int) -> subprocess.Popen[str]:
        command = ["env", *variables, *shell, *words, "--rank", str(node)]
        return lab.start("exec", plan.node_name(node), "--", *command)

    def line(rank: subprocess.Popen[str]) -> str:
        assert rank.stdout is not None
        return rank.stdout.readline()

    def tell(signal_name: str, process: str) -> None:
        kill = ["sh", "-c", f"kill -{signal_name} {process}"]
        assert lab.run("exec", plan.node_name(victim), "--", *kill).returncode == 0

    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(start(node)) for node in range(ranks)]
        # Before they are waited for: a stopped one ends in no other way when something fails here.
        stack.callback(lab.run, "down")
        numbers = [line(job).strip() for job in jobs]
        sent = f"n{victim}:rail0"
        assert wait_for(lambda: lab.links()[sent]["a_to_b_bytes"] > 8 << 20), lab.links()
        if how == "cut_off":
            assert lab.run("link", sent, "down").returncode == 0
        else:
            tell("STOP", numbers[victim])
        # Which peer it is they all say.
        for rank in range(victim):
            said = line(jobs[rank])
            assert f"{plan.node_name(victim)}, process {numbers[victim]}" in said, said
        if how == "stopped":
            tell("CONT", numbers[victim])
        for job in jobs:
            assert job.stdout is not None
            # Not communicate(), which knows nothing of what readline() has read ahead.
            out = job.stdout.read()
            assert job.wait(timeout=TIMEOUT_S) == 0, out
            assert out.splitlines()[-1].endswith(" checks, 0 failed"), out


def test_plugin__rails_in_one_subnet_carry_both(permitted: None) -> None:
    """Routes alone would send everything by the first interface of the subnet."""
    plugin, driver = plugin_and_driver()
    size, messages = 1 << 20, 30
    words = [str(driver), "--plugin", str(plugin), "--version", "11", "--test", "ring"]
    words += ["--rails", "2", "--bytes", str(size), "--messages", str(messages)]
    own = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net"]
    done = subprocess.run(
        [*own, "bash", "-c", ONE_SUBNET, "one-subnet", *words, "--rendezvous", "10.9.0.1:5000"],
        env=environment({"NCCL_SOCKET_IFNAME": "rail", "TUTTI_NET_SPEED": "1000"}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    sent = [json.loads(line)[0]["stats64"]["rx"]["bytes"] for line in done.stdout.splitlines()]
    assert len(sent) == 4
    assert min(sent) > messages * size / 4, sent


def test_down__leaves_nothing(lab: Lab) -> None:
    found = lab.up("--nodes", "2", "--rails", "1")
    with lab.start_sleeper("n1") as running:
        done = lab.run("down")
        assert done.returncode == 0, done.stderr
        assert running.wait(timeout=10) == 128 + signal.SIGKILL
    assert not any(process.alive for process in processes(found))
    assert not lab.place.directory.exists()
    assert "no lab is up" in lab.run("down").stderr


@pytest.mark.parametrize("victim", ["lab", "n0"])
def test_crash__is_noticed_and_cleaned(lab: Lab, victim: str) -> None:
    found = lab.up("--nodes", "2", "--rails", "1")
    with lab.start_sleeper("n0") as running:
        os.kill((found.lab if victim == "lab" else found.boxes[victim]).pid, signal.SIGKILL)
        assert running.wait(timeout=10) == 128 + signal.SIGKILL
    if victim == "lab":
        assert wait_for(lambda: not any(process.alive for process in processes(found)))
    refused = lab.run("exec", "n1", "--", "true")
    assert refused.returncode == 2
    assert f"has crashed; remedy: {lab.place.command('down')}" in refused.stderr
    assert lab.run("down").returncode == 0
    assert not any(process.alive for process in processes(found))
    assert not lab.place.directory.exists()
    lab.up("--nodes", "1")


def holders(base: Path) -> list[int]:
    """Processes of labs that are kept there; their command lines name the host table."""
    named = str(base).encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = entry.read_bytes()
            if named in text and b"tutti_hpc.lab.holder" in text:
                found.append(int(entry.parent.name))
    return found


def test_up__two_at_a_time_are_one_lab(lab: Lab) -> None:
    words = lab.words("up", "--nodes", "1", "--rate", f"{RATE_BPS}bit")
    both = [
        subprocess.Popen(words, env=environment({}), stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    texts = [one.communicate(timeout=TIMEOUT_S)[1] for one in both]
    said = {one.returncode: text for one, text in zip(both, texts, strict=True)}
    assert set(said) == {0, 2}
    assert "a lab is up already" in said[2]
    assert holders(lab.place.base)
    assert lab.run("down").returncode == 0
    assert wait_for(lambda: not holders(lab.place.base))
    assert list(lab.place.base.iterdir()) == []


def test_up__that_is_killed_half_way_leaves_no_process(lab: Lab) -> None:
    lab.place.create()
    found, connection = lifetime._start_holders(lab.place, plan.make(plan.Spec(2, 1, RATE_BPS)))
    assert all(process.alive for process in processes(found))
    connection.close()
    assert wait_for(lambda: not any(process.alive for process in processes(found)))
