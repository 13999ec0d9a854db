# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The picture of `tutti topo --svg`: nodes side by side, and the rings of Parallel Rings over them.

A ring (column) has one member on each node; the picture puts one rank on each GPU, as jobs do. The
count and the members are those of src/schedule/columns.hpp. Lengths are pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

# Okabe and Ito's palette and two of Tol's, which colour-blind readers can tell apart.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933")
LINK_COLOURS = {"NV": "#76b900", "XGMI": "#c8102e"}

BOX_WIDTH, BOX_HEIGHT = 62, 40
GAP = 14
MARGIN = 24
NODE_GAP = 44
LINK_ROOM = 54  # Above the GPUs, for the arcs of links between them.
NIC_ROOM = 46  # Between GPUs and NICs.
RING_ROOM = 11  # For each ring below the NICs.


@dataclass(frozen=True)
class Box:
    """A device in the picture."""

    x: float
    y: float

    @property
    def middle(self) -> float:
        """Its middle from the left."""
        return self.x + BOX_WIDTH / 2


@dataclass
class Picture:
    """Elements in the order in which they are painted."""

    elements: list[str] = field(default_factory=list)

    def rect(self, x: float, y: float, width: float, height: float, **style: str) -> None:
        """A box with round corners."""
        self.add(f'rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"', style)

    def line(self, path: str, **style: str) -> None:
        """An open path."""
        self.add(f'path d="{path}" fill="none"', style)

    def text(self, x: float, y: float, words: str, **style: str) -> None:
        """Words, in the middle unless `text_anchor` says otherwise."""
        style.setdefault("text_anchor", "middle")
        self.elements.append(
            f'<text x="{x:g}" y="{y:g}"{_attributes(style)}>{escape(words)}</text>'
        )

    def add(self, element: str, style: dict[str, str]) -> None:
        """An element without content."""
        self.elements.append(f"<{element}{_attributes(style)}/>")


def _attributes(style: dict[str, str]) -> str:
    """`stroke_width="2"` as an attribute of SVG."""
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())


def columns(widths: list[int], rails: list[int | None]) -> list[list[int]]:
    """The member of each ring on each node, by local rank: [column][node].

    `widths` are ranks and `rails` NICs by node; None is as many as ranks
    (src/schedule/columns.hpp).
    """
    known = [rail or width for width, rail in zip(widths, rails)]
    return [[column % width for width in widths] for column in range(max([*widths, *known]))]


def _by_socket(devices: list[dict[str, Any]], sockets: int) -> list[int]:
    """Indices of devices, socket by socket; those without one come last."""
    return sorted(
        range(len(devices)), key=lambda index: (devices[index].get("socket", sockets), index)
    )


class _Node:
    """One node: where its devices stand, and how wide it is."""

    def __init__(self, node: dict[str, Any], derived: dict[str, Any], x: float) -> None:
        self.node, self.derived, self.x = node, derived, x
        self.gpus = node.get("gpus", [])
        self.nics = node.get("nics", [])
        self.rail_nics: list[int] = derived["rail_nics"]
        self.ranks = max(1, len(self.gpus))
        columns = max(1, len(self.gpus), len(self.nics), len(node.get("sockets", [])))
        self.width = columns * (BOX_WIDTH + GAP) + GAP
        self.gpu_y = MARGIN + 40 + LINK_ROOM
        self.nic_y = self.gpu_y + BOX_HEIGHT + NIC_ROOM
        self.gpu_boxes = self._boxes(self.gpus, self.gpu_y)
        self.nic_boxes = self._boxes(self.nics, self.nic_y)

    def _boxes(self, devices: list[dict[str, Any]], y: float) -> dict[int, Box]:
        """Boxes from the left, those of one socket side by side."""
        step = self.width / max(1, len(devices))
        order = _by_socket(devices, len(self.node.get("sockets", [])))
        return {
            device: Box(self.x + place * step + (step - BOX_WIDTH) / 2, y)
            for place, device in enumerate(order)
        }

    def exit(self, rank: int, column: int) -> float:
        """Where a ring leaves and enters the node, from the left: its rank's NIC."""
        served = self.derived["nics_of_gpus"][rank] if self.gpus else self.rail_nics
        if served:
            return self.nic_boxes[served[column // self.ranks % len(served)]].middle
        return self.gpu_boxes[rank].middle if self.gpus else self.x + self.width / 2

    def draw(self, picture: Picture, title: str) -> None:
        """Frame, sockets, links, devices."""
        bottom = self.nic_y + BOX_HEIGHT + 16
        frame = {"fill": "#ffffff", "stroke": "#444444"}
        picture.rect(self.x, MARGIN, self.width, bottom - MARGIN, **frame)
        words = {"font_weight": "bold", "font_size": "13"}
        picture.text(self.x + self.width / 2, MARGIN + 17, title, **words)
        self._draw_sockets(picture, bottom)
        self._draw_links(picture)
        for index, box in self.gpu_boxes.items():
            self._draw_box(picture, box, f"GPU{index}", self.gpus[index].get("name", ""), "#e8f3d6")
        for index, box in self.nic_boxes.items():
            fill = "#dcebf7" if index in self.rail_nics else "#eeeeee"
            self._draw_box(picture, box, f"NIC{index}", self.nics[index].get("name", ""), fill)

    def _draw_sockets(self, picture: Picture, bottom: float) -> None:
        """A band behind the devices of each socket."""
        for socket in range(len(self.node.get("sockets", []))):
            boxes = [
                box
                for devices, placed in ((self.gpus, self.gpu_boxes), (self.nics, self.nic_boxes))
                for index, box in placed.items()
                if devices[index].get("socket") == socket
            ]
            if boxes:
                left = min(box.x for box in boxes) - GAP / 2 + 2
                right = max(box.x for box in boxes) + BOX_WIDTH + GAP / 2 - 2
                band = {"fill": "#f6f3ea", "stroke": "#c9bf9f"}
                picture.rect(left, MARGIN + 26, right - left, bottom - MARGIN - 32, **band)
                grey = {"font_size": "10", "fill": "#7a6f4a"}
                picture.text((left + right) / 2, MARGIN + 40, f"socket {socket}", **grey)

    def _draw_links(self, picture: Picture) -> None:
        """Arcs between GPUs for a vendor's links, lines from GPUs to the NICs that serve them."""
        words = self.derived["matrix"]
        for a in range(len(self.gpus)):
            for b in range(a + 1, len(self.gpus)):
                colour = LINK_COLOURS.get(words[a][b].rstrip("0123456789"))
                if colour:
                    left, right = self.gpu_boxes[a].middle, self.gpu_boxes[b].middle
                    lift = min(LINK_ROOM - 6, 12 + abs(right - left) / 9)
                    path = f"M{left:g} {self.gpu_y:g} Q{(left + right) / 2:g} {self.gpu_y - 2 * lift:g} {right:g} {self.gpu_y:g}"  # noqa: E501
                    picture.line(path, stroke=colour, stroke_width="1.4")
        for gpu, served in enumerate(self.derived["nics_of_gpus"]):
            for nic in served:
                top, below = self.gpu_boxes[gpu], self.nic_boxes[nic]
                word = words[gpu][len(self.gpus) + nic]
                path = f"M{top.middle:g} {top.y + BOX_HEIGHT:g} L{below.middle:g} {below.y:g}"
                picture.line(path, stroke="#555555")
                x, y = (top.middle + below.middle) / 2, top.y + BOX_HEIGHT + NIC_ROOM / 2
                picture.text(x + 3, y + 3, word, text_anchor="start", font_size="9", fill="#555555")

    @staticmethod
    def _draw_box(picture: Picture, box: Box, label: str, name: str, fill: str) -> None:
        """A device with its label and, small, its name."""
        picture.rect(box.x, box.y, BOX_WIDTH, BOX_HEIGHT, fill=fill, stroke="#444444")
        picture.text(box.middle, box.y + 17, label, font_size="12")
        short = name if len(name) <= 12 else name[:11] + "…"
        picture.text(box.middle, box.y + 32, short, font_size="9", fill="#444444")


def _draw_rings(picture: Picture, placed: list[_Node], rings: list[list[int]], top: float) -> None:
    """Each ring as a line below the NICs that turns up to its member's NIC on every node."""
    for column, members in enumerate(rings):
        colour = PALETTE[column % len(PALETTE)]
        y = top + (column + 1) * RING_ROOM
        # Rings of one NIC stand beside each other.
        shift = (column % 5 - 2) * 4
        exits = [node.exit(member, column) + shift for node, member in zip(placed, members)]
        style = {"stroke": colour, "stroke_width": "2"}
        for node, x in zip(placed, exits):
            start = node.nic_y + BOX_HEIGHT if node.nics else node.gpu_y + BOX_HEIGHT
            picture.line(f"M{x:g} {start:g} V{y:g}", **style)
            picture.add(f'circle cx="{x:g}" cy="{y:g}" r="3"', {"fill": colour})
        if len(exits) > 1:
            picture.line(f"M{exits[0]:g} {y:g} H{exits[-1]:g}", **style)
        picture.text(MARGIN - 4, y + 3, str(column), text_anchor="end", font_size="9", fill=colour)


def draw(document: dict[str, Any], nodes: int) -> str:
    """An SVG image of `nodes` nodes; the document's entries are taken in turn."""
    placed: list[_Node] = []
    x = float(MARGIN)
    for index in range(nodes):
        entry = index % len(document["nodes"])
        placed.append(_Node(document["nodes"][entry], document["derived"][entry], x))
        x += placed[-1].width + NODE_GAP
    rings = columns([node.ranks for node in placed], [node.derived["rails"] for node in placed])
    if nodes < 2:
        rings = []
    top = placed[0].nic_y + BOX_HEIGHT + 22
    height = top + (len(rings) + 1) * RING_ROOM + 30
    picture = Picture()
    for index, node in enumerate(placed):
        hosts = node.node.get("hosts", [])
        title = hosts[0] if nodes == 1 and hosts else f"node {index}"
        node.draw(picture, title)
    _draw_rings(picture, placed, rings, top)
    caption = f"{len(rings)} rings over {nodes} nodes; arcs: NVLink or XGMI" if rings else ""
    picture.text(MARGIN, height - 10, caption, text_anchor="start", font_size="11")
    width = x - NODE_GAP + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="sans-serif">'
    )
    background = f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>'
    return "\n".join([head, background, *picture.elements, "</svg>"]) + "\n"
