"""Lines for people: what a stranger has written ends no line and steers no terminal.

Rules that hold here: each command has this from its start on, so nothing slow is imported.
"""

import logging
import re
from typing import Any

import typer

STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that end a line, or a cell of it, or steer a terminal: a hub may not be ours."""


def echo(line: str, *, err: bool = False) -> None:
    """One line, for people."""
    typer.echo(for_terminal(line), err=err)


def for_terminal(line: str) -> str:
    """What would end the line, or steers a terminal, becomes a `?`.

    >>> for_terminal("a\x9b31m\u202eb")
    'a?31m?b'
    """
    return STEERING.sub("?", line)


class LogLines(logging.Formatter):
    """What a command logs, which may name what is a stranger's."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return for_terminal(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        return "\n".join(map(for_terminal, super().formatException(ei).split("\n")))
