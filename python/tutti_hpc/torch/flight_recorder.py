# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The last calls of this process's groups, in the form of torch's flight recorder.

TORCH_FR_BUFFER_SIZE (or TORCH_NCCL_TRACE_BUFFER_SIZE) is how many; unset or 0: none is kept, and
calls pay nothing. A group's first failure writes them to TORCH_FR_DUMP_TEMP_FILE (or
TORCH_NCCL_DEBUG_INFO_TEMP_FILE), with `tutti_` and the rank behind it, so that torch's own recorder
does not write there, too; dump() does so at any time. `torchfrtrace DIRECTORY` compares the files
and names the first call that differs or lacks a rank.

What goes wrong in here is a line in the log: it neither fails a call nor hides its error.

The form is that of c10d/FlightRecorder.hpp, version 2.10. That of torch 2.11 reads calls of `nccl`
alone, so all calls are said to be of it.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Optional

import torch
from torch.distributed import distributed_c10d

log = logging.getLogger("tutti_hpc.torch")
SIZE = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
FILE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
VERSION = "2.10"
FRAMES_MAX = 32
# Their names in the form; the others are the same there.
_NAMES = {
    "all_reduce_coalesced": "allreduce_coalesced",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "all_gather_single": "_all_gather_base",
    "all_gather_single_coalesced": "all_gather_into_tensor_coalesced",
    "all_gather_coalesced": "ALLGATHER_coalesced",
    "all_to_all_single": "all_to_all",
    "barrier": "all_reduce_barrier",
}
# Lists of equal tensors that the form has as one tensor of them all.
_STACKED = ("all_gather", "reduce_scatter")
Call = Callable[[int, Any], int]
Shapes = list[tuple[torch.Size, torch.dtype]]


def _variable(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _flat(tensors: Any) -> list[torch.Tensor]:
    """The tensors of nested lists."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [tensor for one in tensors or () for tensor in _flat(one)]


def _shapes(tensors: list[torch.Tensor]) -> Shapes:
    """Without the tensors, whose memory is not to be kept."""
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def _written(name: str, shapes: Shapes, ranks: int) -> Shapes:
    """Lists as the form has them: equal tensors as one of them all, others as their sum."""
    if name in _STACKED and len(shapes) == ranks and all(one == shapes[0] for one in shapes):
        return [(torch.Size([ranks, *shapes[0][0]]), shapes[0][1])] if ranks > 1 else shapes
    if name == "all_to_all" and len(shapes) > 1:
        return [(torch.Size([sum(shape.numel() for shape, _ in shapes)]), shapes[0][1])]
    return shapes


def _stack() -> list[tuple[Any, int]]:
    """Code and line of the callers outside this package, the innermost first."""
    here = os.path.dirname(__file__)
    found: list[tuple[Any, int]] = []
    frame: Any = sys._getframe(1)
    while frame is not None and len(found) < FRAMES_MAX:
        if not frame.f_code.co_filename.startswith(here):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


class _Entry:
    """One call. Times in ns since the epoch; None: not yet."""

    def __init__(self, number: int, group: Any, what: str, inputs: Any, outputs: Any) -> None:
        read, written = _flat(inputs), _flat(outputs)
        name = _NAMES.get(what, what)
        self.inputs = _written(name, _shapes(read), group.ranks)
        self.outputs = _written(name, _shapes(written), group.ranks)
        if name in _STACKED and max(len(self.inputs), len(self.outputs)) > 1:
            # Of unequal parts the form compares both sides, which ranks have in part.
            name += "_v"
            longer = max(self.inputs, self.outputs, key=len)
            self.inputs = self.outputs = longer
        self.name = f"nccl:{name}"
        self.number = number
        self.group: tuple[str, str] = group.recorded_as
        self.sequence = group.sequence + 1  # Which the group counts when it makes the call.
        self.timeout_ms = int(group.timeout.total_seconds() * 1e3)
        thread = threading.current_thread()
        self.thread = (str(thread.ident), thread.name)
        self.stack = _stack()
        self.created_ns = time.time_ns()
        self.started_ns: Optional[int] = None
        self.completed_ns: Optional[int] = None
        # Behind the call on its stream, until it has been seen to be over.
        device = (read or written)[0].device if read or written else None
        self.device = device if device is not None and device.type == "cuda" else None
        self.event: Any = None

    def wrap(self, call: Call) -> Call:
        """The call, which says here when it starts and ends."""

        def run(comm: int, stream: Any) -> int:
            self.started_ns = time.time_ns()
            status = call(comm, stream)
            if status == 0:
                self._end()
            return status

        return run

    def _end(self) -> None:
        if self.device is None:
            self.completed_ns = time.time_ns()
            return
        try:
            self.event = torch.cuda.Event()
            self.event.record(torch.cuda.current_stream(self.device))
        except RuntimeError as error:  # The call itself is there.
            self.event = None
            log.warning("flight recorder: %s", error)

    def look(self) -> None:
        """Whether the GPU has passed the call."""
        if self.event is None or self.completed_ns is not None:
            return
        try:
            is_over = self.event.query()
        except RuntimeError:  # A GPU that has failed.
            return
        if is_over:
            self.completed_ns = time.time_ns()

    def state(self) -> str:
        """`scheduled`, `started` or `completed`."""
        if self.completed_ns is not None:
            return "completed"
        return "scheduled" if self.started_ns is None else "started"

    def document(self, groups: dict[str, int]) -> dict[str, Any]:
        """As a reader of dumps has it. `groups`: their numbers by their names."""
        return {
            "record_id": self.number,
            "pg_id": groups[self.group[0]],
            "process_group": self.group,
            "collective_seq_id": self.sequence,
            "p2p_seq_id": 0,
            "op_id": self.sequence,
            "is_p2p": False,
            "profiling_name": self.name,
            "input_sizes": [list(shape) for shape, _ in self.inputs],
            "input_dtypes": [_type_name(dtype) for _, dtype in self.inputs],
            "output_sizes": [list(shape) for shape, _ in self.outputs],
            "output_dtypes": [_type_name(dtype) for _, dtype in self.outputs],
            "time_created_ns": self.created_ns,
            "time_discovered_started_ns": self.started_ns,
            "time_discovered_completed_ns": self.completed_ns,
            "state": self.state(),
            "timeout_ms": self.timeout_ms,
            "retired": self.completed_ns is not None,
            "thread_id": self.thread[0],
            "thread_name": self.thread[1],
            "frames": [
                {"name": code.co_name, "filename": code.co_filename, "line": line}
                for code, line in self.stack
            ],
        }


def _type_name(dtype: torch.dtype) -> str:
    """As C++ says it: torch.float32 is Float."""
    name = str(dtype).removeprefix("torch.")
    return _CPP_TYPES.get(name, name)


_CPP_TYPES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


class FlightRecorder:
    """Of all groups of the process. Records of several threads may come at the same time."""

    def __init__(self, size: int) -> None:
        self._entries: deque[_Entry] = deque(maxlen=size)
        self._numbers = itertools.count()
        self._groups: dict[str, dict[str, str]] = {}  # By name, also those that are gone.
        self._rank: Optional[int] = None  # In the world, as long as it was last known.
        self._lock = threading.Lock()

    def record(
        self, group: Any, what: str, call: Call, outputs: Any, used: Any, inputs: Any
    ) -> Call:
        """Keeps a call of an Engine and returns what is to be called in its place.

        `used`: its tensors. `inputs`: those that it reads; None: all that are not among the
        outputs, or these.
        """
        try:
            if used and used[0].is_cuda and torch.cuda.is_current_stream_capturing():
                return call  # A replay makes it, and is not seen here.
            if inputs is None:
                written = {id(tensor) for tensor in _flat(outputs)}
                inputs = [tensor for tensor in used if id(tensor) not in written] or outputs
            self._add_group(group)
            entry = _Entry(next(self._numbers), group, what, inputs, outputs)
        except Exception as error:
            log.warning("flight recorder: %s is not recorded: %r", what, error)
            return call
        self._entries.append(entry)
        return entry.wrap(call)

    def _add_group(self, group: Any) -> None:
        """Its ranks in the world, which torch knows by the time of its first call."""
        if group.recorded_as is not None:
            return
        world = distributed_c10d._world
        description, ranks = (
            "undefined",
            list(range(group.ranks)),
        )  # Made without torch's functions.
        for one, name in list(world.pg_names.items()):
            if name == group.name and one in world.pg_group_ranks:
                description = one.group_desc or description
                ranks = sorted(world.pg_group_ranks[one])
                break
        self._rank = ranks[group.rank]
        with self._lock:
            self._groups[group.name] = {
                "name": group.name,
                "desc": description,
                "ranks": str(ranks),
            }
        group.recorded_as = (group.name, description)

    def document(self) -> dict[str, Any]:
        """What a dump holds."""
        entries = list(self._entries)
        with self._lock:
            groups = dict(self._groups)
        numbers = {name: number for number, name in enumerate(groups)}
        status = {
            str(number): {
                "last_enqueued_collective": -1,
                "last_started_collective": -1,
                "last_completed_collective": -1,
            }
            for number in numbers.values()
        }
        for entry in entries:
            entry.look()
            last = status[str(numbers[entry.group[0]])]
            last["last_enqueued_collective"] = entry.sequence
            if entry.started_ns is not None:
                last["last_started_collective"] = entry.sequence
            if entry.completed_ns is not None:
                last["last_completed_collective"] = entry.sequence
        return {
            "version": VERSION,
            "comm_lib_version": "tutti",
            "pg_config": groups,
            "pg_status": status,
            "entries": [entry.document(numbers) for entry in entries],
        }

    def dump(self, path: Optional[str] = None) -> Path:
        """Writes a dump, by default where a failure writes it; returns the file."""
        if path is None:
            rank = os.environ.get("RANK", "0") if self._rank is None else self._rank
            stem = _variable(FILE) or str(Path(tempfile.gettempdir(), "trace_"))
            path = f"{stem}tutti_{rank}"
        file = Path(path)
        # A reader takes each file of the directory for a dump.
        number, part = tempfile.mkstemp(dir=file.parent, prefix=".")
        try:
            with os.fdopen(number, "wb") as stream:
                pickle.dump(self.document(), stream)
            os.replace(part, file)
        except BaseException:
            os.unlink(part)
            raise
        return file

    def dump_once(self, group: Any) -> None:
        """At a failure: a group's first one says what was wrong, the others are consequences."""
        if group.is_dumped:
            return
        group.is_dumped = True
        try:
            log.error("the last calls are in %s (torchfrtrace)", self.dump())
        except Exception as error:
            log.error("the last calls cannot be written: %r; remedy: set %s", error, FILE[0])


def _make() -> Optional[FlightRecorder]:
    said = _variable(SIZE)
    try:
        size = int(said or "0")
    except ValueError:
        name = next(name for name in SIZE if os.environ.get(name) == said)
        raise ValueError(
            f"tutti: {name}={said}: a number of calls is needed; 0: none is kept"
        ) from None
    return FlightRecorder(size) if size > 0 else None


recorder: Optional[FlightRecorder] = _make()


def dump(path: Optional[str] = None) -> Path:
    """Writes the last calls of this process to a file for torchfrtrace, and returns its name."""
    if recorder is None:
        raise RuntimeError(f"tutti: no calls are kept; remedy: {SIZE[0]}=2000 before the job")
    return recorder.dump(path)
