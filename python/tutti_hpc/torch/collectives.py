# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The methods that torch.distributed calls on a process group, as calls of the C API.

Data that is only moved goes as bytes, whatever its type. Lists of host tensors are read and written
where they are: the C API's displacements count from the lowest address among them. Tensors that
are not contiguous are copied. Names of torch up to 2.12 and from 2.13 on are both here.
"""

from __future__ import annotations

import ctypes
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
from torch._C._distributed_c10d import ReduceOp

from tutti_hpc.torch import bindings, reductions
from tutti_hpc.torch.engine import Call, Engine, PlainCall, profiler_is_on
from tutti_hpc.torch.flight_recorder import recorder
from tutti_hpc.torch.works import NO_TIMEOUT, FinishedWork

# Coalesced reductions below this many bytes in total are one call on a copy.
COALESCE_BYTES_MAX = 1 << 18


def _is_plain(tensor: torch.Tensor) -> bool:
    """Its elements are one behind the other in memory, as they are meant."""
    return tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj())


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses from its first element to behind its last."""
    begin = tensor.data_ptr()
    if tensor.is_contiguous():
        return begin, begin + tensor.nbytes
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * tensor.element_size()


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether they may share memory."""
    if not (one.numel() and other.numel()):
        return False
    (begin, end), (other_begin, other_end) = _extent(one), _extent(other)
    return begin < other_end and other_begin < end


def _apart(source: torch.Tensor, outputs: list[torch.Tensor]) -> torch.Tensor:
    """The plain tensor, or a copy where it lies in what is written while it is read."""
    return source.clone() if any(_overlap(source, one) for one in outputs) else source


def _memory(tensor: torch.Tensor) -> Optional[tuple[int, int]]:
    """Address and bytes of a plain tensor; None: it is not plain."""
    return (tensor.data_ptr(), tensor.nbytes) if _is_plain(tensor) else None


def _are_apart(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether they share no byte, of addresses and bytes."""
    (begin, size), (other_begin, other_size) = one, other
    return (
        begin + size <= other_begin
        or other_begin + other_size <= begin
        or not (size and other_size)
    )


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a plain copy."""
    if _is_plain(tensor):
        return tensor
    return tensor.resolve_conj().resolve_neg().contiguous()


def _writable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or plain memory of its shape."""
    if _is_plain(tensor):
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _settle(buffer: torch.Tensor, tensor: torch.Tensor) -> None:
    """What _writable() gave goes to where it belongs."""
    if buffer is not tensor:
        tensor.copy_(buffer)


def _numbers(values: list[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def _places(tensors: list[torch.Tensor]) -> tuple[int, Any, Any]:
    """Base address, sizes and displacements of plain tensors, in bytes."""
    addresses = [tensor.data_ptr() for tensor in tensors]
    sizes = [tensor.nbytes for tensor in tensors]
    base = min((a for a, size in zip(addresses, sizes) if size), default=0)
    displacements = [a - base if size else 0 for a, size in zip(addresses, sizes)]
    return base, _numbers(sizes), _numbers(displacements)


def _only(tensors: Any, what: str) -> torch.Tensor:
    """The one tensor of a list of one."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"tutti: {what} takes one tensor of each rank, not {len(tensors)}")
    tensor: torch.Tensor = tensors[0]
    return tensor


def _is_async(opts: Any) -> Optional[bool]:
    """What the options say; None: they do not, so that the caller waits for the work itself."""
    said: Optional[bool] = getattr(opts, "asyncOp", None)
    return said


def _operation(opts: Any) -> Any:
    """The ReduceOp of options, or of what stands in their place."""
    if opts is None:
        return ReduceOp(ReduceOp.SUM)
    found = getattr(opts, "reduceOp", None)
    if found is not None:
        return found
    return opts if isinstance(opts, ReduceOp) else ReduceOp(opts)


def _root(opts: Any) -> int:
    return int(opts) if isinstance(opts, int) else int(getattr(opts, "rootRank", 0))


def _no_grad(call: Call) -> Call:
    """What copies and scales may write to parameters and to tensors of inference mode."""

    def run(comm: int, stream: Any) -> int:
        with torch.inference_mode():
            return call(comm, stream)

    return run


def _check_types(what: str, first: torch.Tensor, others: list[torch.Tensor]) -> None:
    dtype, device, is_cpu = first.dtype, first.get_device(), first.is_cpu
    for other in others:
        if (
            other.dtype is not dtype
            or other.get_device() != device  # -1: of no device with a number.
            or other.is_cpu is not is_cpu
        ):
            raise ValueError(
                f"tutti: {what}: tensors of {first.dtype} on {first.device} and of {other.dtype} "
                f"on {other.device}; remedy: one type and one device in a call"
            )


def _check_size(what: str, name: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"tutti: {what}: {name} has {found} elements instead of {wanted}")


class Collectives:
    """For a class that torch knows as a process group or a backend."""

    _engine: Engine
    _has_checked_cuda = False

    # ---- How a call goes its way ----------------------------------------------------------------

    def _submit(
        self,
        what: str,
        call: Call,
        results: Any,
        is_async: Optional[bool],
        used: list[torch.Tensor],
        inputs: Optional[list[torch.Tensor]] = None,
    ) -> Any:
        """`used`: all tensors of the call, at least one. `inputs`: FlightRecorder.record()."""
        if recorder is not None:
            call = recorder.record(self._engine, what, call, results, used, inputs)
        tensor = used[0]
        if tensor.is_cuda:
            if not self._has_checked_cuda:
                self._check_cuda()
                self._has_checked_cuda = True
            submit, device = self._engine.submit_device, tensor.get_device()
            if profiler_is_on():
                with torch.profiler.record_function(f"tutti:{what}"):
                    return submit(what, call, results, is_async, device, used)
            return submit(what, call, results, is_async, device, used)
        if tensor.is_cpu:
            return self._engine.submit_host(what, call, results, bool(is_async), used)
        raise ValueError(f"tutti: {what} on {tensor.device}: tensors of cpu and cuda are supported")

    def _check_cuda(self) -> None:
        """A ValueError where CUDA tensors are another backend's."""

    def _other(self, tensor: torch.Tensor) -> str:
        """Why the fall-back carries collectives on this tensor; "" where Tutti does."""
        if tensor.layout is not torch.strided:
            return f"tensors of layout {tensor.layout}"
        return self._engine.host_refusal if tensor.is_cpu else ""

    def _fall_back(self, reason: str, names: tuple[str, ...], *arguments: Any) -> Any:
        """The call on the inner gloo group, by the first of the names that it has."""
        backend = self._engine.fall_back(reason)
        for name in names:
            function: Optional[Callable[..., Any]] = getattr(backend, name, None)
            if function is not None:
                return function(*(a for a in arguments if a is not None))
        raise NotImplementedError(f"tutti: {reason}: gloo has no {names[0]}")

    # ---- Reductions -----------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Reduces one tensor in place."""
        tensor = _only(tensors, "all_reduce")
        reduction = reductions.find(_operation(opts), tensor.dtype, "all_reduce")
        reason = self._other(tensor)
        if reason:
            return self._fall_back(reason, ("allreduce",), [tensor], opts)
        call = self._allreduce_call(tensor, reduction)
        return self._submit("all_reduce", call, [tensor], _is_async(opts), [tensor])

    def _allreduce_call(self, tensor: torch.Tensor, reduction: reductions.Reduction) -> Call:
        if reduction.is_plain and _is_plain(tensor):
            return self._plain_allreduce(tensor, reduction)
        ranks = self._engine.ranks

        def call(comm: int, stream: Any) -> int:
            buffer = _readable(reduction.before(tensor))
            status = self._plain_allreduce(buffer, reduction)(comm, stream)
            if status == 0:
                reduction.after(buffer, ranks)
                _settle(buffer, tensor)
            return status

        return _no_grad(call)

    def _plain_allreduce(self, buffer: torch.Tensor, reduction: reductions.Reduction) -> PlainCall:
        return PlainCall(
            self._engine.functions.allreduce,
            bindings.IN_PLACE,
            buffer.data_ptr(),
            buffer.numel(),
            reduction.type,
            reduction.op,
        )

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduces each tensor in place; small ones of one type in one call."""
        what = "all_reduce_coalesced"
        tensors = list(tensors)
        if not tensors:
            return FinishedWork(tensors)
        operation = _operation(opts)
        found = [reductions.find(operation, tensor.dtype, what) for tensor in tensors]
        reason = self._other(tensors[0])
        if reason:
            return self._fall_back(reason, ("allreduce_coalesced",), tensors, opts)
        is_one_type = all(tensor.dtype is tensors[0].dtype for tensor in tensors)
        total = sum(tensor.nbytes for tensor in tensors)
        if len(tensors) > 1 and is_one_type and total <= COALESCE_BYTES_MAX:
            call = self._flat_allreduce_call(tensors, found[0])
        else:
            call = _in_turn(
                [self._allreduce_call(tensor, one) for tensor, one in zip(tensors, found)]
            )
        return self._submit(what, call, tensors, _is_async(opts), list(tensors))

    def _flat_allreduce_call(
        self, tensors: list[torch.Tensor], reduction: reductions.Reduction
    ) -> Call:
        def call(comm: int, stream: Any) -> int:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            status = self._allreduce_call(flat, reduction)(comm, stream)
            if status == 0:
                parts = flat.split([tensor.numel() for tensor in tensors])
                for tensor, part in zip(tensors, parts):
                    tensor.copy_(part.view(tensor.shape))
            return status

        return _no_grad(call)

    def reduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Reduces one tensor into that of the root; the others' keep their values."""
        tensor = _only(tensors, "reduce")
        reduction = reductions.find(_operation(opts), tensor.dtype, "reduce")
        reason = self._other(tensor)
        if reason:
            return self._fall_back(reason, ("reduce",), [tensor], opts)
        functions, ranks, root = self._engine.functions, self._engine.ranks, _root(opts)
        is_root = root == self._engine.rank

        def call(comm: int, stream: Any) -> int:
            buffer = _readable(reduction.before(tensor))
            status = functions.reduce(
                comm,
                bindings.IN_PLACE if is_root else buffer.data_ptr(),
                buffer.data_ptr() if is_root else None,
                buffer.numel(),
                reduction.type,
                reduction.op,
                root,
                stream,
            )
            if status == 0 and is_root:
                reduction.after(buffer, ranks)
                _settle(buffer, tensor)
            return status

        return self._submit("reduce", _no_grad(call), [tensor], _is_async(opts), [tensor])

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Any:
        """Block r of the reduced input to rank r."""
        what = "reduce_scatter_single"
        reason = self._other(output)
        if reason:
            names = ("reduce_scatter_single", "_reduce_scatter_base")
            return self._fall_back(reason, names, output, input, opts)
        call = self._reduce_scatter_call(what, output, input, _operation(opts))
        return self._submit(what, call, [output], _is_async(opts), [output, input])

    _reduce_scatter_base = reduce_scatter_single

    def _reduce_scatter_call(
        self, what: str, output: torch.Tensor, input: torch.Tensor, operation: Any
    ) -> Call:
        _check_types(what, output, [input])
        ranks, function = self._engine.ranks, self._engine.functions.reduce_scatter_block
        count = output.numel()
        _check_size(what, "the input", input.numel(), count * ranks)
        reduction = reductions.find(operation, output.dtype, what)
        kind, op = reduction.type, reduction.op
        if reduction.is_plain:
            source, place = _memory(input), _memory(output)
            if source is not None and place is not None and _are_apart(source, place):
                return PlainCall(function, source[0], place[0], count, kind, op)

        def call(comm: int, stream: Any) -> int:
            source = _readable(reduction.before(input))
            buffer = _writable(output)
            # MPI's calls take no buffers that overlap, FSDP's have them.
            if buffer is output and _overlap(input, output):
                buffer = torch.empty_like(output)
            status = function(comm, source.data_ptr(), buffer.data_ptr(), count, kind, op, stream)
            if status == 0:
                reduction.after(buffer, ranks)
                _settle(buffer, output)
            return status

        return _no_grad(call)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Several reduce_scatter_single in one work."""
        what = "reduce_scatter_single_coalesced"
        outputs, inputs = list(outputs), list(inputs)
        if not outputs:
            return FinishedWork(outputs)
        reason = self._other(outputs[0])
        if reason:
            names = ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced")
            return self._fall_back(reason, names, outputs, inputs, opts)
        operation = _operation(opts)
        calls = [
            self._reduce_scatter_call(what, output, input, operation)
            for output, input in zip(outputs, inputs)
        ]
        used = [*outputs, *inputs]
        return self._submit(what, _in_turn(calls), outputs, _is_async(opts), used)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None
    ) -> Any:
        """Tensor r of each rank's list, reduced, to rank r; sizes may differ."""
        what = "reduce_scatter"
        output = _only(outputs, what)
        blocks = list(inputs if isinstance(outputs, torch.Tensor) else _only_list(inputs, what))
        ranks, functions, rank = self._engine.ranks, self._engine.functions, self._engine.rank
        _check_size(what, "the input list", len(blocks), ranks)
        _check_types(what, output, blocks)
        _check_size(what, f"input {rank}", blocks[rank].numel(), output.numel())
        reduction = reductions.find(_operation(opts), output.dtype, what)
        reason = self._other(output)
        if reason:
            return self._fall_back(reason, ("reduce_scatter",), [output], [blocks], opts)
        counts = _numbers([block.numel() for block in blocks])

        def call(comm: int, stream: Any) -> int:
            flat = torch.cat([block.reshape(-1) for block in blocks])
            source = _readable(reduction.before(flat))
            buffer = _writable(output)
            status = functions.reduce_scatter(
                comm,
                source.data_ptr(),
                buffer.data_ptr(),
                counts,
                reduction.type,
                reduction.op,
                stream,
            )
            if status == 0:
                reduction.after(buffer, ranks)
                _settle(buffer, output)
            return status

        used = [output, *blocks]
        return self._submit(what, _no_grad(call), [output], _is_async(opts), used, blocks)

    # ---- Data that is moved ---------------------------------------------------------------------

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """The root's tensor to all."""
        tensor = _only(tensors, "broadcast")
        reason = self._other(tensor)
        if reason:
            return self._fall_back(reason, ("broadcast",), [tensor], opts)
        call = self._broadcast_call(tensor, _root(opts))
        return self._submit("broadcast", call, [tensor], _is_async(opts), [tensor])

    def _broadcast_call(self, tensor: torch.Tensor, root: int) -> Call:
        function, size = self._engine.functions.bcast, tensor.nbytes
        if _is_plain(tensor):
            return PlainCall(function, tensor.data_ptr(), size, bindings.BYTE, root)
        is_root = root == self._engine.rank

        def call(comm: int, stream: Any) -> int:
            buffer = _readable(tensor) if is_root else _writable(tensor)
            status = function(comm, buffer.data_ptr(), size, bindings.BYTE, root, stream)
            if status == 0 and not is_root:
                _settle(buffer, tensor)
            return status

        return _no_grad(call)

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None, timeout: Any = None
    ) -> Any:
        """The ranks' tensors, one behind the other."""
        what = "all_gather_single"
        reason = self._other(input)
        if reason:
            names = ("all_gather_single", "_allgather_base")
            return self._fall_back(reason, names, output, input, opts)
        call = self._allgather_call(what, output, input)
        return self._submit(what, call, [output], _is_async(opts), [input, output])

    _allgather_base = all_gather_single

    def _allgather_call(self, what: str, output: torch.Tensor, input: torch.Tensor) -> Call:
        _check_types(what, input, [output])
        engine = self._engine
        function, size = engine.functions.allgather, input.nbytes
        _check_size(what, "the output", output.numel(), input.numel() * engine.ranks)
        source, place = _memory(input), _memory(output)
        if source is not None and place is not None:
            # The own block may lie in the output; elsewhere there it would be overwritten.
            if source[0] == place[0] + engine.rank * size:
                return PlainCall(function, bindings.IN_PLACE, place[0], size, bindings.BYTE)
            if _are_apart(source, place):
                return PlainCall(function, source[0], place[0], size, bindings.BYTE)

        def call(comm: int, stream: Any) -> int:
            source = _apart(_readable(input), [output])
            buffer = _writable(output)
            status = function(
                comm, source.data_ptr(), buffer.data_ptr(), size, bindings.BYTE, stream
            )
            if status == 0:
                _settle(buffer, output)
            return status

        return _no_grad(call)

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Several all_gather_single in one work."""
        what = "all_gather_single_coalesced"
        outputs, inputs = list(outputs), list(inputs)
        if not outputs:
            return FinishedWork(outputs)
        reason = self._other(inputs[0])
        if reason:
            names = ("all_gather_single_coalesced", "allgather_into_tensor_coalesced")
            return self._fall_back(reason, names, outputs, inputs, opts)
        calls = [self._allgather_call(what, out, one) for out, one in zip(outputs, inputs)]
        used = [*inputs, *outputs]
        return self._submit(what, _in_turn(calls), outputs, _is_async(opts), used)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Any:
        """The ranks' tensors into the tensors of a list; sizes may differ."""
        what = "all_gather"
        tensor = _only(inputs, what)
        blocks = list(outputs if isinstance(inputs, torch.Tensor) else _only_list(outputs, what))
        reason = self._other(tensor)
        if reason:
            return self._fall_back(reason, ("allgather",), [blocks], [tensor], opts)
        call = self._allgather_list_call(what, blocks, tensor)
        return self._submit(what, call, [blocks], _is_async(opts), [tensor, *blocks], [tensor])

    def _allgather_list_call(
        self, what: str, outputs: list[torch.Tensor], input: torch.Tensor
    ) -> Call:
        engine = self._engine
        _check_size(what, "the output list", len(outputs), engine.ranks)
        _check_types(what, input, outputs)
        _check_size(what, f"output {engine.rank}", outputs[engine.rank].numel(), input.numel())
        functions = engine.functions

        def call(comm: int, stream: Any) -> int:
            source = _apart(_readable(input), outputs)
            flat, buffers = _one_behind_the_other(outputs)
            base, sizes, displacements = _places(buffers)
            status = functions.allgatherv(
                comm,
                source.data_ptr(),
                source.nbytes,
                base,
                sizes,
                displacements,
                bindings.BYTE,
                stream,
            )
            if status == 0:
                for buffer, output in zip(buffers, outputs):
                    _settle(buffer, output)
            del flat
            return status

        return _no_grad(call)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """outputs[r][i] becomes inputs[i] of rank r."""
        what = "all_gather_coalesced"
        inputs = list(inputs)
        if not inputs:
            return FinishedWork(outputs)
        reason = self._other(inputs[0])
        if reason:
            return self._fall_back(reason, ("allgather_coalesced",), outputs, inputs, opts)
        calls = [
            self._allgather_list_call(what, [of_rank[i] for of_rank in outputs], tensor)
            for i, tensor in enumerate(inputs)
        ]
        used = [*inputs, *(tensor for of_rank in outputs for tensor in of_rank)]
        return self._submit(what, _in_turn(calls), outputs, _is_async(opts), used, inputs)

    def _root_blocks(
        self, what: str, tensor: torch.Tensor, lists: Any, tensors: Any
    ) -> list[torch.Tensor]:
        """The root's list, which is one of a list where the tensor is, too."""
        blocks = list(lists if isinstance(tensors, torch.Tensor) else _only_list(lists, what))
        _check_size(what, "the root's list", len(blocks), self._engine.ranks)
        _check_types(what, tensor, blocks)
        return blocks

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Any:
        """The ranks' tensors into the tensors of the root's list."""
        what = "gather"
        tensor, root = _only(inputs, what), _root(opts)
        is_root = root == self._engine.rank
        blocks = self._root_blocks(what, tensor, outputs, inputs) if is_root else []
        reason = self._other(tensor)
        if reason:
            given = [blocks] if is_root else []
            return self._fall_back(reason, ("gather",), given, [tensor], opts)
        functions = self._engine.functions

        def call(comm: int, stream: Any) -> int:
            source = _apart(_readable(tensor), blocks)
            flat, buffers = _one_behind_the_other(blocks)
            base, sizes, displacements = _places(buffers)
            status = functions.gatherv(
                comm,
                source.data_ptr(),
                source.nbytes,
                base if is_root else None,
                sizes if is_root else None,
                displacements if is_root else None,
                bindings.BYTE,
                root,
                stream,
            )
            if status == 0:
                for buffer, output in zip(buffers, blocks):
                    _settle(buffer, output)
            del flat
            return status

        used = [tensor, *blocks]
        return self._submit(what, _no_grad(call), [blocks], _is_async(opts), used, [tensor])

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Any:
        """The tensors of the root's list, one to each rank."""
        what = "scatter"
        tensor, root = _only(outputs, what), _root(opts)
        is_root = root == self._engine.rank
        blocks = self._root_blocks(what, tensor, inputs, outputs) if is_root else []
        reason = self._other(tensor)
        if reason:
            given = [blocks] if is_root else []
            return self._fall_back(reason, ("scatter",), [tensor], given, opts)
        functions = self._engine.functions

        def call(comm: int, stream: Any) -> int:
            buffer = _writable(tensor)
            flat, sources = _copied_together(blocks)
            base, sizes, displacements = _places(sources)
            status = functions.scatterv(
                comm,
                base if is_root else None,
                sizes if is_root else None,
                displacements if is_root else None,
                buffer.data_ptr(),
                buffer.nbytes,
                bindings.BYTE,
                root,
                stream,
            )
            if status == 0:
                _settle(buffer, tensor)
            del flat
            return status

        used = [tensor, *blocks]
        return self._submit(what, _no_grad(call), [tensor], _is_async(opts), used, blocks)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Any = None,
        input_splits: Any = None,
        opts: Any = None,
        timeout: Any = None,
    ) -> Any:
        """Rows of the input, split by ranks; without splits the same number to each rank."""
        what = "all_to_all_single"
        _check_types(what, output, [input])
        reason = self._other(output)
        if reason:
            names = ("all_to_all_single", "alltoall_base")
            given = (list(output_splits or []), list(input_splits or []))
            return self._fall_back(reason, names, output, input, *given, opts)
        ranks, functions = self._engine.ranks, self._engine.functions
        is_equal = not output_splits and not input_splits
        if is_equal:
            _check_size(what, "the output", output.numel(), input.numel())
            if input.numel() % ranks:
                raise ValueError(
                    f"tutti: {what}: {input.numel()} elements cannot be split among {ranks} ranks"
                )
        else:
            sent = _row_bytes(what, "input", input, input_splits, ranks)
            received = _row_bytes(what, "output", output, output_splits, ranks)

        def on(source: int, buffer: int) -> PlainCall:
            if is_equal:
                size = input.nbytes // ranks
                return PlainCall(functions.alltoall, source, buffer, size, bindings.BYTE)
            return PlainCall(
                functions.alltoallv,
                source,
                _numbers(sent),
                _numbers(_sums(sent)),
                buffer,
                _numbers(received),
                _numbers(_sums(received)),
                bindings.BYTE,
            )

        def call(comm: int, stream: Any) -> int:
            source = _apart(_readable(input), [output])
            buffer = _writable(output)
            status = on(source.data_ptr(), buffer.data_ptr())(comm, stream)
            if status == 0:
                _settle(buffer, output)
            return status

        from_there, to_there = _memory(input), _memory(output)
        is_simple = from_there and to_there and _are_apart(from_there, to_there)
        run: Call = on(input.data_ptr(), output.data_ptr()) if is_simple else _no_grad(call)
        return self._submit(what, run, [output], _is_async(opts), [output, input])

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Tensor r of the inputs to rank r; sizes may differ."""
        what = "all_to_all"
        outputs, inputs = list(outputs), list(inputs)
        ranks, functions = self._engine.ranks, self._engine.functions
        _check_size(what, "the output list", len(outputs), ranks)
        _check_size(what, "the input list", len(inputs), ranks)
        _check_types(what, outputs[0], [*outputs, *inputs])
        reason = self._other(outputs[0])
        if reason:
            return self._fall_back(reason, ("alltoall",), outputs, inputs, opts)

        def call(comm: int, stream: Any) -> int:
            flat, sources = _copied_together(inputs)
            flat_out, buffers = _one_behind_the_other(outputs)
            status = functions.alltoallv(
                comm, *_places(sources), *_places(buffers), bindings.BYTE, stream
            )
            if status == 0:
                for buffer, output in zip(buffers, outputs):
                    _settle(buffer, output)
            del flat, flat_out
            return status

        used = [*outputs, *inputs]
        return self._submit(what, _no_grad(call), outputs, _is_async(opts), used, inputs)

    # ---- Barrier, messages, the rest ------------------------------------------------------------

    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:
        """Returns when all ranks have come; of a CUDA device: when its stream is empty, too."""
        engine = self._engine
        if engine.host_refusal:
            return self._fall_back(engine.host_refusal, ("barrier",), opts)
        device = getattr(opts, "device", None)
        if device is not None and device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        limit = getattr(opts, "timeout", NO_TIMEOUT) if opts is not None else timeout or NO_TIMEOUT
        call: Call = engine.functions.barrier
        if recorder is not None:
            call = recorder.record(engine, "barrier", call, [], [], [])
        if limit > timedelta(0) and limit < engine.timeout and not _is_async(opts):
            work = engine.submit_host("barrier", call, [], True, [])
            work.wait(limit)
            return work
        return engine.submit_host("barrier", call, [], bool(_is_async(opts)), [])

    def monitored_barrier(
        self, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
    ) -> Any:
        """By the store: an error says who has not come."""
        self._engine.monitored_barrier(timeout, wait_all_ranks)

    def _messages(self, what: str, tensors: Any) -> tuple[Any, list[torch.Tensor]]:
        tensor = _only(tensors, what)
        reason = f"{what}: messages between two ranks are not carried"
        if tensor.is_cuda:
            return self._engine.fall_back_cuda(reason), [tensor]
        return self._engine.fall_back(reason), [tensor]

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """By the fall-back."""
        group, given = self._messages("send", tensors)
        return group.send([_readable(given[0])], dst, tag)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """By the fall-back."""
        group, given = self._messages("recv", tensors)
        return group.recv(given, src, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """By the fall-back."""
        group, given = self._messages("recv", tensors)
        return group.recv_anysource(given, tag)

    def batch_cuda_messages(self, make: Callable[[], Any]) -> list[Any]:
        """What `make` sends and receives, CUDA tensors all, as one operation of NCCL.

        One by one, two ranks that both send first would wait for each other.
        """
        backend = self._engine.fall_back_cuda("a batch: messages between two ranks are not carried")
        backend._start_coalescing()
        try:
            make()
        finally:
            work = backend._end_coalescing()
        return [work]

    @property
    def supports_coalescing(self) -> bool:
        """False: batch_isend_irecv makes call after call."""
        return False

    @property
    def supports_splitting(self) -> bool:
        """False: new_group and DeviceMesh make groups by the store."""
        return False

    def _set_sequence_number_for_group(self) -> None:
        self._engine.sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._engine.sequence

    def set_timeout(self, timeout: timedelta) -> None:
        """Of waits from now on; calls keep the time-out with which the group was made."""
        self._engine.timeout = timeout

    def abort(self) -> None:
        """Refuses later calls and ends the others."""
        self._engine.abort()

    def shutdown(self) -> None:
        """Finishes what is queued and frees the communicators."""
        self._engine.close()


def _only_list(lists: Any, what: str) -> Any:
    if len(lists) != 1:
        raise ValueError(f"tutti: {what} takes one list of tensors of each rank, not {len(lists)}")
    return lists[0]


def _in_turn(calls: list[Call]) -> Call:
    def run(comm: int, stream: Any) -> int:
        for call in calls:
            status = call(comm, stream)
            if status:
                return status
        return 0

    return run


def _row_bytes(what: str, name: str, tensor: torch.Tensor, splits: Any, ranks: int) -> list[int]:
    """Bytes of each rank's rows."""
    rows = tensor.shape[0] if tensor.dim() else 0
    splits = [int(split) for split in splits] if splits else []
    if not splits:
        if rows % ranks:
            raise ValueError(f"tutti: {what}: {rows} {name} rows cannot be split among {ranks}")
        splits = [rows // ranks] * ranks
    if len(splits) != ranks or sum(splits) != rows or min(splits) < 0:
        raise ValueError(
            f"tutti: {what}: {name} splits {splits} do not split {rows} rows among {ranks} ranks"
        )
    row = tensor.nbytes // rows if rows else 0
    return [split * row for split in splits]


def _sums(counts: list[int]) -> list[int]:
    found, total = [], 0
    for count in counts:
        found.append(total)
        total += count
    return found


def _one_behind_the_other(tensors: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
    """Plain memory for results. On GPUs one block, as NCCL wants it; (block, its parts)."""
    if not tensors or tensors[0].is_cpu:
        return None, [_writable(tensor) for tensor in tensors]
    sizes = [tensor.numel() for tensor in tensors]
    flat = torch.empty(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
    parts = flat.split(sizes)
    return flat, [part.view(tensor.shape) for part, tensor in zip(parts, tensors)]


def _copied_together(tensors: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
    """Plain memory with the values of tensors. On GPUs one block; (block, its parts)."""
    if not tensors or tensors[0].is_cpu:
        return None, [_readable(tensor) for tensor in tensors]
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    return flat, list(flat.split([tensor.numel() for tensor in tensors]))
