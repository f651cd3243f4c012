"""Finishes loads of a set's whole state, whichever process began them.

A load that is decided is published, listed, and then finished; the process that finds that its
holder is gone goes on from where it stands. One that was not decided leaves nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import msgspec

from rsnotify.coordination.claims import Claim
from rsnotify.coordination.keys import STATE_SHARDS
from rsnotify.documents.chores import ROUND_SECONDS
from rsnotify.documents.documents import Snapshot
from rsnotify.errors import NoSuchSet, TryAgain
from rsnotify.journal.submission import Submission
from rsnotify.live.journals import Journals
from rsnotify.loops import Loop, end, repeat
from rsnotify.publishing.loads.load import PUBLISHED_CHANGES, fragments_of
from rsnotify.publishing.loads.load_store import CLAIM_SECONDS, Load, Loads
from rsnotify.resourcesync.notification import ChannelName

log = logging.getLogger(__name__)

LoadOutcome = dict[str, Any]
TakeSnapshot = Callable[[str], Awaitable[Snapshot | None]]


class LoadKeeper:
    """Finishes loads that were decided, of any set."""

    def __init__(self, journals: Journals, loads: Loads, take_snapshot: TakeSnapshot) -> None:
        self._journals = journals
        self._loads = loads
        self._take_snapshot = take_snapshot
        self._finishing: set[asyncio.Task[LoadOutcome]] = set()

    def loops(self) -> dict[str, Loop]:
        return {"keep loads": repeat(self.keep_loads, ROUND_SECONDS)}

    async def keep_loads(self) -> None:
        """Take over loads that nobody finishes any more."""
        for name in await self._loads.under_way():
            try:
                await self._take_up(name)
            except TryAgain as error:
                log.warning("the load of the set %r waits: %s", name, error.detail)
            except Exception as error:  # damaged data of one set: the others go on
                log.warning("the load of the set %r failed", name, exc_info=error)

    async def _take_up(self, name: str) -> None:
        async with AsyncExitStack() as held:
            if not await held.enter_async_context(self.alone(name)):
                return
            load = await self._loads.current(name)
            if load is None:
                await self._loads.forget(name)
            elif not load.is_decided:
                log.warning("the load of the set %r broke off; what it left is removed", name)
                await self._loads.discard(load)
            else:
                self.finish(load, held.pop_all())

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        """Whether this process may load the set now; no other may until the block ends."""
        claim = await self._loads.claim(name)
        if claim is None:
            yield False
            return
        keeping = asyncio.create_task(self._keep_up(claim), name=f"claim to load {name}")
        try:
            yield True
        finally:
            await end([keeping])
            with suppress(TryAgain):  # it ends by itself
                await claim.release()

    async def _keep_up(self, claim: Claim) -> None:
        while True:
            await asyncio.sleep(CLAIM_SECONDS / 4)
            try:
                await self._loads.keep_up(claim)
            except TryAgain:  # who has lost it cannot do anything with the load either
                pass
            except Exception as error:
                log.warning("a claim to load cannot be kept up", exc_info=error)

    def finish(self, load: Load, held: AsyncExitStack) -> asyncio.Task[LoadOutcome]:
        """Finish a load that is decided, even if nobody waits, and release what is held."""
        task = asyncio.create_task(self._finish(load, held), name=f"load of {load.set_name}")
        self._finishing.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[LoadOutcome]) -> None:
        self._finishing.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TryAgain):
            log.warning("the %s waits: %s", task.get_name(), error.detail)
        elif error is not None and not isinstance(error, NoSuchSet):
            log.error("internal error in the %s", task.get_name(), exc_info=error)

    async def _finish(self, load: Load, held: AsyncExitStack) -> LoadOutcome:
        async with held:
            if load.stage == "publishing":
                await self._publish(load)
            if load.found.differs or load.stage == "listing":
                await self._list(load)
            done = outcome(load, "done")
            replaced = (await self._loads.standing(load.set_name)).replaced
            await self._loads.finish(load, msgspec.json.encode(done))
            # If Redis loses what no change says, it is a loss as well.
            self._journals.feed(ChannelName(load.set_name, "change")).witness.note_given(replaced)
            return done

    async def _publish(self, load: Load) -> None:
        """Publish the differences. What was published already is no longer one."""
        channel, shard = ChannelName(load.set_name, "change"), 0
        while shard < STATE_SHARDS:
            part = await self._loads.differences(load, shard, PUBLISHED_CHANGES)
            if part.named:
                fragments = fragments_of(part.named, load.token)
                await self._journals.publish(channel, Submission(fragments), is_limited=False)
            else:
                shard = part.next_shard

    async def _list(self, load: Load) -> None:
        """Make a Resource List of the state, unless the Source has one of its own."""
        record = self._journals.sets.get(load.set_name)
        if record is None:
            raise NoSuchSet(load.set_name)
        if record.resourcelist is None and await self._take_snapshot(load.set_name) is None:
            raise TryAgain("another snapshot is being taken")


def outcome(load: Load, stage: str) -> LoadOutcome:
    """What a Source learns of its load."""
    is_published = load.stage == "publishing"
    counts = load.found.as_answered()
    as_of = None if load.as_of is None else str(load.as_of)
    known = {"set": load.set_name, "stage": stage, "published": is_published, "at": str(load.at)}
    return known | {"as_of": as_of} | counts
