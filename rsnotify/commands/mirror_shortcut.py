"""The shortcut to `rsnotify mirror`: scripts start it often, and so it begins in half of the time.

Whatever is not plainly right, `--help` too, is left to the whole command line, which knows what to
say; nothing is decided here that is not decided there as well.
"""

import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rsnotify.errors import InvalidSettings, Rejected, TryAgain

if TYPE_CHECKING:
    from rsnotify_mirror.options import Options

PATHS = ("keep_deleted", "metrics")
JOBS = range(1, 257)


class Given:
    """The options of `mirror`, as `rsnotify/cli/reading.py` has them, with their defaults."""

    def __init__(self) -> None:
        self.source: str = ""
        self.directory: Path | None = None
        self.once = self.stdout = self.lag = self.json = False
        self.select: list[str] = []
        self.exclude: list[str] = []
        self.max_delete = 10.0
        self.map: list[str] = []
        self.jobs = 16
        self.per_host = 8
        self.keep_deleted: Path | None = None
        self.exec: str | None = None
        self.status = False
        self.max_behind = 7200.0
        self.metrics: Path | None = None
        self.same_site = False
        self.header: list[str] = []
        self.cookies: Path | None = None
        self.rate: float | None = None
        self.timeout: float | None = None
        self.dry_run = self.verbose = False
        self.log_file: Path | None = None
        self.all_sets = False


OPTIONS = frozenset(f"--{name.replace('_', '-')}" for name in vars(Given())) - {
    "--source",
    "--directory",
    *("--max-delete", "--status", "--all-sets", "--max-behind"),  # seldom given
    *("--header", "--cookies", "--rate", "--timeout", "--dry-run", "--verbose", "--log-file"),
}


def plain(words: Sequence[str]) -> Given | None:
    """The options, if none of them needs the full command line."""
    given, left, named = Given(), iter(words), []
    for word in left:
        if not word.startswith("-"):
            named.append(word)
        elif not _takes(given, *word.partition("=")[::2], left):
            return None
    if not 1 <= len(named) <= 2 or not all(named):
        return None
    given.source, given.directory = named[0], Path(named[1]) if named[1:] else None
    is_odd = given.stdout and (given.exec or given.keep_deleted or given.json)
    return None if is_odd or (given.directory is None and not given.stdout) else given


def _takes(given: Given, option: str, value: str, left: Iterator[str]) -> bool:
    """Whether this option was understood, and with it its value."""
    name = option[2:].replace("-", "_")
    if option not in OPTIONS:
        return False
    if isinstance(getattr(given, name), bool):
        setattr(given, name, True)
        return not value
    value = value or next(left, "")
    if not value or value.startswith("-"):
        return False
    if isinstance(known := getattr(given, name), list):
        known.append(value)
    elif not isinstance(known, int):
        setattr(given, name, Path(value) if name in PATHS else value)
    elif value.isascii() and value.isdecimal() and len(value) < 4 and int(value) in JOBS:
        setattr(given, name, int(value))
    else:
        return False
    return True


def run(given: Given) -> int:
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


def end(status: int) -> NoReturn:
    """Without taking down what the system takes down faster; all that is to be kept is closed."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _mirror(given: Given) -> int:
    gc.disable()  # what is imported now stays: there is nothing to collect
    _load("msgspec", without="typing_extensions")
    if given.once:  # then only connections of our own are used: they load TLS for https
        _load("asyncio", without="ssl")
    from rsnotify.commands.mirror import run_mirror  # noqa: PLC0415
    from rsnotify.commands.mirror_shown import Shown  # noqa: PLC0415
    from rsnotify.commands.target import token_of_environment  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    return run_mirror(
        given.source,
        given.directory,
        _options_of(given),
        token=token_of_environment(),
        once=given.once,
        command=given.exec,
        metrics=given.metrics,
        shown=Shown(json=given.json, once=given.once, lag=given.lag, quiet=given.stdout),
    )


def _options_of(given: Given) -> "Options":
    from rsnotify.commands.mirror import options_of  # noqa: PLC0415

    return options_of(
        given.select,
        given.exclude,
        given.map,
        given.jobs,
        given.per_host,
        given.keep_deleted,
        max_delete=given.max_delete,
        has_files=not given.stdout,
        same_site=given.same_site,
    )


def _load(module: str, *, without: str) -> None:
    """It can do without, as where that is not installed; TLS alone is 2 MB and 10 ms."""
    if without in sys.modules:
        return
    sys.modules[without] = None  # type: ignore[assignment]
    try:
        import_module(module)
    finally:
        del sys.modules[without]


def _complain(problems: Sequence[str], status: int) -> int:
    word = "\033[1;31merror:\033[0m" if sys.stderr.isatty() else "error:"
    for problem in problems:
        sys.stderr.write(f"{word} {problem}\n")
    return status
