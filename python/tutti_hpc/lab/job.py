# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Command lines of MPI jobs across a lab's nodes.

The launcher runs in the box `head` and reaches the nodes by the lab's agent in place of ssh, over
the management network. A rank's messages use its own rail, or all rails when striped: that is set
by a line of shell on each rank, since it depends on the rank's number on its node.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tutti_hpc.errors import TuttiError
from tutti_hpc.lab.plan import MANAGEMENT, Spec, node_name, rail_device
from tutti_hpc.mpi import Mpi, is_orte


@dataclass(frozen=True)
class Job:
    """An MPI job. `settings` is set on the ranks and nowhere else."""

    ranks: int
    ranks_per_node: int
    words: tuple[str, ...]
    striped: bool = False
    settings: dict[str, str] = field(default_factory=dict)


def nodes_of(job: Job, spec: Spec) -> list[tuple[str, int]]:
    """(node, ranks there), filled one after the other."""
    nodes: list[tuple[str, int]] = []
    left = job.ranks
    while left > 0:
        here = min(left, job.ranks_per_node)
        nodes.append((node_name(len(nodes)), here))
        left -= here
    if len(nodes) > spec.nodes:
        raise TuttiError(
            f"{job.ranks} ranks at {job.ranks_per_node} per node need {len(nodes)} nodes; the lab "
            f"has {spec.nodes}"
        )
    return nodes


def launcher_environment(library: Mpi, agent: Path) -> dict[str, str]:
    """Variables of the launcher: management traffic off the rails, and the agent.

    Ranks outnumber cores here, so a waiting rank gives its core away. MPICH's messages go through
    libfabric's TCP provider: UCX recognises one kernel behind all nodes, and then fails or uses
    shared memory between them. A caller's own setting wins over all of these.
    """
    if library.launcher_kind == "hydra":
        return {
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
            # A rank sleeps for a moment after so many looks in vain.
            "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
            "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "64",
        }
    if library.launcher_kind != "openmpi":
        return {}
    return {
        "PRTE_MCA_plm_ssh_agent": str(agent),
        "PRTE_MCA_prte_if_include": MANAGEMENT,
        "PMIX_MCA_ptl_tcp_if_include": MANAGEMENT,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "^ofi,uct,openib,usnic",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }


def rank_script(job: Job, spec: Spec) -> str:
    """Shell that sets a rank's variables and becomes its arguments."""
    exports = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in job.settings.items()
    )
    rails = [rail_device(rail) for rail in range(spec.rails)]
    if job.striped:
        own = f"rail={','.join(rails)}\n"
    else:
        local = "${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${PMI_LOCAL_RANK:-0}}}"
        own = f"rail=rail$(( {local} % {spec.rails} ))\n"
    return (
        f"{own}{exports}"
        # FI_*: libfabric's TCP provider in MPICH; UCX_*: its other network module.
        'export OMPI_MCA_btl_tcp_if_include="$rail" UCX_NET_DEVICES="$rail" '
        'FI_TCP_IFACE="$rail" FI_SOCKETS_IFACE="$rail"\n'
        'exec "$@"\n'
    )


def refusal(library: Mpi) -> str:
    """Why a launcher cannot start ranks on a lab's nodes; empty: it can."""
    if library.launcher_kind not in ("openmpi", "hydra"):
        return "a lab needs the launcher of Open MPI or MPICH"
    if is_orte(str(library.launcher)):
        return "a lab needs Open MPI 5 or later, and this launcher is older"
    return ""


def command(library: Mpi, job: Job, spec: Spec, agent: Path) -> list[str]:
    """The launcher's command line, for the box `head`."""
    if reason := refusal(library):
        raise TuttiError(f"{library.launcher}: {reason}; remedy: --mpi PREFIX of another MPI")
    hosts = ",".join(f"{name}:{ranks}" for name, ranks in nodes_of(job, spec))
    rank = ["/bin/sh", "-c", rank_script(job, spec), "rank", *job.words]
    launcher = str(library.launcher)
    if library.launcher_kind == "openmpi":
        options = ["--host", hosts, "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
        return [launcher, *options, "-n", str(job.ranks), *rank]
    options = ["-launcher", "ssh", "-launcher-exec", str(agent), "-iface", MANAGEMENT]
    return [launcher, *options, "-hosts", hosts, "-n", str(job.ranks), *rank]


def environment(base: Mapping[str, str], library: Mpi, agent: Path) -> dict[str, str]:
    """Of the launcher."""
    env = {**launcher_environment(library, agent), **base}
    # These are not the caller's to choose: without them the job does not stay in the lab.
    for name, value in launcher_environment(library, agent).items():
        if name.startswith(("PRTE_MCA", "PMIX_MCA")):
            env[name] = value
    return env
