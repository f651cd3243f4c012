"""Resource Lists over HTTP: the newest snapshot, as one list or as an index with parts.

A part never changes. A snapshot that was replaced is kept as long as somebody fetches its parts.
"""

import re

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.core import query
from rsnotify.core.documents import (
    SnapshotTimes,
    resource_list,
    resource_list_frame,
    resource_list_index_document,
    resource_list_part,
)
from rsnotify.core.gzip_parts import Packed
from rsnotify.delivery.pull.admission import RequestedSet, SetAdmission, query_of
from rsnotify.delivery.pull.responses import (
    ByteStream,
    Parts,
    document_response,
    rendered_response,
    stream_document,
)
from rsnotify.errors import Rejected
from rsnotify.resourcesync.xml_writer import render_document
from rsnotify.storage.snapshots import Snapshot, Snapshots

_PART = re.compile(r"(\d{1,20})-(\d{1,5})").fullmatch


class ResourceLists:
    """The Resource Lists of every set."""

    def __init__(self, admission: SetAdmission, snapshots: Snapshots) -> None:
        self._admission = admission
        self._snapshots = snapshots

    async def newest(self, request: Request) -> Response:
        query_of(request, query.LIST)
        requested = await self._admission.admit(request)
        snapshot = await self._snapshots.newest(requested.name)
        if snapshot is None:
            raise Rejected(f"no snapshot of {requested.name!r} has been taken yet", status=404)
        if snapshot.parts == 1:
            return await self._list(request, requested, snapshot, 1, is_part=False)
        parts = (
            resource_list_part(requested.name, snapshot.name, number)
            for number in range(1, snapshot.parts + 1)
        )
        document = resource_list_index_document(
            requested.base, requested.name, _times(snapshot), parts
        )
        info = requested.info(f"{snapshot.name}-index", snapshot.completed)
        return await rendered_response(request, info, lambda: render_document(document))

    async def part(self, request: Request) -> Response:
        query_of(request, query.LIST)
        requested = await self._admission.admit(request)
        found = _PART(request.path_params["part"])
        if found is None:
            raise Rejected("there is no such Resource List", status=404)
        name, number = found[1], int(found[2])
        snapshot = await self._snapshots.named(requested.name, name)
        if snapshot is None or not 1 <= number <= snapshot.parts:
            raise await self._missing(requested, name)
        newest = await self._snapshots.newest(requested.name)
        if newest is None or newest.name != name:
            await self._snapshots.keep_walkable(requested.name, snapshot)
        return await self._list(request, requested, snapshot, number, is_part=True)

    async def _list(
        self,
        request: Request,
        requested: RequestedSet,
        snapshot: Snapshot,
        number: int,
        *,
        is_part: bool,
    ) -> Response:
        frame = resource_list_frame(
            requested.base, requested.name, _times(snapshot), is_part=is_part
        )

        async def make(in_gzip: bool) -> Parts | ByteStream:
            packed = await self._snapshots.part(requested.name, snapshot, number)
            if packed is None:
                raise await self._missing(requested, snapshot.name)
            if in_gzip:
                return packed.gzipped(*frame)
            return await stream_document(frame, _unpacked(packed), in_gzip=False)

        info = requested.info(f"{snapshot.name}-{number}", snapshot.completed, is_fixed=is_part)
        return await document_response(request, info, make)

    async def _missing(self, requested: RequestedSet, name: str) -> Rejected:
        """410 for a snapshot that was replaced, 404 for one that never was."""
        newest = await self._snapshots.newest(requested.name)
        if newest is None or int(name) >= int(newest.name):
            return Rejected("there is no such Resource List", status=404)
        index = requested.base + resource_list(requested.name)
        headers = {"link": f'<{index}>; rel="index"'}
        detail = f"this snapshot has been replaced, see {index}"
        return Rejected(detail, status=410, headers=headers)


def _times(snapshot: Snapshot) -> SnapshotTimes:
    return SnapshotTimes(snapshot.at, snapshot.completed)


async def _unpacked(packed: Packed) -> ByteStream:
    for piece in packed.pieces():
        yield piece
