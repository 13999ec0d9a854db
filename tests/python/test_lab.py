# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The parts of `tutti lab` that touch no namespace; tests/lab has the others."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from tutti_hpc import mpi
from tutti_hpc.cli import main
from tutti_hpc.errors import TuttiError
from tutti_hpc.lab import job, lifetime, namespaces, network, packet_loss, plan, state

FLAT = plan.Spec(4, 4, 100_000_000)
LEAF_SPINE = plan.Spec(4, 2, 100_000_000, spines=3)
AGENT = Path("/lab/agent")


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("100mbit", 10**8), ("1gbit", 10**9), ("2.5Gbit", 25 * 10**8), ("64000kbit", 64 * 10**6)],
)
def test_parse_rate(text: str, rate_bps: int) -> None:
    assert plan.parse_rate(text) == rate_bps


@pytest.mark.parametrize("text", ["", "100", "100mb", "-1mbit", "1 mbit x", "999kbit", "101gbit"])
def test_parse_rate__refuses(text: str) -> None:
    with pytest.raises(ValueError):
        plan.parse_rate(text)


def test_parse_fabric() -> None:
    assert plan.parse_fabric("flat") == 0
    assert plan.parse_fabric("leaf-spine:4") == 4
    for bad in ("leaf-spine", "leaf-spine:", "leaf-spine:0", "leaf-spine:17", "ring", "flat:1"):
        with pytest.raises(ValueError):
            plan.parse_fabric(bad)


def test_parse_loss() -> None:
    assert plan.parse_loss("0%") == 0
    assert plan.parse_loss("0.1%") == 1000
    assert plan.parse_loss("100%") == 1_000_000
    for bad in ("", "0.1", "%", "-1%", "101%", "1e-3%"):
        with pytest.raises(ValueError):
            plan.parse_loss(bad)


def test_parse_queue() -> None:
    assert plan.parse_queue("500us") == 500
    assert plan.parse_queue("1.5ms") == 1500
    assert plan.parse_queue("10s") == 10_000_000
    for bad in ("", "5", "9us", "11s", "5 ms x"):
        with pytest.raises(ValueError):
            plan.parse_queue(bad)


@pytest.mark.parametrize("spec", [FLAT, LEAF_SPINE, plan.Spec(64, 16, 10**9, spines=16)])
def test_make__addresses_and_devices_are_unique(spec: plan.Spec) -> None:
    made = plan.make(spec)
    ports = [port for link in made.links for port in (link.a, link.b)]
    addresses = [port.address.partition("/")[0] for port in ports if port.address]
    assert max(Counter(addresses).values()) == 1
    assert all(ipaddress.IPv4Address(address).is_private for address in addresses)
    assert max(Counter((port.box, port.device) for port in ports).values()) == 1
    assert all(len(port.device) <= 15 for port in ports)
    assert {port.box for port in ports} == {box.name for box in made.boxes}


@pytest.mark.parametrize("spec", [FLAT, LEAF_SPINE])
def test_make__links(spec: plan.Spec) -> None:
    made = plan.make(spec)
    shaped = [link for link in made.links if link.rate_bps]
    assert len(shaped) == spec.nodes * (spec.rails + spec.spines)
    assert {link.rate_bps for link in shaped} == {spec.rate_bps}
    unshaped = [link for link in made.links if not link.rate_bps]
    assert {link.a.device for link in unshaped} == {plan.MANAGEMENT}
    assert {link.a.box for link in unshaped} == {"head", "n0", "n1", "n2", "n3"}


@pytest.mark.parametrize("spec", [FLAT, LEAF_SPINE])
def test_make__each_rail_has_a_table_for_its_own_source_address(spec: plan.Spec) -> None:
    box = plan.make(spec).box("n2")
    assert [rule.source for rule in box.rules] == [
        plan.rail_address(2, r) for r in range(spec.rails)
    ]
    for rail, rule in enumerate(box.rules):
        (route,) = [route for route in box.routes if route.table == rule.table]
        assert route.device == f"rail{rail}"
        assert route.via == ((plan.leaf_address(2, rail),) if spec.spines else ())


def test_make__leaves_share_flows_over_all_spines() -> None:
    leaf = plan.make(LEAF_SPINE).box("leaf1")
    (route,) = leaf.routes
    assert route.via == ("172.16.0.7", "172.16.0.9", "172.16.0.11")
    assert ("net/ipv4/fib_multipath_hash_policy", "1") in leaf.sysctls
    spine = plan.make(LEAF_SPINE).box("spine2")
    assert len(spine.routes) == 4 * 2


def test_make__spine_links_of_their_own_kind() -> None:
    made = plan.make(plan.Spec(8, 1, 16 * 10**9, 8, 2 * 10**9, loss_ppm=1000, queue_us=500))
    spine = [link for link in made.links if link.b.box.startswith("spine")]
    others = [link for link in made.links if link.rate_bps and link not in spine]
    assert len(spine) == 64
    assert {(link.rate_bps, link.loss_ppm) for link in spine} == {(2 * 10**9, 1000)}
    assert {(link.rate_bps, link.loss_ppm) for link in others} == {(16 * 10**9, 0)}
    assert {link.queue_us for link in spine + others} == {500}


def test_plan_link__by_either_end() -> None:
    made = plan.make(LEAF_SPINE)
    assert made.link("leaf1:up2") == made.link("spine2:down1")
    assert made.link("n0:rail1").b.box == "leaf0"
    for bad in ("leaf1:up3", "up2", "n9:rail0", ""):
        with pytest.raises(TuttiError, match="lists both ends of each"):
            made.link(bad)


def test_plan_device_to__where_a_gateway_is() -> None:
    made = plan.make(LEAF_SPINE)
    for box in made.boxes:
        for route in box.routes:
            devices = [made.device_to(box.name, gateway) for gateway in route.via]
            assert len(set(devices)) == len(route.via)
            assert route.device is None or not devices or devices == [route.device]
    with pytest.raises(TuttiError, match="has no link to"):
        made.device_to("leaf0", "172.16.0.7")


def test_plan_box__names_what_there_is() -> None:
    with pytest.raises(TuttiError, match="no box n4 in this lab; there are "):
        plan.make(FLAT).box("n4")


def test_spec__limits() -> None:
    for nodes, rails in ((0, 1), (65, 1), (1, 0), (1, 17)):
        with pytest.raises(TuttiError):
            plan.Spec(nodes, rails, 10**8)
    for other in ({"spine_rate_bps": 10**8}, {"loss_ppm": 1}):
        with pytest.raises(TuttiError, match="remedy: --fabric leaf-spine"):
            plan.Spec(2, 1, 10**8, **other)


@pytest.mark.parametrize("rate_bps", [10**6, 10**8, 10**9, 10**11])
def test_burst__takes_a_whole_segment_with_its_headers(rate_bps: int) -> None:
    segment = plan.segment_bytes(rate_bps)
    frames = -(-segment // plan.PAYLOAD_BYTES)
    assert segment + frames * 66 <= plan.burst_bytes(rate_bps)
    assert plan.queue_bytes(rate_bps) >= 4 * plan.burst_bytes(rate_bps)


def test_queue__has_room_for_segments_however_short() -> None:
    assert plan.queue_bytes(10**9) == 10_000_000
    assert plan.queue_bytes(10**9, 1000) == 4 * 65536 * 9 // 8
    assert plan.queue_bytes(16 * 10**9, 1000) == 2_000_000


def test_packet_loss__reads_the_count_of_its_own_rule() -> None:
    # As the kernel answers: the rule that was sent, with a number in its counter.
    rule = packet_loss._rule(1000).replace(
        packet_loss._encoded({1: bytes(8), 2: bytes(8)}),
        packet_loss._encoded({1: bytes(8), 2: (77).to_bytes(8, "big")}),
    )
    sent = packet_loss._encoded({1: "lab", 2: "up0", 3: bytes(8), 4: rule})
    assert packet_loss._lost_by(sent) == ("up0", 77)


def test_payload__of_100_mbit() -> None:
    assert FLAT.payload_bytes_per_s == pytest.approx(11.95e6, rel=1e-3)


def library(kind: str) -> mpi.Mpi:
    return mpi.Mpi("openmpi", "/m/lib/libmpi.so.40", Path("/m/bin/mpirun"), kind, Path("/m"), "")


def test_nodes_of__fills_one_node_after_the_other() -> None:
    assert job.nodes_of(job.Job(5, 2, ("a",)), FLAT) == [("n0", 2), ("n1", 2), ("n2", 1)]
    with pytest.raises(TuttiError, match="need 5 nodes; the lab has 4"):
        job.nodes_of(job.Job(9, 2, ("a",)), FLAT)


def test_command__open_mpi_and_hydra() -> None:
    wanted = job.Job(4, 2, ("./app", "-x"))
    line = job.command(library("openmpi"), wanted, FLAT, AGENT)
    assert line[:3] == ["/m/bin/mpirun", "--host", "n0:2,n1:2"]
    assert line[-3:] == ["rank", "./app", "-x"]
    line = job.command(library("hydra"), wanted, FLAT, AGENT)
    assert line[line.index("-launcher-exec") + 1] == str(AGENT)
    assert line[line.index("-hosts") + 1] == "n0:2,n1:2"
    with pytest.raises(TuttiError, match="--mpi"):
        job.command(library("srun"), wanted, FLAT, AGENT)


@pytest.mark.parametrize(("version", "is_refused"), [("4.1.6", True), ("5.0.11", False)])
def test_refusal__of_open_mpi_before_5(version: str, is_refused: bool, tmp_path: Path) -> None:
    launcher = tmp_path / "mpirun"
    launcher.write_text(f"#!/bin/sh\necho 'mpirun (Open MPI) {version}'\n")
    launcher.chmod(0o755)
    one = dataclasses.replace(library("openmpi"), launcher=launcher)
    assert ("Open MPI 5 or later" in job.refusal(one)) == is_refused


def test_environment__management_is_not_the_callers_to_choose() -> None:
    base = {"PRTE_MCA_prte_if_include": "eth0", "OMPI_MCA_mpi_yield_when_idle": "0"}
    env = job.environment(base, library("openmpi"), AGENT)
    assert env["PRTE_MCA_prte_if_include"] == plan.MANAGEMENT
    assert env["PRTE_MCA_plm_ssh_agent"] == str(AGENT)
    assert env["OMPI_MCA_mpi_yield_when_idle"] == "0"


def test_environment__mpich_over_tcp_unless_the_caller_sets_it() -> None:
    env = job.environment({"FI_PROVIDER": "sockets"}, library("hydra"), AGENT)
    assert env["MPIR_CVAR_CH4_NETMOD"] == "ofi"
    assert env["FI_PROVIDER"] == "sockets"
    assert job.environment({}, library("hydra"), AGENT)["FI_PROVIDER"] == "tcp"


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"])
def test_rank_script__own_rail_by_local_rank(variable: str) -> None:
    spec = plan.Spec(2, 2, 10**8)

    def rail(wanted: job.Job, local: int) -> str:
        script = job.rank_script(wanted, spec)
        words = ["sh", "-c", script, "rank", "sh", "-c", "echo $OMPI_MCA_btl_tcp_if_include $TEXT"]
        env = {"PATH": os.environ["PATH"], variable: str(local)}
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout

    own = job.Job(8, 4, ("app",), settings={"TEXT": "a 'b'"})
    assert [rail(own, local) for local in range(3)] == [
        "rail0 a 'b'\n",
        "rail1 a 'b'\n",
        "rail0 a 'b'\n",
    ]
    assert rail(job.Job(8, 4, ("app",), striped=True), 1) == "rail0,rail1\n"


def lab(place: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["lab", "--directory", str(place), *words])
    return done.exit_code, done.output


def test_commands__without_a_lab(tmp_path: Path) -> None:
    for words in (("exec", "n0", "true"), ("run", "-n", "2", "true"), ("links",)):
        said = f"tutti: no lab is up; remedy: tutti lab --directory {tmp_path} up\n"
        assert lab(tmp_path, *words) == (2, said)
    assert lab(tmp_path, "down") == (0, "tutti: no lab is up\n")
    assert lab(tmp_path, "--name", "../x", "down")[0] == 2
    status, text = lab(tmp_path, "up", "--fabric", "torus")
    assert status == 2
    assert "leaf-spine:SPINES" in text
    status, text = lab(tmp_path, "up", "--loss", "0.1")
    assert status == 2
    assert "as in 0.1%" in text
    assert lab(tmp_path, "up", "--loss", "1%")[1] == (
        "tutti: links of a rate or a loss of their own are those of spines; "
        "remedy: --fabric leaf-spine:SPINES\n"
    )
    assert lab(tmp_path, "link", "n0:rail0", "down")[0] == 2


def test_up__says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyroute2", None)
    with pytest.raises(TuttiError, match="pip install pyroute2"):
        lifetime.up(state.Place(tmp_path, "lab"), FLAT)
    assert list(tmp_path.iterdir()) == []


def test_up__a_refusal_names_the_remedy_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(words: list[str], **_: object) -> None:
        with socket.socket(fileno=os.dup(int(words[-2]))) as connection:
            message = {"error": "unshare: Operation not permitted", "errno": errno.EPERM}
            connection.send(json.dumps(message).encode())

    monkeypatch.setattr(network, "require_library", lambda: None)
    monkeypatch.setattr(lifetime.subprocess, "run", refuse)
    with pytest.raises(TuttiError, match="Operation not permitted; remedy: run as root"):
        lifetime.up(state.Place(tmp_path, "lab"), FLAT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_run_in_box__a_signal_before_there_is_a_child_reaches_it(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    handlers = {one: signal.getsignal(one) for one in numbers}
    monkeypatch.setattr(lifetime, "enter_box", lambda *_: os.kill(os.getpid(), number))
    one = state.State(FLAT, state.Process(1, 2))
    try:
        assert lifetime.run_in_box(one, "n0", ["sleep", "10"], os.environ) == 128 + number
    finally:
        for which, handler in handlers.items():
            signal.signal(which, handler)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(numbers)


def test_run_in_box__a_signal_that_another_thread_takes_reaches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        test_run_in_box__a_signal_before_there_is_a_child_reaches_it(monkeypatch, signal.SIGTERM)
    finally:
        over.set()
        other.join()


def test_run_in_box__a_child_that_a_signal_ends_before_its_command_is_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send = signal.pidfd_send_signal

    def send_and_wait(handle: int, number: int) -> None:
        send(handle, number)
        select.select([handle], [], [])

    monkeypatch.setattr(lifetime.signal, "pidfd_send_signal", send_and_wait)
    test_run_in_box__a_signal_before_there_is_a_child_reaches_it(monkeypatch, signal.SIGTERM)


def test_run_in_box__a_signal_that_another_thread_takes_meanwhile_reaches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    handlers = {one: signal.getsignal(one) for one in numbers}
    started = threading.Event()

    def take_one() -> None:
        started.wait()
        time.sleep(0.5)  # The caller is in its wait; if not, this tests less.
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    other = threading.Thread(target=take_one)
    other.start()
    monkeypatch.setattr(lifetime, "enter_box", lambda *_: started.set())
    one = state.State(FLAT, state.Process(1, 2))
    try:
        assert lifetime.run_in_box(one, "n0", ["sleep", "10"], os.environ) == 128 + signal.SIGTERM
    finally:
        other.join()
        for which, handler in handlers.items():
            signal.signal(which, handler)


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


def test_kill__spares_a_later_process_with_the_same_number() -> None:
    with sleeper() as process:
        start = namespaces.start_time(process.pid)
        assert start is not None
        assert not state.kill(state.Process(process.pid, start - 1))
        assert process.poll() is None
        assert state.kill(state.Process(process.pid, start))
        assert process.wait() == -9
    assert not state.kill(state.Process(process.pid, start))


def test_state__is_kept_and_damage_is_named(tmp_path: Path) -> None:
    place = state.Place(tmp_path, "lab")
    assert place.load() is None
    place.create()
    kept = state.State(FLAT, state.Process(1, 2), {"n0": state.Process(3, 4)}, ready=True)
    place.save(kept)
    assert place.load() == kept
    down = f"remedy: tutti lab --directory {tmp_path} down"
    with pytest.raises(TuttiError, match=f"has crashed; {down}"):
        place.require()
    for text in ('{"spec": 1}', place.file.read_text().replace("state/1", "state/9")):
        place.file.write_text(text)
        with pytest.raises(TuttiError, match=f"damaged or of another version of Tutti; {down}"):
            place.load()


def test_place__names_itself_in_remedies(tmp_path: Path) -> None:
    here = state.default_base()
    assert state.Place(here, "lab").command("up") == "tutti lab up"
    assert state.Place(here, "r1").command("down") == "tutti lab --name r1 down"
    other = state.Place(tmp_path / "a b", "r1").command("down")
    assert other == f"tutti lab --directory '{tmp_path}/a b' --name r1 down"


@pytest.mark.parametrize("spec", ['{"nodes": 1, "colour": "red"}', "1"])
def test_down__ends_a_lab_whose_file_another_version_wrote(tmp_path: Path, spec: str) -> None:
    place = state.Place(tmp_path, "lab")
    place.create()
    with sleeper() as one, sleeper() as two:
        found = [{"pid": p.pid, "start": namespaces.start_time(p.pid)} for p in (one, two)]
        boxes = json.dumps({"n0": found[1]})
        place.file.write_text(
            f'{{"spec": {spec}, "lab": {json.dumps(found[0])}, "boxes": {boxes}}}'
        )
        assert lab(tmp_path, "down") == (0, "tutti: the lab is down\n")
        assert (one.wait(), two.wait()) == (-9, -9)
    assert not place.directory.exists()


@pytest.mark.parametrize("text", ["{", '{"lab": 1}', "[]"])
def test_down__says_how_to_end_what_no_file_names(tmp_path: Path, text: str) -> None:
    place = state.Place(tmp_path, "lab")
    place.create()
    place.file.write_text(text)
    status, said = lab(tmp_path, "down")
    assert status == 2
    assert f"end those that have {place.directory}/hosts on their command lines" in said
    assert place.file.exists()
