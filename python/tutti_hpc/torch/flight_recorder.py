# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The last calls of this process's groups, in the form of torch's flight recorder.

TORCH_FR_BUFFER_SIZE (or TORCH_NCCL_TRACE_BUFFER_SIZE) is how many; unset or 0: none is kept, and
calls pay nothing. The first failure writes them to TORCH_FR_DUMP_TEMP_FILE (or
TORCH_NCCL_DEBUG_INFO_TEMP_FILE) with the rank behind it; dump() does so at any time. `torchfrtrace
DIRECTORY` compares the files of all ranks and names the first call that differs or lacks a rank.

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


def _stacked(shapes: Shapes) -> Shapes:
    """One shape with the number of tensors before it, where all are equal; else as they are."""
    if len(shapes) > 1 and all(shape == shapes[0] for shape in shapes):
        return [(torch.Size([len(shapes), *shapes[0][0]]), shapes[0][1])]
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

    def __init__(self, number: int, group: Any, what: str, results: Any, used: Any) -> None:
        outputs, tensors = _flat(results), _flat(used)
        written = {id(tensor) for tensor in outputs}
        inputs = [tensor for tensor in tensors if id(tensor) not in written]
        # What is only written to by some ranks, or reduced in place, is an input as well.
        self.inputs = _shapes(inputs or outputs)
        self.outputs = _shapes(outputs)
        name = _NAMES.get(what, what)
        if name in _STACKED:
            self.inputs, self.outputs = _stacked(self.inputs), _stacked(self.outputs)
            if max(len(self.inputs), len(self.outputs)) > 1:
                name += "_v"
        is_cuda = bool(tensors) and tensors[0].is_cuda
        self.name = f"nccl:{name}"
        self.number = number
        self.group = group
        self.sequence = group.sequence
        self.timeout_ms = int(group.timeout.total_seconds() * 1e3)
        self.thread = threading.current_thread()
        self.stack = _stack()
        self.created_ns = time.time_ns()
        self.started_ns: Optional[int] = None
        self.completed_ns: Optional[int] = None
        # Behind the call on its stream, until it has been seen to be over.
        self.event: Any = torch.cuda.Event() if is_cuda else None

    def wrap(self, call: Call) -> Call:
        """The call, which says here when it starts and ends."""

        def run(comm: int, stream: Any) -> int:
            self.started_ns = time.time_ns()
            status = call(comm, stream)
            if status == 0:
                if self.event is None:
                    self.completed_ns = time.time_ns()
                else:
                    self.event.record()
            return status

        return run

    def look(self) -> None:
        """Whether the GPU has passed the call."""
        if self.event is None or self.started_ns is None or self.completed_ns is not None:
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
        name, description = self.group.recorded_as
        return {
            "record_id": self.number,
            "pg_id": groups[name],
            "process_group": (name, description),
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
            "thread_id": str(self.thread.ident),
            "thread_name": self.thread.name,
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
        self._is_dumped = False
        self._lock = threading.Lock()

    def record(self, group: Any, what: str, call: Call, results: Any, used: Any) -> Call:
        """Keeps a call of an Engine and returns what is to be called in its place.

        `used`: its tensors; `results`: those of them that it writes.
        """
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return call  # Replays make it, whom nobody here sees.
        self._add_group(group)
        entry = _Entry(next(self._numbers), group, what, results, used)
        self._entries.append(entry)
        return entry.wrap(call)

    def _add_group(self, group: Any) -> None:
        """Its ranks in the world, which torch knows by the time of its first call."""
        if group.recorded_as is not None:
            return
        world = distributed_c10d._world
        for one, name in list(world.pg_names.items()):
            if name == group.name:
                description = one.group_desc or "undefined"
                ranks = str(sorted(world.pg_group_ranks[one]))
                break
        else:  # Made without torch's functions.
            description, ranks = "undefined", str(list(range(group.ranks)))
        group.recorded_as = (group.name, description)
        with self._lock:
            self._groups[group.name] = {
                "name": group.name,
                "desc": description,
                "ranks": ranks,
            }

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
            last = status[str(numbers[entry.group.recorded_as[0]])]
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
            rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
            stem = _variable(FILE) or str(Path(tempfile.gettempdir(), "tutti_trace_rank_"))
            path = f"{stem}{rank}"
        file = Path(path)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        part.write_bytes(pickle.dumps(self.document()))
        part.replace(file)
        return file

    def dump_once(self) -> None:
        """At a failure: the first one says what was wrong, later ones are its consequences."""
        with self._lock:
            if self._is_dumped:
                return
            self._is_dumped = True
        try:
            log.error("the last calls are in %s (torchfrtrace)", self.dump())
        except OSError as error:  # It is not to hide the failure.
            log.error("the last calls cannot be written: %s; remedy: set %s", error, FILE[0])


def _make() -> Optional[FlightRecorder]:
    said = _variable(SIZE)
    try:
        size = int(said or "0")
    except ValueError:
        raise ValueError(
            f"tutti: {SIZE[0]}={said}: a number of calls is needed; 0: none is kept"
        ) from None
    return FlightRecorder(size) if size > 0 else None


recorder: Optional[FlightRecorder] = _make()


def dump(path: Optional[str] = None) -> Path:
    """Writes the last calls of this process to a file for torchfrtrace, and returns its name."""
    if recorder is None:
        raise RuntimeError(f"tutti: no calls are kept; remedy: {SIZE[0]}=2000 before the job")
    return recorder.dump(path)
