# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Two models in plain torch: a residual network and a transformer, with their training data.

A model's forward takes a batch (inputs, targets) and returns its loss. Full sizes are those of
ResNet-50 (He et al., 2015: 25,557,032 parameters) and of GPT-2 small (Radford et al., 2019:
124,439,808); both are without dropout, so that a step is a function of parameters and batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]


# ---- Residual network ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ResNetShape:
    """`blocks` of each stage; `width`: channels of the first; `pixels` of an image's side."""

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 1000
    pixels: int = 224


class Bottleneck(nn.Module):
    """Convolutions 1x1, 3x3 and 1x1 beside a shortcut; the output has 4 * `width` channels."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != 4 * width:
            convolution = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(4 * width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(images) + self.shortcut(images))


class ResNet(nn.Module):
    """Classifies images."""

    def __init__(self, shape: ResNetShape) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, shape.width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(shape.width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        channels = shape.width
        for stage, count in enumerate(shape.blocks):
            width = shape.width << stage
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Bottleneck(channels, width, stride))
                channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.classify = nn.Linear(channels, shape.classes)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        # A mean and no pooling layer, whose gradient on CUDA is summed in no fixed order.
        features = self.blocks(self.stem(images)).mean((2, 3))
        return functional.cross_entropy(self.classify(features).float(), labels)


def images(shape: ResNetShape, count: int, batches: int, seed: int) -> list[Batch]:
    """Images of noise with labels of no meaning."""
    generator = torch.Generator().manual_seed(seed)
    size = (count, 3, shape.pixels, shape.pixels)
    return [
        (
            torch.randn(size, generator=generator),
            torch.randint(shape.classes, (count,), generator=generator),
        )
        for _ in range(batches)
    ]


# ---- Transformer --------------------------------------------------------------------------------


@dataclass(frozen=True)
class GptShape:
    """`width` of the residual stream; `context`: tokens of a sequence."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    context: int = 1024
    vocabulary: int = 50257

    @property
    def parameters(self) -> int:
        """Of the whole model. The output shares the matrix of the tokens."""
        block = 12 * self.width**2 + 13 * self.width
        return (self.vocabulary + self.context + 2) * self.width + self.layers * block


class Block(nn.Module):
    """Causal self-attention and a perceptron, each behind a layer norm and beside a shortcut."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.project = nn.Linear(shape.width, shape.width)
        self.norm_perceptron = nn.LayerNorm(shape.width)
        self.perceptron = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * shape.width, shape.width),
        )

    def attend(self, stream: torch.Tensor) -> torch.Tensor:
        sequences, tokens, width = stream.shape
        parts = self.query_key_value(stream).view(sequences, tokens, 3 * self.heads, -1)
        query, key, value = parts.transpose(1, 2).chunk(3, dim=1)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project(found.transpose(1, 2).reshape(sequences, tokens, width))

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        stream = stream + self.attend(self.norm_attention(stream))
        return stream + self.perceptron(self.norm_perceptron(stream))


class Gpt(nn.Module):
    """Predicts each next token."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        stream = self.tokens(tokens) + self.places(places)
        for block in self.blocks:
            stream = block(stream)
        logits = functional.linear(self.norm(stream), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def python_manual() -> torch.Tensor:
    """The text of Python's manual that its standard library has for help(), as bytes."""
    from pydoc_data import topics

    text = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()


def sequences(shape: GptShape, count: int, batches: int, seed: int, data: str) -> list[Batch]:
    """Sequences of tokens: of no meaning (`synthetic`), or bytes of Python's manual (`manual`)."""
    generator = torch.Generator().manual_seed(seed)
    size = (count, shape.context + 1)
    found = []
    text = python_manual() if data == "manual" else None
    for _ in range(batches):
        if text is None:
            drawn = torch.randint(shape.vocabulary, size, generator=generator)
        else:
            first = torch.randint(len(text) - size[1], (count, 1), generator=generator)
            drawn = text[first + torch.arange(size[1])]
        found.append((drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()))
    return found
