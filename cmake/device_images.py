#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Builds the device images: every direct kernel for every kind of GPU, without a GPU.

    device_images.py --source SRC --output DIR [--jobs N]

Compiler: a clang that knows NVPTX and AMDGPU with its linker: the one in the PyPI package ziglang
(LLVM 20 or later), else clang-NN and ld.lld-NN of the machine (gfx950 needs LLVM 20). Assembler of
NVIDIA's machine code: ptxas of the PyPI package nvidia-cuda-nvcc-cu12, else the machine's.

Writes DIR/images.cpp, which embeds what could be built and defines kernels::images(). What could
not is one line on stderr that says what to install; the library then says so at run time.

DEVICE_IMAGES_CACHE: a directory where finished images are kept, by the hash of all that goes into
them, so that several builds of one tree compile them once.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import lzma
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

KERNELS = Path("device/kernels")
FLAGS = [
    "-O3",
    "-x",
    "c++",
    "-std=c++20",
    "-nostdinc",
    "-ffp-contract=off",
    "-fwrapv",
    "-fno-exceptions",
    "-fno-rtti",
    # No statement in which the lanes of a warp meet goes behind a branch that parts them.
    "-fconvergent-functions",
    "-Wall",
    "-Wextra",
    "-Werror",
]
# A driver accepts those of its GPU's generation alone. The loader unpacks one after the other, so
# those of most machines come first. PTX, the last, is for what comes after.
SASS = ("sm_90", "sm_80", "sm_100", "sm_120")
PTX_TARGET, PTX_VERSION = "sm_70", "ptx63"  # CUDA 10.0; what the kernels use is of 6.0.
AMD = ("gfx950", "gfx942", "gfx90a")
# What compilers say of a target that came after them.
UNKNOWN_TARGET = ("unknown target CPU", "invalid target ID", "is not defined for option")


@dataclass(frozen=True)
class Tools:
    """How to call the compilers; empty: not found."""

    clang: tuple[str, ...] = ()
    lld: tuple[str, ...] = ()
    ptxas: tuple[str, ...] = ()


def package_file(package: str, file: str) -> str:
    """A file of an installed PyPI package."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return ""
    for root in (spec.submodule_search_locations or []) if spec else []:
        if (Path(root) / file).is_file():
            return str(Path(root) / file)
    return ""


def find_tools() -> Tools:
    """The PyPI packages of this Python first: they are what was tested."""
    clang: tuple[str, ...] = ()
    lld: tuple[str, ...] = ()
    if zig := package_file("ziglang", "zig"):
        clang, lld = (zig, "clang"), (zig, "ld.lld")
    else:
        for version in ("-22", "-21", "-20", "-19", ""):
            if (found := shutil.which(f"clang{version}")) and (
                linker := shutil.which(f"ld.lld{version}")
            ):
                clang, lld = (found,), (linker,)
                break
    ptxas = package_file("nvidia.cuda_nvcc", "bin/ptxas") or shutil.which("ptxas") or ""
    return Tools(clang, lld, (ptxas,) if ptxas else ())


def run(command: list[str]) -> None:
    """Raises with what the tool said."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def torn_lines(text: str) -> list[str]:
    """Where PTX without comments parts the lanes that must store or load a line together.

    A line of the wire is one instruction of eight lanes. Between the place where they meet and that
    instruction a compiler may put a branch, behind which they go on apart; so nothing may stand
    there. Packets are whole in each lane.
    """
    torn = []
    kernel = before = ""
    for line in text.splitlines():
        if entry := re.match(r"\.visible \.entry (\w+)", line):
            kernel = entry[1]
        is_wire = re.match(r"(st|ld)\.relaxed\.sys\.global\.v4", line) is not None
        if is_wire and not kernel.startswith("packets_") and not before.startswith("bar.warp.sync"):
            torn.append(f"{kernel}: {before} | {line}")
        before = line
    return torn


def ptx(tools: Tools, source: Path, target: str, version: str, output: Path) -> None:
    """PTX of all kernels, told that blocks have at most 512 threads, without comments."""
    raw = output.with_name(output.name + ".raw")
    cpu = ["--target=nvptx64-nvidia-cuda", "-Xclang", "-target-cpu", "-Xclang", target]
    feature = ["-Xclang", "-target-feature", "-Xclang", f"+{version}"]
    defines = ["-I", str(source), "-DTUTTI_WIRE=Lines"]
    image = str(source / KERNELS / "image.cpp")
    run([*tools.clang, *cpu, *feature, *FLAGS, *defines, "-S", image, "-o", str(raw)])
    text = re.sub(r"\s*//[^\n]*", "", raw.read_text())
    text = re.sub(r"\n\s+", "\n", text)
    text = re.sub(r"(\.visible \.entry [^)]*\))", r"\1\n.maxntid 512, 1, 1", text)
    # kScatterThreads; four such blocks of a processor share its registers.
    scatter, few = r"(\.entry scatter_copy\([^)]*\)\n)\.maxntid 512, 1, 1", r"\1.maxntid 256, 1, 1"
    text = re.sub(scatter, few + "\n.minnctapersm 4", text)
    if torn := torn_lines(text):
        raise RuntimeError(
            f"{len(torn)} lines would not leave or arrive in one piece, first {torn[0]}"
        )
    output.write_text(text)


def sass(tools: Tools, text: Path, target: str, output: Path) -> None:
    """Machine code for one NVIDIA architecture."""
    run([*tools.ptxas, "-O3", f"-arch={target}", str(text), "-o", str(output)])


def code_object(tools: Tools, source: Path, target: str, output: Path) -> None:
    """An AMD code object."""
    cpu = ["--target=amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib"]
    image = str(source / KERNELS / "image.cpp")
    compiled = output.with_suffix(".o")
    defines = ["-I", str(source), "-DTUTTI_WIRE=Packets"]
    run([*tools.clang, *cpu, *FLAGS, *defines, "-c", image, "-o", str(compiled)])
    run([*tools.lld, "-shared", str(compiled), "-o", str(output)])


def pack(image: bytes) -> bytes:
    """A twelfth of it, for src/base/lzma.hpp."""
    filters = [{"id": lzma.FILTER_LZMA1, "preset": 9, "lc": 3, "lp": 0, "pb": 2}]
    return lzma.compress(image, lzma.FORMAT_RAW, filters=filters)


def images_source(built: dict[str, Path]) -> str:
    """images.cpp: the bytes of the packed files, which lie beside them, and the table of them."""
    lines = ['#include "device/kernels/images.hpp"', ""]
    for name, path in built.items():
        path = path.with_name(f"{name}.lzma")
        lines.append(
            f'asm(".pushsection .rodata\\n.balign 64\\ntutti_image_{name}:\\n'
            f'.incbin \\"{path.resolve()}\\"\\ntutti_image_{name}_end:\\n.popsection");'
        )
        lines.append(
            f'extern "C" const unsigned char tutti_image_{name}[], tutti_image_{name}_end[];'
        )
    lines += ["", "namespace tutti::device::kernels {", "", "std::span<const Image> images() {"]
    if built:
        lines.append("  static const Image all[] = {")
        for name, path in built.items():
            vendor = "hip" if name.startswith("gfx") else "cuda"
            lines.append(
                f'      {{"{vendor}", "{name}", {{tutti_image_{name}, tutti_image_{name}_end}}, '
                f"{path.stat().st_size}}},"
            )
        lines += ["  };", "  return all;"]
    else:
        lines.append("  return {};")
    lines += ["}", "", "}  // namespace tutti::device::kernels", ""]
    return "\n".join(lines)


def cache_of(source: Path, output: Path, tools: Tools) -> Path:
    """Where the images of these kernels are kept, by all that goes into them."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in sorted((source / KERNELS).glob("*")):
        digest.update(file.name.encode() + file.read_bytes())
    # A package may be upgraded in its place.
    for tool in (tools.clang, tools.lld, tools.ptxas):
        if tool:
            digest.update(str(Path(tool[0]).stat().st_size).encode())
    return Path(os.environ.get("DEVICE_IMAGES_CACHE") or output) / digest.hexdigest()[:16]


def main() -> int:
    """Builds what can be built; 1 when a compiler that was found fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="the src directory")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    tools = find_tools()
    cache = cache_of(options.source, options.output, tools)

    wanted: dict[str, tuple[str, ...]] = {}
    if tools.clang and tools.ptxas:
        wanted |= {name: ("sass", name) for name in SASS}
    if tools.clang:
        wanted |= {"ptx": ("ptx", PTX_TARGET)}
    if tools.lld:
        wanted |= {name: ("amd", name) for name in AMD}
    if not tools.clang:
        print(
            "device images: no clang for GPUs; the direct backend will have no GPU kernels. "
            "Remedy: pip install ziglang, or apt-get install clang-19 lld-19",
            file=sys.stderr,
        )
    elif not tools.ptxas:
        print(
            "device images: no ptxas; NVIDIA drivers will translate PTX at first use. "
            "Remedy: pip install nvidia-cuda-nvcc-cu12",
            file=sys.stderr,
        )

    def build(name: str) -> Path | None:
        done = cache / name
        if done.is_file():
            return done
        work = cache / f"{name}.{os.getpid()}"
        work.mkdir(parents=True, exist_ok=True)
        made = work / name
        kind, target = wanted[name]
        try:
            if kind == "sass":
                sass(tools, base, target, made)
            elif kind == "ptx":
                ptx(tools, options.source, target, PTX_VERSION, made)
                made.write_bytes(made.read_bytes() + b"\0")  # The driver reads a C string.
            else:
                code_object(tools, options.source, target, made)
            packed = done.with_name(f"{name}.lzma")
            own = work / packed.name
            own.write_bytes(pack(made.read_bytes()))
            own.rename(packed)
            made.rename(done)
        except RuntimeError as error:
            if any(words in str(error) for words in UNKNOWN_TARGET):
                print(f"device images: this clang does not know {target}", file=sys.stderr)
                return None
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return done

    base = cache / "sass.ptx"  # What all machine code is made from.
    try:
        if any(name in SASS and not (cache / name).is_file() for name in wanted):
            cache.mkdir(parents=True, exist_ok=True)
            own = base.with_suffix(f".{os.getpid()}")
            ptx(tools, options.source, "sm_80", "ptx70", own)
            own.rename(base)
        with ThreadPoolExecutor(options.jobs) as pool:
            made = dict(zip(wanted, pool.map(build, wanted)))
    except RuntimeError as error:
        print(f"device images: {error}", file=sys.stderr)
        return 1
    built = {name: path for name, path in made.items() if path is not None}
    (options.output / "images.cpp").write_text(images_source(built))
    return 0


if __name__ == "__main__":
    sys.exit(main())
