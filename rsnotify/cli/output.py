"""What commands print: tables, fields, lines, and the progress of what takes long."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rsnotify.cli.terminal import STEERING, echo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def json_line(value: object) -> bytes:
    """A value in JSON, with what steers a terminal escaped, which says the same.

    >>> json_line("a\x9b31m\u202eé")
    b'"a\\\\u009b31m\\\\u202e\\xc3\\xa9"'
    """
    encoded = msgspec.json.encode(value)
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode()).encode()


def print_json(value: object, *, err: bool = False) -> None:
    typer.echo(json_line(value), err=err)


def print_table(rows: Sequence[dict[str, Any]], columns: Sequence[str], *, json: bool) -> None:
    if json:
        print_json(rows)
        return
    if not sys.stdout.isatty():  # for `cut` and `awk`
        for cells in (columns, *([_shown(row.get(name, "")) for name in columns] for row in rows)):
            typer.echo("\t".join(cells))
        return
    from rich.console import Console

    console = Console(markup=False)
    table = table_of(rows, columns)
    least = 2 + sum((each.min_width or 0) + 3 for each in table.columns)
    console.width = max(console.width, least)
    console.print(table)


def table_of(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], *, is_cut: bool = False
) -> "Table":
    """As a terminal has it; what does not fit is folded, or cut where each row has one line."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        first = column == columns[0]  # what a next command is given: never cut
        words = column.split("_")
        width = max(map(len, words + [_shown(row[column]) for row in rows if first]))
        table.add_column(
            " ".join(words),
            no_wrap=first or is_cut,
            overflow="ellipsis" if is_cut else "fold",
            min_width=width,
        )
    for row in rows:
        table.add_row(*(_shown(row.get(column, "")) for column in columns))
    return table


def print_fields(fields: dict[str, Any], *, json: bool) -> None:
    """One thing, a line for each of its fields."""
    if json:
        print_json(fields)
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        echo(f"{name.replace('_', ' '):{width}}  {_shown(value)}")


def print_found(found: object, lines: Iterable[str], *, json: bool, err: bool = False) -> None:
    """What was found, for programs or for people.

    The exit status says it, too: whoever reads the first line only does not change it.
    """
    try:
        if json:
            print_json(found, err=err)
            return
        for line in lines:
            echo(line, err=err)
    except BrokenPipeError:
        put_aside(2 if err else 1)


def put_aside(stream: int) -> None:
    """Let nothing more be written where nobody reads, not even at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def print_done(done: dict[str, Any], words: str, *, json: bool) -> None:
    """What was done: a line for people, on stderr; an object for programs."""
    if json:
        print_json(done)
    else:
        echo(words, err=True)


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "change"), counted(2, "change")
    ('1 change', '2 changes')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = STEERING.sub("?", text)
    return to_the_minute(text) if sys.stdout.isatty() else text


def to_the_minute(text: str) -> str:
    """A moment as a person reads it; any other text as it is.

    >>> to_the_minute("2026-11-20T21:34:00.123456Z"), to_the_minute("dataset1")
    ('2026-11-20 21:34 UTC', 'dataset1')
    """
    found = _MOMENT.fullmatch(text)
    return f"{found[1]} {found[2]} UTC" if found else text


_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(?:\.\d+)?Z")


AFTER_SECONDS = 2.0


Say = Callable[[str], None]
"""Replaces what is said to be under way."""


class SaidSince:
    """What is under way; if it has stood there for a while, with how long: nothing else moves."""

    def __init__(self, text: str, clock: Callable[[], float] = monotonic) -> None:
        self._text, self._clock, self._begun = text, clock, clock()

    def say(self, text: str) -> None:
        """Something else is under way; the same again goes on."""
        if text != self._text:
            self._text, self._begun = text, self._clock()

    def __rich__(self) -> "Text":
        from rich.text import Text

        seconds = self._clock() - self._begun
        return Text(self._text + (f" ({in_time(seconds)})" if seconds >= AFTER_SECONDS else ""))


@contextmanager
def progress(
    what: str, console: "Console | None" = None, *, after_seconds: float = AFTER_SECONDS
) -> Iterator[Say]:
    """Say what is under way; nothing where stderr is no terminal: nobody waits there."""
    if console is None and not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    console = console or Console(stderr=True)
    said = SaidSince(what)
    status = console.status(said)
    later = Timer(after_seconds, status.start)
    later.daemon = True
    later.start()
    try:
        yield said.say
    finally:
        later.cancel()
        later.join()
        status.stop()


class WorkPace:
    """Says how far something is, how fast it goes, and how long it will take."""

    def __init__(
        self,
        say: Say,
        what: str,
        shown: "Callable[[float], str] | None" = None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._say, self._what, self._clock = say, what, clock
        self._shown = shown or _number
        self._begun = clock()

    def __call__(self, done: float, total: float | None = None) -> None:
        seconds = self._clock() - self._begun
        self._say(f"{self._what} {how_far(done, total, seconds, self._shown)}")


def how_far(
    done: float, total: float | None, seconds: float, shown: "Callable[[float], str] | None" = None
) -> str:
    """
    >>> how_far(1_200, 5_000, 4.0), how_far(2_000_000, None, 4.0, size)
    ('1,200 of 5,000 at 300/s, 13 s left', '2.0 MB at 500.0 kB/s')
    """
    shown = shown or _number
    far = shown(done) if total is None else f"{shown(done)} of {shown(total)}"
    if done <= 0 or seconds <= 0:
        return far
    rate = done / seconds
    left = 0.0 if total is None else (total - done) / rate
    return f"{far} at {shown(rate)}/s" + (f", {in_time(left)} left" if left > 0 else "")


def _number(count: float) -> str:
    return f"{count:.1f}" if 0 < count < 10 and count % 1 else f"{count:,.0f}"


_UNITS = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def in_time(seconds: float) -> str:
    """A time in its two largest units.

    >>> in_time(0.3), in_time(125), in_time(90_000)
    ('1 s', '2 min 5 s', '1 day 1 h')
    """
    whole = max(1, round(seconds))
    first = next(place for place, (_, each) in enumerate(_UNITS) if whole >= each)
    parts = []
    for name, each in _UNITS[first : first + 2]:
        count, whole = divmod(whole, each)
        if count:
            parts.append(f"{count} {name}{'s' if name == 'day' and count > 1 else ''}")
    return " ".join(parts)


def size(count: float) -> str:
    """
    >>> size(999), size(12_345_678), size(5_000_000_000)
    ('999 B', '12.3 MB', '5.0 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
