# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tutti import launch, mpi
from tutti.cli import main
from tutti.errors import TuttiError

LIBRARY = Path("/opt/tutti/lib/libtutti-mpi.so")


def fake_launcher(directory: Path, name: str, version: str) -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return path


def test_environment__appends_to_a_preload() -> None:
    env = launch.environment({"LD_PRELOAD": "/a.so /b.so"}, LIBRARY, {})
    assert env["LD_PRELOAD"] == f"/a.so:/b.so:{LIBRARY}"
    assert launch.environment(env, LIBRARY, {})["LD_PRELOAD"] == env["LD_PRELOAD"]


def test_environment__keeps_the_commands_own_variable_from_the_ranks() -> None:
    env = launch.environment({"TUTTI_LIBRARY_DIR": "/x", "A": "b"}, None, {"TUTTI_STRICT": "1"})
    assert env == {"A": "b", "TUTTI_STRICT": "1"}


def test_environment__library_directory_goes_first() -> None:
    env = launch.environment({"LD_LIBRARY_PATH": "/a:/m"}, None, {}, Path("/m"))
    assert env["LD_LIBRARY_PATH"] == "/m:/a"


@pytest.mark.parametrize("path", ["/opt/a b/libtutti-mpi.so", "/opt/a:b/libtutti-mpi.so"])
def test_environment__a_preload_that_the_linker_would_split(path: str) -> None:
    with pytest.raises(TuttiError, match="LD_PRELOAD is split at blanks and colons"):
        launch.environment({}, Path(path), {})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mpirun (Open MPI) 5.0.11\n", "openmpi"),
        ("HYDRA build details:\n    Version: 5.0.2\n", "hydra"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.13\n", "hydra"),
        ("slurm 23.11.4\n", "srun"),
        ("mpiexec of somebody else\n", "unknown"),
    ],
)
def test_launcher_kind__from_its_version(text: str, kind: str) -> None:
    assert mpi.kind_of_version(text) == kind


def command(kind: str, ranks: int = 2) -> list[str]:
    library = mpi.Mpi("mpich", "libmpi.so.12", Path("/m/bin/mpirun"), kind, Path("/m"), "test")
    env = {"LD_PRELOAD": "/t.so", "TUTTI_STRICT": "1", "HOME": "/root"}
    return launch.ranks_command(library, ranks, ["./app", "-x"], env)


def test_ranks_command__hydra_passes_its_environment() -> None:
    assert command("hydra") == ["/m/bin/mpirun", "-n", "2", "./app", "-x"]


def test_ranks_command__open_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(launch, "usable_cores", lambda: 1)
    options = ["--allow-run-as-root", "--oversubscribe", "-x", "LD_PRELOAD", "-x", "TUTTI_STRICT"]
    assert command("openmpi") == ["/m/bin/mpirun", *options, "-n", "2", "./app", "-x"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(launch, "usable_cores", lambda: 2)
    assert command("openmpi") == ["/m/bin/mpirun", *options[2:], "-n", "2", "./app", "-x"]


def run_print(*words: str) -> str:
    shown = CliRunner().invoke(main, ["run", "--print", *words])
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def test_run__open_mpi_gets_export_options(stand_in: Path, tmp_path: Path) -> None:
    launcher = fake_launcher(tmp_path, "mpirun", "mpirun (Open MPI) 5.0.11")
    line = run_print("--plan", "bcast=mpi", "--", str(launcher), "-n", "4", "./app", "--strict")
    assert f"LD_PRELOAD={stand_in}/libtutti-mpi.so" in line
    assert "TUTTI_BCAST=mpi" in line
    assert f"{launcher} -x LD_PRELOAD" in line
    assert "-x TUTTI_BCAST -n 4 ./app --strict" in line
    assert "TUTTI_STRICT" not in line  # The application's own option is the application's.


def test_run__a_preload_that_the_linker_would_split(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").symlink_to(stand_in)
    monkeypatch.setenv("TUTTI_LIBRARY_DIR", str(tmp_path / "a b"))
    refused = CliRunner().invoke(main, ["run", "--print", "--", "./app"])
    assert refused.exit_code == 2
    assert "LD_PRELOAD is split at blanks and colons" in refused.stderr


def test_run__hydra_and_srun_are_left_alone(stand_in: Path, tmp_path: Path) -> None:
    hydra = fake_launcher(tmp_path, "mpiexec", "HYDRA build details:")
    assert run_print("--strict", "--", str(hydra), "-n", "4", "./app").endswith(
        f"TUTTI_STRICT=1 {hydra} -n 4 ./app\n"
    )
    assert run_print("--", "srun", "-n", "4", "./app").endswith(" srun -n 4 ./app\n")


def test_run__a_program_without_a_launcher(stand_in: Path) -> None:
    assert run_print("--", "python3", "app.py").endswith("libtutti-mpi.so python3 app.py\n")


@pytest.mark.parametrize(
    ("words", "dropped"),
    [
        (["srun", "--export=NONE", "./app"], "--export=NONE"),
        (["srun", "--export=ALL,A=b", "./app"], None),
        (["srun", "--export=A=b,ALL", "./app"], None),
        (["srun", "--export", "NONE", "./app"], "--export"),
        (["srun", "--export", "ALL", "./app"], None),
        (["srun", "-n", "4", "-J", "test", "--export=A", "./app"], "--export=A"),
        (["srun", "-n", "4", "./app", "--export", "foo"], None),
        (["srun", "-n4", "sh", "-c", "x", "--export=foo"], None),
        (["srun", "--export-file=f", "./app"], None),
        (["srun", "./app"], None),
        (["mpiexec", "-genvnone", "./app"], "-genvnone"),
        (["mpiexec", "-genv", "A", "/b", "-envnone", "./app"], "-envnone"),
        (["mpiexec", "-n", "4", "./app", "-genvnone"], None),
        (["mpiexec", "--export=NONE", "./app"], None),
    ],
)
def test_dropped_environment(words: list[str], dropped: str | None) -> None:
    assert launch.dropped_environment(words) == dropped


def test_run__executes_with_the_environment(
    stand_in: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            main(["run", "--strict", "--", "sh", "-c", 'echo "$TUTTI_STRICT:$LD_PRELOAD"'])
        finally:
            os._exit(70)
    assert os.waitpid(pid, 0)[1] == 0
    assert capfd.readouterr().out == f"1:{stand_in}/libtutti-mpi.so\n"


def test_run__missing_program(stand_in: Path) -> None:
    shown = CliRunner().invoke(main, ["run", "--", "/no/such/program"])
    assert (shown.exit_code, shown.stderr) == (
        2,
        "tutti: /no/such/program: No such file or directory\n",
    )


@pytest.mark.parametrize("name", ["mpich", "openmpi", "abi", "other"])
def test_find__a_name_is_no_directory_that_happens_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    known = mpi.Mpi(name, "libmpi.so", Path("/m/bin/mpirun"), "hydra", Path("/m"), "test")
    monkeypatch.setattr(mpi, "find_all", lambda: (known,))
    if name == "other":
        with pytest.raises(TuttiError, match="the path of a prefix or mpirun, with a slash"):
            mpi.find(name)
    else:
        assert mpi.find(name) == known
    with pytest.raises(TuttiError, match=f"--mpi ./{name}: no mpirun and MPI library there"):
        mpi.find(f"./{name}")
