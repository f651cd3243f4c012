"""A Source's Change Lists, read from a position on: the archive, closed lists, the open one.

Rules that hold here: lists must join one another; where one is missing, `HistoryGone` says so. A
list that cannot be read is skipped and named. One that is unchanged since it was read to its end
costs one 304.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import islice
from math import inf
from time import time
from typing import NamedTuple

import msgspec

from rsnotify.errors import Error, Rejected
from rsnotify.resourcesync.change import MICROSECONDS, Change, Position
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify.resourcesync.stream import Head
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.address import joined, without_tokens
from rsnotify_client.documents import IndexWalk, Malformed, RemoteDocument
from rsnotify_client.lists import ListVisitor, read_list
from rsnotify_client.moments import ChangeOrder, Furthest, believed, is_ahead
from rsnotify_client.notification import Received, position_of, timed_changes
from rsnotify_client.web import Tag, Unchanged, Web

log = logging.getLogger(__name__)

AT_ONCE = 1_000
TIMED = ("changelist", "changedump-manifest")
SAME_TIME = "{} and {} say that they are of the same time: give each its own, or name one of them"
NOWHERE = Position(0), Position(0)
"""As `ChangeLists.gone_to`: nothing was read before."""
POLL_SECONDS = 60.0  # between two readings, if there is no channel


class HistoryGone(Error):
    """The Change Lists do not have all changes that followed the cursor."""

    def __init__(self, cursor: Position, begins: Position) -> None:
        super().__init__(
            f"the Change Lists begin at {begins}, after the cursor {cursor}: "
            "copy the Resource List again and follow from its `at`"
        )
        self.begins = begins


class SetBack(HistoryGone):
    """The Change Lists, or the channel, do not have any more what was read of them before."""

    def __init__(self, problem: str, cursor: Position) -> None:
        super().__init__(cursor, cursor)
        self.args = (problem,)


class ListRef(NamedTuple):
    """A Change List as an index or an archive names it."""

    loc: str
    from_: Position | None
    until: Position | None
    modified: Position | None = None


class ReadTo(NamedTuple):
    """What is known of a list that was read to its end."""

    tag: Tag
    position: Position
    skipped: Sequence[str] = ()  # reported once, however often it is read again


# Deciding ---------------------------------------------------------------------------------------


def list_ref(url: str, entry: Entry, now: float = inf) -> ListRef:
    """The list that an entry of an index or an archive at this address names."""
    md = entry.md or Md()
    times = (believed(each, now) for each in (md.from_, md.until, entry.lastmod))
    return ListRef(joined(url, entry.loc), *times)


def oldest_first(refs: Sequence[ListRef]) -> list[ListRef]:
    """In the order of their beginnings, if each says its own."""
    begins = [ref.from_ for ref in refs if ref.from_ is not None]
    if len(begins) < len(refs):
        return list(refs)
    return sorted(refs, key=lambda ref: (ref.from_ or 0, ref.until or inf))


def of_one_time(refs: Iterable[ListRef]) -> Iterator[tuple[ListRef, ListRef]]:
    """Closed lists at several addresses that say the same beginning and end."""
    known: dict[tuple[Position | None, Position], ListRef] = {}
    for ref in refs:
        if ref.until is not None:
            first = known.setdefault((ref.from_, ref.until), ref)
            if first.loc != ref.loc:
                yield first, ref


def beginning(refs: Sequence[ListRef]) -> Position | None:
    """The position from which these lists have every change, if they state it."""
    return min((ref.from_ for ref in refs if ref.from_ is not None), default=None)


def lists_after(refs: Sequence[ListRef], cursor: Position | None) -> list[ListRef]:
    """Those that may have changes after the cursor; `HistoryGone` where they do not join."""
    if cursor is None:
        return list(refs)
    found, reached = [], cursor
    for ref in refs:
        ended = ref.until or (ref.modified if ref.from_ is None else None)
        if ended is not None and _second_end(ended) < cursor:
            continue
        if ref.from_ is not None and ref.from_ > reached:
            raise HistoryGone(reached, ref.from_)
        reached = max(reached, ref.until or reached)
        found.append(ref)
    return found


def _second_end(ended: Position) -> Position:
    """The last moment that an end may mean: in whole seconds, any of its second."""
    return Position(ended if ended % MICROSECONDS else ended + MICROSECONDS - 1)


def is_untimed(entries: Sequence[Entry]) -> bool:
    """Whether the list says of no change when it happened; `lastmod` may be of what was deleted."""
    return not any(entry.md and entry.md.datetime for entry in entries)


def written_at(modified: str | None) -> Position | None:
    """The latest moment that `Last-Modified` can mean, as it has whole seconds."""
    seconds = date_seconds(modified)
    return Position(int(seconds) * MICROSECONDS + MICROSECONDS - 1) if seconds else None


def closed_at(first: Head, last: Head, now: float = inf) -> Position | None:
    """The position up to which a list has every change, by its first page and its last.

    Each page says where it ends itself, or all say where the list does; where a list is made while
    its pages are asked for, the first page says it earliest.
    """
    until = believed(first.md.until, now)
    begins = believed(last.md.from_, now)
    if until is None or (begins is not None and begins >= until):
        return believed(last.md.until, now)
    return until


# Fetching ---------------------------------------------------------------------------------------


class Skipping(ListVisitor):
    """Names entries and parts that cannot be read, and goes on."""

    def __init__(self, skip: Callable[[str], object]) -> None:
        self._skip = skip

    def skipped(self, url: str, what: str) -> None:
        self._skip(f"{url}: {what}")

    def misnamed(self, what: str) -> None:
        self._skip(what)


class ChangeLists:
    """The Change Lists of one Source."""

    is_in_package = False  # whether the changes come from a package that is not kept yet

    def __init__(
        self,
        web: Web,
        url: str,
        archive: str | None = None,
        *,
        skip: Callable[[str], object] | None = None,
    ) -> None:
        self._web = web
        self._skip = skip or log_skipped
        self._url = url
        self._archive = archive
        self.asked: Callable[[str], str] = str
        """The address at which a list is asked for, where a part of it is wanted."""
        self.read: dict[str, ReadTo] = {}
        """The lists that were read to their end, to be kept for the next run."""
        self._said: dict[str, ListRef] = {}  # of their times, by the lists themselves
        self._begins: dict[str, Position | None] = {}  # of lists, where no index says it
        self.gone_to: tuple[Position, Position] | None = None
        """The newest change that the lists have had, and the newest end, for the next run; where
        they are set, at first to 0, `SetBack` is raised."""
        self._extent = Furthest()
        self._index: tuple[Tag, list[ListRef]] | None = None
        self._stands_alone = False

    async def after(self, cursor: Position | None) -> AsyncGenerator[Received, None]:
        """All changes from the cursor on, those at the cursor included, oldest first.

        A list may be closed after its index was read, so where they do not join, read both again.
        """
        for is_again in (False, True):
            try:
                async with aclosing(self._after(cursor)) as pieces:
                    async for received in pieces:
                        cursor = max(received.until, cursor or received.until)
                        yield received
                return
            except HistoryGone as error:
                if is_again or isinstance(error, SetBack):
                    raise
                self._index, self._stands_alone = None, False

    async def _after(self, cursor: Position | None) -> AsyncGenerator[Received, None]:
        self._extent = Furthest()
        refs = await self._lists(cursor)
        for number, ref in enumerate(refs, 1):
            try:
                async with aclosing(self._changes(ref.loc, cursor)) as changes:
                    async for received in changes:
                        cursor = max(received.until, cursor or received.until)
                        yield received
            except Malformed as error:
                self._skip(error.detail)
                self._extent.note_unknown()
                if number < len(refs) and ref.until is not None:
                    cursor = max(ref.until, cursor or ref.until)
        for one, other in of_one_time(self._said.get(ref.loc, ref) for ref in refs):
            self._skip(SAME_TIME.format(one.loc, other.loc))
        if len(self.read) > len(refs):  # those behind the cursor are not asked for again
            asked = {ref.loc for ref in refs}
            self.read = {url: read for url, read in self.read.items() if url in asked}
            self._said = {url: said for url, said in self._said.items() if url in asked}
        self._check_extent(cursor)

    def _check_extent(self, cursor: Position | None) -> None:
        if self.gone_to is None:
            return
        found, (change, end) = self._extent, self.gone_to
        if (problem := found.shorter_than(change, end)) is not None:
            self.read.clear()  # unchanged would be: as it was when it was set back
            raise SetBack(f"{self._url}: {problem}", cursor or Position(0))
        self.gone_to = max(change, found.change), max(end, found.end)

    @property
    def furthest(self) -> Position | None:
        """The newest moment that the last reading has found, of a change or an end."""
        return max(self._extent.change, self._extent.end) or None

    async def end(self) -> Received | None:
        """The newest changes, and all of their time: a follower that begins now begins there."""
        last: Received | None = None
        for ref in reversed(await self._lists(None)):
            async with aclosing(self._changes(ref.loc, None)) as pieces:
                async for received in pieces:
                    if received.changes or last is None:
                        last = _at_one_end(last, received)
            if last is not None:
                break
        return last

    async def _lists(self, cursor: Position | None) -> list[ListRef]:
        refs = await self._named()
        begins = beginning(refs)
        if cursor is not None and begins is not None and cursor < begins and self._archive:
            archived = await self._listed(self._archive)
            refs = [*(list_ref(*each, time()) for each in archived), *refs]
        found = lists_after(await self._in_order(refs), cursor)
        for ref in refs:
            if ref not in found:
                ended = ref.until or ref.modified
                self._extent.note_other(ended and _second_end(ended))
        return found

    async def _in_order(self, refs: Sequence[ListRef]) -> list[ListRef]:
        """The oldest first. Where an index says not of each when it begins, the lists are asked:
        what is read of a newer one first would hide all changes of an older one."""
        if len(refs) < 2 or all(ref.from_ is not None for ref in refs):
            return oldest_first(refs)
        begins = list[Position]()
        for ref in refs:
            if (begin := await self._begin_of(ref)) is None:
                return list(refs)
            begins.append(begin)
        return [refs[number] for _, number in sorted(zip(begins, range(len(refs)), strict=True))]

    async def _begin_of(self, ref: ListRef) -> Position | None:
        """By its index, else by its own head; None if it cannot be read, which is said later."""
        if ref.from_ is not None or ref.loc in self._begins:
            return ref.from_ or self._begins[ref.loc]
        document = RemoteDocument(self._web, self._address_of(ref.loc))
        try:
            async with aclosing(aiter(document)) as pieces:
                await anext(pieces, None)
        except Rejected:
            return None
        begin = beginning_of(document.head, None, document.now)
        if begin is None or document.head.md.until is not None:
            self._begins[ref.loc] = begin  # an open one may be another at the same address later
        return begin

    async def _named(self) -> list[ListRef]:
        """What the index names; or the only list that there is, or its index."""
        if self._stands_alone:
            return [ListRef(self._url, None, None)]
        known, refs = self._index or (None, [])
        document = RemoteDocument(self._web, self._url, known)
        found: list[Entry] = []
        try:
            async with aclosing(aiter(document)) as pieces:
                async for entries in pieces:
                    if document.head.root == "urlset":
                        break
                    found += entries
        except Unchanged:
            return refs
        if document.head.root == "urlset":
            return await self._around(document)
        refs = self._refs(self._url, found, document.now)
        self._index = document.tag, refs
        return refs

    def _refs(self, url: str, entries: Sequence[Entry], now: float) -> list[ListRef]:
        """What an index names, which is nothing yet at a Source that has never changed."""
        walk = IndexWalk(url)
        next(walk)
        for wrong in walk.under([entry.loc for entry in entries]) if entries else ():
            self._skip(wrong)
        named, parts = (list_ref(url, entry, now) for entry in entries if entry.loc), {*walk}
        return [ref for ref in named if ref.loc in parts]

    async def _around(self, document: RemoteDocument) -> list[ListRef]:
        """A list stands alone, unless it names the index that it belongs to."""
        head, now = document.head, document.now
        index = head.link("index")
        if index is None or joined(self._url, index) == self._url:
            self._stands_alone = True
            until = None if head.link("next") else believed(head.md.until, now)
            return [ListRef(self._url, believed(head.md.from_, now), until)]
        self._url = joined(self._url, index)
        return await self._named()

    async def _listed(self, url: str) -> list[tuple[str, Entry]]:
        """What a document, or each document of an index, lists; each entry with its address."""
        listed = list[tuple[str, Entry]]()
        async with aclosing(read_list(self._web, Skipping(self._skip), url)) as pieces:
            async for piece in pieces:
                listed += [(piece.document.url, entry) for entry in piece.entries]
        return listed

    def _address_of(self, url: str) -> str:
        """Where the list is that an index names by this URL."""
        return url

    async def _changes(self, url: str, cursor: Position | None) -> AsyncGenerator[Received, None]:
        """Those of a list; or of the lists of an index under the index."""
        walk = IndexWalk(url, index="" if self._stands_alone else self._url)
        for each in walk:
            try:
                async with aclosing(self._changes_in(each, cursor, walk)) as pieces:
                    async for received in pieces:
                        yield received
            except Malformed as error:
                if each == url:  # whoever named it may know where it ends
                    raise
                self._skip(error.detail)
                self._extent.note_unknown()

    async def _changes_in(
        self, url: str, cursor: Position | None, walk: IndexWalk
    ) -> AsyncGenerator[Received, None]:
        read = self.read.get(url)
        is_known = read is not None and cursor is not None and cursor >= read.position
        known = read.tag if read and is_known else None
        document = RemoteDocument(self._web, self.asked(self._address_of(url)), known)
        before: Position | None = None
        is_timeless = False
        try:
            parts = list[Entry]()
            async with aclosing(_ordered(document, parts)) as pieces:
                async for entries in pieces:
                    if self.gone_to is not None:
                        self._extent.note_changes(entries, document.now)
                    begin = before or beginning_of(document.head, cursor, document.now)
                    if before is None and is_untimed(entries):
                        has_times = any(each.lastmod for each in entries)
                        if begin is None or not (has_times or cursor is None or begin >= cursor):
                            written = written_at(document.modified)
                            is_timeless = written is None and not has_times
                            begin = written or begin
                    for received in stretches(entries, begin, cursor, document.skip, document.now):
                        yield received
                        before = received.until
        except Unchanged:
            self._extent.note_other(read and read.position)
            return
        if document.head.root == "sitemapindex":
            await self._go_under(walk, document, parts)
            return
        if is_timeless:
            document.skip("it does not say when anything changed: give each change a datetime")
        for wrong in ahead_in((document.head, document.last_head), document.now):
            document.skip(wrong)
        for skipped in document.skipped:
            if read is None or skipped not in read.skipped:
                self._skip(f"{document.url}: {skipped}")
        closed = closed_at(document.head, document.last_head, document.now)
        begun = beginning_of(document.head, cursor, document.now)
        self._said[url] = ListRef(url, begun, closed)
        self._extent.note_other(begun)
        self._extent.note_until(document.head.md.until, document.now)
        self._extent.note_until(document.last_head.md.until, document.now)
        self._stands_alone &= not (closed and document.head.link("index"))
        end = closed or before or begun
        if end is not None:
            yield Received(b"", before or end, max(end, before or end), ())
            self.read[url] = ReadTo(document.tag, max(end, cursor or end), document.skipped)

    async def _go_under(
        self, walk: IndexWalk, index: RemoteDocument, parts: Sequence[Entry]
    ) -> None:
        """What was read is an index: read its lists next, in the order of their times."""
        named = [list_ref(walk.url, each, index.now) for each in parts if each.loc]
        refs = await self._in_order(named)
        nameless = [each.loc for each in parts if not each.loc]
        skipped = [f"{walk.url}: {each}" for each in index.skipped]
        for wrong in (*skipped, *walk.under([*(ref.loc for ref in refs), *nameless])):
            self._skip(wrong)
            self._extent.note_unknown()


async def _ordered(
    document: RemoteDocument, parts: list[Entry]
) -> AsyncGenerator[list[Entry], None]:
    """The changes of a list in the order of their times; of an index, the parts, which are none."""
    order = ChangeOrder(document.skip)
    async with aclosing(aiter(document)) as pieces:
        async for entries in pieces:
            if document.head.root == "sitemapindex":
                parts += entries
            elif ordered := order.feed(entries):
                yield ordered
    if rest := order.close():
        yield rest


def log_skipped(what: str) -> None:
    """Report a list that cannot be read."""
    log.warning("skipped: %s", without_tokens(what))


def ahead_in(heads: Iterable[Head], now: float) -> list[str]:
    """What is wrong with lists that say a beginning or an end that is yet to come."""
    times = dict.fromkeys(each for head in heads for each in (head.md.from_, head.md.until))
    said = "it says that it is of {}, which has not come yet: correct it, or the clock"
    return [said.format(each) for each in times if is_ahead(each, now)]


def beginning_of(head: Head, cursor: Position | None, now: float = inf) -> Position | None:
    begin = believed(head.md.from_, now) if head.md.capability in TIMED else None
    if begin is not None and cursor is not None and begin > cursor:
        raise HistoryGone(cursor, begin)
    return begin


def stretches(
    entries: Sequence[Entry],
    begin: Position | None,
    cursor: Position | None,
    skip: Callable[[str], object],
    now: float = inf,
) -> Iterable[Received]:
    """The changes of entries from the cursor on, in pieces that join."""
    timed = (
        (_at_cursor(when, change, cursor), change)
        for when, change in timed_changes(entries, begin, skip, partial(is_ahead, now=now))
    )
    while piece := list(islice(timed, AT_ONCE)):
        until = piece[-1][0]
        if cursor is None or until >= cursor:
            changes, positions = tuple(each[1] for each in piece), tuple(each[0] for each in piece)
            yield Received(b"", begin or positions[0], until, changes, positions)
        begin = until


def _at_one_end(before: Received | None, received: Received) -> Received:
    """What is received, with what came before it if that ends at the same time."""
    if before is None or before.until != received.until:
        return received
    changes, positions = before.changes + received.changes, before.positions + received.positions
    return msgspec.structs.replace(received, changes=changes, positions=positions)


def _at_cursor(when: Position, change: Change, cursor: Position | None) -> Position:
    """A time in whole seconds may be any moment of its second: at the cursor, if that is in it."""
    if cursor is None or not when < cursor < when + MICROSECONDS:
        return when
    is_whole = position_of(change.datetime) == when and "." not in (change.datetime or ".")
    return cursor if is_whole else when
