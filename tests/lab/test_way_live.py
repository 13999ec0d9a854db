# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The network plugin where the way between two hosts drops datagrams and tells nobody: long ones
(a switch with a smaller MTU than both hosts) or all of them (a firewall that lets TCP pass). The
hosts are network namespaces on one switch; the nccl_net_driver connects and checks every byte."""

import ctypes
import os
import platform
import re
import struct
import subprocess
import time

import pytest
from test_lab_live import TIMEOUT_S, environment, permitted, plugin_and_driver

from missing import unavailable

__all__ = ["permitted"]

# Two hosts on one switch, in a network of its own. A port with a smaller MTU than the host drops
# longer frames; gso_max_segs has the kernel cut segments before they are on the link. Runs the
# words behind it with `--rank` on both, prints what each of them exits with, and runs meanwhile:
#   BEFORE   once the hosts are there
#   DURING   once rank 0 has sent 64 MB
TWO_HOSTS = """
set -e
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
ip link add name switch type bridge
ip link set switch up
for host in 0 1; do
  unshare --net sleep 300 &
  hosts[host]=$!
  until [ "$(readlink /proc/${hosts[host]}/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
  on[host]="nsenter --net --target ${hosts[host]}"
  ${on[host]} ip link set lo up
  ip link add rail0 mtu 9000 netns ${hosts[host]} type veth peer name port$host mtu 9000
  ip link set port$host master switch up
  ${on[host]} ip link set dev rail0 gso_max_segs 1
  ${on[host]} ip addr add 10.9.0.$((1 + host))/24 dev rail0
  ${on[host]} ip link set rail0 up
done
narrow() { for host in "$@"; do ip link set dev port$host mtu 1500; done; }
# UDP by its number: names are netbase's. Of what comes from the other host; of input the local
# routes are looked at first, else.
refuse() {
  ${on[$1]} ip rule add pref 10 iif rail0 ipproto 17 ${2:+sport $2} blackhole
  ${on[$1]} ip rule add pref 20 lookup local
  ${on[$1]} ip rule del pref 0
}
eval "$BEFORE"
${on[0]} "$@" --rank 0 &
ranks[0]=$!
${on[1]} "$@" --rank 1 &
ranks[1]=$!
if [ -n "$DURING" ]; then
  until [ "$(awk '$1 == "port0:" { print $2 }' /proc/net/dev)" -gt 64000000 ]; do
    kill -0 ${ranks[0]}
  done
  eval "$DURING"
  echo "during" >&2
fi
for rank in 0 1; do
  status=0
  wait ${ranks[rank]} || status=$?
  echo "rank $rank: $status"
done
"""


def run(
    messages: int, before: str = "", during: str = "", user: bool = False, **variables: str
) -> tuple[subprocess.CompletedProcess[str], float]:
    plugin, driver = plugin_and_driver()
    words = [str(driver), "--plugin", str(plugin), "--version", "11", "--test", "ring", "--verbose"]
    words += ["--bytes", str(1 << 20), "--messages", str(messages), "--watchdog", "60"]
    rootless = user or os.geteuid() != 0
    own = ["unshare", *(["--user", "--map-root-user"] if rootless else []), "--net"]
    begun = time.monotonic()
    done = subprocess.run(
        [*own, "bash", "-c", TWO_HOSTS, "two-hosts", *words, "--rendezvous", "10.9.0.1:5000"],
        env=environment(
            {
                "NCCL_SOCKET_IFNAME": "rail",
                "TUTTI_NET_SPEED": "10000",
                "BEFORE": before,
                "DURING": during,
                **variables,
            }
        ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    return done, time.monotonic() - begun


def statuses(done: subprocess.CompletedProcess[str]) -> list[int]:
    """Of the ranks."""
    return [int(status) for status in re.findall(r"^rank \d: (\d+)$", done.stdout, re.MULTILINE)]


def warnings(text: str, *parts: str) -> list[str]:
    return [
        line
        for line in text.splitlines()
        if "net: " in line and all(part in line for part in parts)
    ]


@pytest.mark.parametrize("ports", ["0 1", "0"])
def test_a_switch_with_a_smaller_mtu__the_size_that_passes_is_found(
    permitted: None, ports: str
) -> None:
    """Port 0 drops what host 0 sends and what it is sent: both directions are narrow in any case.
    Nothing is lost, for the size is known before the first message."""
    done, _ = run(20, before=f"narrow {ports}")
    assert statuses(done) == [0, 0], done.stderr
    for mine, theirs in ((1, 2), (2, 1)):
        told = warnings(done.stderr, f"from 10.9.0.{mine} to 10.9.0.{theirs}: longer packets")
        assert len(told) == 1, done.stderr
        assert "an MTU of 1500 and not 9000" in told[0]
        assert "remedy: an MTU of 9000 on all switches" in told[0]
    counts = warnings(done.stderr, "chunks sent")
    assert len(counts) == 2, done.stderr
    for line in counts:
        assert re.search(r"fall-backs [1-9]", line), line
        sent, again = (
            int(re.search(rf"{what} (\d+)", line)[1]) for what in ("sent", "retransmissions")
        )
        assert again < sent / 4, line


def test_a_switch_gets_a_smaller_mtu__in_the_middle_of_a_run(permitted: None) -> None:
    done, _ = run(150, during="narrow 0 1")
    assert "during" in done.stderr
    assert statuses(done) == [0, 0], done.stderr
    assert len(warnings(done.stderr, "an MTU of 1500 and not 9000")) == 2, done.stderr


def test_equal_mtus__nothing_is_said(permitted: None) -> None:
    done, _ = run(20)
    assert statuses(done) == [0, 0], done.stderr
    assert not warnings(done.stderr, "an MTU of"), done.stderr
    assert not warnings(done.stderr, "nothing arrives"), done.stderr


@pytest.mark.parametrize("hosts", [[1], [0, 1]])
def test_a_firewall_drops_udp__both_ends_say_so_when_they_connect(
    permitted: None, hosts: list[int]
) -> None:
    done, seconds = run(1, before="; ".join(f"refuse {host}" for host in hosts))
    assert statuses(done) == [1, 1], done.stderr
    assert seconds < 20, seconds  # TUTTI_NET_TIMEOUT is 30.
    blocked = [(2 - host, host + 1) for host in hosts]
    for rank in (0, 1):
        failed = [
            line for line in done.stderr.splitlines() if line.startswith(f"rank {rank}: FAILED")
        ]
        assert failed, done.stderr
        for source, target in blocked:
            assert re.search(
                rf"no UDP datagram of 10\.9\.0\.{source} .*arrives at 10\.9\.0\.{target}:\d+ \(",
                failed[0],
            ), failed[0]
        assert failed[0].count("no UDP datagram of") == len(blocked)
        assert "TCP passes; remedy: let UDP pass" in failed[0]


def test_a_firewall_drops_some_paths__the_others_carry_all(permitted: None) -> None:
    # Well over the second or two after which a path counts as silent.
    done, _ = run(2000, before="refuse 1 32768-42000")
    assert statuses(done) == [0, 0], done.stderr
    told = warnings(done.stderr, "of 64 paths on which nothing arrives from 10.9.0.1 to 10.9.0.2")
    assert len(told) == 1, done.stderr
    assert "from UDP ports " in told[0]
    assert "net.ipv4.ip_local_port_range" in told[0]


@pytest.fixture
def root() -> None:
    """Who may load BPF programs: nobody in a user namespace."""
    if os.geteuid() != 0:
        unavailable("AF_XDP needs root")
    bpf = {"x86_64": 321, "aarch64": 280}[platform.machine()]
    map_create = 0
    array = struct.pack("=4I", 2, 4, 4, 1) + bytes(112)
    made = ctypes.CDLL(None, use_errno=True).syscall(bpf, map_create, array, len(array))
    if made < 0:
        # Nothing is missing: its kernel or its container forbids it, to root as well.
        pytest.skip(f"this machine permits no bpf(): {os.strerror(ctypes.get_errno())}")
    os.close(made)


def test_af_xdp__every_byte_arrives(root: None) -> None:
    done, _ = run(100, TUTTI_NET_WIRE="xdp")
    assert statuses(done) == [0, 0], done.stderr
    assert len(warnings(done.stderr, "AF_XDP on rail0 queue 0, native, copy mode")) == 2
    assert len(warnings(done.stderr, "packets of 3826 bytes and not 9000")) == 2, done.stderr


def test_af_xdp__a_switch_with_a_smaller_mtu(root: None) -> None:
    done, _ = run(20, before="narrow 0 1", TUTTI_NET_WIRE="xdp")
    assert statuses(done) == [0, 0], done.stderr
    assert len(warnings(done.stderr, "an MTU of 1500 and not 3826")) == 2, done.stderr


def test_af_xdp__in_a_user_namespace__an_error_names_the_remedy(permitted: None) -> None:
    done, _ = run(1, user=True, TUTTI_NET_WIRE="xdp")
    assert statuses(done) != [0, 0]
    assert re.search("xdp wire: .*tutti-xdp-helper", done.stderr), done.stderr
