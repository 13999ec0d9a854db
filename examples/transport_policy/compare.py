# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""One plot of several runs of `tutti sim network`: a policy beside the default, or beside others.

    python3 compare.py default.json gentle_start.json -o compare.png

Each file is what `tutti sim network -o FILE` wrote; its name is the name of the run. Left: share of
flows that completed within a time, all seeds. Right: completion of the last flow, each seed. Also
prints the median of the last completion of each run and its ratio to the first run.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from tutti_hpc import packet_network, prediction_figure
from tutti_hpc.figure import PALETTE


def main() -> None:
    """Draws and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    figure, (shares, lasts) = prediction_figure.panels([6.0, 4.5])
    first_us = None
    for number, path in enumerate(options.files):
        document = packet_network.load(path)
        colour = PALETTE[number % len(PALETTE)]
        flows = [row.completions[0] for row in document.rows]
        last_us = statistics.median(one.max_us for one in flows)
        first_us = first_us or last_us
        drops = statistics.median(row.dropped for row in document.rows)
        print(
            f"{path.stem}: last flow after {last_us:.0f} us, {first_us / last_us:.2f} times as "
            f"fast as {options.files[0].stem}; {drops:.0f} packets dropped"
        )
        for index, one in enumerate(flows):
            label = path.stem if index == 0 else None
            shares.step(one.percentiles_us, range(101), color=colour, label=label)
        lasts.bar(number, last_us, color=colour, width=0.6)
        lasts.plot([number] * len(flows), [one.max_us for one in flows], "k_", markersize=14)
        if document.floor_us and number == 0:
            shares.axvline(document.floor_us, color="#666666", linestyle=":", label="link bound")
            lasts.axhline(document.floor_us, color="#666666", linestyle=":")
    shares.set_xlabel("completion time of a flow (us)")
    shares.set_ylabel("% of flows")
    shares.set_ylim(0, 100)
    shares.legend(frameon=False)
    lasts.set_xticks(range(len(options.files)), [path.stem for path in options.files])
    lasts.set_ylabel("completion of the last flow (us): median, each seed")
    lasts.set_ylim(bottom=0)
    figure.tight_layout()
    prediction_figure.save(figure, options.output)


if __name__ == "__main__":
    main()
