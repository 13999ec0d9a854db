# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The one exception for expected failures: one clear line, no traceback."""

from __future__ import annotations

from typing import IO, Any

import click


class TuttiError(click.ClickException):
    """Something is missing or wrong outside this program; the text names the remedy."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints the line on standard error."""
        click.echo(f"tutti: {self.format_message()}", file=file, err=file is None)
