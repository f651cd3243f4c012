"""Resource Lists over HTTP: the newest snapshot, in one list or an index and its parts.

Rules that hold here: a part belongs to its snapshot for ever; one that has been replaced stays as
long as somebody walks its parts, then it is gone.
"""

import re

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.core.documents import (
    Taken,
    list_of_resource_lists,
    resource_list,
    resource_list_frame,
    resource_list_part,
)
from rsnotify.core.gzip_parts import Packed
from rsnotify.delivery.pull.admission import Asked, Readers
from rsnotify.delivery.pull.responses import Flow, Parts, answer, flow, whole
from rsnotify.errors import Rejected
from rsnotify.resourcesync.xml_writer import render_document
from rsnotify.storage.snapshots import Snapshot, Snapshots

_PART = re.compile(r"(\d{1,20})-(\d{1,5})").fullmatch


class ResourceLists:
    """The Resource Lists of every set."""

    def __init__(self, readers: Readers, snapshots: Snapshots) -> None:
        self._readers = readers
        self._snapshots = snapshots

    async def newest(self, request: Request) -> Response:
        asked = await self._readers.admit(request)
        snapshot = await self._snapshots.newest(asked.name)
        if snapshot is None:
            raise Rejected(f"no snapshot of {asked.name!r} has been taken yet", status=404)
        if snapshot.parts == 1:
            return await self._list(request, asked, snapshot, 1, is_part=False)
        parts = (
            resource_list_part(asked.name, snapshot.name, number)
            for number in range(1, snapshot.parts + 1)
        )
        document = list_of_resource_lists(asked.base, asked.name, _taken(snapshot), parts)
        known = asked.known(f"{snapshot.name}-index", snapshot.completed)
        return await whole(request, known, lambda: render_document(document))

    async def part(self, request: Request) -> Response:
        asked = await self._readers.admit(request)
        found = _PART(request.path_params["part"])
        if found is None:
            raise Rejected("there is no such Resource List", status=404)
        name, number = found[1], int(found[2])
        snapshot = await self._snapshots.named(asked.name, name)
        if snapshot is None or not 1 <= number <= snapshot.parts:
            raise await self._missing(asked, name)
        newest = await self._snapshots.newest(asked.name)
        if newest is None or newest.name != name:
            await self._snapshots.keep_walkable(asked.name, snapshot)
        return await self._list(request, asked, snapshot, number, is_part=True)

    async def _list(
        self, request: Request, asked: Asked, snapshot: Snapshot, number: int, *, is_part: bool
    ) -> Response:
        frame = resource_list_frame(asked.base, asked.name, _taken(snapshot), is_part=is_part)

        async def make(in_gzip: bool) -> Parts | Flow:
            packed = await self._snapshots.part(asked.name, snapshot, number)
            if packed is None:
                raise await self._missing(asked, snapshot.name)
            if in_gzip:
                return packed.gzipped(*frame)
            return await flow(frame, _unpacked(packed), in_gzip=False)

        known = asked.known(f"{snapshot.name}-{number}", snapshot.completed, is_fixed=is_part)
        return await answer(request, known, make)

    async def _missing(self, asked: Asked, name: str) -> Rejected:
        """Parts of what is older than the newest snapshot were there once."""
        newest = await self._snapshots.newest(asked.name)
        if newest is None or int(name) >= int(newest.name):
            return Rejected("there is no such Resource List", status=404)
        index = asked.base + resource_list(asked.name)
        headers = {"link": f'<{index}>; rel="index"'}
        detail = f"this snapshot has been replaced, see {index}"
        return Rejected(detail, status=410, headers=headers)


def _taken(snapshot: Snapshot) -> Taken:
    return Taken(snapshot.at, snapshot.completed)


async def _unpacked(packed: Packed) -> Flow:
    for piece in packed.pieces():
        yield piece
