# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Random programs of torch.distributed, the same on every rank, each checked by every rank.

A program is drawn from its seed: a group of some ranks, and calls on tensors of any type, size and
layout, async or not, waited for in any order. Values are small whole numbers, so a result does not
depend on the order of a sum. A tensor lies in a larger one, whose other elements must not change.
"""

from __future__ import annotations

import functools
import math
import random
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

TYPES = (
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.bool,
)
COUNTS = (0, 1, 2, 3, 7, 64, 1000, 4099, 70_001)
LAYOUTS = ("plain", "offset", "step", "transposed", "negative")
CALLS_MAX = 12
Op = dist.ReduceOp


class Place:
    """A tensor in a larger one."""

    def __init__(self, draw: random.Random, count: int, dtype: torch.dtype, device: str) -> None:
        layout = draw.choice(LAYOUTS)
        step = 3 if layout == "step" else 1
        first = draw.randrange(1, 9) if layout != "plain" else 0
        room = first + count * step + (5 if layout != "plain" else 0)
        self.whole = torch.full((room,), 113, dtype=dtype, device=device)
        self.tensor = self.whole[first : first + count * step : step]
        rows = next((n for n in (2, 3, 5, 7) if count and count % n == 0), 1)
        if layout == "transposed" and rows > 1:
            self.tensor = self.tensor.view(rows, count // rows).t()
        if layout == "negative" and dtype.is_signed and not dtype.is_complex:
            # As the imaginary part of a conjugate; torch itself refuses the conjugate.
            self.tensor = torch._neg_view(self.tensor)
        self.wanted = self.whole.clone()

    def expect(self, values: Optional[torch.Tensor]) -> None:
        """`values`, in the tensor's order, are what it comes to; None: it keeps its own."""
        if values is not None:
            offset, shape, stride = (
                self.tensor.storage_offset(),
                self.tensor.shape,
                self.tensor.stride(),
            )
            stored = -values if self.tensor.is_neg() else values
            self.wanted.as_strided(shape, stride, offset).copy_(stored.reshape(shape))

    def fill(self, values: torch.Tensor) -> torch.Tensor:
        """Puts them in, and expects them to stay."""
        self.tensor.copy_(values.reshape(self.tensor.shape))
        self.expect(values)
        return self.tensor


class Program:
    """`same(what, found, wanted)` compares; `ranks` are those of the group."""

    def __init__(self, seed: int, device: str, same: Callable[..., None]) -> None:
        self.seed = seed
        self.device = device
        self.same = same
        self.draw = random.Random(seed)  # The same on all ranks.
        self.places: list[tuple[Any, Place]] = []
        self.works: list[Any] = []
        self.calls = 0

    def values(self, rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        """What a rank of the group puts into this call."""
        generator = torch.Generator().manual_seed(self.seed * 10_007 + self.calls * 101 + rank)
        with torch.device("cpu"):
            found = torch.randint(1, 4, (count,), generator=generator)
            if dtype is torch.bool:
                found = found > 1
            if dtype.is_complex:
                found = torch.complex(found.float(), found.flip(0).float())
        return found.to(dtype).to(self.device)

    def place(self, what: Any, count: int, dtype: torch.dtype) -> Place:
        """All ranks draw as often, each lays its own out."""
        own = random.Random(self.draw.random() + self.rank)
        place = Place(own, count, dtype, self.device)
        self.places.append((what, place))
        return place

    def run(self) -> None:
        """Makes the group and the calls, waits, compares."""
        world = dist.get_world_size()
        members = sorted(self.draw.sample(range(world), self.draw.randint(1, world)))
        group: Any = dist.group.WORLD
        if len(members) < world:
            group = dist.new_group(members)
        if dist.get_rank() in members:
            self.members, self.group, self.ranks = members, group, len(members)
            self.rank = members.index(dist.get_rank())
            for _ in range(self.draw.randint(1, CALLS_MAX)):
                self.call()
            self.draw.shuffle(self.works)
            for work in self.works:
                work.wait()
            for what, place in self.places:
                self.same((self.seed, *what), place.whole, place.wanted)
        if group is not dist.group.WORLD and dist.get_rank() in members:
            dist.destroy_process_group(group)

    def call(self) -> None:
        """One call, drawn."""
        self.calls += 1
        name = self.draw.choice([name for name in dir(self) if name.startswith("do_")])
        dtype, count = self.draw.choice(TYPES), self.draw.choice(COUNTS)
        if self.draw.random() < 0.2:
            count = self.draw.randrange(300_000)
        is_async = self.draw.random() < 0.5
        what = (self.calls, name, dtype, count, is_async)
        work = getattr(self, name)(what, count, dtype, is_async)
        self.works += [work] if is_async else []

    def operation(self, dtype: torch.dtype) -> tuple[Any, Callable[..., torch.Tensor]]:
        """An operation of the type, and what it makes of the ranks' values."""
        found: list[tuple[Any, Callable[..., torch.Tensor]]] = [
            (Op.SUM, lambda t: sum(t[1:], t[0]))
        ]
        if dtype is torch.bool:  # Of which `+` is or.
            found += [(op, found[0][1]) for op in (Op.MAX, Op.BOR)]
            some = (Op.PRODUCT, Op.MIN, Op.BAND)
            found += [(op, lambda t: torch.stack(t).all(0)) for op in some]
        elif not dtype.is_complex:
            found.append((Op.PRODUCT, lambda t: math.prod(t[1:], start=t[0])))
            found.append((Op.MIN, lambda t: torch.stack(t).amin(0)))
            found.append((Op.MAX, lambda t: torch.stack(t).amax(0)))
        if not (dtype.is_complex or dtype.is_floating_point):
            found.append((Op.BXOR, lambda t: functools.reduce(torch.bitwise_xor, t)))
        elif dtype in (torch.float32, torch.float64) and self.ranks in (1, 2, 4):
            found.append((Op.AVG, lambda t: sum(t[1:], t[0]) / self.ranks))
        return self.draw.choice(found)

    def all(self, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """What each rank puts in."""
        return [self.values(rank, count, dtype) for rank in range(self.ranks)]

    # ---- The calls ------------------------------------------------------------------------------

    def do_all_reduce(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        place = self.place(what, count, dtype)
        op, combine = self.operation(dtype)
        tensor = place.fill(self.values(self.rank, count, dtype))
        work = dist.all_reduce(tensor, op, group=self.group, async_op=is_async)
        place.expect(combine(self.all(count, dtype)))
        return work

    def do_reduce(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        place = self.place(what, count, dtype)
        op, combine = self.operation(dtype)
        root = self.draw.randrange(self.ranks)
        tensor = place.fill(self.values(self.rank, count, dtype))
        work = dist.reduce(tensor, self.members[root], op, group=self.group, async_op=is_async)
        place.expect(combine(self.all(count, dtype)) if root == self.rank else None)
        return work

    def do_broadcast(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        place = self.place(what, count, dtype)
        root = self.draw.randrange(self.ranks)
        tensor = place.fill(self.values(self.rank, count, dtype))
        work = dist.broadcast(tensor, self.members[root], group=self.group, async_op=is_async)
        place.expect(self.values(root, count, dtype))
        return work

    def do_all_gather(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        source = self.place(what, count, dtype)
        blocks = [self.place(what, count, dtype) for _ in range(self.ranks)]
        tensor = source.fill(self.values(self.rank, count, dtype))
        outputs = [block.tensor for block in blocks]
        work = dist.all_gather(outputs, tensor, group=self.group, async_op=is_async)
        for block, values in zip(blocks, self.all(count, dtype)):
            block.expect(values)
        return work

    def do_all_gather_single(
        self, what: Any, count: int, dtype: torch.dtype, is_async: bool
    ) -> Any:
        output = self.place(what, count * self.ranks, dtype)
        source = self.place(what, count, dtype)
        tensor = source.fill(self.values(self.rank, count, dtype))
        block = self.draw.randrange(self.ranks + 2)
        if block < self.ranks and output.tensor.dim() == 1:
            # In the output: in place where it is the own block, else to be read before.
            tensor = output.tensor[block * count : (block + 1) * count].copy_(tensor.reshape(-1))
        work = dist.all_gather_into_tensor(
            output.tensor, tensor, group=self.group, async_op=is_async
        )
        output.expect(torch.cat(self.all(count, dtype)))
        return work

    def do_reduce_scatter_single(
        self, what: Any, count: int, dtype: torch.dtype, is_async: bool
    ) -> Any:
        source = self.place(what, count * self.ranks, dtype)
        output = self.place(what, count, dtype)
        op, combine = self.operation(dtype)
        tensor = source.fill(self.values(self.rank, count * self.ranks, dtype))
        # Blocks are of elements in the tensor's order, which is not that of its memory.
        total = combine(self.all(count * self.ranks, dtype))
        result = total[self.rank * count : (self.rank + 1) * count]
        block = self.draw.randrange(self.ranks + 2)
        if block < self.ranks and tensor.dim() == 1:  # FSDP's output lies in its input.
            part = slice(block * count, (block + 1) * count)
            values = self.values(self.rank, count * self.ranks, dtype).index_put(
                (torch.arange(part.start, part.stop, device=self.device),), result
            )
            work = dist.reduce_scatter_tensor(
                tensor[part], tensor, op, group=self.group, async_op=is_async
            )
            source.expect(values)
            return work
        work = dist.reduce_scatter_tensor(
            output.tensor, tensor, op, group=self.group, async_op=is_async
        )
        output.expect(result)
        return work

    def do_reduce_scatter(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        output = self.place(what, count, dtype)
        sources = [self.place(what, count, dtype) for _ in range(self.ranks)]
        op, combine = self.operation(dtype)
        given = self.values(self.rank, count * self.ranks, dtype).chunk(self.ranks) if count else ()
        for source, values in zip(sources, given):
            source.fill(values)
        work = dist.reduce_scatter(
            output.tensor,
            [source.tensor for source in sources],
            op,
            group=self.group,
            async_op=is_async,
        )
        total = combine(self.all(count * self.ranks, dtype))
        output.expect(total[self.rank * count : (self.rank + 1) * count])
        return work

    def do_all_to_all_single(
        self, what: Any, count: int, dtype: torch.dtype, is_async: bool
    ) -> Any:
        width = self.draw.choice((1, 3))
        rows = [
            [self.draw.randrange(1 + min(count, 5000)) for _ in range(self.ranks)]
            for _ in range(self.ranks)
        ]
        if self.draw.random() < 0.4:
            rows = [[min(count, 5000)] * self.ranks] * self.ranks
        sent, received = rows[self.rank], [of_rank[self.rank] for of_rank in rows]
        source = self.values(self.rank, sum(sent) * width, dtype).view(-1, width)
        whole = torch.full((sum(received) + 2, width), 113, dtype=dtype, device=self.device)
        work = dist.all_to_all_single(
            whole[1:-1], source, received, sent, group=self.group, async_op=is_async
        )
        parts = [
            self.values(rank, sum(rows[rank]) * width, dtype)
            .view(-1, width)
            .split(rows[rank])[self.rank]
            for rank in range(self.ranks)
        ]
        edge = torch.full((1, width), 113, dtype=dtype, device=self.device)
        self._later(what, whole, torch.cat([edge, *parts, edge]))
        return work

    def do_all_to_all(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        counts = [
            [self.draw.randrange(1 + min(count, 5000)) for _ in range(self.ranks)]
            for _ in range(self.ranks)
        ]
        sources = [self.place(what, size, dtype) for size in counts[self.rank]]
        outputs = [self.place(what, of_rank[self.rank], dtype) for of_rank in counts]
        mine = self.values(self.rank, sum(counts[self.rank]), dtype).split(counts[self.rank])
        for source, values in zip(sources, mine):
            source.fill(values)
        work = dist.all_to_all(
            [output.tensor for output in outputs],
            [source.tensor for source in sources],
            group=self.group,
            async_op=is_async,
        )
        for rank, output in enumerate(outputs):
            theirs = self.values(rank, sum(counts[rank]), dtype).split(counts[rank])
            output.expect(theirs[self.rank])
        return work

    def do_gather(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        source = self.place(what, count, dtype)
        root = self.draw.randrange(self.ranks)
        blocks = [self.place(what, count, dtype) for _ in range(self.ranks)]
        tensor = source.fill(self.values(self.rank, count, dtype))
        work = dist.gather(
            tensor,
            [block.tensor for block in blocks] if root == self.rank else None,
            self.members[root],
            group=self.group,
            async_op=is_async,
        )
        for block, values in zip(blocks, self.all(count, dtype)):
            block.expect(values if root == self.rank else None)
        return work

    def do_scatter(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        output = self.place(what, count, dtype)
        root = self.draw.randrange(self.ranks)
        blocks = [self.place(what, count, dtype) for _ in range(self.ranks)]
        given = self.values(root, count * self.ranks, dtype)
        parts = given.split(count) if count else [given] * self.ranks
        for block, values in zip(blocks, parts):
            block.fill(values)
        work = dist.scatter(
            output.tensor,
            [block.tensor for block in blocks] if root == self.rank else None,
            self.members[root],
            group=self.group,
            async_op=is_async,
        )
        output.expect(parts[self.rank])
        return work

    def do_messages(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        output = self.place(what, count, dtype)
        shift = self.draw.randrange(1, self.ranks) if self.ranks > 1 else 0
        to = self.members[(self.rank + shift) % self.ranks]
        whence = (self.rank - shift) % self.ranks
        if shift:
            buffer = torch.empty(count, dtype=dtype, device=self.device)
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, self.values(self.rank, count, dtype), to, self.group),
                    dist.P2POp(dist.irecv, buffer, self.members[whence], self.group),
                ]
            )
            for work in works:
                work.wait()
            output.fill(buffer)
            output.expect(self.values(whence, count, dtype))
        return dist.barrier(self.group, async_op=is_async)

    def do_coalesced(self, what: Any, count: int, dtype: torch.dtype, is_async: bool) -> Any:
        kind = self.draw.choice(("all_reduce", "all_gather", "reduce_scatter"))
        op, combine = self.operation(dtype)
        counts = [count, *(self.draw.choice(COUNTS) for _ in range(self.draw.randrange(3)))]
        gathers = self.ranks if kind == "all_gather" else 1
        takes = self.ranks if kind == "reduce_scatter" else 1
        calls = [
            (self.place(what, n * takes, dtype), self.place(what, n * gathers, dtype), n)
            for n in counts
        ]
        for source, _, n in calls:
            source.fill(self.values(self.rank, n * takes, dtype))
        with dist._coalescing_manager(self.group, async_ops=is_async) as manager:
            for source, output, _ in calls:
                if kind == "all_reduce":
                    dist.all_reduce(source.tensor, op, group=self.group)
                elif kind == "all_gather":
                    dist.all_gather_into_tensor(output.tensor, source.tensor, group=self.group)
                else:
                    dist.reduce_scatter_tensor(output.tensor, source.tensor, op, group=self.group)
        for source, output, n in calls:
            given = self.all(n * takes, dtype)
            if kind == "all_gather":
                output.expect(torch.cat(given))
            elif kind == "all_reduce":
                source.expect(combine(given))
            else:
                output.expect(combine(given)[self.rank * n : (self.rank + 1) * n])
        return manager

    def _later(self, what: Any, whole: torch.Tensor, wanted: torch.Tensor) -> None:
        place = Place.__new__(Place)
        place.whole = place.tensor = whole
        place.wanted = wanted
        self.places.append((what, place))
