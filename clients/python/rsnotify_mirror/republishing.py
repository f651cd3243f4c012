"""A copy as a Source in its turn: what is stored in it is published to a set of a hub.

Rules that hold here: a change waits in the copy's own file from the transaction on in which the
copy has it, and leaves it when the hub has it: so whatever is killed, hub and copy agree in the
end. A set that has not had the copy yet gets it as a load of the whole, of the moment at which a
certain change was the newest that waited; what waited until then is in it. Only what was verified
and stored is published, with the address at which the copy's file is served.
"""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from time import time
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import Change, ChangeKind
from rsnotify_client.answer import HUB_BACKOFF
from rsnotify_client.blocking_threads import BlockingThreads, beside
from rsnotify_client.errors import TimedOut
from rsnotify_client.hub import HubClient
from rsnotify_client.loading import LoadRequest, load, path_of_resources, position, spooled
from rsnotify_client.network import NetworkOptions
from rsnotify_client.outbox import Execute, OutboxTable
from rsnotify_client.publisher import BATCH_SECONDS
from rsnotify_client.queue import Batch, OutboxError, Refusal, channel_of, encode
from rsnotify_client.resource import digests
from rsnotify_client.sender import RefusedChange, Sender
from rsnotify_client.token import HeldToken
from rsnotify_mirror.disk import Disk, digest_of
from rsnotify_mirror.plan import Have
from rsnotify_mirror.report import Event, Report
from rsnotify_mirror.republication import PublishedPlace, Republication, described
from rsnotify_mirror.state import FILE, LOADED, PLACE, Outgoing, State, StateRow

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5  # until it is seen that a copy is filled
LET_GO_SECONDS = 1.0

Made = TypeVar("Made")


# --- what waits in the file of the copy ----------------------------------------------------------


class CopyOutbox(OutboxTable):
    """The outbox in the file of a copy, for the thread of a sender: the file is used in the thread
    of the mirror's event loop only, and in its transactions."""

    def __init__(self, state: State) -> None:
        super().__init__(lambda: state.database, str(state.directory / FILE))
        self._state = state
        self._loop = asyncio.get_running_loop()

    def lead(self) -> bool:
        """Nobody else has the file."""
        return True

    def take(self, postponed: Collection[Any], at_most: int) -> Batch | None:
        return self._in_loop(partial(super().take, postponed, at_most))

    def remove(self, batch: Batch, ids: Collection[int], refusal: Refusal | None = None) -> int:
        return self._in_loop(partial(super().remove, batch, ids, refusal))

    def ends(self) -> tuple[int, int] | None:
        return self._in_loop(super().ends)

    def waiting(self) -> int:
        return self._in_loop(super().waiting)

    def _in_loop(self, work: Callable[[], Made]) -> Made:
        outcome: Future[Made] = Future()

        def act() -> None:
            try:
                outcome.set_result(work())
            except Exception as error:
                outcome.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(act)
            while not wait([outcome], LET_GO_SECONDS).done and not self._loop.is_closed():
                pass
        except RuntimeError:
            pass
        if not outcome.done():
            raise OutboxError(f"{self._name}: the mirror has ended")
        return outcome.result()

    @contextmanager
    def _transaction(self, *, writes: bool = True) -> Iterator[Execute]:
        """One of the mirror's own; what it had stored until now is stored with it."""
        if writes:
            self._state.begin()
        execute = Execute(self._state.database)
        try:
            yield execute
            self._state.commit()
        except sqlite3.Error as error:
            raise OutboxError(str(self._state.unusable(error))) from error
        finally:
            execute.close()


# --- the whole copy ------------------------------------------------------------------------------


def states_of(state: State, disk: Disk, base: str) -> Iterator[Change]:
    """All that the copy holds, as it is described; what the Source gives no digest of gets one."""
    for row in state.rows():
        have = row.have
        if row.path is None or have is None or have.length is None:
            continue
        if not digests(have.hash) and (have := _with_digest(disk, row.path, have)) is None:
            continue
        found = described(base, row.path, row.wanted, have, "updated")
        if found is not None:
            yield found


def _with_digest(disk: Disk, path: str, have: Have) -> Have | None:
    """With a digest of what is stored; None if that is not what the mirror has recorded."""
    try:
        with disk.open_file(path) as file:
            found, length = digest_of(file), file.tell()
    except OSError:
        return None
    return replace(have, hash=found) if length == have.length else None


CONFLICT, UNDER_WAY = 409, "under way"
REFUSED_SECONDS = 300.0  # until a hub is asked again that has refused the whole copy


def is_passing(error: Rejected | TryAgain) -> bool:
    """Whether the hub may take the same later: it is away, or at another load."""
    if isinstance(error, TryAgain):
        return True
    return error.status == CONFLICT and UNDER_WAY in error.detail


def _pause_after(error: Rejected | TryAgain, failures: int) -> float:
    asked = getattr(error, "retry_after_seconds", 0.0)
    pause = HUB_BACKOFF.seconds(failures, random.random(), asked)  # noqa: S311
    return pause if is_passing(error) else max(pause, REFUSED_SECONDS)


class Republisher:
    """Publishes one copy to one set, while the mirror runs."""

    def __init__(
        self,
        state: State,
        to: Republication,
        max_delete: float,
        network: NetworkOptions | None,
        report: Report,
    ) -> None:
        self._place = PublishedPlace.of(to)
        self._channel = channel_of(to.set_name)
        self._state = state
        self._max_delete = max_delete
        self._network = network
        self._report = report
        self._token = HeldToken.of(to.token)
        self._url, self._patience = to.hub, to.patience_seconds
        self._hub = HubClient(to.hub, self._token, network=network)
        self._threads = BlockingThreads(2)
        self._is_on = state.fact(PLACE) == str(self._place)  # what is stored waits to be published
        self._sends = False
        self._looked, self._attempted = asyncio.Event(), asyncio.Event()
        self._trouble: Rejected | TryAgain | None = None  # of the last attempt to load it
        self._refused = 0
        self._said: str | None = None
        self._sender: Sender
        self._keeping: asyncio.Task[None]

    # What the mirror tells it ---------------------------------------------------------------------

    def stored(self, row: StateRow, have: Have) -> Outgoing | None:
        """What is to be published once the copy has this; None before the whole is read."""
        return self._outgoing(row, have, "updated" if row.have is not None else "created")

    def deleted(self, row: StateRow) -> Outgoing | None:
        return self._outgoing(row, Have(), "deleted")

    def _outgoing(self, row: StateRow, have: Have, kind: ChangeKind) -> Outgoing | None:
        if not self._is_on or row.path is None:
            return None
        change = described(self._place.base, row.path, row.wanted, have, kind)
        if change is None:
            self._say(f"not published: {row.loc}: no hub would take the address of its file")
            return None
        if self._sends:
            self._sender.wake()
        return (*self._channel, encode(change).decode())

    # While the mirror runs ------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._begun = time()
        place = self._place
        if self._state.fact("source") == f"{place.hub}/{place.set_name}/capabilitylist.xml":
            raise InvalidSettings(f"{place.set_name} is what is copied: publish to another set")
        self._state.keep_outbox()
        try:
            await beside(self._threads, self._hub.check_right, self._channel)
        except TryAgain as error:  # a hub that is away may come back
            self._say(error.detail)
        self._sender = Sender(
            CopyOutbox(self._state),
            self._hub,
            batch_seconds=BATCH_SECONDS,
            on_refused=lambda refused: self._loop.call_soon_threadsafe(self._note, refused),
        )
        self._keeping = asyncio.create_task(self._keep())
        self._keeping.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        await asyncio.to_thread(self._sender.stop)
        self._hub.close()
        self._threads.close()

    def _ended(self, keeping: asyncio.Task[None]) -> None:
        """Whoever waits for the next attempt waits no more; what nobody foresaw is logged."""
        self._attempted.set()
        if not keeping.cancelled() and (error := keeping.exception()) is not None:
            log.error("nothing more is published: %s", error, exc_info=error)

    async def is_done(self) -> bool:
        """Whether the hub has all that the copy has; that is waited for, as long as it goes on."""
        await self._looked.wait()
        until = self._loop.time() + self._patience
        while not self._is_loaded:
            if not self._state.is_filled(time(), self._begun):
                self._say("not published: the copy has not been filled yet")
                return False
            await self._attempted.wait()
            self._attempted.clear()
            if self._keeping.done():
                await self._keeping
            if self._trouble is not None and (
                not is_passing(self._trouble) or self._loop.time() > until
            ):
                return False
        while (problem := await self._flushed()) is not None:
            if problem:
                self._say(f"not published: {problem}")
                return False
        return not self._refused

    async def _flushed(self) -> str | None:
        """None if nothing waits any more; why, if it waits in vain; empty if it goes on."""
        before = self._sender.published
        try:
            await beside(self._threads, self._sender.flush, self._patience)
        except TimedOut as error:
            return "" if self._sender.published > before else str(error)
        except (Rejected, OutboxError) as error:
            return str(error)
        return None

    @property
    def _is_loaded(self) -> bool:
        return self._is_on and self._state.fact(LOADED) is not None

    async def _keep(self) -> None:
        """Load the whole copy, if the set has not had it; then what waits is sent."""
        failures = 0
        try:
            await self._look_for_differences()
        finally:
            self._looked.set()
        while not self._is_loaded:
            if not self._state.is_filled(time(), self._begun):
                await asyncio.sleep(LOOK_SECONDS)
                continue
            try:
                await self._load()
            except (Rejected, TryAgain) as error:
                self._trouble = error
                self._say(f"not published: {error.detail}")
            except Exception as error:  # a bug: the copy is kept all the same
                log.exception("not published")
                self._trouble = Rejected(f"{type(error).__name__}: {error}")
            else:
                self._trouble = self._said = None
            self._attempted.set()
            if self._trouble is not None:
                await asyncio.sleep(_pause_after(self._trouble, failures))
                failures += 1
        self._attempted.set()
        self._sends = True
        self._sender.start()

    async def _look_for_differences(self) -> None:
        """A set that lost something, or was made anew, gets the whole again."""
        if not self._is_loaded or self._state.outgoing():
            return
        path = path_of_resources(self._place.set_name)
        try:
            answer = await beside(self._threads, self._hub.ask, "GET", path)
            count = answer.object("resources")["resources"]
        except (Rejected, TryAgain):
            return
        if count != (held := self._state.held_files()) and not self._state.outgoing():
            log.warning(
                "%s has %d resources and the copy %d: all is loaded again",
                *(self._place.set_name, count, held),
            )
            self._state.set_fact(LOADED, None)
            self._state.commit()

    async def _load(self) -> None:
        name = self._place.set_name
        as_of = await beside(self._threads, position, self._hub, name, self._patience)
        self._state.set_fact(PLACE, str(self._place))
        self._state.set_fact(LOADED, None)
        self._state.commit()
        self._is_on = True  # from now on what is stored waits, too
        outcome, newest = await beside(self._threads, self._sent, as_of)
        self._state.drop_outgoing(newest)
        self._state.set_fact(LOADED, "1")
        self._state.commit()
        counts = ", ".join(f"{outcome[name]} {name}" for name in ("created", "updated", "deleted"))
        log.info("%s: %d resources loaded: %s", self._channel, outcome["resources"], counts)

    def _sent(self, as_of: str) -> tuple[dict[str, Any], int]:
        """In a thread: what came of it, and the newest change that waited at its moment."""
        directory = self._state.directory
        with ExitStack() as stack:
            with State(directory, is_writer=False) as state, closing(Disk(directory)) as disk:
                state.database.execute("BEGIN")
                newest = state.newest_outgoing()
                states = states_of(state, disk, self._place.base)
                body = stack.enter_context(spooled(states))
            # Somebody may have followed the set while it was empty.
            request = LoadRequest(publish=True, max_delete=self._max_delete, as_of=as_of)
            to = (self._url, self._token, self._place.set_name)
            found = load(
                *(*to, body, request), network=self._network, patience_seconds=self._patience
            )
            return found, newest

    def _note(self, refused: RefusedChange) -> None:
        self._refused += 1
        self._report(
            Event("skipped", problem=f"not published: {refused.change.loc}: {refused.reason}")
        )

    def _say(self, problem: str) -> None:
        """Once, as long as it stays so."""
        if self._said != problem:
            self._said = problem
            self._report(Event("skipped", problem=problem))
