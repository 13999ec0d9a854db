#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The tests of the PyTorch backend with several versions of torch: `make torch-matrix`.

    tools/torch_matrix.py [--only EXPRESSION] [--environments DIR] [-o FILE] [VERSION ...]

Each version gets an environment of its own (.env/torch-VERSION, kept), without CUDA where PyTorch's
index or the machine has such a wheel, and runs tests/python/test_torch.py. Prints a line for each
version, and writes them to FILE (JSON). Exits with 1 if a test failed or no version could be had.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for part in ("python", "bench", "tools"):
    sys.path.insert(0, str(ROOT / part))

import results_head  # noqa: E402
from run_tests import read_junit  # noqa: E402

SCHEMA = "tutti-torch-matrix/1"
# 2.15.0 has not run yet: the documents say 2.11 to 2.14.
VERSIONS = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
INDEX = "https://download.pytorch.org/whl/cpu"
NEEDS = ("click", "msgspec", "numpy")


def version_of(python: Path) -> str:
    """Of its torch, without what stands behind a plus; empty: it lacks something."""
    words = [str(python), "-c", "import click, msgspec, numpy, torch; print(torch.__version__)"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip().partition("+")[0] if done.returncode == 0 else ""


def environment(directory: Path, version: str) -> tuple[Path, str]:
    """An interpreter with that version; or why there is none."""
    home = directory / f"torch-{version}"
    python = home / "bin/python"
    is_new = not python.exists()
    if is_new:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    why = ""
    for wanted in (f"torch=={version}+cpu", f"torch=={version}"):
        if version_of(python) == version:
            return python, ""
        words = [*install, "--extra-index-url", INDEX, wanted, *NEEDS]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        why = (done.stderr.strip().splitlines() or [why])[-1]
    if version_of(python) == version:
        return python, ""
    if is_new:
        shutil.rmtree(home)
    return python, why or "cannot be installed"


def run(python: Path, version: str, only: str) -> dict[str, Any]:
    """Counts of one version's tests."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE"]
        words += ["-o", "addopts=", f"--junitxml={report}", "tests/python/test_torch.py"]
        words += ["-k", only] if only else []
        more = {**os.environ, "TORCH_PYTHON": str(python)}
        done = subprocess.run(
            words, cwd=ROOT, env=more, capture_output=True, text=True, check=False
        )
        counts = read_junit(report) if report.exists() else None
    row: dict[str, Any] = {"torch": version}
    if counts is None or counts.passed == 0:
        print(done.stdout + done.stderr)
        return {**row, "failed": 1, "why": "no test ran"}
    if done.returncode:
        print(done.stdout)
        counts.failed = max(counts.failed, 1)
    row |= {"passed": counts.passed, "failed": counts.failed, "skipped": counts.skipped}
    return {**row, "seconds": round(time.monotonic() - began)}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--only", default="", metavar="EXPRESSION", help="pytest's -k")
    parser.add_argument("--environments", type=Path, default=ROOT / ".env", metavar="DIR")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = []
    for version in options.versions:
        python, why = environment(options.environments, version)
        row = {"torch": version, "why": why} if why else run(python, version, options.only)
        rows.append(row)
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if options.output:
        document = {**results_head.head(SCHEMA), "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    if not any(row.get("passed") for row in rows):
        print("no version of torch could be had", file=sys.stderr)
        return 1
    return int(any(row.get("failed") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
