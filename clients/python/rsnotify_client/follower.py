"""Follow a Source: every change once and in order, across lost connections and lost history.

Rules that hold here: one loop for everything, a channel, an event stream, Change Lists that are
polled; where the channel does not reach back, Change Lists do. The place comes from what the Source
said, never from a clock. Nothing is handed on twice and nothing is passed over, as far as the
Source says: several changes may have one position, so those at the cursor are remembered.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Change, Position
from rsnotify_client.answer import delay_seconds, in_words
from rsnotify_client.changelists import POLL_SECONDS, ChangeLists
from rsnotify_client.channel import (
    PONG_SECONDS,
    QUIET_SECONDS,
    Channel,
    Lost,
    Standstill,
    TooOld,
    in_short,
)
from rsnotify_client.discovery import SOCKETS, Source, discover, socket_of_topic
from rsnotify_client.dumps import lists_of
from rsnotify_client.notification import (
    Received,
    channel_named,
    position_of,
    read_notification,
    standing,
)
from rsnotify_client.web import Refused, Web

Signs = tuple[str | None, Position | None, Position | None]
"""What tells changes of one resource apart: the digest, and both times that the Source may say."""


class NotJoined(Exception):
    """A notification was lost on the way: the next one does not begin at the cursor."""


class Timeline:
    """A cursor that moves over a channel and over Change Lists."""

    def __init__(self, cursor: Position | None = None) -> None:
        self.cursor = cursor
        self._at_cursor: dict[tuple[str, str], set[Signs]] = {}

    def begin(self, cursor: Position) -> None:
        """Where the peer said that it begins.

        If that is after our cursor, nothing lies between: else it would have refused the cursor.
        """
        if self.cursor is None or cursor > self.cursor:
            self.cursor = cursor
            self._at_cursor.clear()

    def begin_after(self, received: Received) -> None:
        """Nothing of this is handed on, only what comes after it."""
        self.new_in(received)

    def joined(self, received: Received) -> Received | None:
        """What is new in a notification; `NotJoined` if something lies between."""
        if self.cursor is not None and received.joins and received.from_ > self.cursor:
            raise NotJoined(f"nothing came between {self.cursor} and {received.from_}")
        return self.new_in(received)

    def new_in(self, received: Received) -> Received | None:
        """What was not handed on yet; the cursor moves to its end."""
        pairs = list(zip(received.positions, received.changes, strict=True))
        new = [pair for pair in pairs if self._is_new(*pair)]
        has_moved = self._move(received.until, new)
        if not new and not has_moved:
            return None
        if len(new) == len(pairs):
            return received
        return msgspec.structs.replace(
            received,
            payload=b"",
            changes=tuple(change for _, change in new),
            positions=tuple(position for position, _ in new),
        )

    def _is_new(self, position: Position, change: Change) -> bool:
        if self.cursor is None or position > self.cursor:
            return True
        return position == self.cursor and not self._is_known(change)

    def _is_known(self, change: Change) -> bool:
        """A channel may say less of a change than a list does: a sign counts if both have it."""
        known, signs = self._at_cursor.get((change.loc, change.change), set()), _signs(change)
        return signs in known or any(_agree(signs, each) for each in known)

    def _move(self, until: Position, new: list[tuple[Position, Change]]) -> bool:
        """Whether the cursor is further than it was."""
        is_further = self.cursor is None or until > self.cursor
        if is_further:
            self.cursor = until
            self._at_cursor.clear()
        for position, change in new:
            if position == self.cursor:
                known = self._at_cursor.setdefault((change.loc, change.change), set())
                known.add(_signs(change))
        return is_further


def _signs(change: Change) -> Signs:
    return change.hash, position_of(change.datetime), position_of(change.lastmod)


def _agree(signs: Signs, others: Signs) -> bool:
    return all(
        None in (one, other) or one == other for one, other in zip(signs, others, strict=True)
    )


log = logging.getLogger(__name__)


class Follower:
    """Iterate over it for what is received, piece by piece; keep `cursor` to go on another day.

    To stop before the end, close the iteration, `aclosing(aiter(follower))`, and with it the
    connection.
    """

    def __init__(
        self,
        url: str,
        *,
        cursor: Position | None = None,
        token: str | None = None,
        web: Web | None = None,
        source: Source | None = None,
        lists: ChangeLists | None = None,
        poll_seconds: float = POLL_SECONDS,
        quiet_seconds: float = QUIET_SECONDS,
        pong_seconds: float = PONG_SECONDS,
    ) -> None:
        self._url = url
        self._web = web or Web(token, url)
        self._owns_web = web is None
        self._source = source
        self._lists = lists
        self._timeline = Timeline(cursor)
        self._poll_seconds = poll_seconds
        self._silence = {"quiet_seconds": quiet_seconds, "pong_seconds": pong_seconds}
        self._attempt = 0
        self._has_been_connected = False
        self._lost = False
        self._gaps = Standstill()
        self._must_catch_up = False
        self._began_empty = False
        self.trouble: str | None = None  # why the Source is not known to be read up to now

    @property
    def cursor(self) -> Position | None:
        """Up to here everything was handed on."""
        return self._timeline.cursor

    async def __aiter__(self) -> AsyncGenerator[Received, None]:
        try:
            while True:
                try:
                    async with aclosing(self._one_round()) as pieces:
                        async for received in pieces:
                            self._attempt = 0
                            yield received
                except (NotJoined, TooOld) as error:
                    await self._note_gap(error)
                except (Lost, TryAgain) as error:
                    await self._pause(error)
        finally:
            if self._owns_web:
                await self._web.close()

    async def _one_round(self) -> AsyncGenerator[Received, None]:
        """Until something fails: catch up if need be, then live, or one poll and a pause."""
        address = await self._address()
        if self._must_catch_up or address is None:
            await self._prepare_lists()
            async for received in self._from_lists():
                yield received
            self._must_catch_up = False
        if address is None:
            self._attempt, self.trouble = 0, None
            await asyncio.sleep(self._poll_seconds * (0.9 + 0.2 * random.random()))  # noqa: S311
            return
        from rsnotify_client.live import open_channel  # noqa: PLC0415 - slow

        async with open_channel(self._web, address, self.cursor, **self._silence) as channel:
            self._say_connected(address)
            async for received in self._live(channel):
                yield received

    async def _live(self, channel: Channel) -> AsyncGenerator[Received, None]:
        if channel.begins is not None:
            self._timeline.begin(channel.begins)
            yield standing(self.cursor)
        elif self._reads_lists:
            async for received in self._bridge():
                yield received
        self.trouble = None
        async for payload in channel.payloads:
            if (new := self._timeline.joined(_read(payload, self.cursor))) is not None:
                yield new

    async def _bridge(self) -> AsyncGenerator[Received, None]:
        """The peer did not say where it begins: what came meanwhile stands in its Change Lists."""
        async for received in self._from_lists():
            yield received

    async def _from_lists(self) -> AsyncGenerator[Received, None]:
        if self.cursor is None and not self._began_empty:
            end = await self._the_lists.end()
            self._began_empty = end is None  # then all that will be listed comes after us
            if end is not None:
                self._timeline.begin_after(end)
                yield standing(self.cursor)
            return
        async with aclosing(self._the_lists.after(self.cursor)) as pieces:
            async for received in pieces:
                if (new := self._timeline.new_in(received)) is not None:
                    yield new

    # Where --------------------------------------------------------------------------------------

    async def _address(self) -> str | None:
        """The channel's address; None if there is none, then Change Lists are polled."""
        if self._is_framework:
            return self._url
        if self._source is None and self._url.startswith(SOCKETS):
            await self._discover_beside()
            return self._url
        if self._source is None:
            self._source = await discover(self._web, self._url)
        if self._source.socket is None and self._source.topic is not None:
            socket = await socket_of_topic(self._web, self._source.topic)
            self._source = msgspec.structs.replace(self._source, socket=socket)
        address = self._source.socket or self._source.topic
        await self._prepare_lists()
        if address is None and self._lists is None:
            raise Refused(f"{self._url} offers neither a channel nor a Change List to follow")
        return address

    async def _discover_beside(self) -> None:
        """A channel can be followed even where nothing more is found of its Source."""
        try:
            self._source = await discover(self._web, self._url)
            await self._prepare_lists()
        except (Rejected, TryAgain):
            self._source = None

    async def _prepare_lists(self) -> None:
        if self._lists is None and not self._is_framework:
            if self._source is None:
                self._source = await discover(self._web, self._url)
            self._lists = lists_of(self._web, self._source)

    @property
    def _is_framework(self) -> bool:
        return "/framework_notification_channel" in self._url

    @property
    def _reads_lists(self) -> bool:
        return self._lists is not None

    @property
    def _the_lists(self) -> ChangeLists:
        if self._lists is None:
            raise Rejected(
                "the channel no longer tells what followed the cursor, "
                "and there is no Change List to catch up from",
                close_code=4410,
            )
        return self._lists

    # What is said and how long is waited --------------------------------------------------------

    async def _note_gap(self, error: NotJoined | TooOld) -> None:
        """Lists are read: at once where the cursor is too old, else if asking again did not help.

        If the lists did not help either, all is tried again after a pause, longer each time.
        """
        is_again = (times := self._gaps.count(self.cursor)) > 1
        is_too_old = isinstance(error, TooOld)
        self.trouble = in_short(error)
        self._must_catch_up |= is_too_old or (is_again and self._reads_lists)
        if is_again or not is_too_old:
            self._attempt = max(self._attempt, times - 1)
            await self._pause(error)

    def _say_connected(self, address: str) -> None:
        if not self._lost:
            log.info("following %s", channel_named(address.partition("?")[0]))
        else:
            log.info("connected again, resuming after %s", self.cursor)
        self._lost, self._has_been_connected, self._attempt = False, True, 0

    async def _pause(self, error: Exception) -> None:
        wait = delay_seconds(self._attempt, random.random())  # noqa: S311
        if isinstance(error, TryAgain):
            wait = max(wait, error.retry_after_seconds)
        self._attempt += 1
        self.trouble = in_short(error)
        self._lost = self._has_been_connected
        log.warning("%s; trying again in %s", in_short(error), in_words(wait))
        await asyncio.sleep(wait)


def _read(payload: bytes | str, cursor: Position | None) -> Received:
    """A notification that cannot be read is lost; its changes are asked for again."""
    try:
        return read_notification(payload)
    except Rejected as error:
        raise NotJoined(f"a notification after {cursor} cannot be read: {error.detail}") from None
