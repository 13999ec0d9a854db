# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Whether plans that a command line names exist, asked of the library before anything starts."""

from __future__ import annotations

import os

from tutti import api, paths
from tutti.errors import TuttiError

# Not plans, but understood where plans are measured.
NOT_PLANS = ("native", "hybrid", "nccl", "rccl", "all")


def check(collective: str, plans: str, option: str) -> None:
    """A TuttiError that names the plans there are, unless `plans` is a plan list."""
    if paths.find(paths.LIBRARY) is None:
        return  # Then only the ranks can say it.
    variable = f"TUTTI_{collective.upper()}"
    before = os.environ.get(variable)
    os.environ[variable] = plans
    try:
        api.library().tuning_show()
    except TuttiError as error:
        text = error.format_message()
        if variable in text:
            raise TuttiError(f"{option}: {text.removeprefix(f'{variable}: ')}") from None
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def check_net(collective: str, plan: str) -> None:
    """The same of a schedule over Tutti's own transport, `net:NAME` or `net:NAME(SEGMENTS)`."""
    from tutti import prediction  # It knows of measure, which knows of this.

    names = prediction.algorithm_names(collective, simulated=False)
    if plan.partition(":")[2].partition("(")[0] not in names:
        known = ", ".join(f"net:{name}" for name in names) or "none"
        raise TuttiError(f"--plans {plan}: no such schedule of {collective}; there are {known}")
