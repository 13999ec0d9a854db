# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of a process group meet: the C API's allgather callback over the group's store."""

from __future__ import annotations

import ctypes
import time
from datetime import timedelta
from typing import Any, Optional

from tutti_hpc import api


class StoreBootstrap:
    """An allgather of some bytes by keys of a c10d store. Each wait ends after `timeout`."""

    def __init__(self, store: Any, rank: int, ranks: int, timeout: timedelta) -> None:
        self._store = store
        self._rank = rank
        self._ranks = ranks
        self._timeout = timeout
        # A store may outlive a process group, and the next one of its name would read old keys.
        # Every rank counts its own groups, so all of them come to the same number.
        self._generation = store.add(f"generation/{rank}", 1)
        self._round = 0
        self.error: Optional[BaseException] = None  # Of the last round, which the C API hides.
        # Whoever gives its address away must keep it: the library calls it later, too.
        self._callback = api.ALLGATHER_CALLBACK(self._allgather)
        self.structure = api.Bootstrap(
            ctypes.sizeof(api.Bootstrap), rank, ranks, None, self._callback
        )

    def _allgather(self, _context: Any, send: int, recv: int, length: int) -> int:
        self.error = None
        try:
            blocks = self._exchange(ctypes.string_at(send, length) if length else b"")
            for rank, block in enumerate(blocks):
                if len(block) != length:
                    raise ValueError(f"rank {rank} sent {len(block)} bytes instead of {length}")
            if length:
                ctypes.memmove(recv, b"".join(blocks), length * self._ranks)
        except BaseException as error:  # Nothing may pass through C.
            self.error = error
            return 1
        return 0

    def _exchange(self, mine: bytes) -> list[bytes]:
        number, self._round = self._round, self._round + 1
        # Some stores cannot tell an empty value from none.
        self._store.set(self._key(number, self._rank), b"+" + mine)
        keys = [self._key(number, rank) for rank in range(self._ranks)]
        self._store.wait(keys, self._timeout)
        blocks = [bytes(self._store.get(key))[1:] for key in keys]
        if number > 0:
            # All ranks are in this round, so none reads the last one any more.
            self._store.delete_key(self._key(number - 1, self._rank))
        return blocks

    def _key(self, number: int, rank: int) -> str:
        return f"{self._generation}/{number}/{rank}"


def monitored_barrier(
    store: Any, rank: int, ranks: int, limit: timedelta, wait_all_ranks: bool
) -> None:
    """Of one barrier by a store of its own; errors have the words of gloo's."""
    limit_ms = round(limit.total_seconds() * 1000)
    if rank > 0:
        store.set(str(rank), "here")
        try:
            store.wait(["all"], limit)
        except RuntimeError as error:
            raise RuntimeError(
                f"tutti: Rank 0 timed out in monitoredBarrier after {limit_ms} ms: Rank {rank} "
                "successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0, which has not come or waits for another"
            ) from error
        return
    end = time.monotonic() + limit.total_seconds()
    missing = []
    for peer in range(1, ranks):
        if limit_ms <= 0:
            raise RuntimeError("tutti: Rank 0 timed out in monitoredBarrier after 0 ms")
        try:
            store.wait([str(peer)], timedelta(seconds=max(end - time.monotonic(), 0.001)))
        except RuntimeError:
            missing.append(str(peer))
            if not wait_all_ranks:
                break
    if missing:
        said = f"Rank {missing[0]}" if not wait_all_ranks else f"Ranks {', '.join(missing)}"
        raise RuntimeError(f"tutti: {said} failed to pass monitoredBarrier in {limit_ms} ms")
    store.set("all", "here")
