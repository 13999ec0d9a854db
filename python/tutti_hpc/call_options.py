# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Options that describe a collective call; shared by `bench` and `explain`."""

from __future__ import annotations

import click

from tutti_hpc import terms


def collective(value: str) -> str:
    """A collective's name in any of its spellings; click shows a usage error."""
    try:
        return terms.canonical_collective(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


collective_argument = click.argument("collective", type=collective)
type_option = click.option(
    "--type",
    "data_type",
    type=click.Choice(list(terms.TYPES)),
    default="float32",
    show_default=True,
    help="Element type.",
)
op_option = click.option(
    "--op",
    type=click.Choice(list(terms.OPS)),
    default="sum",
    show_default=True,
    help="Reduction operation.",
)
