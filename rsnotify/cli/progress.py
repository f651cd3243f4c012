"""What is under way, on a terminal, of whatever takes more than two seconds."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Protocol

from rich.console import Console
from rich.markup import escape

AFTER_SECONDS = 2.0


class Say(Protocol):
    """Replaces what is said to be under way."""

    def __call__(self, what: str, /) -> None: ...


@contextmanager
def progress(
    what: str, console: Console | None = None, *, after_seconds: float = AFTER_SECONDS
) -> Iterator[Say]:
    """Say what is under way; nothing where stderr is no terminal: nobody waits there."""
    console = Console(stderr=True) if console is None else console
    if not console.is_terminal:
        yield lambda _: None
        return
    status = console.status(escape(what))
    later = Timer(after_seconds, status.start)
    later.daemon = True
    later.start()
    try:
        yield lambda text: status.update(escape(text))
    finally:
        later.cancel()
        later.join()
        status.stop()


def size(number: int) -> str:
    """
    >>> size(999), size(12_345_678), size(5_000_000_000)
    ('0 MB', '12 MB', '5,000 MB')
    """
    return f"{number // 1_000_000:,} MB"
