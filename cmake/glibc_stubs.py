#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Makes link-time stand-ins for this machine's glibc that know nothing newer than a given version.

    glibc_stubs.py --compiler CC --version 2.28 --output DIR

glibc keeps every old version of a symbol, but the linker always takes the newest, so a program
built on a new system does not start on an old one. The stand-ins offer each symbol in its newest
version up to the given one. A symbol that has none is missing from them: its use fails at link
time, and cmake/glibc_compat.c has those that the C++ runtime wants. Nothing of DIR is used at run
time.

Writes DIR/libc.so, DIR/libm.so and what they name.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

# Lines of `readelf --dyn-syms`: number, address, size, type, binding, visibility, section, name.
SYMBOL = re.compile(
    r"\s*\d+: (\w+)\s+(\w+) (FUNC|IFUNC|OBJECT)\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+\d+ "
    r"(\w+)@{1,2}GLIBC_([0-9.]+)$"
)
# What was in libraries of its own before 2.34: libc has it in a newer version then.
FORMER = {
    "libdl.so.2": re.compile(r"dl[a-z_]+\d?"),
    "librt.so.1": re.compile(r"(aio|lio|mq|shm|timer)_\w+"),
    "libpthread.so.0": re.compile(r"_*(pthread|sem)_\w+"),
}


class Symbol(NamedTuple):
    """One symbol in one version."""

    name: str
    version: tuple[int, ...]
    kind: str
    address: int
    bytes: int


def numbers(text: str) -> tuple[int, ...]:
    """`2.28` -> (2, 28), which can be compared."""
    return tuple(int(part) for part in text.split("."))


def symbols(listing: str, oldest: tuple[int, ...]) -> tuple[list[Symbol], set[str]]:
    """Each symbol of a library in its newest version up to `oldest`; names with newer ones, too."""
    found: dict[str, Symbol] = {}
    newer: set[str] = set()
    for line in listing.splitlines():
        match = SYMBOL.match(line)
        if not match:
            continue
        address, size, kind, name, version = match.groups()
        symbol = Symbol(name, numbers(version), kind, int(address, 16), int(size, 0))
        known = found.get(name)
        if symbol.version > oldest:
            newer.add(name)
        elif known is None or known.version < symbol.version:
            found[name] = symbol
    return list(found.values()), newer


def by_library(library: str, offered: list[Symbol], newer: set[str]) -> dict[str, list[Symbol]]:
    """The symbols of a library of today, by the libraries that had them before 2.34."""
    parted: dict[str, list[Symbol]] = {library: []}
    for symbol in offered:
        former = [
            name
            for name, pattern in FORMER.items()
            if library == "libc.so.6" and symbol.name in newer and pattern.fullmatch(symbol.name)
        ]
        parted.setdefault(former[0] if former else library, []).append(symbol)
    return parted


def assembly(offered: list[Symbol]) -> str:
    """A definition of each symbol. Variables at one address are one variable."""
    lines = [".text"]
    for symbol in offered:
        if symbol.kind != "OBJECT":
            lines += [f".globl {symbol.name}", f".type {symbol.name}, %function", f"{symbol.name}:"]
    lines += [".byte 0", ".data"]
    variables: dict[int, list[Symbol]] = {}
    for symbol in offered:
        if symbol.kind == "OBJECT":
            variables.setdefault(symbol.address, []).append(symbol)
    for aliases in variables.values():
        lines.append(".balign 32")
        for alias in aliases:
            lines += [f".globl {alias.name}", f".type {alias.name}, %object"]
            lines += [f".size {alias.name}, {alias.bytes}", f"{alias.name}:"]
        lines.append(f".zero {max(alias.bytes for alias in aliases)}")
    lines.append('.section .note.GNU-stack,"",%progbits')
    return "\n".join(lines) + "\n"


def version_script(offered: list[Symbol]) -> str:
    """Gives each symbol its version."""
    nodes: dict[tuple[int, ...], list[str]] = {}
    for symbol in offered:
        nodes.setdefault(symbol.version, []).append(symbol.name)
    text = ""
    for version in sorted(nodes):
        name = "GLIBC_" + ".".join(str(part) for part in version)
        text += f"{name} {{ global: {'; '.join(sorted(nodes[version]))}; }};\n"
    return text


def stub(compiler: str, library: str, offered: list[Symbol], output: Path) -> Path:
    """Makes the stand-in for one library; its path."""
    source, script = output / f"{library}.s", output / f"{library}.map"
    source.write_text(assembly(offered))
    script.write_text(version_script(offered))
    made = output / library
    words = [compiler, "-shared", "-nostdlib", f"-Wl,-soname,{library}"]
    words += [f"-Wl,--version-script={script}", str(source), "-o", str(made)]
    subprocess.run(words, check=True)
    return made


def file_of(compiler: str, name: str) -> Path:
    """A file of the C library, as the compiler finds it."""
    command = [compiler, f"-print-file-name={name}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(found).is_absolute():
        raise SystemExit(f"glibc_stubs: {compiler} finds no {name}")
    return Path(found)


def main() -> None:
    """Writes all stand-ins."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    oldest = numbers(options.version)
    loader = "ld-linux-x86-64.so.2"
    made: dict[str, Path] = {}
    for library in ("libc.so.6", "libm.so.6", loader):
        real = file_of(options.compiler, library)
        command = ["readelf", "--dyn-syms", "-W", str(real)]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for name, offered in by_library(library, *symbols(listing, oldest)).items():
            if not offered:
                raise SystemExit(f"glibc_stubs: {real} has nothing of glibc {options.version}")
            made[name] = stub(options.compiler, name, offered, output)
    # As the real libc.so, and with the libraries that are part of libc today.
    rest = file_of(options.compiler, "libc_nonshared.a")
    others = " ".join(str(made[name]) for name in (loader, *FORMER) if name in made)
    (output / "libc.so").write_text(
        f"GROUP ( {made['libc.so.6']} {rest} AS_NEEDED ( {others} ) )\n"
    )
    (output / "libm.so").write_text(f"INPUT ( {made['libm.so.6']} )\n")


if __name__ == "__main__":
    main()
