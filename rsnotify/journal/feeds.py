"""The feeds of all channels, and which of them have changes to read."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence

from rsnotify.errors import TryAgain
from rsnotify.journal.appends import Appended
from rsnotify.journal.cache import Cache
from rsnotify.journal.feed import Feed
from rsnotify.journal.healing import UsedKey
from rsnotify.journal.journal import Standing
from rsnotify.journal.submission import Submission
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import KINDS, ChannelName, Row

log = logging.getLogger(__name__)


class Feeds:
    """One feed for each channel of each set."""

    def __init__(self, cache: Cache, woken: asyncio.Event) -> None:
        self._cache = cache
        self._woken = woken  # set when there is something to read
        self._feeds: dict[ChannelName, Feed] = {}
        self._rung: dict[ChannelName, Position] = {}
        self._noting: list[set[str]] = []

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self) -> Iterator[ChannelName]:
        return iter(self._feeds)

    def get(self, channel: ChannelName) -> Feed | None:
        return self._feeds.get(channel)

    def is_read(self, feed: Feed) -> bool:
        """Whether somebody reads it, or did so lately."""
        return feed.is_watched or feed in self._cache

    def knows(self, channel: ChannelName, created: str) -> bool:
        """Whether there is a feed of it, of the set that was created then."""
        feed = self._feeds.get(channel)
        return feed is not None and feed.created == created

    def release_idle(self) -> None:
        """Free the memory of feeds that nobody has read for a while."""
        self._cache.release_idle()

    # --- which there are -------------------------------------------------------------------------

    def add_set(self, name: str, created: str) -> None:
        """The feeds of a set that was created now."""
        for kind in KINDS:
            self._feed_of(ChannelName(name, kind), created, Position.parse(created))

    def remove_set(self, name: str) -> None:
        self._end([ChannelName(name, kind) for kind in KINDS])

    def keep_sets(self, names: Collection[str]) -> None:
        """End the feeds of all other sets."""
        self._end([channel for channel in self._feeds if channel.set_name not in names])

    def turn_private(self, names: Iterable[str]) -> None:
        """Tell the feeds of sets that have become private."""
        for name in names:
            for kind in KINDS:
                if (feed := self._feeds.get(ChannelName(name, kind))) is not None:
                    feed.turn_private()

    def compare(
        self, channel: ChannelName, created: str, standing: Standing | Exception | None
    ) -> bool:
        """Update a feed from its journal; a feed whose journal cannot be read stays. False if they
        are to be compared once more: there was no feed, or no journal could be found."""
        was_known = self.knows(channel, created)
        if standing is None:
            self._end([channel])
            return False
        if isinstance(standing, TryAgain):
            return False  # its part of Redis is away
        if isinstance(standing, Exception):
            log_unreadable(channel, standing)
        else:
            self._feed_of(channel, created, standing.head)
            self.ring(channel, standing.head)
        return was_known

    def _feed_of(self, channel: ChannelName, created: str, head: Position) -> Feed:
        """The channel's feed; a new one if the set was deleted and created again."""
        feed = self._feeds.get(channel)
        if feed is None or feed.created != created:
            self._end([channel])
            feed = self._feeds[channel] = Feed(channel, created, head)
            self._note_growth(channel)
        return feed

    def _end(self, channels: Iterable[ChannelName]) -> None:
        for channel in channels:
            feed = self._feeds.pop(channel, None)
            if feed is not None:
                feed.end()
                self._cache.forget(feed)
                self._cache.forget(feed.memory)

    # --- which have grown ------------------------------------------------------------------------

    def note_growth(self) -> set[str]:
        """The sets that get changes from now on are put into this; the caller takes them out."""
        noted: set[str] = set()
        self._noting.append(noted)
        return noted

    def _note_growth(self, channel: ChannelName) -> None:
        if channel.kind == "change":
            for noted in self._noting:
                noted.add(channel.set_name)

    # --- what is remembered of them ---------------------------------------------------------------

    def remember_read(self, feed: Feed, rows: Sequence[Row]) -> None:
        feed.memory.read(rows, rows[-1][0])
        self._cache.use(feed.memory)
        self._note_growth(feed.channel)

    def remember_append(self, feed: Feed, submission: Submission, stored: Appended) -> None:
        key = None
        if submission.key:
            interval, count = stored.interval, len(stored.rows)
            key = UsedKey(submission.digest, submission.fingerprint, *interval, count)
        rows = (*stored.before, *stored.rows)
        # Where a request was put again by a repair, nothing need be where its interval begins.
        begin = None if stored.is_repeated else stored.from_
        feed.memory.appended(rows, stored.until, key, begin=begin)
        self._cache.use(feed.memory)

    def remember_told(self, channel: ChannelName, rows: Sequence[Row]) -> None:
        """What was read for somebody who is behind, or polls: as a rule it was remembered when it
        was followed, but not while nobody read the channel."""
        feed = self._feeds.get(channel)
        if feed is not None and rows and feed.memory.told(rows):
            self._cache.use(feed.memory)

    def seen(self, channel: ChannelName) -> Position:
        """The newest position of the channel that this process has seen."""
        feed = self._feeds.get(channel)
        return Position(0) if feed is None else max(feed.tail.head, feed.memory.newest)

    def best_remembered(self) -> list[Feed]:
        """All feeds; first those of which something is remembered."""
        return sorted(self._feeds.values(), key=lambda feed: not feed.memory.rows)

    # --- which have changes to read --------------------------------------------------------------

    @property
    def have_rung(self) -> bool:
        return bool(self._rung)

    def ring(self, channel: ChannelName, head: Position) -> None:
        """The channel's journal ends here: if that is news, wake the task that follows."""
        feed = self._feeds.get(channel)
        if feed is not None and head > feed.tail.head:
            feed.newest_known = max(feed.newest_known, head)
            self._note_growth(channel)
            rung = self._rung.get(channel)
            if rung is None:  # otherwise the task that follows is awake already
                self._woken.set()
            if rung is None or head > rung:
                self._rung[channel] = head

    def ring_again(self, channel: ChannelName, head: Position) -> None:
        """More has been rung for than was read."""
        self._rung.setdefault(channel, head)

    def forget_rung(self) -> list[ChannelName]:
        """Those that rang: a check finds the same changes."""
        rung, self._rung = self._rung, {}
        return list(rung)

    def take_rung(self) -> dict[ChannelName, tuple[Feed, Position]]:
        """The feeds to read on, and how far. Those without readers move on without reading."""
        rung, self._rung = self._rung, {}
        found: dict[ChannelName, tuple[Feed, Position]] = {}
        for channel, head in rung.items():
            feed = self._feeds.get(channel)
            if feed is None or head <= feed.tail.head:
                continue
            if self.is_read(feed):
                found[channel] = feed, head
            else:
                feed.skip_to(head)
        return found


def log_unreadable(channel: ChannelName, error: Exception) -> None:
    log.warning("the data of %s in Redis cannot be read", channel, exc_info=error)
