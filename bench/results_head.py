# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What every results document of bench/ begins with, and how one is read."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tutti_hpc import __version__, files, machine
from tutti_hpc.errors import TuttiError

ROOT = Path(__file__).resolve().parents[1]


def commit() -> str:
    """The commit that is measured, with "-dirty" where files differ from it; empty: nobody knows.

    A copy of the tree without its history has it from whoever copied it: BENCH_COMMIT.
    """
    said = os.environ.get("BENCH_COMMIT", "")
    if said or not (ROOT / ".git").exists():
        return said
    command = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*"]
    command += ["--abbrev=12", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def head(schema: str) -> dict[str, Any]:
    """The keys that say by what, when, where and with which version the rest was measured."""
    words = (word.rpartition("/")[2] if word.startswith("/") else word for word in sys.argv)
    return {
        "schema": schema,
        "command": shlex.join(["python", *words]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": msgspec.to_builtins(machine.describe()),
        "versions": {"tutti": __version__, "commit": commit()},
    }


def micro_options(
    description: str,
    program: str,
    chunks: int,
    add: Callable[[argparse.ArgumentParser], object] = lambda _: None,
) -> argparse.Namespace:
    """The command line of a benchmark that runs a program of bench/micro several times.

    `add` gives it more options.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--program", type=Path, default=ROOT / "build/dev/bench/micro" / program,
        help=f"{program} of a build (default: that of build/dev)",
    )  # fmt: skip
    parser.add_argument(
        "--chunks", type=int, default=chunks, help="chunks of each variant (default %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="runs of the program (default %(default)s)"
    )
    parser.add_argument("-o", "--output", type=Path, help="results file to write")
    add(parser)
    options = parser.parse_args()
    if not options.program.is_file():
        parser.error(f"{options.program} is not there; remedy: make build, or --program")
    if options.output:
        files.check_writable(options.output)
    return options


def end_micro(
    schema: str, options: argparse.Namespace, rows: Sequence[dict[str, Any]], variant: str,
    column: str, bound_ns: float,
) -> int:  # fmt: skip
    """Writes the rows; says whether this variant keeps its bound; the exit status."""
    ns = next(row[column] for row in rows if row["variant"] == variant)
    print(f"{variant}: {ns} ns, at most {bound_ns}: {'holds' if ns <= bound_ns else 'MISSED'}")
    if options.output:
        measured = {"chunks": options.chunks, "repeats": options.repeats, "rows": rows}
        text = json.dumps({**head(schema), **measured}, indent=1)
        files.write(options.output, text + "\n")
    return 0 if ns <= bound_ns else 1


def load(path: Path | None, *schemas: str) -> dict[str, Any]:
    """A results document of one of the schemas; a TuttiError that says what else was found."""
    if path is None:
        raise TuttiError("which results? remedy: name a file that -o has written")
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise TuttiError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise TuttiError(f"{path}: not a results document: {error}") from None
    found = document.get("schema") if isinstance(document, dict) else None
    if found not in schemas or not isinstance(document.get("rows"), list):
        said = f"schema {found}" if found else "no schema"
        raise TuttiError(f"{path}: {said}; remedy: a document of {' or '.join(schemas)}")
    return dict(document)
