"""What the hub itself says on framework channels: its own documents have changed.

Rules that hold here: first it is true, then it is said; every fact has its own idempotency key, so
however many hub processes say it, Destinations hear it once. Our keys have a space in them, which
no publisher's can have.
"""

import asyncio
from collections.abc import Iterable

from rsnotify.core.change import Change, Position
from rsnotify.core.documents import (
    change_list,
    change_list_index,
    resource_list,
    resource_list_part,
)
from rsnotify.core.notification import SOURCE_DESCRIPTION, ChannelName, capability_list
from rsnotify.core.submission import Submission, fragment_of
from rsnotify.core.window import Window
from rsnotify.errors import Rejected
from rsnotify.hub import Hub
from rsnotify.storage.sets import SetRecord
from rsnotify.storage.snapshots import Snapshot


class Announcements:
    """Says on framework channels what has become of the hub's documents."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def window_closed(self, set_name: str, window: Window) -> None:
        """The closed list has got its end, and a new one begins there."""
        changes = (
            self._of_list(set_name, window.from_, "updated"),
            self._of_list(set_name, window.until, "created"),
        )
        await self._say(set_name, f"closed-{int(window.until)}", changes)

    async def list_grew(self, set_name: str, window_from: Position, head: Position) -> None:
        change = self._of_list(set_name, window_from, "updated")
        await self._say(set_name, f"grew-{int(head)}", [change])

    async def snapshot_taken(self, set_name: str, snapshot: Snapshot) -> None:
        """A new Resource List; of several under an index, one stands for all."""
        path, index = resource_list(set_name), None
        if snapshot.parts > 1:
            path = resource_list_part(set_name, snapshot.name, 1)
            index = self._hub.base_url + resource_list(set_name)
        change = Change(
            self._hub.base_url + path, "created", capability="resourcelist", index=index
        )
        await self._say(set_name, f"snapshot-{snapshot.name}", [change])

    async def set_changed(self, record: SetRecord, change: str) -> None:
        """A set was created or edited, or is about to be deleted."""
        key = f"set-{change}-{record.name}-{record.edited}"
        loc = self._hub.base_url + capability_list(record.name)
        await self._say(record.name, key, [Change(loc, change, capability="capabilitylist")])
        if change == "updated" or not record.private:
            await self._description_changed(key)

    async def _description_changed(self, key: str) -> None:
        loc = self._hub.base_url + SOURCE_DESCRIPTION
        changes = [Change(loc, "updated", capability="description")]
        await asyncio.gather(
            *(self._say(name, f"description-{key}", changes) for name in self._hub.sets)
        )

    def _of_list(self, set_name: str, from_: Position, change: str) -> Change:
        base = self._hub.base_url
        return Change(
            base + change_list(set_name, from_),
            change,
            capability="changelist",
            index=base + change_list_index(set_name),
        )

    async def _say(self, set_name: str, key: str, changes: Iterable[Change]) -> None:
        submission = Submission([fragment_of(change) for change in changes], f"hub {key}")
        try:
            await self._hub.publish(ChannelName(set_name, "framework"), submission)
        except Rejected as gone:
            if gone.status != 404:  # nobody listens any more to a set that has been removed
                raise
