"""One bridge: look at a Source again and again, record what is different, publish it.

Rules that hold here: what was recorded is published before the next look; an error of one Source is
its own; what the hub refuses for good is reported and skipped, what it cannot take now waits.
"""

import asyncio
import logging
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, closing, suppress
from functools import partial

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import MICROSECONDS, Change
from rsnotify_bridge.comparison import StateComparison
from rsnotify_bridge.memory import BATCH, GONE, BridgeStore, Refusal, batched, decode
from rsnotify_bridge.options import BridgeOptions
from rsnotify_bridge.rules import (
    RELEASE,
    clock_off,
    has_slipped,
    held_back,
    is_from,
    is_outdated,
    key_of,
    next_interval,
    spread,
    with_entry,
)
from rsnotify_bridge.sources import (
    AGAIN_SECONDS,
    MOVING,
    Piece,
    SourceAdapter,
    SourceGap,
    is_another,
)
from rsnotify_bridge.target import HubTarget, TooManyGone
from rsnotify_client.address import without_tokens
from rsnotify_client.answer import HUB_BACKOFF
from rsnotify_client.discovery import of_known
from rsnotify_client.loading import LoadRequest
from rsnotify_client.missing import MissingResource, in_turn, kept_back, probe_all
from rsnotify_client.moments import set_back
from rsnotify_client.notification import position_of
from rsnotify_client.provenance import VIA, publishable
from rsnotify_client.web import Unchanged

log = logging.getLogger(__name__)

DELETED_AT_ONCE = 100  # of those that were asked for, and are gone
HUB_SECONDS, BEAT_SECONDS = 60.0, 10.0
REFUSED = frozenset({400, 409, 413, 422})

ANOTHER = (
    "at {} was read before: {}; what is found there now is another Source: {}; try again later, or "
    "begin with another --state file if that is meant"
)

Take = Callable[[Piece], object]
"""Where a reading hands each piece of a state."""


class Bridge:
    """One Source, one set; `find` says how it is followed."""

    def __init__(
        self,
        options: BridgeOptions,
        find: Callable[[], Awaitable[SourceAdapter]],
        target: HubTarget,
        memory: BridgeStore,
    ) -> None:
        self.name = f"{options.name} to {options.set_name}"
        self.listed = 0
        """How many entries of the Source's lists have been read, one read again included."""
        self.state = memory.bridge(options.name, target.url, options.set_name)
        self._options = options
        self._memory, self._target = memory, target
        self._find = find
        self._adapter: SourceAdapter | None = None
        self._found_at = 0.0
        self._homes: frozenset[str] = frozenset()
        self._publishing = asyncio.Lock()
        self._may_delete = options.max_delete >= 100  # by the first load
        self._deleted = 0  # of this look, of so many
        self._known: int | None = None
        self._pause = 0.0  # the longest that a host wants which was asked for something missing
        self._left_out: list[Refusal] = []  # of the batch or load that is offered
        self._said: dict[str, str | None] = {}  # of what is wrong

    # Rounds -----------------------------------------------------------------------------------

    async def once(self) -> bool:
        """Bring the set up to date; whether all of it was read, believed and published."""
        await self.round(is_once=True)
        return self.state.facts.is_well

    async def keep(self) -> None:
        """Go on until it is cancelled."""
        while True:
            wait = await self.round(is_once=False)
            await asyncio.sleep(spread(wait, random.random()))  # noqa: S311

    async def round(self, *, is_once: bool) -> float:
        """One look, whatever comes of it; how long to wait for the next."""
        facts, pause, self._pause = self.state.facts, 0.0, 0.0
        facts.looked_at = time.time()
        facts.looks += 1
        before = facts.changed_at
        try:
            await self._look(is_once=is_once)
        except Unchanged:
            self._is_well()
        except (Rejected, TryAgain) as error:
            pause = getattr(error, "retry_after_seconds", 0.0)
            self._fail(error.detail)
        except sqlite3.Error as error:
            self._fail(self._memory.problem(error))
        except Exception as error:  # a bug, or what a Source has found: the others go on
            log.exception("%s", self.name)
            self._fail(f"{type(error).__name__}: {error}")
        facts.interval = next_interval(
            facts.interval or self._options.interval,
            self._options.intervals,
            is_changed=facts.changed_at != before,
            failures=facts.failures,
        )
        try:
            self.state.save()
        except sqlite3.Error as error:  # of a disk that is full, which may have room again
            self._fail(self._memory.problem(error))
        pause = max(pause, self._pause)
        is_live = self._adapter is not None and self._adapter.is_live
        return pause if is_live and not facts.failures else max(facts.interval, pause)

    def _is_well(self) -> None:
        facts = self.state.facts
        if facts.failures:
            log.info("%s: well again", self.name)
        facts.failures, facts.error, facts.error_at = 0, None, None
        self._say("error", None)
        facts.read_at = facts.looked_at

    def _fail(self, why: str) -> None:
        facts = self.state.facts
        facts.error, facts.error_at = without_tokens(why), time.time()
        self._say("error", facts.error)
        facts.failures, facts.failed = facts.failures + 1, facts.failed + 1

    def _say(self, kind: str, said: str | None, *lines: str | None) -> None:
        """Log what is wrong, once as long as it stays so."""
        if said and self._said.get(kind) != said:
            for line in lines or (said,):
                log.warning("%s: %s", self.name, line)
        self._said[kind] = said

    async def _look(self, *, is_once: bool) -> None:
        if self._adapter is not None:
            self._adapter.begin()
        await self._publish()
        adapter = self._adapter or await self._begin()
        self._take_release()
        is_read = not self.state.facts.is_loaded and await self._load(adapter)
        if is_read or not self.state.facts.is_loaded:
            pass  # all of it was read now, or it is held back
        elif not (adapter.has_changes or adapter.is_live):
            if self.state.facts.failures or time.monotonic() - self._found_at > AGAIN_SECONDS:
                adapter = await self._begin()  # its list may be another one by now
            await self._compare(adapter)
        elif self._compares_in(adapter) == 0:
            adapter = await self._begin()  # it may offer more by now
            await self._compare(adapter)
        elif adapter.has_changes and (is_once or not adapter.is_live):
            await self._follow(adapter)
        await self._publish()
        self._note(adapter)
        if self.state.facts.is_loaded and adapter.is_live and not is_once:
            await self._follow_live(adapter)
            self._note(adapter)
        self._is_well()

    async def _begin(self) -> SourceAdapter:
        """Find how the Source is followed, and how the set is called."""
        source = self._options.source
        with of_known(source, [source] if self.state.facts.is_read else []):
            adapter = await self._find()
        facts, how = self.state.facts, f"{adapter.kind}: {adapter.how()}"
        by_site = adapter.by_site and facts.by_site is False
        if facts.is_read and is_another(facts.how, how, by_site=by_site):
            raise TryAgain(ANOTHER.format(self._options.name, facts.how, how))
        await self._target.prepare()
        self._homes = await self._target.homes()
        if facts.is_loaded:
            await self._look_for_losses()
            self._offer_again()
        facts.how, facts.by_site, self._adapter = how, adapter.by_site, adapter
        self._found_at = time.monotonic()
        return adapter

    async def _look_for_losses(self) -> None:
        """A set that lost something, or was made anew, gets all again."""
        facts, known = self.state.facts, self.state.resources
        if (count := await self._target.count()) + facts.refused >= known:
            return
        log.warning(
            "%s: the set has %d resources, of at least %d: all is loaded again",
            *(self.name, count, known - facts.refused),
        )
        facts.is_loaded = False
        if self._is_shared:
            self.state.begin_again()
        else:
            facts.as_of = await self._target.position()
        self.state.save()

    def _offer_again(self) -> None:
        """What the hub refused a day ago: it may take it by now."""
        waited = time.time() - (self.state.facts.refused_at or 0.0)
        if not (0 <= waited < AGAIN_SECONDS or self.state.waiting) and self.state.refused[0]:
            self.state.offer_again()

    @property
    def _is_shared(self) -> bool:
        return self._options.shared or self.state.is_shared

    def _compares_in(self, adapter: SourceAdapter) -> float | None:
        """So many seconds; None: never."""
        facts = self.state.facts
        every = self._options.compare or (AGAIN_SECONDS if facts.short else adapter.compare_seconds)
        if every is None:
            return None
        waited = time.time() - (facts.compared_at or 0.0)
        return 0.0 if waited < 0 else max(0.0, every - waited)

    def _note(self, adapter: SourceAdapter) -> None:
        """What was skipped, and how far the Source's clock is off: once, as long as it stays so."""
        facts, count = self.state.facts, adapter.skipped_count
        entries = f"{count} of its entries: {adapter.skipped[0]}" if count else None
        short, (refused, why) = adapter.short or facts.short, self.state.refused
        left_out = f"not published: {refused} of its resources: {why}" if refused else None
        said = (entries, left_out, short, adapter.doubt)
        facts.skipped = "; ".join(filter(None, said)) or None
        self._say("skipped", entries, *(f"skipped: {each}" for each in adapter.skipped))
        self._say("left_out", left_out)
        self._say("short", short)
        self._say("doubt", adapter.doubt)
        self._say("held", facts.held, f"held back: {facts.held}")
        facts.clock = clock_off(adapter.web.ahead_seconds)
        self._say("clock", facts.clock and "off", facts.clock)

    # The whole state --------------------------------------------------------------------------

    async def _compare(self, adapter: SourceAdapter, gap: SourceGap | None = None) -> None:
        facts = self.state.facts
        adapter.parts = self.state.parts()
        with closing(StateComparison(self._memory, self.state)) as comparison:
            add, overlay = comparison.add, comparison.overlay
            if not facts.is_read and not self._is_shared:  # there is nothing to compare with
                add, overlay = self.state.insert, partial(self.state.insert, is_newer=True)
            take = overlay if adapter.is_partial else add
            unread = comparison.unread if add == comparison.add else self.state.unread
            try:
                cursor = await self._read(adapter, take, unread)
            except Unchanged:
                facts.compared_at = time.time()
                facts.cursor = facts.cursor if gap is None else gap.cursor
                return
            if facts.is_read and (why := set_back(facts.at, adapter.at)) is not None:
                facts.short = f"{why}; it is not believed until it is newer{RELEASE}"
                facts.compared_at = time.time()
                return
            facts.via = adapter.via
            if adapter.overlays and adapter.has_changes:
                cursor = await self._overlay(adapter, overlay, cursor)
            await self._settle(adapter, comparison)
        is_read_again = adapter.skipped_count or facts.held
        self.state.keep_parts({} if is_read_again else adapter.parts)
        facts.cursor, facts.is_read = cursor, True
        facts.compared_at, facts.short, facts.at = time.time(), adapter.short, adapter.at
        facts.is_loaded |= self._is_shared
        self.state.save()

    async def _read(
        self, adapter: SourceAdapter, take: Take, unread: Callable[[Piece], list[Change]]
    ) -> str | None:
        """Read the whole state; where its pages may have moved meanwhile, until none has.

        What any of the readings has is there. The cursor is that of the first.
        """
        adapter.short = None
        await self._read_once(adapter, take)
        cursor, began, unchanged = adapter.cursor, adapter.began, adapter.unchanged
        at = adapter.at
        number, slipped = 1, adapter.may_have_moved
        while slipped and number < adapter.readings:
            number, slipped = number + 1, False
            skipped, count = adapter.skipped, adapter.skipped_count
            adapter.begin()

            def take_again(piece: Piece) -> None:
                nonlocal slipped
                slipped |= any(has_slipped(each, began) for each in unread(piece))
                take(piece)

            with suppress(Unchanged):
                await self._read_once(adapter, take_again)
            adapter.forget_tags()
            unchanged &= adapter.unchanged
            if count > adapter.skipped_count:
                adapter.skipped, adapter.skipped_count = skipped, count
        adapter.unchanged, adapter.at = unchanged, at
        moving = MOVING.format(number) if slipped else None
        adapter.short = "; ".join(filter(None, (moving, adapter.short))) or None
        return cursor

    async def _read_once(self, adapter: SourceAdapter, take: Take) -> None:
        async with aclosing(adapter.state()) as pieces:
            async for piece in pieces:
                take(self._ours(piece))
                self.listed += len(piece.entries)

    async def _overlay(self, adapter: SourceAdapter, take: Take, cursor: str | None) -> str | None:
        """What happened since the state was made belongs to it."""
        for _ in range(2):
            try:
                async with aclosing(adapter.changes(cursor)) as pieces:
                    async for piece in pieces:
                        take(self._ours(piece))
                        cursor = piece.cursor or cursor
            except SourceGap as gap:
                log.warning("%s: %s", self.name, gap)
                cursor = gap.cursor
            else:
                break
        return cursor

    async def _settle(self, adapter: SourceAdapter, comparison: StateComparison) -> None:
        """Record what is different; what is gone last, and only if that can be believed."""
        facts, known = self.state.facts, self.state.known
        can_delete = facts.is_read and adapter.is_whole and not adapter.skipped_count
        gone = comparison.gone(adapter.unchanged) if can_delete else []  # before others come
        for piece in comparison.fresh():
            self._changed(self.state.apply(piece))
            await asyncio.sleep(0)
        if not can_delete:
            return
        why = held_back(len(gone), known, self._options.max_delete)
        if why is None:
            self._delete([key for key in gone if key in comparison.told])
            await self._publish()
            gone, why = await self._kept([key for key in gone if key not in comparison.told])
        facts.held, facts.held_changes = why, False
        self.state.hold(gone, is_all=True)

    async def _kept(self, keys: Sequence[str]) -> tuple[list[str], str | None]:
        """Ask for what is missing, and delete what is gone; the rest, and why it is kept."""
        facts, kept, why = self.state.facts, list[str](), None
        adapter = self._adapter
        assert adapter is not None  # noqa: S101 - something was missing from what it read
        asked_for = in_turn(keys, facts.asked_for)
        found = (
            MissingResource(key, adapter.asked_at(key, loc))
            for key in asked_for
            if (loc := self.state.loc_of(key)) is not None
        )
        gone, all_asked = list[str](), True
        async with aclosing(probe_all(found, adapter.probe)) as pieces:
            async for each, result in pieces:
                if result.is_gone:
                    gone.append(each.key)
                else:
                    self._pause = max(self._pause, result.wait_seconds)
                    kept.append(each.key)
                    why = why or result.why
                all_asked &= result.was_asked
                if all_asked:  # the first that was not is asked first in the next look
                    facts.asked_for = each.key
                if len(gone) >= DELETED_AT_ONCE:
                    self._delete(gone)
                    gone.clear()
                    await self._publish()
        self._delete(gone)
        return kept, None if why is None else kept_back(len(kept), why) + RELEASE

    def _delete(self, keys: Sequence[str]) -> None:
        for some in batched(keys, BATCH):
            self._changed(self.state.apply(Piece([(key, GONE) for key in some])))

    def _changed(self, count: int) -> None:
        if count:
            self.state.facts.changed_at = time.time()

    def _take_release(self) -> None:
        """What was held back is let through, if somebody said so."""
        if not self.state.take_release():
            return
        log.info("%s: what was held back is let through", self.name)
        self._may_delete |= not self.state.facts.is_loaded
        self._delete(self.state.held())
        self.state.facts.held = self.state.facts.at = None
        self.state.save()

    async def _load(self, adapter: SourceAdapter) -> bool:
        """The first state becomes that of the set, and is not published change by change; whether
        it was read now. It is the one that is known, if it was not loaded, or the set has lost it.

        Whoever put something else there loses it by a word of the operator only: a bridge may have
        lost its state, or others may publish to the set.
        """
        facts = self.state.facts
        if facts.is_read and self._is_shared:  # only since it was read
            self.state.begin_again()
        if is_new := not facts.is_read:
            if not self._is_shared:
                self.state.begin_again()
            facts.as_of = await self._target.position()
            await self._compare(adapter)
            if facts.is_loaded:
                return True
        key = key_of(self.state.epoch, 0, f"{facts.compared_at} {facts.as_of}".encode())
        most = 100 if self._may_delete else 0
        self._left_out.clear()  # of an attempt that failed
        try:
            states = partial(self.state.states, self._published)
            request = LoadRequest(
                publish=bool(facts.loaded) or None, max_delete=most, as_of=facts.as_of
            )
            outcome = await self._target.load(states, key, request)
        except TooManyGone as error:
            facts.held = f"{error}{RELEASE}, or give --shared"
            self.state.begin_again()
            return is_new
        except Rejected as error:
            if error.detail.startswith("as_of "):  # the set was made anew, for instance
                self.state.begin_again()
            raise
        counts = ", ".join(f"{outcome[name]} {name}" for name in ("created", "updated", "deleted"))
        log.info("%s: %d resources loaded: %s", self.name, outcome["resources"], counts)
        facts.is_loaded, facts.held, facts.loaded = True, None, outcome["resources"]
        self.state.note_load(self._left_out)
        self._changed(1)
        self.state.save()
        return is_new

    # Changes ----------------------------------------------------------------------------------

    async def _follow(self, adapter: SourceAdapter) -> None:
        self._deleted, self._known = 0, None
        try:
            async with aclosing(adapter.changes(self.state.facts.cursor)) as pieces:
                async for piece in pieces:
                    await self._take(piece)
        except SourceGap as gap:
            await self._close_gap(adapter, gap)

    async def _follow_live(self, adapter: SourceAdapter) -> None:
        """Until all is to be compared besides, or one of the two fails."""
        tasks = [asyncio.create_task(each(adapter)) for each in (self._take_live, self._beat)]
        try:
            first, seconds = asyncio.FIRST_COMPLETED, self._compares_in(adapter)
            for each in (await asyncio.wait(tasks, timeout=seconds, return_when=first))[0]:
                each.result()
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_live(self, adapter: SourceAdapter) -> None:
        while True:
            try:
                async with aclosing(adapter.live(self.state.facts.cursor)) as pieces:
                    async for piece in pieces:
                        self._deleted, self._known = 0, None
                        await self._take(piece)
            except SourceGap as gap:
                await self._close_gap(adapter, gap)

    async def _beat(self, adapter: SourceAdapter) -> None:
        """While a channel is open, nothing to read is good news."""
        facts = self.state.facts
        while True:
            self._note(adapter)
            if adapter.trouble is None:
                facts.looked_at = time.time()
                self._is_well()
            elif adapter.trouble != facts.error:
                self._fail(adapter.trouble)
            self.state.save()
            await asyncio.sleep(BEAT_SECONDS)
            self._take_release()
            await self._publish()

    async def _close_gap(self, adapter: SourceAdapter, gap: SourceGap) -> None:
        log.warning("%s: %s; comparing the whole state", self.name, gap)
        adapter.begin()
        await self._compare(adapter, gap)
        await self._publish()

    async def _take(self, piece: Piece) -> None:
        self.state.facts.via = self._adapter.via if self._adapter else ""
        entries = self._ours(piece).entries
        if self._adapter is not None and self._adapter.is_partial:
            entries = self._without_undone(entries)
        gone = [key for key, change in entries if change.change == "deleted"]
        held = self._held_of(gone) if gone else set()
        kept = [each for each in entries if each[1].change != "deleted" or each[0] not in held]
        self._changed(self.state.apply(piece._replace(entries=kept)))
        if self.state.facts.held is not None and not self.state.held():
            self.state.facts.held = None  # the Source has them again
        await self._publish()

    def _without_undone(self, entries: list[tuple[str, Change]]) -> list[tuple[str, Change]]:
        """A feed keeps its tombstones: one that is older than what is known was taken back."""
        gone = [key for key, change in entries if change.change == "deleted"]
        known = {key: decode(row.body) for key, row in self.state.find(gone).items()}
        return [
            (key, change)
            for key, change in entries
            if change.change != "deleted" or not is_outdated(change, known.get(key), time.time())
        ]

    def _held_of(self, keys: Sequence[str]) -> set[str]:
        """Those of a look's deletions that are too many to be believed."""
        known = self.state.find(keys).keys()
        if self._known is None:  # to count them takes time, and few changes are deletions
            self._known = self.state.known
        self._deleted += len(known)
        facts = self.state.facts
        if (why := held_back(self._deleted, self._known, self._options.max_delete)) is None:
            return known & set(self.state.held() if facts.held_changes else ())  # read again
        facts.held, facts.held_changes = why, True
        self.state.hold(known)
        return set(known)

    def _ours(self, piece: Piece) -> Piece:
        """Without what came from the set that it would go to."""
        entries = [each for each in piece.entries if not is_from(each[1], self._homes)]
        return piece._replace(entries=entries)

    # Publishing -------------------------------------------------------------------------------

    async def _publish(self) -> None:
        """All that waits, in order."""
        async with self._publishing:
            while (batch := self.state.next_batch()) is not None:
                number, raw, changes = batch
                self._left_out.clear()
                ready = [each for each in map(self._published, changes) if each is not None]
                if self._is_shared:
                    ready = [each for each in ready if not await self._is_echo(each)]
                if ready:
                    await self._send(ready, key_of(self.state.epoch, number, raw))
                    refused = {each.loc for each, _ in self._left_out}
                    self._note_published([each for each in ready if each.loc not in refused])
                self.state.forget_batch(number, changes, self._left_out)

    async def _send(self, changes: list[Change], key: str) -> None:
        try:
            await self._sent(changes, key)
        except Rejected as error:
            if error.status not in REFUSED:
                raise
            if len(changes) == 1:
                return self._refuse(changes[0], f"{changes[0].loc}: {error.detail}")
            middle = len(changes) // 2
            await self._send(changes[:middle], f"{key}a")
            await self._send(changes[middle:], f"{key}b")

    async def _sent(self, changes: list[Change], key: str) -> None:
        until, attempt = time.monotonic() + HUB_SECONDS, 0
        while True:
            try:
                return await self._target.publish(changes, key)
            except TryAgain as error:
                wait = HUB_BACKOFF.seconds(attempt, random.random(), error.retry_after_seconds)  # noqa: S311
                if time.monotonic() + wait > until:
                    raise
                attempt += 1
                await asyncio.sleep(wait)

    def _note_published(self, changes: Sequence[Change]) -> None:
        facts = self.state.facts
        facts.published += len(changes)
        times = [at for each in changes if (at := position_of(each.datetime)) is not None]
        if times:
            facts.lag_seconds = round(max(0.0, time.time() - max(times) / MICROSECONDS), 3)

    def _published(self, change: Change) -> Change | None:
        """As the hub takes it, with a link to where it came from."""
        ready, said = publishable(with_entry(change, self.state.facts.via))
        if ready is None and change.change != "deleted":  # what no hub takes none has
            self._refuse(change, said[0])
        elif said:
            log.warning("%s: left out: %s", self.name, said[0])
        return ready

    def _refuse(self, change: Change, why: str) -> None:
        """Not published: no look is a success until the hub has this, or a later change of it."""
        log.warning("%s: not published: %s", self.name, why)
        self._left_out.append((change, why))

    async def _is_echo(self, change: Change) -> bool:
        """Whether it came by a third Source, and the set knows it from there already."""
        via = next((link.href for link in change.links if link.rel == VIA), "")
        is_own = self.state.facts.via and via.startswith(self.state.facts.via)
        return not is_own and await self._target.knows(change)
