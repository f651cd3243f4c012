"""Whether this process can be sent requests, and if not, why.

A small write to Redis every two seconds shows whether changes can be stored. What a trouble affects
is logged once, and so is its end.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rsnotify.channels.channels import Channels
from rsnotify.coordination import keys
from rsnotify.errors import TryAgain
from rsnotify.live.journals import Journals
from rsnotify.operation.warnings import (
    Warnings,
    left,
    why_certificate_ends,
    why_clocks_differ,
    why_low,
    why_unconfirmed,
)
from rsnotify.redis_client import Client
from rsnotify.single_flight import Costly

KNOWN_SECONDS = 1.0
KEPT_SECONDS = 60
LEFT_PERCENT = 1  # of `maxmemory`; with less, Redis counts as full
TAGS = [str(number) for number in range(256)]  # so many that each node has one of them
CERTIFICATE_SECONDS = 10.0  # between two looks at that of Redis, each with a connection of its own
PROBE_SECONDS = 2.0
MIB = 1024 * 1024
FREE_MIB = 64  # on the disk of the embedded Redis, which ends when it is full
NAMED = 10  # sets in one line


class Writable:
    """Asks Redis, and remembers its answer for a moment."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._answers = Costly[str]("write to Redis")
        self.seconds = 0.0  # that Redis took to write at last
        self.memory: Mapping[str, Any] = {}  # what it said of it at last

    async def why_not(self) -> str:
        """What keeps Redis from writing; nothing if it writes."""
        return await self._answers.result("", self._ask, KNOWN_SECONDS)

    async def _ask(self) -> str:
        began = monotonic()
        try:
            await self.client.set(keys.WRITABLE, 1, ex=KEPT_SECONDS)
            if not self.client.is_cluster:
                self.memory = await self.client.info("memory")
        except TryAgain as error:
            return error.detail
        self.seconds = monotonic() - began
        return why_full(self.memory) if self.memory else ""


def why_full(memory: Mapping[str, Any]) -> str:
    """What INFO says of the memory, in words; nothing if there is room."""
    limit = memory["maxmemory"]
    if not limit or left(memory) >= limit * LEFT_PERCENT / 100:
        return ""
    return (
        f"Redis has less than {LEFT_PERCENT} % of its memory left (maxmemory is {limit:,} bytes): "
        "give it more, or remove what is not needed"
    )


class WritableParts:
    """Which sets a Cluster takes no writes for, found out by one small write to each node, and by
    the memory that it has left. What was found out is remembered for a moment: anybody may ask."""

    def __init__(self, client: Client, seconds: float = KNOWN_SECONDS) -> None:
        self._client = client
        self._seconds = seconds
        self._answers = Costly[dict[str, str]]("write to each node of a Cluster")
        self.maxmemory = 0  # the smallest of a Cluster
        self.low = ""  # why large publishes may be refused, of the first node that is so

    async def away(self, set_names: Collection[str]) -> Mapping[str, list[str]]:
        """Why a node takes none -> these sets, as far as they are there. Of one server, nothing."""
        if not self._client.is_cluster:
            return {}
        reasons = await self._answers.result("", self._reasons, self._seconds)
        return self._by_reason(set_names, reasons) if reasons else {}

    def probes(self) -> dict[str, str]:
        """A key at each server, by its lane."""
        if not self._client.is_cluster:
            return {"": keys.WRITABLE}
        return {self._client.lane(tag): keys.writable(tag) for tag in TAGS}

    async def _reasons(self) -> dict[str, str]:
        """Why a node takes none, by its lane."""
        probes = self.probes()
        pipeline = self._client.pipeline(transaction=False)
        for key in probes.values():
            pipeline.set(key, 1, ex=KEPT_SECONDS)
        answers = await pipeline.execute(raise_on_error=False)
        reasons = {
            node: answer.detail
            for node, answer in zip(probes, answers, strict=True)
            if isinstance(answer, TryAgain)
        }
        return reasons | await self._full(reasons)

    async def _full(self, refusing: Collection[str]) -> dict[str, str]:
        """Which of the other nodes have hardly any memory left. One that is away is not asked."""
        masters = await self._client.masters()
        masters = {node: each for node, each in masters.items() if node not in refusing}
        asked = (each.info("memory") for each in masters.values())
        memories = await asyncio.gather(*asked, return_exceptions=True)
        found = zip(masters, memories, strict=True)
        known = {node: each for node, each in found if isinstance(each, Mapping)}
        limits = [each["maxmemory"] for each in known.values() if each["maxmemory"]]
        self.maxmemory = min(limits, default=0)
        reasons = {node: why_full(each) for node, each in known.items()}
        low = (f"{node}: {why}" for node, each in known.items() if (why := why_low(each)))
        self.low = next(low, "")
        return {node: why for node, why in reasons.items() if why}

    def _by_reason(
        self, set_names: Collection[str], reasons: Mapping[str, str]
    ) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in sorted(set_names):
            reason = reasons.get(self._client.lane(name))
            if reason is not None:
                found.setdefault(reason, []).append(name)
        return found


log = logging.getLogger(__name__)

BACKED_UP = "last-backup"
"""The file in the data directory that each backup touches."""


AFFECTED = "publishing is refused, readers stay connected and wait"


class Room(NamedTuple):
    """Of a disk, in bytes."""

    free: int
    total: int


class Health:
    """Live: do not restart this process. Ready: send it requests."""

    def __init__(
        self,
        journals: Journals,
        channels: Channels,
        writable: Writable,
        parts: WritableParts,
        *,
        disk: Path | None = None,
        free_mib: int = FREE_MIB,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._free_mib = free_mib
        self._journals = journals
        self._channels = channels
        self._writable = writable
        self._parts = parts
        self._away: Mapping[str, Sequence[str]] = {}  # why -> sets that nothing is stored for
        self._disk = disk  # where the embedded Redis writes
        self._warnings = Warnings()
        self._room: Room | None = None
        self._clock = clock
        self._trouble = ""
        self._since = 0.0
        self._certificate_at = float("-inf")  # when it is looked at next

    def _note_maxmemory(self) -> None:
        """What a set may take depends on it."""
        of_one = self._writable.memory.get("maxmemory", 0)
        self._journals.usage.maxmemory = self._parts.maxmemory or of_one

    @property
    def write_seconds(self) -> float:
        """What the newest small write to Redis took."""
        return self._writable.seconds

    def numbers(self) -> dict[str, float]:
        """What fills, as it was at the last look."""
        memory, found = self._writable.memory, dict[str, float]()
        if memory:
            found["rsnotify_redis_memory_bytes"] = memory["used_memory"]
            found["rsnotify_redis_memory_limit_bytes"] = memory["maxmemory"]
            found["rsnotify_redis_machine_memory_bytes"] = memory.get("total_system_memory", 0)
        if self._room is not None:
            found["rsnotify_disk_free_bytes"] = self._room.free
            found["rsnotify_disk_bytes"] = self._room.total
        found["rsnotify_warnings"] = len(self.warnings())
        if self._disk is not None:
            found["rsnotify_last_backup_timestamp_seconds"] = _backed_up(self._disk)
        return found

    def not_ready(self) -> str:
        """The reason, or nothing."""
        if self._channels.is_draining:
            return "the hub is shutting down"
        if self._trouble:
            return self._trouble
        if not self._journals.checking.is_current:
            age = self._journals.checking.age
            return f"the journals cannot be followed: they were seen {age:.0f} s ago; see the log"
        return ""

    async def live(self, request: Request) -> Response:  # noqa: ARG002
        """Whether the process serves."""
        return PlainTextResponse("live\n")

    async def ready(self, request: Request) -> Response:  # noqa: ARG002
        """Whether the journals are followed and can be written."""
        await self._look()
        reason = self.not_ready()
        if reason:
            raise TryAgain(reason)
        return PlainTextResponse("\n".join(["ready", *self.warnings()]) + "\n")

    def warnings(self) -> list[str]:
        """What is refused, or wrong, although the process is ready, and why."""
        return [*self._what_is_away(), *self._warnings.now()]

    def _what_is_away(self) -> list[str]:
        """Why some sets cannot be published to; private ones are only counted."""
        records = self._journals.sets
        public = {
            reason: [name for name in names if name in records and not records[name].private]
            for reason, names in self._away.items()
        }
        return [_affected(reason, self._away[reason], public[reason]) for reason in self._away]

    async def run(self) -> None:
        """Probe for as long as the hub runs."""
        while True:
            try:
                await self._look()
                await self._look_beside()
            except Exception as error:  # a bug: nobody is worse off than without a probe
                log.warning("whether Redis can be used cannot be found out", exc_info=error)
            await asyncio.sleep(PROBE_SECONDS)

    async def _look(self) -> None:
        self.note(await self._find_trouble())
        if not self._trouble:
            with suppress(TryAgain):  # the next look reports it
                self.note_away(await self._parts.away(self._journals.sets))
            self._note_maxmemory()
            memory = self._writable.memory
            self._warnings.note("memory", why_low(memory) if memory else self._parts.low)

    async def _look_beside(self) -> None:
        """What takes longer than somebody waits who asks whether this process is ready."""
        if self._trouble:
            return
        client, probes = self._writable.client, list(self._parts.probes().values())
        with suppress(TryAgain):  # the next look reports it
            unconfirmed = await why_unconfirmed(client, probes, KEPT_SECONDS)
            self._warnings.note("replicas", unconfirmed)
            self._warnings.note("sentinels", await client.too_few_sentinels())
            self._warnings.note("clock", await why_clocks_differ(client))
            if self._clock() >= self._certificate_at:
                self._certificate_at = self._clock() + CERTIFICATE_SECONDS
                self._warnings.note("certificate", await why_certificate_ends(client))

    async def _find_trouble(self) -> str:
        """What is wrong, or nothing."""
        self._room = None if self._disk is None else _room_on(self._disk)
        full = why_disk_full(self._disk, self._free_mib)
        if full:  # also if Redis has stopped because of it
            return full
        reason = await self._writable.why_not()
        return f"not writable: {reason}" if reason else ""

    def note(self, trouble: str) -> None:
        """Log a trouble when it begins, when it becomes another one, and when it has ended."""
        if trouble and not self._trouble:
            self._since = self._clock()
        if trouble and trouble != self._trouble:
            log.warning("%s; %s", trouble, AFFECTED)
        elif self._trouble and not trouble:
            log.warning("publishing works again after %.0f s", self._clock() - self._since)
        if trouble:
            self._warnings.forget()
        self._trouble = trouble

    def note_away(self, away: Mapping[str, Sequence[str]]) -> None:
        """The same of parts of a Redis Cluster, with the sets that this affects."""
        for reason in away.keys() - self._away.keys():
            log.warning("%s", _affected(reason, away[reason], away[reason]))
        if self._away and not away:
            log.warning("all sets can be published to again")
        self._away = away


def _affected(reason: str, names: Sequence[str], public: Sequence[str]) -> str:
    """In words; no more than ten of the names."""
    some = ", ".join(public[:NAMED]) + (", …" if len(names) > len(public[:NAMED]) else "")
    named = f" ({some})" if public else ""
    return f"publishing to {len(names)} sets{named} is refused: {reason}"


def why_disk_full(disk: Path | None, free_mib: int = FREE_MIB) -> str:
    """Why nothing can be stored on the disk of the embedded Redis; nothing if it can."""
    room = None if disk is None else _room_on(disk)
    if room is None or room.free >= free_mib * MIB:
        return ""
    return f"less than {free_mib} MiB are left on the disk of {disk}: make room"


def _backed_up(data: Path) -> float:
    """When `rsnotify backup` last wrote a file of this directory's journals; 0 if never."""
    try:
        return (data / BACKED_UP).stat().st_mtime
    except OSError:
        return 0.0


def _room_on(disk: Path) -> Room | None:
    try:
        found = shutil.disk_usage(disk)
    except OSError:  # Redis says it better
        return None
    return Room(found.free, found.total)
