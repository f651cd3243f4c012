"""Readers who wait for the next change of a stream, and are answered once.

Who waits has read all, so one notification is the answer for all: it is rendered once for those who
have asked alike. Our own server lends the connection, so that nobody who waits has a task; under
another server each has one. What they wait for is a feed, as with any way out: no change reaches
somebody who may not read it any more.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import time
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rsnotify.channels.channels import Channels
from rsnotify.channels.frames import COMMENT, WireFormat
from rsnotify.channels.reader import Reader
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.transport_reader import CLOSE_SECONDS, TransportReader
from rsnotify.errors import BecamePrivate, NoSuchSet, Rejected, TokenRefused, TryAgain
from rsnotify.http.extensions import LEND, Lender, peer_state
from rsnotify.http.input_turns import HTTP
from rsnotify.http.sockets import TCP_CLOSE_WAIT, TCP_CLOSED
from rsnotify.live.feed import Feed
from rsnotify.live.journals import Journals
from rsnotify.live.reading import PASSED_CHANGES
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import ChannelName, Notification
from rsnotify.streams.cursors import WaitingGrid, next_cursor
from rsnotify.streams.replies import (
    StreamReply,
    Variant,
    messages_of,
    refusal,
    reply_with,
    reply_without,
)

log = logging.getLogger(__name__)

LONG_POLL = WireFormat("long poll", messages_of, COMMENT)
EARLY_BYTES = 64 * 1024  # that a peer may send while it waits: its next request
JOINED_BYTES = 1024  # a longer body is not copied to join it with its head
ANSWERED_A_TURN = 256  # before the event loop serves others
TICK_SECONDS = 0.25
SPREAD_TICKS = 64  # to which those who wait are given in turn
LOOK_SECONDS = 1.0  # until a peer that waits without having lent its connection is looked after
ENDED = (TCP_CLOSED, TCP_CLOSE_WAIT)  # what such a peer's connection is then

Rendered = dict[tuple[Variant, int], Sequence[bytes]]


class Poller(Reader):
    """Somebody who waits, as those who answer see it."""

    __slots__ = ()

    asked: int | None  # the cursor of the question
    variant: Variant

    def answer(self, reply: StreamReply, cursor: int, rendered: Rendered, *, is_last: bool) -> None:
        """Send the reply. What was rendered for others who are alike need not be again; with
        `is_last` the connection ends."""
        raise NotImplementedError

    def ping(self) -> bool:
        """Nobody waits long enough."""
        return False

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002
        """The token has ended."""
        waiting = self.channel
        if isinstance(waiting, Waiting):
            waiting.refuse([self], TokenRefused(reason))


class LentPoller(TransportReader, Poller):
    """Waits on a connection that the server has lent."""

    __slots__ = ("_early", "_lender", "asked", "variant")

    def __init__(
        self,
        transport: asyncio.Transport,
        lender: Lender,
        reader_input: ReaderInput,
        asked: int | None,
        variant: Variant,
    ) -> None:
        super().__init__(LONG_POLL, transport, reader_input)
        self.asked, self.variant = asked, variant
        self._lender = lender
        self._early = b""

    def take_over(self) -> None:
        self.transport.pause_reading()  # uvloop asks how much to read where reading begins
        self.transport.set_protocol(self)
        self.transport.resume_reading()

    @property
    def is_open(self) -> bool:
        return self.channel is not None and super().is_open

    def answer(self, reply: StreamReply, cursor: int, rendered: Rendered, *, is_last: bool) -> None:
        key = (self.variant, cursor)
        response = None if is_last else rendered.get(key)
        if response is None:
            ends = [(b"connection", b"close")] if is_last else []
            headers = [*reply.headers_for(*key), *ends]
            head = self._lender.render_head(reply.status, headers)
            is_long = len(reply.body) > JOINED_BYTES  # then all share it, however they have asked
            response = (head, reply.body) if is_long else (head + reply.body,)
            rendered[key] = response
        if is_last:
            self.transport.writelines(response)
            self.end_within(CLOSE_SECONDS)
            self.transport.close()
        elif not self.transport.is_closing():
            self.leave_channel()
            self.turns.leave(self)
            self._lender.give_back(self.transport, response, self._early)

    # --- called by the transport -----------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """The next request, of a peer that does not wait for its answer."""
        self.turns.received.bytes[HTTP] += len(data)
        self._early += data
        if len(self._early) > EARLY_BYTES:
            self.end_flood(HTTP)
            self.transport.abort()


class TaskPoller(Poller):
    """Waits in the task of its request."""

    __slots__ = ("answered", "asked", "variant")

    def __init__(self, asked: int | None, variant: Variant) -> None:
        super().__init__(LONG_POLL)
        self.asked, self.variant = asked, variant
        self.answered: asyncio.Future[tuple[StreamReply, int]] = (
            asyncio.get_running_loop().create_future()
        )

    @property
    def is_open(self) -> bool:
        return self.channel is not None

    def write(self, data: bytes, /) -> None:
        raise NotImplementedError

    def backlog(self) -> int:
        return 0

    def wait_no_more(self) -> None:
        if isinstance(self.channel, Waiting):
            self.channel.answer_without([self])

    def answer(self, reply: StreamReply, cursor: int, rendered: Rendered, *, is_last: bool) -> None:  # noqa: ARG002
        self.leave_channel()
        if not self.answered.done():
            self.answered.set_result((reply, cursor))


class Waiting:
    """All who wait for the next change of one channel, at its head: a `Watcher` of its feed.

    Who is about to be answered does not wait any more, so no other answer can overtake that one.
    """

    def __init__(
        self,
        polls: "LongPolls",
        feed: Feed,
        seconds: float,
        *,
        is_private: bool,
        filter_: Filter | None = None,
    ) -> None:
        self.pushed = 0
        self.feed = feed
        self.is_private = is_private
        self.filter = filter_
        self._passed = 0  # changes that were not for those who wait, since some was
        self.grid = WaitingGrid(feed.channel, seconds)
        self._polls = polls
        self._pollers: dict[Poller, None] = {}
        self._reading: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Waiting for {self.feed.channel}: {len(self._pollers)}>"

    @property
    def pollers(self) -> list[Poller]:
        return [*self._pollers]

    def join(self, poller: Poller, cursor: Position) -> None:
        poller.channel = self
        if cursor < self.feed.tail.head:  # there was a change meanwhile
            self._answer_from(cursor, [poller])
            return
        self._pollers[poller] = None
        self.feed.watch(self)
        self.feed.note_head_given()

    def leave(self, poller: Reader) -> None:
        self._polls.left(poller, self)
        self._take([poller])  # type: ignore[list-item]

    def _take(self, pollers: Iterable[Poller]) -> list[Poller]:
        """Those of them who wait, and do not any more."""
        taken = [poller for poller in pollers if poller in self._pollers]
        for poller in taken:
            del self._pollers[poller]
        if not self._pollers:
            self.feed.unwatch(self)
            self._polls.forget(self)
        return taken

    def pause(self, reader: Reader) -> None:
        """Nothing is written to somebody who waits."""

    def resume(self, reader: Reader) -> None:
        """Nothing is written to somebody who waits."""

    # --- called by the feed ----------------------------------------------------------------------

    @property
    def writes(self) -> int:
        return len(self._pollers)

    def push(self, notification: Notification) -> None:
        self.pushed += 1
        found: Notification | None = notification
        if self.filter is not None:
            found = self.filter.pick(notification)
            self._passed += notification.count
            if found is None and self._passed < PASSED_CHANGES:
                return
            self._passed = 0
        if found is None:
            self.answer_without(self.pollers)
        else:
            self._answer_with(found, self._take(self.pollers))

    def fall_behind(self, head: Position) -> None:
        """Changes behind the old head were lost: all who wait there are told, or get what is
        left."""
        self._answer_from(head, self._take(self.pollers))

    def turn_private(self) -> None:
        self.refuse(self._take(self.pollers), BecamePrivate(self.feed.channel.set_name))

    def end(self) -> None:
        self.refuse(self._take(self.pollers), NoSuchSet(self.feed.channel.set_name))

    # --- answers ---------------------------------------------------------------------------------

    def answer_without(self, pollers: Sequence[Poller], *, is_last: bool = False) -> None:
        """There was no change for those of them who wait."""
        waiting, head = self._take(pollers), self.feed.note_head_given()
        reply = reply_without(self.feed.channel, head, is_private=self.is_private)
        self._answer(waiting, reply, is_last=is_last)

    def refuse(self, pollers: Sequence[Poller], error: Exception, *, is_last: bool = False) -> None:
        self._answer(pollers, refusal(error, self.feed.channel.path), is_last=is_last)

    def _answer_with(self, found: Notification, pollers: Sequence[Poller]) -> None:
        reply = reply_with(self.feed, found, is_private=self.is_private)
        self._polls.count(len(reply.body), len(pollers))
        self._answer(pollers, reply)

    def _answer_from(self, cursor: Position, pollers: Sequence[Poller]) -> None:
        """Answer them with what follows a position that is not the head; one task for all."""
        if pollers:
            answering = self._read_and_answer(cursor, pollers)
            task = asyncio.create_task(answering, name=f"answers of {self.feed.channel}")
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _read_and_answer(self, cursor: Position, pollers: Sequence[Poller]) -> None:
        try:
            found = await self._polls.read(
                self.feed, cursor, self.filter, is_private=self.is_private
            )
        except Exception as error:  # also a bug: they are told, and it is logged
            self.refuse(pollers, error)
        else:
            self._answer_with(found, pollers)

    def _answer(
        self, pollers: Sequence[Poller], reply: StreamReply, *, is_last: bool = False
    ) -> None:
        """Answer those who have not left, some in each turn of the event loop."""
        moment, rendered = self.grid.last(now()), Rendered()
        loop = asyncio.get_running_loop()

        def answer_some(start: int) -> None:
            end = start + ANSWERED_A_TURN
            if end < len(pollers):
                loop.call_soon(answer_some, end)
            for poller in pollers[start:end]:
                if poller.channel is self:
                    cursor = next_cursor(poller.asked, reply.until or Position(0), moment)
                    _answer_one(poller, reply, cursor, rendered, is_last=is_last)

        answer_some(0)


def _answer_one(
    poller: Poller, reply: StreamReply, cursor: int, rendered: Rendered, *, is_last: bool
) -> None:
    """A bug in one answer must not keep the others waiting, who are not in line any more."""
    try:
        poller.answer(reply, cursor, rendered, is_last=is_last)
    except Exception:
        log.exception("internal error while somebody who waits is answered: %r", poller)
        poller.leave_channel()


def now() -> int:
    return int(time() * MICROSECONDS)


class PollEntry(NamedTuple):
    """Where an admitted reader waits."""

    feed: Feed
    is_private: bool  # the set, when it was admitted
    cursor: Position
    address: str  # of the peer, to which limits apply
    token: str  # the key of the token that it used, empty if none was needed
    filter: Filter | None = None  # of the changes that it waits for


WaitingFor = tuple[Feed, bool, Filter | None]
"""A channel, whether its set is private, and which changes are waited for."""


class LongPolls:
    """All who wait in this process: in which channel, and until when."""

    def __init__(self, journals: Journals, channels: Channels, seconds: float) -> None:
        self._journals = journals
        self._channels = channels
        self._seconds = seconds
        self._waiting: dict[WaitingFor, Waiting] = {}
        self._due: dict[int, dict[Poller, None]] = {}  # by the tick in which their wait ends
        self._entered = 0
        self._is_draining = False

    def cursor(self, channel: ChannelName, asked: int | None, until: Position) -> int:
        """The cursor of an answer that is given now."""
        return next_cursor(asked, until, WaitingGrid(channel, self._seconds).last(now()))

    async def read(
        self, feed: Feed, cursor: Position, filter_: Filter | None, *, is_private: bool
    ) -> Notification:
        """What follows, for somebody who was admitted to a set that was private or not."""
        found = await self._journals.reading.matching_after(feed, cursor, filter_)
        self._check_unchanged(feed, is_private=is_private)
        if found is None:
            raise TryAgain("the journal has changed meanwhile; ask again")
        return found

    def _check_unchanged(self, feed: Feed, *, is_private: bool) -> None:
        """Refuse what is for another set now, or for those who have a token."""
        name = feed.channel.set_name
        if self._journals.feed(feed.channel) is not feed:
            raise NoSuchSet(name)
        if self._journals.record(name).private > is_private:
            raise BecamePrivate(name)

    # --- coming and going ------------------------------------------------------------------------

    def enter(self, poller: Poller, entry: PollEntry) -> None:
        """Let somebody wait. It may have taken long since it was found that it may read."""
        feed, is_private, filter_ = entry.feed, entry.is_private, entry.filter
        key = (feed, is_private, filter_)
        waiting = self._waiting.get(key)
        if waiting is None:
            seconds = self._seconds
            waiting = Waiting(self, feed, seconds, is_private=is_private, filter_=filter_)
        poller.channel = waiting  # from here on it is answered, whatever is wrong
        try:
            if self._is_draining:
                raise TryAgain("the hub is shutting down; ask again")
            self._check_unchanged(feed, is_private=is_private)
            self._channels.limits.enter(poller, entry.address, [feed.channel], filter_)
        except (Rejected, TryAgain) as error:
            waiting.refuse([poller], error, is_last=self._is_draining)
            return
        self._waiting[key] = waiting
        self._set_due(poller, waiting)
        self._channels.revocations.add(poller, entry.token)
        waiting.join(poller, entry.cursor)

    def left(self, poller: Reader, waiting: Waiting) -> None:
        """It was answered, or has gone."""
        self._channels.limits.leave(poller, [waiting.feed.channel], waiting.filter)
        due = self._due.get(poller.slot)
        if due is not None:
            due.pop(poller, None)  # type: ignore[call-overload]

    def forget(self, waiting: Waiting) -> None:
        """Nobody waits there any more."""
        key = (waiting.feed, waiting.is_private, waiting.filter)
        if self._waiting.get(key) is waiting:
            del self._waiting[key]

    def count(self, size: int, pollers: int) -> None:
        self._channels.sent.count(LONG_POLL, size, pollers)

    # --- time ------------------------------------------------------------------------------------

    def _set_due(self, poller: Poller, waiting: Waiting) -> None:
        """The next moment of the channel's grid, and a little later for each other one: so not all
        come back at once, but all with the same cursor."""
        loop, grid = asyncio.get_running_loop(), waiting.grid
        self._entered += 1
        later = grid.spread_seconds * (self._entered % SPREAD_TICKS) / SPREAD_TICKS
        at = loop.time() + grid.seconds_left(now()) + later
        poller.slot = int(at / TICK_SECONDS) + 1
        if poller.slot not in self._due:
            self._due[poller.slot] = {}
            loop.call_at(poller.slot * TICK_SECONDS, self._end_waits, poller.slot)
        self._due[poller.slot][poller] = None

    def _end_waits(self, tick: int) -> None:
        by_channel: dict[Waiting, list[Poller]] = {}
        for poller in self._due.pop(tick):
            if isinstance(poller.channel, Waiting):
                by_channel.setdefault(poller.channel, []).append(poller)
        for waiting, pollers in by_channel.items():
            waiting.answer_without(pollers)

    async def drain(self) -> None:
        """The hub ends: nobody waits any longer. Their offsets are good at any other hub."""
        self._is_draining = True
        for waiting in [*self._waiting.values()]:
            waiting.answer_without(waiting.pollers, is_last=True)


Enter = Callable[[Poller], None]


class PollResponse(Response):
    """An answer that comes with the next change, or with the end of the wait.

    `Response.__init__` is not called: what it says is not known yet.
    """

    def __init__(
        self, enter: Enter, reader_input: ReaderInput, asked: int | None, variant: Variant
    ) -> None:
        self.background = None
        self._enter = enter
        self._reader_input = reader_input
        self._asked = asked
        self._variant = variant
        self._is_lent = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if LEND in scope.get("extensions", ()):
            await send({"type": LEND, "take": self._take})
        if not self._is_lent:
            await self._wait(scope, receive, send)

    def _take(self, transport: asyncio.Transport, lender: Lender) -> None:
        self._is_lent = True
        poller = LentPoller(transport, lender, self._reader_input, self._asked, self._variant)
        poller.take_over()
        self._enter(poller)

    async def _wait(self, scope: Scope, receive: Receive, send: Send) -> None:
        poller = TaskPoller(self._asked, self._variant)
        self._enter(poller)
        leaving = asyncio.create_task(_left(scope, receive))
        try:
            await asyncio.wait((poller.answered, leaving), return_when=asyncio.FIRST_COMPLETED)
            poller.wait_no_more()
            reply, cursor = await poller.answered
        finally:
            leaving.cancel()
            poller.leave_channel()
        headers = [*reply.headers_for(self._variant, cursor)]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})


async def _left(scope: Scope, receive: Receive) -> None:
    """Until the peer has gone. One that has only closed its direction may have gone as well, and
    nobody would ever know: it is to be answered at once."""
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect" and peer_state(scope) not in ENDED:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                message = await receive()
