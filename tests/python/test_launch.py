# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti run`: what each launcher gets, and what is said where it cannot be done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tutti_hpc import launch, mpi
from tutti_hpc.cli import main
from tutti_hpc.errors import TuttiError

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
        (["srun", "--export=A,LD_PRELOAD", "./app"], None),
        (["env", "A=b", "srun", "--export=NONE", "./app"], "--export=NONE"),
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
    assert launch.dropped_environment(words, {}) == dropped


def test_dropped_environment__of_a_batch_job() -> None:
    env = {"SLURM_EXPORT_ENV": "NONE"}
    assert launch.dropped_environment(["srun", "./app"], env) == "SLURM_EXPORT_ENV=NONE"
    assert launch.dropped_environment(["srun", "--export=ALL", "./app"], env) is None
    assert launch.dropped_environment(["mpiexec", "./app"], env) is None


T = "/t/tool.so"
BOTH = f"{T}:{LIBRARY}"


@pytest.mark.parametrize(
    ("kind", "words", "final"),
    [
        ("openmpi", "mpirun -x LD_PRELOAD=T ./app", "mpirun -x TUTTI_A -x LD_PRELOAD=BOTH ./app"),
        ("openmpi", "mpirun -x LD_PRELOAD ./app", "mpirun -x TUTTI_A -x LD_PRELOAD ./app"),
        (
            "openmpi",
            "mpirun -x LD_PRELOAD=T ./a : -n 2 ./b",
            "mpirun -x TUTTI_A -x LD_PRELOAD=BOTH ./a : -x LD_PRELOAD -x TUTTI_A -n 2 ./b",
        ),
        (
            "openmpi",
            "nsys profile -t mpi mpirun ./app",
            "nsys profile -t mpi mpirun -x LD_PRELOAD -x TUTTI_A ./app",
        ),
        (
            "openmpi",
            "env LD_PRELOAD=T mpirun ./app",
            "env LD_PRELOAD=BOTH mpirun -x LD_PRELOAD -x TUTTI_A ./app",
        ),
        ("openmpi", "./app mpirun", "./app mpirun"),
        ("hydra", "mpiexec -genv LD_PRELOAD T ./app", "mpiexec -genv LD_PRELOAD BOTH ./app"),
        ("hydra", "mpiexec -env LD_PRELOAD T ./app", "mpiexec -env LD_PRELOAD BOTH ./app"),
        ("hydra", "mpiexec -genvlist PATH ./a", "mpiexec -genvlist PATH,LD_PRELOAD,TUTTI_A ./a"),
        ("hydra", "mpiexec --env LD_PRELOAD=T ./app", "mpiexec --env LD_PRELOAD=BOTH ./app"),
        ("hydra", "mpiexec --env=LD_PRELOAD=T ./app", "mpiexec --env=LD_PRELOAD=BOTH ./app"),
        ("hydra", "mpiexec -n 2 env LD_PRELOAD=T ./app", "mpiexec -n 2 env LD_PRELOAD=BOTH ./app"),
        ("srun", "srun --export=ALL,LD_PRELOAD=T ./app", "srun --export=ALL,LD_PRELOAD=BOTH ./app"),
        (
            "srun",
            "srun --export LD_PRELOAD=T,PATH ./app",
            "srun --export LD_PRELOAD=BOTH,PATH,TUTTI_A ./app",
        ),
        ("srun", "srun --export=A=b ./app", "srun --export=A=b,LD_PRELOAD,TUTTI_A ./app"),
        ("srun", "srun --export=NONE ./app", "srun --export=NONE ./app"),
        ("srun", "env LD_PRELOAD=T ./app", "env LD_PRELOAD=BOTH ./app"),
    ],
)
def test_user_command__a_preload_of_its_own(
    monkeypatch: pytest.MonkeyPatch, kind: str, words: str, final: str
) -> None:
    monkeypatch.setattr(launch, "launcher_kind", lambda _: kind)
    env = {"LD_PRELOAD": str(LIBRARY), "TUTTI_A": "1"}

    def split(text: str) -> list[str]:
        return [w.replace("BOTH", BOTH).replace("=T", f"={T}") for w in text.split()]

    given = [T if word == "T" else word for word in split(words)]
    assert launch.user_command(given, env, LIBRARY) == split(final)


def test_environment__of_a_batch_job_lets_tutti_through() -> None:
    env = launch.environment({"SLURM_EXPORT_ENV": "PATH"}, LIBRARY, {"TUTTI_STRICT": "1"})
    assert env["SLURM_EXPORT_ENV"] == "PATH,LD_PRELOAD,TUTTI_STRICT"


@pytest.mark.parametrize("old", ["libtutti-mpi.so:/t.so", "/other/libtutti-mpi.so /t.so"])
def test_environment__one_tutti_behind_the_tools(old: str) -> None:
    env = launch.environment({"LD_PRELOAD": old}, LIBRARY, {})
    assert env["LD_PRELOAD"] == f"/t.so:{LIBRARY}"


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        (["mpiexec", "sh", "-c", "LD_PRELOAD=/t.so ./app"], "LD_PRELOAD=/t.so ./app"),
        (["mpirun", "--mca", "mca_base_env_list", "A;LD_PRELOAD=t"], "A;LD_PRELOAD=t"),
        (["mpiexec", "env", "-u", "LD_PRELOAD", "./app"], "env -u"),
        (["mpiexec", "env", "-i", "A=b", "./app"], "env -i"),
        (["mpiexec", "env", "-i", f"LD_PRELOAD={LIBRARY}", "./app"], None),
        (["mpiexec", "env", "A=b", "./app", "-i"], None),
        (["mpiexec", "env", f"LD_PRELOAD=/t.so:{LIBRARY}", "./app"], None),
    ],
)
def test_lost_preload(words: list[str], lost: str | None) -> None:
    assert launch.lost_preload(words, LIBRARY) == lost


def test_run__says_where_tutti_is_lost(stand_in: Path) -> None:
    shown = CliRunner().invoke(main, ["run", "--print", "--", "sh", "-c", "LD_PRELOAD=/t.so ./app"])
    assert shown.exit_code == 0
    assert shown.stderr.count("\n") == 1
    assert "'LD_PRELOAD=/t.so ./app' sets LD_PRELOAD" in shown.stderr


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
