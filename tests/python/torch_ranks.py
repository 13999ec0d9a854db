# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""One rank of the tests of test_torch.py: `python torch_ranks.py CASE,...`: functions here.

Every rank knows what the others put in, so each checks its results by itself. Floats are compared
bit by bit: sums are in the order of the ranks.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import re
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist

if os.environ.get("NO_IMPORT") != "1":
    import tutti_hpc.torch  # noqa: F401

RANK = int(os.environ["RANK"])
RANKS = int(os.environ["WORLD_SIZE"])
ON_NODES = "TUTTI_VIRTUAL_NODES" in os.environ
DEVICE = os.environ.get("TEST_DEVICE", "cpu")
REFERENCE = "nccl" if DEVICE == "cuda" else "gloo"
if DEVICE == "cuda":
    # Each rank has a GPU of its own, or all share one (under NVIDIA's multi-process service).
    gpu = RANK % torch.cuda.device_count()
    torch.cuda.set_device(gpu)
    torch.set_default_device(f"cuda:{gpu}")
    if torch.cuda.device_count() < RANKS:
        os.environ.setdefault("NCCL_HOSTID", f"rank{RANK}")  # NCCL wants hosts of their own then.
SIZES = (0, 1, 1001, 300_001)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
OTHERS = tuple(
    getattr(torch, name) for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "bool")
)
Op = dist.ReduceOp
compared = 0


@functools.cache
def job_store() -> Any:
    """One for all worlds of the job: a second one could find the first one's server."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, RANKS, RANK == 0)


worlds = 0


def start(backend: str = "tutti", seconds: float = 60) -> None:
    global worlds
    worlds += 1
    store = dist.PrefixStore(f"world{worlds}", job_store())
    limit = timedelta(seconds=seconds)
    dist.init_process_group(backend, store=store, rank=RANK, world_size=RANKS, timeout=limit)


def engine() -> Any:
    return engine_of(dist.group.WORLD)


def engine_of(group: Any) -> Any:
    if hasattr(group, "_engine"):
        return group._engine
    from tutti_hpc.torch import backend

    (ours,) = [b for b in backend._alive if b._engine.ranks == RANKS]
    return ours._engine


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same(what: Any, found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Equal bit by bit. PLANT=1 makes each wanted value wrong, to show that this can fail."""
    global compared
    compared += wanted.numel()
    assert found.dtype is wanted.dtype, (what, found.dtype, wanted.dtype)
    assert found.shape == wanted.shape, (what, found.shape, wanted.shape)
    wanted_bits = bits(wanted)
    if os.environ.get("PLANT") == "1":
        wanted_bits = wanted_bits ^ 1
    differ = bits(found) != wanted_bits
    assert not bool(differ.any()), (what, int(differ.sum()), found, wanted)


def values(rank: int, count: int, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    """What `rank` puts in, the same on host and GPU."""
    with torch.device("cpu"):
        return _host_values(rank, count, dtype, salt).to(DEVICE)


def _host_values(rank: int, count: int, dtype: torch.dtype, salt: int) -> torch.Tensor:
    """Half precision gets whole numbers, whose sums are exact; on several nodes all floats do.

    There the sums are not in the order of the ranks.
    """
    generator = torch.Generator().manual_seed(1000 * salt + rank + 1)
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).to(dtype)
    if ON_NODES and (dtype in (torch.float32, torch.float64) or dtype.is_complex):
        return torch.randint(1, 6, (count,), generator=generator).to(dtype)
    if dtype in (torch.float32, torch.float64):
        return torch.randn(count, generator=generator, dtype=dtype)
    if dtype.is_complex:
        return torch.randn(count, generator=generator, dtype=dtype)
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return torch.randint(0, 100, (count,), generator=generator, dtype=torch.uint8).view(dtype)
    return torch.randint(1, 6, (count,), generator=generator).to(dtype)


def fold(tensors: list[torch.Tensor], combine: Callable[..., torch.Tensor]) -> torch.Tensor:
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total = combine(total, tensor)
    return total


def reduced(tensors: list[torch.Tensor], op: Any) -> torch.Tensor:
    dtype = tensors[0].dtype
    if dtype is torch.bool:
        raise AssertionError("bool has a case of its own")
    if op == Op.AVG:
        total = fold(tensors, torch.add)
        whole = not (dtype.is_floating_point or dtype.is_complex)
        return total.div(len(tensors), rounding_mode="trunc" if whole else None).to(dtype)
    combine = {
        Op.SUM: torch.add,
        Op.PRODUCT: torch.mul,
        Op.MIN: torch.minimum,
        Op.MAX: torch.maximum,
        Op.BAND: torch.bitwise_and,
        Op.BOR: torch.bitwise_or,
        Op.BXOR: torch.bitwise_xor,
    }[op]
    return fold(tensors, combine)


def operations(dtype: torch.dtype) -> list[Any]:
    found = [Op.SUM, Op.AVG]
    if not dtype.is_complex:
        found += [Op.PRODUCT, Op.MIN, Op.MAX]
        if not dtype.is_floating_point:
            found += [Op.BAND, Op.BOR, Op.BXOR]
    return found


def all_of(count: int, dtype: torch.dtype, salt: int = 0) -> list[torch.Tensor]:
    return [values(rank, count, dtype, salt) for rank in range(RANKS)]


def gather_single(output: torch.Tensor, tensor: torch.Tensor, **more: Any) -> Any:
    name = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
    return getattr(dist, name)(output, tensor, **more)


def scatter_single(output: torch.Tensor, tensor: torch.Tensor, **more: Any) -> Any:
    has_new = hasattr(dist, "reduce_scatter_single")
    name = "reduce_scatter_single" if has_new else "reduce_scatter_tensor"
    return getattr(dist, name)(output, tensor, **more)


def refused(call: Callable[[], Any], seconds_max: float = 60) -> str:
    """What the error says with which a call ends in time."""
    began = time.monotonic()
    said = ""
    try:
        call()
    except (RuntimeError, ValueError) as error:
        said = str(error)
    took = time.monotonic() - began
    assert said, "no error"
    assert took < seconds_max, (took, said)
    return said


# ---- Collectives --------------------------------------------------------------------------------


def reductions() -> None:
    """all_reduce, reduce and both reduce_scatters by type, operation, size; waited for and not."""
    start()
    for dtype in (*INTEGERS, *FLOATS, *COMPLEX):
        for op in operations(dtype):
            for count in SIZES if dtype in (torch.int32, torch.float32) else SIZES[:3]:
                where = (dtype, op, count)
                inputs = all_of(count, dtype)
                wanted = reduced(inputs, op)
                for is_async in (False, True):
                    tensor = inputs[RANK].clone()
                    work = dist.all_reduce(tensor, op, async_op=is_async)
                    if is_async:
                        work.wait()
                    same(("all_reduce", where), tensor, wanted)
                root = RANKS - 1
                tensor = inputs[RANK].clone()
                dist.reduce(tensor, root, op)
                same(("reduce", where), tensor, wanted if root == RANK else inputs[RANK])
                if dtype.is_complex:
                    continue
                blocks = [all_of(count, dtype, salt=r) for r in range(RANKS)]
                mine = [blocks[r][RANK] for r in range(RANKS)]
                wanted = reduced(blocks[RANK], op)
                output = torch.empty_like(wanted)
                scatter_single(output, torch.cat(mine), op=op)
                same(("reduce_scatter_single", where), output, wanted)
                output = torch.empty_like(wanted)
                dist.reduce_scatter(output, mine, op=op)
                same(("reduce_scatter", where), output, wanted)


def moves() -> None:
    """What only moves data, by type and size."""
    start()
    for dtype in (*INTEGERS, *FLOATS, *OTHERS, torch.complex64):
        for count in SIZES if dtype is torch.float32 else SIZES[:3]:
            where = (dtype, count)
            inputs = all_of(count, dtype)
            everyone = torch.cat([bits(tensor) for tensor in inputs]).view(dtype)
            mine = inputs[RANK]
            output = torch.empty(count * RANKS, dtype=dtype)
            gather_single(output, mine)
            same(("all_gather_single", where), output, everyone)
            outputs = [torch.empty(count, dtype=dtype) for _ in inputs]
            dist.all_gather(outputs, mine)
            for rank, found in enumerate(outputs):
                same(("all_gather", where, rank), found, inputs[rank])
            for root in {0, RANKS - 1}:
                tensor = mine.clone()
                dist.broadcast(tensor, root)
                same(("broadcast", where, root), tensor, inputs[root])
                outputs = [torch.empty(count, dtype=dtype) for _ in inputs]
                dist.gather(mine, outputs if root == RANK else None, root)
                for rank, found in enumerate(outputs if root == RANK else []):
                    same(("gather", where, rank), found, inputs[rank])
                tensor = torch.empty(count, dtype=dtype)
                dist.scatter(tensor, inputs if root == RANK else None, root)
                same(("scatter", where, root), tensor, inputs[RANK])
            sent = [values(RANK, count, dtype, salt=to) for to in range(RANKS)]
            wanted = [values(rank, count, dtype, salt=RANK) for rank in range(RANKS)]
            outputs = [torch.empty(count, dtype=dtype) for _ in inputs]
            dist.all_to_all(outputs, sent)
            for rank, found in enumerate(outputs):
                same(("all_to_all", where, rank), found, wanted[rank])
            flat = torch.cat([bits(tensor) for tensor in sent]).view(dtype)
            output = torch.empty_like(flat)
            dist.all_to_all_single(output, flat)
            expected = torch.cat([bits(tensor) for tensor in wanted]).view(dtype)
            same(("all_to_all_single", where), output, expected)


def shapes() -> None:
    """Uneven sizes, memory that is not contiguous, buffers that overlap, scalars."""
    start()
    # all_to_all_single: row counts of both sides differ by rank; some are 0.
    rows = [[(a * 3 + b) % 4 for b in range(RANKS)] for a in range(RANKS)]
    given = [
        torch.arange(sum(rows[r]) * 5, dtype=torch.int32).view(-1, 5) + 1000 * r
        for r in range(RANKS)
    ]
    received = [rows[r][RANK] for r in range(RANKS)]
    output = torch.full((sum(received), 5), -1, dtype=torch.int32)
    dist.all_to_all_single(output, given[RANK], received, rows[RANK])
    wanted = torch.cat([given[r].split(rows[r])[RANK] for r in range(RANKS)])
    same("uneven all_to_all_single", output, wanted)
    # Lists whose tensors have several sizes.
    sizes = [7 * rank for rank in range(RANKS)]
    inputs = [values(rank, sizes[rank], torch.float32) for rank in range(RANKS)]
    outputs = [torch.empty(size) for size in sizes]
    dist.all_gather(outputs, inputs[RANK])
    for rank in range(RANKS):
        same("uneven all_gather", outputs[rank], inputs[rank])
    blocks = [
        [values(r, sizes[to], torch.float32, salt=to) for to in range(RANKS)] for r in range(RANKS)
    ]
    output = torch.empty(sizes[RANK])
    dist.reduce_scatter(output, blocks[RANK])
    wanted = fold([blocks[r][RANK] for r in range(RANKS)], torch.add)
    same("uneven reduce_scatter", output, wanted)
    # Not contiguous: transposed, with steps, channels last.
    bases = [values(rank, 60, torch.float32).view(6, 10) for rank in range(RANKS)]
    for name, view in (("transposed", lambda t: t.t()), ("steps", lambda t: t[::2, ::3])):
        base = bases[RANK].clone()
        dist.all_reduce(view(base))
        same(name, view(base), fold([view(t) for t in bases], torch.add))
        untouched = torch.ones(6, 10, dtype=torch.bool)
        view(untouched).fill_(False)
        same(name, base[untouched], bases[RANK][untouched])
        base = bases[RANK].clone()
        dist.broadcast(view(base), 0)
        same(name, view(base), view(bases[0]))
        one = view(bases[RANK])
        outputs = [torch.empty(one.shape[::-1]).t() for _ in range(RANKS)]
        dist.all_gather(outputs, one)
        for rank in range(RANKS):
            same(name, outputs[rank], view(bases[rank]))
    # FSDP gathers from and scatters into a part of the large buffer.
    whole = torch.zeros(4 * RANKS)
    own = whole[4 * RANK : 4 * RANK + 4]
    own.fill_(RANK + 1.0)
    gather_single(whole, own)
    same("gather in place", whole, torch.arange(1.0, RANKS + 1).repeat_interleave(4))
    whole = torch.arange(4.0 * RANKS)
    own = whole[4 * RANK : 4 * RANK + 4]
    wanted = own * RANKS
    scatter_single(own, whole)
    same("scatter in place", own, wanted)
    scalar = torch.tensor(RANK + 1.0)
    dist.all_reduce(scalar)
    same("scalar", scalar, torch.tensor(RANKS * (RANKS + 1) / 2))
    # Parameters and tensors of inference mode are written, too.
    parameter = torch.nn.Parameter(torch.ones(3))
    for is_async in (False, True):
        work = dist.all_reduce(parameter, Op.AVG, async_op=is_async)
        if is_async:
            work.wait()
        same("parameter", parameter, torch.ones(3))
    with torch.inference_mode():
        frozen = torch.ones(4, 5)
    dist.all_reduce(frozen.t(), async_op=True).wait()
    same("inference", frozen, torch.full((4, 5), float(RANKS)))


def aliases() -> None:
    """Inputs that lie in another rank's block of the output, or across blocks."""
    start()
    for n in (4, 1000, 300_001):
        wanted = torch.arange(float(RANKS)).repeat_interleave(n) + 1
        for shift in (0, 1, n // 2):
            whole = torch.full((n * RANKS + n,), 1.0 + RANK)
            begin = (n * ((RANK + 1) % RANKS) if shift < 2 else n * RANK) + shift * (shift > 1)
            gather_single(whole[: n * RANKS], whole[begin : begin + n])
            same(f"gathered from {begin}", whole[: n * RANKS], wanted)
        blocks = [torch.full((n,), 1.0 + RANK) for _ in range(RANKS)]
        dist.all_gather(blocks, blocks[(RANK + 1) % RANKS])
        same("gathered from a list", torch.cat(blocks), wanted)
        blocks = [torch.full((n,), 1.0 + RANK) for _ in range(RANKS)] if RANK == 0 else None
        own = blocks[-1] if RANK == 0 else torch.full((n,), 1.0 + RANK)
        dist.gather(own, blocks)
        if RANK == 0:
            same("gathered at the root", torch.cat(blocks), wanted)
        whole = torch.full((n * RANKS + n,), 1.0)
        scatter_single(whole[:n], whole[n // 2 : n // 2 + n * RANKS])
        same("scattered", whole[:n], torch.full((n,), float(RANKS)))
        rows = torch.arange(float(RANKS)).repeat_interleave(n) + 10 * RANK
        dist.all_to_all_single(rows, rows)
        same("exchanged", rows, 10 * torch.arange(float(RANKS)).repeat_interleave(n) + RANK)


def special_operations() -> None:
    """bool, PREMUL_SUM, and what is refused."""
    start()
    inputs = all_of(1001, torch.bool)
    ors = fold(inputs, torch.logical_or)
    ands = fold(inputs, torch.logical_and)
    xors = fold(inputs, torch.logical_xor)
    cases = [(Op.SUM, ors), (Op.MAX, ors), (Op.BOR, ors), (Op.PRODUCT, ands), (Op.MIN, ands)]
    for op, wanted in [*cases, (Op.BAND, ands), (Op.BXOR, xors)]:
        tensor = inputs[RANK].clone()
        dist.all_reduce(tensor, op)
        same(("bool", op), tensor, wanted)
    for factor in (0.5, torch.tensor([0.25])):
        inputs = all_of(1001, torch.float32)
        tensor = inputs[RANK].clone()
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        same("premul", tensor, fold([t * factor for t in inputs], torch.add))
        output = torch.empty(1001)
        scatter_single(output, inputs[RANK].repeat(RANKS), op=dist._make_nccl_premul_sum(factor))
        same("premul", output, fold([t * factor for t in inputs], torch.add))
    unsupported = [
        (torch.float32, Op.BAND, "BAND on torch.float32"),
        (torch.complex64, Op.MAX, "MAX"),
        (torch.bool, Op.AVG, "AVG on torch.bool"),
        (torch.float8_e4m3fn, Op.SUM, "SUM on torch.float8_e4m3fn"),
        (torch.int32, dist._make_nccl_premul_sum(2.0), "PREMUL_SUM on torch.int32"),
    ]
    for dtype, op, words in unsupported:
        given = torch.zeros(3, dtype=torch.float32).to(dtype)
        said = refused(functools.partial(dist.all_reduce, given, op))
        assert words in said, (words, said)
    wrong = [
        (lambda: dist.all_to_all_single(torch.empty(7), torch.empty(7)), "split"),
        (lambda: dist.all_gather([torch.empty(3)], torch.empty(3)), "output list"),
        (lambda: gather_single(torch.empty(3 * RANKS + 1), torch.empty(3)), "the output has"),
    ]
    for call, words in wrong:
        said = refused(call)
        assert words in said, (words, said)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # Refused arguments leave the group as it was.
    same("after", tensor, torch.full((2,), float(RANKS)))


def works() -> None:
    """Work objects: order, futures, results; many in flight; coalesced calls; functional ones."""
    start()
    tensors = [torch.full((1000,), float(i + RANK)) for i in range(50)]
    pending = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    blocking = torch.ones(3)
    dist.all_reduce(blocking)  # Behind those that are queued.
    same("behind", blocking, torch.full((3,), float(RANKS)))
    # Who calls the group itself, without options, waits for a work, as torch's C++ does.
    blocking = torch.ones(3)
    assert dist.group.WORLD.allreduce([blocking]).wait()
    same("no options", blocking, torch.full((3,), float(RANKS)))
    # From torch 2.14 on a caller has a work of C++, which asks ours to wait and for a future alone.
    is_ours = hasattr(dist.group.WORLD, "_engine")
    is_host = DEVICE == "cpu"  # There a call that is waited for is behind those before it.
    assert not (is_ours and is_host) or all(work.is_completed() for work in pending)
    for i, work in enumerate(pending):
        wanted = torch.full((1000,), float(RANKS * i + RANKS * (RANKS - 1) // 2))
        assert work.wait()
        same("queued", tensors[i], wanted)
        if is_ours:
            assert work.is_success() or not is_host
            assert work.exception() is None
            same("result", work.result()[0], wanted)
        same("future", work.get_future().wait()[0], wanted)
    tensor = torch.ones(4)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    same("then", future.wait(), torch.full((4,), 2.0 * RANKS))
    # A callback that waits for a call of its own, as DDP's PowerSGD hook does.
    more = torch.ones(3)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    chained = future.then(lambda _: dist.all_reduce(more, async_op=True).get_future().wait()[0])
    same("a call in a callback", chained.wait(), torch.full((3,), float(RANKS)))
    blocking = future.then(lambda _: dist.all_reduce(more))
    assert blocking.wait() is None
    if DEVICE == "cuda":
        torch.cuda.synchronize()  # A future without tensors orders no stream.
    same("a blocking call in a callback", more, torch.full((3,), float(RANKS * RANKS)))
    for count in (5, 300_000):
        parts = [torch.full((count,), float(i)) for i in range(3)]
        with dist._coalescing_manager():
            for part in parts:
                dist.all_reduce(part)
        for i, part in enumerate(parts):
            same("coalesced", part, torch.full((count,), float(i * RANKS)))
    outputs = [torch.empty(2 * RANKS) for _ in range(3)]
    with dist._coalescing_manager():
        for i, output in enumerate(outputs):
            gather_single(output, torch.full((2,), 10.0 * i + RANK))
    for i, output in enumerate(outputs):
        same("coalesced", output, 10.0 * i + torch.arange(RANKS).repeat_interleave(2))
    outputs = [torch.empty(2) for _ in range(3)]
    with dist._coalescing_manager():
        for i, output in enumerate(outputs):
            scatter_single(output, torch.arange(2.0 * RANKS) + i)
    for i, output in enumerate(outputs):
        same("coalesced", output, RANKS * (torch.arange(2.0) + 2 * RANK + i))
    lists = [[torch.empty(3), torch.empty(2)] for _ in range(RANKS)]
    dist.all_gather_coalesced(lists, [torch.full((3,), RANK + 0.0), torch.full((2,), RANK + 0.5)])
    for rank in range(RANKS):
        same("coalesced", lists[rank][0], torch.full((3,), rank + 0.0))
        same("coalesced", lists[rank][1], torch.full((2,), rank + 0.5))
    import torch.distributed._functional_collectives as functional

    found = functional.all_reduce(torch.ones(3), "avg", dist.group.WORLD) + 0
    same("functional", found, torch.ones(3))
    found = functional.all_gather_tensor(torch.full((2,), float(RANK)), 0, dist.group.WORLD) + 0
    same("functional", found, torch.arange(float(RANKS)).repeat_interleave(2))
    before = engine().sequence
    dist.barrier()
    assert engine().sequence == before + 1
    from torch.profiler import profile

    with profile() as profiler:
        dist.all_reduce(tensor)
    names = [event.key for event in profiler.key_averages()]
    assert any("all_reduce" in name or "allreduce" in name for name in names), names


def objects() -> None:
    """Object collectives."""
    start()
    everyone: list[Any] = [None] * RANKS
    dist.all_gather_object(everyone, {"rank": RANK, "text": "x" * RANK})
    assert everyone == [{"rank": r, "text": "x" * r} for r in range(RANKS)], everyone
    items = [{"a": 1}, "b"] if RANK == 0 else [None, None]
    dist.broadcast_object_list(items, 0)
    assert items == [{"a": 1}, "b"], items
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [f"to {r}" for r in range(RANKS)] if RANK == 0 else None, 0)
    assert mine == [f"to {RANK}"], mine
    gathered: list[Any] = [None] * RANKS
    dist.gather_object(RANK * 10, gathered if RANK == 0 else None, 0)
    assert RANK or gathered == [10 * r for r in range(RANKS)], gathered
    dist.barrier()


def compiled() -> None:
    """A graph of torch.compile with functional collectives gives what eager calls give."""
    import torch.distributed._functional_collectives as functional

    start()

    def step(tensor: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(2 * tensor, "sum", dist.group.WORLD)
        return functional.all_gather_tensor(total + tensor, 0, dist.group.WORLD) + 1

    tensor = torch.arange(5.0) + RANK
    found = torch.compile(step, backend="aot_eager", fullgraph=True)(tensor)
    total = sum(2 * (torch.arange(5.0) + rank) for rank in range(RANKS))
    same("compiled", found, torch.cat([total + torch.arange(5.0) + r + 1 for r in range(RANKS)]))
    same("eager", step(tensor), found)


def messages() -> None:
    """send, recv and batch_isend_irecv by the fall-back, which is counted and said once."""
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logging.getLogger("tutti_hpc.torch").addHandler(Handler())
    start()
    after, before = (RANK + 1) % RANKS, (RANK - 1) % RANKS
    for turn in range(3):
        got = torch.zeros(5)
        calls = [
            dist.P2POp(dist.isend, torch.full((5,), float(RANK + turn)), after),
            dist.P2POp(dist.irecv, got, before),
        ]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        same("batch", got, torch.full((5,), float(before + turn)))
    # Two of the ranks alone: nobody else has to come.
    if RANK == 0:
        dist.send(torch.arange(4.0), 1)
    elif RANK == 1:
        got = torch.zeros(4)
        dist.recv(got, 0)
        same("recv", got, torch.arange(4.0))
    counted = engine().fallbacks
    assert sum(counted.values()) >= 6, counted
    reasons = 3 if DEVICE == "cuda" else 2  # A batch of NCCL's is one more.
    assert len([line for line in said if "fall-back" in line]) == len(counted) == reasons, said


def strict() -> None:
    """TUTTI_STRICT=1: a fall-back is an error."""
    start()
    assert "TUTTI_STRICT" in refused(lambda: dist.send(torch.ones(1), (RANK + 1) % RANKS))
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    same("strict", tensor, torch.full((1,), float(RANKS)))


def several_nodes() -> None:
    """Hosts apart (TUTTI_VIRTUAL_NODES): over the network, or (FALLS_BACK=1) the fall-back."""
    start()
    tensor = torch.arange(5.0)
    dist.all_reduce(tensor)
    same("all_reduce", tensor, RANKS * torch.arange(5.0))
    output = torch.empty(RANKS)
    gather_single(output, torch.tensor([float(RANK)]))
    same("all_gather", output, torch.arange(float(RANKS)))
    dist.barrier()
    expected = 3 if os.environ.get("FALLS_BACK") == "1" else 0
    assert sum(engine().fallbacks.values()) == expected, engine().fallbacks


def splits(half: Any) -> None:
    """split_group: the world in two, twice; one rank of a part of it, and no part at all.

    Rank 0 is in one group more than the others.
    """
    dist.new_group([0])
    for turn in range(2):
        _split_in_two(turn)
    last = dist.get_world_size(half) - 1
    alone = dist.split_group(half, [[last]])
    assert (alone is not None) == (dist.get_rank(half) == last)
    if alone is not None:
        dist.barrier(alone)
    told = refused(lambda: dist.split_group(split_ranks=[[0], [0, RANKS]]))
    assert "rank 0 stands twice in the lists" in told, told
    told = refused(lambda: dist.split_group(split_ranks=[[0], [RANKS]]))
    assert f"rank {RANKS} is not in the parent group" in told, told


def _split_in_two(turn: int) -> None:
    """Messages leave keys in the store, which the groups of the next turn must not find."""
    middle = (RANKS + 1) // 2
    lists = [list(range(middle)), list(range(middle, RANKS))]
    part = dist.split_group(split_ranks=lists, group_desc="neighbours")
    mine = next(one for one in lists if RANK in one)
    assert dist.get_process_group_ranks(part) == mine
    assert part.group_desc == "neighbours", part.group_desc
    assert part is not dist.group.WORLD
    tensor = torch.full((5,), float(RANK), device=DEVICE)
    dist.all_reduce(tensor, group=part)
    assert tensor.eq(sum(mine)).all(), tensor
    if len(mine) > 1:
        place = mine.index(RANK)
        message = torch.full((3,), 0.0 if place else turn + 1.0, device="cpu")
        if place == 0:
            dist.send(message, mine[1], group=part)
        elif place == 1:
            dist.recv(message, mine[0], group=part)
            assert message.eq(turn + 1).all(), message
        dist.barrier(part)
    dist.destroy_process_group(part)


def groups() -> None:
    """new_group, DeviceMesh, groups after groups."""
    start()
    halves = [dist.new_group([r for r in range(RANKS) if r % 2 == part]) for part in range(2)]
    tensor = torch.tensor([RANK + 1.0])
    dist.all_reduce(tensor, group=halves[RANK % 2])
    same("half", tensor, torch.tensor([sum(r + 1.0 for r in range(RANK % 2, RANKS, 2))]))
    splits(halves[RANK % 2])
    last = dist.new_group([RANKS - 1])
    if RANK == RANKS - 1:
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=last)
        same("alone", tensor, torch.ones(2))
    for turn in range(10):
        group = dist.new_group()
        tensor = torch.tensor([float(turn)])
        dist.all_reduce(tensor, group=group)
        same("again", tensor, torch.tensor([float(turn * RANKS)]))
        dist.destroy_process_group(group)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(DEVICE, (RANKS // 2, 2), mesh_dim_names=("outer", "inner"))
    whole = values(0, 64, torch.float32).view(8, 8)
    spread = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    same("mesh", spread.full_tensor(), whole)
    same("mesh", spread.redistribute(mesh, [Replicate(), Shard(0)]).full_tensor(), whole)
    dist.destroy_process_group()
    start()  # A second world in this process.
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    same("second", tensor, torch.full((1,), float(RANKS)))
    assert dist.get_backend() == "tutti"


def _layers(kind: str) -> Any:
    """A small model for DDP or FSDP2."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)]
    model = torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(64, 4))
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for layer in list(model):
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def _losses(model: Any, steps: int) -> list[float]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(RANK + 1)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(8, 16)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return losses


def _train(kind: str, backend: str) -> list[float]:
    start(backend)
    losses = _losses(_layers(kind), 10)
    # Gloo's thread takes the interpreter's lock for its last work, and gloo's end, which comes with
    # that of the model, waits for the thread with the lock held (torch 2.13).
    time.sleep(0.2)
    dist.destroy_process_group()
    return losses


def training() -> None:
    """DDP and FSDP2: the losses of gloo or NCCL. Two ranks have one order of summing alone."""
    for kind in ("ddp", "fsdp"):
        ours, theirs = _train(kind, "tutti"), _train(kind, REFERENCE)
        assert ours[-1] < ours[0], ours
        if os.environ.get("PLANT") == "1":
            ours[-1] *= 1.001
        limit = 0 if RANKS == 2 else 1e-6
        found = max(abs(a - b) for a, b in zip(ours, theirs))
        assert found <= limit, (kind, found, ours, theirs)


def custom_fsdp() -> None:
    """FSDP2 with our all-gather and reduce-scatter alone, in memory of the first steps."""
    from tutti_hpc.torch import fsdp

    start(REFERENCE)
    group = dist.new_group(backend="tutti")
    plain, custom = _layers("fsdp"), _layers("fsdp")
    buffers = fsdp.use_tutti(custom, group)
    wanted, found = _losses(plain, 3), _losses(custom, 3)
    made = buffers.total_bytes
    assert (made > 0) == (DEVICE == "cpu"), made
    wanted, found = wanted + _losses(plain, 10), found + _losses(custom, 10)
    assert buffers.total_bytes == made, (buffers.total_bytes, made)
    limit = 0 if RANKS == 2 else 1e-6
    assert max(abs(a - b) for a, b in zip(found, wanted)) <= limit, (found, wanted)
    if RANKS == 2:
        for one, other in zip(custom.parameters(), plain.parameters()):
            same("parameters", one.to_local(), other.to_local())
    assert not engine_of(group).fallbacks
    assert engine_of(group).sequence > 50  # It was we that gathered and scattered.
    alone = [dist.new_group([rank], backend="tutti") for rank in range(RANKS)][RANK]
    gather = fsdp.AllGather(alone)
    words = refused(lambda: gather(torch.empty(RANKS), torch.ones(1), dist.group.WORLD))
    assert "the Tutti group has ranks" in words, words
    words = refused(lambda: fsdp.use_tutti(torch.nn.Linear(2, 2), group))
    assert "no module is sharded" in words, words
    # A view keeps the memory of its tensor.
    view = buffers.tensor(12345, torch.float32)[7:9]
    other = buffers.tensor(12345, torch.float32)
    assert abs(other.data_ptr() - view.data_ptr()) > 4 * 12345 - 64
    place = other.data_ptr()
    del other
    assert buffers.tensor(12345, torch.float32).data_ptr() == place
    time.sleep(0.2)  # See _train().


def debug() -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    start()
    tensor = torch.ones(3)
    for _ in range(20):
        dist.all_reduce(tensor, Op.AVG)
        dist.barrier()
    same("debug", tensor, torch.ones(3))
    output = torch.empty(3 * RANKS)
    gather_single(output, tensor)
    same("debug", output, torch.ones(3 * RANKS))


# ---- On GPUs alone ----------------------------------------------------------------------------


def streams() -> None:
    """Calls are behind what their stream did before, and wait() puts what comes behind them."""
    start()
    count = 3_000_000
    weights = torch.full((2000, 2000), 0.5)
    own = torch.cuda.Stream()
    kept = []
    for turn in range(40):
        wanted = torch.full((count,), float(RANKS * (turn + 1)))
        is_own = turn % 4 == 3
        with torch.cuda.stream(own if is_own else torch.cuda.current_stream()):
            for _ in range(3):
                weights = weights @ weights * 1e-3  # Keeps the stream busy.
            tensor = torch.full((count,), 0.0)
            tensor.add_(turn + 1)
            if turn % 2 == 0:
                work = dist.all_reduce(tensor, async_op=True)
                # Memory that is freed while the call is under way is not given to others.
                copy = torch.full((count,), turn + 1.0)
                unnamed = dist.all_reduce(copy, async_op=True)
                del copy
                filler = torch.full((count,), -1.0)
                work.wait()
                same("filler", filler, torch.full((count,), -1.0))
                unnamed.wait()
            else:
                dist.all_reduce(tensor)
            tensor.mul_(1.0)
            same(("stream", turn), tensor, wanted)
        kept.append(tensor)
    torch.cuda.synchronize()
    for turn, tensor in enumerate(kept):
        same(("kept", turn), tensor, torch.full((count,), float(RANKS * (turn + 1))))
    # Waited for in any order, or never, with tensors that nobody else has.
    few = count // 50
    many = [torch.full((few,), float(turn)) for turn in range(100)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in many]
    works[50].get_future().wait()
    for turn in reversed(range(0, 100, 3)):
        works[turn].wait()
        same(("waited", turn), many[turn] * 1.0, torch.full((few,), float(turn * RANKS)))
    del works
    fillers = []
    for _ in range(100):
        dist.all_reduce(torch.full((few,), 1.0), async_op=True)
        fillers.append(torch.full((few,), -1.0))
    last = dist.all_reduce(torch.zeros(few), async_op=True)
    last.wait(timedelta(seconds=20))
    assert last.is_completed()
    assert last.is_success()
    torch.cuda.synchronize()
    for turn, tensor in enumerate(many):
        same(("many", turn), tensor, torch.full((few,), float(turn * RANKS)))
    for filler in fillers:
        same("not given to others", filler, torch.full((few,), -1.0))
    # On the host and on the GPU in one group.
    host = torch.ones(1000, device="cpu")
    dist.all_reduce(host)
    assert host.tolist() == [float(RANKS)] * 1000


def graphs() -> None:
    """Captured calls, replayed many times between calls that are not; GRAPH_TURNS of them."""
    start()
    n = 1000
    buffer = torch.zeros(n)
    gathered, exchanged = torch.zeros(n * RANKS), torch.zeros(n // RANKS * RANKS)
    large, eager = torch.zeros(1 << 20), torch.zeros(n)
    scattered = torch.zeros(n // RANKS)

    def calls() -> None:
        dist.all_reduce(buffer)
        gather_single(gathered, buffer)
        dist.all_to_all_single(exchanged, buffer[: n // RANKS * RANKS])
        dist.all_reduce(large, Op.AVG, async_op=True).wait()
        scatter_single(scattered, buffer[: n // RANKS * RANKS])
        dist.broadcast(large, RANKS - 1)

    calls()  # What is set up cannot be captured.
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    wrong = torch.zeros(1, dtype=torch.int64)
    for turn in range(int(os.environ.get("GRAPH_TURNS", "3000"))):
        buffer.fill_(turn % 7 + RANK)
        large.fill_(turn % 5)
        graph.replay()
        total = RANKS * (turn % 7) + RANKS * (RANKS - 1) // 2
        if turn % 3 == 0:
            eager.fill_(turn % 11)
            dist.all_reduce(eager)
            wrong += (eager != RANKS * (turn % 11)).sum()
        for found in (buffer, gathered, exchanged):
            wrong += (found != total).sum()
        wrong += (large != turn % 5).sum() + (scattered != RANKS * total).sum()
    same("graphs", wrong, torch.zeros(1, dtype=torch.int64))
    del graph  # Before the group, whose memory it uses.


def dead_rank_in_graphs() -> None:
    """As dead_rank_on_gpus(), and the others only replay."""
    start(seconds=20)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)
    graph.replay()
    torch.cuda.synchronize()
    if RANK == RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert time.monotonic() - begin < 15
    words = refused(lambda: dist.all_reduce(tensor), 1)
    assert f"rank {RANKS - 1}" in words, words
    print("SURVIVED", flush=True)


def graphs_that_outlive() -> None:
    """A graph is replayed behind the end of its group: nothing happens, and the exit is one."""
    start()
    tensor = torch.full((1000,), 1.0)
    dist.all_reduce(tensor)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)
    graph.replay()
    torch.cuda.synchronize()
    before = tensor.clone()
    dist.barrier()
    dist.destroy_process_group()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(before, tensor)
    print("SURVIVED", flush=True)


def dead_rank_on_gpus() -> None:
    """The last rank is killed: an error that names it on the others, and no hang."""
    start(seconds=20)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    if RANK == RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)

    def go_on() -> None:
        while True:
            dist.all_reduce(tensor)
            torch.cuda.synchronize()

    words = refused(go_on, 25)
    assert f"rank {RANKS - 1}" in words, words
    refused(lambda: dist.all_reduce(tensor), 1)
    print("SURVIVED", flush=True)


# ---- Failures -----------------------------------------------------------------------------------


def dead_rank() -> None:
    """The last rank is killed: an error that names it on the others, from every later call."""
    start(seconds=20)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if RANK == RANKS - 1:
        if ON_NODES:
            time.sleep(1)  # The others are in the next call: they may still be in this one.
        os.kill(os.getpid(), signal.SIGKILL)
    if RANK == 0:
        words = refused(lambda: dist.all_reduce(tensor, async_op=True).wait(), 10)
    else:
        words = refused(lambda: dist.all_reduce(tensor), 10)
    assert re.search(rf"rank {RANKS - 1} (has died|\(.*\) is gone)", words), words
    refused(dist.barrier, 1)
    refused(lambda: gather_single(torch.empty(RANKS), torch.ones(1)), 1)
    print("SURVIVED", flush=True)


def late_rank() -> None:
    """The last rank comes after the time-out of a group: an error that names it, in time."""
    start(seconds=60)
    group = dist.new_group(timeout=timedelta(seconds=3))
    tensor = torch.ones(1000)
    dist.all_reduce(tensor, group=group)
    if RANK == RANKS - 1:
        time.sleep(8)
        refused(lambda: dist.barrier(group), 5)
        print("SURVIVED", flush=True)
        return
    began = time.monotonic()
    words = refused(lambda: dist.all_reduce(tensor, group=group), 7)
    assert time.monotonic() - began > 2, words
    assert f"rank {RANKS - 1}" in words, words
    print("SURVIVED", flush=True)


def late_rank_on_gpus() -> None:
    """As late_rank(): errors of calls on streams come with a later call."""
    start(seconds=60)
    group = dist.new_group(timeout=timedelta(seconds=3))
    tensor = torch.ones(1000)
    dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()

    def go_on() -> None:
        while True:
            dist.all_reduce(tensor, group=group)
            torch.cuda.synchronize()

    if RANK == RANKS - 1:
        time.sleep(8)
        refused(go_on, 5)
    else:
        words = refused(go_on, 7)
        assert f"rank {RANKS - 1} is 1 call behind" in words, words
    print("SURVIVED", flush=True)


def mixed_map() -> None:
    """Up to torch 2.13 nothing is made for CUDA beside us: its tensors are refused."""
    from tutti_hpc.torch import registration

    if not registration.has_python_backends():
        start("cpu:tutti,cuda:nccl")
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        same("on the host", tensor, torch.full((3,), float(RANKS)))
        words = refused(dist.group.WORLD._check_cuda)
        assert "makes no nccl for CUDA tensors" in words, words
    print("SURVIVED", flush=True)


def wait_limit() -> None:
    """wait(timeout) of work that nobody else makes; and abort() ends what is queued behind it."""
    start(seconds=30)
    dist.barrier()
    if RANK == 1:
        time.sleep(5)
        engine().abort()  # Nothing is queued.
        assert "was aborted" in refused(lambda: dist.all_reduce(torch.ones(3)), 1)
    if RANK == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        behind = dist.all_reduce(torch.ones(3), async_op=True)
        words = refused(lambda: work.wait(timedelta(seconds=0.5)), 5)
        assert "is not over after 0.5 s" in words, words
        assert not work.is_completed()
        dist.group.WORLD.abort() if hasattr(dist.group.WORLD, "_engine") else engine().abort()
        assert "was aborted" in refused(behind.wait, 5)
        refused(work.wait, 5)  # That it has ended, too.
        refused(lambda: dist.all_reduce(torch.ones(3)), 1)
    print("SURVIVED", flush=True)
    sys.stdout.flush()


def unfinished_exit() -> None:
    """A program that ends without waiting for its work, or destroying its group."""
    start(seconds=30)
    for _ in range(3):
        dist.all_reduce(torch.ones(100_000), async_op=True)
    print("SURVIVED", flush=True)


def mixed_calls() -> None:
    """A rank that calls another collective: an error, no hang."""
    start(seconds=5)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    call = (lambda: dist.broadcast(tensor, 0)) if RANK == 0 else (lambda: dist.all_reduce(tensor))
    try:
        call()
        dist.barrier()
    except RuntimeError:
        print("SURVIVED", flush=True)


def recorded_calls() -> None:
    """Calls of every kind, then one that the last rank lacks: all dump what they know."""
    from tutti_hpc.torch import flight_recorder

    start(seconds=60)
    group = dist.new_group(timeout=timedelta(seconds=2), group_desc="short")
    one, all_ = torch.ones(6, 2), torch.ones(6 * RANKS, 2)
    parts = list(torch.ones(RANKS, 6, 2))
    # To rank r as many as r says, so that ranks have different lists.
    rows = [torch.ones(1 + other) for other in range(RANKS)]
    columns = [torch.empty(1 + RANK) for _ in range(RANKS)]
    for which in (None, group):
        dist.all_reduce(one, group=which, async_op=True).wait()
        dist.broadcast(one, 0, group=which)
        dist.reduce(one, 0, group=which)
        gather_single(all_, one, group=which)
        scatter_single(one, all_, group=which)
        dist.all_gather(parts, one, group=which)
        dist.all_gather(parts, parts[RANK], group=which)
        dist.reduce_scatter(one, parts, group=which)
        dist.reduce_scatter(parts[RANK], parts, group=which)
        dist.gather(one, parts if RANK == 0 else None, group=which)
        dist.gather(parts[0], parts if RANK == 0 else None, group=which)
        dist.scatter(one, parts if RANK == 0 else None, group=which)
        dist.all_to_all_single(torch.empty_like(all_), all_, group=which)
        dist.all_to_all(columns, rows, group=which)
        with dist._coalescing_manager(group=which, device=None):
            dist.all_reduce(one, group=which)
        dist.barrier(which)
    if RANK < RANKS - 1:

        def lacks_a_rank() -> None:
            dist.all_reduce(torch.ones(5, 7), group=group)
            if DEVICE == "cuda":  # Queued: what it came to is the next call's error.
                torch.cuda.synchronize()
                dist.all_reduce(torch.ones(5, 7), group=group)

        words = refused(lacks_a_rank, 10)
        assert f"rank {RANKS - 1}" in words, words
    else:
        time.sleep(4)
        flight_recorder.dump()
    print("SURVIVED", flush=True)


# ---- On the host device: what torch has of a GPU is played --------------------------------------


class HostDevice:
    """Streams and memory of libtutti-host-device.so; tensors in it are CPU tensors for torch."""

    def __init__(self) -> None:
        library = ctypes.CDLL(
            str(Path(os.environ["TUTTI_LIBRARY_DIR"]) / "libtutti-host-device.so")
        )
        self.alloc = library.tutti_host_device_alloc
        self.alloc.argtypes, self.alloc.restype = [ctypes.c_size_t], ctypes.c_void_p
        self.create_stream = library.tutti_host_device_create_stream
        self.create_stream.restype = ctypes.c_void_p

    def full(self, count: int, value: float) -> torch.Tensor:
        memory = (ctypes.c_float * count).from_address(self.alloc(4 * count))
        return torch.frombuffer(memory, dtype=torch.float32).fill_(value)


class PlayedStream:
    """In place of works.CallStream; `kept`: tensors that the allocator was told of."""

    device = 0

    def __init__(self, number: int) -> None:
        self.number = number
        self.kept: list[torch.Tensor] = []
        self.current = 0

    def make_current(self) -> Any:
        self.current += 1
        return self

    def restore(self, caller: Any) -> None:
        assert caller is self
        self.current -= 1

    def keep(self, tensors: list[torch.Tensor]) -> None:
        self.kept += tensors


def play_gpu(current: list[Any]) -> tuple[Any, HostDevice, PlayedStream]:
    """The group's engine, the device, the stream of async calls. `current` gets the program's."""
    from tutti_hpc.torch import engine as engines

    gpu = HostDevice()
    current.append(gpu.create_stream())
    engines.current_raw_stream = torch._C._cuda_getCurrentRawStream = lambda _: current[0]
    torch.cuda.is_current_stream_capturing = lambda: False
    side = engine()._streams[0] = PlayedStream(gpu.create_stream())
    return engine(), gpu, side


def calls_on_streams() -> None:
    """The engine's calls beside the program's stream: order, numbers, what is kept how long."""
    from tutti_hpc.torch import bindings, doctor
    from tutti_hpc.torch import engine as engines

    start()
    current: list[Any] = []
    ours, gpu, side = play_gpu(current)
    limit = timedelta(seconds=20)

    def plain(tensor: torch.Tensor) -> Any:
        function = ours.functions.allreduce
        place = tensor.data_ptr(), tensor.numel()
        return engines.PlainCall(function, bindings.IN_PLACE, *place, 11, bindings.SUM)

    def submit(tensor: torch.Tensor, call: Any = None, is_async: bool = True) -> Any:
        used = [tensor]
        return ours.submit_device("sum", call or plain(tensor), [tensor], is_async, 0, used)

    # Waited for in any order, or never.
    tensors = [gpu.full(1000, float(turn)) for turn in range(100)]
    works = [submit(tensor) for tensor in tensors]
    assert len(ours._kept) <= engines.KEPT_MAX
    for turn in (50, 99, 3):
        works[turn].wait(limit)
        same(turn, tensors[turn], torch.full((1000,), float(turn * RANKS)))
    assert works[7].is_completed()
    assert works[7].is_success()
    assert works[7].exception() is None
    for turn, tensor in enumerate(tensors):
        same(turn, tensor, torch.full((1000,), float(turn * RANKS)))
    carried = doctor.carriers(ours, "device")[0]
    assert ("through host memory" if ON_NODES else "direct-gamma") in carried, carried
    # What is over or was waited for is kept no longer; the waiting stream decides for how long.
    side.kept.clear()
    for _ in range(2 * engines.KEPT_UNASKED):
        submit(tensors[0]).wait(limit)
    assert len(ours._kept) <= 1 + engines.KEPT_UNASKED, ours._kept
    assert not side.kept
    waited_elsewhere = submit(tensors[0])
    work, current[0] = current[0], gpu.create_stream()
    waited_elsewhere.wait(limit)
    current[0] = work
    assert [tensor is tensors[0] for tensor in side.kept] == [True]
    assert waited_elsewhere.result()[0] is tensors[0]
    # A call with something of torch's in it, and one in which that fails.
    side.kept.clear()
    tensor = gpu.full(1000, 1.0)

    def twice(comm: int, stream: Any) -> int:
        assert side.current == 1
        return plain(tensor)(comm, stream) or plain(tensor)(comm, stream)

    submit(tensor, twice).wait(limit)
    same("twice", tensor, torch.full((1000,), float(RANKS * RANKS)))

    def fails(comm: int, stream: Any) -> int:
        plain(tensor)(comm, stream)
        raise MemoryError

    try:
        submit(tensor, fails)
    except MemoryError:
        assert [one is tensor for one in side.kept] == [True]
    else:
        raise AssertionError("the call's error was lost")
    assert side.current == 0
    # Of calls that are over and that nobody waits for a few are kept.
    for _ in range(5 * engines.KEPT_UNASKED):
        unwaited = submit(gpu.full(10, 1.0))
        while not unwaited.is_completed():
            time.sleep(0.001)
    assert len(ours._kept) <= engines.KEPT_UNASKED + engines.CALLS_PER_LOOK, len(ours._kept)
    # On the program's own stream, and what is behind it.
    returned = submit(tensor, is_async=False)
    assert (returned is None) == ours.takes_none, returned  # No work is made that nobody gets.
    submit(tensor).wait(limit)
    same("in order", tensor, torch.full((1000,), float(RANKS**5)))
    # The end of the group waits for its calls, and takes no work's result.
    last = submit(tensor)
    dist.destroy_process_group()
    assert last.wait()
    assert last.is_success()
    same("after the end", tensor, torch.full((1000,), float(RANKS**6)))


def late_call_on_streams() -> None:
    """A call that a rank lacks: the work says so, also when the group has been ended."""
    from tutti_hpc.torch import bindings
    from tutti_hpc.torch import engine as engines

    start(seconds=2)
    ours, gpu, _ = play_gpu([])
    tensor = gpu.full(1000, 1.0)

    def submit() -> Any:
        place = tensor.data_ptr(), tensor.numel()
        function = ours.functions.allreduce
        call = engines.PlainCall(function, bindings.IN_PLACE, *place, 11, bindings.SUM)
        return ours.submit_device("sum", call, [tensor], True, 0, [tensor])

    submit().wait(timedelta(seconds=20))
    if RANK == 0:
        lacking = submit()
        refused(lambda: lacking.wait(timedelta(seconds=20)), 10)
        assert lacking.is_completed()
        assert not lacking.is_success()
        dist.destroy_process_group()
        refused(lacking.wait, 1)
        assert not lacking.is_success()
    else:
        time.sleep(6)
    print("SURVIVED", flush=True)


def plain_functions() -> None:
    """By ctypes, without functions of the interpreter's own; what the values of futures hold."""
    from tutti_hpc import api
    from tutti_hpc.torch import bindings

    assert bindings.functions().is_native
    find, api.native_functions = api.native_functions, lambda path: lambda name: None
    bindings.functions.cache_clear()
    try:
        start()
        assert not engine().functions.is_native
        tensor = values(RANK, 1000, torch.int32)
        dist.all_reduce(tensor)
        same("sum", tensor, sum(all_of(1000, torch.int32)))
        output = torch.empty(1000 * RANKS, dtype=torch.int32)
        own = output[RANK * 1000 : (RANK + 1) * 1000].copy_(values(RANK, 1000, torch.int32))
        gather_single(output, own)
        same("gather", output, torch.cat(all_of(1000, torch.int32)))
        scatter_single(tensor, output)
        same("scatter", tensor, values(RANK, 1000, torch.int32) * RANKS)
        dist.broadcast(tensor, 0)
        same("broadcast", tensor, values(0, 1000, torch.int32) * RANKS)
    finally:
        api.native_functions = find
        bindings.functions.cache_clear()
    extract = torch._jit_internal._extract_tensors
    one, other = torch.ones(2), torch.nn.Parameter(torch.ones(3))
    for value in ([one, other], [], (one,), [[one], other], {"a": one}, one, [one, 1]):
        wanted = extract.__wrapped__(value)
        assert [id(tensor) for tensor in extract(value)] == [id(tensor) for tensor in wanted]


def random_programs() -> None:
    """Those of the seeds in SEEDS, `first:end`."""
    import torch_random

    start()
    first, end = map(int, os.environ.get("SEEDS", "0:20").split(":"))
    for seed in range(first, end):
        torch_random.Program(seed, DEVICE, same).run()


# ---- Ways in ------------------------------------------------------------------------------------


def way_in() -> None:
    """The name in BACKEND gives a group of ours, and a right sum."""
    dist.init_process_group(os.environ["BACKEND"])
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    same("sum", tensor, torch.full((1,), float(RANKS)))
    assert engine().ranks == RANKS
    print("BACKEND", dist.get_backend(), flush=True)


if __name__ == "__main__":
    for case in sys.argv[1].split(","):
        print(f"case {case}", flush=True)
        globals()[case]()
        if dist.is_initialized() and os.environ.get("DESTROY", "1") == "1":
            dist.destroy_process_group()
    print(f"compared {compared}", flush=True)
