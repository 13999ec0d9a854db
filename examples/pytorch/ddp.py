# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training of a small network on CPUs, with backend tutti.

    torchrun --nproc-per-node 2 examples/pytorch/ddp.py [BACKEND]

Each rank trains on its own samples of a function; DDP averages the gradients. At the end all ranks
have the same parameters, which is checked.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import tutti_hpc.torch  # noqa: F401  # Registers the name; not needed where Tutti is installed.
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, SAMPLES = 100, 64


def main() -> int:
    """Prints the loss now and then; exit status 1 when the ranks' parameters differ."""
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "tutti")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    points = torch.rand(SAMPLES, 1) * 6 - 3
    wanted = torch.sin(points)

    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        loss = nn.functional.mse_loss(model(points), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if rank == 0 and (step + 1) % 25 == 0:
            print(f"step {step + 1:4d}  loss {loss.item():.5f}", flush=True)

    own = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    is_equal = all(torch.equal(own, other) for other in everyone)
    if rank == 0:
        print(f"backend {dist.get_backend()}, {len(everyone)} ranks: parameters", end=" ")
        print("equal" if is_equal else "DIFFER", flush=True)
    dist.destroy_process_group()
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
