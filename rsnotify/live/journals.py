"""The face of the journals: publish to a set, make, edit and find sets, follow their feeds.

Publishing never waits for a reader.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from time import monotonic

from rsnotify.coordination.bell import Bell
from rsnotify.errors import (
    BecamePrivate,
    CloseCode,
    HistoryDeleted,
    NoSuchSet,
    Rejected,
    SetFull,
    TryAgain,
)
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission
from rsnotify.journal.windows import Windows
from rsnotify.journal.witness import KnownChange
from rsnotify.live.cache import Cache
from rsnotify.live.checking import STALE_SECONDS, Checking
from rsnotify.live.feed import Feed, Feeds
from rsnotify.live.following import Following, HearOfToken, not_heard
from rsnotify.live.losses import AfterAnotherServer, Losses
from rsnotify.live.reading import History, Reading
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import ChannelName, Interval, Notification
from rsnotify.sets.options import SetOptions, SetRecord
from rsnotify.sets.records import KnownSets, Sets
from rsnotify.single_flight import SingleFlight

log = logging.getLogger(__name__)

CACHE_MIB = 256
DEFAULT_OPTIONS = SetOptions()


class Journals:
    """All journals of this process: what publishes and every way out meet here."""

    def __init__(
        self,
        journal: JournalStore,
        sets: Sets,
        bell: Bell,
        windows: Windows | None = None,
        *,
        base_url: str,
        cache: Cache | None = None,
        hear_of_token: HearOfToken = not_heard,
        after_another_server: Iterable[AfterAnotherServer] = (),
    ) -> None:
        self.base_url = base_url
        self.cache = Cache(CACHE_MIB, monotonic) if cache is None else cache
        self._journal = journal
        self._stored_sets = sets
        self.usage = journal.usage
        self.known = KnownSets()
        self.feeds = Feeds(self.cache)
        self.losses = Losses(journal, self.feeds)
        self.after_another_server = [*after_another_server]
        self._confirming: SingleFlight[Feed, None] = SingleFlight("confirmation of a journal")
        self.checking = Checking(
            journal, sets, self.losses, self.known, self.feeds, bell, self.after_another_server
        )
        self.history, check_sets = History(journal, windows), self.checking.check_changed_sets
        self.reading = Reading(journal, self.history, self.cache, base_url, check_sets)
        self.following = Following(
            journal,
            bell,
            self.checking,
            self.losses,
            self.known,
            self.feeds,
            base_url=base_url,
            hear_of_token=hear_of_token,
        )

    # --- publishing ------------------------------------------------------------------------------

    async def publish(
        self,
        channel: ChannelName,
        submission: Submission,
        others: Collection[str] = (),
        *,
        is_limited: bool = True,
    ) -> Interval:
        """Store the changes and have readers notified, without waiting for them; `NoSuchSet` if
        this process does not know the set.

        What concerns the `others` that `other_sets_of` has named is published to them before: if
        one of them fails, repeating with the same key publishes to no set twice. What the hub
        itself has to publish is not limited: a full set could not be kept in order without it.
        """
        if others:
            await self._publish_to_others(others, submission)
        feed = self.feed(channel)
        max_bytes = self.max_bytes(channel.set_name) if is_limited else 0
        tell = partial(self.following.appended, feed)
        stored = await self._journal.append(channel, submission, feed.witness, max_bytes, tell)
        return stored.interval

    async def publish_each(
        self, submissions: Mapping[ChannelName, Submission]
    ) -> dict[ChannelName, Interval | BaseException]:
        """Publish to each channel; a key that one of them knows for other changes refuses all."""
        await self._journal.check_key(submissions)
        publishing = (self.publish(*each) for each in submissions.items())
        results = await asyncio.gather(*publishing, return_exceptions=True)
        return dict(zip(submissions, results, strict=True))

    def other_sets_of(self, channel: ChannelName, submission: Submission) -> list[str]:
        """The other sets that a submission concerns: all of them, if it changes the Source
        Description, which belongs to all sets."""
        if channel.kind != "framework" or submission.of_source_description() is None:
            return []
        return [name for name in self.sets if name != channel.set_name]

    async def _publish_to_others(self, others: Collection[str], submission: Submission) -> None:
        shared = submission.of_source_description()
        if shared is not None:
            await asyncio.gather(*(self._publish_shared(name, shared) for name in others))

    async def _publish_shared(self, set_name: str, shared: Submission) -> None:
        try:
            await self.publish(ChannelName(set_name, "framework"), shared)
        except NoSuchSet:
            pass  # it was removed in the meantime
        except SetFull as error:
            log.warning("a Source Description change is not published there: %s", error.detail)

    def max_bytes(self, set_name: str) -> int:
        """So much of Redis may this set take; 0: any number."""
        record = self.known.records.get(set_name)
        return self.usage.max_bytes(None if record is None else record.max_bytes)

    # --- sets ------------------------------------------------------------------------------------

    @property
    def sets(self) -> dict[str, SetRecord]:
        return self.known.records

    def record(self, set_name: str) -> SetRecord:
        record = self.known.records.get(set_name)
        if record is None:
            raise NoSuchSet(set_name)
        return record

    def require_unchanged(self, before: SetRecord) -> None:
        """Refuse what was begun for a set that is another one now, or has become private since."""
        record = self.record(before.name)
        if record.created != before.created:
            raise NoSuchSet(before.name)
        if record.private > before.private:
            raise BecamePrivate(before.name)

    def require_of_this_set(self, feed: Feed, position: Position) -> None:
        """Refuse a position at which another set stood that had this name before."""
        if self.known.is_former(feed.channel.set_name, position):
            raise HistoryDeleted(
                "this position is of a set that was removed; "
                f"the one of this name begins at {feed.created}",
                Position.parse(feed.created),
            )

    async def learn_of(self, *names: str) -> None:
        """Ask for sets that this process does not know: another may have made them just now."""
        if any(name not in self.sets for name in names):
            await self.checking.check_changed_sets()

    async def add_set(
        self, name: str, options: SetOptions = DEFAULT_OPTIONS
    ) -> tuple[SetRecord, bool]:
        """The set's record, and whether it was created now."""
        record, made, version = await self._stored_sets.add(name, options)
        if made:
            await self.checking.apply_own_change(name, record, version)
        else:
            await self.checking.check_sets()
        await self._choose(record)
        return record, made

    async def edit_set(self, name: str, chosen: Mapping[str, object]) -> SetRecord:
        record, version = await self._stored_sets.edit(name, chosen)
        await self.checking.apply_own_change(name, record, version)
        await self._choose(record)
        return record

    async def _choose(self, record: SetRecord) -> None:
        """Have the journal do what is chosen for the set."""
        channel = ChannelName(record.name, "change")
        if record.filters:
            await self._journal.say_former(channel)
        if record.tombstones or await self._journal.tombstones_since(channel) is not None:
            await self._journal.keep_tombstones(channel, keep=record.tombstones)

    async def tombstones_since(self, set_name: str) -> Position | None:
        """Since when the set keeps where each resource ended that is no more; None if it does not.

        It is chosen in one step and begun in another: if that did not come, it begins now.
        """
        if not self.record(set_name).tombstones:
            return None
        channel = ChannelName(set_name, "change")
        since = await self._journal.tombstones_since(channel)
        if since is None:
            since = await self._journal.keep_tombstones(channel, keep=True)
        return since

    async def remove_set(self, name: str) -> None:
        await self.checking.apply_own_change(name, None, await self._stored_sets.remove(name))

    async def known_filter(
        self, filter_: Filter | None, channels: Iterable[ChannelName]
    ) -> Filter | None:
        """The filter as it is held against the changes of these sets; `Rejected` if one of them
        does not say what its resources were, without which it would hide that they left."""
        if filter_ is None or not filter_.looks_back:
            return filter_
        since = [await self._says_former(self.feed(each)) for each in channels]
        return filter_.known_since(str(max(since)))

    async def _says_former(self, feed: Feed) -> Position:
        name = feed.channel.set_name
        if not self.record(name).filters:
            raise Rejected(
                "type and collection need a set with filters, which its operator allows by "
                f"`rsnotify sets edit SET --filters`: {name} has none",
                close_code=CloseCode.BAD_REQUEST,
            )
        if feed.says_former is not None:
            return feed.says_former
        tail = feed.tail  # another one after a loss
        since = await self._journal.say_former(feed.channel)
        if feed.tail is tail:
            feed.says_former = since
        return since

    # --- channels --------------------------------------------------------------------------------

    def feed(self, channel: ChannelName) -> Feed:
        feed = self.feeds.get(channel)
        if feed is None and channel.set_name in self.sets:
            raise TryAgain(
                f"the data of set {channel.set_name!r} in Redis cannot be read; see the hub's log"
            )
        if feed is None:
            raise NoSuchSet(channel.set_name)
        return feed

    def has_changed(self, set_name: str) -> bool:
        """Whether a change was ever published to the set, as far as this process knows."""
        feed = self.feeds.get(ChannelName(set_name, "change"))
        return feed is None or str(feed.known_head) != feed.created

    def newest_known(self, set_name: str) -> str:
        """The position of the newest change that this process knows of; before all others if there
        is none."""
        feed = self.feeds.get(ChannelName(set_name, "change"))
        return "" if feed is None or not self.has_changed(set_name) else str(feed.known_head)

    async def head(self, channel: ChannelName) -> Position:
        """The position of the newest change in Redis, which this process may not have read yet."""
        return (await self._newest(channel)).position

    async def _newest(self, channel: ChannelName) -> KnownChange:
        before = self.given(channel)
        standing = await self.reading.standing(channel)
        return await self.deliverable(channel, standing.newest, standing.last, before)

    def given(self, channel: ChannelName) -> Position:
        """The newest position that anybody was given here; to be asked for before a journal is read
        of which something is to be given."""
        return self.feed(channel).witness.given

    async def deliverable(
        self, channel: ChannelName, newest: KnownChange, last: Position, before: Position
    ) -> KnownChange:
        """The newest change that may be delivered of what was just read: a journal that had this
        newest change, and ended at `last`. If that is before what anybody was given `before` it was
        read, changes are lost: `TryAgain`."""
        feed = self.feed(channel)
        if last < before:
            await self.losses.look(feed)
            raise TryAgain("Redis has just lost changes of this set; ask again to see what is left")
        if newest.position > feed.known_head and self._journal.client.confirms:
            await self._confirming.result(feed, lambda: self.losses.confirm(feed))
            if newest.position > feed.known_head:
                newest = KnownChange(feed.known_head, "")
        if newest.mark:
            feed.witness.note_change(*newest)
        elif newest.position == feed.tail.head:
            feed.note_head_given()
        else:
            feed.witness.note_given(newest.position)
        if feed.witness.is_crowded:
            await self.losses.look(feed)
        return newest

    async def newest_notification(self, feed: Feed) -> Notification | None:
        """The newest notification that is in Redis now; None if there is none."""
        await self.catch_up(feed)
        newest = await self.reading.newest_notification(feed)
        if newest is None:  # there is none, or a newer one came while the journal was read
            await self.catch_up(feed)
            newest = await self.reading.newest_notification(feed)
        return newest

    async def catch_up(self, feed: Feed) -> None:
        """Wait until this process has read what is in Redis now."""
        newest = await self._newest(feed.channel)
        head = newest.position
        self.feeds.note_unread(feed.channel, newest)
        try:
            async with asyncio.timeout(STALE_SECONDS):
                await self.following.reached(feed, head)
        except TimeoutError:
            raise TryAgain(f"{feed.channel} cannot be followed; see the hub's log") from None
        if self.feed(feed.channel) is not feed:  # which says so if the set was removed meanwhile
            raise TryAgain(f"the set {feed.channel.set_name!r} was made anew: ask again")

    # --- following -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read where every journal stands, before the first reader comes."""
        await self.checking.check_all()
        await self.following.read_new()
