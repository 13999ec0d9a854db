# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The link-time stand-ins of an old glibc: what they offer, and a program linked to them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import glibc_stubs

from missing import unavailable

REPOSITORY = Path(__file__).resolve().parents[2]
LISTING = """
   10: 0000000000088f40    45 FUNC    GLOBAL DEFAULT   16 dlopen@@GLIBC_2.34
   11: 0000000000088f40    45 FUNC    GLOBAL DEFAULT   16 dlopen@GLIBC_2.2.5
   12: 00000000000a0000    10 IFUNC   GLOBAL DEFAULT   16 memcpy@@GLIBC_2.14
   13: 00000000000a0010    10 FUNC    GLOBAL DEFAULT   16 memcpy@GLIBC_2.2.5
   14: 00000000000a0020    10 FUNC    GLOBAL DEFAULT   16 arc4random@@GLIBC_2.36
   15: 00000000001d0000     8 OBJECT  WEAK   DEFAULT   34 environ@@GLIBC_2.2.5
   16: 00000000001d0000     8 OBJECT  GLOBAL DEFAULT   34 __environ@@GLIBC_2.2.5
   17: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND __tls_get_addr@GLIBC_2.3 (2)
   18: 00000000000a0030    10 FUNC    GLOBAL DEFAULT   16 pthread_self@@GLIBC_2.2.5
   19: 00000000000a0040    10 FUNC    GLOBAL DEFAULT   16 __libc_dlopen_mode@@GLIBC_PRIVATE
"""


def test_symbols__newest_version_up_to_the_oldest_system() -> None:
    offered, newer = glibc_stubs.symbols(LISTING, (2, 28))
    versions = {symbol.name: symbol.version for symbol in offered}
    assert versions == {
        "dlopen": (2, 2, 5),
        "memcpy": (2, 14),
        "environ": (2, 2, 5),
        "__environ": (2, 2, 5),
        "pthread_self": (2, 2, 5),
    }
    assert newer == {"dlopen", "arc4random"}


def test_by_library__what_moved_goes_back() -> None:
    parted = glibc_stubs.by_library("libc.so.6", *glibc_stubs.symbols(LISTING, (2, 28)))
    assert [symbol.name for symbol in parted["libdl.so.2"]] == ["dlopen"]
    assert "pthread_self" in [symbol.name for symbol in parted["libc.so.6"]]  # It always was there.


def test_assembly__names_of_one_variable_share_its_place() -> None:
    text = glibc_stubs.assembly(glibc_stubs.symbols(LISTING, (2, 28))[0])
    assert re.search(r"\nenviron:\n\.globl __environ\n.*\n.*\n__environ:\n\.zero 8\n", text)


PROGRAM = """
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
static std::string constructed("before main");
int main() {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  if (never.wait_for(lock, std::chrono::milliseconds(10)) != std::cv_status::timeout) return 1;
  int caught = 0;
  std::thread([&] { try { throw std::runtime_error("x"); } catch (...) { caught = 1; } }).join();
  const bool differ = std::random_device{}() != std::random_device{}();
  const auto bytes = std::filesystem::file_size("/proc/self/exe");
  std::puts(constructed.c_str());
  return caught == 1 && differ && bytes > 0 ? 0 : 2;
}
"""


def test_program__wants_no_newer_glibc_and_runs(tmp_path: Path) -> None:
    if sys.platform != "linux" or not shutil.which("g++"):
        unavailable("no g++")
    script = REPOSITORY / "cmake/glibc_stubs.py"
    words = [sys.executable, str(script), "--compiler", "gcc", "--version", "2.28"]
    subprocess.run([*words, "--output", str(tmp_path)], check=True)
    (tmp_path / "a.cpp").write_text(PROGRAM)
    compat, program = tmp_path / "compat.o", tmp_path / "a"
    source = str(REPOSITORY / "cmake/glibc_compat.c")
    subprocess.run(
        [
            "gcc",
            "-O1",
            "-fPIC",
            "-fvisibility=hidden",
            "-DTUTTI_PROGRAM",
            "-c",
            source,
            "-o",
            compat,
        ],
        check=True,
    )
    static = ["-static-libstdc++", "-static-libgcc", f"-L{tmp_path}"]
    words = ["g++", "-std=c++20", "-O1", str(tmp_path / "a.cpp"), str(compat), *static]
    subprocess.run([*words, "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "before main\n")
    needed = subprocess.run(["objdump", "-T", program], capture_output=True, text=True, check=True)
    versions = [glibc_stubs.numbers(v) for v in re.findall(r"GLIBC_([0-9.]+)", needed.stdout)]
    assert versions
    assert max(versions) <= (2, 28)
