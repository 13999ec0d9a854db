# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""A torch ProcessGroup subclass, for torch 2.11 to 2.13: it stands for the whole group."""

from __future__ import annotations

import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from tutti_hpc.torch.collectives import Collectives
from tutti_hpc.torch.engine import EXIT_WAIT_S, Engine

NAME = "tutti"


class TuttiProcessGroup(Collectives, dist.ProcessGroup):
    """A process group for host and CUDA tensors."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str) -> None:
        dist.ProcessGroup.__init__(self, rank, size)
        self._engine = Engine(store, rank, size, timeout, name)
        self._engine.takes_none = True
        self._store = store
        self._description = ""
        # destroy_process_group() of torch up to 2.12 calls no shutdown().
        weakref.finalize(self, self._engine.close, EXIT_WAIT_S)

    def getBackendName(self) -> str:  # noqa: N802 -- torch's name
        """`tutti`."""
        return NAME

    def name(self) -> str:
        """`tutti`."""
        return NAME

    @property
    def options(self) -> Any:
        """Name and time-out."""
        return c10d.Backend.Options(NAME, self._engine.timeout)

    # The base class keeps the next ones in a registered backend, which there is none of.

    @property
    def group_name(self) -> str:
        """What torch calls the group."""
        return self._engine.name

    @property
    def group_desc(self) -> str:
        """What the user calls the group."""
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._engine.name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def get_group_store(self) -> Any:
        """The group's part of the store."""
        return self._store

    def shutdown(self) -> None:
        """Finishes what is queued and frees the communicators and the store."""
        self._engine.close()
        self._store = None

    def _get_backend(self, device: Any) -> Any:
        """One object serves all devices."""
        return self

    def _check_cuda(self) -> None:
        """A ValueError where the script wants another backend for CUDA tensors.

        These versions of torch make none beside a group that is a Python class, and say nothing.
        """
        config = str(dist.distributed_c10d._world.pg_backend_config.get(self, ""))
        wanted = dict(part.split(":") for part in config.split(",") if ":" in part).get(
            "cuda", NAME
        )
        if wanted != NAME:
            raise ValueError(
                f"tutti: torch {torch.__version__} makes no {wanted} for CUDA tensors beside tutti"
                "; remedy: tutti for all devices (TUTTI_TORCH_REPLACE=gloo,nccl), or torch 2.14"
            )

    def _start_coalescing(self, device: Any) -> None:
        raise NotImplementedError(
            "tutti: this coalescing manager needs a device; remedy: one without `device`, or "
            "batch_isend_irecv"
        )
