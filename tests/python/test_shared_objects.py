# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What we ship, as the processes that load it see it.

The shared objects need nothing but libc's family and show nothing but our API, MPI's names and
NCCL's tables; the public headers stand alone; the installed prefix works after it was moved.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from missing import unavailable

REPOSITORY = Path(__file__).resolve().parents[2]
LIBRARIES = Path(os.environ.get("TUTTI_LIBRARY_DIR", REPOSITORY / "build/dev/lib"))
NETWORK_PLUGIN = "libnccl-net-tutti.so"
NETWORK_PLUGIN_FOR_RCCL = "librccl-net-tutti.so"
HOST_DEVICE = "libtutti-host-device.so"
OBJECTS = [
    "libtutti.so",
    "libtutti-mpi.so",
    HOST_DEVICE,
    NETWORK_PLUGIN,
    NETWORK_PLUGIN_FOR_RCCL,
]
# What may be needed beside libc's family: our own, from the directory of who needs it.
ENGINE = {"libtutti.so", "libtutti.so.0"}
NEIGHBOURS = {
    "libtutti-mpi.so": ENGINE,
    NETWORK_PLUGIN: ENGINE,
    NETWORK_PLUGIN_FOR_RCCL: {NETWORK_PLUGIN},
}
RELEASE_BYTES_MAX = 8_000_000
HEADERS = sorted((REPOSITORY / "include").rglob("*.h*"))

ALLOWED_NEEDED = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux.*)\.so\.\d+")
API = re.compile(r"tutti_[a-z0-9_]+")
NETWORK_TABLES = {f"ncclNetPlugin_v{version}" for version in range(6, 13)}
MPI = re.compile(r"P?MPI_[A-Z][A-Za-z0-9_]*|mpi_[a-z0-9_]+|PMIx_Commit")

PROGRAM = """
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
int main(void) {
  char* machine = tutti_machine_json();
  int good = machine[0] == '{' && tutti_abi_version() == TUTTI_ABI_VERSION;
  tutti_free(machine);
  puts(tutti_version());
  return good ? 0 : 1;
}
"""


def output(*command: str | Path, **options: object) -> str:
    """What a command prints; its stderr is in the failure."""
    result = subprocess.run(
        [str(word) for word in command], check=False, capture_output=True, text=True, **options
    )  # type: ignore[call-overload]
    assert result.returncode == 0, f"{command}:\n{result.stdout}{result.stderr}"
    return str(result.stdout)


def version() -> str:
    found = re.search(
        r"project\(tutti VERSION ([0-9.]+)", (REPOSITORY / "CMakeLists.txt").read_text()
    )
    assert found
    return found.group(1)


def shared_objects(where: Path) -> list[Path]:
    return sorted(path for path in where.rglob("*.so*") if path.is_file() and not path.is_symlink())


def check_needed(path: Path) -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", path))
    neighbours = NEIGHBOURS.get(path.name, set())
    foreign = [n for n in needed if n not in neighbours and not ALLOWED_NEEDED.fullmatch(n)]
    assert needed, f"{path.name} needs nothing, not even libc: did readelf read it?"
    assert not foreign, (
        f"{path.name} needs {foreign}; load it by DynamicLibrary in place of linking"
    )
    if neighbours:
        assert neighbours & set(needed)
        dynamic = output("readelf", "-dW", path)
        assert re.search(r"\(RPATH\).*\[\$ORIGIN\]", dynamic), f"{path.name}: no RPATH $ORIGIN"


def check_exported(path: Path) -> None:
    listed = output("nm", "-D", "--defined-only", "--format=posix", path)
    names = [line.split()[0].partition("@")[0] for line in listed.splitlines()]
    if "-net-tutti" in path.name:
        assert set(names) == (NETWORK_TABLES if path.name == NETWORK_PLUGIN else set())
        return
    allowed, example = API, "tutti_version"
    if path.name.startswith("libtutti-mpi"):
        allowed, example = MPI, "MPI_Allreduce"
    elif path.name == HOST_DEVICE:
        allowed, example = re.compile(r"tutti_host_device_[a-z_]+"), "tutti_host_device_open"
    else:
        assert not [name for name in names if "host_device" in name]
    odd = [name for name in names if not allowed.fullmatch(name)]
    assert not odd, f"{path.name} shows {odd[:10]}; cmake/exports.map says what may be seen"
    assert example in names


def check_run_path(path: Path) -> None:
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", output("readelf", "-dW", path))
    assert all(entry.startswith("$ORIGIN") for entry in paths), f"{path.name}: {paths}"


@pytest.mark.parametrize("name", OBJECTS)
def test_build__needs_only_libc(name: str) -> None:
    check_needed(LIBRARIES / name)


# Of the 1664 that glibc has for all that is loaded late with such variables.
STATIC_TLS_BYTES_MAX = 400


@pytest.mark.parametrize("name", OBJECTS)
def test_build__has_few_variables_of_threads(name: str) -> None:
    found = re.search(
        r"^ *TLS +(\S+ +){4}(0x[0-9a-f]+)", output("readelf", "-lW", LIBRARIES / name), re.M
    )
    assert found is None or int(found[2], 16) <= STATIC_TLS_BYTES_MAX


def test_build__network_plugin_of_another_version_is_refused(tmp_path: Path) -> None:
    """By the loader, which names what is missing."""
    (tmp_path / "other.c").write_text("void* tutti_nccl_net_table_0_0_9(int version) { return 0; }")
    library = tmp_path / "libtutti.so.0"
    output(
        "cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", tmp_path / "other.c", "-o", library
    )
    shutil.copy(LIBRARIES / NETWORK_PLUGIN, tmp_path)
    # In a process of its own: one that has our libtutti.so.0 already would take that.
    code = f"import ctypes; ctypes.CDLL({str(tmp_path / NETWORK_PLUGIN)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"tutti_nccl_net_table_{version().replace('.', '_')}" in done.stderr


@pytest.mark.parametrize("name", OBJECTS)
def test_build__shows_only_our_names(name: str) -> None:
    check_exported(LIBRARIES / name)


def test_build__no_other_shared_object() -> None:
    names = {path.name for path in shared_objects(LIBRARIES)}
    assert names == {f"libtutti.so.{version()}", *OBJECTS[1:]}


def test_build__product_has_nothing_of_the_host_device() -> None:
    inside = output("nm", "--demangle", LIBRARIES / "libtutti.so")
    assert "tutti::device::open(" in inside
    assert "host_device" not in inside


MACHINE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.tutti_machine_json.restype = ctypes.c_char_p
print(library.tutti_machine_json().decode())
"""


def test_host_device__missing_and_of_another_build(tmp_path: Path) -> None:
    shutil.copy(LIBRARIES / "libtutti.so", tmp_path)
    beside = tmp_path / HOST_DEVICE

    def device() -> dict[str, str]:
        environment = {**os.environ, "TUTTI_DEVICE": "host"}
        command = [sys.executable, "-c", MACHINE, tmp_path / "libtutti.so"]
        return json.loads(output(*command, env=environment))["device"]

    missing = device()
    assert missing["name"] is None
    assert missing["taken"] == "none"
    assert missing["reason"].startswith(f"host: {beside}: cannot open shared object file")
    assert "; remedy: " in missing["reason"]

    (tmp_path / "other.c").write_text("void* tutti_host_device_open(void) { return 0; }")
    output("cc", "-shared", "-fPIC", tmp_path / "other.c", "-o", beside)
    assert device()["reason"].startswith(f"host: {beside} is of another build of Tutti; remedy: ")

    shutil.copy(LIBRARIES / HOST_DEVICE, beside)
    assert device()["library"] == str(beside)


def test_build__network_plugin_has_both_names() -> None:
    # As RCCL does: the tables are found by the name of the one that only needs the other.
    plugin = ctypes.CDLL(str(LIBRARIES / NETWORK_PLUGIN_FOR_RCCL))
    assert all(hasattr(plugin, table) for table in NETWORK_TABLES)
    # NCCL would load a plugin of this name without being asked.
    assert not (LIBRARIES / "libnccl-net.so").exists()


def test_build__measured_program_starts_with_open_mpi_4() -> None:
    """Which many distributions have. What Open MPI 5 alone has is looked for at run time."""
    program = LIBRARIES.parent / "bench" / "measure" / "tutti-measure-openmpi"
    if not program.exists():
        pytest.skip(f"no {program.name}: Tutti was built without Open MPI's headers")
    listed = output("nm", "-D", "--format=posix", program).splitlines()
    kinds = dict(line.split()[:2] for line in listed)
    assert kinds["ompi_mpi_float"] in "BU"  # What nm says of one that every Open MPI has.
    assert kinds.get("ompi_mpi_short_float", "w") in "wv"


def test_wheel__objects_inside(tmp_path: Path) -> None:
    wheels = sorted(
        (REPOSITORY / "dist").glob("tutti_hpc-*.whl"), key=lambda path: path.stat().st_mtime
    )
    if not wheels:
        unavailable("no wheel in dist/ (make wheel)")
    assert "-py3-none-" in wheels[-1].name
    with zipfile.ZipFile(wheels[-1]) as archive:
        archive.extractall(tmp_path)
    objects = shared_objects(tmp_path / "tutti_hpc" / "lib")
    assert [path.name for path in objects] == sorted({*OBJECTS} - {HOST_DEVICE})
    for path in objects:
        check_needed(path)
        check_exported(path)
        check_run_path(path)
    # CI's wheel is not optimized, which takes up to three times the room.
    most = RELEASE_BYTES_MAX * (3 if os.environ.get("CI") else 1)
    assert sum(path.stat().st_size for path in objects) < most
    tag = re.search(r"manylinux_(\d+)_(\d+)_", wheels[-1].name)
    assert tag, f"{wheels[-1].name}: make wheel gives it a manylinux tag"
    programs = sorted((tmp_path / "tutti_hpc" / "lib").glob("tutti-measure-*"))
    for path in [*objects, *programs]:
        listed = output("objdump", "-T", path)
        wanted = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", listed)]
        assert max(wanted) <= (int(tag[1]), int(tag[2])), f"{path.name} wants a newer glibc"


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
@pytest.mark.parametrize("language", ["c", "c++"])
def test_public_header__compiles_alone(header: Path, language: str, tmp_path: Path) -> None:
    if language == "c" and header.suffix == ".hpp":
        pytest.skip(f"{header.name} is a C++ header")
    standard = {"c": "-std=c11", "c++": "-std=c++20"}[language]
    source = tmp_path / "alone"
    source.write_text(f"#include <{header.relative_to(REPOSITORY / 'include')}>\n")
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    include = f"-I{REPOSITORY / 'include'}"
    output("c++", "-x", language, standard, *warnings, include, "-fsyntax-only", source)


@pytest.fixture(scope="module")
def moved_prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation that was moved after `cmake --install`."""
    top = tmp_path_factory.mktemp("install")
    output("cmake", "--install", LIBRARIES.parent, "--prefix", top / "before")
    (top / "before").rename(top / "after")
    return top / "after"


def run_against(prefix: Path, program: Path) -> str:
    return output(program, env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}).strip()


def test_prefix__has_everything(moved_prefix: Path) -> None:
    for name in OBJECTS:
        check_needed(moved_prefix / "lib" / name)
        check_run_path(moved_prefix / "lib" / name)
    assert (moved_prefix / "lib" / NETWORK_PLUGIN_FOR_RCCL).is_file()
    assert (moved_prefix / "include/tutti/tutti.h").is_file()
    assert (moved_prefix / "share/modulefiles/tutti" / version()).is_file()
    old = str(moved_prefix.with_name("before"))
    for file in moved_prefix.rglob("*"):
        if file.suffix in (".cmake", ".pc") or "modulefiles" in file.parts:
            assert file.is_dir() or old not in file.read_text(), f"{file} names {old}"


def test_prefix__pkg_config(moved_prefix: Path, tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        unavailable("pkg-config is missing")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(moved_prefix / "lib/pkgconfig")}
    flags = output("pkg-config", "--cflags", "--libs", "tutti", env=environment).split()
    (tmp_path / "a.c").write_text(PROGRAM)
    output("cc", tmp_path / "a.c", "-o", tmp_path / "a", *flags)
    assert run_against(moved_prefix, tmp_path / "a") == version()


def test_prefix__cmake_package(moved_prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(a C)\n"
        f"find_package(tutti {version()} REQUIRED)\n"
        "if(NOT EXISTS ${TUTTI_MPI_PRELOAD})\n  message(FATAL_ERROR moved)\nendif()\n"
        "add_executable(a a.c)\ntarget_link_libraries(a PRIVATE tutti::tutti)\n"
    )
    build = tmp_path / "build"
    output("cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={moved_prefix}")
    output("cmake", "--build", build)
    assert run_against(moved_prefix, build / "a") == version()
