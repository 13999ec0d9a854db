# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""tools/set_up.sh and make, without a network, in a directory of their own; the other tools."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_tools__an_outdated_environment_is_made_anew_though_it_is_first_in_the_path(
    tmp_path: Path,
) -> None:
    """As `make` calls it after requirements-dev.txt has changed: there is something new to find."""
    (tmp_path / "tools").mkdir()
    shutil.copy(REPOSITORY / "tools" / "set_up.sh", tmp_path / "tools")
    requirements = tmp_path / "requirements-dev.txt"
    programs = tmp_path / ".env" / "tools" / "bin"
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TUTTI_WHEELS": str(tmp_path)}
    found_ns = []
    for content in ("# Nothing.\n", "# Nothing.\n", "# Nothing, again.\n"):
        changed = not requirements.exists() or requirements.read_text() != content
        requirements.write_text(content)
        done = subprocess.run(
            [tmp_path / "tools" / "set_up.sh", "tools"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert ("setting up .env/tools" in done.stdout) == changed
        assert done.stderr == ""
        subprocess.run([programs / "python3", "-c", "import sys"], check=True)
        found_ns.append((tmp_path / ".env" / "stamps" / "found").stat().st_mtime_ns)
    assert found_ns[0] == found_ns[1] < found_ns[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with the set-up alone, whose requirements are none."""
    (tmp_path / "tools").mkdir()
    shutil.copy(REPOSITORY / "tools" / "set_up.sh", tmp_path / "tools")
    (tmp_path / "requirements-dev.txt").write_text("# Nothing.\n")
    return tmp_path


def set_up(checkout: Path, *parts: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [checkout / "tools" / "set_up.sh", *parts],
        env={**os.environ, "TUTTI_WHEELS": str(checkout)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_set_up__one_at_a_time(checkout: Path) -> None:
    stamps = checkout / ".env" / "stamps"
    stamps.mkdir(parents=True)
    descriptor = os.open(stamps, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        waiting = set_up(checkout, "mpi4py_abi")  # Nothing to do without an MPI.
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.communicate(timeout=0.5)
        assert not (stamps / "found").exists()
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        assert waiting.communicate()[0] == ""
        assert (stamps / "found").exists()
    finally:
        os.close(descriptor)


def test_set_up__a_part_that_is_none(checkout: Path) -> None:
    refused = set_up(checkout, "tolls")
    assert "no such part: tolls; remedy: one of compiler tests lint" in refused.communicate()[0]
    assert refused.returncode == 2


def test_make__configures_again_after_set_up_has_found_something(checkout: Path) -> None:
    shutil.copy(REPOSITORY / "Makefile", checkout)
    (checkout / "tools" / "set_up.sh").write_text("#!/bin/sh\n")
    programs = checkout / ".env" / "tools" / "bin"
    programs.mkdir(parents=True)
    found = checkout / ".env" / "stamps" / "found"
    found.parent.mkdir()
    found.touch()
    cmake = programs / "cmake"
    cmake.write_text(
        '#!/bin/sh\nif [ "$1" = --preset ]; then\n'
        "  mkdir -p build/dev && sleep 0.02 && touch build/dev/build.ninja && echo configure\n"
        "else\n  echo build\nfi >>log\n"
    )
    cmake.chmod(0o755)

    def make() -> list[str]:
        (checkout / "log").unlink(missing_ok=True)
        subprocess.run(["make", "product"], cwd=checkout, check=True, capture_output=True)
        return (checkout / "log").read_text().split()

    assert make() == ["configure", "build"]
    assert make() == ["build"]
    found.touch()
    assert make() == ["configure", "build"]
    assert make() == ["build"]


def test_configure__without_the_packages_of_tests_and_benchmarks(tmp_path: Path) -> None:
    """As `make demo` does on a bare machine. What is absent is listed, and found later."""
    build = tmp_path / "build"
    words = ["cmake", "-S", REPOSITORY, "-B", build, "-G", "Ninja"]
    words += ["-D", "TUTTI_BUILD_BENCH=ON", "-D", "TUTTI_DEVICE_IMAGES=OFF"]
    environment = {**os.environ, "CI": "true"}
    for hidden in ("ON", "OFF"):
        hide = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}={hidden}" for name in ("GTest", "benchmark")]
        done = subprocess.run(
            [*words, *hide], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        missing = (build / "missing_tests.txt").read_text()
        assert missing.count("GoogleTest not found") == (2 if hidden == "ON" else 0)
        assert ("google-benchmark not found" in done.stdout) == (hidden == "ON")
    assert "remedy: apt-get install" not in missing


@pytest.mark.parametrize("script", ["gpu_check.sh", "gpu_net_check.sh", "gpu_scatter.sh"])
def test_gpu_check__a_part_that_is_none(tmp_path: Path, script: str) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        ["bash", REPOSITORY / "tools" / script, tmp_path, tmp_path, out, "mesure"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "'mesure' is no part; remedy: " in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pytset"], "unknown: --pytset"),
        (["--total", "tests/python"], "unknown: tests/python"),
        (["--name", "x"], "nothing to run; remedy: --ctest BUILD, --pytest or --total"),
    ],
)
def test_run_tests__refuses_what_would_run_nothing(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, REPOSITORY / "tools" / "run_tests.py", *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr


def run_tests(directory: Path, *words: str, site: bool = True) -> subprocess.CompletedProcess[str]:
    python = [sys.executable] if site else [sys.executable, "-S"]
    return subprocess.run(
        [*python, REPOSITORY / "tools" / "run_tests.py", "--jobs", "1", *words],
        cwd=directory, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_run_tests__tests_that_are_not_built_are_failures(tmp_path: Path) -> None:
    (tmp_path / "CTestTestfile.cmake").write_text('add_test(one "true")\n')
    done = run_tests(tmp_path, "--ctest", ".")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    line = "GoogleTest not found; remedy: apt-get install libgtest-dev"
    (tmp_path / "missing_tests.txt").write_text(f"{line}\n")
    done = run_tests(tmp_path, "--ctest", ".")
    assert done.returncode == 1
    assert line in done.stderr
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
    (tmp_path / "CTestTestfile.cmake").write_text("")
    done = run_tests(tmp_path, "--ctest", ".")
    assert "no test ran" in done.stderr
    assert done.stdout.splitlines()[-1] == "0 passed, 2 failed, 0 skipped"


def test_run_tests__counts_the_cases_of_a_part_that_runs_many(tmp_path: Path) -> None:
    def case(inside: str) -> str:
        return f'<testcase name="a" status="run">{inside}</testcase>'

    def part(name: str, cases: str, then: str) -> str:
        (tmp_path / f"{name}.of").write_text(f"<testsuites>{cases}</testsuites>")
        copies = f"mkdir -p gtest; cp {name}.of gtest/{name}.xml; {then}"
        return f'add_test({name} sh -c "{copies}")\n'

    failed, skipped = case('<failure message="x"/>'), case("<skipped/>")
    tests = part("right", case("") * 3 + skipped, "true") + part(
        "wrong", case("") + failed * 2, "false"
    )
    tests += part("leaks", case(""), "false")
    (tmp_path / "dies.of").write_text("[ RUN      ] a.b\n[       OK ] a.b\n[ RUN      ] a.c\nwhy\n")
    tests += 'add_test(dies sh -c "cat dies.of; kill -9 $$")\n'
    (tmp_path / "gtest").mkdir()
    (tmp_path / "gtest" / "dies.xml").write_text("what an earlier run left")
    (tmp_path / "CTestTestfile.cmake").write_text(tests)
    done = run_tests(tmp_path, "--ctest", ".")
    assert done.stdout.splitlines()[-1] == "5 passed, 4 failed, 1 skipped"
    assert "-- dies failed\n[ RUN      ] a.c\nwhy\n" in done.stdout


def test_run_tests__adds_up_both_parts_of_pytest(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(
        "import pytest\n@pytest.mark.spins\ndef test_alone(): pass\ndef test_beside(): pass\n"
        "@pytest.mark.skip(reason='so that one is')\ndef test_skipped(): pass\n"
    )
    done = run_tests(tmp_path, "--pytest")
    assert done.stdout.splitlines()[-1] == "2 passed, 0 failed, 1 skipped", done.stdout
    assert done.returncode == 0
    file.write_text("import pytest\n@pytest.mark.spins\ndef test_alone(): assert False\n")
    done = run_tests(tmp_path, "--pytest", "test_some.py")
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"
    assert done.returncode == 1
    file.write_text("")
    done = run_tests(tmp_path, "--pytest", "test_some.py")
    assert "pytest: no test ran" in done.stderr
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"
    file.write_text("import nothing_of_this_name\n")
    assert run_tests(tmp_path, "--pytest").returncode == 1


def test_run_tests__takes_marks_of_the_user(tmp_path: Path) -> None:
    marks = ("spins", "slow")
    both = "".join(f"@pytest.mark.{mark}\n" for mark in marks) + "def test_both(): pass\n"
    (tmp_path / "test_some.py").write_text(
        f"import pytest\n{both}@pytest.mark.slow\ndef test_slow(): pass\ndef test_plain(): pass\n"
    )
    for words, passed in ((["-m", "slow"], 2), (["-m", "not slow"], 1), (["-k", "both"], 1)):
        done = run_tests(tmp_path, "--pytest", *words)
        assert done.stdout.splitlines()[-1] == f"{passed} passed, 0 failed, 0 skipped", words
        assert done.returncode == 0
    # Without a choice each part has to run a test.
    (tmp_path / "test_some.py").write_text("def test_plain(): pass\n")
    assert run_tests(tmp_path, "--pytest").returncode == 1


def test_run_tests__without_pytest_is_a_failure(tmp_path: Path) -> None:
    done = run_tests(tmp_path, "--pytest", site=False)
    assert done.returncode == 1
    assert "pytest not found: the Python tests do not run; remedy: " in done.stderr
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_run_tests__a_tmpdir_that_cannot_be_preloaded_from_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blank = tmp_path / "a b"
    blank.mkdir()
    monkeypatch.setenv("TMPDIR", str(blank))
    done = run_tests(tmp_path, "--pytest")
    assert done.returncode == 1
    assert f"TMPDIR={blank}: " in done.stderr
    assert "remedy: another TMPDIR" in done.stderr


def test_signals__what_the_parent_ignores_does_not_matter() -> None:
    """As under `nohup make test &`, without a terminal, niced, and with TMPDIR elsewhere."""
    tests = [
        "test_net_ranks.py::test_processes__a_signal_is_an_exit_in_its_scope_alone",
        "test_top.py::test_top__ends_with_the_interrupt_key",
    ]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    words += [str(REPOSITORY / "tests" / "python" / test) for test in tests]
    done = subprocess.run(
        ["nice", "sh", "-c", "trap '' INT HUP PIPE QUIT; exec setsid --wait \"$@\"", "sh", *words],
        cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_simulate_transport__goes_on_with_the_same_program_alone(tmp_path: Path) -> None:
    program, state = tmp_path / "program", tmp_path / "state.json"

    def run() -> subprocess.CompletedProcess[str]:
        tool = REPOSITORY / "tools" / "simulate_transport.py"
        words = [sys.executable, tool, program, "--seeds", "1000", "--state", state, "--jobs", "1"]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    program.write_text('#!/bin/sh\necho run >> "$0.log"\necho "1000 seeds, 0 failed"\n')
    program.chmod(0o755)
    assert [run().returncode, run().returncode] == [0, 0]
    assert (tmp_path / "program.log").read_text() == "run\n"
    with program.open("a") as file:
        file.write("# Another build.\n")
    refused = run()
    assert refused.returncode == 2
    assert f"{state} is of another program than {program}; remedy: remove it" in refused.stderr
    old = json.loads(state.read_text())
    del old["program_sha256"]
    state.write_text(json.dumps(old))
    assert run().returncode == 2
