"""What a copy holds, read beside the mirror that keeps it: one moment of what is known, and files.

Rules that hold here: nothing is handed on whose length and digest are not what the mirror recorded
when it fetched it. A file that the mirror has replaced meanwhile is read as it is now: what changed
after `at` may be in a dump already. An open file never changes, for the mirror renames new ones.
"""

import hashlib
import os
import time
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.xml_writer import escape, render_link
from rsnotify_client.notification import position_of
from rsnotify_client.resource import Check, SourceResource, digests
from rsnotify_mirror.disk import Disk
from rsnotify_mirror.dumping.zip_records import ZipMember, stamp_of
from rsnotify_mirror.paths import digest
from rsnotify_mirror.plan import Have, kept_links
from rsnotify_mirror.state import State

FOLDER = "resources"  # in a package: no resource is taken for the manifest
SMALL_BYTES = 1024 * 1024
PIECE_BYTES = 256 * 1024
READINGS = 10  # of a resource that is not as it is recorded; what a mirror has done it notes soon
READING_SECONDS = 0.3
_ROWS = "SELECT loc, path, wanted, have FROM resource"
_HELD = "have IS NOT NULL AND path IS NOT NULL"
_BETWEEN = f"{_HELD} AND loc >= ? AND loc < ?"
AFTER_ALL = b""  # SQLite sorts it after every text
_GONE = (
    "position > :after AND position <= :until AND NOT EXISTS"
    " (SELECT 1 FROM resource WHERE resource.loc = gone.loc AND have IS NOT NULL)"
)
_wanted = msgspec.json.Decoder(SourceResource)
_have = msgspec.json.Decoder(Have)


class HeldRow(NamedTuple):
    """A resource of the copy, as the mirror has it in its file."""

    loc: str
    path: str
    wanted: str
    have: str

    @property
    def seen(self) -> str:
        """All that is known of it: what is the same has not changed."""
        return f"{self.path}\n{self.wanted}\n{self.have}"

    def described(self) -> tuple[SourceResource, Have]:
        """What the Source says of it, and what the copy has."""
        return _wanted.decode(self.wanted), _have.decode(self.have)


class Content(NamedTuple):
    """The bytes of a resource, verified; those of a long one are in the file still."""

    row: HeldRow
    member: ZipMember
    data: bytes | None
    file: BinaryIO | None


class NotAsFetched(Rejected):
    """A resource whose file is not what the mirror recorded, though it was looked at often."""


class NotWhole(Rejected):
    """The copy does not have a state of which it can be said what it is of."""


class _Differs(Exception):
    """What is read is not what is recorded."""


class CopyReader:
    """Reads one copy."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._state = State(directory, is_writer=False)
        self._now = State(directory, is_writer=False)
        self._disk = Disk(directory)
        self._state.database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._state.close()
        self._now.close()
        self._disk.close()

    @property
    def source(self) -> str:
        """The Capability List of the Source."""
        found = self._state.fact("source")
        if found is None:
            raise InvalidSettings(f"{self.directory} holds no copy yet: run rsnotify mirror")
        return found

    # What it knows ------------------------------------------------------------------------------

    def at(self, *, without_failed: bool) -> Position:
        """Up to here all changes are in the copy; `without_failed`, but for what failed.

        What is still to be done counts from the change on that it was planned for: whoever reads
        all changes from there comes to what the Source has.
        """
        cursor = self._state.cursor
        if cursor is None or self._state.fact("incomplete") is not None:
            raise NotWhole(
                f"{self.directory} does not have all of its Source: run rsnotify mirror, and see "
                "what it could not read"
            )
        which = " AND problem IS NULL" if without_failed else ""
        query = f"SELECT wanted, problem, loc FROM resource WHERE due IS NOT NULL{which}"  # noqa: S608
        at = cursor
        for wanted, problem, loc in self._state.database.execute(query):
            position = _wanted.decode(wanted).position
            if problem is not None or position is None:
                why = problem or "is still to be fetched"
                raise NotWhole(f"{self.directory} does not have {loc}: {why}")
            at = min(at, Position(position - 1))
        return at

    def failed(self) -> list[tuple[str, str]]:
        """Resources that the mirror could not fetch, and why."""
        return self._state.problems(limit=1_000)

    def rows(self, first: str = "", before: str | None = None) -> Iterator[HeldRow]:
        """What is held, by address."""
        query = f"{_ROWS} WHERE {_BETWEEN} ORDER BY loc"
        found = self._state.database.execute(
            query, (first, AFTER_ALL if before is None else before)
        )
        return map(HeldRow._make, found)

    def extent(self, first: str, before: str | None) -> tuple[int, int]:
        """How many resources are held, and how long they are together."""
        query = (
            "SELECT count(*), total(json_extract(have, '$.length')) FROM resource"  # noqa: S608
            f" WHERE {_BETWEEN}"
        )
        values = first, AFTER_ALL if before is None else before
        count, total = self._state.database.execute(query, values).fetchone()
        return count, int(total)

    def knows_changes_from(self, kept: float) -> Position:
        """From here on the mirror knows each change; it keeps deletions from that time on."""
        begins = self._state.fact("baseline")
        if begins is None:
            raise NotWhole(f"{self.directory} knows no single changes yet: run rsnotify mirror")
        return max(Position.parse(begins), Position(int(kept * MICROSECONDS)))

    def changed(
        self, after: Position, until: Position
    ) -> Iterator[tuple[int, str, str, HeldRow | None]]:
        """When and how resources have changed within this time, in this order; and what is held."""
        query = (
            "SELECT json_extract(wanted, '$.position') AS time,"  # noqa: S608
            " coalesce(json_extract(wanted, '$.change'), 'updated') AS change,"
            " loc, path, wanted, have"
            f" FROM resource WHERE {_HELD} AND change != 'deleted'"
            " AND time > :after AND time <= :until"
            f" UNION ALL SELECT position, 'deleted', loc, NULL, NULL, NULL FROM gone WHERE {_GONE}"
            " ORDER BY time, loc"
        )
        found = self._state.database.execute(query, {"after": int(after), "until": int(until)})
        for when, change, loc, *held in found:
            yield when, change, loc, HeldRow(loc, *held) if held[0] is not None else None

    def gone(self, after: Position, until: Position) -> Iterator[tuple[str, Position]]:
        """What was deleted within this time, as far as its change said when."""
        query = f"SELECT loc, position FROM gone WHERE {_GONE}"  # noqa: S608
        found = self._state.database.execute(query, {"after": int(after), "until": int(until)})
        return ((loc, Position(position)) for loc, position in found)

    def read(self, row: HeldRow) -> Content | None:
        """Its content; None if it has been deleted meanwhile."""
        current: HeldRow | None = row
        for attempt in range(READINGS):
            try:
                if current is not None:
                    return self._read(current)
            except (_Differs, FileNotFoundError) as error:
                why = f"{error}" if isinstance(error, _Differs) else "its file is not there"
            if attempt:
                time.sleep(READING_SECONDS)
            found = self._now.database.execute(f"{_ROWS} WHERE loc = ?", (row.loc,)).fetchone()
            if found is None:
                return None
            current = HeldRow._make(found) if found[1] and found[3] else None
        raise NotAsFetched(f"{self.directory}/{row.path}: {why}")

    def _read(self, row: HeldRow) -> Content:
        wanted, have = row.described()
        descriptor = self._disk.opened(row.path)
        try:
            is_short = have.length is not None and have.length < SMALL_BYTES
            data = os.read(descriptor, (have.length or 0) + 1 if is_short else SMALL_BYTES)
            if len(data) < SMALL_BYTES:
                return _checked(row, wanted, have, data, None)
            file = os.fdopen(os.dup(descriptor), "rb", buffering=0)
        finally:
            os.close(descriptor)
        try:
            return _checked(row, wanted, have, data, file)
        except BaseException:
            file.close()
            raise


def _checked(
    row: HeldRow, wanted: SourceResource, have: Have, data: bytes, file: BinaryIO | None
) -> Content:
    """What was read is what was recorded; of a long file, `data` is its beginning."""
    computed = None if digests(have.hash) else hashlib.sha256(data)
    check, crc = Check(have.length, have.hash), zlib.crc32(data)
    check.update(data)
    while file is not None and (piece := file.read(PIECE_BYTES)):
        check.update(piece)
        crc = zlib.crc32(piece, crc)
        if computed is not None:
            computed.update(piece)
    if (problem := check.problem()) is not None:
        raise _Differs(f"{problem} when it was fetched")
    if file is not None:
        file.seek(0)
    if computed is not None:
        have = replace(have, hash=f"sha-256:{computed.hexdigest()}")
    member = ZipMember(
        *(row.loc, entry_of(row, wanted, have), name_of(row).encode(), check.length, crc),
        *(_stamp(have.lastmod), row.seen),
    )
    return Content(row, member, data if file is None else None, file)


@lru_cache(maxsize=1_000)
def _stamp(lastmod: str | None) -> int:
    at = position_of(lastmod)
    return stamp_of(None if at is None else at // 1_000_000)


def entry_of(row: HeldRow, wanted: SourceResource, have: Have) -> bytes:
    """As a manifest has it: what the Source said of the version that the copy has.

    Written as `render_entries` does, in a third of the time.
    """
    lastmod = "" if have.lastmod is None else f"<lastmod>{escape(have.lastmod)}</lastmod>"
    digest = "" if have.hash is None else f' hash="{escape(have.hash)}"'
    kind = "" if wanted.type is None else f' type="{escape(wanted.type)}"'
    links = "".join(map(render_link, kept_links(wanted.links))) if wanted.links else ""
    return (
        f'<url><loc>{escape(row.loc)}</loc>{lastmod}<rs:md{digest} length="{have.length}"{kind}'
        f' path="/{escape(name_of(row))}"/>{links}</url>'
    ).encode()


def name_of(row: HeldRow) -> str:
    """Where it is in a package; what XML cannot carry stands for itself as a digest."""
    is_plain = row.path.isascii() or not {"\ufffe", "\uffff"} & {*row.path}
    return f"{FOLDER}/{row.path if is_plain else digest(row.loc, 64)}"
