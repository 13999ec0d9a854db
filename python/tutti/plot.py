# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti plot`: the latency-and-speedup figure of results files."""

from __future__ import annotations

from pathlib import Path

import click

from tutti import figure, results


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "-o",
    "--output",
    "out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Image to write: .png, .pdf or .svg.",
)
def command(files: tuple[Path, ...], out: Path) -> None:
    """Draw latency per plan and the hybrid's speedup over native, one panel per document."""
    documents = [document for file in files for document in results.load(file)]
    figure.save(documents, out)
