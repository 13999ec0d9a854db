# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""`tutti topo` on the stand-in library, and on the built one where there is one."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tutti_hpc import api, cli, topo, topo_svg

from missing import unavailable

REPOSITORY = Path(__file__).resolve().parents[2]
TREES = REPOSITORY / "tests/unit/topology/trees"
LIBRARIES = Path(os.environ.get("TUTTI_LIBRARY_DIR", REPOSITORY / "build/dev/lib"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["topo", *arguments])


def lines_of(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands use the library of the build directory."""
    if not (LIBRARIES / "libtutti.so").is_file():
        unavailable("libtutti.so is not built")
    monkeypatch.setenv("TUTTI_LIBRARY_DIR", str(LIBRARIES))
    monkeypatch.delenv("TUTTI_TOPOLOGY_FILE", raising=False)
    api.library.cache_clear()


def test_text__matrix_and_legend(stand_in: Path) -> None:
    lines = lines_of(run())
    assert lines[0] == "a, <b>"
    assert "  GPU0  NVIDIA H200  0000:1b:00.0" in lines
    assert "  NIC0  mlx5_0 (ib0) 400 Gb/s RDMA a rail" in lines
    assert "  NIC1  eno1 1 Gb/s down" in lines
    assert "Rails  1" in lines
    assert "        GPU0  GPU1  NIC0  NIC1  CPUs  NUMA" in lines
    assert "  GPU0  X     NV18  PIX   SYS   0-3   0" in lines
    assert "  NIC1  SYS   SYS   SYS   X     -     -" in lines
    assert "  NV# =   a bonded set of # NVLinks" in lines
    assert "  GPU1  NIC0" in lines
    assert lines[-2:] == ["Unavailable", "  XGMI: no library"]


def test_json__is_the_document(stand_in: Path) -> None:
    document = json.loads(run("--json").stdout)
    assert document["schema"] == "tutti-topology/1"
    assert document["derived"][0]["matrix"][0][1] == "NV18"


def test_errors__one_line(stand_in: Path) -> None:
    result = run("--file", "bad.json")
    assert result.exit_code == 2
    assert result.stderr == "tutti: bad.json:3: nodes[0].railz: unknown key\n"
    assert "give one of them" in run("--file", "a", "--root", "b").stderr
    assert "there is no directory /no/such" in run("--svg", "/no/such/place.svg").stderr


def elements(path: Path, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}" + name))


def test_svg__nodes_devices_and_rings(stand_in: Path, tmp_path: Path) -> None:
    image = tmp_path / "a.svg"
    result = run("--svg", str(image), "--nodes", "3")
    assert (result.exit_code, result.stdout) == (0, "")
    words = [element.text for element in elements(image, "text")]
    assert words.count("GPU1") == 3
    assert words.count("NIC0") == 3
    assert words.count("socket 1") == 3
    assert "2 rings over 3 nodes; arcs: NVLink or XGMI" in words
    assert len(elements(image, "circle")) == 2 * 3, "one member of each ring on each node"


def test_svg__names_are_escaped_and_one_node_has_no_rings(stand_in: Path, tmp_path: Path) -> None:
    image = tmp_path / "a.svg"
    document = api.library().topology()
    document["nodes"][0]["hosts"] = ["<b> & c"]
    image.write_text(topo_svg.draw(document, 1))
    assert "<b> & c" in [element.text for element in elements(image, "text")]
    assert elements(image, "circle") == []


def test_svg__a_node_without_devices(tmp_path: Path) -> None:
    derived = {"devices": [], "matrix": [], "nics_of_gpus": [], "rail_nics": [], "rails": None}
    image = tmp_path / "a.svg"
    image.write_text(topo_svg.draw({"nodes": [{}], "derived": [derived]}, 2))
    assert len(elements(image, "circle")) == 2


@pytest.mark.parametrize(
    ("widths", "rails", "expected"),
    [
        ([2, 2], [None, None], [[0, 0], [1, 1]]),
        ([4, 4], [2, 2], [[0, 0], [1, 1], [2, 2], [3, 3]]),
        ([2, 3], [None, 4], [[0, 0], [1, 1], [0, 2], [1, 0]]),
        ([1], [3], [[0], [0], [0]]),
    ],
)
def test_columns__as_the_schedules_cut_them(
    widths: list[int], rails: list[int | None], expected: list[list[int]]
) -> None:
    assert topo_svg.columns(widths, rails) == expected


def test_rate() -> None:
    assert [topo.rate(value) for value in (0, 400_000, 2_500)] == ["", "400 Gb/s", "2.5 Gb/s"]


@pytest.mark.usefixtures("built")
class TestBuilt:
    """With the real library."""

    def test_recorded_machine(self) -> None:
        lines = lines_of(run("--root", str(TREES / "four_gpus.tree")))
        assert "  GPU2  SYS   SYS   X     PHB   SYS   PHB   PHB   8-15  1" in lines
        assert "Rails  2" in lines

    def test_recorded_directory(self, tmp_path: Path) -> None:
        for line in (TREES / "cloud_vm.tree").read_text().splitlines():
            if line.startswith("#"):
                continue
            is_link = " -> " in line
            name, _, content = line.partition(" -> " if is_link else " = ")
            path = tmp_path / name[1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            if is_link:
                path.symlink_to(content)
            else:
                path.write_text(content + "\n")
        as_directory = json.loads(run("--json", "--root", str(tmp_path)).stdout)
        as_listing = json.loads(run("--json", "--root", str(TREES / "cloud_vm.tree")).stdout)
        assert as_directory == as_listing
        assert as_listing["nodes"][0]["nics"][0]["name"] == "ens3"

    def test_json_is_a_topology_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = json.loads(run("--json", "--root", str(TREES / "eight_gpus.tree")).stdout)
        file = tmp_path / "topology.json"
        file.write_text(json.dumps(first))
        again = json.loads(run("--json", "--file", str(file)).stdout)
        assert again["nodes"] == first["nodes"]
        assert again["derived"] == first["derived"]
        monkeypatch.setenv("TUTTI_TOPOLOGY_FILE", str(file))
        assert json.loads(run("--json").stdout)["nodes"] == first["nodes"]

    def test_errors(self, tmp_path: Path) -> None:
        file = tmp_path / "t.json"
        file.write_text('{"schema": "tutti-topology/1",\n "nodes": [{"railz": 2}]}')
        result = run("--file", str(file))
        assert result.exit_code == 2
        assert (
            result.stderr
            == f"tutti: {file}:2: nodes[0]: unknown key 'railz'; did you mean 'rails'?\n"
        )
        assert "cannot be opened" in run("--root", str(tmp_path / "none")).stderr

    def test_this_machine(self) -> None:
        document = json.loads(run("--json").stdout)
        assert len(document["nodes"]) == len(document["derived"]) == 1
