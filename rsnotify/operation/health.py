"""Whether this process can be sent requests, and if not, why.

A small write to Redis every two seconds shows whether changes can be stored. What a trouble affects
is logged once, and so is its end.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rsnotify.channels.admission import Channels
from rsnotify.errors import TryAgain
from rsnotify.journal.hub import Hub
from rsnotify.operation.writable import Writable, WritableParts

log = logging.getLogger(__name__)

PROBE_SECONDS = 2.0
MIB = 1024 * 1024
FREE_MIB = 64  # on the disk of the embedded Redis, which ends when it is full

NAMED = 10  # sets in one line

AFFECTED = "publishing is answered 503, readers stay connected and wait"


class Health:
    """Live: do not restart this process. Ready: send it requests."""

    def __init__(
        self,
        hub: Hub,
        channels: Channels,
        writable: Writable,
        parts: WritableParts,
        *,
        disk: Path | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._hub = hub
        self._channels = channels
        self._writable = writable
        self._parts = parts
        self._away: Mapping[str, Sequence[str]] = {}  # why -> sets that nothing is stored for
        self._disk = disk  # where the embedded Redis writes
        self._clock = clock
        self._trouble = ""
        self._since = 0.0

    @property
    def write_seconds(self) -> float:
        """What the newest small write to Redis took."""
        return self._writable.seconds

    def not_ready(self) -> str:
        """The reason, or nothing."""
        if self._channels.is_draining:
            return "the hub is shutting down"
        if self._trouble:
            return self._trouble
        if not self._hub.is_current:
            age = self._hub.follow_age
            return f"the journals cannot be followed: they were seen {age:.0f} s ago; see the log"
        return ""

    async def live(self, request: Request) -> Response:  # noqa: ARG002
        return PlainTextResponse("live\n")

    async def ready(self, request: Request) -> Response:  # noqa: ARG002
        await self._look()
        reason = self.not_ready()
        if reason:
            raise TryAgain(reason)
        return PlainTextResponse("\n".join(["ready", *self._what_is_away()]) + "\n")

    def _what_is_away(self) -> list[str]:
        """Why some sets cannot be published to; private ones are only counted."""
        records = self._hub.sets
        told = {
            reason: [name for name in names if name in records and not records[name].private]
            for reason, names in self._away.items()
        }
        return [_affected(reason, self._away[reason], told[reason]) for reason in self._away]

    async def run(self) -> None:
        """Probe for as long as the hub runs."""
        while True:
            try:
                await self._look()
            except Exception as error:  # a bug: nobody is worse off than without a probe
                log.warning("whether Redis can be used cannot be found out", exc_info=error)
            await asyncio.sleep(PROBE_SECONDS)

    async def _look(self) -> None:
        self.note(await self._find_trouble())
        if not self._trouble:
            with suppress(TryAgain):  # the next look tells of it
                self.note_away(await self._parts.away(self._hub.sets))

    async def _find_trouble(self) -> str:
        """What is wrong, or nothing."""
        free = None if self._disk is None else _free_bytes(self._disk)
        if free is not None and free < FREE_MIB * MIB:  # even if Redis has stopped because of it
            return f"less than {FREE_MIB} MiB are left on the disk of {self._disk}: make room"
        reason = await self._writable.why_not()
        return "" if reason is None else f"not writable: {reason}"

    def note(self, trouble: str) -> None:
        """Log a trouble when it begins, when it becomes another one, and when it has ended."""
        if trouble and not self._trouble:
            self._since = self._clock()
        if trouble and trouble != self._trouble:
            log.warning("%s; %s", trouble, AFFECTED)
        elif self._trouble and not trouble:
            log.warning("publishing works again after %.0f s", self._clock() - self._since)
        self._trouble = trouble

    def note_away(self, away: Mapping[str, Sequence[str]]) -> None:
        """The same of parts of a Redis Cluster, with the sets that this affects."""
        for reason in away.keys() - self._away.keys():
            log.warning("%s", _affected(reason, away[reason], away[reason]))
        if self._away and not away:
            log.warning("all sets can be published to again")
        self._away = away


def _affected(reason: str, names: Sequence[str], told: Sequence[str]) -> str:
    """In words; no more than ten of the names."""
    some = ", ".join(told[:NAMED]) + (", …" if len(names) > len(told[:NAMED]) else "")
    named = f" ({some})" if told else ""
    return f"publishing to {len(names)} sets{named} is answered 503: {reason}"


def _free_bytes(disk: Path) -> int | None:
    try:
        return shutil.disk_usage(disk).free
    except OSError:  # Redis says it better
        return None
