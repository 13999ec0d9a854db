# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""FSDP2 with Tutti's all-gather and reduce-scatter, in a job that keeps NCCL or gloo for the rest.

    group = torch.distributed.new_group(backend="tutti")
    tutti_hpc.torch.fsdp.use_tutti(model, group)  # after fully_shard, before the first step

The classes are what FSDPModule's set_custom_all_gather and set_custom_reduce_scatter take. They do
not derive from FSDP2's interfaces, which torch exports under a private name alone and does not ask
for.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist


class HostBuffers:
    """Host memory that is used again when the tensors on it are gone.

    A tensor of some MiB from torch's allocator is new memory, whose pages the kernel has to make at
    the first touch of each step. Here that is so in the first step alone.
    """

    def __init__(self) -> None:
        self._free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)
        self.total_bytes = 0  # Of all memory that was made.

    def tensor(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of `count` elements with no values yet."""
        size = count * dtype.itemsize
        if size == 0:
            return torch.empty(count, dtype=dtype)
        free = self._free[size]
        try:
            memory = free.pop()
        except IndexError:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.total_bytes += size
        # The tensor's storage, which views share, holds the view of the memory until its end.
        view = memoryview(memory)
        weakref.finalize(view, free.append, memory).atexit = False
        return torch.frombuffer(view, dtype=dtype, count=count)


class _Collective:
    """What both have: memory, and the Tutti group in the place of FSDP2's."""

    def __init__(self, group: dist.ProcessGroup, buffers: HostBuffers | None = None) -> None:
        self._group = group
        self._buffers = HostBuffers() if buffers is None else buffers
        self._known: Any = None  # The group of the last call.

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Memory for a call, which is there from earlier steps; on GPUs torch's allocator's."""
        if torch.device(device).type != "cpu":
            return torch.empty(*size, dtype=dtype, device=device)
        return self._buffers.tensor(math.prod(int(part) for part in size), dtype).view(*size)

    def _check(self, group: dist.ProcessGroup) -> None:
        """A ValueError where FSDP2's group has other ranks than ours."""
        if group is self._known:
            return
        wanted = dist.get_process_group_ranks(group)
        found = dist.get_process_group_ranks(self._group)
        if found != wanted:
            raise ValueError(
                f"tutti: fsdp: the Tutti group has ranks {found}, the sharded module {wanted}; "
                'remedy: new_group(ranks, backend="tutti") with those of the module\'s mesh'
            )
        self._known = group


class AllGather(_Collective):
    """For FSDPModule.set_custom_all_gather."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        """The ranks' inputs, one behind the other; the input may lie in the output."""
        self._check(group)
        # Torch 2.13 has a new name beside the old one.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return gather(output_tensor, input_tensor, group=self._group, async_op=async_op)


class ReduceScatter(_Collective):
    """For FSDPModule.set_custom_reduce_scatter."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        """Block r of the reduced input to rank r."""
        self._check(group)
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return scatter(output_tensor, input_tensor, op=op, group=self._group, async_op=async_op)


def use_tutti(model: torch.nn.Module, group: dist.ProcessGroup) -> HostBuffers:
    """Gives each FSDP2 module in `model` Tutti's collectives; the memory that they share.

    `group` is of backend tutti and has the ranks among which the modules are sharded.
    """
    from torch.distributed.fsdp import FSDPModule

    buffers = HostBuffers()
    gather, scatter = AllGather(group, buffers), ReduceScatter(group, buffers)
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError("tutti: fsdp: no module is sharded; remedy: fully_shard() first")
    for module in modules:
        module.set_custom_all_gather(gather)
        module.set_custom_reduce_scatter(scatter)
    return buffers
