# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training by DistributedDataParallel: backend tutti against gloo or NCCL.

    python bench/applications/ddp.py [--models resnet gpt] [--scale small] [-o results.json]
    python bench/applications/ddp.py --device cuda --ranks 2 -o results.json

Each rank trains its replica on batches of its own; DDP broadcasts buffers, and sums gradients in
buckets while the backward pass runs. The first steps are compared (training.py), then a step is
timed in pairs of turns (bench/torch_job.py).

Data: seeded noise, and for the transformer also a real text (`gpt-text`): Python's manual as its
standard library ships it for help(), as bytes. No package here ships images.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("python", "bench")]

import torch_job  # noqa: E402
import training  # noqa: E402

SCHEMA = "tutti-ddp/1"
MODELS = ("resnet", "gpt", "gpt-text")
# Batches that a rank trains on, over and over.
BATCHES = 4


def make(name: str, scale: str, seed: int) -> tuple[Any, Any, list[Any]]:
    """A model, its optimiser's class and a rank's batches. `seed`: of the batches."""
    import models
    import torch

    torch.manual_seed(0)
    is_full = scale == "full"
    if name == "resnet":
        shape = models.ResNetShape()
        if not is_full:
            shape = models.ResNetShape(blocks=(1, 1, 1, 1), width=16, classes=10, pixels=64)
        sgd = functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9)
        batches = models.images(shape, 32 if is_full else 8, BATCHES, seed)
        return models.ResNet(shape), sgd, batches
    gpt = models.GptShape()
    if not is_full:
        gpt = models.GptShape(layers=2, heads=4, width=128, context=64, vocabulary=512)
    data = "manual" if name == "gpt-text" else "synthetic"
    adam = functools.partial(torch.optim.AdamW, lr=3e-4)
    return models.Gpt(gpt), adam, models.sequences(gpt, 4, BATCHES, seed, data)


def be_a_rank(arguments: argparse.Namespace) -> None:
    """One rank; a row for each model."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    job = torch_job.Job(arguments)
    context = None
    if arguments.precision == "bfloat16":
        context = functools.partial(torch.autocast, job.device.type, torch.bfloat16)
    for name in arguments.models:
        trainings = {}
        parameters = 0
        for backend, group in job.groups.items():
            model, optimiser, batches = make(name, arguments.scale, job.rank + 1)
            parameters = sum(parameter.numel() for parameter in model.parameters())
            batches = [tuple(part.to(job.device) for part in batch) for batch in batches]
            replica = DistributedDataParallel(model.to(job.device), process_group=group)
            trainings[backend] = training.Training(
                replica, optimiser(replica.parameters()), batches, context
            )
        row = {
            "model": name,
            "scale": arguments.scale,
            "ranks": job.ranks,
            "parameters": parameters,
            "precision": arguments.precision,
        }
        row |= training.compare(job, trainings, arguments)
        row |= training.time_pairs(job, trainings, arguments)
        job.emit(row)
        del trainings, replica, model, optimiser
    job.leave()


def main() -> int:
    """Trains, compares, prints, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--scale",
        choices=("small", "full"),
        help="full: ResNet-50, GPT-2 small; small: for two processors (small on cpu, full on cuda)",
    )
    training.add_options(parser, steps=10, turn=3)
    torch_job.add_options(parser, ranks=[2], pairs=10)
    arguments = parser.parse_args()
    arguments.scale = arguments.scale or ("full" if arguments.device == "cuda" else "small")
    if arguments.rank:
        be_a_rank(arguments)
        return 0
    training.check_options(parser, arguments)
    return torch_job.run(
        parser, arguments, SCHEMA, training.TITLE, lambda row: training.shown(row, row["model"])
    )


if __name__ == "__main__":
    sys.exit(main())
