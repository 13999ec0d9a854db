# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""tools/tidy.py: each rule finds what it is for and nothing beside it; this repository is clean."""

from __future__ import annotations

from pathlib import Path

import pytest
import tidy

REPOSITORY = Path(__file__).resolve().parents[2]
HEAD = (
    "// SPDX-FileCopyrightText: 2026 the Tutti authors\n// SPDX-License-Identifier: BSD-3-Clause\n"
)
HASH_HEAD = HEAD.replace("//", "#")


def tree(directory: Path, files: dict[str, str]) -> tidy.Tree:
    """A small repository; C++ files and CMake lists get their heads."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in tidy.CPP:
            text = HEAD + ("#pragma once\n" if path.suffix == ".hpp" else "") + text
        elif path.name == "CMakeLists.txt":
            text = HASH_HEAD + text
        path.write_text(text)
    return tidy.Tree(directory)


def texts(directory: Path, files: dict[str, str]) -> list[str]:
    return [str(finding) for finding in tidy.findings(tree(directory, files))]


def in_room(room: str, code: str) -> dict[str, str]:
    """One source file in a room whose link list is as the table says."""
    links = " ".join(f"tutti::{name}" for name in sorted(tidy.ROOMS[room]))
    return {
        f"src/{room}/CMakeLists.txt": f"tutti_room({room} SOURCES x.cpp DEPENDS {links})\n",
        f"src/{room}/x.cpp": code,
    }


def test_repository__is_clean() -> None:
    found = tidy.findings(tidy.Tree(REPOSITORY))
    assert not found, "\n" + "\n".join(str(finding) for finding in found)


def test_repository__has_all_rooms_of_the_table() -> None:
    for room in tidy.ROOMS:
        assert (REPOSITORY / "src" / room).is_dir(), f"ROOMS names src/{room}, which is not there"


def test_rooms__table_has_no_cycle_and_no_impure_pure_room() -> None:
    for room, below in tidy.ROOMS.items():
        assert room not in {deep for name in below for deep in tidy.reachable(name)}
        if room in tidy.PURE:
            assert not tidy.reachable(room) & tidy.IMPURE


def test_rooms__link_list_unlike_the_table(tmp_path: Path) -> None:
    files = in_room("select", "int x;\n")
    files["src/select/CMakeLists.txt"] = "tutti_room(select DEPENDS tutti::base tutti::device)\n"
    (finding,) = texts(tmp_path, files)
    assert finding.startswith("src/select/CMakeLists.txt:1: links tutti::device, unlike ROOMS")


def test_rooms__missing_link_and_unknown_room(tmp_path: Path) -> None:
    files = in_room("ccl", "int x;\n") | {"src/attic/x.cpp": "int x;\n"}
    files["src/ccl/CMakeLists.txt"] = "tutti_room(ccl DEPENDS tutti::base) # tutti::device\n"
    found = texts(tmp_path, files)
    assert found[0].startswith("src/attic:1: a room without a row in ROOMS")
    assert found[1].startswith("src/ccl/CMakeLists.txt:1: does not link tutti::device")


def test_includes__a_pure_room_may_not_look_at_a_device(tmp_path: Path) -> None:
    files = in_room("select", '#include "base/b.hpp"\n#include "device/d.hpp"\n')
    files |= in_room("device", '#include "device/d.hpp"\n#include "base/b.hpp"\n')
    files |= {"src/base/CMakeLists.txt": "tutti_room(base)\n", "src/base/b.hpp": "int b();\n"}
    files |= {"src/device/d.hpp": "int d();\n"}
    (finding,) = texts(tmp_path, files)
    assert finding.startswith("src/select/x.cpp:4: select may not include device (allowed: base)")


def test_includes__through_other_rooms_is_allowed(tmp_path: Path) -> None:
    files = in_room("mpi", '#include "base/b.hpp"\n')
    files |= {"src/base/CMakeLists.txt": "tutti_room(base)\n", "src/base/b.hpp": "int b();\n"}
    assert texts(tmp_path, files) == []


def test_includes__relative_path(tmp_path: Path) -> None:
    files = in_room("select", '#include "shape.hpp"\n') | {"src/select/shape.hpp": "int s();\n"}
    assert 'src/select/x.cpp:3: "shape.hpp" is not a file below src/' in texts(tmp_path, files)[0]


@pytest.mark.parametrize("header", ["mpi.h", "mpi_abi.h", "cuda.h", "cuda_runtime_api.h", "nccl.h",
                                    "hip/hip_runtime.h", "infiniband/verbs.h"])  # fmt: skip
def test_includes__foreign_header(tmp_path: Path, header: str) -> None:
    (finding,) = texts(tmp_path, in_room("device", f"#include <{header}>\n"))
    assert finding.startswith(f"src/device/x.cpp:3: <{header}> may not be included here; ")


def test_includes__mpi_in_its_room(tmp_path: Path) -> None:
    assert texts(tmp_path, in_room("mpi", "#include <mpi.h>\n")) == []


@pytest.mark.parametrize(
    ("room", "code", "name", "remedy"),
    [
        ("device", 'auto x = std::getenv("HOME");', "getenv", "environment_value"),
        ("device", 'setenv("A", "b", 1);', "setenv", "pass the value"),
        ("select", "int x = rand();", "rand", "seeded generator"),
        ("engine", "std::random_device seed;", "std::random_device", "seeded generator"),
        ("select", "auto now = std::chrono::steady_clock::now();", "std::chrono::steady_clock",
         "time as an argument"),
        ("select", "auto now = time(nullptr);", "time", "time as an argument"),
        ("engine", 'printf("%d", 1);', "printf", "log()"),
        ("engine", 'std::printf("%d", 1);', "printf", "log()"),
        ("engine", 'std::cout << "x";', "std::cout", "log()"),
        ("engine", 'fprintf(stdout, "x");', "stdout", "log()"),
        ("mpi", "if (::fork() == 0) {", "fork", "starts no process"),
        ("mpi", 'system("true");', "system", "starts no process"),
        ("mpi", "signal(SIGSEGV, handler);", "signal", "no handler"),
        ("ccl", 'dlopen("libnccl.so.2", RTLD_NOW);', "dlopen", "DynamicLibrary"),
        ("ccl", "return abort();", "abort", "Status"),
        ("ccl", "assert(x == 1);", "assert", "CHECK"),
    ],
)  # fmt: skip
def test_bans(tmp_path: Path, room: str, code: str, name: str, remedy: str) -> None:
    (finding,) = texts(tmp_path, in_room(room, f"// one\n{code}\n"))
    assert finding.startswith(f"src/{room}/x.cpp:4: {name} is banned; ")
    assert remedy in finding


@pytest.mark.parametrize(
    "code",
    [
        "// getenv() in a comment",
        "/* printf(\n   dlopen( */ int x;",
        'const char* x = "getenv(\\"HOME\\")";',
        'const char* x = R"(abort())";',
        "char buffer[8]; std::snprintf(buffer, sizeof buffer, text);",
        "library.signal(1); handle->abort(); Ccl::abort();",
        "Status abort(Communicator communicator) override;",
        "operand(x); fabort(x); time_ns(x);",
        "int n = 1'000'000; char c = '\"'; int m = 2'000;",
    ],
)
def test_bans__leaves_alone(tmp_path: Path, code: str) -> None:
    assert texts(tmp_path, in_room("select", code + "\n")) == []


def test_bans__the_allowed_places(tmp_path: Path) -> None:
    files = in_room("base", "int x;\n")
    files["src/base/config.cpp"] = 'auto x = std::getenv("HOME");\n'
    files["src/base/check.cpp"] = "void f() { std::abort(); }\n"
    files["src/base/dynamic_library.cpp"] = "auto x = dlopen(name, RTLD_NOW);\n"
    assert texts(tmp_path, files) == []


def test_heads(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/a.py").write_text("print(1)\n")
    (tmp_path / "tools/empty.py").write_text("")
    files = {"src/base/CMakeLists.txt": "tutti_room(base)\n", "src/base/x.cpp": ""}
    assert texts(tmp_path, files) == [
        "tools/a.py:1: no SPDX head; copy the first two lines of another file"
    ]


def test_heads__include_guard(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/a.h").write_text(HEAD + "int a;\n")
    (tmp_path / "tests/b.h").write_text(HEAD + "#ifndef B_H_\n#define B_H_\n#endif\n")
    found = texts(tmp_path, {"tests/a.c": '#include "a.h"\n#include "b.h"\n'})
    assert found == ["tests/a.h:1: no include guard; add #pragma once after the head comment"]


def test_leftovers(tmp_path: Path) -> None:
    word = "TO" + "DO"
    found = texts(tmp_path, {"docs/a.md": f"one\n{word}: two\nmktemp /tmp/a.{'X' * 6}\n"})
    assert found == [f"docs/a.md:2: {word} left over; do it, or file an issue"]


def test_leftovers__large_file(tmp_path: Path) -> None:
    large = "x" * (tidy.LARGEST_BYTES + 1)
    found = texts(tmp_path, {"docs/a.svg": large, "bench/results/a.json": large})
    assert [text.partition(";")[0] for text in found] == ["docs/a.svg:1: larger than 512 KiB"]


def test_dead_headers(tmp_path: Path) -> None:
    files = {"tests/support/a.hpp": "", "tests/support/b.hpp": "", "tests/c.hpp": ""}
    files["tests/unit/x.cpp"] = '#include "support/a.hpp"\n#include "../c.hpp"\n#include "c.hpp"\n'
    assert texts(tmp_path, files) == ["tests/support/b.hpp:1: included by nobody; remove it"]


def test_questions__long_functions(tmp_path: Path) -> None:
    body = "  x();\n" * tidy.LONG_FUNCTION_LINES
    code = (
        "namespace a {\nclass B {\n void f() {\n if (y) {\n" + body + "}\n }\n};\nvoid g() {}\n}\n"
    )
    asked = list(tidy.questions(tree(tmp_path, in_room("base", code))))
    assert [(q.path, q.line) for q in asked] == [("src/base/x.cpp", 5)]
    assert "a function of 84 lines" in asked[0].text


def test_main__exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree(tmp_path, in_room("base", "int x;\n"))
    assert tidy.main([str(tmp_path)]) == 0
    tree(tmp_path, in_room("base", "int x = rand();\n"))
    assert tidy.main([str(tmp_path)]) == 1
    assert "src/base/x.cpp:3: rand is banned" in capsys.readouterr().err


def test_map__lists_what_there_is_and_names_files_that_exist(tmp_path: Path) -> None:
    files = {
        "MAP.md": "| subject | file |\n|---|---|\n| a | `src/base/x.hpp`; `y.cpp` |\n\n"
        + tidy.MAP_LIST,
        "src/base/CMakeLists.txt": "tutti_room(base SOURCES y.cpp DEPENDS)\n",
        "src/base/x.hpp": "",
        "src/base/y.cpp": '// What y does, in so many words. More.\n#include "base/x.hpp"\n',
    }
    found = texts(tmp_path, files)
    assert [line.split(":")[0] for line in found] == ["MAP.md"]
    assert "--write-map" in found[0]
    whole = tidy.with_map(tidy.Tree(tmp_path))
    (tmp_path / "MAP.md").write_text(whole)
    assert "### `src/base`\n\n- `x`\n- `y.cpp`: What y does, in so many words\n" in whole
    assert not tidy.findings(tidy.Tree(tmp_path))
    (tmp_path / "MAP.md").write_text(whole.replace("`y.cpp` |", "`z.cpp` |"))
    assert [str(f) for f in tidy.findings(tidy.Tree(tmp_path))] == [
        "MAP.md:3: z.cpp is not there; name the file that is"
    ]
