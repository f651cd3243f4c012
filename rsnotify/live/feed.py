"""A channel as this process follows it: gives each notification to every watcher, once, in order.

What is kept in memory has a limit and can be read again from the journal. `Feeds` holds the feeds
of all channels, and knows which of them have changes to read.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from rsnotify.errors import TryAgain
from rsnotify.journal.journal_store import Standing
from rsnotify.journal.witness import Evidence, KnownChange, Witness
from rsnotify.live.cache import Cache, RecentNotifications, Tail
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import (
    KINDS,
    NOTIFICATION_BYTES,
    NOTIFICATION_CHANGES,
    ChannelName,
    Notification,
    join_notifications,
)

log = logging.getLogger(__name__)

NOTHING_KNOWN = Evidence(Position(0), ())
RECENT_NOTIFICATIONS = 32  # read from before the tail, or joined


class Watcher(Protocol):
    """Gets the notifications of a channel. No method may wait."""

    @property
    def writes(self) -> int:
        """The number of readers to which a push writes at once."""

    def push(self, notification: Notification) -> None: ...

    def fall_behind(self, head: Position) -> None:
        """Called when changes were lost: readers at the old head, which is given, must read on."""

    def turn_private(self) -> None:
        """Called when the set becomes private: drop readers without a token."""

    def end(self) -> None:
        """Called when the channel's set was deleted."""


class Feed:
    """One channel: its tail and its watchers.

    Most of ten thousand channels are at rest at any time: what only a busy one needs is made when
    it is needed, and dropped afterwards.
    """

    __slots__ = (
        "__weakref__",
        "_recent",
        "_watchers",
        "channel",
        "created",
        "known_head",
        "mark",
        "says_former",
        "tail",
        "witness",
    )

    def __init__(self, channel: ChannelName, created: str, head: Position, mark: str = "") -> None:
        self.channel = channel
        self.created = created
        self.known_head = head  # of the newest change, read or not; at the tail or after it
        self.tail = Tail(head)
        self.mark = mark  # of the change at the head, if it is known
        self.says_former: Position | None = None  # since when changes say what their resources were
        self.witness = Witness(head)
        self._watchers: dict[Watcher, None] | None = None  # told in the order in which they came
        self._recent: RecentNotifications | None = None

    @property
    def recent(self) -> RecentNotifications:
        """What was read from before the tail, and what was joined for readers that are behind."""
        if self._recent is None:
            self._recent = RecentNotifications(RECENT_NOTIFICATIONS)
        return self._recent

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self.tail.size + (self._recent.size if self._recent is not None else 0)

    @property
    def watchers(self) -> Collection[Watcher]:
        return self._watchers or ()

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    stays_when_idle = is_watched

    def watch(self, watcher: Watcher) -> None:
        """Give it each notification from now on."""
        if self._watchers is None:
            self._watchers = {}
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        if self._watchers is not None:
            self._watchers.pop(watcher, None)
            self._watchers = self._watchers or None

    def writes_at_most(self, few: int) -> bool:
        """Whether a push writes to at most so many readers; counted only if watchers are as few."""
        watchers = self.watchers
        return len(watchers) <= few and sum([watcher.writes for watcher in watchers]) <= few

    def release(self) -> None:
        """Drop everything in memory except the position."""
        self.tail.release()
        if self._recent is not None:
            self._recent.release()
        self._recent = None

    def push(self, notification: Notification, mark: str = "") -> None:
        """Give it to all; the mark is of its newest change."""
        self.tail.append(notification)
        self.mark = mark
        self.note_head_given()
        self.known_head = max(self.known_head, notification.until)
        self._notify_watchers(lambda watcher: watcher.push(notification))

    def note_head_given(self) -> Position:
        """The head, which somebody is given."""
        head = self.tail.head
        if self.mark:
            self.witness.note_change(head, self.mark)
        else:
            self.witness.note_given(head)
        return head

    def is_newest(self, position: Position) -> bool:
        """Whether nothing is known to come after it, read or not: an answered publish may not have
        been read yet."""
        return position >= self.known_head

    def skip_to(self, head: Position, mark: str = "") -> None:
        """Move on without reading the changes before this one."""
        self.release()
        self.tail.skip_to(head)
        self.mark = mark
        self.known_head = max(self.known_head, head)

    def pass_gap(self, end: Position) -> None:
        """Redis has lost changes before `end`: drop all that was made of them, and go on there.
        Nobody is carried over: who was at the head reads what is left, and is told."""
        before = self.tail.head
        self.release()
        self.known_head, self.tail, self.mark = end, Tail(end), ""
        self.says_former = None  # to be asked again
        self.witness.note_gap(end)
        self._notify_watchers(lambda watcher: watcher.fall_behind(before))

    def turn_private(self) -> None:
        self._notify_watchers(lambda watcher: watcher.turn_private())

    def end(self) -> None:
        self._notify_watchers(lambda watcher: watcher.end())
        self._watchers = None

    def _notify_watchers(self, how: Callable[[Watcher], None]) -> None:
        """Call every watcher; an error in one does not stop the others."""
        for watcher in tuple(self.watchers):
            try:
                how(watcher)
            except Exception as error:
                log.warning(
                    "internal error in a watcher of %s: %r", self.channel, watcher, exc_info=error
                )

    def owed_since(self, cursor: Position) -> Position | None:
        """The time since when a reader at the cursor is owed changes: that of the next notification
        if the tail has it, else the cursor itself. None at the head."""
        if cursor >= self.tail.head:
            return None
        found = self.tail.next_after(cursor)
        return cursor if found is None else found.until

    def join_after(self, found: Notification, base_url: str) -> Notification:
        """The notification and those after it as one; made once for all at this cursor."""
        joined = self.recent.get(found.from_)
        if joined is None or self._has_room(joined):
            run = self.tail.run_from(found, changes=NOTIFICATION_CHANGES, size=NOTIFICATION_BYTES)
            joined = join_notifications(self.channel, run, base_url=base_url)
            if joined.holder is None:  # otherwise it is one that the tail holds
                self.recent.keep(joined)
        return joined

    def _has_room(self, joined: Notification) -> bool:
        """Whether the next notification would have fitted in."""
        following = self.tail.next_after(joined.until)
        return (
            following is not None
            and joined.count + following.count <= NOTIFICATION_CHANGES
            and joined.entries_size + following.entries_size <= NOTIFICATION_BYTES
        )

    def __repr__(self) -> str:
        return f"<Feed {self.channel} {self.tail} {len(self.watchers)} watchers>"


class Feeds:
    """One feed for each channel of each set."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.woken = asyncio.Event()  # set when there is something to read
        self._feeds: dict[ChannelName, Feed] = {}
        self.get = self._feeds.get
        self._unread: dict[ChannelName, KnownChange] = {}  # where each ends
        self._noting: list[set[str]] = []

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self) -> Iterator[ChannelName]:
        return iter(self._feeds)

    def is_read(self, feed: Feed) -> bool:
        """Whether somebody reads it, or did so lately."""
        return feed.is_watched or feed in self._cache

    def knows(self, channel: ChannelName, created: str) -> bool:
        """Whether there is a feed of the channel, of the set that was created then."""
        feed = self._feeds.get(channel)
        return feed is not None and feed.created == created

    def release_idle(self) -> None:
        """Free the memory of feeds that nobody has read for a while."""
        self._cache.release_idle()

    # --- which there are -------------------------------------------------------------------------

    def add_set(self, name: str, created: str) -> None:
        """The feeds of a set that was created now."""
        for kind in KINDS:
            self._feed_of(
                ChannelName(name, kind), created, KnownChange(Position.parse(created), "")
            )

    def remove_set(self, name: str) -> None:
        self._end([ChannelName(name, kind) for kind in KINDS])

    def keep_sets(self, names: Collection[str]) -> None:
        """End the feeds of all other sets."""
        self._end([channel for channel in self._feeds if channel.set_name not in names])

    def turn_private(self, names: Iterable[str]) -> None:
        """Notify the feeds of sets that have become private."""
        for name in names:
            for kind in KINDS:
                if (feed := self._feeds.get(ChannelName(name, kind))) is not None:
                    feed.turn_private()

    def compare(
        self, channel: ChannelName, created: str, standing: Standing | Exception | None
    ) -> bool:
        """Update a feed from its journal; a feed whose journal cannot be read stays. False if it is
        to be compared once more: there was no feed, or no journal could be found."""
        was_known = self.knows(channel, created)
        if standing is None:
            self._end([channel])
            return False
        if isinstance(standing, TryAgain):
            return False  # its part of Redis is away
        if isinstance(standing, Exception):
            log_unreadable(channel, standing)
        else:
            self._feed_of(channel, created, standing.newest)
            self.note_unread(channel, standing.newest)
        return was_known

    def _feed_of(self, channel: ChannelName, created: str, newest: KnownChange) -> Feed:
        """The channel's feed; a new one if the set was deleted and created again."""
        feed = self._feeds.get(channel)
        if feed is None or feed.created != created:
            self._end([channel])
            feed = self._feeds[channel] = Feed(channel, created, *newest)
            self._note_growth(channel)
        return feed

    def _end(self, channels: Iterable[ChannelName]) -> None:
        for channel in channels:
            feed = self._feeds.pop(channel, None)
            if feed is not None:
                feed.end()
                self._cache.forget(feed)

    # --- which have grown ------------------------------------------------------------------------

    def note_growth(self) -> set[str]:
        """A collection to which each set is added that gets changes from now on."""
        noted: set[str] = set()
        self._noting.append(noted)
        return noted

    def _note_growth(self, channel: ChannelName) -> None:
        if channel.kind == "change":
            for noted in self._noting:
                noted.add(channel.set_name)

    def note_read(self, feed: Feed) -> None:
        """Somebody is given what was read of it."""
        self._cache.use(feed)
        self._note_growth(feed.channel)

    def evidence(self, channel: ChannelName) -> Evidence:
        """What is known of its journal."""
        feed = self._feeds.get(channel)
        return NOTHING_KNOWN if feed is None else feed.witness.evidence

    def is_news(self, channel: ChannelName, standing: Standing) -> bool:
        """Whether the journal ends later than the bell has said."""
        feed = self._feeds.get(channel)
        return feed is None or standing.head > feed.known_head

    def without_news(
        self, channel: ChannelName, standing: Standing | Exception | None
    ) -> Standing | Exception | None:
        """The standing, as far as the bell has said it; all of it for a feed that is made now."""
        feed = self._feeds.get(channel)
        if feed is None or not isinstance(standing, Standing):
            return standing
        return standing._replace(head=min(standing.head, feed.known_head), mark="")

    # --- which have changes to read --------------------------------------------------------------

    @property
    def have_unread(self) -> bool:
        return bool(self._unread)

    def note_unread(self, channel: ChannelName, newest: KnownChange) -> None:
        """The channel's journal ends here: if that is new, wake the task that follows."""
        feed, head = self._feeds.get(channel), newest.position
        if feed is not None and head > feed.tail.head:
            feed.known_head = max(feed.known_head, head)
            self._note_growth(channel)
            unread = self._unread.get(channel)
            if unread is None:  # otherwise the task that follows is awake already
                self.woken.set()
            if unread is None or head > unread.position:
                self._unread[channel] = newest

    def note_more_unread(self, channel: ChannelName, newest: KnownChange) -> None:
        """Not all that the bell announced was read."""
        self._unread.setdefault(channel, newest)

    def forget_unread(self) -> list[ChannelName]:
        """The channels that have something to read; a check will find their changes."""
        unread, self._unread = self._unread, {}
        return list(unread)

    def take_unread(self) -> dict[ChannelName, tuple[Feed, KnownChange]]:
        """The feeds to read, and up to where. Feeds without readers skip to there at once: what is
        known of their journals stays to be looked for."""
        unread, self._unread = self._unread, {}
        found: dict[ChannelName, tuple[Feed, KnownChange]] = {}
        for channel, newest in unread.items():
            feed = self._feeds.get(channel)
            if feed is None or newest.position <= feed.tail.head:
                continue
            if self.is_read(feed) or feed.witness.is_crowded:
                found[channel] = feed, newest
            else:
                feed.skip_to(*newest)
        return found


def log_unreadable(channel: ChannelName, error: Exception) -> None:
    log.warning("the data of %s in Redis cannot be read", channel, exc_info=error)
