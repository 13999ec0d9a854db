# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti config`: every knob, its value and where the value comes from."""

from __future__ import annotations

from typing import Any

import click

from tutti_hpc import api, output


def _word(value: Any) -> str:
    """A value as one writes it in the environment."""
    if value is None or value == "":
        return "-"
    return ("1" if value else "0") if isinstance(value, bool) else str(value)


def text(knobs: list[dict[str, Any]], origin: bool) -> str:
    """A table; with `origin` also where each value comes from. Without names that are old."""
    knobs = [knob for knob in knobs if "replaced_by" not in knob]
    header = ["name", "value", "type", "unit", "range", "default", *(["origin"] if origin else [])]
    rows = [header]
    for knob in knobs:
        words = [knob["name"], *(_word(knob[key]) for key in header[1:])]
        rows.append(words)
    table = output.columns(rows).splitlines()
    lines = [click.style(table[0], bold=True)]
    for line, knob in zip(table[1:], knobs):
        changed = knob["origin"] != "default"
        lines += [click.style(line, bold=True) if changed else line, f"    {knob['effect']}"]
    return "\n".join(lines)


@click.command()
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@output.form_options
def command(form: str, origin: bool) -> None:
    """Print every knob with type, unit, range, default and value."""
    library = api.library()
    knobs = library.config()
    for problem in library.config_problems():
        output.note(problem["text"])
    output.show(form, text=lambda: text(knobs, origin), document=knobs, records=lambda: knobs)
