#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The house rules that a compiler does not see: layering, banned calls, heads, leftovers.

    tools/tidy.py [DIRECTORY]
    tools/tidy.py --write-map

The second one writes the list of all files into MAP.md. The first one prints
`file:line: what is wrong; remedy` for each finding and exits with 1 if there is one. Long functions
are printed as questions and do not fail. The rules are the tables below; the tests
(tests/python/test_tidy.py) run each of them on a small tree and the whole on this repository.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# What each room may link, and so include (with what those rooms may include in turn). Equal to the
# tutti:: names in src/<room>/CMakeLists.txt, and checked against them; net/observe is
# tutti::net_observe.
ROOMS: dict[str, set[str]] = {
    "base": set(),
    "device": {"base"},
    "ccl": {"base", "device"},
    "select": {"base"},
    "topology": {"base"},
    "discover": {"base", "topology"},
    "schedule": {"base", "select", "topology"},
    "simulate": {"base"},
    "transport": {"base"},
    "policy": {"base", "transport"},
    "net/observe": {"base", "transport", "wire"},
    "net/bootstrap": {"base", "net/observe", "transport", "wire"},
    "net/gpu": {"base", "device", "net", "wire"},
    "net": {
        "base",
        "net/bootstrap",
        "net/observe",
        "policy",
        "topology",
        "transport",
        "wire",
    },
    "wire": {"base", "simulate", "transport"},
    "runners": {
        "base",
        "device",
        "ccl",
        "select",
        "topology",
        "schedule",
        "net",
        "policy",
        "simulate",
        "transport",
        "wire",
    },
    "engine": {
        "base",
        "device",
        "ccl",
        "select",
        "topology",
        "discover",
        "schedule",
        "runners",
    },
    "mpi": {"engine"},
    "nccl_net": {"base", "net", "net/gpu"},
}

# Rooms that know no clock, no generator, no environment, no device and no network.
PURE = {"select", "schedule", "topology", "transport", "simulate"}
IMPURE = {
    "discover",
    "policy",
    "net",
    "net/bootstrap",
    "net/gpu",
    "net/observe",
    "runners",
    "wire",
    "device",
    "ccl",
    "engine",
    "mpi",
    "nccl_net",
}

# Foreign headers and the only places of src/ that may include them.
FOREIGN: list[tuple[str, str, str]] = [
    (r"mpi(_abi|_proto|-ext)?\.h", r"src/mpi/", "only src/mpi knows MPI"),
    (r"(cuda|nvml|nccl|driver_types)[\w/]*\.h|hip/.*|rccl.*", r"$^",
     "vendors' libraries are tables filled by dlopen; declare what is needed in the room"),
    (r"infiniband/.*|rdma/.*", r"src/wire/verbs/", "only src/wire/verbs knows verbs"),
    (r"linux/(bpf|if_xdp)\.h", r"src/wire/xdp/", "only src/wire/xdp knows AF_XDP"),
]  # fmt: skip


@dataclass(frozen=True)
class Ban:
    """A function or type that code in `where` may not use, except in `unless`."""

    names: str
    where: str
    unless: str
    remedy: str
    is_call: bool = True

    def used_in(self, line: str) -> str:
        """The banned name that a line of code uses, or nothing."""
        if not self.is_call:
            match = re.search(rf"(?<!\w)({self.names})\b", line)
            return match.group(1) if match else ""
        for match in re.finditer(rf"(?<![\w.>:])(?:std::|::)?({self.names})\s*\(", line):
            # `Status abort(` declares a function of our own; `return abort(` calls the library's.
            before = re.search(r"([\w>]+)[&* ]+$", line[: match.start()])
            if not before or before.group(1) in ("return", "else", "do", "throw", "co_return"):
                return match.group(1)
        return ""


PURE_ROOMS = r"src/(" + "|".join(sorted(PURE)) + r")/"
BANS = [
    Ban("getenv|secure_getenv", r"src/", r"src/base/config\.cpp",
        "read a knob from Config, other variables with environment_value() (base/config.hpp)"),
    Ban("setenv|putenv|unsetenv|clearenv", r"src/", r"src/engine/virtual_nodes\.cpp",
        "another thread may be reading the environment: pass the value instead"),
    Ban("rand|srand|drand48|rand_r", r"(src|tests|bench)/", r"$^",
        "use a seeded generator that is passed in, and print the seed"),
    Ban("std::random_device", r"(src|tests|bench)/", r"$^",
        "use a seeded generator that is passed in, and print the seed", is_call=False),
    Ban(r"(std::chrono::)?(system|steady|high_resolution)_clock", PURE_ROOMS, r"$^",
        "a pure room gets the time as an argument", is_call=False),
    Ban("time|gettimeofday|clock_gettime|clock", PURE_ROOMS, r"$^",
        "a pure room gets the time as an argument"),
    Ban("printf|vprintf|puts|putchar", r"src/", r"$^",
        "a library never writes to stdout: log() (base/log.hpp)"),
    Ban("std::cout|stdout", r"src/", r"$^",
        "a library never writes to stdout: log() (base/log.hpp)", is_call=False),
    Ban("std::cerr|std::clog", r"src/", r"$^", "use log() (base/log.hpp)", is_call=False),
    Ban("fork|vfork|system|popen|posix_spawnp?|execl[pe]?|execvp?e?", r"src/", r"$^",
        "a library in somebody's process starts no process"),
    Ban("signal|sigaction|sigprocmask|pthread_sigmask", r"src/",
        r"src/(base/thread|wire/xdp/helper_main)\.cpp$",
        "a library in somebody's process installs no handler"),
    Ban("exit|_exit|_Exit|quick_exit|abort|terminate", r"src/", r"src/base/check\.cpp",
        "return a Status; CHECK (base/check.hpp) for a broken invariant of our own"),
    Ban("dlopen|dlmopen|dlsym|dlvsym|dlclose", r"src/",
        r"src/(base/dynamic_library\.cpp|mpi/|ccl/open\.cpp)",
        "use DynamicLibrary (base/dynamic_library.hpp)"),
    Ban("assert", r"src/", r"$^", "use CHECK (base/check.hpp), which stays on in release"),
]  # fmt: skip

CPP = {".cpp", ".hpp", ".c", ".h", ".cu", ".cuh"}
HEADERS = {".hpp", ".h", ".cuh"}
WITH_HEAD = CPP | {".py", ".sh", ".cmake"}
LARGEST_BYTES = 512 * 1024
LONG_FUNCTION_LINES = 80
PICTURES = {".png", ".svg", ".pdf"}
LEFTOVERS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


@dataclass(frozen=True, order=True)
class Finding:
    """One broken rule."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class Tree:
    """The files of a repository, read once. Paths are relative, with forward slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = sorted(self._list())
        self._texts: dict[str, str] = {}

    def _list(self) -> list[str]:
        command = ["git", "-C", str(self.root), "ls-files", "-z", "-co", "--exclude-standard"]
        if (self.root / ".git").exists():
            listed = subprocess.run(command, check=True, capture_output=True).stdout.decode()
            return [path for path in listed.split("\0") if path and (self.root / path).is_file()]
        return [str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file()]

    def having(self, suffixes: set[str], below: str = "") -> list[str]:
        """Paths with one of these suffixes, below a directory."""
        return [p for p in self.paths if p.startswith(below) and Path(p).suffix in suffixes]

    def has_header(self, stem: str) -> bool:
        """Whether a C or C++ header is called so."""
        return any(stem + suffix in self.paths for suffix in (".hpp", ".h"))

    def text(self, path: str) -> str:
        """The file's text; what is not UTF-8 is replaced."""
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self._texts[path]


def without_comments(code: str, *, keep_strings: bool = False) -> str:
    """C++ with comments and (unless kept) strings blanked out; lines stay where they are."""
    token = re.compile(
        r'R"(?P<mark>[^()\\\s]*)\(.*?\)(?P=mark)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
        re.DOTALL,
    )

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if keep_strings and not found.startswith("/"):
            return found
        quotes = '""' if not found.startswith("/") else " "
        return quotes + "\n" * found.count("\n")

    return token.sub(blank, code)


def room_of(path: str) -> str:
    """`device` for src/device/cuda.cpp; empty outside the rooms."""
    parts = path.split("/")
    if len(parts) < 3 or parts[0] != "src":
        return ""
    inner = "/".join(parts[1:3])
    return inner if inner in ROOMS else parts[1]


def reachable(room: str) -> set[str]:
    """The rooms that `room` may include: its own and what its table row leads to."""
    seen = {room}
    waiting = [room]
    while waiting:
        for below in ROOMS.get(waiting.pop(), set()) - seen:
            seen.add(below)
            waiting.append(below)
    return seen


def includes(tree: Tree, path: str) -> Iterator[tuple[int, str, str]]:
    """(line, quote, target) of each #include."""
    for number, line in enumerate(
        without_comments(tree.text(path), keep_strings=True).splitlines(), 1
    ):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def check_rooms(tree: Tree) -> Iterator[Finding]:
    """The table ROOMS against the CMake link lists, and the pure rooms against the table."""
    present = {room_of(path) for path in tree.having(CPP, "src/")} - {""}
    for room in sorted(present - ROOMS.keys()):
        yield Finding(f"src/{room}", 1, "a room without a row in ROOMS (tools/tidy.py); add one")
    for room in sorted(present & ROOMS.keys()):
        lists = f"src/{room}/CMakeLists.txt"
        if lists not in tree.paths:
            yield Finding(lists, 1, "missing; each room has a target of its own")
            continue
        code = re.sub(r"#.*", "", tree.text(lists))
        names = {name.replace("/", "_"): name for name in ROOMS}
        linked = {names.get(name, name) for name in re.findall(r"tutti::(\w+)", code)} - {room}
        for name in sorted(linked ^ ROOMS[room]):
            where = "links" if name in linked else "does not link"
            yield Finding(lists, 1, f"{where} tutti::{name}, unlike ROOMS in tools/tidy.py; "
                          "make the two agree (docs/architecture.md has the table)")  # fmt: skip
        if room in PURE and reachable(room) & IMPURE:
            yield Finding(lists, 1, f"{room} is a pure room and may not link "
                          f"{', '.join(sorted(reachable(room) & IMPURE))}")  # fmt: skip


def check_includes(tree: Tree) -> Iterator[Finding]:
    """Each #include of src/ against ROOMS and FOREIGN."""
    for path in tree.having(CPP, "src/"):
        room = room_of(path)
        for line, quote, target in includes(tree, path):
            other = room_of(f"src/{target}")
            if quote == '"':
                if f"src/{target}" not in tree.paths and f"include/{target}" not in tree.paths:
                    yield Finding(path, line, f'"{target}" is not a file below src/; '
                                  'private headers are included as "room/file.hpp"')  # fmt: skip
                elif other in ROOMS and room in ROOMS and other not in reachable(room):
                    yield Finding(path, line, f"{room} may not include {other} (allowed: "
                                  f"{', '.join(sorted(reachable(room) - {room})) or 'nothing'}); "
                                  "move the code, or pass the value in")  # fmt: skip
            for pattern, allowed, remedy in FOREIGN:
                if re.fullmatch(pattern, target) and not re.match(allowed, path):
                    yield Finding(path, line, f"<{target}> may not be included here; {remedy}")


def check_bans(tree: Tree) -> Iterator[Finding]:
    """Calls that have a house replacement."""
    for path in tree.having(CPP):
        bans = [b for b in BANS if re.match(b.where, path) and not re.match(b.unless, path)]
        if not bans:
            continue
        lines = without_comments(tree.text(path)).splitlines()
        for ban in bans:
            for number, line in enumerate(lines, 1):
                name = "" if line.lstrip().startswith("#") else ban.used_in(line)
                if name:
                    yield Finding(path, number, f"{name} is banned; {ban.remedy}")


def check_heads(tree: Tree) -> Iterator[Finding]:
    """The SPDX head of each source, the guard of each header."""
    for path in tree.paths:
        name = Path(path)
        if name.suffix not in WITH_HEAD and name.name not in ("CMakeLists.txt", "Makefile"):
            continue
        text = tree.text(path)
        head = "\n".join(text.splitlines()[:5])
        if text.strip() and not (
            "SPDX-FileCopyrightText:" in head and "SPDX-License-Identifier: BSD-3-Clause" in head
        ):
            yield Finding(path, 1, "no SPDX head; copy the first two lines of another file")
        if name.suffix in HEADERS and not re.search(r"^#(pragma once|ifndef \w+_H_?)$", text, re.M):
            yield Finding(path, 1, "no include guard; add #pragma once after the head comment")


def check_leftovers(tree: Tree) -> Iterator[Finding]:
    """Unfinished work and large files."""
    for path in tree.paths:
        if (tree.root / path).stat().st_size > LARGEST_BYTES:
            if not path.startswith("bench/results/"):
                yield Finding(path, 1, f"larger than {LARGEST_BYTES // 1024} KiB; generate it, or "
                              "put measured results into bench/results")  # fmt: skip
            continue
        if Path(path).suffix in PICTURES:
            continue
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            match = LEFTOVERS.search(line)
            if match:
                yield Finding(path, number, f"{match.group()} left over; do it, or file an issue")


def check_dead_headers(tree: Tree) -> Iterator[Finding]:
    """Headers that nobody includes. A shim stands in for a system header and is named by others."""
    included = set()
    for path in tree.having(CPP):
        for _, _, target in includes(tree, path):
            included.add(target)
            included.add(str(Path(path).parent / target))
    for path in tree.having(HEADERS):
        if "/shim/" in path:
            continue
        parts = path.split("/")
        names = {"/".join(parts[i:]) for i in range(len(parts))}
        if not names & included:
            yield Finding(path, 1, "included by nobody; remove it")


MAP = "MAP.md"
MAP_LIST = "## All files\n"
# What is listed, each directory by itself; not data, test cases and build files.
MAPPED = (
    "src/",
    "include/",
    "python/tutti_hpc/",
    "bench/",
    "tools/",
    "cmake/",
    "examples/",
    "tests/",
)
SHORT_SENTENCE = 24  # Goes on at least so far.
UNMAPPED = re.compile(r"tests/fuzz/corpus/|.*/__init__\.py$|.*\.cmake$")


def first_sentence(tree: Tree, path: str) -> str:
    """What a file's head begins with; empty where it has none."""
    text = tree.text(path)
    if path.endswith(".py"):
        head = ast.get_docstring(ast.parse(text)) or ""
    elif path.endswith(".sh"):
        head = " ".join(re.findall(r"^# ?(.*)$", text.split("\n\n")[0], re.M))
        head = re.sub(r"^!\S+ \S+ |SPDX-\S+ (\d+ the Tutti authors|BSD-3-Clause)", "", head)
    else:
        comment = r"/\*(?:.|\n)*?\*/" if text.startswith("/*") else r"(?://.*\n|\s*\n)*"
        found = re.match(comment, text)
        lines = (found.group() if found else "").splitlines()
        head = " ".join(line.strip(" /*") for line in lines if "SPDX-" not in line)
    head = " ".join(head.split())
    for ends in (".:;", "."):
        for end in re.finditer(rf"[{ends}](?= |$)|$", head):
            sentence = head[: end.start()]
            if sentence.count("(") == sentence.count(")") and len(sentence) >= SHORT_SENTENCE:
                return sentence.strip()
    return head


def is_test_of_a_file(tree: Tree, path: str) -> bool:
    """A unit test that is called like a file of its component."""
    test = re.fullmatch(r"tests/unit/(\w+)/(?:.*/)?(\w+)_test\.cpp", path)
    name = re.compile(rf"src/{test.group(1)}/(.*/)?{test.group(2)}\.[ch]pp") if test else None
    return name is not None and any(map(name.fullmatch, tree.paths))


def listed_files(tree: Tree) -> str:
    """The list of MAP.md: a header speaks for the sources that are called as it is."""
    sentences: dict[str, str] = {}
    for path in sorted(
        tree.having(WITH_HEAD), key=lambda path: (Path(path).suffix not in HEADERS, path)
    ):
        if (
            path.startswith(MAPPED)
            and not UNMAPPED.match(path)
            and not is_test_of_a_file(tree, path)
        ):
            stem = path.rsplit(".", 1)[0]
            if not tree.has_header(stem):
                stem = path
            if not sentences.get(stem):
                sentences[stem] = first_sentence(tree, path)
    text, last = "", ""
    for stem, sentence in sorted(
        sentences.items(), key=lambda item: (str(Path(item[0]).parent), item)
    ):
        directory = str(Path(stem).parent)
        if directory != last:
            text += f"\n### `{directory}`\n\n"
            last = directory
        text += f"- `{Path(stem).name}`" + (f": {sentence}\n" if sentence else "\n")
    return text


def with_map(tree: Tree) -> str:
    """MAP.md with the list as it should be."""
    head, mark, _ = tree.text(MAP).partition(MAP_LIST)
    return head + mark + MAP_NOTE + listed_files(tree)


MAP_NOTE = """
The first sentence of each file's head; a name without an ending is a header and the source that is
called like it. Written by `tools/tidy.py --write-map`.
"""


def check_map(tree: Tree) -> Iterator[Finding]:
    """MAP.md lists what there is, and its rows name files that exist."""
    if MAP not in tree.paths:
        return
    if tree.text(MAP) != with_map(tree):
        yield Finding(MAP, 1, "the list of all files is an older one; tools/tidy.py --write-map")
    for number, line in enumerate(tree.text(MAP).partition(MAP_LIST)[0].splitlines(), 1):
        directory = ""
        for name in (
            re.findall(r"`([\w.*-][\w./*-]*[./][\w./*-]*)`", line) if line[:1] == "|" else []
        ):
            whole = next((n for n in (name, directory + name) if next(tree.root.glob(n), None)), "")
            if not whole:
                yield Finding(MAP, number, f"{name} is not there; name the file that is")
            else:
                directory = whole if whole.endswith("/") else whole.rpartition("/")[0] + "/"


CHECKS = [
    check_rooms,
    check_includes,
    check_bans,
    check_heads,
    check_leftovers,
    check_dead_headers,
    check_map,
]


def cpp_functions(code: str) -> Iterator[tuple[int, int]]:
    """(first line, lines) of each function body; a reading by braces, good enough to ask."""
    stack: list[tuple[bool, int]] = []
    line = 1
    statement = ""
    for character in without_comments(code):
        if character == "\n":
            line += 1
        if character == "{":
            words = statement.split()
            container = bool(words) and (
                words[0] in ("namespace", "class", "struct", "enum", "union", "extern")
                or (words[0].startswith("template") and re.search(r"\b(class|struct)\s+\w+[^()]*$",
                                                                  statement) is not None)
            )  # fmt: skip
            inside = any(is_function for is_function, _ in stack)
            stack.append(("(" in statement and not container and not inside, line))
            statement = ""
        elif character == "}":
            if stack:
                is_function, start = stack.pop()
                if is_function:
                    yield start, line - start + 1
            statement = ""
        elif character == ";":
            statement = ""
        else:
            statement += character


def questions(tree: Tree) -> Iterator[Finding]:
    """Functions so long that somebody should look at them."""
    for path in tree.having(CPP | {".py"}):
        if not path.startswith(("src/", "include/", "bench/", "python/", "tools/")):
            continue
        if path.endswith(".py"):
            spans = [
                (node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
                for node in ast.walk(ast.parse(tree.text(path)))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
        else:
            spans = list(cpp_functions(tree.text(path)))
        for start, lines in spans:
            if lines > LONG_FUNCTION_LINES:
                yield Finding(path, start, f"a function of {lines} lines: is it one thing?")


def findings(tree: Tree) -> list[Finding]:
    """All broken rules, in the order of the files."""
    return sorted(finding for check in CHECKS for finding in check(tree))


def main(arguments: list[str]) -> int:
    """Checks one tree, or writes MAP.md's list."""
    here = Path(__file__).resolve().parents[1]
    if arguments == ["--write-map"]:
        (here / MAP).write_text(with_map(Tree(here)), encoding="utf-8")
        return 0
    tree = Tree(Path(arguments[0]) if arguments else here)
    for question in questions(tree):
        print(f"question: {question}")
    found = findings(tree)
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        print(f"tidy: {len(found)} findings", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
