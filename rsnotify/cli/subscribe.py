"""`rsnotify subscribe`: a channel's changes on stdout, and the cursor in a file."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace

from rsnotify.cli.target import DATA, HERE, Data, Json, SetName, Url, token_for
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.registry.requests import parse_moment
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.answer import NotAHub
from rsnotify_client.changelists import HistoryGone
from rsnotify_client.cursor import FileCursor
from rsnotify_client.follower import Follower
from rsnotify_client.following import first_cursor
from rsnotify_client.notification import NoChannel, Received, channel_url, rendered

commands = typer.Typer()


From = Annotated[
    str | None, typer.Option("--from", metavar="T", help="First all that came after T.")
]
Cursor = Annotated[
    Path | None,
    typer.Option(help="File that keeps the cursor: begin there, and keep it up to date."),
]
Framework = Annotated[bool, typer.Option("--framework", help="Follow the framework channel.")]
Xml = Annotated[bool, typer.Option("--xml", help="Print the payloads.")]
Count = Annotated[int, typer.Option(min=0, help="End after so many changes; 0 never ends.")]


@commands.command()
def subscribe(
    set_name: SetName,
    from_: From = None,
    cursor: Cursor = None,
    framework: Framework = False,
    xml: Xml = False,
    json: Json = False,
    count: Count = 0,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Follow a set's channel and print each change as a line.

    A lost connection is resumed from the last notification, so no change is missed or printed
    twice. Each line has the change's datetime, what happened, and the resource.
    """
    show = as_xml if xml else as_json if json else as_lines
    kind: Kind = "framework" if framework else "change"
    with token_for(url, data) as token:
        following = follow(
            url, token, set_name, kind, after=from_, cursor_file=cursor, show=show, count=count
        )
        asyncio.run(following)


Show = Callable[[Received], Iterator[str]]


async def follow(
    url: str,
    token: str | None,
    set_name: str,
    kind: Kind,
    *,
    after: str | None,
    cursor_file: Path | None,
    show: Show,
    count: int,
) -> None:
    """Follow the channel; the cursor is kept after a notification was printed, never before."""
    channel = channel_url(url, set_name, kind)
    store = None if cursor_file is None else FileCursor(cursor_file)
    kept = first_cursor(store, None, channel)
    cursor = kept if after is None else _parsed(after)
    follower = Follower(channel, cursor=cursor, token=token)
    try:
        await _print(follower, store, show, count)
    except NoChannel as error:
        what = f"has no channel of {set_name!r}: the answer was {error.status}"
        raise NotAHub(url, what, error.status) from None
    except HistoryGone as error:
        raise Rejected(str(error)) from None


async def _print(follower: Follower, store: FileCursor | None, show: Show, count: int) -> None:
    seen = 0
    async with aclosing(aiter(follower)) as notifications:
        async for whole in notifications:
            received = _first(whole, count - seen) if count else whole
            for line in show(received):
                typer.echo(line)
            if store is not None:
                store.save(received.until)
            seen += len(received.changes)
            if count and seen >= count:
                return


def _first(received: Received, number: int) -> Received:
    """So many of its changes, and its interval up to the last of them."""
    if len(received.changes) <= number:
        return received
    positions = received.positions[:number]
    changes = received.changes[:number]
    return replace(received, payload=b"", until=positions[-1], changes=changes, positions=positions)


def as_lines(received: Received) -> Iterator[str]:
    for change in received.changes:
        what = f"{change.change} {change.capability}" if change.capability else change.change
        yield f"{change.datetime}  {what}  {change.loc}"


def as_json(received: Received) -> Iterator[str]:
    for change in received.changes:
        yield msgspec.json.encode(change).decode()


def as_xml(received: Received) -> Iterator[str]:
    if received.changes:
        yield rendered(received).decode()


def _parsed(text: str) -> Position:
    try:
        return parse_moment(text, "--from")
    except Rejected as error:
        raise InvalidSettings(error.detail) from None
