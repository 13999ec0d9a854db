# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the build demands of the kernels' PTX."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import device_images
import pytest

ROOT = Path(__file__).resolve().parents[2]
STORE = "st.relaxed.sys.global.v4.u32 [%rd203], {%r198, %r199, %r200, %r201};"
LOAD = "ld.relaxed.sys.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];"
MEET = "bar.warp.sync 0xffffffff;"
BRANCH = "@%p233 bra $L__BB0_24;"


def torn(kernel: str, *lines: str) -> int:
    return len(device_images.torn_lines("\n".join([f".visible .entry {kernel}(", *lines])))


def test_torn_lines__what_follows_the_meeting_is_whole() -> None:
    assert torn("exchange_8", MEET, STORE, MEET, LOAD) == 0


def test_torn_lines__a_branch_between() -> None:
    assert torn("exchange_8", MEET, BRANCH, STORE) == 1
    assert torn("exchange_8", MEET, STORE, STORE, MEET, BRANCH, LOAD) == 2


def test_torn_lines__packets_need_no_meeting() -> None:
    assert torn("packets_exchange_8", BRANCH, STORE, LOAD) == 0


def test_torn_lines__other_loads_and_stores_are_free() -> None:
    assert torn("exchange_8", "st.relaxed.sys.global.u32 [%rd1], %r1;", "ld.global.u32 %r1;") == 0


@pytest.fixture(scope="module")
def machine_code() -> tuple[str, dict[str, int]]:
    """The PTX that machine code is made from, and what each kernel spills for sm_90, bytes."""
    tools = device_images.find_tools()
    made = device_images.cache_of(ROOT / "src", ROOT / "build/dev/device_images", tools)
    found = made / "sass.ptx"
    if not found.is_file() or not tools.ptxas:
        pytest.skip("no ptxas, or a build without machine code of NVIDIA GPUs")
    words = [*tools.ptxas, "-O3", "-v", "-arch=sm_90", str(found), "-o", os.devnull]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    pattern = r"Function properties for (\w+)\s+\d+ bytes stack frame, (\d+) bytes spill stores"
    return found.read_text(), {name: int(size) for name, size in re.findall(pattern, said)}


def test_sums__keep_their_values_in_registers(machine_code: tuple[str, dict[str, int]]) -> None:
    """Up to 8 bytes of the one-shot kernels of four ranks: 88 cost 64 MiB 6 % of its time."""
    sums = {name: size for name, size in machine_code[1].items() if "_sum_" in name}
    assert len(sums) >= 30
    assert {name: size for name, size in sums.items() if size > 8} == {}


def test_scatter_copy__four_blocks_share_a_processor(
    machine_code: tuple[str, dict[str, int]],
) -> None:
    text, spilled = machine_code
    assert re.search(r"scatter_copy\([^)]*\)\n\.maxntid 256, 1, 1\n\.minnctapersm 4\n", text)
    assert spilled["scatter_copy"] == 0
