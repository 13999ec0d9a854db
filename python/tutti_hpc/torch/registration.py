# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the name "tutti" known to torch.distributed."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

NAME = "tutti"


def _create(options: Any, _group_options: Any = None) -> Any:
    """What init_process_group and new_group call on each rank of the group."""
    from tutti_hpc.torch.process_group import TuttiProcessGroup

    return TuttiProcessGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        str(options.group_id),
    )


def register() -> None:
    """Registers the backend; again is nothing new."""
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(
            NAME, _create, extended_api=True, devices=["cpu", "cuda"]
        )
