"""Follow a Source, or several sets of a hub: every change once and in order, whatever is lost.

Rules that hold here: one loop for everything, a channel by any transport, Change Lists that are
polled; where the channel does not reach back, Change Lists do. The place comes from what the Source
states, never from a clock. Nothing is handed on twice and nothing is left out, as far as the Source
states it: several changes may have one position, so those at the cursor are remembered. Nothing
here knows how payloads travel, so no WebSocket library is imported before it is needed.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from time import time
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from rsnotify.errors import CloseCode, Rejected, TryAgain
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify_client.answer import HUB_BACKOFF, in_words
from rsnotify_client.changelists import NOWHERE, POLL_SECONDS, ChangeLists, SetBack
from rsnotify_client.discovery import SOCKETS, Capabilities, discover, socket_of_topic
from rsnotify_client.dumps import lists_of
from rsnotify_client.errors import TokenUnavailable
from rsnotify_client.moments import is_ahead
from rsnotify_client.network import Network
from rsnotify_client.notification import (
    TRANSPORTS,
    Channel,
    ChannelTransport,
    Cut,
    Lost,
    NoChannel,
    Payload,
    Received,
    Renewed,
    TooOld,
    channel_named,
    channels_address,
    is_hub_channel,
    log_skipped,
    position_of,
    read_notification,
    set_named,
    standing,
)
from rsnotify_client.token import HeldToken, Token
from rsnotify_client.wanted import Wanted, asked_for
from rsnotify_client.web import Refused, Unreachable, Web

log = logging.getLogger(__name__)

Piece = TypeVar("Piece")

FRAMEWORK = "/framework_notification_channel"
KNOWN_AGAIN = 100  # notifications of a channel, if it repeats itself
CUTS = 2  # channels in a row that bring nothing, then long polls are tried first
THREADS = 32  # for requests, besides those that wait for changes
READ_BEFORE = "{}, but the Source was read before"
SET_BACK = "%s; what was received since then may be no more: compare it with the Resource List"


def channel_trouble(error: Exception) -> str:
    """What went wrong, for a line of the log; it will be tried again."""
    if isinstance(error, Unreachable):
        server = urlsplit(error.url).netloc.rpartition("@")[2]
        return f"the server at {server} cannot be reached ({error.cause})"
    if isinstance(error, TokenUnavailable):
        return error.detail
    if isinstance(error, NoChannel):
        return READ_BEFORE.format(error.detail)
    if isinstance(error, TryAgain):
        return f"the hub cannot serve the channel now ({error.detail})"
    if isinstance(error, Lost):
        return f"the connection was lost ({error})"
    return str(error)


Signs = tuple[str | None, Position | None, Position | None]
"""What distinguishes changes of one resource: the digest, and both times that a Source may say."""


class NotJoined(Exception):
    """A notification was lost on the way: the next one does not begin at the cursor."""


class Timeline:
    """A cursor that moves over a channel and over Change Lists."""

    def __init__(self, cursor: Position | None = None, heard: Position | None = None) -> None:
        self.cursor = cursor
        self.heard = heard  # up to where the channel itself has sent notifications
        self.when_set_back: Callable[[str], object] = partial(log.warning, SET_BACK)
        self.gaps = 0  # how often changes were missing at this cursor
        self._latest: deque[int] = deque(maxlen=KNOWN_AGAIN)
        self._at_cursor: dict[tuple[str, str], set[Signs]] = {}

    def begin(self, cursor: Position) -> None:
        """Begin at the position that the peer has announced.

        If that is after our cursor, nothing lies between: else it would have refused the cursor. If
        it is before what it has sent itself, it was set back.
        """
        if self.heard is not None and cursor < self.heard:
            problem = f"the channel ends at {cursor} now, and at {self.heard} before"
            self.go_back(cursor, f"{problem}: the Source was set back")
        self._advance(cursor)

    def joined(self, received: Received) -> Received | None:
        """The part of a notification that is new; `NotJoined` if something was lost before it.

        One that ends before another that came before it, and is none of those, is of a Source that
        was set back: all of it is new.
        """
        mark = hash(received.payload)
        if self._is_older(received) and mark not in self._latest:
            problem = f"a notification up to {received.until} came after one up to {self.heard}"
            self.go_back(received.from_, f"{problem}: the Source was set back")
        if self.cursor is not None and received.joins and received.from_ > self.cursor:
            self.gaps += 1
            raise NotJoined(f"nothing came between {self.cursor} and {received.from_}")
        if received.joins:
            self.heard = max(received.until, self.heard or received.until)
            self._latest.append(mark)
        return self.new_in(received)

    def _is_older(self, received: Received) -> bool:
        return received.joins and self.heard is not None and received.until < self.heard

    def go_back(self, to: Position | None, problem: str) -> None:
        """What comes now is handed on, though more had come before; None is before all."""
        self.when_set_back(problem)
        self.cursor, self.heard = to, None
        self._at_cursor.clear()
        self._latest.clear()

    def new_in(self, received: Received) -> Received | None:
        """The part that was not handed on yet; moves the cursor to its end."""
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
        """A channel may say less of a change than a list does: a sign counts if both have it."""
        if self.cursor is None or position > self.cursor:
            return True
        if position < self.cursor:
            return False
        known, signs = self._at_cursor.get((change.loc, change.change), set()), _signs(change)
        return not any(_agree(signs, each) for each in known)

    def _move(self, until: Position, new: list[tuple[Position, Change]]) -> bool:
        """Whether the cursor is further than it was."""
        is_further = self._advance(until)
        for position, change in new:
            if position == self.cursor:
                known = self._at_cursor.setdefault((change.loc, change.change), set())
                known.add(_signs(change))
        return is_further

    def _advance(self, to: Position) -> bool:
        is_further = self.cursor is None or to > self.cursor
        if is_further:
            self.cursor, self.gaps = to, 0
            self._at_cursor.clear()
        return is_further


def _signs(change: Change) -> Signs:
    return change.hash, position_of(change.datetime), position_of(change.lastmod)


def _agree(signs: Signs, others: Signs) -> bool:
    return all(
        None in (one, other) or one == other for one, other in zip(signs, others, strict=True)
    )


def _is_ahead_in(channel: Channel) -> Callable[[str], bool]:
    """Whether a time is yet to come by the clock of the channel's peer."""
    return partial(is_ahead, now=time() + channel.ahead_seconds)


def _is_to_come(begins: Position, channel: Channel) -> bool:
    """Whether a channel says that it begins where nobody can stand yet: it is not believed."""
    if not _is_ahead_in(channel)(str(begins)):
        return False
    log_skipped(f"where a channel begins: {begins} has not come yet: correct the clock of its hub")
    return True


class Followed:
    """A Source, or a set of a hub: how far it was read, and its lists where they are needed."""

    def __init__(
        self,
        web: Web,
        url: str,
        cursor: Position | None,
        offered: Capabilities | None = None,
        lists: ChangeLists | None = None,
        heard: Position | None = None,
        wanted: Filter | None = None,
    ) -> None:
        self.url = url
        self.wanted = Wanted(wanted)
        self.timeline = Timeline(cursor, heard)
        self.offered = offered
        self.lists = lists
        self.behind: Exception | None = None  # why the lists are to be read
        self._web = web
        self._began_empty = False

    async def prepare(self) -> Capabilities:
        """Find what the Source offers, unless it is known."""
        if self.offered is None:
            self.offered = await discover(self._web, self.url)
        if self.lists is None:
            self.lists = lists_of(self._web, self.offered)
            if self.lists is not None:
                self.lists.gone_to = NOWHERE
            if self.lists is not None and self.offered.socket is not None:
                self.lists.asked = partial(self.wanted.asked_of_hub, self.offered.socket)
        return self.offered

    async def catch_up(self) -> AsyncGenerator[Received, None]:
        """Read the lists; where there are none, a lost notification can only be asked for again."""
        is_too_old = isinstance(self.behind, TooOld)
        try:
            await self.prepare()
        except (Rejected, TryAgain):
            if is_too_old:
                raise
        if is_too_old and self.lists is None:
            raise Rejected(
                "the channel no longer has what followed the cursor, "
                "and there is no Change List to catch up from",
                close_code=CloseCode.HISTORY_GONE,
            )
        async with aclosing(self.from_lists()) as pieces:
            async for received in pieces:
                yield received
        self.behind = None

    async def from_lists(self) -> AsyncGenerator[Received, None]:
        """What the lists have after the cursor; without one, only where they end."""
        timeline, lists = self.timeline, self.lists
        if lists is None:
            return
        if timeline.cursor is None and not self._began_empty:
            end = await lists.end()
            self._began_empty = end is None  # then all that will be listed comes after us
            if end is not None:
                timeline.new_in(end)  # nothing of this is handed on, only what comes after
                yield standing(timeline.cursor)
            return
        try:
            async with aclosing(lists.after(timeline.cursor)) as pieces:
                async for received in pieces:
                    if (new := timeline.new_in(received)) is not None:
                        yield self.wanted.left_of(new)
        except SetBack as error:
            lists.gone_to = NOWHERE
            timeline.go_back(lists.furthest, str(error))
            self._began_empty = timeline.cursor is None


class BaseFollower(Generic[Piece]):
    """The loop of all followers: rounds, and between them pauses, longer while nothing comes."""

    def __init__(
        self,
        web: Web,
        followed: Collection[Followed],
        transport: ChannelTransport | None,
        *,
        owns_web: bool = True,
        waits_out: bool = True,
    ) -> None:
        self._web = web
        self._followed = followed
        self._owns_web = owns_web
        self._transport = transport
        self._waits_out = waits_out  # a channel that was read, and is only not there now
        self._cuts = 0
        self._attempt = 0
        self.has_read = False  # its channel or, where there is none, its Change Lists, once
        self.trouble: str | None = None  # why the Source may have more than was read

    def _one_round(self) -> AsyncGenerator[Piece, None]:
        """Catch up if need be, then read live until something fails."""
        raise NotImplementedError

    async def __aiter__(self) -> AsyncGenerator[Piece, None]:
        try:
            while True:
                try:
                    async with aclosing(self._one_round()) as pieces:
                        async for piece in pieces:
                            self._attempt = 0
                            yield piece
                except (NotJoined, TooOld) as error:
                    await self._note_gap(error)
                except (Lost, TryAgain) as error:
                    self._note_cut(error)
                    await self._pause(error)
                except NoChannel as error:
                    if not (self._waits_out and self.has_read and error.may_pass):
                        raise
                    await self._pause(error)
                except Renewed as renewed:
                    log.info("%s", renewed)
                    if renewed.was_refused:  # whoever is refused at once again asks seldom
                        await asyncio.sleep(HUB_BACKOFF.seconds(0, random.random(), 0))  # noqa: S311
        finally:
            if self._owns_web:
                await self._web.close()

    @property
    def _transports(self) -> Sequence[ChannelTransport]:
        """How the next channel is read: as chosen, or as what is on the way lets through."""
        if self._transport is not None:
            return (self._transport,)
        return ("long-poll", *TRANSPORTS) if self._cuts >= CUTS else TRANSPORTS

    def _note_cut(self, error: Lost | TryAgain) -> None:
        """Long polls that fail are no better than the others, which are tried again first."""
        if isinstance(error, Cut):
            self._cuts += 1
        elif self._cuts >= CUTS:
            self._cuts = CUTS - 1
        elif isinstance(error, Lost):
            self._cuts = 0

    def _lost(self, problem: str) -> NotJoined:
        """What cannot be read is missing in whatever it was of."""
        for each in self._followed:
            each.timeline.gaps += 1
        return NotJoined(problem)

    async def _note_gap(self, error: NotJoined | TooOld) -> None:
        """Lists are read where the cursor is too old, else only if asking again did not help.

        If they did not help either, all is tried again after a pause, longer each time.
        """
        is_too_old = isinstance(error, TooOld)
        for each in self._followed:
            each.timeline.gaps += is_too_old
            if is_too_old or each.timeline.gaps > 1:
                each.behind = error
        times = max(each.timeline.gaps for each in self._followed)
        self.trouble = channel_trouble(error)
        if times > 1 or not is_too_old:
            self._attempt = max(self._attempt, times - 1)
            await self._pause(error)

    async def _pause(self, error: Exception) -> None:
        asked = error.retry_after_seconds if isinstance(error, TryAgain) else 0
        wait = HUB_BACKOFF.seconds(self._attempt, random.random(), asked)  # noqa: S311
        self._attempt += 1
        self.trouble = channel_trouble(error)
        log.warning("%s; trying again in %s", self.trouble, in_words(wait))
        await asyncio.sleep(wait)


class Follower(BaseFollower[Received]):
    """Iterate over it for what is received, piece by piece; keep `cursor` to go on another day.

    To stop before the end, close the iteration, `aclosing(aiter(follower))`, and with it the
    connection. `heard` is up to where its channel was read before; `when_set_back` is called, and
    may raise, if the Source no longer has what it has sent; `skip` with what cannot be read. With
    `state`, and without a cursor, all resources as they are come first. A channel that was read and
    is not there for a while is waited for, unless `waits_out` is false.
    """

    def __init__(
        self,
        url: str,
        *,
        cursor: Position | None = None,
        token: Token | HeldToken | None = None,
        network: Network | None = None,
        web: Web | None = None,
        offered: Capabilities | None = None,
        lists: ChangeLists | None = None,
        poll_seconds: float = POLL_SECONDS,
        heard: Position | None = None,
        when_set_back: Callable[[str], object] | None = None,
        skip: Callable[[str], object] | None = None,
        transport: ChannelTransport | None = None,
        wanted: Filter | None = None,
        state: bool = False,
        waits_out: bool = True,
    ) -> None:
        owns_web, web = web is None, web or Web(token, url, network=network)
        if FRAMEWORK in url:  # there is nothing to catch up from
            offered, lists = Capabilities(url, socket=url), None
        self._source = Followed(web, url, cursor, offered, lists, heard, wanted)
        if when_set_back is not None:
            self._source.timeline.when_set_back = when_set_back
        super().__init__(web, [self._source], transport, owns_web=owns_web, waits_out=waits_out)
        self._poll_seconds = poll_seconds
        self._skip = skip or log_skipped
        self._begins_with_state = state and cursor is None

    @property
    def cursor(self) -> Position | None:
        """The position up to which everything was handed on."""
        return self._source.timeline.cursor

    @property
    def heard(self) -> Position | None:
        """The position up to which its channel itself has sent notifications."""
        return self._source.timeline.heard

    async def _one_round(self) -> AsyncGenerator[Received, None]:
        """Catch up if need be, then live; or one poll and a pause, where there is no channel."""
        address = await self._address()
        if self._begins_with_state:
            async with aclosing(self._state()) as pieces:
                async for received in pieces:
                    yield received
        if self._source.behind is not None or address is None:
            async with aclosing(self._source.catch_up()) as pieces:
                async for received in pieces:
                    yield received
        if address is None:
            self._attempt, self.trouble, self.has_read = 0, None, True
            await asyncio.sleep(self._poll_seconds * (0.9 + 0.2 * random.random()))  # noqa: S311
            return
        from rsnotify_client.live import open_channel  # noqa: PLC0415 - slow

        asked = asked_for(address, self._source.wanted.filter)
        async with open_channel(self._web, asked, self.cursor, self._transports) as channel:
            self._say_connected(channel_named(address.partition("?")[0]))
            async for received in self._live(channel):
                yield received

    async def _state(self) -> AsyncGenerator[Received, None]:
        """All resources as they are; then the cursor is where their list was made."""
        from rsnotify_client.listed_state import ListedState  # noqa: PLC0415 - seldom needed

        state = ListedState(self._web, await self._source.prepare(), self._skip)
        async with aclosing(aiter(state)) as pieces:
            async for received in pieces:
                if (left := self._source.wanted.left_of(received)).changes:
                    yield left
        self._begins_with_state = False
        self._source.timeline.begin(state.at)
        yield standing(state.at)

    def _say_connected(self, to: str) -> None:
        if self.has_read:
            log.info("connected again, resuming after %s", self.cursor)
        else:
            log.info("following %s", to)
        self.has_read, self._attempt = True, 0

    async def _live(self, channel: Channel) -> AsyncGenerator[Received, None]:
        timeline = self._source.timeline
        begins = channel.begins
        if begins is not None and not _is_to_come(begins, channel):
            timeline.begin(begins)
            yield standing(timeline.cursor)
        else:  # what came meanwhile stands in the lists
            async for received in self._source.from_lists():
                yield received
        self.trouble = None
        async for payload in channel.payloads:
            if (new := timeline.joined(self._read(payload, channel))) is not None:
                yield self._source.wanted.left_of(new)

    def _read(self, payload: Payload, channel: Channel) -> Received:
        """A notification that cannot be read is lost; its changes are asked for again."""
        try:
            return read_notification(payload, self._skip, _is_ahead_in(channel))
        except Rejected as error:
            problem = f"cannot read a notification after {self.cursor}: {error.detail}"
            raise self._lost(problem) from None

    # Where --------------------------------------------------------------------------------------

    async def _address(self) -> str | None:
        """The channel's address; None if there is none, then Change Lists are polled."""
        source = self._source
        try:
            offered = await source.prepare()
        except (Rejected, TryAgain) as error:
            is_silent = isinstance(error, TryAgain) and is_hub_channel(source.url)
            if not is_silent and not source.url.startswith(SOCKETS):
                raise
            return source.url  # a channel can be followed even where nothing more is found
        if offered.socket is None and offered.topic is not None:
            socket = await socket_of_topic(self._web, offered.topic)
            source.offered = offered = msgspec.structs.replace(offered, socket=socket)
        address = offered.socket or offered.topic
        if address is None and source.lists is None:
            raise Refused(f"{source.url} offers neither a channel nor a Change List to follow")
        return address


class SetsFollower(BaseFollower[tuple[str, Received]]):
    """Follows several sets of one hub over one connection; iterate as over `Follower`.

    The notifications of each set join one another; a set in which something is missing catches up
    from its Change Lists; a set that is no more, or may not be read, ends it all.
    """

    def __init__(
        self,
        url: str,
        cursors: Mapping[str, Position | None],
        *,
        token: Token | HeldToken | None = None,
        network: Network | None = None,
        transport: ChannelTransport | None = None,
        wanted: Filter | None = None,
    ) -> None:
        web = Web(token, url, network=network, connections=THREADS + len(cursors))
        self._url = url.rstrip("/")
        self._sets = {
            name: Followed(web, f"{self._url}/{name}/capabilitylist.xml", cursor, wanted=wanted)
            for name, cursor in cursors.items()
        }
        self._wanted = wanted
        super().__init__(web, self._sets.values(), transport)

    async def _one_round(self) -> AsyncGenerator[tuple[str, Received], None]:
        for name, each in self._sets.items():
            if each.behind is not None and each.timeline.cursor is not None:
                async with aclosing(each.catch_up()) as pieces:
                    async for received in pieces:
                        yield name, received
            each.behind = None  # also of a set without a cursor: it begins now, and misses nothing
        from rsnotify_client.live import open_channel  # noqa: PLC0415 - slow

        cursors = {name: each.timeline.cursor for name, each in self._sets.items()}
        address = asked_for(channels_address(self._url, cursors), self._wanted)
        async with open_channel(self._web, address, None, self._transports) as channel:
            for begun in self._begin(channel):
                yield begun
            async for payload in channel.payloads:
                name, received = self._read(payload, channel)
                each = self._sets[name]
                if (new := each.timeline.joined(received)) is not None:
                    yield name, each.wanted.left_of(new)

    def _begin(self, channel: Channel) -> Iterator[tuple[str, Received]]:
        begins = channel.begins_in_each
        if begins.keys() != self._sets.keys():
            raise Refused(f"{self._url} does not say where it begins in each set: is it a hub?")
        log.info("following %s at %s", ", ".join(self._sets), self._url)
        self.has_read = True
        for name, position in begins.items():
            if _is_to_come(position, channel):
                continue
            self._sets[name].timeline.begin(position)
            yield name, standing(self._sets[name].timeline.cursor)

    def _read(self, payload: Payload, channel: Channel) -> tuple[str, Received]:
        try:
            received = read_notification(payload, log_skipped, _is_ahead_in(channel))
        except Rejected as error:  # of which set it was cannot be known
            problem = f"cannot read a notification of {', '.join(self._sets)}: {error.detail}"
            raise self._lost(problem) from None
        name = set_named(received.up or "")
        if name not in self._sets:
            raise Lost("a notification came of a set that was not asked for")
        return name, received
