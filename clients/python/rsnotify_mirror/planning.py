"""Plan what a mirror has to do: from the beginning (`Baseline`), and from the cursor on.

Rules that hold here: work is recorded before it is done, and the cursor with it, in one
transaction. A document that cannot be read does not stop the rest: it is named, the copy is not
whole, and a new baseline looks for what it may have listed. An incomplete baseline deletes nothing;
one that would delete too much deletes nothing either, and counts as incomplete. So does one of a
Source that was set back: what its lists leave out is asked for by the next one.
"""

import asyncio
import logging
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import starmap
from time import time
from typing import TypeVar
from urllib.parse import urljoin

import msgspec

from rsnotify.errors import CloseCode, InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.delete_guard import too_many
from rsnotify.resourcesync.stream import Head
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import canonical, joined, without_tokens
from rsnotify_client.answer import asking
from rsnotify_client.changelists import NOWHERE, ChangeLists, HistoryGone, ReadTo, SetBack
from rsnotify_client.discovery import Capabilities, discover, of_known
from rsnotify_client.dumps import RemotePackages, lists_of, package_of
from rsnotify_client.follower import READ_BEFORE, Follower, Timeline
from rsnotify_client.lists import ListPiece, ListVisitor, read_list
from rsnotify_client.missing import kept_back, probe_locs
from rsnotify_client.moments import ahead_of_its_time, is_ahead, is_one_moment, set_back
from rsnotify_client.moved import is_one_site, moved_by, moved_to, renamed
from rsnotify_client.notification import NoChannel, Received, position_of
from rsnotify_client.resource import SourceResource
from rsnotify_client.web import Refused, Tag, Web
from rsnotify_mirror.paths import Map
from rsnotify_mirror.plan import (
    SOURCE_BACKOFF,
    Options,
    newest,
    pause_after,
    wanted_by,
)
from rsnotify_mirror.report import NOT_READ, NOT_WHOLE, Event, Report
from rsnotify_mirror.selection import Selection, as_words
from rsnotify_mirror.state import FILLED, GIVEN, HELD_BACK_SECONDS, READ, State

log = logging.getLogger(__name__)

BAD_REQUEST, NOT_FOUND = 400, 404
NEVER_READ = (
    "{}; the Source names this as its channel: ask it to mend that, or copy without it, by --once. "
    "The copy stays as it is"
)
DISCOVERY_ATTEMPTS = 4
LIST_ATTEMPTS = 3  # to read the Change Lists
ATTEMPTS = 4  # to read one list
READINGS = 4  # of lists whose pages move
MOVED = "{}: its pages moved each of the {} times that they were read: some may be missing"
LISTS_REMEMBERED = 20
READ_AGAIN = "all is read again, and nothing that is only missing is deleted in this run"
LISTED = "listed_at"  # the moment of the last Resource List, as it says
GONE_TO = "gone_to"  # see `ChangeLists.gone_to`
HEARD = "heard"  # the end of the newest notification that came over a channel
PENDING = "pending"  # the deletions of a baseline, until the changes since are read
OF_LISTS = ("cursor", "baseline", "incomplete", "lists", LISTED, GONE_TO, HEARD)
"""What is known of the lists and the channel of a Source at its address."""


Found = TypeVar("Found")


async def found_at(url: str, find: Callable[[], Awaitable[Found]], known: Collection[str]) -> Found:
    """What is found at the address of a Source; asked for again if there is no answer.

    Where the address is known, what is wrong may pass: `TryAgain`. Else it is `Refused`.
    """
    attempt = 0
    with of_known(url, known):
        while True:
            try:
                return await find()
            except TryAgain as error:
                attempt += 1
                if attempt >= DISCOVERY_ATTEMPTS and known:
                    raise TryAgain(asking(error.detail, "is the Source running?")) from None
                if attempt >= DISCOVERY_ATTEMPTS:
                    raise Refused(asking(error.detail, "is the address right?")) from None
                await asyncio.sleep(pause_after(error, attempt))


class Planner:
    """Plans the work of one mirror; `wake` is called when there is something to do."""

    def __init__(
        self,
        url: str,
        web: Web,
        state: State,
        options: Options,
        *,
        packages: RemotePackages,
        report: Report,
        wake: Callable[[], None],
    ) -> None:
        self.url = url
        self.state = state
        self._web = web
        self._options = options
        self._packages = packages
        packages.when_kept = self._kept
        self._reached: Position | None = None  # by changes in packages that are not unpacked yet
        self._report = report
        self._wake = wake
        self._offered: Capabilities  # once it is prepared
        self._lists: ChangeLists | None = None
        self._follower: Follower | None = None
        self._trouble: str | None = NOT_READ
        self._asked = options.selection.wanted  # of its channel
        self._known: Timeline | None = None  # what the lists have had since the first reading
        self._extent: tuple[Position, Position] | None = None  # of the Change Lists, as recorded
        self._until_read_again: asyncio.Timeout | None = None  # while it follows
        self._was_known = False  # when it was last looked for
        self._is_missing = False  # though it was read before; how often in a row
        self._times_missing = 0
        self._was_set_back = False  # by its Change Lists, which the next baseline is to know

    async def prepare(self, offered: Capabilities | None = None) -> None:
        """Find the Source, unless it is found, and see that this directory is its mirror."""
        if offered is None:
            known = self.state.known_addresses
            self._was_known = self.state.fact(READ) is not None
            offered = await found_at(self.url, partial(discover, self._web, self.url), known)
        self._offered = offered
        await self._claim_source(offered.url)
        self.state.set_fact(GIVEN, self._web.network.source or self.url)
        self._claim_maps()
        self._select(self._options.selection)
        if self._offered.doubt is not None:
            self.state.set_fact("incomplete", "1")  # the baseline says why
        self._lists = lists_of(self._web, self._offered, skip=self._skip, packages=self._packages)
        if self._lists is not None:
            self._recall_lists(self._lists)
        self.state.commit()

    async def bring_up_to_date(self) -> bool:
        """Read on from the cursor, or everything from the beginning; whether all could be read."""
        is_begun = self.state.cursor is not None and self.state.fact("incomplete") is None
        if is_begun and self._lists is not None and self.state.cursor is not None:
            try:
                return await self._catch_up(self._lists, self.state.cursor)
            except HistoryGone as error:
                self._note_gone(error)
        return await self._baseline()

    async def follow(self) -> bool:
        """Plan what the Source publishes, as long as the mirror runs."""
        while True:
            try:
                if self._is_missing:
                    await self.prepare()  # what it offers may be elsewhere now
                    self._is_missing = False
                if self.state.cursor is None or self.state.fact("incomplete") is not None:
                    await self._baseline()
                self._trouble = None
                await self._follow_until_read_again()
            except TimeoutError:
                log.info("reading again what could not be read")
            except HistoryGone as error:
                self._note_gone(error)
            except Rejected as error:
                if self._asks_for_more(error):
                    continue
                if self._will_pass(error):
                    await self._wait_out(READ_BEFORE.format(error.detail))
                    continue
                if isinstance(error, NoChannel):
                    raise Rejected(NEVER_READ.format(error.detail), status=error.status) from None
                if error.status != NOT_FOUND and error.close_code != CloseCode.NO_SUCH_SET:
                    raise
                why = f"{error.detail}; it may have been removed. The copy stays as it is"
                raise Rejected(why, status=error.status) from None
            except TryAgain as error:
                self._trouble = error.detail
                log.warning("%s; trying again", error.detail)
                await asyncio.sleep(pause_after(error, 0, SOURCE_BACKOFF))

    def _will_pass(self, error: Rejected) -> bool:
        """Whether what was read before is only not there: no hub has said that its set is gone."""
        is_missing = isinstance(error, Refused) and error.status == NOT_FOUND
        if not is_missing and not (isinstance(error, NoChannel) and error.may_pass):
            return False
        has_read = self._follower is not None and self._follower.has_read
        is_list_read = isinstance(error, Refused) and self._is_whole  # by the baseline
        return self._was_known or has_read or is_list_read

    async def _wait_out(self, problem: str) -> None:
        """Name it, and wait: longer each time in a row."""
        if self._follower is not None:
            self._times_missing *= not self._follower.has_read
            self._follower.trouble = problem
        self._report(Event("trouble", problem=problem))
        pause = pause_after(TryAgain(problem), self._times_missing, SOURCE_BACKOFF)
        self._is_missing, self._times_missing = True, self._times_missing + 1
        await asyncio.sleep(pause)

    async def _follow_until_read_again(self) -> None:
        async with asyncio.timeout(None) as limit:
            self._until_read_again = limit
            try:
                self._plan_reading_again()
                await self._follow_where_it_is()
            finally:
                self._until_read_again = None

    async def _follow_where_it_is(self) -> None:
        """Follow the Source until it says that it is elsewhere: a person decides about that."""
        tasks = [asyncio.create_task(each) for each in (self._follow(), self._keep_looking())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                await each
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_looking(self) -> None:
        """Ask for its Capability List: soon while it cannot be followed, seldom while it can."""
        looked = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(self._options.poll_seconds)
            now, known = asyncio.get_running_loop().time(), self.state.fact("source")
            is_well = self._follower is None or self._follower.trouble is None
            if known is None or (is_well and now - looked < self._options.relist_seconds):
                continue
            looked = now
            with suppress(TryAgain, Rejected):
                if (to := await moved_to(self._web, known)) is not None:
                    self._check_site(known, to)

    def _asks_for_more(self, error: Rejected) -> bool:
        """Whether a hub that lets nobody ask for types is asked for all of them instead."""
        selection = self._options.selection
        is_of_filter = error.status == BAD_REQUEST or error.close_code == CloseCode.BAD_REQUEST
        if not is_of_filter or not selection.looks_back or self._asked == selection.by_address:
            return False
        log.warning("%s; the mirror receives all, and takes what fits", error.detail)
        self._asked = selection.by_address
        return True

    def _plan_reading_again(self) -> None:
        """What could not be read is read again after a while, once."""
        limit = self._until_read_again
        if limit is not None and limit.when() is None and not self._is_whole:
            limit.reschedule(asyncio.get_running_loop().time() + self._options.relist_seconds)

    @property
    def trouble(self) -> str | None:
        """Why it is not certain that the Source has been read up to now; None if it is."""
        if self._trouble is not None or not self._is_whole:
            return self._trouble or NOT_WHOLE
        return None if self._follower is None else self._follower.trouble

    @property
    def has_place(self) -> bool:
        """Whether there are Change Lists to read again, and a place in them."""
        return self._lists is not None and self.state.cursor is not None

    async def is_news(self) -> bool:
        """Whether the Change Lists have something that was not known."""
        lists, cursor = self._lists, self.state.cursor
        if lists is None or cursor is None:
            return False
        if self._known is None:
            self._known = Timeline(cursor)
        try:
            return await self._read_on(lists, self._known)
        except (HistoryGone, TryAgain, Rejected) as error:
            log.info("%s", error)
            return self.state.cursor != cursor

    # --- prepare ----------------------------------------------------------------------------------

    async def _claim_source(self, url: str) -> None:
        """A Source that has moved within its site is followed; to another host if we are told."""
        if (known := self.state.claim("source", url)) is None:
            return
        if self._options.moved_from is not None:
            await self._move(known, self._options.moved_from, url)
            return
        to = await moved_to(self._web, known)
        if to is None or canonical(to) != canonical(url):
            directory = self.state.directory
            raise InvalidSettings(
                f"{directory} is the mirror of {known}: give that address, "
                f"or take another directory for a copy of {url}; or, if the Source has moved "
                f"there, run once: {self._words_to_move(known, url)}"
            )
        self._check_site(known, to)
        log.info("%s has moved to %s", known, url)
        self.state.set_fact("source", url)

    def _check_site(self, known: str, to: str) -> None:
        """Whoever has an old domain now must not take the copy along."""
        if not is_one_site(known, to):
            raise InvalidSettings(
                f"{known} is redirected to {to}, at another host or less safely, which is not "
                f"believed: if {self.state.directory} is to follow it there, run once: "
                f"{self._words_to_move(known, to)}"
            )

    def _words_to_move(self, known: str, url: str) -> str:
        return shlex.join(("rsnotify", "mirror", "--moved", known, url, str(self.state.directory)))

    async def _move(self, known: str, moved_from: str, url: str) -> None:
        """The copy is one of the Source at this address from now on."""
        old, new = renamed(moved_from, self.url)
        if canonical(moved_from) == canonical(known):
            old, new = renamed(known, url)
        elif moved_by(known, old, new) is None:
            raise InvalidSettings(
                f"{self.state.directory} is the mirror of {known}, not of {moved_from}"
            )
        has_new = await self._names_by(new)
        count = self.state.move(old, new, self._options.maps) if has_new else 0
        self.state.set_fact("source", url)
        for name in OF_LISTS:
            self.state.set_fact(name, None)
        self.state.commit()
        log.info("%s has moved to %s: %d resources have a new address", known, url, count)

    async def _names_by(self, new: str) -> bool:
        """Whether the Source's lists name resources by the new address: else only they have moved,
        and the resources are where they were."""
        url = self._offered.resourcelist or self._offered.changelist
        if url is None:
            return True
        visitor = BaselineVisitor(lambda _: None, {})
        async with aclosing(read_list(self._web, visitor, url, locate=_joined)) as pieces:
            async for piece in pieces:
                if locs := [each.loc for each in piece.entries if each.loc and not piece.is_index]:
                    return any(moved_by(loc, new, new) is not None for loc in locs)
        return True

    def _claim_maps(self) -> None:
        directory = self.state.directory
        maps = msgspec.json.encode(self._options.maps).decode()
        if (other := self.state.claim("maps", maps)) is not None:
            raise InvalidSettings(
                f"{directory} was made with another --map: give {_maps_in_words(other)}, "
                "or take another directory"
            )

    def _select(self, selection: Selection) -> None:
        """A changed selection needs a new baseline, and may not remove too much."""
        is_known = self.state.fact("selection") is not None
        if is_known and self.state.selection == selection:
            return
        if is_known:
            self._check_removals(selection)
            self.state.set_fact("cursor", None)
        self.state.set_fact("selection", msgspec.json.encode(selection).decode())

    def _check_removals(self, selection: Selection) -> None:
        """Count what the copy has and the selection leaves out; what the Source deletes may go."""
        counted = Counter(starmap(selection.has, self.state.held()))
        what, allowed = f"resources of {self.state.directory}", self._options.max_delete
        refusal = too_many(counted[False], counted.total(), allowed, what)
        if refusal is not None:
            raise InvalidSettings(f"{selection} would remove {refusal}")

    def _recall_lists(self, lists: ChangeLists) -> None:
        known = msgspec.json.decode(
            self.state.fact("lists") or "[]", type=list[tuple[str, str | None, str | None, int]]
        )
        for url, etag, modified, position in known:
            lists.read[url] = ReadTo(Tag(etag, modified), Position(position))
        gone_to = msgspec.json.decode(self.state.fact(GONE_TO) or "[0,0]", type=tuple[int, int])
        lists.gone_to = self._extent = Position(gone_to[0]), Position(gone_to[1])

    def _remember_lists(self, lists: ChangeLists) -> None:
        newest = sorted(lists.read.items(), key=lambda item: item[1].position)[-LISTS_REMEMBERED:]
        known = [
            (url, read.tag.etag, read.tag.modified, int(read.position)) for url, read in newest
        ]
        self.state.set_fact("lists", msgspec.json.encode(known).decode())
        self._keep_extent()
        self.state.commit()

    def _keep_extent(self) -> None:
        found = None if self._lists is None else self._lists.gone_to
        if found is not None and found != self._extent:
            self._extent = found
            self.state.set_fact(
                GONE_TO, msgspec.json.encode([int(each) for each in found]).decode()
            )

    def _note_gone(self, error: HistoryGone) -> None:
        """Changes are missing, so all is to be read again. A Source that was set back is named, and
        its lists go only as far as they do now."""
        self.state.set_fact("cursor", None)
        if isinstance(error, SetBack):
            self._was_set_back = True
            self._skip(f"{error}; {READ_AGAIN}")
            self.state.doubt_times()
            self.state.set_fact(HEARD, None)
            if self._lists is not None:
                self._lists.gone_to = NOWHERE
                self._keep_extent()
        else:
            log.info("%s", error)

    # --- from the beginning -----------------------------------------------------------------------

    async def _baseline(self) -> bool:
        self.state.set_fact("cursor", None)
        self.state.set_fact("incomplete", None)
        baseline = Baseline(
            *(self._web, self._offered, self.state, self._options, self._packages, self._report)
        )
        baseline.is_complete = not self._was_set_back
        self._was_set_back = False
        at = await baseline.plan(self._lists)
        self._keep_extent()
        lists = self._lists if at is not None and baseline.is_of_resources else None
        if lists is None and self._is_whole:
            await baseline.plan_deletions()
        self._report(baseline.summary())
        self.state.set_fact("cursor", None if at is None else str(at))
        self.state.set_fact("baseline", None if at is None else str(at))
        self._note_whole(PENDING if baseline.is_complete and self._is_whole else "1")
        if lists is not None and at is not None:
            if not await self._join(lists, baseline, at):
                self.state.set_fact("incomplete", "1")
            elif self._is_whole:
                await baseline.plan_deletions()  # only now: the changes since are recorded
        is_whole = baseline.is_complete and self._is_whole
        if self.state.fact(READ) is None:
            self.state.set_fact(READ, str(time()))
        self._note_whole(None if is_whole else "1")
        return is_whole

    async def _join(self, lists: ChangeLists, baseline: "Baseline", at: Position) -> bool:
        """Read the Change Lists from the baseline on, also where they do not join."""
        while True:
            try:
                return await self._catch_up(lists, at)
            except SetBack as error:
                self._note_gone(error)
                self._was_set_back = False
                self.state.set_fact("cursor", str(at))
            except HistoryGone as error:
                if error.begins <= at:
                    raise
                if (gap := baseline.gap_before(error.begins, at)) is not None:
                    self._skip(gap)
                at = error.begins
                self.state.set_fact("cursor", str(at))
                self.state.set_fact("baseline", str(at))

    @property
    def _is_whole(self) -> bool:
        """Whether everything up to the cursor could be read, as far as is known yet."""
        return self.state.fact("incomplete") in (None, PENDING)

    def _note_whole(self, incomplete: str | None) -> None:
        self.state.set_fact("incomplete", incomplete)
        self.state.commit()
        self._wake()

    def _skip(self, problem: str) -> None:
        """Something cannot be read: the next baseline has to find its changes."""
        self.state.set_fact("incomplete", "1")
        self._report(Event("skipped", problem=problem))
        self._plan_reading_again()

    # --- from the cursor on -----------------------------------------------------------------------

    async def _catch_up(self, lists: ChangeLists, cursor: Position) -> bool:
        """Record what the Change Lists have after the cursor; whether all could be read."""
        self._known = Timeline(cursor)
        for attempt in range(LIST_ATTEMPTS):
            try:
                await self._read_on(lists, self._known)
            except TryAgain as error:
                if attempt + 1 < LIST_ATTEMPTS:
                    await asyncio.sleep(pause_after(error, attempt))
                    continue
                self._report(Event("skipped", problem=error.detail))
            except Rejected as error:
                self._report(Event("skipped", problem=error.detail))
            else:
                return self._is_whole
            finally:
                self._kept()
            return False
        return False

    async def _read_on(self, lists: ChangeLists, known: Timeline) -> bool:
        """Record changes that are not known yet; whether there were any."""
        is_news = False
        async with aclosing(lists.after(known.cursor)) as pieces:
            async for received in pieces:
                if (new := known.new_in(received)) is not None:
                    self._record(new)
                    is_news |= bool(new.changes)
        self._remember_lists(lists)
        return is_news

    async def _follow(self) -> None:
        offered = self._offered
        if self.state.cursor is None or not (offered.socket or offered.topic or self._lists):
            await asyncio.sleep(self._options.relist_seconds)
            self.state.set_fact("cursor", None)
            return
        if not (offered.socket or offered.topic):
            log.info(
                "there is no channel: reading the Change List every %g s",
                self._options.poll_seconds,
            )
        trouble = None if self._follower is None else self._follower.trouble
        self._follower = follower = Follower(
            self.url,
            cursor=self.state.cursor,
            web=self._web,
            offered=offered,
            lists=self._lists,
            poll_seconds=self._options.poll_seconds,
            heard=position_of(self.state.fact(HEARD)),
            when_set_back=self._raise_set_back,
            skip=self._skip,
            transport=self._options.transport,
            wanted=self._asked,
            waits_out=False,
        )
        follower.trouble = trouble  # until this one has read
        if trouble is None:
            self._report(Event("live"))
        async with aclosing(aiter(follower)) as pieces:
            async for received in pieces:
                if follower.heard is not None:
                    self.state.set_fact(HEARD, str(follower.heard))
                self._record(received)

    def _raise_set_back(self, problem: str) -> None:
        raise SetBack(problem, self.state.cursor or Position(0))

    def _record(self, received: Received) -> None:
        """Record changes and cursor in one transaction; with a package, the cursor comes later."""
        is_packed = self._lists is not None and self._lists.is_in_package
        record(self.state, received, self._options.selection, is_held_back=is_packed)
        self._keep_extent()
        if (doubt := self.state.doubt()) is not None:
            self._skip(doubt)
        if is_packed:
            self._reached = received.until
        else:
            self._move_to(received.until)
        self.state.commit()
        if received.changes:
            self._wake()

    def _move_to(self, cursor: Position) -> None:
        if self.state.cursor is None or cursor > self.state.cursor:
            self.state.set_fact("cursor", str(cursor))

    def _kept(self) -> None:
        """The contents of a package are stored: fetch now what it lists and does not have."""
        if self._reached is not None:
            self._move_to(self._reached)
            self._reached = None
        self.state.release(time())
        self.state.commit()
        self._wake()


class Baseline:
    """Plans all that the Source lists, and has its packages unpacked where it offers them."""

    def __init__(
        self,
        web: Web,
        offered: Capabilities,
        state: State,
        options: Options,
        packages: RemotePackages,
        report: Report,
    ) -> None:
        self.is_complete = True
        self.completed: Position | None = None  # when its Source had completed it
        self.listed = self.selected = 0
        self._web = web
        self._offered = offered
        self._state = state
        self._selection, self._max_delete = options.selection, options.max_delete
        self._report = report
        self._packages = packages
        is_empty = state.counts()[0] == 0 or state.fact(FILLED) is not None
        self._fills = is_empty and packages.stores and offered.resourcedump is not None
        self._generation = state.generation + 1
        self._began = time()  # the reading of the lists
        self._now = self._began  # or later, if it is later by the clock of the Source
        self._nameless = 0  # entries that say of no resource what it is
        self._pages = 0  # of which they are
        self._tags: dict[str, Tag] = {}  # by which a list is known to be as it was read
        self._moments: set[str | None] = set()  # of which the lists say that they are
        self._twins: dict[str, tuple[str, str]] = {}  # what they write in two ways, by its name
        self._left = set[str]()  # what they name and has left the part, by its canonical name
        self._has_odd = False  # whether they write anything in another than the canonical way

    @property
    def is_of_resources(self) -> bool:
        """Whether it is read from a list of resources, which changes follow."""
        return (self._offered.resourcelist or self._offered.resourcedump) is not None

    async def plan(self, lists: ChangeLists | None) -> Position | None:
        """Record it as work; return its moment, None if the Source does not state one."""
        self._state.set_fact("generation", str(self._generation))
        if self._offered.doubt is not None:
            self.skip(self._offered.doubt)
        if self._fills and self._state.fact(FILLED) is None:
            self._state.set_fact(FILLED, "[]")
        if self._offered.resourcelist is not None:
            at = await self._all_lists(self._offered.resourcelist)
            if self._fills and self._offered.resourcedump is not None:
                self._state.commit()
                await self._fill(self._offered.resourcedump)
        elif self._offered.resourcedump is not None:
            at = await self._dumps(self._offered.resourcedump)
        elif lists is not None:
            at = await self._changes(lists)
        else:
            raise Refused(
                f"{self._offered.url} offers nothing to copy: no Resource List, Dump or Change List"
            )
        self._say_twins()
        if self._nameless:
            self.skip(f"{self._listing} has entries without <loc>: {self._nameless}")
        if (doubt := self._state.doubt()) is not None:
            self.skip(doubt)
        self.selected = self._state.listed(self._generation)
        self._state.release(time())
        self._state.commit()
        return at

    async def plan_deletions(self) -> None:
        """Plan to delete what is no longer listed and is gone, unless that is too much to be
        believed.

        Call it when the changes since are recorded: what they create is in no list yet.
        """
        if not self.is_complete:
            return
        gone, has = self._state.unlisted(self._generation), self._selection.has
        held = [loc for loc, wanted, is_held in gone if is_held and has(loc, wanted)]
        known = sum(starmap(has, self._state.held()))
        refusal = too_many(len(held), known, self._max_delete, "resources of the copy")
        if refusal is not None:
            self.skip(f"{self._listing} leaves out, and so would delete, {refusal}")
        missing = [loc for loc in held if canonical(loc) not in self._left]
        kept = set(held) if refusal is not None else await self._not_gone(missing)
        deleted = [SourceResource(loc, "deleted") for loc, *_ in gone if loc not in kept]
        self._state.plan(deleted, self._generation, time())
        self._state.commit()

    async def _not_gone(self, missing: Sequence[str]) -> set[str]:
        """Those that no list names and that are not known to be gone: the pages of a list may have
        moved while they were read. What is there is kept; what does not say is asked again."""
        there, unknown = dict[str, str](), dict[str, str]()
        async with aclosing(probe_locs(self._web, missing)) as found:
            async for loc, result in found:
                if not result.is_gone:
                    (there if result.is_there else unknown)[loc] = result.why
        if there:
            first = next(iter(there.values()))
            self._report(Event("kept", problem=kept_back(len(there), first)))
        if unknown:
            self.skip(kept_back(len(unknown), next(iter(unknown.values()))))
        return {*there, *unknown}

    def gap_before(self, begins: Position, at: Position) -> str | None:
        """What is wrong if Change Lists begin after `at`: no list has what changed in between.

        Many a Source lists only what changed after its list was complete.
        """
        if self.completed is not None and begins <= self.completed:
            return None
        return f"what changed from {at} to {begins} is in no list of the Source"

    def summary(self) -> Event:
        """How much is listed, how much of that is selected, and how much is to be done."""
        selection, has_list = str(self._selection), self._offered.resourcelist is not None
        return Event(
            "baseline",
            resources=self.selected if has_list else None,
            to_do=self._state.counts()[1],
            listed=self.listed if has_list and selection else None,
            selection=selection or None,
        )

    def skip(self, problem: str) -> None:
        self.is_complete = False
        self._report(Event("skipped", problem=problem))

    @property
    def _listing(self) -> str | None:
        return self._offered.resourcelist or self._offered.resourcedump or self._offered.changelist

    def _plan(self, entries: Sequence[Entry], *, is_held_back: bool = False) -> None:
        self._nameless += sum(not entry.loc for entry in entries)
        listed = [wanted_by(change_of(entry)) for entry in entries if entry.loc]
        wanted = newest(listed)
        taken = [each for each in wanted if self._selection.takes(each.loc)]
        selected = [each for each in taken if self._selection.fits(each)]
        if len(selected) < len(taken):
            others = (each.loc for each in taken if not self._selection.fits(each))
            self._left.update(self._state.known_of(others))
        self._note_twins([each.loc for each in listed])
        due = time() + HELD_BACK_SECONDS * is_held_back
        self._state.plan(selected, self._generation, due)
        self.listed += len(wanted)

    def _note_twins(self, locs: Sequence[str]) -> None:
        """What is written in two equivalent ways; one of them is not the canonical one."""
        names = {loc: canonical(loc) for loc in locs}
        self._has_odd |= any(loc != name for loc, name in names.items())
        if not self._has_odd:
            return
        written = {name: loc for loc, name in reversed(names.items())}  # how they are written first
        before = self._state.written_in(list(written.values()), self._generation)
        written |= {names[loc]: other for loc, other in before.items()}
        for loc, name in names.items():
            if loc != written[name]:
                self._twins.setdefault(name, (written[name], loc))

    def _say_twins(self) -> None:
        for one, other in self._twins.values():
            what = f"{len(self._twins)} in two equivalent ways, as {one} and {other}"
            log.warning("%s: %s: each is one resource", self._listing, without_tokens(what))
            return

    # Resource Lists -----------------------------------------------------------------------------

    async def _all_lists(self, url: str) -> Position | None:
        """Their moment. Lists whose pages may have moved are read until none has anything more:
        what slipped to a page that was read before is on another one the next time."""
        at = await self._read_lists(url)
        for _ in range(READINGS - 1):
            if not self._may_have_moved or not self.is_complete:
                return at
            known, listed = self._state.listed(self._generation), self.listed
            await self._read_lists(url)
            self.listed = max(listed, self.listed)
            if self._state.listed(self._generation) == known:
                return at
        if self._may_have_moved:
            self.skip(MOVED.format(url, READINGS))
        return at

    async def _read_lists(self, url: str) -> Position | None:
        self._moments.clear()
        self._pages = self.listed = self._nameless = 0
        self._began = time()
        others = [joined(self._offered.url, each) for each in self._offered.other_sitemaps]
        at: Position | None = None
        async for piece in self._read(url, *others):
            head, name = piece.document.head, piece.document.url
            if piece.depth == 0:
                self._note_moment(name, head.md.at)
            self._plan(piece.entries, is_held_back=self._fills)
            if piece.is_end and piece.depth == 0:
                self.completed = position_of(head.md.completed)
                at = self._moment(name, head) if name == url else at
        return None if others else at  # several lists are not one moment: they are read again

    @property
    def _may_have_moved(self) -> bool:
        return self._pages > 1 and not is_one_moment(self._moments, self._began)

    def _moment(self, url: str, head: Head) -> Position | None:
        """Of when a list is; if it says a time that is yet to come, when the reading began."""
        for at in (head.md.at, head.md.from_):
            if (why := ahead_of_its_time(at, self._now)) is not None:
                self.skip(f"{url}: {why}")
                return Position(int(self._began) * MICROSECONDS)
        return position_of(head.md.at) or position_of(head.md.from_)

    def _note_moment(self, url: str, at: str | None) -> None:
        """Name a list that is older than the one before it."""
        if at is None or is_ahead(at, self._now):
            return
        if (problem := set_back(self._state.fact(LISTED), at)) is not None:
            self.skip(f"{url}: {problem}; {READ_AGAIN}")
            self._state.doubt_times()
        if at != self._state.fact(LISTED):
            self._state.set_fact(LISTED, at)

    async def _read(self, *urls: str) -> AsyncIterator[ListPiece]:
        """The entries of lists; what cannot be read is skipped and named."""
        visitor = BaselineVisitor(self.skip, self._tags)
        async with aclosing(read_list(self._web, visitor, *urls, locate=_joined)) as pieces:
            async for piece in pieces:
                document = piece.document
                self._now = document.now
                yield piece
                if piece.is_end and piece.is_whole and not piece.is_index:
                    self._pages += document.pages
                    self._moments |= document.moments
                    self._tags[document.url] = document.tag
        self._pages += visitor.unchanged_count

    async def _changes(self, lists: ChangeLists) -> Position | None:
        """All changes together, which stand for a list of resources where there is none."""
        at, cursor, is_read = None, None, False
        while not is_read:
            try:
                async for received in lists.after(cursor):
                    is_packed = lists.is_in_package
                    record(self._state, received, self._selection, is_held_back=is_packed)
                    at = received.until
                is_read = True
            except SetBack as error:  # raised at the end: all of them are recorded
                self.skip(f"{error}; {READ_AGAIN}")
                self._state.doubt_times()
                lists.gone_to = NOWHERE
                is_read = True
            except HistoryGone as error:  # they do not join: what lies between is lost
                self.skip(f"what changed before {error.begins} is in no list of the Source")
                is_read = cursor is not None and error.begins <= cursor
                at = cursor = error.begins
            except (Rejected, TryAgain) as error:
                self.skip(error.detail)
                is_read = True
        return at

    # Resource Dumps -----------------------------------------------------------------------------

    async def _dumps(self, url: str) -> Position | None:
        """Plan what the manifests list; each package is unpacked with its manifest."""
        at: Position | None = None
        async for head, base, entries in self._packages_of(url):
            self._note_moment(base, head.md.at)
            at, self.completed = self._moment(base, head), position_of(head.md.completed)
            for entry in entries:
                await self._package(base, entry)
        return at

    async def _fill(self, url: str) -> None:
        """Take what the list has out of packages; the rest is fetched one by one.

        A mirror that was killed goes on with the package that it was at.
        """
        is_complete = self.is_complete
        filled = msgspec.json.decode(self._state.fact(FILLED) or "[]", type=list[str])
        async for _, base, entries in self._packages_of(url):
            for entry in entries:
                loc = joined(base, entry.loc)
                if loc not in filled:
                    await self._package(base, entry, is_planned=True)
                    filled.append(loc)
                    self._state.set_fact(FILLED, msgspec.json.encode(filled).decode())
                    self._state.commit()
        self._state.set_fact(FILLED, None)
        self.is_complete = is_complete

    async def _packages_of(self, url: str) -> AsyncIterator[tuple[Head, str, list[Entry]]]:
        """The parts of a Resource Dump; the last has the head of the whole, and where it was."""
        whole: tuple[Head, str, list[Entry]] | None = None
        packages = list[Entry]()
        async for piece in self._read(url):
            packages += piece.entries
            if not piece.is_end:
                continue
            found = piece.document.head, piece.document.url, packages
            packages = []
            if piece.depth == 0:
                whole = found
            else:
                yield found  # read to its end: they may need its connection
        if whole is not None:
            yield whole

    async def _package(self, base: str, entry: Entry, *, is_planned: bool = False) -> None:
        wanted, contents = package_of(base, entry)
        try:
            if is_planned:
                async with self._packages.open(wanted) as package:
                    await self._packages.unpack(wanted, package)
                return
            if contents is not None:
                async for piece in self._read(contents):
                    self._plan(piece.entries, is_held_back=True)
                await self._packages.unpack(wanted, None)
            else:
                async with self._packages.open(wanted) as package:
                    for batch in package.batches():  # not in other threads: see DocumentStream
                        self._plan(batch, is_held_back=True)
                        await asyncio.sleep(0)
                    for refused in package.refused:
                        self.skip(refused)
                    await self._packages.unpack(wanted, package)
        except (Rejected, TryAgain) as error:
            self._packages.forget(wanted)
            self.skip(error.detail)
        if not is_planned:
            self._state.release(time())


class BaselineVisitor(ListVisitor):
    """Goes on where something cannot be read, and names it; asks again where no answer came."""

    def __init__(self, skip: Callable[[str], None], tags: Mapping[str, Tag]) -> None:
        self.unchanged_count = 0
        self._skip = skip
        self._tags = tags

    def known(self, url: str) -> Tag:
        """Since the reading before."""
        return self._tags.get(url, Tag())

    def unchanged(self, url: str) -> None:  # noqa: ARG002
        self.unchanged_count += 1

    def skipped(self, url: str, what: str) -> None:
        self._skip(f"{url}: {what}")

    def misnamed(self, what: str) -> None:
        self._skip(what)

    def unread(self, error: Rejected | TryAgain) -> None:
        self._skip(error.detail)

    async def again(self, error: TryAgain, failures: int) -> bool:
        if failures < ATTEMPTS:
            await asyncio.sleep(pause_after(error, failures))
        return failures < ATTEMPTS


def record(
    state: State, received: Received, selection: Selection, *, is_held_back: bool = False
) -> int:
    """Record changes as work; the newest of several to one resource."""
    pairs = zip(received.changes, received.positions, strict=True)
    changes = [
        wanted_by(change, position, is_live=bool(received.payload))
        for change, position in pairs
        if selection.takes(change.loc)
    ]
    known = state.known_of(each.loc for each in changes) if selection.looks_back else {}
    wanted = newest(selection.part_of(changes, known))
    return state.plan(wanted, state.generation, time() + HELD_BACK_SECONDS * is_held_back)


def _joined(index: str, loc: str) -> str:
    try:
        return urljoin(index, loc)
    except ValueError:
        raise Refused(f"{index} names {loc[:200]!r}, which is no address") from None


def _maps_in_words(maps: str) -> str:
    """The map as options of the command line."""
    pairs = msgspec.json.decode(maps, type=tuple[Map, ...])
    return shlex.join(as_words("--map", map("=".join, pairs))) or "none"
