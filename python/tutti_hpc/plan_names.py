# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""Whether plans that a command line names exist, asked of the library before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tutti_hpc import api, paths, terms
from tutti_hpc.errors import TuttiError

# Not plans, but understood where plans are measured.
NOT_PLANS = ("native", "hybrid", "nccl", "rccl", "all")


def check(collective: str, plans: str, option: str) -> None:
    """A TuttiError that names the plans there are, unless `plans` is a plan list."""
    if paths.find(paths.LIBRARY) is None:
        return  # Then only the ranks can say it.
    variable = _variable(collective)
    names = [_variable(name) for name in terms.COLLECTIVES]
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ[variable] = plans
    try:
        api.library().tuning_show()
    except TuttiError as error:
        text = error.format_message()
        if variable in text:
            raise TuttiError(f"{option}: {text.removeprefix(f'{variable}: ')}") from None
    finally:
        del os.environ[variable]
        os.environ.update(before)


def check_variables(env: Mapping[str, str]) -> None:
    """The same of every TUTTI_<COLLECTIVE> of an environment."""
    for collective in terms.COLLECTIVES:
        variable = _variable(collective)
        if env.get(variable):
            check(collective, env[variable], f"{variable}={env[variable]}")


def _variable(collective: str) -> str:
    return f"TUTTI_{collective.upper()}"


def check_net(collective: str, plan: str) -> None:
    """The same of a schedule over Tutti's own transport, `net:NAME` or `net:NAME(SEGMENTS)`."""
    from tutti_hpc import prediction  # It knows of measure, which knows of this.

    names = prediction.algorithm_names(collective, simulated=False)
    if plan.partition(":")[2].partition("(")[0] not in names:
        known = ", ".join(f"net:{name}" for name in names) or "none"
        raise TuttiError(f"--plans {plan}: no such schedule of {collective}; there are {known}")
