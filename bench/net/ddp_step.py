# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""One rank of PyTorch over NCCL: every kind of call checked, then steps of data-parallel training.

    python bench/net/ddp_step.py --rank 0 --ranks 4 --device 0 --store FILE --check --steps 20

bench/nccl_network.py starts the ranks. The model has the parameters of ResNet-50 (He et al. 2016,
with the stride in the 3x3 convolution), its data are random numbers. Prints lines of JSON, as
nccl_ranks does.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

PARAMETERS = 25_557_032  # Of ResNet-50 with 1000 classes, in 161 tensors.
TENSORS = 161
CLASSES = 1000
COUNTS = (1, 3, 1000, 65_537, 1_000_003)  # Of elements, for each rank.
TYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int64,
    torch.uint8,
)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 beside a shortcut."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """With weights as PyTorch starts them."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inside = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            layers.append(Bottleneck(inside, width, 2 if block == 0 and width > 64 else 1))
            inside = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, CLASSES)]
    model = nn.Sequential(*layers)
    sizes = [one.numel() for one in model.parameters()]
    assert (sum(sizes), len(sizes)) == (PARAMETERS, TENSORS), (sum(sizes), len(sizes))
    return model


def say(rank: int, **more: Any) -> None:
    """One line, at once."""
    print(json.dumps({"rank": rank, **more}), flush=True)


class Calls:
    """Collectives by PyTorch's names, their results against the definition.

    Elements are small whole numbers, so that every type holds them and their sums exactly.
    """

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        self.rank, self.ranks, self.device = rank, ranks, device
        self.checked = 0
        self.wrong: list[str] = []

    def sent(self, rank: int, count: int, kind: torch.dtype, offset: int = 0) -> Tensor:
        """What a rank sends from an element on."""
        at = torch.arange(offset, offset + count, device=self.device)
        return ((at * 5 + rank * 3) % 7).to(kind)

    def summed(self, count: int, kind: torch.dtype, offset: int = 0) -> Tensor:
        """Over all ranks."""
        total = self.sent(0, count, kind, offset)
        for rank in range(1, self.ranks):
            total = total + self.sent(rank, count, kind, offset)
        return total

    def expect(self, what: str, found: Tensor, right: Tensor) -> None:
        """Equal in every element."""
        self.checked += 1
        if not torch.equal(found, right):
            differ = int((found != right).sum())
            self.wrong.append(f"{what}: {differ} of {right.numel()} elements")

    def all(self) -> None:
        """Every collective with every count and type."""
        for kind in TYPES:
            for count in COUNTS:
                name = f"{count} of {kind}"
                for what, run in self.collectives():
                    run(f"{what}, {name}", count, kind)
        self.uneven()
        self.in_flight()
        self.neighbours()

    def collectives(self) -> Iterator[tuple[str, Callable[[str, int, torch.dtype], None]]]:
        """By name."""
        yield "all_reduce", self.all_reduce
        yield "all_gather_into_tensor", self.all_gather
        yield "reduce_scatter_tensor", self.reduce_scatter
        yield "all_to_all_single", self.all_to_all
        yield "broadcast", self.broadcast

    def all_reduce(self, what: str, count: int, kind: torch.dtype) -> None:
        data = self.sent(self.rank, count, kind)
        dist.all_reduce(data)
        self.expect(what, data, self.summed(count, kind))

    def all_gather(self, what: str, count: int, kind: torch.dtype) -> None:
        found = torch.empty(count * self.ranks, dtype=kind, device=self.device)
        dist.all_gather_into_tensor(found, self.sent(self.rank, count, kind))
        parts = [self.sent(rank, count, kind) for rank in range(self.ranks)]
        self.expect(what, found, torch.cat(parts))

    def reduce_scatter(self, what: str, count: int, kind: torch.dtype) -> None:
        found = torch.empty(count, dtype=kind, device=self.device)
        dist.reduce_scatter_tensor(found, self.sent(self.rank, count * self.ranks, kind))
        self.expect(what, found, self.summed(count, kind, self.rank * count))

    def all_to_all(self, what: str, count: int, kind: torch.dtype) -> None:
        found = torch.empty(count * self.ranks, dtype=kind, device=self.device)
        dist.all_to_all_single(found, self.sent(self.rank, count * self.ranks, kind))
        parts = [self.sent(rank, count, kind, self.rank * count) for rank in range(self.ranks)]
        self.expect(what, found, torch.cat(parts))

    def broadcast(self, what: str, count: int, kind: torch.dtype) -> None:
        root = count % self.ranks
        data = self.sent(self.rank, count, kind)
        dist.broadcast(data, root)
        self.expect(what, data, self.sent(root, count, kind))

    def uneven(self) -> None:
        """Each pair has a length of its own, one of them none."""

        def length(source: int, target: int) -> int:
            return (source * self.ranks + target) * 997

        kind = torch.float32
        outs = [length(self.rank, peer) for peer in range(self.ranks)]
        ins = [length(peer, self.rank) for peer in range(self.ranks)]
        found = torch.empty(sum(ins), dtype=kind, device=self.device)
        data = torch.cat(
            [self.sent(self.rank + peer, outs[peer], kind) for peer in range(self.ranks)]
        )
        dist.all_to_all_single(found, data, ins, outs)
        right = [self.sent(self.rank + peer, ins[peer], kind) for peer in range(self.ranks)]
        self.expect("all_to_all_single, uneven", found, torch.cat(right))

    def in_flight(self) -> None:
        """Several calls at once, on two communicators."""
        other = dist.new_group(list(range(self.ranks)))
        data = [self.sent(self.rank, 100_000 + i, torch.float32) for i in range(8)]
        works = [
            dist.all_reduce(one, group=other if i % 2 else None, async_op=True)
            for i, one in enumerate(data)
        ]
        for work in works:
            work.wait()
        for i, one in enumerate(data):
            self.expect(f"call {i} of 8", one, self.summed(100_000 + i, torch.float32))
        dist.destroy_process_group(other)

    def neighbours(self) -> None:
        """A ring of messages."""
        count, kind = 1_000_003, torch.float32
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        found = torch.empty(count, dtype=kind, device=self.device)
        operations = [
            dist.P2POp(dist.isend, self.sent(self.rank, count, kind), after),
            dist.P2POp(dist.irecv, found, before),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        self.expect("isend and irecv", found, self.sent(before, count, kind))


def equal_on_all_ranks(data: Tensor) -> bool:
    """Bit by bit; a value that is no number is equal to none."""
    least, most = data.clone(), data.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return bool(torch.equal(least, most) and torch.equal(data, least))


def gradients_of(model: nn.Module) -> Tensor:
    """All in one."""
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


def train(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Times of steps after a warm-up, forward, backward with its all-reduces, and update."""
    torch.manual_seed(1)
    ids = [options.device] if device.type == "cuda" else None
    model = nn.parallel.DistributedDataParallel(resnet50().to(device), device_ids=ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    torch.manual_seed(100 + options.rank)  # Every rank has data of its own.
    images = torch.randn(options.batch, 3, options.pixels, options.pixels, device=device)
    labels = torch.randint(CLASSES, (options.batch,), device=device)
    times_ms = []
    for step in range(options.warm_up + options.steps):
        begin_s = time.monotonic()
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()  # Waits for the device.
        if step >= options.warm_up:
            times_ms.append((time.monotonic() - begin_s) * 1e3)
    gradients = gradients_of(model)
    return {
        "steps": len(times_ms),
        "step_ms_p50": round(statistics.median(times_ms), 3),
        "step_ms_min": round(min(times_ms), 3),
        "step_ms_max": round(max(times_ms), 3),
        "loss": value,
        "gradients": gradients.numel(),
        "gradients_equal": equal_on_all_ranks(gradients),
        "weights_equal": equal_on_all_ranks(
            torch.cat([one.detach().flatten() for one in model.parameters()])
        ),
    }


def main() -> int:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--device", type=int, required=True)
    parser.add_argument("--store", required=True, help="a file that is not there yet")
    parser.add_argument("--backend", default="nccl", help="gloo: a test without GPUs")
    parser.add_argument("--check", action="store_true", help="every kind of call first")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pixels", type=int, default=224)
    options = parser.parse_args()
    device = torch.device("cpu")
    if options.backend == "nccl":
        device = torch.device("cuda", options.device)
        torch.cuda.set_device(device)
    begin_s = time.monotonic()
    dist.init_process_group(
        options.backend,
        init_method=f"file://{options.store}",
        rank=options.rank,
        world_size=options.ranks,
        timeout=datetime.timedelta(seconds=100),
        device_id=device if device.type == "cuda" else None,
    )
    failed = False
    try:
        dist.barrier()
        version = ".".join(map(str, torch.cuda.nccl.version())) if device.type == "cuda" else ""
        say(
            options.rank,
            event="start",
            torch=torch.__version__,
            nccl=version,
            cuda=f"(CUDA {torch.version.cuda})",
            init_s=round(time.monotonic() - begin_s, 3),
        )
        if options.check:
            calls = Calls(options.rank, options.ranks, device)
            calls.all()
            say(options.rank, checked=calls.checked, wrong=len(calls.wrong), texts=calls.wrong[:5])
            failed = bool(calls.wrong)
        if options.steps:
            result = train(options, device)
            say(options.rank, **result)
            failed |= not (result["gradients_equal"] and result["weights_equal"])
    finally:
        dist.destroy_process_group()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
