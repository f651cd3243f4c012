"""Follows all journals and pushes what is new to the feeds.

The bell and the clock wake `Following`; without the bell it is only slower, for `Checking` finds
what was missed. What this process has appended itself is pushed from memory (`appended`): its own
messages of the bell are for the others.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from time import monotonic

from rsnotify.coordination.bell import TOKEN_ACTS, Bell
from rsnotify.errors import TryAgain
from rsnotify.journal.call import Appended
from rsnotify.journal.journal_store import Continuation, JournalStore
from rsnotify.journal.witness import KnownChange, proved_by
from rsnotify.live.checking import Checking
from rsnotify.live.feed import Feed, Feeds, log_unreadable
from rsnotify.live.losses import Losses
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import (
    KINDS,
    NOTIFICATION_CHANGES,
    ChannelName,
    Row,
    first_batch,
    render_notification,
)
from rsnotify.sets.records import KnownSets

log = logging.getLogger(__name__)

FEW_READERS = 8  # to write to them takes less than to make the answer

HearOfToken = Callable[[str, str], None]
"""Called with what was done to a token, of `TOKEN_ACTS`, and with the token's key."""


def not_heard(_: str, __: str) -> None:
    """Nobody here judges tokens."""


class Following:
    """The follow loop, and what the bell wakes it for."""

    def __init__(
        self,
        journal: JournalStore,
        bell: Bell,
        checking: Checking,
        losses: Losses,
        sets: KnownSets,
        feeds: Feeds,
        *,
        base_url: str,
        hear_of_token: HearOfToken,
    ) -> None:
        self.process = journal.appends.process
        self._journal = journal
        self._bell = bell
        self._checking = checking
        self._losses = losses
        self._sets = sets
        self._feeds = feeds
        self._waiting: dict[ChannelName, dict[Position, Appended]] = {}  # by where each begins
        self._has_read = asyncio.Condition()  # notified after each reading
        self._base_url = base_url
        self._hear_of_token = hear_of_token

    async def run(self) -> None:
        """Follow for as long as the hub runs."""
        while True:
            await self.go_on()
            async with self._has_read:
                self._has_read.notify_all()
            await self._wait()

    async def reached(self, feed: Feed, position: Position) -> None:
        """Wait until the channel was read so far, or is no more."""
        async with self._has_read:
            await self._has_read.wait_for(
                lambda: feed.tail.head >= position or self._feeds.get(feed.channel) is not feed
            )

    async def go_on(self) -> None:
        """Check what is due, read what is new."""
        try:
            await self._checking.check_what_is_due()
            await self.read_new()
        except TryAgain as error:
            log.debug("cannot follow the journals, trying again: %s", error.detail)
            self._try_again_later()
        except Exception as error:  # a bug, or damaged data: keep the readers
            log.warning("following the journals failed, trying again", exc_info=error)
            self._try_again_later()

    async def listen(self) -> None:
        """Listen to the bell, which other hub processes ring too, for as long as the hub runs."""
        await self._bell.listen(self.hear)

    def hear(self, message: str) -> None:
        """Take a message of the bell: a process has appended, or something else has changed."""
        name, _, rest = message.partition(" ")
        who, _, head = rest.partition(" ")
        process, _, mark = who.partition(":")
        if name in TOKEN_ACTS:
            self._hear_of_token(name, rest)
        elif process != self.process and not self._note_unread(name, head, mark):
            self._checking.note_sets_changed()
            self._feeds.woken.set()

    def _note_unread(self, name: str, head: str, mark: str) -> bool:
        """The channel's journal ends there; False if that is no channel, or no position."""
        set_name, _, kind = name.partition("/")
        if kind not in KINDS or not head.isdecimal():
            return False
        self._feeds.note_unread(ChannelName(set_name, kind), KnownChange(Position(int(head)), mark))
        return True

    def _try_again_later(self) -> None:
        self._checking.postpone()
        self._checking.look_at(self._feeds.forget_unread())

    async def _wait(self) -> None:
        if self._feeds.have_unread:
            return
        self._feeds.woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._checking.next_at - monotonic())):
                await self._feeds.woken.wait()

    async def read_new(self) -> None:
        """Read new changes of the channels that have any, render them, push them."""
        async with self._checking.lock:
            unread = self._feeds.take_unread()
            if not unread:
                return
            try:
                await self._read(unread)
            except Exception:
                self._checking.look_at(unread)
                raise

    async def _read(self, unread: Mapping[ChannelName, tuple[Feed, KnownChange]]) -> None:
        wanted = {
            channel: (feed.tail.head, newest.position) for channel, (feed, newest) in unread.items()
        }
        read, number = await self._journal.read_from(wanted, count=NOTIFICATION_CHANGES)
        if number != self._sets.number:
            # So that it is known which set became private.
            await self._checking.update(unread)
        for channel, found in read.items():
            feed, newest = unread[channel]
            if self._feeds.get(channel) is not feed or feed.tail.head != wanted[channel][0]:
                continue  # the set was created again, or Redis has lost changes
            try:
                await self._follow(feed, newest, found)
            except TryAgain:
                self._checking.look_at([channel])  # its part of Redis is away
            except Exception as error:
                log_unreadable(channel, error)
            await asyncio.sleep(0)  # let others run: there may be thousands of readers

    async def _follow(
        self, feed: Feed, newest: KnownChange, found: Continuation | Exception | None
    ) -> None:
        """Push what was found after the tail, if all that is known to be there is there."""
        if isinstance(found, Exception):
            raise found
        if found is not None and self._losses.pass_gap(feed, found.gap):
            self._feeds.note_unread(feed.channel, newest)
        elif found is not None:
            head, rows = feed.tail.head, found.rows
            begin = max(found.first, found.gap, Position(head - 1))
            end = rows[-1][0] if rows else head
            proved = proved_by(feed.witness.changes, found.marks, begin, end)
            is_more = len(rows) >= NOTIFICATION_CHANGES  # and one more where the stream begins
            if proved is None or not (is_more or end >= newest.position):
                await self._losses.look(feed)
                if proved is None or feed.tail.head != head:
                    self._feeds.note_unread(feed.channel, newest)
                    return
            is_pushed = self.push_rows(feed, rows, found.marks)
            feed.witness.note_found(proved)
            if is_more and is_pushed:
                self._feeds.note_more_unread(feed.channel, newest)
            if feed.witness.is_crowded:
                await self._losses.look(feed)

    def push_rows(self, feed: Feed, rows: Sequence[Row], marks: Mapping[Position, str]) -> bool:
        """Push what follows the tail, with the marks that are known. False if that failed: it is
        not tried again at once, but when the journal is compared next, or has grown."""
        try:
            while rows:
                taken = first_batch(rows)
                begin, mark = feed.tail.head, marks.get(taken[-1][0], "")
                found = render_notification(feed.channel, begin, taken, base_url=self._base_url)
                feed.push(found, mark)
                self._feeds.note_read(feed)
                rows = rows[len(taken) :]
        except Exception as error:
            log_unreadable(feed.channel, error)
            return False
        return True

    # --- what this process has appended ----------------------------------------------------------

    def appended(self, feed: Feed, stored: Appended) -> None:
        """The journal has it: notify readers. A few are notified at once. Where there are many, or
        several appends, they get one notification, after the Sources have their answers."""
        if stored.is_repeated or not self._feeds.is_read(feed):
            self._feeds.note_unread(feed.channel, KnownChange(stored.until, stored.mark))
            return
        if stored.is_alone and feed.writes_at_most(FEW_READERS):
            self._push_appended(feed, {stored.from_: stored})
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        self._waiting.setdefault(feed.channel, {})[stored.from_] = stored

    def _push_one(self) -> None:
        """Push what was appended to one channel, as it may have thousands of readers."""
        channel = next(iter(self._waiting))
        waiting = self._waiting.pop(channel)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._push_one)
        if (feed := self._feeds.get(channel)) is not None:
            self._push_appended(feed, waiting)

    def _push_appended(self, feed: Feed, waiting: dict[Position, Appended]) -> None:
        if not self._journal.appends.writing and not self._checking.lock.locked():
            following = [*self._next(feed.tail.head, waiting)]
            rows = [row for each in following for row in each.rows]
            self.push_rows(feed, rows, {each.until: each.mark for each in following})
        newest = max(waiting.values(), key=attrgetter("until"))
        if feed.tail.head < newest.until:  # it was not pushed, or not all of it
            self._feeds.note_unread(feed.channel, KnownChange(newest.until, newest.mark))

    def _next(self, cursor: Position, waiting: dict[Position, Appended]) -> Iterator[Appended]:
        """The appends that follow the cursor without a gap."""
        while following := waiting.get(cursor):
            if following.sets_version != self._sets.number or following.until == cursor:
                return
            yield following
            cursor = following.until
