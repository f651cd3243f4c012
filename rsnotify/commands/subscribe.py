"""`rsnotify subscribe`: a channel's changes on stdout, and the cursor in a file."""

from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import msgspec
import typer

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Position
from rsnotify_client.subscriber import Follower, Received, channel_url

Show = Callable[[Received], Iterator[str]]


async def subscribe(
    url: str,
    token: str | None,
    set_name: str,
    kind: Literal["change", "framework"],
    *,
    after: str | None,
    cursor_file: Path | None,
    show: Show,
    count: int,
) -> None:
    """Follow the channel; the cursor is kept after a notification was printed, never before."""
    cursor = _parsed(after) or (cursor_file and _kept(cursor_file)) or None
    follower = Follower(channel_url(url, set_name, kind), cursor=cursor, token=token)
    seen = 0
    async with aclosing(aiter(follower)) as notifications:
        async for received in notifications:
            for line in show(received):
                typer.echo(line)
            if cursor_file is not None:
                _keep(cursor_file, received.until)
            seen += len(received.changes)
            if count and seen >= count:
                return


def as_lines(received: Received) -> Iterator[str]:
    for change in received.changes:
        what = f"{change.change} {change.capability}" if change.capability else change.change
        yield f"{change.datetime}  {what}  {change.loc}"


def as_json(received: Received) -> Iterator[str]:
    for change in received.changes:
        yield msgspec.json.encode(change).decode()


def as_xml(received: Received) -> Iterator[str]:
    yield received.payload.decode()


def _parsed(text: str | None) -> Position | None:
    try:
        return None if text is None else Position.parse(text)
    except (ValueError, OverflowError) as error:
        raise InvalidSettings([f"--from: {error}"]) from None


def _kept(path: Path) -> Position | None:
    try:
        return Position.parse(path.read_text().strip())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidSettings([f"--cursor {path}: {error}"]) from None


def _keep(path: Path, cursor: Position) -> None:
    """Replace the file as a whole: killed at any moment, it holds one cursor or the other."""
    part = path.with_name(path.name + ".part")
    part.write_text(f"{cursor}\n")
    part.replace(path)
