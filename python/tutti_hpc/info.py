# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti info`: what of MPI, GPUs and NCCL/RCCL this machine has, and what is missing and why."""

from __future__ import annotations

from typing import Any

import click

from tutti_hpc import __version__, api, machine, mpi, output, paths, topo
from tutti_hpc.errors import TuttiError


def gather() -> dict[str, Any]:
    """Everything, as one document."""
    gpus = machine.gpus()
    document: dict[str, Any] = {
        "tutti": {"version": __version__, "library": None, "preload": None},
        "mpi": [_mpi(found) for found in mpi.find_all()],
        "gpus": gpus.names,
        "links": gpus.links,
        "gpu_driver": gpus.driver,
        "device": None,
        "ccl": None,
        "unavailable": [],
    }
    missing: list[str] = document["unavailable"]
    for key, name in (("library", paths.LIBRARY), ("preload", paths.PRELOAD)):
        path = paths.find(name)
        document["tutti"][key] = str(path) if path else None
        if path is None:
            missing.append(f"{name}: not found; remedy: `make build`, or set TUTTI_LIBRARY_DIR")
    try:
        found = api.library().machine() if document["tutti"]["library"] else {}
    except TuttiError as error:
        missing.append(error.format_message())
        found = {}
    devices = (found.get("device") or {}).get("devices") or []
    document["gpus"] = gpus.names or [str(device["name"]) for device in devices]
    document["device"], document["ccl"] = found.get("device"), found.get("ccl")
    if gpus.reason:
        missing.append(f"links between GPUs: {gpus.reason}")
    for what, part in (("GPU memory", document["device"]), ("NCCL or RCCL", document["ccl"])):
        if part and part.get("reason") and not part.get("path") and not part.get("devices"):
            missing.append(f"{what}: {part['reason']}")
    if not document["mpi"]:
        missing.append("MPI: none found on PATH or in .env; remedy: load a module, or `make build`")
    for found_mpi in document["mpi"]:
        if paths.find_measure(found_mpi["abi"]) is None:
            missing.append(
                f"tutti bench with {found_mpi['abi']}: no tutti-measure-{found_mpi['abi']}"
            )
    return document


def _mpi(found: mpi.Mpi) -> dict[str, Any]:
    """One MPI library."""
    facts = mpi.facts(found)
    return {
        "abi": found.abi,
        "version": facts.version,
        "library": found.library,
        "launcher": str(found.launcher),
        "launcher_kind": found.launcher_kind,
        "found": found.origin,
        "gpu_aware": facts.gpu_aware,
        "gpu_aware_known_by": facts.how,
    }


def link_matrix(links: list[list[str]]) -> str:
    """The matrix of the GPUs and its legend."""
    return topo.matrix([f"GPU{index}" for index in range(len(links))], links)


def text(document: dict[str, Any]) -> str:
    """The document for people."""
    aware = {True: "GPU-aware", False: "not GPU-aware", None: "GPU-awareness unknown"}
    own = document["tutti"]
    lines = [f"Tutti {own['version']}", f"  {own['preload'] or 'libtutti-mpi.so not found'}", "MPI"]
    for found in document["mpi"]:
        lines.append(
            f"  {mpi.short_version(found['version'])}: {mpi.ABI_NAMES[found['abi']]}, "
            f"{aware[found['gpu_aware']]} ({found['gpu_aware_known_by']})"
        )
        lines.append(f"    {found['library']}, found by {found['found']}")
    if not document["mpi"]:
        lines.append("  none")
    lines.append("GPUs" + (f" (driver {document['gpu_driver']})" if document["gpu_driver"] else ""))
    lines += [f"  {i}  {name}" for i, name in enumerate(document["gpus"])] or ["  none"]
    if document["links"]:
        lines += ["Links", link_matrix(document["links"])]
    device, ccl = document["device"], document["ccl"]
    if device and device.get("library"):
        lines += ["GPU library", f"  {device['name']}: {device['library']}"]
    if ccl and ccl.get("path"):
        lines += ["CCL", f"  {ccl['name'].upper()} {ccl['version']}: {ccl['path']}"]
        lines.append(f"    found by {ccl['found_by']}")
    if document["unavailable"]:
        lines += ["Unavailable", *(f"  {reason}" for reason in document["unavailable"])]
    return "\n".join(lines)


@click.command()
@output.form_options
def command(form: str) -> None:
    """Show MPI, GPUs and links, NCCL or RCCL, and what is unavailable and why."""
    document = gather()
    output.show(
        form,
        text=lambda: text(document),
        document=document,
        records=lambda: output.pairs(document),
    )
