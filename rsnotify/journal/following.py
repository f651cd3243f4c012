"""Follows all journals and pushes what is new to the feeds.

The bell and the clock wake it; without the bell it is only slower.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic

from rsnotify.errors import TryAgain
from rsnotify.journal.appends import Appended, Appends
from rsnotify.journal.bell import TOKEN_ACTS, Bell
from rsnotify.journal.cache import Cache
from rsnotify.journal.checking import Checking
from rsnotify.journal.feed import Feed, Feeds, log_unreadable
from rsnotify.journal.journal import Journal
from rsnotify.journal.known_sets import KnownSets
from rsnotify.journal.repairing import Repairing
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import (
    KINDS,
    NOTIFICATION_CHANGES,
    ChannelName,
    Row,
    first_batch,
    render_notification,
)

log = logging.getLogger(__name__)

OWN_STROKE_SECONDS = 0.25  # our own are looked at after this time, or twice as long


class Following:
    """The follow loop, and what the bell wakes it for."""

    def __init__(
        self,
        journal: Journal,
        bell: Bell,
        checking: Checking,
        repairing: Repairing,
        sets: KnownSets,
        feeds: Feeds,
        cache: Cache,
        *,
        woken: asyncio.Event,
        base_url: str,
    ) -> None:
        self.caller = journal.appends.caller
        self._journal = journal
        self._bell = bell
        self._checking = checking
        self._repairing = repairing
        self._sets = sets
        self._feeds = feeds
        self._cache = cache
        self._woken = woken
        self._own_strokes: dict[str, str] = {}  # channel -> head, since the timer ran last
        self._older_strokes: dict[str, str] = {}  # those before: looked at when it runs next
        self._base_url = base_url
        self.hear_of_token: Callable[[str, str], None] = lambda _, __: None

    async def run(self) -> None:
        """Follow for as long as the hub runs."""
        while True:
            await self.go_on()
            await self._wait()

    async def go_on(self) -> None:
        """Check what is due, read what is new."""
        try:
            await self._checking.check_what_is_due()
            await self.read_on()
        except TryAgain as error:
            log.debug("cannot follow the journals, trying again: %s", error.detail)
            self._try_again_later()
        except Exception as error:  # a bug, or damaged data: keep the readers
            log.warning("following the journals failed, trying again", exc_info=error)
            self._try_again_later()

    async def listen(self) -> None:
        """Listen to the bell, which other hub processes ring too, for as long as the hub runs."""
        await self._bell.listen(self.hear)

    def hear(self, stroke: str) -> None:
        """A caller has appended, or something else has changed."""
        name, _, appended = stroke.partition(" ")
        caller, _, head = appended.partition(" ")
        if name in TOKEN_ACTS:
            self.hear_of_token(name, appended)
        elif caller == self.caller:
            self._hear_own(name, head)
        elif not self._ring(name, head):
            self._checking.ring()
            self._woken.set()

    def _ring(self, name: str, head: str) -> bool:
        """The journal of the channel ends there; False if these are not what they should be."""
        set_name, _, kind = name.partition("/")
        if kind not in KINDS or not head.isdecimal():
            return False
        self._feeds.ring(ChannelName(set_name, kind), Position(int(head)))
        return True

    def _hear_own(self, name: str, head: str) -> None:
        """As a rule, readers are notified at once of what was appended here. It is looked at later,
        in case its Source has gone meanwhile: then nobody has notified them."""
        if not self._own_strokes and not self._older_strokes:
            asyncio.get_running_loop().call_later(OWN_STROKE_SECONDS, self._ring_own)
        self._own_strokes[name] = head

    def _ring_own(self) -> None:
        for name, head in self._older_strokes.items():
            self._ring(name, head)
        self._older_strokes, self._own_strokes = self._own_strokes, {}
        if self._older_strokes:
            asyncio.get_running_loop().call_later(OWN_STROKE_SECONDS, self._ring_own)

    def _try_again_later(self) -> None:
        self._checking.postpone()
        self._checking.look_at(self._feeds.forget_rung())

    async def _wait(self) -> None:
        if self._feeds.have_rung:
            return
        self._woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._checking.next_at - monotonic())):
                await self._woken.wait()

    async def read_on(self) -> None:
        """Read new changes of the channels that rang, render them, push them."""
        async with self._checking.lock:
            rung = self._feeds.take_rung()
            if not rung:
                return
            try:
                await self._read(rung)
            except Exception:
                self._checking.look_at(rung)
                raise

    async def _read(self, rung: Mapping[ChannelName, tuple[Feed, Position]]) -> None:
        cursors = {channel: feed.tail.head for channel, (feed, _) in rung.items()}
        read, number = await self._journal.read_on(cursors, count=NOTIFICATION_CHANGES)
        if number != self._sets.number:
            # So that a set that became private is known before, and a gap.
            await self._checking.update(rung)
        for channel, found in read.items():
            feed, head = rung[channel]
            rows = await self._repairing.joined(feed, cursors[channel], found)
            if self._feeds.get(channel) is not feed or feed.tail.head != cursors[channel]:
                continue  # the set was created again, or Redis lost changes
            if self.push(feed, rows) >= NOTIFICATION_CHANGES:  # one more, where the journal began
                self._feeds.ring_again(channel, head)
            await asyncio.sleep(0)  # let others run: there may be thousands of readers

    def push(self, feed: Feed, rows: Sequence[Row] | Exception) -> int:
        """Push what follows the tail; return how many changes.

        An error in one channel does not stop the others.
        """
        if isinstance(rows, TryAgain):
            self._checking.look_at([feed.channel])  # its part of Redis is away
            return 0
        try:
            if isinstance(rows, Exception):
                raise rows
            self._push_rows(feed, rows)
        except Exception as error:
            log_unreadable(feed.channel, error)
            return 0
        return len(rows)

    def _push_rows(self, feed: Feed, rows: Sequence[Row]) -> None:
        while rows:
            taken = first_batch(rows)
            begin = feed.tail.head
            feed.push(render_notification(feed.channel, begin, taken, base_url=self._base_url))
            self._feeds.remember_read(feed, taken)
            self._cache.use(feed)
            rows = rows[len(taken) :]


FEW_READERS = 8  # to write to them takes less than to make the answer


class Shortcut:
    """Collects what was appended in one round, and pushes it as one notification."""

    def __init__(
        self,
        appends: Appends,
        following: Following,
        checking: Checking,
        sets: KnownSets,
        feeds: Feeds,
    ) -> None:
        self._appends = appends
        self._following = following
        self._checking = checking
        self._sets = sets
        self._feeds = feeds
        self._waiting: dict[ChannelName, dict[Position, Appended]] = {}  # by where each begins

    def appended(self, feed: Feed, stored: Appended) -> None:
        """The journal has it: notify readers. Few are notified at once; many, or of many changes,
        after the Sources of this round have their answers."""
        if stored.is_repeated or not self._feeds.is_read(feed):
            self._feeds.ring(feed.channel, stored.until)
            return
        if stored.is_alone and feed.writes_at_most(FEW_READERS):
            self._tell(feed, {stored.from_: stored})
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        self._waiting.setdefault(feed.channel, {})[stored.from_] = stored

    def _push_one(self) -> None:
        """Push those of one channel: it may have thousands of readers."""
        channel = next(iter(self._waiting))
        waiting = self._waiting.pop(channel)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        if (feed := self._feeds.get(channel)) is not None:
            self._tell(feed, waiting)

    def _tell(self, feed: Feed, waiting: dict[Position, Appended]) -> None:
        if not self._appends.is_busy and not self._checking.lock.locked():
            rows = [row for each in self._next(feed.tail.head, waiting) for row in each.rows]
            self._following.push(feed, rows)
        newest = max(each.until for each in waiting.values())
        self._feeds.ring(feed.channel, newest)  # no news, if it was pushed

    def _next(self, cursor: Position, waiting: dict[Position, Appended]) -> Iterator[Appended]:
        """Those that follow the cursor without a gap."""
        while following := waiting.get(cursor):
            if following.sets_version != self._sets.number or following.until == cursor:
                return
            yield following
            cursor = following.until
