"""Resource Lists over HTTP: one list, an index with parts, or pages; archived lists, too.

A part never changes. A snapshot that was replaced stays in the archive, or as long as somebody
fetches its parts.
"""

import asyncio
import re
from collections.abc import Iterable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.query import DOCUMENT, RESOURCE_LIST, Query, whole_number
from rsnotify.documents.documents import (
    Neighbours,
    Snapshot,
    resource_list,
    resource_list_archive_document,
    resource_list_head,
    resource_list_index_document,
    resource_list_part,
)
from rsnotify.documents.pages import kept_query, with_query
from rsnotify.documents.responses import (
    ByteStream,
    KeptDocuments,
    RequestedSet,
    SetAdmission,
    query_of,
)
from rsnotify.documents.snapshots import PART_RESOURCES, Snapshots
from rsnotify.documents.stretches import ReadTurns
from rsnotify.errors import Rejected
from rsnotify.journal.gzip_parts import PackedEntries, count_entries, some_entries
from rsnotify.resourcesync.forms import LIST_FORMS, NDJSON

_PART = re.compile(r"(\d{1,20})(?:-(\d{1,5}))?").fullmatch


class ResourceListEndpoints:
    """The Resource Lists of every set."""

    def __init__(self, admission: SetAdmission, snapshots: Snapshots, *, page_size: int) -> None:
        self._admission = admission
        self._snapshots = snapshots
        self._page_size = page_size
        self._turns = ReadTurns()
        self._kept = KeptDocuments()

    async def newest(self, request: Request) -> Response:
        """The Resource List, or the index of its parts."""
        asked = query_of(request, RESOURCE_LIST)
        requested = await self._admission.admit(request, LIST_FORMS)
        snapshot = await self._snapshots.newest(requested.name)
        if snapshot is None:
            raise Rejected(f"no snapshot of {requested.name!r} has been taken yet", status=404)
        return await self._whole(requested, snapshot, asked)

    async def archive(self, request: Request) -> Response:
        """The Resource List Archive: the snapshots that were replaced and are kept."""
        query_of(request, DOCUMENT)
        requested = await self._admission.admit(request)
        past = await self._snapshots.archived(requested.name)
        if not past:
            raise Rejected(f"no Resource List of {requested.name!r} is archived yet", status=404)
        tag = f"{past[0].name}-{past[-1].name}-{len(past)}"
        describe = partial(resource_list_archive_document, requested.base, requested.name, past)
        return await requested.document(self._kept, tag, past[-1].completed, describe)

    async def _whole(
        self, requested: RequestedSet, snapshot: Snapshot, asked: Query, *, is_past: bool = False
    ) -> Response:
        """A snapshot as one list, as the index of its parts, or its first page."""
        if "limit" in asked or "offset" in asked:
            return await self._page(requested, snapshot, 1, asked, is_fixed=is_past)
        if snapshot.parts == 1 or requested.form is NDJSON:
            return await self._list(requested, snapshot, is_fixed=is_past)
        describe = partial(resource_list_index_document, requested.base, requested.name, snapshot)
        tag = f"{snapshot.name}-index"
        return await requested.document(
            self._kept, tag, snapshot.completed, describe, is_fixed=is_past
        )

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
            return await self._whole(requested, snapshot, asked, is_past=True)
        if "limit" in asked or "offset" in asked:
            return await self._page(requested, snapshot, number, asked, is_fixed=True)
        return await self._list(requested, snapshot, number, is_fixed=True)

    async def _list(
        self,
        requested: RequestedSet,
        snapshot: Snapshot,
        number: int | None = None,
        *,
        is_fixed: bool,
    ) -> Response:
        """One part, or all of them as one list."""
        is_part = number is not None
        head = resource_list_head(requested.base, requested.name, snapshot, is_part=is_part)
        numbers = range(1, snapshot.parts + 1) if number is None else [number]
        return await requested.list(
            head,
            f"{snapshot.name}-{number or 1}",
            snapshot.completed,
            partial(self._entries, requested, snapshot, numbers),
            partial(self._part, requested, snapshot, number or 1),
            is_fixed=is_fixed,
        )

    async def _entries(
        self, requested: RequestedSet, snapshot: Snapshot, numbers: Iterable[int]
    ) -> ByteStream:
        for number in numbers:
            packed = await self._part(requested, snapshot, number)
            async for piece in self._turns.unpacked(packed.pieces()):
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
        head = resource_list_head(
            requested.base,
            requested.name,
            snapshot,
            await self._neighbours(
                requested, snapshot, number, range(offset, offset + limit), count
            ),
            is_part=snapshot.parts > 1,
        )
        tag = f"{snapshot.name}-{number}-{offset}-{limit}"

        def entries() -> ByteStream:
            return self._turns.unpacked(some_entries(packed, offset, limit))

        return await requested.list(head, tag, snapshot.completed, entries, is_fixed=is_fixed)

    async def _neighbours(
        self, requested: RequestedSet, snapshot: Snapshot, number: int, page: range, count: int
    ) -> Neighbours:
        """The pages before and after this one of a part that has so many resources."""
        asked, limit = kept_query(requested.request), len(page)

        def at(number: int, offset: int, limit: int) -> str:
            path = resource_list_part(requested.name, snapshot.name, number)
            return with_query(path, {**asked, "limit": limit, "offset": offset})

        before = after = None
        if page.start > 0:
            at_most = min(limit, page.start)
            before = at(number, page.start - at_most, at_most)
        elif number > 1:
            packed = await self._part(requested, snapshot, number - 1)
            last = await asyncio.to_thread(count_entries, packed) - 1
            before = at(number - 1, last // limit * limit, limit)
        if page.stop < count:
            after = at(number, page.stop, limit)
        elif number < snapshot.parts:
            after = at(number + 1, 0, limit)
        return Neighbours(before, after)

    async def _missing(self, requested: RequestedSet, name: str) -> Rejected:
        """The refusal: 410 for a snapshot that was replaced, 404 for one that never was."""
        newest = await self._snapshots.newest(requested.name)
        if newest is None or int(name) >= int(newest.name):
            return Rejected("there is no such Resource List", status=404)
        index = requested.base + resource_list(requested.name)
        headers = {"link": f'<{index}>; rel="index"'}
        detail = f"this snapshot has been replaced, see {index}"
        return Rejected(detail, status=410, headers=headers)
