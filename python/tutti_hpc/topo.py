# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti topo`: sockets, GPUs, NICs and what joins them; as a matrix, as JSON, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tutti_hpc import api, files, machine, output, topo_svg
from tutti_hpc.errors import TuttiError


def rate(mbit_s: int) -> str:
    """A rate for people, empty when it is unknown."""
    return f"{mbit_s / 1000:g} Gb/s" if mbit_s else ""


def matrix(
    names: list[str], words: list[list[str]], more: dict[str, list[str]] | None = None
) -> str:
    """A matrix of links and the legend of its words; `more` are columns beside it."""
    more = more or {}
    rows = [["", *names, *more]]
    for index, (name, row) in enumerate(zip(names, words)):
        rows.append([name, *row, *(column[index] for column in more.values())])
    legend = [(f"{word} =", meaning) for word, meaning in machine.LINK_LEGEND.items()]
    return output.columns(rows, "  ") + "\n\n" + output.columns(legend, "  ")


def _affinity(node: dict[str, Any], device: dict[str, Any], key: str) -> str:
    """CPUs or NUMA node near a device, as far as they are known."""
    if key == "numa":
        return str(device.get("numa", "-"))
    for place in node.get("numa_nodes", []):
        if place["number"] == device.get("numa"):
            return str(place.get("cpus", "-"))
    socket = device.get("socket")
    return str(node["sockets"][socket].get("cpus", "-")) if socket is not None else "-"


def _nic_line(nic: dict[str, Any], is_rail: bool) -> str:
    """One NIC for people."""
    words = [nic.get("name", "?")]
    if nic.get("net") and nic["net"] != nic.get("name"):
        words.append(f"({nic['net']})")
    words += [rate(nic.get("mbit_s", 0)), "RDMA" if nic.get("rdma") else ""]
    words.append("a rail" if is_rail else "" if nic.get("up", True) else "down")
    return " ".join(word for word in words if word)


def node_text(node: dict[str, Any], derived: dict[str, Any]) -> str:
    """One node for people."""
    gpus, nics = node.get("gpus", []), node.get("nics", [])
    devices = [*gpus, *nics]
    lines = ["Sockets"]
    lines += [
        f"  {index}  CPUs {socket.get('cpus', '-')}"
        for index, socket in enumerate(node.get("sockets", []))
    ] or ["  unknown"]
    lines += ["GPUs"]
    lines += [
        f"  GPU{index}  {gpu.get('name', 'unknown product')}  {gpu.get('pci', '')}".rstrip()
        for index, gpu in enumerate(gpus)
    ] or ["  none"]
    lines += ["NICs"]
    lines += [
        f"  NIC{index}  {_nic_line(nic, index in derived['rail_nics'])}"
        for index, nic in enumerate(nics)
    ] or ["  none"]
    rails = derived["rails"]
    lines.append(f"Rails  {rails if rails else 'unknown: as many as ranks'}")
    if devices:
        more = {
            "CPUs": [_affinity(node, device, "cpus") for device in devices],
            "NUMA": [_affinity(node, device, "numa") for device in devices],
        }
        lines += ["Links", matrix(derived["devices"], derived["matrix"], more)]
    if any(derived["nics_of_gpus"]):
        lines.append("NICs of the GPUs, nearest first")
        lines += [
            f"  GPU{index}  " + " ".join(f"NIC{nic}" for nic in served)
            for index, served in enumerate(derived["nics_of_gpus"])
        ]
    return "\n".join(lines)


def text(document: dict[str, Any]) -> str:
    """The document for people."""
    parts = []
    for index, (node, derived) in enumerate(zip(document["nodes"], document["derived"])):
        hosts = ", ".join(node.get("hosts", [])) or f"node {index}"
        parts.append(click.style(hosts, bold=True) + "\n" + node_text(node, derived))
    if document["unavailable"]:
        parts.append("\n".join(["Unavailable", *(f"  {why}" for why in document["unavailable"])]))
    return "\n\n".join(parts)


@click.command()
@click.option(
    "--svg",
    type=files.OutputFile((".svg",)),
    help="Draw the nodes and the rings over them into this file.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Nodes that the rings of --svg go over; a file's entries are taken in turn.",
)
@click.option("--file", "file", default="", help="Read a topology file.")
@click.option(
    "--root", default="", help="Read a recorded machine: a directory with sys/, a listing."
)
@output.form_options
def command(form: str, svg: Path | None, nodes: int, file: str, root: str) -> None:
    """Show sockets, GPUs, NICs, links and rails of this machine or a described one.

    The JSON document can be used as a topology file.
    """
    if file and root:
        raise TuttiError("--file and --root both name a machine; give one of them")
    document = api.library().topology(file, root)
    if svg is not None:
        if not document["nodes"]:
            raise TuttiError("there are no nodes to draw")
        files.write(svg, topo_svg.draw(document, nodes))
    if svg is None or form != output.TEXT:
        output.show(
            form,
            text=lambda: text(document),
            document=document,
            records=lambda: output.pairs(document),
        )
