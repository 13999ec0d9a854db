# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti tuning`: checks, converts and shows tuning files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from tutti_hpc import api, files, output, results, tuner

_FILE = click.argument("file", type=click.Path(path_type=Path))


def predicates(rule: dict[str, Any]) -> str:
    """What calls a rule is for, as in `allreduce; nodes 1; bytes ..8K`."""
    words = []
    for key, value in rule.items():
        if key in ("plan", "origin", "parameters"):
            continue
        if isinstance(value, dict):
            value = f"{value.get('min', '')}..{value.get('max', '')}"
        elif isinstance(value, list):
            value = ", ".join(str(part) for part in value)
        words.append(str(value) if key in ("collective", "memory") else f"{key} {value}")
    return "; ".join(words) or "any"


def _write(text: str, out: Path | None) -> None:
    if out is None:
        output.echo(text)
        return
    files.write(out, text)


@click.group()
def command() -> None:
    """Check, make, import and show tuning files."""


@command.command()
@_FILE
@output.form_options
def check(file: Path, form: str) -> None:
    """Check FILE; an error names file, line and key."""
    found = {"file": str(file)} | api.library().tuning_check(str(file))
    output.show(
        form,
        text=lambda: f"{file}: {found['rules']} rules, correct",
        document=found,
        records=lambda: [found],
    )


@command.command("import")
@_FILE
@click.option("-o", "--output", "out", type=files.OutputFile())
def import_(file: Path, out: Path | None) -> None:
    """Convert MPICH's selection JSON; what cannot be carried over is listed on stderr."""
    found = api.library().tuning_import(str(file))
    for line in found["not_carried"]:
        output.note(f"not carried over: {line}")
    _write(json.dumps(found["tuning"], indent=2) + "\n", out)


@command.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", "out", type=files.OutputFile())
def make(files: tuple[Path, ...], out: Path | None) -> None:
    """Make a tuning file from results documents, FILES of `tutti bench --plans mpi,ccl -o`."""
    documents = [document for file in files for document in results.load(file)]
    made = tuner.make(documents)
    tuner.check(made)
    if tuner.unchecked(documents):
        output.note(
            f"the elements of {tuner.unchecked(documents)} measurements were not compared; remedy: "
            "measure with --check"
        )
    _write(json.dumps(made, indent=2) + "\n", out)


@command.command()
@click.option("-o", "--output", "out", type=files.OutputFile())
def schema(out: Path | None) -> None:
    """Write a JSON schema of tuning files, for editors."""
    _write(json.dumps(api.library().tuning_schema(), indent=2) + "\n", out)


@command.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@output.form_options
def show(file: Path | None, form: str) -> None:
    """Show the effective rules in order, of FILE where one is given."""
    if file is not None:
        os.environ["TUTTI_TUNING_FILE"] = str(file)
    found = api.library().tuning_show()
    rows = [
        (str(index), predicates(rule), str(rule["plan"]), str(rule.get("origin", "")))
        for index, rule in enumerate(found["rules"])
    ]
    names = ("rule", "call", "plan", "origin")
    output.show(
        form,
        text=lambda: (
            f"# tuning file: {found['file'] or 'none'}\n"
            + output.columns([("", "call", "plan", "from"), *rows])
        ),
        document=found,
        records=lambda: [dict(zip(names, row)) for row in rows],
    )
