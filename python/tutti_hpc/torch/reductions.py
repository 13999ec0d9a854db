# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Torch's types and reduce operations in the C API's numbers, and what the C API lacks of them.

AVG of integers is a sum that is divided afterwards. PREMUL_SUM multiplies before. Bool is uint8,
whose sum and product are then max and min.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch._C._distributed_c10d import ReduceOp

from tutti_hpc.torch import bindings

_TYPES = {
    "uint8": 2,
    "int8": 1,
    "int16": 3,
    "uint16": 4,
    "int32": 5,
    "uint32": 6,
    "int64": 7,
    "uint64": 8,
    "float16": 9,
    "bfloat16": 10,
    "float32": 11,
    "float64": 12,
    "complex64": 13,
    "complex128": 14,
    "bool": 2,
}
TYPES = {getattr(torch, name): number for name, number in _TYPES.items() if hasattr(torch, name)}
_EVERY = {
    ReduceOp.SUM: bindings.SUM,
    ReduceOp.PRODUCT: bindings.PROD,
    ReduceOp.AVG: bindings.SUM,
    ReduceOp.PREMUL_SUM: bindings.SUM,
}
_ORDERED = {ReduceOp.MIN: bindings.MIN, ReduceOp.MAX: bindings.MAX}
_BITS = {ReduceOp.BAND: bindings.BAND, ReduceOp.BOR: bindings.BOR, ReduceOp.BXOR: bindings.BXOR}
_BOOL = {
    ReduceOp.SUM: bindings.MAX,
    ReduceOp.MAX: bindings.MAX,
    ReduceOp.BOR: bindings.MAX,
    ReduceOp.PRODUCT: bindings.MIN,
    ReduceOp.MIN: bindings.MIN,
    ReduceOp.BAND: bindings.MIN,
    ReduceOp.BXOR: bindings.BXOR,
}


class Reduction:
    """One operation on one type. `factor`: multiplied before; `is_divided`: after."""

    __slots__ = ("factor", "is_divided", "is_plain", "op", "type")

    def __init__(self, type_: int, op: int, factor: Any = None, is_divided: bool = False) -> None:
        self.type = type_
        self.op = op
        self.factor = factor
        self.is_divided = is_divided
        self.is_plain = factor is None and not is_divided

    def before(self, tensor: torch.Tensor) -> torch.Tensor:
        """What is summed; `tensor` itself but for PREMUL_SUM."""
        return tensor if self.factor is None else torch.mul(tensor, self.factor).to(tensor.dtype)

    def after(self, tensor: torch.Tensor, ranks: int) -> None:
        """Turns the sum of integers into the average, in place."""
        if self.is_divided:
            tensor.div_(ranks, rounding_mode="trunc")


def _op_for(kind: Any, dtype: torch.dtype) -> Optional[int]:
    if dtype is torch.bool:
        return _BOOL.get(kind)
    found = _EVERY.get(kind)
    if kind == ReduceOp.PREMUL_SUM and not (dtype.is_floating_point or dtype.is_complex):
        return None
    if kind == ReduceOp.AVG and (dtype.is_floating_point or dtype.is_complex):
        return bindings.AVG
    if not dtype.is_complex:
        found = found or _ORDERED.get(kind)
        if not dtype.is_floating_point:
            found = found or _BITS.get(kind)
    return found


def _make(op: Any, dtype: torch.dtype, what: str) -> Reduction:
    kind = getattr(op, "op", op)
    number = TYPES.get(dtype)
    found = None if number is None else _op_for(kind, dtype)
    if number is None or found is None:
        name = str(kind).rpartition(".")[2]
        raise ValueError(
            f"tutti: {what} with ReduceOp.{name} on {dtype} is not supported; remedy: another "
            "operation, or a tensor of another type"
        )
    factor = op.__getstate__()[1] if kind == ReduceOp.PREMUL_SUM else None
    is_divided = kind == ReduceOp.AVG and found == bindings.SUM
    return Reduction(number, found, factor, is_divided)


# By the hash of an operation, which is its kind: operations compare at the cost of six look-ups.
_known: dict[tuple[int, torch.dtype], Reduction] = {}


def find(op: Any, dtype: torch.dtype, what: str) -> Reduction:
    """The reduction; a ValueError that names operation and type where there is none."""
    key = (hash(op), dtype)
    found = _known.get(key)
    if found is None:
        found = _make(op, dtype, what)
        if found.factor is None:  # Operations with different factors are equal to each other.
            _known[key] = found
    return found
