"""Resource Lists over HTTP: one list, an index with parts, or pages; archived lists, too.

A part never changes. A snapshot that was replaced stays in the archive, or as long as somebody
fetches its parts.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.documents.documents import (
    Neighbours,
    SnapshotTimes,
    resource_list,
    resource_list_archive_document,
    resource_list_head,
    resource_list_index_document,
    resource_list_part,
)
from rsnotify.documents.pages import kept_query, with_query
from rsnotify.documents.responses import (
    ByteStream,
    Parts,
    RequestedSet,
    SetAdmission,
    document_response,
    query_of,
    rendered_response,
    stream_list,
)
from rsnotify.documents.snapshots import PART_RESOURCES, Snapshot, Snapshots
from rsnotify.errors import Rejected
from rsnotify.journal.gzip_parts import PackedEntries, count_entries, some_entries
from rsnotify.registry.requests import DOCUMENT, RESOURCE_LIST, Query, whole_number
from rsnotify.resourcesync.forms import LIST_FORMS, NDJSON, XML
from rsnotify.resourcesync.xml_writer import Document

_PART = re.compile(r"(\d{1,20})(?:-(\d{1,5}))?").fullmatch


class ResourceListEndpoints:
    """The Resource Lists of every set."""

    def __init__(self, admission: SetAdmission, snapshots: Snapshots, *, page_size: int) -> None:
        self._admission = admission
        self._snapshots = snapshots
        self._page_size = page_size

    async def newest(self, request: Request) -> Response:
        """The Resource List, or the index of its parts."""
        asked = query_of(request, RESOURCE_LIST)
        requested = await self._admission.admit(request, LIST_FORMS)
        snapshot = await self._snapshots.newest(requested.name)
        if snapshot is None:
            raise Rejected(f"no snapshot of {requested.name!r} has been taken yet", status=404)
        return await self._whole(request, requested, snapshot, asked)

    async def archive(self, request: Request) -> Response:
        """The Resource List Archive: the snapshots that were replaced and are kept."""
        query_of(request, DOCUMENT)
        requested = await self._admission.admit(request)
        past = await self._snapshots.archived(requested.name)
        if not past:
            raise Rejected(f"no Resource List of {requested.name!r} is archived yet", status=404)
        found = [(snapshot.name, _times(snapshot)) for snapshot in past]
        document = resource_list_archive_document(requested.base, requested.name, found)
        info = requested.info(f"{past[0].name}-{past[-1].name}-{len(past)}", past[-1].completed)
        return await rendered_response(request, info, lambda: document)

    async def _whole(
        self,
        request: Request,
        requested: RequestedSet,
        snapshot: Snapshot,
        asked: Query,
        *,
        is_past: bool = False,
    ) -> Response:
        """A snapshot as one list, as the index of its parts, or its first page."""
        if "limit" in asked or "offset" in asked:
            return await self._page(request, requested, snapshot, 1, asked, is_fixed=is_past)
        if snapshot.parts == 1 or requested.form is NDJSON:
            return await self._list(request, requested, snapshot, is_fixed=is_past)
        info = requested.info(f"{snapshot.name}-index", snapshot.completed, is_fixed=is_past)
        return await rendered_response(request, info, lambda: _index(requested, snapshot))

    async def part(self, request: Request) -> Response:
        """A part of a Resource List, or one of the archive."""
        asked = query_of(request, RESOURCE_LIST)
        requested = await self._admission.admit(request, LIST_FORMS)
        found = _PART(request.path_params["part"])
        if found is None:
            raise Rejected("there is no such Resource List", status=404)
        name, number = found[1], int(found[2] or 1)
        snapshot = await self._snapshots.named(requested.name, name)
        if snapshot is None or not 1 <= number <= snapshot.parts:
            raise await self._missing(requested, name)
        newest = await self._snapshots.newest(requested.name)
        if newest is None or newest.name != name:
            await self._snapshots.keep_walkable(requested.name, snapshot)
        if found[2] is None:
            return await self._whole(request, requested, snapshot, asked, is_past=True)
        if "limit" in asked or "offset" in asked:
            return await self._page(request, requested, snapshot, number, asked, is_fixed=True)
        return await self._list(request, requested, snapshot, number, is_fixed=True)

    async def _list(
        self,
        request: Request,
        requested: RequestedSet,
        snapshot: Snapshot,
        number: int | None = None,
        *,
        is_fixed: bool,
    ) -> Response:
        """One part, or all of them as one list."""
        is_part = number is not None
        head = resource_list_head(requested.base, requested.name, _times(snapshot), is_part=is_part)

        async def make(in_gzip: bool) -> Parts | ByteStream:
            if in_gzip and requested.form is XML:
                packed = await self._part(requested, snapshot, number or 1)
                return packed.gzipped(*head.frame(XML))
            numbers = range(1, snapshot.parts + 1) if number is None else [number]
            entries = self._entries(requested, snapshot, numbers)
            return await stream_list(head, requested.form, entries, in_gzip=in_gzip)

        tag = f"{snapshot.name}-{number or 1}"
        info = requested.info(tag, snapshot.completed, is_fixed=is_fixed, head=head)
        return await document_response(request, info, make)

    async def _entries(
        self, requested: RequestedSet, snapshot: Snapshot, numbers: Iterable[int]
    ) -> ByteStream:
        for number in numbers:
            for piece in (await self._part(requested, snapshot, number)).pieces():
                yield piece

    async def _part(
        self, requested: RequestedSet, snapshot: Snapshot, number: int
    ) -> PackedEntries:
        packed = await self._snapshots.part(requested.name, snapshot, number)
        if packed is None:
            raise await self._missing(requested, snapshot.name)
        return packed

    # --- pages ---------------------------------------------------------------------------------

    async def _page(
        self,
        request: Request,
        requested: RequestedSet,
        snapshot: Snapshot,
        number: int,
        asked: Query,
        *,
        is_fixed: bool,
    ) -> Response:
        """Some resources of a part. Its addresses name the snapshot, so that a walk stays in it."""
        limit = whole_number(asked, "limit", 1, self._page_size, self._page_size)
        offset = whole_number(asked, "offset", 0, PART_RESOURCES, 0)
        packed = await self._part(requested, snapshot, number)
        count = await asyncio.to_thread(count_entries, packed)
        if offset >= max(1, count):
            raise Rejected(f"this part has {count} resources; offset is {offset}", status=404)
        turn = _Turn(requested.name, snapshot, number, offset, limit, kept_query(request))
        earlier = await self._count_before(requested, snapshot, number, offset)
        head = resource_list_head(
            requested.base,
            requested.name,
            _times(snapshot),
            Neighbours(turn.before(earlier), turn.after(count)),
            is_part=snapshot.parts > 1,
        )

        async def make(in_gzip: bool) -> ByteStream:
            entries = _in_thread(some_entries(packed, offset, limit))
            return await stream_list(head, requested.form, entries, in_gzip=in_gzip)

        tag = f"{snapshot.name}-{number}-{offset}-{limit}"
        info = requested.info(tag, snapshot.completed, is_fixed=is_fixed, head=head)
        return await document_response(request, info, make)

    async def _count_before(
        self, requested: RequestedSet, snapshot: Snapshot, number: int, offset: int
    ) -> int:
        """How many resources the part before has, if the page before is in it."""
        if offset > 0 or number == 1:
            return 0
        before = await self._part(requested, snapshot, number - 1)
        return await asyncio.to_thread(count_entries, before)

    async def _missing(self, requested: RequestedSet, name: str) -> Rejected:
        """The refusal: 410 for a snapshot that was replaced, 404 for one that never was."""
        newest = await self._snapshots.newest(requested.name)
        if newest is None or int(name) >= int(newest.name):
            return Rejected("there is no such Resource List", status=404)
        index = requested.base + resource_list(requested.name)
        headers = {"link": f'<{index}>; rel="index"'}
        detail = f"this snapshot has been replaced, see {index}"
        return Rejected(detail, status=410, headers=headers)


class _Turn(NamedTuple):
    """The links from a page to its neighbours."""

    set_name: str
    snapshot: Snapshot
    number: int
    offset: int
    limit: int
    asked: Mapping[str, str]

    def before(self, count: int) -> str | None:
        """`count`: how many resources the part before has."""
        if self.offset > 0:
            limit = min(self.limit, self.offset)
            return self._at(self.number, self.offset - limit, limit)
        if self.number == 1:
            return None
        return self._at(self.number - 1, (count - 1) // self.limit * self.limit, self.limit)

    def after(self, count: int) -> str | None:
        """`count`: how many resources this part has."""
        offset = self.offset + self.limit
        if offset < count:
            return self._at(self.number, offset, self.limit)
        if self.number < self.snapshot.parts:
            return self._at(self.number + 1, 0, self.limit)
        return None

    def _at(self, number: int, offset: int, limit: int) -> str:
        path = resource_list_part(self.set_name, self.snapshot.name, number)
        return with_query(path, {**self.asked, "limit": limit, "offset": offset})


def _index(requested: RequestedSet, snapshot: Snapshot) -> Document:
    parts = (
        resource_list_part(requested.name, snapshot.name, number)
        for number in range(1, snapshot.parts + 1)
    )
    return resource_list_index_document(requested.base, requested.name, _times(snapshot), parts)


def _times(snapshot: Snapshot) -> SnapshotTimes:
    return SnapshotTimes(snapshot.at, snapshot.completed)


async def _in_thread(pieces: Iterator[bytes]) -> ByteStream:
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece
