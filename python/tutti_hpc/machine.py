# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The machine a measurement ran on: GPUs, links, CPUs, memory. Asks the vendors' own tools."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from tutti_hpc import processes, results

# As `nvidia-smi topo -m` prints it.
LINK_LEGEND = {
    "X": "self",
    "NV#": "a bonded set of # NVLinks",
    "PIX": "at most one PCIe bridge",
    "PXB": "several PCIe bridges, no host bridge",
    "PHB": "a PCIe host bridge (the CPU)",
    "NODE": "host bridges within a NUMA node",
    "SYS": "the interconnect between NUMA nodes",
    "XGMI": "AMD's link between GPUs",
}


@dataclass(frozen=True)
class Gpus:
    """What a vendor's tool says."""

    names: list[str] = field(default_factory=list)
    links: list[list[str]] = field(default_factory=list)  # [i][j]: from GPU i to GPU j.
    driver: str = ""
    source: str = ""  # The tool; empty: none.
    reason: str = ""  # Why there is nothing.


def _output(*command: str) -> str | None:
    """Standard output of a tool, None when it is missing or fails."""
    done = processes.ask(command, timeout_s=60)
    return done.stdout if done and done.returncode == 0 else None


def parse_nvidia_topology(text: str) -> list[list[str]]:
    """The GPU-to-GPU part of `nvidia-smi topo -m`."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = [line.split() for line in plain.splitlines()]
    gpu_rows = [row for row in rows if len(row) > 1 and re.fullmatch(r"GPU\d+", row[0])]
    header = next((row for row in gpu_rows if row[1] == "GPU0" or row[0] == row[1]), None)
    body = [row for row in gpu_rows if row is not header and not row[1].startswith("GPU")]
    return [row[1 : 1 + len(body)] for row in body]


def parse_rocm_topology(text: str) -> list[list[str]]:
    """The matrix of link types of `rocm-smi --showtopotype`."""
    rows = [line.split() for line in text.splitlines()]
    body = [row for row in rows if len(row) > 1 and re.fullmatch(r"GPU\d+", row[0])]
    body = [row for row in body if not row[1].startswith("GPU")]
    return [["X" if word == "0" else word for word in row[1 : 1 + len(body)]] for row in body]


@functools.cache
def gpus() -> Gpus:
    """GPUs and links of this machine."""
    listing = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    if listing and listing.strip():
        pairs = [line.rsplit(",", 1) for line in listing.strip().splitlines()]
        topology = _output("nvidia-smi", "topo", "-m")
        return Gpus(
            names=[pair[0].strip() for pair in pairs],
            links=parse_nvidia_topology(topology) if topology else [],
            driver=pairs[0][-1].strip(),
            source="nvidia-smi",
        )
    products = _output("rocm-smi", "--showproductname")
    if products:
        names = re.findall(r"Card [Ss]eries:\s*(.+)", products)
        driver = re.search(r"[Vv]ersion:\s*(\S+)", _output("rocm-smi", "--showdriverversion") or "")
        return Gpus(
            names=[name.strip() for name in names],
            links=parse_rocm_topology(_output("rocm-smi", "--showtopotype") or ""),
            driver=driver.group(1) if driver else "",
            source="rocm-smi",
        )
    return Gpus(reason="neither nvidia-smi nor rocm-smi gives a GPU")


def _cpu_name() -> str:
    """The processor's name, as the kernel says it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else os.uname().machine


def describe() -> results.Machine:
    """The `machine` of a results document."""
    found = gpus()
    return results.Machine(
        gpus=found.names,
        links=found.links,
        cpus=_cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )
