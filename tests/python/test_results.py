# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Results documents: read, checked, refused with place and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tutti_hpc import files, results
from tutti_hpc.errors import TuttiError
from tutti_hpc.results import Latency, Machine, Results, Versions


def test_document__round_trip(document: Results, tmp_path: Path) -> None:
    results.save(document, tmp_path / "r.json")
    assert results.load(tmp_path / "r.json") == [document]


def test_document__array_round_trip(document: Results, tmp_path: Path) -> None:
    results.save([document, document], tmp_path / "r.json")
    assert results.load(tmp_path / "r.json") == [document, document]


def test_document__fields_are_those_of_the_schema(document: Results) -> None:
    raw = json.loads(results.encode(document))
    assert raw["schema"] == "tutti-results/1"
    assert list(raw) == [
        *("schema", "command", "date", "machine", "versions", "collective", "ranks", "nodes"),
        *("memory", "type", "op", "floor_us", "rows"),
    ]
    assert list(raw["rows"][0]) == [
        *("bytes", "plan", "hybrid", "latency_us", "algbw_gbps", "busbw_gbps", "wrong")
    ]
    assert list(raw["rows"][0]["latency_us"]) == ["min", "p50", "p99", "max"]
    assert set(results.json_schema()["$defs"]["Results"]["required"]) >= {"collective", "ranks"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": "other/2"}, "schema: 'other/2' is not tutti-results/1"),
        ({"collective": "allredu"}, "collective: 'allredu'"),
        ({"ranks": "four"}, r"\$.ranks"),
        ({"rows": [{"bytes": 1}]}, r"\$.rows\[0\]"),
    ],
)
def test_load__names_what_is_wrong(
    document: Results, tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    raw = json.loads(results.encode(document)) | change
    path = tmp_path / "r.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(TuttiError, match=complaint):
        results.load(path)


def test_load__latency_out_of_order(document: Results, tmp_path: Path) -> None:
    document.rows[1].latency_us.p50 = 1e9
    results.save(document, tmp_path / "r.json")
    with pytest.raises(TuttiError, match=r"rows\[1\].latency_us"):
        results.load(tmp_path / "r.json")


def test_load__missing_file(tmp_path: Path) -> None:
    with pytest.raises(TuttiError, match="No such file"):
        results.load(tmp_path / "none.json")


def test_speedup__against_native_of_the_same_size(document: Results) -> None:
    assert [document.speedup(row) for row in document.rows] == [1.0, 1.0, 1.0, 40.0]


def test_speedup__a_hybrid_that_went_native_is_not_its_own_yardstick(document: Results) -> None:
    hybrid = document.rows[1]
    hybrid.plan = "native"
    document.rows = [hybrid]
    assert document.speedup(hybrid) is None


def test_merge__repeats_become_medians_and_plans_stand_side_by_side(document: Results) -> None:
    row = document.rows[0]

    def once(p50: float, plan: str, wrong: int | None) -> Results:
        latency = Latency(min=p50 / 2, p50=p50, p99=p50, max=p50)
        other = msgspec.structs.replace(row, plan=plan, hybrid=False, latency_us=latency)
        return msgspec.structs.replace(document, rows=[msgspec.structs.replace(other, wrong=wrong)])

    repeats = [once(p50, "mpi", wrong) for p50, wrong in ((1, 0), (9, 2), (3, None))]
    (merged,) = results.merge([*repeats, once(7, "ccl", None)])
    floors = [msgspec.structs.replace(document, floor_us=us) for us in (None, 7.0, 9.0, 8.0)]
    assert results.merge(floors)[0].floor_us == 8.0
    assert merged.floor_us is None
    found = {r.plan: (r.latency_us.p50, r.latency_us.min, r.wrong) for r in merged.rows}
    assert found == {"mpi": (3, 1.5, 2), "ccl": (7, 3.5, None)}


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 5},
        {"versions": Versions("0.1.0", "MPICH Version: 4.3.0", "NCCL 2.30.7")},
        {"versions": Versions("0.1.0", "MPICH Version: 5.0.2", "NCCL 2.28.9")},
        {"machine": Machine(gpus=["NVIDIA H100"] * 2)},
        {"machine": Machine(gpus=["NVIDIA H200"] * 2, cpus="another")},
    ],
)
def test_merge__other_layouts_machines_and_libraries_stay_apart(
    document: Results, change: dict[str, Any]
) -> None:
    other = msgspec.structs.replace(document, **change)
    assert results.merge([document, other]) == [document, other]


def test_merge__plans_without_a_library_stand_beside_those_with_one(document: Results) -> None:
    plain = msgspec.structs.replace(document, versions=Versions("0.1.0"))
    other = msgspec.structs.replace(document, versions=Versions("0.1.0", "Open MPI 5.0.8"))
    merged = results.merge([plain, document, other])
    versions = [one.versions for one in merged]
    assert [one.mpi for one in versions] == ["MPICH Version: 5.0.2", "Open MPI 5.0.8"]
    assert plain.versions.mpi == ""


def test_write__whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    files.write(path, "old")
    path.chmod(0o640)
    (tmp_path / "link.json").symlink_to(path)
    files.write(tmp_path / "link.json", b"new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert (tmp_path / "link.json").is_symlink()

    def half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:3])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(KeyboardInterrupt):
        files.write(path, "newest")
    monkeypatch.undo()
    assert path.read_text() == "new"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.json", "r.json"]


def test_write__what_is_no_file_and_what_cannot_be(tmp_path: Path) -> None:
    files.write(Path("/dev/null"), "text")
    assert not Path("/dev/null").is_file()
    with pytest.raises(TuttiError, match=f"{tmp_path}/none/r.json: No such file or directory"):
        files.write(tmp_path / "none" / "r.json", "text")


def test_save__a_kill_leaves_the_old_document(
    document: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    results.save(document, path)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    document.rows = []
    with pytest.raises(KeyboardInterrupt):
        results.save(document, path)
    assert len(results.load(path)[0].rows) == 4
