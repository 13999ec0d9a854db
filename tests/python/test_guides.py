# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the code blocks of README and of the guides, in order, as a reader would.

A block is marked by its info string: `sh` runs everywhere; `sh lab` where network namespaces are
permitted; `sh install`, `sh gpu` and `sh cluster` never do here. Of a block that does not run, each
command is checked: it exists, and it has the options that the block gives it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tutti_hpc import paths

from missing import unavailable

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/applications.md",
    "docs/guide-mpi.md",
    "docs/guide-nccl.md",
    "docs/guide-torch.md",
    "docs/guide-transport.md",
)
LINES_MAX = 120
WIDTH_MAX = 100
BLOCK_TIMEOUT_S = 600
FENCE = "```"

WHY_NOT = {
    "install": "it would install or build the project",
    "gpu": "it needs GPUs, and PyTorch or NCCL",
    "cluster": "it needs several hosts",
    "torch": "it needs PyTorch, which is not in the tools' environment",
    "lab": "network namespaces are not permitted here",
}


@dataclass(frozen=True)
class Block:
    """The lines of a fenced block whose language is sh."""

    page: str
    line: int
    kind: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command; continued lines are one, what is behind `&&` is another."""
        joined = self.text.replace("\\\n", " ")
        found = []
        for line in joined.splitlines():
            words = shlex.split(line, comments=True)
            command: list[str] = []
            for word in words:
                if word in ("&&", "||", "|"):
                    found.append(command)
                    command = []
                else:
                    command.append(word)
            found.append(command)
        return [command for command in found if command]


def blocks_of(page: str, text: str) -> list[Block]:
    """All sh blocks of a page."""
    found = []
    pattern = re.compile(rf"^{FENCE}sh(?: (\w+))?\n(.*?)^{FENCE}$", re.MULTILINE | re.DOTALL)
    for match in pattern.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, match[1] or "", match[2]))
    return found


def options_of(words: list[str]) -> list[str]:
    """Options before a `--`, without their values."""
    own = words[: words.index("--")] if "--" in words else words
    return [word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)]


def help_command(command: list[str]) -> list[str] | None:
    """What prints the help of a command that this project has; None: it is not ours."""
    if command[0] == "tutti":
        words = [word for word in command[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
        # What else such a word may be is an argument of a command, as a collective's name.
        depth = 2 if words and words[0] in ("sim", "lab", "tuning", "schedule") else 1
        return [sys.executable, "-m", "tutti_hpc", *words[:depth], "--help"]
    if command[0] == "python3" and len(command) > 1 and command[1].endswith(".py"):
        return [sys.executable, str(ROOT / command[1]), "--help"]
    return None


def check_words(block: Block, environment: dict[str, str]) -> None:
    """The commands of a block that does not run."""
    for command in block.commands:
        where = f"{block.page}:{block.line}: {shlex.join(command)}"
        if command[0] == "make":
            targets = (ROOT / "Makefile").read_text()
            assert re.search(rf"^{re.escape(command[1])}:", targets, re.MULTILINE), where
        for word in command:
            if re.fullmatch(r"(examples|bench|docs)/[\w./-]+", word):
                assert (ROOT / word).exists(), where
        asked = help_command(command)
        if asked is None:
            continue
        done = subprocess.run(
            asked, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{where}: {done.stderr}"
        for option in options_of(command):
            assert re.search(rf"(^|[\s,]){re.escape(option)}\b", done.stdout), f"{where}: {option}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`tutti` and an MPI in PATH, as after the installation that a guide begins with."""
    if paths.find(paths.PRELOAD) is None or paths.find_measure("mpich") is None:
        unavailable("Tutti is not built, or without MPICH")
    tools = tmp_path_factory.mktemp("bin")
    shim = tools / "tutti"
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tutti_hpc "$@"\n')
    shim.chmod(0o755)
    (tools / "python3").symlink_to(sys.executable)
    mpi = ROOT / ".env" / "mpich" / "bin"
    path = os.pathsep.join([str(tools), str(mpi), os.environ["PATH"]])
    # A symbolic link to an environment's python3 is not in that environment.
    search = [str(ROOT / "python"), *[word for word in sys.path if word.endswith("-packages")]]
    return {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(search)}


@pytest.fixture(scope="module")
def has_namespaces() -> bool:
    """A lab can be started."""
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A scratch directory in which the paths of a checkout exist."""
    for name in ("examples", "include", "bench", "tuning", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_guides__every_block_of_a_page_runs(
    page: str, environment: dict[str, str], has_namespaces: bool, checkout: Path
) -> None:
    found = blocks_of(page, (ROOT / page).read_text())
    assert found, "a page without a command"
    for block in found:
        is_run = block.kind == "" or (block.kind == "lab" and has_namespaces)
        if not is_run:
            print(f"{page}:{block.line}: not run: {WHY_NOT[block.kind]}")
            check_words(block, environment)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )
        said = f"{page}:{block.line}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said


@pytest.mark.parametrize("page", PAGES)
def test_guides__a_page_is_short_and_its_lines_wrap(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    assert len(lines) <= LINES_MAX
    # A row of a table and an image cannot be wrapped.
    long = [line for line in lines if len(line) > WIDTH_MAX and not line.startswith(("|", "!"))]
    assert not long


@pytest.mark.parametrize("page", PAGES)
def test_guides__every_link_leads_to_a_file(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert "://" in target or ((ROOT / page).parent / target).exists(), target


def variables(*places: str) -> set[str]:
    """The words in files and in the files of directories that look like variables of ours."""
    found: set[str] = set()
    for place in map(ROOT.joinpath, places):
        for file in [place] if place.is_file() else place.rglob("*"):
            if file.is_file() and file.suffix in (
                ".md",
                ".py",
                ".hpp",
                ".cpp",
                ".h",
                ".c",
                ".sh",
                ".txt",
                ".toml",
                "",
            ):
                found |= set(re.findall(r"\bTUTTI_[A-Z0-9_]*[A-Z0-9]\b", file.read_text()))
    return found


def test_guides__every_variable_exists() -> None:
    code = ("src", "include", "python", "tools", "bench", "CMakeLists.txt", "Makefile")
    known = variables(*code, "pyproject.toml")
    named = variables("README.md", "CONTRIBUTING.md", "MAP.md", "docs")
    assert len(named) > 50
    assert named - known == set()


def test_guides__the_policy_of_the_guide_wins_its_incast(
    environment: dict[str, str], checkout: Path
) -> None:
    scenario = "--topology fat-tree:16 --traffic incast:15 --bytes 1000000 --no-trim --seeds 5"
    script = f"""
    cmake -S examples/transport_policy -B policy >cmake.log && cmake --build policy >>cmake.log
    tutti sim network {scenario} -o default.json >/dev/null
    tutti sim network {scenario} --policy policy/gentle_start.so -o gentle_start.json >/dev/null
    python3 examples/transport_policy/compare.py default.json gentle_start.json -o incast.png
    """
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BLOCK_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last_us = [float(text) for text in re.findall(r"last flow after (\d+) us", done.stdout)]
    guide = (ROOT / "docs/guide-transport.md").read_text()
    told = re.search(r"^\| last flow of the incast, us \| (\d+) \| (\d+) \|$", guide, re.MULTILINE)
    assert told is not None
    assert last_us == [float(told[1]), float(told[2])]
    assert last_us[1] < 0.8 * last_us[0]
    assert (checkout / "incast.png").stat().st_size > 0


# The test itself.


def test_guides__a_block_has_its_kind_line_and_commands() -> None:
    body = "tutti bench x \\\n  --a 1 && make b  # c\n"
    text = f"one\n{FENCE}sh gpu\n{body}{FENCE}\n{FENCE}c\n{FENCE}\n"
    (block,) = blocks_of("page", text)
    assert (block.kind, block.line) == ("gpu", 2)
    assert block.commands == [["tutti", "bench", "x", "--a", "1"], ["make", "b"]]


def test_guides__an_option_that_does_not_exist_is_found(environment: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="--no-such"):
        check_words(Block("page", 1, "gpu", "tutti bench allreduce --no-such\n"), environment)
    check_words(Block("page", 1, "gpu", "tutti bench allreduce --plans native\n"), environment)


def test_guides__options_end_at_two_dashes() -> None:
    assert options_of(["tutti", "run", "--print", "--", "mpirun", "-n", "2"]) == ["--print"]
