# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The code that a native call passes which is known from an earlier one (src/mpi/collectives.cpp).

Its arguments stay in registers. Once a function that takes their description by reference is not
inlined, the description is built in memory: 150 bytes, a tenth of a microsecond, which no other
test notices.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from missing import unavailable

REPOSITORY = Path(__file__).resolve().parents[2]
LIBRARIES = Path(os.environ.get("TUTTI_LIBRARY_DIR", REPOSITORY / "build/dev/lib"))
# What is not remembered included.
INSTRUCTIONS_MAX = 150


def test_carry__builds_no_description_in_memory() -> None:
    objdump = shutil.which("objdump")
    if objdump is None:
        unavailable("no objdump")
    library = LIBRARIES / "libtutti.so.0"
    done = subprocess.run(
        [objdump, "-d", "-C", "--no-show-raw-insn", str(library)],
        capture_output=True,
        text=True,
        check=True,
    )
    checked = set()
    for function in done.stdout.split("\n\n"):
        name, _, code = function.partition("\n")
        # Of the library for each MPI ABI, but for the part that is never fast.
        found = re.search(r"<int tutti::mpi::(\w+)::\(anonymous namespace\)::carry<(.*)", name)
        if found is None or "[clone .cold]" in name:
            continue
        wrapped = re.search(r"Wrap<int>::(\w+)\(", found[2])
        if wrapped is None:
            continue  # A barrier, or counts of 64 bits.
        checked.add((found[1], wrapped[1]))
        assert "rep stos" not in code, name
        assert len(code.splitlines()) <= INSTRUCTIONS_MAX, name
    assert len(checked) >= 16, f"{library} has no symbols: {sorted(checked)}"
