# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Sizes in bytes as people write them: K, M, G and T are binary, as in NCCL's and UCX's options."""

from __future__ import annotations

import re

import click

_SUFFIXES = "KMGT"


def parse_bytes(text: str) -> int:
    """`64K` -> 65536; also `64KB`, `64KiB`. ValueError names what is wrong."""
    match = re.fullmatch(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"'{text}' is not a size; write for example 4, 64K or 1M")
    number, suffix = match.groups()
    return int(number) << (10 * (_SUFFIXES.index(suffix.upper()) + 1) if suffix else 0)


def format_bytes(size: int) -> str:
    """65536 -> `64K`, 100 -> `100`; exact."""
    for shift in range(len(_SUFFIXES), 0, -1):
        if size and size % (1 << (10 * shift)) == 0:
            return f"{size >> (10 * shift)}{_SUFFIXES[shift - 1]}"
    return str(size)


def size(value: str | int) -> int:
    """A size on the command line; click shows a usage error."""
    try:
        return value if isinstance(value, int) else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
