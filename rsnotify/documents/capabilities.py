"""What a set offers at this moment: what its Capability List says, in discovery and announced.

A capability is offered as soon as its document exists. Where the Source has a document of its own,
it is offered instead of the hub's.
"""

from time import time
from typing import NamedTuple

from rsnotify.documents.documents import SetCapabilities, resource_list
from rsnotify.documents.snapshots import Snapshot, Snapshots
from rsnotify.journal.set_options import SetRecord
from rsnotify.journal.window import DAY, Window
from rsnotify.journal.windows import Windows
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import KINDS, Kind


class Offer(NamedTuple):
    """What a set offers, and since when it has been this."""

    capabilities: SetCapabilities
    changed: Position


class Offers:
    """Asks what sets offer."""

    def __init__(self, windows: Windows, snapshots: Snapshots, index_days: int) -> None:
        self._windows = windows
        self._snapshots = snapshots
        self._index_days = index_days

    async def of(self, record: SetRecord, base: str) -> Offer:
        snapshot = await self._snapshots.newest(record.name)
        oldest = await self._windows.oldest(record.name)
        archived_at = self._archived_at(oldest)
        offered = capabilities_of(record, snapshot, base)._replace(
            has_archive=archived_at is not None,
            has_resource_list_archive=await self._snapshots.has_archive(record.name),
        )
        taken = 0 if snapshot is None else snapshot.completed
        edited = Position.parse(record.edited)
        return Offer(offered, Position(max(edited, taken, archived_at or 0)))

    def _archived_at(self, oldest: Window | None) -> int | None:
        """Since when the set has an archive; None if it has none."""
        if oldest is None:
            return None
        left = oldest.until + self._index_days * DAY
        return left if left <= time() * MICROSECONDS else None


def capabilities_of(
    record: SetRecord,
    snapshot: Snapshot | None = None,
    base: str = "",
) -> SetCapabilities:
    ours = None if snapshot is None else base + resource_list(record.name)
    return SetCapabilities(
        set_name=record.name,
        describedby=record.describedby,
        resourcelist=record.resourcelist or ours,
        resourcedump=record.resourcedump,
        changelist=record.changelist,
        changedump=record.changedump,
        resourcelist_archive=record.resourcelist_archive,
        resourcedump_archive=record.resourcedump_archive,
        changelist_archive=record.changelist_archive,
        changedump_archive=record.changedump_archive,
        sockets_first=record.sockets_first,
        topics=_named({kind: record.own_topic(kind) for kind in KINDS}),
        channels=_named({kind: record.own_channel(kind) for kind in KINDS}),
        channel_hub=record.channel_hub,
    )


def _named(addresses: dict[Kind, str | None]) -> dict[Kind, str]:
    return {kind: address for kind, address in addresses.items() if address is not None}
