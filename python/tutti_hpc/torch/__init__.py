# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The backend "tutti" of torch.distributed (docs/guide-torch.md).

An installed package needs no import: torch finds it by the entry points of pyproject.toml. From a
source tree `import tutti_hpc.torch` registers it.
"""

from __future__ import annotations


def autoload() -> None:
    """Entry point `torch.backends`, called at the end of `import torch`: must not raise."""
    try:
        register()
    except Exception as error:  # It would break `import torch` for everybody.
        import logging

        logging.getLogger("tutti_hpc.torch").warning("backend tutti is not available: %s", error)


def register() -> None:
    """Entry point `torch.distributed.backends`, called when a script first says "tutti"."""
    from tutti_hpc.torch import registration

    registration.register()


# Here and not above: this may call autoload() while this module is being imported.
import torch as _torch  # noqa: E402, F401

autoload()
