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
from time import monotonic, time
from typing import NamedTuple

import msgspec

from rsnotify.coordination import keys
from rsnotify.coordination.claims import Claims
from rsnotify.documents.discovery import Offers, PublicSets
from rsnotify.documents.documents import (
    Announced,
    Offered,
    Snapshot,
    capabilities,
    change_list,
    framework_changes,
    resource_list,
    resource_list_archive,
    resource_list_part,
    source_description_part,
)
from rsnotify.errors import NoSuchSet
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.journal.window import DocumentSchedule, Window
from rsnotify.journal.windows import Archived, Windows
from rsnotify.live.journals import Journals
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import MICROSECONDS, Change, ChangeKind, Position
from rsnotify.resourcesync.notification import (
    SOURCE_DESCRIPTION,
    ChannelName,
    capability_list,
    change_list_index,
)
from rsnotify.resourcesync.xml_writer import render_document
from rsnotify.sets.options import SetRecord

FIELD = "documents"
GATHER_SECONDS = 3.0  # changes of the Source Description within this time are one notification
SHARE = 10  # at most a tenth of the time is spent on that, however many sets there are
SETS_AT_ONCE = 100  # are announced of it in one go, so that Sources need not wait long


class DescriptionVersion(NamedTuple):
    """The Source Description at a version of the sets."""

    version: int
    digest: str

    def is_news_after(self, announced: "DescriptionVersion | None") -> bool:
        return announced is None or (
            self.version > announced.version and self.digest != announced.digest
        )


class AnnouncedNotes:
    """The notes of what was announced, in Redis, for all hub processes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._claims = Claims(client)

    async def documents(self, set_name: str) -> Announced | None:
        found = await self._client.hget(_key(set_name), FIELD)
        return None if found is None else msgspec.json.decode(found, type=Announced)

    async def note_documents(self, record: SetRecord, announced: Announced) -> None:
        """Write only if the set is the one created then: a removed one must leave no key."""
        created = int(Position.parse(record.created))
        command = ("HSET", FIELD, msgspec.json.encode(announced))
        await self._client.if_equals(_key(record.name), created, *command, field="created")

    async def description(self) -> DescriptionVersion | None:
        version, digest = await self._client.hmget(keys.SETS_ANNOUNCED, "version", "digest")
        return None if version is None else DescriptionVersion(int(version), digest.decode())

    async def note_description(self, described: DescriptionVersion) -> None:
        await self._client.hset(keys.SETS_ANNOUNCED, mapping=described._asdict())

    async def claim_description(self, seconds: float) -> bool:
        """Whether this process may announce it; no other may for so many seconds."""
        return await self._claims.take(f"{keys.SETS_ANNOUNCED}:claim", seconds) is not None


def _key(set_name: str) -> str:
    return keys.record(ChannelName(set_name, "framework"))


class Announcements:
    """Publishes on framework channels what has changed in the hub's documents."""

    def __init__(
        self,
        journals: Journals,
        windows: Windows,
        offers: Offers,
        sets: PublicSets,
        notes: AnnouncedNotes,
        schedule: DocumentSchedule,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._journals = journals
        self._windows = windows
        self._offers = offers
        self._sets = sets
        self._notes = notes
        self._schedule = schedule
        self._clock = clock
        self._archives: dict[tuple[str, str], str] = {}  # as last seen by this process
        self._described_last = (-1, Position(0)), DescriptionVersion(-1, "")
        self._gather_seconds = GATHER_SECONDS
        self._noticed: float | None = None  # when the description was first seen to be another

    # --- facts about one document --------------------------------------------------------------

    async def window_closed(self, set_name: str, window: Window) -> None:
        """Announce a closed list, which now has its end, and the list that begins there."""
        changes = (
            self._of_list(set_name, window.from_, "updated"),
            self._of_list(set_name, window.until, "created"),
        )
        await self._publish(set_name, f"closed-{int(window.until)}", changes)

    async def open_list_grew(self, set_name: str, window_from: Position, head: Position) -> None:
        change = self._of_list(set_name, window_from, "updated")
        await self._publish(set_name, f"grew-{int(head)}", [change])

    async def snapshot_taken(self, set_name: str, snapshot: Snapshot) -> None:
        """Announce a Resource List; of several under an index, the first stands for all."""
        path, index = resource_list(set_name), None
        if snapshot.parts > 1:
            path = resource_list_part(set_name, snapshot.name, 1)
            index = self._base_url + resource_list(set_name)
        change = Change(self._base_url + path, "created", capability="resourcelist", index=index)
        await self._publish(set_name, f"snapshot-{snapshot.name}", [change])
        await self.documents_changed(set_name)

    async def archive_grew(self, set_name: str, snapshot: Snapshot, *, is_new: bool) -> None:
        """Announce that the Resource List Archive has got what this snapshot replaced."""
        loc = self._base_url + resource_list_archive(set_name)
        change = Change(loc, "created" if is_new else "updated", capability="resourcelist-archive")
        await self._publish(set_name, f"archive-{snapshot.name}", [change])

    # --- what a set offers ---------------------------------------------------------------------

    async def documents_changed(self, set_name: str) -> None:
        """Announce how the set's documents differ from what was announced last."""
        with suppress(NoSuchSet):  # removed meanwhile
            await self._announce_documents(self._journals.record(set_name))

    async def _announce_documents(self, record: SetRecord) -> None:
        announced = await self._notes.documents(record.name)
        now = await self._now(record, 0 if announced is None else announced.number + 1)
        self._archives[record.name, record.created] = now.archive
        if announced is not None:  # else it was made by a hub that kept no note
            if now.is_same(announced):
                return
            changes = list(framework_changes(announced, now, self._base_url, record.name))
            if changes:
                await self._publish(
                    record.name, f"documents-{_digest(repr(now).encode())}", changes
                )
        await self._notes.note_documents(record, now)

    async def archives_to_announce(self, names: Sequence[str]) -> list[str]:
        """The sets whose archive has changed since this process saw it, or cannot be read.

        Time alone moves Change Lists into an archive, so all are asked for, in one round trip."""
        sets = self._journals.sets
        self._archives = {key: seen for key, seen in self._archives.items() if key[0] in sets}
        changed = [
            sets[name] for name in names if name in sets and self._journals.has_changed(name)
        ]
        return [
            record.name
            for record, archive in zip(changed, await self._archives_of(changed), strict=True)
            if self._archives.get((record.name, record.created)) != archive
        ]

    async def _now(self, record: SetRecord, number: int) -> Announced:
        offered = await self._offers.of(record)
        (archive,) = await self._archives_of([record])
        if isinstance(archive, Exception):
            raise archive
        return Announced(number, self._digest_of(offered), archive, record.own_documents)

    def _digest_of(self, offered: Offered) -> str:
        return _digest(render_document(capabilities(self._base_url, offered)))

    async def _archives_of(self, records: Sequence[SetRecord]) -> list[str | Exception]:
        """What the hub's own archive of each set covers, or why that cannot be read."""
        begin = self._schedule.index_begin(int(time() * MICROSECONDS))
        found = await self._windows.archived([record.name for record in records], begin)
        return [_covered(*each) for each in zip(records, found, strict=True)]

    # --- the sets ------------------------------------------------------------------------------

    async def set_made(self, record: SetRecord) -> None:
        await self._set_changed(record, "created")
        # The hub offers nothing of it yet: its creation alone is announced.
        offered = Announced(0, self._digest_of(Offered(record)), "", record.own_documents)
        await self._notes.note_documents(record, offered)

    async def set_goes(self, record: SetRecord) -> None:
        """Announce a set's deletion before it happens: afterwards it has no channel."""
        await self._set_changed(record, "deleted")

    async def _set_changed(self, record: SetRecord, change: ChangeKind) -> None:
        key = f"set-{change}-{record.name}-{record.edited}"
        loc = self._base_url + capability_list(record.name)
        await self._publish(record.name, key, [Change(loc, change, capability="capabilitylist")])

    async def keep_description_announced(self) -> None:
        """Announce that the Source Description has changed, once it has for some seconds, whichever
        process changed it."""
        described = self._described()
        if not described.is_news_after(await self._notes.description()):
            self._noticed = None
            return
        if self._noticed is None:
            self._noticed = self._clock()
        is_due = self._clock() - self._noticed >= self._gather_seconds
        if is_due and await self._notes.claim_description(GATHER_SECONDS):
            self._noticed = None
            await self.announce_description()

    async def announce_description(self) -> None:
        """Announce the Source Description now, on the channel of every set; of several under an
        index, the first stands for all."""
        began, described, names = self._clock(), self._described(), list(self._journals.sets)
        key = f"description-{described.version}-{described.digest}"
        changes = [self._of_description()]
        for start in range(0, len(names), SETS_AT_ONCE):
            some = names[start : start + SETS_AT_ONCE]
            await asyncio.gather(*(self._publish(name, key, changes) for name in some))
        await self._notes.note_description(described)
        taken = self._clock() - began
        self._gather_seconds = max(GATHER_SECONDS, (SHARE - 1) * taken)

    def _described(self) -> DescriptionVersion:
        """What the Source Description says of the sets, as of the newest version."""
        changed = self._journals.known.number, self._journals.known.changed
        if self._described_last[0] != changed:
            self._described_last = changed, self._describe()
        return self._described_last[1]

    def _describe(self) -> DescriptionVersion:
        """The sets that the description names: the public ones."""
        named = [
            f"{record.name} {record.describedby or ''}{' ws' if record.sockets_first else ''}"
            for record in self._sets.records()
        ]
        return DescriptionVersion(self._journals.known.number, _digest("\n".join(named).encode()))

    def _of_description(self) -> Change:
        loc = self._base_url + SOURCE_DESCRIPTION
        if self._sets.described.parts == 1:
            return Change(loc, "updated", capability="description")
        first = self._base_url + source_description_part(1)
        return Change(first, "updated", capability="description", index=loc)

    def _of_list(self, set_name: str, from_: Position, change: ChangeKind) -> Change:
        return Change(
            self._base_url + change_list(set_name, from_),
            change,
            capability="changelist",
            index=self._base_url + change_list_index(set_name),
        )

    async def _publish(self, set_name: str, key: str, changes: Iterable[Change]) -> None:
        submission = Submission([fragment_of(change) for change in changes], f"hub {key}")
        with suppress(NoSuchSet):  # the set has been removed meanwhile: nobody listens
            channel = ChannelName(set_name, "framework")
            await self._journals.publish(channel, submission, is_limited=False)

    @property
    def _base_url(self) -> str:
        return self._journals.base_url


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()


def _covered(record: SetRecord, archived: Archived | Exception | None) -> str | Exception:
    """Nothing while the hub has no archive to announce."""
    if record.changelist_archive is not None or archived is None:
        return ""
    if isinstance(archived, Exception):
        return archived
    oldest, newest = archived
    return f"{int(oldest.from_)}-{int(newest.until)}"
