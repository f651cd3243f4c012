"""Follow several sets of one hub over one connection, each from a cursor of its own.

>>> async for change in follow_sets("http://127.0.0.1:8080", ["a", "b"], cursor="cursors.db"):
...     async with change:
...         print(change.set_name, change.change, change.loc)

Rules that hold here: the notifications of each set join one another; a set in which something is
missing catches up from its Change Lists; a set that is no more, or may not be read, ends it all.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from rsnotify.errors import TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify_client.answer import delay_seconds, in_words
from rsnotify_client.changelists import ChangeLists
from rsnotify_client.channel import Channel, Lost, Standstill, TooOld, channels_address, in_short
from rsnotify_client.cursor import Cursor, CursorStore, SqliteCursor, store_of
from rsnotify_client.discovery import discover
from rsnotify_client.follower import NotJoined, Timeline
from rsnotify_client.following import (
    FollowedChange,
    Keeper,
    ReadingTask,
    ReadingThread,
    first_cursor,
)
from rsnotify_client.notification import (
    Received,
    channel_url,
    read_notification,
    set_named,
    standing,
)
from rsnotify_client.web import Refused, Web

log = logging.getLogger(__name__)

Cursors = str | Path | Mapping[str, Cursor]
"""The path of one SQLite file for all sets, or a cursor for each set."""


class FollowedSet:
    """One of the sets: its place, and its Change Lists where they are needed."""

    def __init__(self, web: Web, url: str, cursor: Position | None) -> None:
        self.timeline = Timeline(cursor)
        self.must_catch_up = False
        self._web = web
        self._url = url
        self._lists: ChangeLists | None = None
        self._gaps = Standstill()

    def joined(self, received: Received) -> Received | None:
        """What is new of it; the first time that it does not join, the channel is asked again."""
        try:
            return self.timeline.joined(received)
        except NotJoined:
            self.must_catch_up = self._gaps.count(self.timeline.cursor) > 1
            raise

    async def catch_up(self) -> AsyncGenerator[Received, None]:
        cursor = self.timeline.cursor
        if cursor is not None:
            async with aclosing((await self._change_lists()).after(cursor)) as pieces:
                async for received in pieces:
                    if (new := self.timeline.new_in(received)) is not None:
                        yield new
        self.must_catch_up = False

    async def _change_lists(self) -> ChangeLists:
        if self._lists is None:
            source = await discover(self._web, self._url)
            if source.changelist is None:
                raise Refused(f"{self._url} offers no Change List to catch up from")
            self._lists = ChangeLists(self._web, source.changelist, source.archive)
        return self._lists


class SetsFollower:
    """Iterate over it for what is received, with the name of its set; then close the iteration."""

    def __init__(
        self, url: str, cursors: Mapping[str, Position | None], *, token: str | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._web = Web(token, url)
        self._sets = {
            name: FollowedSet(self._web, f"{self._url}/{name}/capabilitylist.xml", cursor)
            for name, cursor in cursors.items()
        }
        self._attempt = 0
        self._gaps = Standstill()

    @property
    def _cursors(self) -> dict[str, Position | None]:
        return {name: each.timeline.cursor for name, each in self._sets.items()}

    async def __aiter__(self) -> AsyncGenerator[tuple[str, Received], None]:
        async with self._web:
            while True:
                try:
                    async with aclosing(self._one_round()) as pieces:
                        async for piece in pieces:
                            self._attempt = 0
                            yield piece
                except (NotJoined, TooOld) as error:
                    await self._note_gap(error)
                except (Lost, TryAgain) as error:
                    await self._pause(error)

    async def _note_gap(self, error: NotJoined | TooOld) -> None:
        """As long as the cursors stay where they are, each pause is longer than the one before."""
        times = self._gaps.count(self._cursors)
        if isinstance(error, TooOld):
            for each in self._sets.values():
                each.must_catch_up = True
            if times == 1:
                return
        self._attempt = max(self._attempt, times - 1)
        await self._pause(error)

    async def _pause(self, error: Exception) -> None:
        wait = delay_seconds(self._attempt, random.random())  # noqa: S311
        self._attempt += 1
        if isinstance(error, TryAgain):
            wait = max(wait, error.retry_after_seconds)
        log.warning("%s; trying again in %s", in_short(error), in_words(wait))
        await asyncio.sleep(wait)

    async def _one_round(self) -> AsyncGenerator[tuple[str, Received], None]:
        """Those catch up that have to, then live, until something fails."""
        for name, each in self._sets.items():
            if each.must_catch_up:
                async with aclosing(each.catch_up()) as pieces:
                    async for received in pieces:
                        yield name, received
        from rsnotify_client.live import open_channel  # noqa: PLC0415 - slow

        address = channels_address(self._url, self._cursors)
        async with open_channel(self._web, address, None) as channel:
            for begun in self._begin(channel):
                yield begun
            async for payload in channel.payloads:
                name, received = self._read(payload)
                if (new := self._sets[name].joined(received)) is not None:
                    yield name, new

    def _begin(self, channel: Channel) -> Iterator[tuple[str, Received]]:
        begins = channel.begins_in_each
        if begins.keys() != self._sets.keys():
            raise Refused(f"{self._url} does not say where it begins in each set: is it a hub?")
        log.info("following %s at %s", ", ".join(self._sets), self._url)
        for name, position in begins.items():
            self._sets[name].timeline.begin(position)
            yield name, standing(self._sets[name].timeline.cursor)

    def _read(self, payload: bytes | str) -> tuple[str, Received]:
        received = read_notification(payload)
        name = set_named(received.up or "")
        if name not in self._sets:
            raise Lost("a notification came of a set that was not asked for")
        return name, received


async def follow_sets(
    url: str,
    sets: Sequence[str],
    *,
    cursor: Cursors | None = None,
    after: Position | str | None = None,
    token: str | None = None,
) -> AsyncGenerator[FollowedChange, None]:
    """The changes of these sets of the hub at `url`; `change.set_name` tells whose each is.

    `cursor` keeps a place in each set: the path of a SQLite file for all, or a cursor for each.
    Where there is none, and no `after`, it begins now.
    """
    keepers, follower = _begun(url, sets, cursor, after, token)
    async with ReadingTask(follower) as pieces:
        async for name, received in pieces:
            for change in keepers[name].changes(received):
                yield change


def follow_sets_sync(
    url: str,
    sets: Sequence[str],
    *,
    cursor: Cursors | None = None,
    after: Position | str | None = None,
    token: str | None = None,
) -> Iterator[FollowedChange]:
    """As `follow_sets`, for programs without an event loop."""
    keepers, follower = _begun(url, sets, cursor, after, token)
    reading = ReadingThread(follower)
    try:
        for name, received in reading.read():
            yield from keepers[name].changes(received)
    finally:
        reading.end()


def _begun(
    url: str,
    sets: Sequence[str],
    cursor: Cursors | None,
    after: Position | str | None,
    token: str | None,
) -> tuple[dict[str, Keeper], SetsFollower]:
    stores = {name: _store(cursor, name) for name in sets}
    cursors = {
        name: first_cursor(store, after, channel_url(url, name)) for name, store in stores.items()
    }
    keepers = {name: Keeper(store, name) for name, store in stores.items()}
    return keepers, SetsFollower(url, cursors, token=token)


def _store(cursor: Cursors | None, name: str) -> CursorStore | None:
    if isinstance(cursor, str | Path):
        return SqliteCursor(cursor, name)
    return None if cursor is None else store_of(cursor[name])
