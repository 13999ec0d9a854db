# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""An ordinary PyTorch program on NCCL: times all_reduce and checks it. It knows nothing of Tutti.

    torchrun --nproc-per-node 2 examples/nccl/allreduce.py

With ONE_HOST_PER_RANK=1 the ranks of one machine take each other for hosts, so that NCCL uses its
network where it would else use NVLink. docs/guide-nccl.md runs it.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

if os.environ.get("ONE_HOST_PER_RANK") == "1":
    os.environ["NCCL_HOSTID"] = f"host{os.environ['RANK']}"  # Before NCCL is initialised.

import torch  # type: ignore[import-not-found,unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

SIZES_BYTES = (64 << 10, 1 << 20, 16 << 20)
CALLS, WARM_UP = 20, 5


def main() -> int:
    """Prints a line for each size; exit status 1 when an element is wrong."""
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    wrong = 0
    for size_bytes in SIZES_BYTES:
        times_ms = []
        for call in range(WARM_UP + CALLS):
            data = torch.full((size_bytes // 4,), float(rank + 1), device="cuda")
            torch.cuda.synchronize()
            begin_s = time.perf_counter()
            dist.all_reduce(data)
            torch.cuda.synchronize()
            if call >= WARM_UP:
                times_ms.append((time.perf_counter() - begin_s) * 1e3)
            wrong += int((data != ranks * (ranks + 1) / 2).sum())
        if rank == 0:
            print(f"{size_bytes:10d} bytes  {statistics.median(times_ms):9.3f} ms")
    dist.destroy_process_group()
    if wrong:
        print(f"rank {rank}: {wrong} wrong elements", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
