# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti plot`: the latency-and-speedup figure of results files."""

from __future__ import annotations

from pathlib import Path

import click

from tutti_hpc import figure, results
from tutti_hpc import files as output_files
from tutti_hpc.errors import TuttiError


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "-o",
    "--output",
    "out",
    required=True,
    type=output_files.OutputFile(output_files.IMAGES),
    help="Image to write: .png, .pdf or .svg.",
)
@click.option("--collective", "collectives", multiple=True, help="Only this one; may be repeated.")
def command(files: tuple[Path, ...], out: Path, collectives: tuple[str, ...]) -> None:
    """Draw latency per plan and the hybrid's speedup over native.

    One panel per collective and layout; repeated measurements are drawn as their median.
    """
    documents = [document for file in files for document in results.load(file)]
    if unknown := set(collectives) - {document.collective for document in documents}:
        raise TuttiError(f"--collective {', '.join(sorted(unknown))}: not in these files")
    wanted = [d for d in documents if not collectives or d.collective in collectives]
    figure.save(results.merge(wanted), out)
