"""`rsnotify top`: the hub at a glance, again and again: what changed last stands first.

It ends by q or Ctrl-C. A hub that is away is said to be, with what was seen last, and asked again.
"""

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self
from urllib.parse import urlencode

import typer
from typer import Option

from rsnotify.cli.administer import STATUS, row_of_set, said_above, said_below
from rsnotify.cli.options import Commands
from rsnotify.cli.output import in_time, print_table, table_of
from rsnotify.cli.target import HERE, Hub, Search
from rsnotify.cli.terminal import echo
from rsnotify.errors import TryAgain
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify_client.answer import NotAHub
from rsnotify_client.hub import HubClient

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LOOK_SECONDS = 2.0
LEAST_SECONDS = 0.5
MINUTE = 60.0
COLUMNS = ("set", "changed", "a_minute", "today", "readers", "behind", "memory")
AROUND_THE_TABLE = 7  # lines: its head of two, the rules, how it ends, and how many do not fit

commands = Commands()


@commands.command()
def top(
    search: Search = "",
    interval: Annotated[
        float,
        Option(
            "--interval", min=LEAST_SECONDS, metavar="SECONDS", help="Between two looks, at least."
        ),
    ] = LOOK_SECONDS,
    once: Annotated[bool, Option("--once", help="Print it once and end.")] = False,
    hub: Hub = HERE,
) -> None:
    """Watch the hub at a glance: the sets that changed last, how fast, and who is behind.

    It ends by q or Ctrl-C. Where stdout is no terminal, each look is printed below the last.
    """
    path = f"/api/status?{urlencode({'search': search})}"
    if once:
        status = hub.ask("GET", path).object(*STATUS)
        Printed().show(Picture.of(status, {}))
        raise typer.Exit(int(not status["ready"]))
    with hub.connected() as client, screen() as shown:
        watch(lambda: look(client, path), shown, interval)


def look(client: HubClient, path: str) -> dict[str, Any] | str:
    """The status of the hub, or why there is none now."""
    try:
        return client.ask("GET", path, seconds=5).object(*STATUS)
    except (TryAgain, NotAHub) as away:  # a proxy answers for a hub that is away
        return away.detail


class Picture(NamedTuple):
    """What is shown of a look: the sets, and what is said above and below them."""

    above: list[str]
    rows: list[dict[str, Any]]
    below: list[str]

    @classmethod
    def of(cls, status: Mapping[str, Any], a_minute: Mapping[str, float]) -> Self:
        return cls([*said_above(status)], rows_of(status, a_minute), [*said_below(status)])

    def without_answer(self, why: str) -> "Picture":
        """The sets as they were seen last; how the hub is, is not known."""
        above = [f"no answer: {why}; trying again"]
        return Picture([*above, "seen last:"] if self.rows else above, self.rows, [])


def watch(looked: Callable[[], dict[str, Any] | str], shown: "Printed", interval: float) -> None:
    """Look and show, until somebody has enough."""
    rates, seen = ChangeRates(), Picture([], [], [])
    while True:
        found = looked()
        if isinstance(found, str):
            shown.show(seen.without_answer(found))
        else:
            rates.note(found["sets"])
            seen = Picture.of(found, rates.a_minute())
            shown.show(seen)
        if shown.has_enough(interval):
            return


class ChangeRates:
    """How many changes a minute each set gets, by what was counted in the last minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._counted: deque[tuple[float, dict[str, int]]] = deque()

    def note(self, sets: Sequence[Mapping[str, Any]]) -> None:
        now = self._clock()
        counts = {each["name"]: each["changes"] for each in sets if each["changes"] is not None}
        self._counted.append((now, counts))
        while now - self._counted[0][0] > MINUTE:
            self._counted.popleft()

    def a_minute(self) -> dict[str, float]:
        """Of the sets that were seen twice; old changes may have left in between, and a set of
        which fewer are there than before has none to show."""
        (began, before), (ended, now) = self._counted[0], self._counted[-1]
        if ended == began:
            return {}
        grown = {name: now[name] - before[name] for name in now.keys() & before.keys()}
        return {name: new * MINUTE / (ended - began) for name, new in grown.items() if new >= 0}


def rows_of(status: Mapping[str, Any], a_minute: Mapping[str, float]) -> list[dict[str, Any]]:
    """Of the sets, the one that changed last first."""
    now = Position.parse(status["now"])
    sets = sorted(status["sets"], key=lambda each: each["name"])
    sets.sort(key=lambda each: each["newest"] or "", reverse=True)
    return [
        row_of_set(each)
        | {
            "changed": _ago(now, each["newest"]),
            "a_minute": a_minute.get(each["name"]),
            "today": each["changes_today"],
        }
        for each in sets
    ]


def _ago(now: Position, newest: str | None) -> str | None:
    """
    >>> now = Position.parse("2026-11-20T21:34:00.000000Z")
    >>> _ago(now, "2026-11-20T21:31:55.000000Z"), _ago(now, None)
    ('2 min 5 s ago', None)
    """
    if newest is None:
        return None
    return f"{in_time((now - Position.parse(newest)) / MICROSECONDS)} ago"


# --- where it is shown ---------------------------------------------------------------------------


class Printed:
    """On stdout, each look below the last."""

    def show(self, picture: Picture) -> None:
        for line in picture.above:
            echo(line)
        print_table(picture.rows, COLUMNS, json=False)
        for line in picture.below:
            echo(line)
        sys.stdout.flush()

    def has_enough(self, seconds: float) -> bool:
        """Whoever watches, after so many seconds."""
        return pressed_q(seconds)


class Screen(Printed):
    """A terminal of its own, as long as it lasts."""

    def __init__(self, console: "Console", draw: "Callable[[RenderableType], None]") -> None:
        self._console, self._draw = console, draw

    def show(self, picture: Picture) -> None:
        from rich.console import Group
        from rich.text import Text

        above, rows, below = picture
        room = max(1, self._console.height - len(above) - len(below) - AROUND_THE_TABLE)
        if (more := len(rows) - room) > 0:
            below = [f"{more} more sets do not fit: choose some with --search TEXT", *below]
        table = table_of(rows[:room], COLUMNS, is_cut=True)
        lines = [Text(each, no_wrap=True, overflow="ellipsis") for each in (*above, *below)]
        lines.append(Text("q ends"))
        self._draw(Group(*lines[: len(above)], table, *lines[len(above) :]))


@contextmanager
def screen() -> Iterator[Printed]:
    """Where it is shown: all of a terminal, or stdout."""
    with ExitStack() as ends:
        if sys.stdin.isatty():
            ends.enter_context(keys_at_once())
        if not sys.stdout.isatty():
            yield Printed()
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(markup=False)
        live = ends.enter_context(Live(console=console, screen=True, auto_refresh=False))
        yield Screen(console, lambda drawn: live.update(drawn, refresh=True))


@contextmanager
def keys_at_once() -> Iterator[None]:
    """A key is read when it is pressed, and not shown."""
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def pressed_q(seconds: float) -> bool:
    """Whether q is pressed within these seconds; other keys are nothing."""
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        asked = [sys.stdin] if sys.stdin.isatty() else []
        if select.select(asked, [], [], left)[0] and os.read(sys.stdin.fileno(), 1) in b"qQ":
            return True
    return False
