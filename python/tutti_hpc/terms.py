# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Names and bandwidth formulas that the engine, the measured program and the formats share."""

from __future__ import annotations

COLLECTIVES = (
    "barrier",
    "bcast",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "reduce",
    "allreduce",
    "reduce_scatter",
    "reduce_scatter_block",
    "scan",
    "exscan",
)
REDUCTIONS = ("reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan")
TYPES = {
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
OPS = ("sum", "prod", "min", "max")

_ALIASES = {
    "broadcast": "bcast",
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "all_to_all": "alltoall",
    "reducescatter": "reduce_scatter",
}
# Those that move (n - 1)/n of `bytes` over each rank's link.
_ALL_BUT_OWN = (
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "reduce_scatter",
    "reduce_scatter_block",
)


def canonical_collective(name: str) -> str:
    """`all_reduce` -> `allreduce`; ValueError for an unknown name."""
    lower = name.lower().removeprefix("mpi_").replace("-", "_")
    lower = _ALIASES.get(lower, lower)
    if lower not in COLLECTIVES:
        raise ValueError(f"'{name}' is no collective; there are {', '.join(COLLECTIVES)}")
    return lower


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it."""
    if collective == "allreduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in _ALL_BUT_OWN else 1.0


def bandwidths_gbps(
    collective: str, ranks: int, size_bytes: int, latency_us: float
) -> tuple[float, float]:
    """Algorithm and bus bandwidth in GB/s (10^9 bytes) at a latency."""
    algorithm = size_bytes / (latency_us * 1e3) if latency_us > 0 else 0.0
    return algorithm, algorithm * bus_factor(collective, ranks)
