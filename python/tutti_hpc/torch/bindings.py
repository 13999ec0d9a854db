# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The collectives of the C API (include/tutti/tutti.h), bound once; no torch here.

Arguments are plain integers: addresses, counts of elements, the enumerators of tutti.h.
"""

from __future__ import annotations

import ctypes
import functools
import json
from typing import Any, Callable

from tutti_hpc import api, paths

OK = 0
INVALID_ARGUMENT = 1
INVALID_CONFIG = 2
UNSUPPORTED = 3
UNAVAILABLE = 4
OUT_OF_MEMORY = 5
TIMEOUT = 6
LIBRARY = 7
FALLBACK = 8
INTERNAL = 9
STATUS_NAMES = (
    "ok",
    "invalid argument",
    "invalid configuration",
    "unsupported",
    "unavailable",
    "out of memory",
    "timeout",
    "library failure",
    "fall-back refused",
    "internal error",
)
# After these a communicator is as it was.
HARMLESS = frozenset((INVALID_ARGUMENT, UNSUPPORTED, UNAVAILABLE, FALLBACK))

BYTE = 0
SUM = 1
PROD = 2
MIN = 3
MAX = 4
BAND = 8
BOR = 9
BXOR = 10
AVG = 13

MEMORY_HOST = 1
MEMORY_DEVICE = 2

IN_PLACE = -1
BLOCKING = -2

_P = ctypes.c_void_p
_N = ctypes.c_int64
_I = ctypes.c_int
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "allreduce": (_P, _P, _P, _N, _I, _I, _P),
    "reduce": (_P, _P, _P, _N, _I, _I, _I, _P),
    "bcast": (_P, _P, _N, _I, _I, _P),
    "allgather": (_P, _P, _P, _N, _I, _P),
    "allgatherv": (_P, _P, _N, _P, _P, _P, _I, _P),
    "reduce_scatter": (_P, _P, _P, _P, _I, _I, _P),
    "reduce_scatter_block": (_P, _P, _P, _N, _I, _I, _P),
    "alltoall": (_P, _P, _P, _N, _I, _P),
    "alltoallv": (_P, _P, _P, _P, _P, _P, _P, _I, _P),
    "gather": (_P, _P, _P, _N, _I, _I, _P),
    "gatherv": (_P, _P, _N, _P, _P, _P, _I, _I, _P),
    "scatter": (_P, _P, _P, _N, _I, _I, _P),
    "scatterv": (_P, _P, _P, _P, _P, _N, _I, _I, _P),
    "barrier": (_P, _P),
}
_OF_STREAMS: dict[str, tuple[Any, ...]] = {
    "order": (_P, _P, _P),
    "mark": (_P, _P),
    "calls": (_P,),
    "wait_on": (_P, ctypes.c_uint64, _P),
}


class Options(ctypes.Structure):
    """tutti_options_t."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("plan", ctypes.c_char_p),
        ("memory", ctypes.c_int),
        ("concurrent", ctypes.c_int),
        ("timeout_s", ctypes.c_double),
    )


def options(memory: int, timeout_s: float) -> Options:
    """Options of a communicator whose calls are mostly on this memory. 0 s: TUTTI_TIMEOUT."""
    return Options(ctypes.sizeof(Options), None, memory, 0, timeout_s)


class Functions:
    """The C functions with their argument types set; one attribute for each collective."""

    allreduce: Callable[..., int]
    reduce: Callable[..., int]
    bcast: Callable[..., int]
    allgather: Callable[..., int]
    allgatherv: Callable[..., int]
    reduce_scatter: Callable[..., int]
    reduce_scatter_block: Callable[..., int]
    alltoall: Callable[..., int]
    alltoallv: Callable[..., int]
    gather: Callable[..., int]
    gatherv: Callable[..., int]
    scatter: Callable[..., int]
    scatterv: Callable[..., int]
    barrier: Callable[..., int]
    order: Callable[..., int]
    mark: Callable[..., int]
    calls: Callable[..., int]
    wait_on: Callable[..., int]

    def __init__(self) -> None:
        """Loads libtutti.so; a TuttiError names the remedy."""
        self.path = paths.require(paths.LIBRARY)
        library = api.load(self.path)
        find = api.native_functions(self.path)
        for name, types in _ARGUMENTS.items():
            function = library[f"tutti_{name}"]
            function.argtypes = list(types)
            function.restype = ctypes.c_int
            setattr(self, name, find(f"tutti_{name}") or function)
        self.is_native = find("tutti_allreduce") is not None
        self._create = library.tutti_comm_create
        self._create.argtypes = [_P, _P, ctypes.POINTER(_P)]
        self._destroy = library.tutti_comm_destroy
        self._destroy.argtypes = [_P]
        self._abort = library.tutti_comm_abort
        self._abort.argtypes = [_P]
        self._status = library.tutti_comm_status
        self._status.argtypes = [_P]
        # Plain functions, not methods: a call on a GPU is made of a few of them.
        for name, types in _OF_STREAMS.items():
            function = library[f"tutti_comm_{name}"]
            function.argtypes = list(types)
            function.restype = ctypes.c_uint64 if name == "calls" else ctypes.c_int
            setattr(self, name, find(f"tutti_comm_{name}") or function)
        self._test = library.tutti_comm_test
        self._test.argtypes = [_P, ctypes.c_uint64, ctypes.POINTER(_I)]
        self._error = library.tutti_error_string
        self._error.argtypes = [_P]
        self._error.restype = ctypes.c_char_p
        self._plan = library.tutti_comm_plan_json
        self._plan.argtypes = [_P, ctypes.c_char_p]
        self._plan.restype = ctypes.c_void_p
        self._free = library.tutti_free
        self._free.argtypes = [_P]
        self._free.restype = None

    def create(self, bootstrap: api.Bootstrap, options: Options) -> tuple[int, int]:
        """A communicator: (status, address or 0)."""
        comm = ctypes.c_void_p()
        status = self._create(ctypes.byref(bootstrap), ctypes.byref(options), ctypes.byref(comm))
        return int(status), comm.value or 0

    def destroy(self, comm: int) -> int:
        """Waits for this rank's calls on streams and frees the communicator."""
        return int(self._destroy(comm))

    def abort(self, comm: int) -> None:
        """Ends this rank's calls, also one that another thread is in."""
        self._abort(comm)

    def status(self, comm: int) -> int:
        """What broke the communicator, also a call on a stream; never waits."""
        return int(self._status(comm))

    def test(self, comm: int, number: int) -> tuple[int, bool]:
        """Whether call `number` and those before it are over: (status, answer); never waits."""
        are_over = _I()
        status = self._test(comm, number, ctypes.byref(are_over))
        return int(status), bool(are_over.value)

    def error(self, comm: int | None) -> str:
        """Words about the last failure of `comm`, or of this thread's last call without one."""
        text = self._error(comm)
        return text.decode(errors="replace") if text else ""

    def plan(self, comm: int, query: dict[str, Any]) -> dict[str, Any]:
        """The plan that a call would get, why, and `last_plan`."""
        address = self._plan(comm, json.dumps(query).encode())
        if not address:
            return {"error": "out of memory"}
        try:
            document = json.loads(ctypes.string_at(address).decode(errors="replace"))
        finally:
            self._free(address)
        return dict(document)


@functools.cache
def functions() -> Functions:
    """The installed library."""
    return Functions()
