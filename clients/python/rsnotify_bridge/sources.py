"""The Sources that a bridge reads, each kind in its own way: lists, channels, feeds, OAI-PMH.

Rules that hold here: what was not read to its end says so, and deletes nothing. A list that is
older than the Change Lists is read together with them; what a server calls unchanged is not read
again; the parts of an index are lists, never indexes. Pages are bounded in bytes and number, and
none is read twice; what leaves a feed is old, not gone, unless it says that it has everything; a
time that has not come yet moves no cursor.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import time
from typing import NamedTuple

from msgspec.structs import replace

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import MICROSECONDS, Change, Position, as_ascii
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_bridge.feeds import (
    Entries,
    FeedPage,
    PageReader,
    activity_page,
    feed_page,
    notification_page,
)
from rsnotify_bridge.markup import PAGE_BYTES
from rsnotify_bridge.oaipmh import DAY, PREFIX, Harvest, OaiIdentity, OaiRequest, identify
from rsnotify_bridge.polite import PoliteWeb, Webs
from rsnotify_bridge.rules import LocRule, changes_of, is_outdated
from rsnotify_client.address import canonical, joined, without_tokens
from rsnotify_client.changelists import ChangeLists, HistoryGone
from rsnotify_client.discovery import SOCKETS, Capabilities, discover
from rsnotify_client.documents import RemoteDocument, next_after
from rsnotify_client.dumps import lists_of
from rsnotify_client.follower import Follower, Timeline
from rsnotify_client.lists import ListPiece, ListVisitor, read_list
from rsnotify_client.missing import (
    MissingResource,
    ProbeResult,
    probe,
    result_by_error,
)
from rsnotify_client.moments import ahead_of_its_time, is_one_moment
from rsnotify_client.notification import Received, position_of
from rsnotify_client.web import Refused, Tag, Unchanged, Web, check_status

SKIPPED_NAMED = 20
MOVING = "its pages moved each of the {} times that they were read: something may be missing"
DAY_SECONDS = 86_400.0
AGAIN_SECONDS = DAY_SECONDS

Parts = dict[str, tuple[int, Tag]]
"""Each part of a list: its number, which it keeps, and what it was known by."""

BEGINNING_BYTES = 2_048  # in which the mark of a kind of document stands
MAX_ENTRIES = 100_000
"""Of a feed, or of the activities since a cursor, in memory at once."""
LONG_SECONDS = 7 * DAY_SECONDS  # for what its pages skipped while it changed


def how_often(seconds: float) -> str:
    """
    >>> how_often(86_400), how_often(7 * 86_400), how_often(2 * 86_400), how_often(90)
    ('once a day', 'once a week', 'every 2 days', 'every 90 s')
    """
    days, rest = divmod(seconds, DAY_SECONDS)
    if rest or not days:
        return f"every {seconds:g} s"
    return {1: "once a day", 7: "once a week"}.get(int(days), f"every {days:.0f} days")


class SourceGap(Exception):
    """The Source no longer says what followed the cursor: its whole state is to be compared."""

    def __init__(self, why: str, cursor: str) -> None:
        super().__init__(why)
        self.cursor = cursor  # from which on it says everything


class Piece(NamedTuple):
    """Something that was read: each resource with the Source's own key for it."""

    entries: list[tuple[str, Change]]
    part: int = 0
    cursor: str | None = None  # once all of this is dealt with


Pieces = AsyncGenerator[Piece, None]


class SourceAdapter:
    """What all kinds have in common. What a reading had to leave out is in `skipped`."""

    kind = ""
    by_site = False  # nothing at its address led to it: its site offers it
    via = ""  # the Source's own address, for those that came from nowhere else
    has_changes = False
    is_live = False
    overlays = False  # whether changes since a state are read right after it
    trouble: str | None = None  # of a channel, while it is not connected
    is_partial = False  # whether a state is put together from changes: the last of each counts
    is_whole = True  # whether what a whole state leaves out is gone
    may_have_moved = False  # whether pages of the last state may be of several moments
    readings = 4  # of a whole state, at most, until nothing has slipped from page to page

    def __init__(self, web: PoliteWeb) -> None:
        self.web = web
        self.skipped: list[str] = []
        self.skipped_count = 0
        self.short: str | None = None  # why the last reading may not be all, or not be believed
        self.remarks: list[str] = []  # for --show
        self.cursor: str | None = None  # after a whole state: where changes go on
        self.parts: Parts = {}
        self.at: str | None = None  # the moment of the last whole state, as it says
        self.began = 0.0  # the last reading of a whole state, by the Source's clock
        self.unchanged: set[int] = set()  # parts that were not read again
        self.compare_seconds: float | None = None  # how often all is compared besides

    def skip(self, what: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_NAMED:
            self.skipped.append(without_tokens(what))

    def begin(self) -> None:
        """A new reading."""
        self.skipped, self.skipped_count = [], 0

    @property
    def doubt(self) -> str | None:
        """What is wrong with what the Source says of itself."""
        return None

    def forget_tags(self) -> None:
        """Of parts that were read again: entries may have moved between them, so read all next."""
        self.parts = {
            url: (number, tag if number in self.unchanged else Tag())
            for url, (number, tag) in self.parts.items()
        }

    def _begins(self) -> float:
        """Now by the Source's clock, which is known to the second only."""
        return int(time() + (self.web.ahead_seconds or 0.0))

    def how(self) -> str:
        """How it is followed, for a person."""
        raise NotImplementedError

    def state(self) -> Pieces:
        """All that there is; `Unchanged` if it is what was read before."""
        raise NotImplementedError

    def changes(self, cursor: str | None) -> Pieces:
        """What happened after the cursor; `SourceGap` where that is not known."""
        raise NotImplementedError

    def asked_at(self, _key: str, loc: str) -> str:
        """Where to ask for a resource that a whole state left out."""
        return as_ascii(loc)

    async def probe(self, missing: MissingResource) -> ProbeResult:
        """Whether it is gone."""
        return await probe(self.web, missing.url)

    def live(self, cursor: str | None) -> Pieces:
        """As `changes`, without an end."""
        raise NotImplementedError


# --- Resource Lists, sitemaps, Change Lists, channels ---------------------------------------------


class PartsOfBefore(ListVisitor):
    """Reads no part again that is as it was, and gives each its number, which it keeps. An entry
    that cannot be read is skipped; without any whole document, there is no state."""

    def __init__(self, source: SourceAdapter, url: str, known: Parts) -> None:
        self._source = source
        self._url = url
        self._known = known
        self._free = 1 + max([0, *(number for number, _ in known.values())])
        self._new: Parts = {}

    def place_of(self, url: str) -> tuple[int, Tag]:
        if url not in self._known and url not in self._new:
            number = 0 if url == self._url else self._free + len(self._new)
            self._new[url] = number, Tag()
        return self._known.get(url) or self._new[url]

    def known(self, url: str) -> Tag:
        return self.place_of(url)[1]

    def unchanged(self, url: str) -> None:
        self._source.parts[url] = number, _ = self.place_of(url)
        self._source.unchanged.add(number)

    def skipped(self, url: str, what: str) -> None:
        self._source.skip(f"{url}: {what}")


class ListedSource(SourceAdapter):
    """A Resource List or sitemap, Change Lists, or both."""

    overlays = True

    def __init__(self, web: PoliteWeb, offered: Capabilities) -> None:
        super().__init__(web)
        self.by_site = offered.by_site
        self.offered = offered
        self.via = offered.url
        self._timeline = Timeline()  # it knows what was read at its very end
        self._pages, self._moments = 0, set[str | None]()
        self._lists: ChangeLists | None = lists_of(web, offered, skip=self.skip)
        self.has_changes = self._lists is not None
        self.kind = "Change Lists" if self.has_changes else "Resource List or sitemap"
        self.compare_seconds = AGAIN_SECONDS if self.has_changes else None
        if offered.resourcelist is None and offered.resourcedump is not None:
            self.remarks.append("its Resource Dump is not read: only what changes is published")

    @property
    def doubt(self) -> str | None:
        return self.offered.doubt

    def how(self) -> str:
        names = ("resourcelist", "changelist", "changedump")
        found = {name: getattr(self.offered, name) for name in names}
        others = "".join(f"; sitemap {url}" for url in self.offered.other_sitemaps)
        return "; ".join(f"{name} {url}" for name, url in found.items() if url) + others

    async def state(self) -> Pieces:
        self.unchanged, self.cursor = set(), None
        self.began, self.may_have_moved = self._begins(), False
        self._pages, self._moments = 0, set()
        url = self.offered.resourcelist
        self.is_whole = url is not None
        if url is None:
            return
        known, self.parts = self.parts, {}
        visitor = PartsOfBefore(self, url, known)
        lists = read_list(self.web, visitor, url, *self.offered.other_sitemaps)
        async with aclosing(lists) as pieces:
            async for piece in pieces:
                number, _ = visitor.place_of(piece.document.url)
                if piece.is_end:
                    self._end(piece, number)
                else:
                    yield self._piece(piece.document, piece.entries, number)
        self.may_have_moved = self._pages > 1 and not is_one_moment(self._moments, self.began)
        if self.parts.keys() == known.keys() and 0 < len(known) == len(self.unchanged):
            raise Unchanged
        self.at, at = self.cursor, position_of(self.cursor)
        self.short = ahead_of_its_time(self.at, self.began)
        if self.short is not None:
            self.at, at = None, Position(int(self.began) * MICROSECONDS)
        self.cursor = None if at is None else str(at)

    def _end(self, piece: ListPiece, number: int) -> None:
        """A list, or an index, was read to its end."""
        document = piece.document
        if piece.depth == 0 or self.cursor is None:
            self.cursor = document.head.md.at or self.cursor
        if not piece.is_index:
            self.parts[document.url] = number, document.tag
            self._pages += document.pages
            self._moments |= document.moments

    def _piece(self, document: RemoteDocument, entries: list[Entry], part: int) -> Piece:
        self.via = joined(document.url, document.head.link("up") or self.offered.url)
        if nameless := sum(not each.loc for each in entries):
            self.skip(f"{nameless} entries of {document.url} without <loc>")
        found = [
            (canonical(loc), replace(change, loc=loc, change="created", datetime=None))
            for change in map(change_of, entries)
            if change.loc and (loc := joined(document.url, change.loc))
        ]
        return Piece(found, part)

    async def changes(self, cursor: str | None) -> Pieces:
        assert self._lists is not None  # noqa: S101 - `has_changes` says so
        if self._timeline.cursor is None or self._timeline.cursor != position_of(cursor):
            self._timeline = Timeline(position_of(cursor))
        try:
            async with aclosing(self._lists.after(self._timeline.cursor)) as pieces:
                async for received in pieces:
                    if (new := self._timeline.new_in(received)) is not None:
                        yield _changed(new)
        except HistoryGone as error:
            raise SourceGap(str(error), str(error.begins)) from None


def _changed(received: Received) -> Piece:
    return Piece([(canonical(each.loc), each) for each in received.changes], 0, str(received.until))


class ChannelSource(ListedSource):
    """A channel: WebSocket, event stream or both; lists fill what it leaves out."""

    is_live = True

    def __init__(self, web: PoliteWeb, channel_web: Web, offered: Capabilities) -> None:
        super().__init__(web, offered)
        self._channel_web = channel_web  # a stream that stays open takes no turn of others
        self._follower: Follower | None = None
        self.kind = "channel"
        self.compare_seconds = AGAIN_SECONDS
        if not self.has_changes and offered.resourcelist is None:
            self.remarks.append("it has no lists: what is missed while nobody listens is lost")

    def how(self) -> str:
        channel = self.offered.socket or self.offered.topic
        return "; ".join(filter(None, (channel, super().how())))

    @property
    def trouble(self) -> str | None:  # type: ignore[override]
        return None if self._follower is None else self._follower.trouble

    async def live(self, cursor: str | None) -> AsyncGenerator[Piece, None]:
        follower = Follower(
            self.offered.socket or self.offered.topic or self.offered.url,
            cursor=position_of(cursor),
            web=self._channel_web,
            offered=self.offered,
            lists=self._lists,
        )
        self._follower = follower
        try:
            async with aclosing(aiter(follower)) as pieces:
                async for received in pieces:
                    self.via = received.up or self.via
                    yield _changed(received)
        except HistoryGone as error:
            raise SourceGap(str(error), str(error.begins)) from None


# --- feeds, collections of activities, topics -----------------------------------------------------

ACCEPT = {
    "Accept": "application/atom+xml, application/rss+xml, application/ld+json, "
    "application/activity+json, application/json;q=0.9, application/xml;q=0.8, */*;q=0.1"
}
_COMPLETE = re.compile(rb"<(?:\w+:)?complete\b")


IS_OAI = re.compile(rb"<(?:\w+:)?OAI-PMH\b")  # also where it answers that a verb is missing


class FeedKind(NamedTuple):
    """What its pages are called, known by, read by; and what is to be known of it."""

    name: str
    mark: re.Pattern[bytes]
    read: PageReader
    remark: str

    def is_in(self, body: bytes) -> bool:
        return self.mark.search(body[:BEGINNING_BYTES]) is not None


FEED = FeedKind(
    "feed", re.compile(rb"<(?:\w+:)?(feed|rss|RDF)\b"), feed_page,
    "a feed does not say what is deleted, unless it has tombstones or is complete",
)  # fmt: skip
ACTIVITIES = FeedKind(
    "Activity Streams", re.compile(rb'^\s*\{[^\0]*"type"\s*:\s*"OrderedCollection(Page)?"'),
    activity_page, "of several activities of one object the newest is published",
)  # fmt: skip
TOPIC = FeedKind(
    "topic, polled", re.compile(rb"capability\s*=\s*[\"']change-notification[\"']"),
    notification_page, "it has neither a channel nor lists: only its latest notification is read",
)  # fmt: skip


class FeedSource(SourceAdapter):
    """Pages of changes. One that says that it is complete is compared, again and again."""

    is_partial = True

    def __init__(self, web: PoliteWeb, url: str, kind: FeedKind, body: bytes) -> None:
        super().__init__(web)
        self.kind, self.via = kind.name, url
        self.has_changes = _COMPLETE.search(body) is None
        self.remarks.append(kind.remark)
        self._read_page = kind.read
        self._known: Tag | None = None  # by what was dealt with

    def how(self) -> str:
        return f"read at {self.via}"

    async def state(self) -> Pieces:
        _, known = self.parts.get(self.via, (0, None))
        piece, tag = await self._after(None, known)
        self.cursor, self.parts = piece.cursor, {self.via: (0, tag)}
        yield piece._replace(cursor=None)

    async def changes(self, cursor: str | None) -> Pieces:
        at = position_of(cursor)
        try:
            piece, tag = await self._after(at, self._known if at else None)
        except Unchanged:
            return
        yield piece
        self._known = tag

    async def _after(self, cursor: Position | None, known: Tag | None) -> tuple[Piece, Tag]:
        """The newest of each resource since the cursor, and what the first page is known by.

        Older ones may be among them. `Unchanged` where the first page is still the known one. What
        has several pages is read until nothing more has slipped from one to the other.
        """
        read, tag = await self._pages(cursor, known or Tag())
        self.is_whole = read.is_complete and not read.is_paged and read.older is None
        entries, number, slipped, self.short = read.entries, 1, read.is_paged, None
        while slipped and number < self.readings:
            skipped = [*self.skipped], self.skipped_count
            again, number = (await self._pages(cursor, Tag()))[0], number + 1
            self.skipped, self.skipped_count = skipped
            had = {(key, change.lastmod) for key, change in entries}
            new = [position_of(change.lastmod) for key, change in again.entries
                   if (key, change.lastmod) not in had]  # fmt: skip
            slipped = any(at is None or read.ends is None or at <= read.ends for at in new)
            entries = entries + again.entries
        if slipped:
            self.short = MOVING.format(number)
        if cursor is not None and read.entries and not _reaches(read, cursor):
            self.skip(f"{self.via} does not reach back to {cursor}: entries may be missing")
        newest = max((each for each in (cursor, read.ends) if each is not None), default=None)
        now = Position(int(time() * MICROSECONDS))
        until = None if newest is None else str(min(newest, now))
        return Piece(_last_of_each(entries), 0, until), tag

    async def _pages(self, cursor: Position | None, known: Tag) -> tuple[FeedPage, Tag]:
        """All pages that reach back to the cursor as one, and what the first is known by."""
        page, tag = await self._fetched(self.via, known)
        pages, entries, times = [self.via], page.entries, [page.ends]
        while page.older is not None and not _reaches(page, cursor):
            pages.append(next_after(pages, pages[-1], page.older))
            page, _ = await self._fetched(pages[-1], Tag())
            entries = page.entries + entries
            times.append(page.ends)
            if len(entries) > MAX_ENTRIES:
                raise Refused(f"{self.via} has more than {MAX_ENTRIES:,} entries to read")
        ends = max((each for each in times if each is not None), default=None)
        return page._replace(entries=entries, ends=ends, is_paged=len(pages) > 1), tag

    async def _fetched(self, url: str, known: Tag) -> tuple[FeedPage, Tag]:
        """A page, whole; `Unchanged` if it is the one that is known."""
        async with self.web.ask(url, headers=ACCEPT | known.condition) as answer:
            check_status(url, answer, known.condition)
            data = await answer.read(PAGE_BYTES + 1)
            if len(data) > PAGE_BYTES:
                raise Refused(f"{url} is longer than {PAGE_BYTES} bytes: it is not read")
            tag = Tag.of_document(answer.headers)
        return await self.web.threads.run(self._read_page, url, data, self.skip), tag


def _reaches(page: FeedPage, cursor: Position | None) -> bool:
    """Whether nothing older is needed."""
    is_known = cursor is not None and page.begins is not None and page.begins <= cursor
    return page.begins_anew or is_known


def _last_of_each(entries: Entries) -> Entries:
    """Of several entries of one resource the newest counts, wherever it stands: of one moment, or
    without a time, the one that the feed has as the newer one."""
    last, now = dict[str, Change](), time()
    for key, change in entries:
        if is_outdated(change, last.get(key), now):
            continue
        last.pop(key, None)  # it takes the place of the newest
        last[key] = change
    return [*last.items()]


# --- OAI-PMH --------------------------------------------------------------------------------------


class OaiSource(SourceAdapter):
    """A repository, or a set of it: harvested whole once, then what it says has changed."""

    kind = "OAI-PMH"
    has_changes = True
    readings = 3  # it may take hours

    def __init__(
        self, web: PoliteWeb, request: OaiRequest, rule: LocRule, said: OaiIdentity
    ) -> None:
        super().__init__(web)
        self._request, self._rule, self._said = request, rule, said
        self._harvest = Harvest(web, request, said.granularity, wanted=rule.wanted)
        self.via = request.base
        self.compare_seconds = AGAIN_SECONDS if said.deleted == "no" else LONG_SECONDS
        if said.deleted != "persistent":
            self.remarks.append(
                f"it keeps deleted records: {said.deleted}; deletions are found by harvesting all "
                f"of it {how_often(self.compare_seconds)}"
            )

    @classmethod
    async def find(cls, web: PoliteWeb, address: str, rule: LocRule) -> "OaiSource":
        request = OaiRequest.of(address)
        return cls(web, request, rule, await identify(web, request))

    def how(self) -> str:
        said, request = self._said, self._request
        set_ = f", set {request.set_spec}" if request.set_spec else ""
        unit = "days" if self._harvest.granularity == DAY else "seconds"
        return (
            f"{self._harvest.verb} of {said.name or request.base} with {request.prefix}{set_}; "
            f"datestamps in {unit}; deleted records: {said.deleted}"
        )

    async def state(self) -> Pieces:
        self.began = self._begins()
        async with aclosing(self._harvested(None)) as pieces:
            async for piece in pieces:
                yield piece
        keeps_deleted = self._said.deleted == "persistent"
        self.may_have_moved = self._harvest.may_have_moved(keeps_deleted=keeps_deleted)
        if self._harvest.response_date is not None:
            self.began = self._harvest.response_date / MICROSECONDS

    async def changes(self, cursor: str | None) -> Pieces:
        until = None
        for _ in range(2):  # the second finds what has slipped from page to page in the first
            async with aclosing(self._harvested(cursor)) as pieces:
                async for piece in pieces:
                    yield piece
            until = until or self.cursor
            if not self._harvest.may_have_moved(keeps_deleted=True):
                break
        if self.short is None:  # else it is read again
            yield Piece([], 0, until)

    def asked_at(self, key: str, _loc: str) -> str:
        return self._request.record(key)

    async def probe(self, missing: MissingResource) -> ProbeResult:
        try:
            return await self._harvest.probe(missing.key)
        except (Rejected, TryAgain) as error:
            return result_by_error(error)

    async def _harvested(self, cursor: str | None) -> Pieces:
        async with aclosing(self._harvest.pages(cursor)) as pages:
            async for page in pages:
                yield Piece(list(changes_of(page, self._request, self._rule, self.skip)))
        self.cursor, self.short = self._harvest.next_cursor(cursor), self._harvest.shortfall


# --- what answers at an address -------------------------------------------------------------------

BY_NAMES = (FEED.name, ACTIVITIES.name, OaiSource.kind)
"""Kinds with ways of their own to name resources; all others list them by their addresses."""


def is_another(before: str, now: str, *, by_site: bool) -> bool:
    """Whether something else is found than what was followed until now, as `how` says it, perhaps
    because a page in HTML has come instead.

    What it lists would be published as new, and what was known would be missing. Lists come and go:
    others are another Source only where the site offers them and nothing at the address leads to
    them any more.
    """
    if not before or now == before:
        return False
    kinds = {how.partition(":")[0] for how in (before, now)}
    return by_site or (len(kinds) > 1 and not kinds.isdisjoint(BY_NAMES))


async def find_source(webs: Webs, url: str, rule: LocRule) -> SourceAdapter:
    """Raises `Refused` where nothing that can be followed answers."""
    web = webs.polite
    if url.startswith(PREFIX):
        return await OaiSource.find(web, url, rule)
    page = None if url.startswith(SOCKETS) else await web.page(url)
    body = page.body if page is not None and page.status == 200 else b""
    if IS_OAI.search(body[:BEGINNING_BYTES]):
        return await OaiSource.find(web, PREFIX + url, rule)
    for kind in (FEED, ACTIVITIES):
        if kind.is_in(body):
            return FeedSource(web, url, kind, body)
    is_topic = TOPIC.is_in(body)
    try:
        offered = await discover(web, url)
    except Refused:
        if not is_topic:
            raise
        offered = Capabilities(url, topic=url)
    if is_topic and not (offered.socket or offered.changelist):
        return FeedSource(web, url, TOPIC, body)
    if offered.socket or offered.topic:
        return ChannelSource(web, webs.channel, offered)
    return ListedSource(web, offered)
