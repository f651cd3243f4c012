"""The shortcut to `rsnotify mirror`: scripts start it often, and so it begins in half of the time.

Whatever is not plainly right, `--help` too, is left to the whole command line, which knows what to
say; nothing is decided here that is not decided there as well.
"""

import logging
import os
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rsnotify.errors import InvalidSettings, Rejected, TryAgain

JOBS = range(1, 257)


class NotPlain(Exception):
    """The whole command line has to look at it."""


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NotPlain(message)


def parser() -> ArgumentParser:
    """The options of `mirror`, as `rsnotify/cli/reading.py` has them."""
    found = _Parser(add_help=False, allow_abbrev=False, exit_on_error=False)
    found.add_argument("source")
    found.add_argument("directory", nargs="?", type=Path)
    for name in ("--once", "--stdout", "--lag", "--json"):
        found.add_argument(name, action="store_true")
    for name in ("--select", "--exclude", "--map"):
        found.add_argument(name, action="append", default=[])
    found.add_argument("--jobs", type=int, default=16, choices=JOBS)
    found.add_argument("--per-host", type=int, default=8, choices=JOBS)
    found.add_argument("--keep-deleted", type=Path)
    found.add_argument("--exec")
    return found


def plain(words: Sequence[str]) -> Namespace | None:
    """The options, if there is nothing to say about them."""
    try:
        given = parser().parse_args(words)
    except (NotPlain, ArgumentError):
        return None
    is_odd = given.stdout and (given.exec or given.keep_deleted or given.json)
    return None if is_odd or (given.directory is None and not given.stdout) else given


def run(given: Namespace) -> int:
    """The exit status; every error on purpose is one message."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        return _mirror(given)
    except (Rejected, TryAgain) as error:
        return _complain([error.detail], 1)
    except InvalidSettings as error:
        return _complain(error.problems, error.exit_status)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _mirror(given: Namespace) -> int:
    from rsnotify.commands.mirror import Shown, options_of, run_mirror  # noqa: PLC0415
    from rsnotify.commands.target import token_of_environment  # noqa: PLC0415

    numbers = (given.jobs, given.per_host, given.keep_deleted)
    options = options_of(
        given.select, given.exclude, given.map, *numbers, has_files=not given.stdout
    )
    return run_mirror(
        *(given.source, given.directory, options),
        token=token_of_environment(),
        once=given.once,
        command=given.exec,
        shown=Shown(json=given.json, once=given.once, lag=given.lag, quiet=given.stdout),
    )


def _complain(problems: Sequence[str], status: int) -> int:
    word = "\033[1;31merror:\033[0m" if sys.stderr.isatty() else "error:"
    for problem in problems:
        sys.stderr.write(f"{word} {problem}\n")
    return status
