"""`rsnotify subscribe`: a channel's changes on stdout, and the cursor in a file."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace
from typer import Option

from rsnotify.cli.options import (
    Commands,
    Framework,
    InCollection,
    Json,
    MediaType,
    Prefix,
    Transport,
)
from rsnotify.cli.output import json_line
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import HERE, Hub, SetName, checked_address
from rsnotify.cli.terminal import for_terminal
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import CHANGE_TYPES, Position
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.answer import NotAHub
from rsnotify_client.changelists import HistoryGone
from rsnotify_client.cursor import FileCursor
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.follower import Follower
from rsnotify_client.following import first_position
from rsnotify_client.notification import (
    NoChannel,
    Received,
    channel_url,
    rendered,
)
from rsnotify_client.wanted import wanted_of

commands = Commands()


@commands.command()
def subscribe(
    set_name: SetName,
    position: Annotated[
        str | None, Option(metavar="TIME", help="First all that came after this time.")
    ] = None,
    cursor: Annotated[
        Path | None,
        Option(help="File that keeps the cursor: begin there, and keep it up to date."),
    ] = None,
    state: Annotated[
        bool,
        Option("--state", help="First all resources as they are, unless the cursor says where."),
    ] = False,
    moved: Annotated[
        str | None, Option(metavar="OLD", help="The hub of the cursor was at OLD until now.")
    ] = None,
    framework: Framework = False,
    xml: Annotated[bool, Option("--xml", help="Print the payloads.")] = False,
    json: Json = False,
    count: Annotated[int, Option(min=0, help="End after so many changes; 0 never ends.")] = 0,
    transport: Transport = None,
    prefix: Prefix = None,
    type_: MediaType = None,
    change: Annotated[
        list[str] | None,
        Option(metavar="|".join(CHANGE_TYPES), help="Only so changed, or deleted. Repeatable."),
    ] = None,
    collection: InCollection = None,
    hub: Hub = HERE,
) -> None:
    """Follow a set's channel and print each change as a line.

    A lost connection is resumed from the last notification, so no change is missed or printed
    twice. Each line has the change's datetime, what happened, and the resource.
    """
    show = as_xml if xml else as_json if json else as_lines
    if state and (framework or position is not None):
        raise typer.BadParameter("--state goes with neither --framework nor --position")
    if moved is not None and cursor is None:
        raise typer.BadParameter("--moved goes with --cursor")
    kind: Kind = "framework" if framework else "change"
    with wrong_use(InvalidArgument):
        wanted = wanted_of(prefix, type_, change, collection)
    channel = channel_url(hub.url, set_name, kind)
    moved_from = moved and channel_url(checked_address(moved), set_name, kind)
    with hub.token() as token:
        store = None if cursor is None else FileCursor(cursor, moved_from=moved_from)
        begin = first_position(store, None, channel)
        if position is not None:
            with wrong_use(ValueError, OverflowError, at="malformed `--position`"):
                begin = Position.parse_moment(position)
        try:
            follower = Follower(
                channel,
                cursor=begin,
                token=token,
                transport=transport,
                wanted=wanted,
                state=state,
            )
            asyncio.run(_print(follower, store, show, count))
        except NoChannel as error:
            what = f"has no channel of {set_name!r}: the answer was {error.status}"
            raise NotAHub(hub.url, what, error.status) from None
        except HistoryGone as error:
            raise Rejected(str(error)) from None


Show = Callable[[Received], Iterator[str]]


async def _print(follower: Follower, store: FileCursor | None, show: Show, count: int) -> None:
    """The cursor is kept after a notification was printed, never before."""
    seen = 0
    async with aclosing(aiter(follower)) as notifications:
        async for whole in notifications:
            received = _first(whole, count - seen) if count else whole
            for line in show(received):
                typer.echo(line)
            if store is not None and not received.is_state:
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
        when = change.datetime or (change.lastmod if received.is_state else None)
        yield for_terminal(f"{when}  {'state' if received.is_state else what}  {change.loc}")


def as_json(received: Received) -> Iterator[str]:
    for change in received.changes:
        yield json_line(change).decode()


def as_xml(received: Received) -> Iterator[str]:
    if received.changes:
        yield rendered(received).decode()
