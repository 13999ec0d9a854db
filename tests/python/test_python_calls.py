# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Functions of the C API as this interpreter's own: the same answers as by ctypes."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from tutti_hpc import api, paths

IN_PLACE, BLOCKING = -1, -2
FLOAT32, SUM = 11, 1


def find(name: str) -> Any:
    """The function, or None."""
    return api.native_functions(paths.require(paths.LIBRARY))(name)


def test_python_function__answers_as_the_c_function() -> None:
    library = api.load(paths.require(paths.LIBRARY))
    by_ctypes = library.tutti_comm_order
    by_ctypes.argtypes = [ctypes.c_void_p] * 3
    words = library.tutti_error_string
    words.argtypes, words.restype = [ctypes.c_void_p], ctypes.c_char_p
    order = find("tutti_comm_order")
    assert order is not None
    assert by_ctypes(0, 1, 2) == order(0, 1, 2) != 0
    assert b"null" in words(None)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((), TypeError),
        ((0, 1), TypeError),
        ((0, 1, 2, 3), TypeError),
        ((0, "x", 2), TypeError),
        ((None, 1, 2), TypeError),
        ((0, 1 << 70, 2), OverflowError),
    ],
)
def test_python_function__raises_for_arguments_of_no_use(
    arguments: tuple[Any, ...], kind: type[Exception]
) -> None:
    function = find("tutti_comm_order")
    assert function is not None
    with pytest.raises(kind) as raised:
        function(*arguments)
    assert ("number of arguments" in str(raised.value)) == (len(arguments) != 3)


def test_python_function__refuses_what_an_int_cannot_hold() -> None:
    broadcast = find("tutti_bcast")
    assert broadcast is not None
    for root in (1 << 32, -(1 << 32) - 1):
        with pytest.raises(OverflowError):
            broadcast(0, 0, 0, FLOAT32, root, BLOCKING)
    assert broadcast(0, 0, 0, FLOAT32, -1, BLOCKING) != 0


def test_python_function__that_it_has_not() -> None:
    assert find("tutti_comm_abort") is None
    assert find("") is None


def test_python_function__lets_other_threads_run() -> None:
    """Two ranks in threads of this process: each call waits for the other's."""
    library = api.load(paths.require(paths.LIBRARY))
    allreduce = find("tutti_allreduce")
    ranks = 2
    meeting = threading.Barrier(ranks, timeout=60)
    given = [b""] * ranks
    results: list[list[float]] = [[]] * ranks

    def be(rank: int) -> None:
        def allgather(_context: int, send: int, recv: int, size: int) -> int:
            given[rank] = ctypes.string_at(send, size)
            meeting.wait()
            ctypes.memmove(recv, b"".join(given), size * ranks)
            meeting.wait()
            return 0

        callback = api.ALLGATHER_CALLBACK(allgather)
        bootstrap = api.Bootstrap(ctypes.sizeof(api.Bootstrap), rank, ranks, None, callback)
        comm = ctypes.c_void_p()
        assert library.tutti_comm_create(ctypes.byref(bootstrap), None, ctypes.byref(comm)) == 0
        values = (ctypes.c_float * 3)(rank + 1, 10 * rank, -rank)
        for _ in range(100):
            place = ctypes.addressof(values)
            assert allreduce(comm.value, IN_PLACE, place, 3, FLOAT32, SUM, BLOCKING) == 0
        results[rank] = list(values)
        assert library.tutti_comm_destroy(comm) == 0

    threads = [threading.Thread(target=be, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a call kept the GIL"
    assert results == [[3 * 2.0**99, 10 * 2.0**99, -(2.0**99)]] * ranks
