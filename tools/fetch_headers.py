#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Collects the vendors' headers that tests/abi compares Tutti's tables with.

    tools/fetch_headers.py .env/headers

leaves cuda/cuda.h, nccl/nccl.h, nvml/nvml.h, hip/hip/hip_runtime_api.h,
rocm_smi/rocm_smi/rocm_smi.h and verbs/infiniband/verbs.h below that directory, as far as they can
be had: from this machine, else from PyPI (CUDA, NCCL, NVML; headers alone are kept) and from Debian
(HIP, ROCm SMI, verbs; unpacked, not installed). Nothing of them is compiled into the product. One
line on stderr for each vendor that is missing; the exit code is then 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# The oldest NCCL with every call of src/ccl; newer ones may only add.
NCCL = "nvidia-nccl-cu12==2.21.5"
CUDA = [
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-crt==13.5.37",  # crt/, which cuda_runtime.h includes
    "nvidia-cuda-cccl==13.3.5.0.6",  # nv/target, which cuda_fp16.h includes
]
CUDA_HEADERS = (
    "builtin_types",
    "channel_",
    "common_functions",
    "crt/",
    "cu",
    "device_",
    "driver_",
    "host_",
    "library_types",
    "math_",
    "nv/",
    "sm_",
    "surface_",
    "texture_",
    "vector_",
)
NVML = "nvidia-nvml-dev-cu12==12.9.79"
HIP = "libamdhip64-dev"
ROCM_SMI = "librocm-smi-dev"
VERBS = "libibverbs-dev"


def wheel(requirement: str, into: Path) -> zipfile.ZipFile:
    """Downloads one wheel, from TUTTI_WHEELS if that is set."""
    carried = os.environ.get("TUTTI_WHEELS")
    source = ["--no-index", "--find-links", carried] if carried else []
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--retries",
            "1",
            "--dest",
            into,
            *source,
            requirement,
        ],
        check=True,
        capture_output=True,
    )
    name = requirement.partition("==")[0].replace("-", "_")
    return zipfile.ZipFile(next(into.glob(f"{name}-*.whl")))


def keep(archive: zipfile.ZipFile, into: Path, wanted: tuple[str, ...]) -> None:
    """Extracts the files of the wheel's include/ whose path begins with one of `wanted`."""
    for member in archive.namelist():
        _, include, path = member.partition("/include/")
        if include and path.startswith(wanted) and not path.endswith("/"):
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            (into / path).write_bytes(archive.read(member))


def linked_to(candidates: list[str], header: str, into: Path) -> bool:
    """Makes `into` a link to the first of the `candidates` that holds `header`."""
    for candidate in candidates:
        if (Path(candidate) / header).is_file():
            into.parent.mkdir(parents=True, exist_ok=True)
            into.symlink_to(Path(candidate).resolve())
            return True
    return False


def debian(package: str, directory: str, into: Path, scratch: Path) -> None:
    """Unpacks /usr/include/`directory` of a package of the distribution."""
    scratch.chmod(0o777)  # apt drops its privileges for the download
    download = ["apt-get", "download", package]
    if subprocess.run(download, cwd=scratch, check=False, capture_output=True).returncode != 0:
        subprocess.run(["apt-get", "update"], check=False, capture_output=True)
        subprocess.run(download, cwd=scratch, check=True, capture_output=True)
    unpacked = scratch / "unpacked"
    archive = next(scratch.glob("*.deb"))
    subprocess.run(["dpkg", "-x", archive, unpacked], check=True, capture_output=True)
    shutil.copytree(unpacked / "usr/include" / directory, into / directory)


def cuda(into: Path, scratch: Path) -> None:
    """cuda.h, cuda_runtime.h and what they include."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    if linked_to([f"{home}/include" for home in homes if home], "cuda_runtime.h", into):
        return
    for requirement in CUDA:
        keep(wheel(requirement, scratch), into, CUDA_HEADERS)


def nccl(into: Path, scratch: Path) -> None:
    """nccl.h."""
    keep(wheel(NCCL, scratch), into, ("nccl.h",))


def hip(into: Path, scratch: Path) -> None:
    """hip/hip_runtime_api.h and what it includes."""
    if linked_to(["/opt/rocm/include/hip", "/usr/include/hip"], "hip_runtime_api.h", into / "hip"):
        return
    debian(HIP, "hip", into, scratch)


def nvml(into: Path, scratch: Path) -> None:
    """nvml.h."""
    keep(wheel(NVML, scratch), into, ("nvml.h",))


def rocm_smi(into: Path, scratch: Path) -> None:
    """rocm_smi/rocm_smi.h and what it includes."""
    places = ["/opt/rocm/include/rocm_smi", "/usr/include/rocm_smi"]
    if not linked_to(places, "rocm_smi.h", into / "rocm_smi"):
        debian(ROCM_SMI, "rocm_smi", into, scratch)


def verbs(into: Path, scratch: Path) -> None:
    """infiniband/verbs.h and what it includes."""
    if not linked_to(["/usr/include/infiniband"], "verbs.h", into / "infiniband"):
        debian(VERBS, "infiniband", into, scratch)


def main() -> int:
    """Fetches each vendor's headers that are not there yet."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    top = Path(sys.argv[1])
    top.mkdir(parents=True, exist_ok=True)
    status = 0
    for fetch in (cuda, nccl, hip, nvml, rocm_smi, verbs):
        name = fetch.__name__
        if (top / name).exists():
            continue
        print(f"make: fetching the {name.upper()} headers", flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            new = Path(scratch) / "new"
            try:
                fetch(new, Path(scratch))
                shutil.move(new, top / name)
            except (OSError, subprocess.CalledProcessError, StopIteration) as error:
                status = 1
                print(
                    f"make: no {name.upper()} headers ({type(error).__name__}): the compile-time "
                    f"check of its table is skipped (network, or wheels in TUTTI_WHEELS=dir)",
                    file=sys.stderr,
                )
    return status


if __name__ == "__main__":
    sys.exit(main())
