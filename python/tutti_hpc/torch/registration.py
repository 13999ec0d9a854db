# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the name "tutti" known to torch.distributed, and on demand takes other names over."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import re
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from tutti_hpc.torch.works import use_quick_extraction

NAME = "tutti"
# Set by users alone: backends that a script names and that are to be Tutti.
REPLACE = "TUTTI_TORCH_REPLACE"
REPLACEABLE = ("gloo", "nccl")
log = logging.getLogger("tutti_hpc.torch")


def has_python_backends() -> bool:
    """Whether a Backend can be made in Python, as from torch 2.14 on."""
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return found is not None and (int(found[1]), int(found[2])) >= (2, 14)


def _create(options: Any, _group_options: Any = None) -> Any:
    """What init_process_group and new_group call on each rank of the group."""
    use_quick_extraction()
    arguments = (
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        str(options.group_id),
    )
    if has_python_backends():
        from tutti_hpc.torch.backend import TuttiBackend

        return TuttiBackend(*arguments)
    from tutti_hpc.torch.process_group import TuttiProcessGroup

    return TuttiProcessGroup(*arguments)


def replaced() -> list[str]:
    """The names in TUTTI_TORCH_REPLACE; a ValueError where one cannot be replaced."""
    names = [name.strip().lower() for name in os.environ.get(REPLACE, "").split(",")]
    names = [name for name in names if name]
    for name in names:
        if name not in REPLACEABLE:
            raise ValueError(
                f"{REPLACE}: {name} cannot be replaced; remedy: a list of "
                f"{' and '.join(REPLACEABLE)}"
            )
    return names


def _replaced_in(text: str, names: list[str]) -> str:
    """A backend's name, or a list such as `cpu:gloo,cuda:nccl`, with ours in the names' place."""
    parts = [part.rpartition(":") for part in text.split(",")]
    return ",".join(
        device + colon + (NAME if name.strip().lower() in names else name)
        for device, colon, name in parts
    )


def _replace() -> None:
    """Groups whose backend is named in TUTTI_TORCH_REPLACE become ours.

    The variable is read when a group is made. get_backend() still says the script's word, on which
    scripts decide what device their tensors are on.
    """
    config = distributed_c10d.BackendConfig
    original = config.__init__

    @functools.wraps(original)
    def initialise(self: Any, backend: Any) -> None:
        original(self, backend)
        names = replaced()
        taken = [d for d, name in self.device_backend_map.items() if str(name) in names]
        for device in taken:
            self.device_backend_map[device] = NAME
        if taken:
            log.info("%s: %s is tutti for %s", REPLACE, backend, ", ".join(taken))

    config.__init__ = initialise
    if has_python_backends():
        _replace_default()


def _replace_default() -> None:
    """From 2.14 on the name also gives a group its default backend, before the map is looked at."""
    original = distributed_c10d._new_process_group_helper

    @functools.wraps(original)
    def make(*arguments: Any, **named: Any) -> Any:
        bound = inspect.signature(original).bind(*arguments, **named)
        said = bound.arguments["backend"]
        bound.arguments["backend"] = distributed_c10d.Backend(_replaced_in(str(said), replaced()))
        group, store = original(*bound.args, **bound.kwargs)
        world = distributed_c10d._world
        if group in world.pg_map:
            world.pg_map[group] = (said, world.pg_map[group][1])
        return group, store

    distributed_c10d._new_process_group_helper = make


def _ours(messages: Any) -> Any:
    """Our group of a batch of messages between CUDA tensors, or None."""
    from tutti_hpc.torch.collectives import Collectives

    if not messages or not all(isinstance(one, dist.P2POp) for one in messages):
        return None  # An error of torch's.
    if not all(one.tensor.is_cuda for one in messages):
        return None
    group = messages[0].group or distributed_c10d._get_default_group()
    if not isinstance(group, Collectives) and has_python_backends():
        group = group._get_backend(messages[0].tensor.device)
    return group if isinstance(group, Collectives) else None


def _batch_messages() -> None:
    """batch_isend_irecv tells only groups of torch's own that calls are a batch."""
    original = distributed_c10d.batch_isend_irecv

    @functools.wraps(original)
    def batch(p2p_op_list: Any) -> list[Any]:
        ours = _ours(p2p_op_list)
        works: list[Any] = (
            original(p2p_op_list)
            if ours is None
            else ours.batch_cuda_messages(lambda: original(p2p_op_list))
        )
        return works

    distributed_c10d.batch_isend_irecv = dist.batch_isend_irecv = batch


def _is_ours(group: Any) -> bool:
    """Whether all devices of a group are ours."""
    from tutti_hpc.torch.collectives import Collectives

    if isinstance(group, Collectives):
        return True
    if not (isinstance(group, dist.ProcessGroup) and has_python_backends()):
        return False
    return all(isinstance(group._get_backend(one), Collectives) for one in group._device_types)


# How often a group was split: all of its ranks are in each of these calls.
_splits: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def _split(parent: Any, lists: list[list[int]], timeout: Any, description: Any) -> Any:
    """A group of the ranks in this rank's list, or None; `lists`: of ranks of the parent."""
    world = distributed_c10d._world
    group_ranks = world.pg_group_ranks[parent]
    of_parent = {of_group: rank for rank, of_group in group_ranks.items()}
    _splits[parent] = _splits.get(parent, 0) + 1
    seen: set[int] = set()
    for rank in (rank for part in lists for rank in part):
        if rank in seen or rank not in of_parent:
            what = "stands twice in the lists" if rank in seen else "is not in the parent group"
            raise ValueError(
                f"tutti: split_group: rank {rank} {what}; remedy: lists of ranks 0 to "
                f"{len(group_ranks) - 1}, each rank once at most"
            )
        seen.add(rank)
    own = group_ranks[dist.get_rank()]
    mine = next((sorted(part) for part in lists if own in part), None)
    if mine is None:
        return None
    ranks = [of_parent[rank] for rank in mine]
    # Torch's names of groups that only their members make count groups of which a rank is one.
    name = f"{parent.group_name}/split{_splits[parent]}/{mine[0]}"
    backend = distributed_c10d.Backend(world.pg_map[parent][0])
    group, _ = distributed_c10d._new_process_group_helper(
        len(ranks),
        mine.index(own),
        ranks,
        backend,
        world.pg_map[distributed_c10d._get_default_group()][1],
        name,
        timeout=timeout or distributed_c10d._get_default_timeout(backend),
        group_desc=description or f"{parent.group_desc}:split",
    )
    world.pg_group_ranks[group] = {rank: i for i, rank in enumerate(ranks)}
    return group


def _split_groups() -> None:
    """split_group wants a backend that splits; beside one, new groups of NCCL want to split it.

    A split of ours is made by the store and by its members alone, also without GPUs. It has no
    options of its own and all of the parent's devices.
    """
    original = distributed_c10d.split_group
    signature = inspect.signature(original)

    @functools.wraps(original)
    def split(*arguments: Any, **named: Any) -> Any:
        given = signature.bind(*arguments, **named).arguments
        parent = given.get("parent_pg") or dist.group.WORLD
        lists = given.get("split_ranks")
        if lists is None or given.get("backend") is not None or not _is_ours(parent):
            return original(*arguments, **named)
        parts = [[int(rank) for rank in part] for part in lists]
        if not parts or not all(parts):
            raise ValueError("tutti: split_group: an empty list; remedy: a rank in each list")
        return _split(parent, parts, given.get("timeout"), given.get("group_desc"))

    distributed_c10d.split_group = dist.split_group = split
    from torch.distributed import device_mesh

    if hasattr(device_mesh, "split_group"):  # Which a mesh takes where ranks name their GPUs.
        device_mesh.split_group = split


def register() -> None:
    """Registers the backend; a second time changes nothing."""
    if NAME.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    _batch_messages()
    _split_groups()
    if os.environ.get(REPLACE):
        _replace()
