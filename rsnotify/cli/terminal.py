"""Lines for people: what a stranger has written in them steers no terminal.

Rules that hold here: each command has this from its start on, so nothing slow is imported.
"""

import logging
import re

import typer

STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that end a line, or a cell of it, or steer a terminal: a hub may not be ours."""


def echo(lines: str, *, err: bool = False) -> None:
    """For people: what is a stranger's in it steers no terminal."""
    typer.echo(for_terminal(lines), err=err)


def for_terminal(lines: str) -> str:
    """What steers a terminal becomes a `?`; lines and tabs stay.

    >>> for_terminal("a\x9b31m\u202eb")
    'a?31m?b'
    """
    return STEERING.sub(lambda found: found[0] if found[0] in "\n\t" else "?", lines)


class LogLines(logging.Formatter):
    """What a command logs, which may name what is a stranger's."""

    def format(self, record: logging.LogRecord) -> str:
        return for_terminal(super().format(record))
