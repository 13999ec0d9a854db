# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Training with two backends: the same steps on each, compared; then the time of a step, in pairs.

Two ranks add two numbers, and there is one order for that: the losses of all steps, and the
parameters after them, are equal bit by bit. More ranks may add in different orders, and training
makes such differences grow. There each step begins with equal parameters, and its gradients agree
to rounding (LIMITS). The compared steps run with torch's deterministic algorithms, the timed ones
without.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from typing import TYPE_CHECKING, Any

import torch_job

if TYPE_CHECKING:
    import torch  # The options are read without it.

# Of what compare() finds; a difference of gradients is by their largest element.
LIMITS = {"losses_that_differ": 0, "tensors_that_differ": 0, "gradient_difference": 1e-5}
PRECISIONS = ("float32", "bfloat16")


def add_options(parser: argparse.ArgumentParser, steps: int, turn: int) -> None:
    """The options of a training."""
    parser.add_argument("--steps", type=int, default=steps, help=f"steps to compare ({steps})")
    parser.add_argument("--turn", type=int, default=turn, help=f"steps of a timed turn ({turn})")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32", help="(float32)")
    parser.add_argument("--plant", action="store_true", help="one gradient of ours is made wrong")


def check_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Ends with an error that names the option; also prepares the environment of the ranks."""
    if min(arguments.steps, arguments.turn) < 1:
        parser.error("--steps, --turn: at least 1")
    # For deterministic products on CUDA, which reads it when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


class Training:
    """A model that is trained on batches in turns."""

    def __init__(self, model: Any, optimiser: Any, batches: list[Any], context: Any = None) -> None:
        self.model = model
        self.optimiser = optimiser
        self.batches = batches
        self.context = context or contextlib.nullcontext
        self.steps = 0
        self.gradients: list[torch.Tensor] | None = None  # A list: the last step's are kept in it.

    def step(self, is_planted: bool = False) -> torch.Tensor:
        """One step; the loss before it. `is_planted`: with a gradient that is wrong."""
        batch = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        with self.context():
            loss = self.model(*batch)
        loss.backward()
        if is_planted:
            gradient = next(p.grad for p in self.model.parameters() if p.grad is not None)
            local(gradient).view(-1)[0] += 1
        if self.gradients is not None:
            found = (parameter.grad for parameter in self.model.parameters())
            self.gradients = [local(grad).clone() for grad in found if grad is not None]
        self.optimiser.step()
        self.optimiser.zero_grad()
        return loss.detach()

    def run(self, steps: int, is_planted: bool = False) -> list[float]:
        """The losses of some steps, the first of which may be planted."""
        losses = [self.step(is_planted and number == 0) for number in range(steps)]
        return [loss.item() for loss in losses]

    def seconds(self, job: torch_job.Job, steps: int) -> float:
        """Of a step, over some."""

        def turn() -> None:
            for _ in range(steps):
                self.step()

        return job.seconds(turn) / steps


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a sharded tensor; another tensor as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return local(tensor).detach().contiguous().view(-1).view(torch.uint8)


@contextlib.contextmanager
def deterministic() -> Any:
    """A step is a function of parameters and batch, on GPUs as well."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        # Of the kernels for attention, the plain one alone has a fixed order in its gradients.
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = before


def _states(trainings: dict[str, Training]) -> Any:
    """Parameters and buffers of both, in pairs."""
    return zip(*(training.model.state_dict().values() for training in trainings.values()))


def _gradient_difference(ours: Training, theirs: Training) -> float:
    """Largest difference of the last step's gradients, by the largest element."""
    import torch

    assert ours.gradients is not None
    assert theirs.gradients is not None
    pairs = [(a, b) for a, b in zip(ours.gradients, theirs.gradients) if a.numel()]
    # By torch.max, whose result is not a number where one of the elements is none.
    difference = torch.stack([(one - other).abs().max() for one, other in pairs]).max()
    return float(difference / torch.stack([other.abs().max() for _, other in pairs]).max())


def _compare_curves(trainings: dict[str, Training], steps: int, plant: str) -> dict[str, Any]:
    """Steps of each backend for itself: losses, and the parameters and buffers at the end."""
    import torch

    losses = {name: one.run(steps, name == plant) for name, one in trainings.items()}
    differ = sum(not torch.equal(_bits(one), _bits(other)) for one, other in _states(trainings))
    return {"losses": losses, "tensors_that_differ": differ}


def _compare_steps(trainings: dict[str, Training], steps: int, plant: str) -> dict[str, Any]:
    """Steps that begin with equal parameters: losses and gradients."""
    import torch

    losses: dict[str, list[float]] = {name: [] for name in trainings}
    differences = []
    for number in range(steps):
        for name, one in trainings.items():
            one.gradients = []
            losses[name] += one.run(1, number == 0 and name == plant)
        differences.append(_gradient_difference(*trainings.values()))
        for our, their in _states(trainings):
            local(our).copy_(local(their))
    for one in trainings.values():
        one.gradients = None
    return {"losses": losses, "gradient_difference": torch.tensor(differences).max().item()}


def compare(
    job: torch_job.Job, trainings: dict[str, Training], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Some steps of both, ours first, from equal parameters; whether they agree."""
    ours, theirs = trainings
    check = _compare_curves if job.ranks <= 2 else _compare_steps
    with deterministic():
        found = check(trainings, arguments.steps, ours if arguments.plant else "")
    losses = found["losses"]
    found["losses_that_differ"] = sum(a != b for a, b in zip(losses[ours], losses[theirs]))
    limits = {name: limit for name, limit in LIMITS.items() if name in found}
    for name in limits:
        value = float(found[name])
        found[name] = job.largest(value if math.isfinite(value) else sys.float_info.max)
    found["is_right"] = all(found[name] <= limit for name, limit in limits.items())
    if job.rank == 0 and not found["is_right"]:
        said = ", ".join(f"{name} {found[name]:g}, limit {limits[name]:g}" for name in limits)
        print(f"wrong: {said}", file=sys.stderr, flush=True)
    return found


def time_pairs(
    job: torch_job.Job, trainings: dict[str, Training], arguments: argparse.Namespace
) -> dict[str, Any]:
    """The time of a step with each, quartiles."""
    if job.is_cuda:
        import torch

        torch.backends.cudnn.benchmark = True
    for training in trainings.values():
        training.run(2)
    turns = {
        name: lambda training=training: training.seconds(job, arguments.turn)
        for name, training in trainings.items()
    }
    return {"steps_of_a_turn": arguments.turn, **job.pairs(turns, arguments.pairs)}


def shown(row: dict[str, Any], name: str) -> str:
    """A row as a line; `name` says what it is of."""
    low, middle, high = row["ratio"]
    theirs = row.get("gloo_us") or row["nccl_us"]
    rounding = row.get("gradient_difference", 0.0)
    verdict = f"{rounding:.0e}" if rounding else "equal"
    return (
        f"{name:22}{row['ranks']:3}{row['parameters'] / 1e6:9.2f}M"
        f"  {verdict if row['is_right'] else 'WRONG':7}"
        f"{row['tutti_us'][1] / 1e3:11.2f}{theirs[1] / 1e3:11.2f}{middle:8.2f}"
        f"  {low:.2f}..{high:.2f}"
    )


TITLE = "what               ranks parameters  result   tutti ms  theirs ms   ratio  quartiles"
