"""What the hub itself publishes on framework channels: its own documents have changed.

A fact is made true before it is published. Each fact has its own idempotency key, so Destinations
get it once, however many hub processes publish it; our keys contain a space, which no publisher's
can. Changes of the Source Description concern every set: they are collected for some seconds, and
the version announced is stored afterwards, so that what a dying process began is repeated.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from time import monotonic

from rsnotify.documents.announced_description import AnnouncedDescriptions, DescriptionVersion
from rsnotify.documents.documents import (
    change_list,
    resource_list,
    resource_list_archive,
    resource_list_part,
)
from rsnotify.documents.documents_told import DocumentsTold
from rsnotify.documents.snapshots import Snapshot
from rsnotify.errors import NoSuchSet
from rsnotify.journal.hub import Hub
from rsnotify.journal.set_options import SetRecord
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.journal.window import Window
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.notification import (
    SOURCE_DESCRIPTION,
    ChannelName,
    capability_list,
    change_list_index,
)

GATHER_SECONDS = 3.0  # changes of the Source Description within this time are one notification
SETS_AT_ONCE = 100  # are announced of it in one go, so that Sources need not wait long


class Announcements:
    """Publishes on framework channels what has changed in the hub's documents."""

    def __init__(
        self,
        hub: Hub,
        announced: AnnouncedDescriptions,
        documents: DocumentsTold,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._hub = hub
        self._announced = announced
        self._documents = documents
        self._clock = clock
        self._described_last = (-1, Position(0)), DescriptionVersion(-1, "")
        self._noticed: float | None = None  # when the description was first seen to be another

    async def window_closed(self, set_name: str, window: Window) -> None:
        """The closed list now has its end, and a new one begins there."""
        changes = (
            self._of_list(set_name, window.from_, "updated"),
            self._of_list(set_name, window.until, "created"),
        )
        await self._publish(set_name, f"closed-{int(window.until)}", changes)

    async def open_list_grew(self, set_name: str, window_from: Position, head: Position) -> None:
        change = self._of_list(set_name, window_from, "updated")
        await self._publish(set_name, f"grew-{int(head)}", [change])

    async def snapshot_taken(self, set_name: str, snapshot: Snapshot) -> None:
        """A new Resource List; if there are several under an index, the first stands for all."""
        path, index = resource_list(set_name), None
        if snapshot.parts > 1:
            path = resource_list_part(set_name, snapshot.name, 1)
            index = self._hub.base_url + resource_list(set_name)
        change = Change(
            self._hub.base_url + path, "created", capability="resourcelist", index=index
        )
        await self._publish(set_name, f"snapshot-{snapshot.name}", [change])
        await self.documents_changed(set_name)

    async def archive_grew(self, set_name: str, snapshot: Snapshot, *, is_new: bool) -> None:
        """The Resource List Archive has got what this snapshot replaced."""
        loc = self._hub.base_url + resource_list_archive(set_name)
        change = Change(loc, "created" if is_new else "updated", capability="resourcelist-archive")
        await self._publish(set_name, f"archive-{snapshot.name}", [change])

    async def documents_changed(self, set_name: str) -> None:
        """What the set offers may have changed; it is told if it has."""
        with suppress(NoSuchSet):  # removed meanwhile
            await self._documents.tell(self._hub.record(set_name), self._publish)

    async def archives_to_tell(self, names: Sequence[str]) -> list[str]:
        """Those of these sets whose Change List Archive may have grown."""
        sets = self._hub.sets
        self._documents.forget_others(sets)
        changed = [sets[name] for name in names if name in sets and self._hub.has_changed(name)]
        return await self._documents.archives_to_tell(changed)

    async def set_made(self, record: SetRecord) -> None:
        await self._set_changed(record, "created")
        await self._documents.begin(record)

    async def set_goes(self, record: SetRecord) -> None:
        """It is about to be deleted: afterwards it has no channel."""
        await self._set_changed(record, "deleted")

    async def _set_changed(self, record: SetRecord, change: str) -> None:
        key = f"set-{change}-{record.name}-{record.edited}"
        loc = self._hub.base_url + capability_list(record.name)
        await self._publish(record.name, key, [Change(loc, change, capability="capabilitylist")])

    async def keep_description_announced(self) -> None:
        """Announce that the Source Description has changed, once it has for some seconds, whichever
        process changed it."""
        described = self._described()
        if not described.is_news_after(await self._announced.read()):
            self._noticed = None
            return
        if self._noticed is None:
            self._noticed = self._clock()
        is_due = self._clock() - self._noticed >= GATHER_SECONDS
        if is_due and await self._announced.claim(GATHER_SECONDS):
            await self.announce_description()

    async def announce_description(self) -> None:
        """Announce it now, to every set."""
        described, names = self._described(), list(self._hub.sets)
        key = f"description-{described.version}-{described.digest}"
        loc = self._hub.base_url + SOURCE_DESCRIPTION
        changes = [Change(loc, "updated", capability="description")]
        for start in range(0, len(names), SETS_AT_ONCE):
            some = names[start : start + SETS_AT_ONCE]
            await asyncio.gather(*(self._publish(name, key, changes) for name in some))
        await self._announced.write(described)

    def _described(self) -> DescriptionVersion:
        """What the Source Description says of the sets, as of the newest version."""
        changed = self._hub.sets_version, self._hub.sets_changed
        if self._described_last[0] != changed:
            self._described_last = changed, self._describe()
        return self._described_last[1]

    def _describe(self) -> DescriptionVersion:
        """It names those that are public."""
        named = sorted(
            f"{record.name} {record.describedby or ''}{' ws' if record.sockets_first else ''}"
            for record in self._hub.sets.values()
            if not record.private
        )
        digest = blake2b("\n".join(named).encode(), digest_size=12).hexdigest()
        return DescriptionVersion(self._hub.sets_version, digest)

    def _of_list(self, set_name: str, from_: Position, change: str) -> Change:
        base = self._hub.base_url
        return Change(
            base + change_list(set_name, from_),
            change,
            capability="changelist",
            index=base + change_list_index(set_name),
        )

    async def _publish(self, set_name: str, key: str, changes: Iterable[Change]) -> None:
        submission = Submission([fragment_of(change) for change in changes], f"hub {key}")
        with suppress(NoSuchSet):  # the set has been removed meanwhile: nobody listens
            await self._hub.publish(ChannelName(set_name, "framework"), submission)
