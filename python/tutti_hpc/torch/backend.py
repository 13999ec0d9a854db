# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""A torch Backend subclass, for torch 2.14 and later: torch's own process group calls it.

Up to 2.13 a Backend cannot be made in Python.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch._C import _distributed_c10d as c10d

from tutti_hpc.torch.collectives import Collectives
from tutti_hpc.torch.engine import Engine

NAME = "tutti"
# Torch's C++ objects do not keep the Python object alive (TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it
# and drops it), without which the overridden methods are gone. Until shutdown().
_alive: set[Any] = set()


class TuttiBackend(Collectives, c10d.Backend):
    """A backend for host and CUDA tensors."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str) -> None:
        c10d.Backend.__init__(self, rank, size)
        self._engine = Engine(store, rank, size, timeout, name)
        _alive.add(self)

    def getBackendName(self) -> str:  # noqa: N802 -- torch's name
        """`tutti`."""
        return NAME

    @property
    def options(self) -> Any:
        """Name and time-out."""
        return c10d.Backend.Options(NAME, self._engine.timeout)

    def shutdown(self) -> None:
        """Finishes what is queued and frees the communicators."""
        _alive.discard(self)
        self._engine.close()
