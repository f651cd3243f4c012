"""What a copy holds, read beside the mirror that keeps it: one moment of what is known, and files.

Rules that hold here: nothing is handed on whose length and digest are not what the mirror recorded
when it fetched it. A file that the mirror has replaced meanwhile is read as it is now: what changed
after `at` may be in a dump already. An open file never changes, for the mirror renames new ones.
"""

import os
import time
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from hashlib import sha256
from html import unescape
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from msgspec.structs import replace

from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.xml_writer import Entry, Md, escape, render_entries, render_link
from rsnotify_client.notification import position_of
from rsnotify_client.resource import SourceResource, checker
from rsnotify_mirror.disk import Disk, InTheWay
from rsnotify_mirror.dumping.parts import PIECES, Pieces
from rsnotify_mirror.dumping.zip_records import BytesOrFile, ZipMember, stamp_of
from rsnotify_mirror.paths import digest
from rsnotify_mirror.plan import Have, kept_links
from rsnotify_mirror.republication import described as described_as_published
from rsnotify_mirror.state import State

FOLDER = "resources"  # in a package: no resource is taken for the manifest
PIECE_BYTES = 256 * 1024
READINGS = 10  # of a resource that is not as it is recorded; what a mirror has done it notes soon
_SEEN = "path || char(10) || wanted || char(10) || have"  # none of them has an end of line
_HELD = "have IS NOT NULL AND path IS NOT NULL"
_ROWS = f"SELECT loc, {_SEEN} FROM resource"  # noqa: S608
_BETWEEN = f"{_HELD} AND loc >= ? AND loc < ?"
AFTER_ALL = b""  # SQLite sorts it after every text
_GONE = (
    "position > :after AND position <= :until AND NOT EXISTS"
    " (SELECT 1 FROM resource WHERE resource.loc = gone.loc AND have IS NOT NULL)"
)
_escaped = lru_cache(maxsize=1_000)(escape)  # what many have in common
_wanted = msgspec.json.Decoder(SourceResource)
_have = msgspec.json.Decoder(Have)

HeldRow = tuple[str, str]
"""A resource of the copy: its address, and all that the mirror has seen of it."""


def mark_of(seen: str) -> bytes:
    """What is known of a resource is the same as long as this is."""
    return sha256(seen.encode()).digest()[:16]


def described(seen: str) -> tuple[str, SourceResource, Have]:
    """Its path, what the Source says of it, and what the copy has."""
    path, wanted, have = seen.rsplit("\n", 2)
    return path, _wanted.decode(wanted), _have.decode(have)


class Content(NamedTuple):
    """A resource, verified: its bytes, or the file that has them if it is long."""

    member: ZipMember
    wanted: SourceResource
    data: BytesOrFile


class NotAsFetched(Rejected):
    """A resource whose file is not what the mirror recorded, though it was looked at often."""


class NotWhole(Rejected):
    """The copy does not have a state of which it can be said what it is of."""


class _Differs(Exception):
    """What is read is not what is recorded."""


class CopyReader:
    """Reads one copy."""

    def __init__(
        self, directory: Path, pieces: Pieces = PIECES, addresses: str | None = None
    ) -> None:
        self.directory = directory
        self._addresses = addresses  # those of the copy's own files begin so
        self._pieces = pieces
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

    def failed(self) -> list[str]:
        """What the mirror could not fetch, and why; a resource may be there in an older version."""
        query = (
            "SELECT loc, problem, have IS NOT NULL FROM resource WHERE problem IS NOT NULL"
            " ORDER BY loc LIMIT 1000"
        )
        return [
            f"{loc}: {why}{'; what the copy has of it is in the dump' * is_held}"
            for loc, why, is_held in self._state.database.execute(query)
        ]

    def rows(self, first: str, before: str | None) -> Iterator[HeldRow]:
        """What is held, by address."""
        query = f"{_ROWS} WHERE {_BETWEEN} ORDER BY loc"
        return self._state.database.execute(query, (first, before or AFTER_ALL))

    def extent(self, first: str, before: str | None) -> tuple[int, int]:
        """How many resources are held, and how long they are together."""
        query = (
            "SELECT count(*), total(json_extract(have, '$.length')) FROM resource"  # noqa: S608
            f" WHERE {_BETWEEN}"
        )
        found = self._state.database.execute(query, (first, before or AFTER_ALL))
        count, total = found.fetchone()
        return count, int(total)

    def knows_changes_from(self, kept: float) -> Position:
        """From here on the mirror knows each change; it keeps deletions from that time on."""
        begins = self._state.fact("baseline")
        if begins is None:
            raise NotWhole(f"{self.directory} knows no single changes yet: run rsnotify mirror")
        return max(Position.parse(begins), Position(int(kept * MICROSECONDS)))

    def changed(
        self, after: Position, until: Position
    ) -> Iterator[tuple[int, str, str, str | None]]:
        """When and how resources have changed within this time, in this order; and what is held."""
        query = (
            "SELECT json_extract(wanted, '$.position') AS time,"  # noqa: S608
            " coalesce(json_extract(wanted, '$.change'), 'updated') AS change,"
            f" loc, {_SEEN} FROM resource WHERE {_HELD} AND change != 'deleted'"
            " AND time > :after AND time <= :until"
            f" UNION ALL SELECT position, 'deleted', loc, NULL FROM gone WHERE {_GONE}"
            " ORDER BY time, loc"
        )
        return self._state.database.execute(query, {"after": int(after), "until": int(until)})

    def gone(self, after: Position, until: Position) -> Iterator[tuple[str, Position]]:
        """What was deleted within this time, as far as its change said when."""
        query = f"SELECT loc, position FROM gone WHERE {_GONE}"  # noqa: S608
        found = self._state.database.execute(query, {"after": int(after), "until": int(until)})
        return ((loc, Position(position)) for loc, position in found)

    def read(self, loc: str, seen: str) -> Content | None:
        """Its content; None if it has been deleted meanwhile."""
        current: str | None = seen
        for attempt in range(READINGS):
            try:
                if current:
                    return self._read(loc, current)
            except FileNotFoundError:
                why = "its file is not there"
            except InTheWay as error:
                why = error.strerror or f"{error}"
            except _Differs as error:
                why = f"{error}"
            if attempt:
                time.sleep(self._pieces.reading_seconds)
            found = self._now.database.execute(f"{_ROWS} WHERE loc = ?", (loc,)).fetchone()
            if found is None:
                return None
            current = found[1]
        raise NotAsFetched(f"{self.directory}/{described(seen)[0]}: {why}")

    def entry(self, loc: str, path: str, wanted: SourceResource, have: Have) -> bytes:
        """As a manifest has it: by the Source's address, or as the copy's set has it."""
        if (
            self._addresses is None
            or (said := described_as_published(self._addresses, path, wanted, have)) is None
        ):
            return entry_of(loc, path, wanted, have)
        place = f"/{name_of(loc, path)}"
        md = Md(hash=said.hash, length=said.length, type=said.type, path=place)
        return render_entries("urlset", [Entry(said.loc, said.lastmod, md=md, links=said.links)])

    def _read(self, loc: str, seen: str) -> Content:
        path, wanted, have = described(seen)
        descriptor = self._disk.opened(path)
        try:
            most = self._pieces.small_bytes
            is_short = have.length is not None and have.length < most
            data = os.read(descriptor, (have.length or 0) + 1 if is_short else most)
            is_long = len(data) == most
            rest = iter(partial(os.read, descriptor, PIECE_BYTES), b"") if is_long else ()
            have, crc = _checked(have, chain((data,), rest))
            content: BytesOrFile = data
            if is_long:
                content = os.fdopen(os.dup(descriptor), "rb", buffering=0)
        finally:
            os.close(descriptor)
        entry, name = self.entry(loc, path, wanted, have), name_of(loc, path).encode()
        stamp, length = _stamp(have.lastmod), have.length or 0
        member = ZipMember(loc, entry, name, length, crc, stamp, mark_of(seen))
        return Content(member, wanted, content)


def _checked(have: Have, pieces: Iterable[bytes]) -> tuple[Have, int]:
    """What was recorded, if that is what was read, with what it does not say; and the CRC."""
    name, digest, stated = checker(have.hash) or ("sha-256", sha256(), None)
    length = crc = 0
    for piece in pieces:
        length += len(piece)
        crc = zlib.crc32(piece, crc)
        digest.update(piece)
    found = digest.hexdigest()
    for what, now, then in (("length", length, have.length), (name, found, stated)):
        if then not in (None, now):
            raise _Differs(f"its {what} is {now}, and was {then} when it was fetched")
    if None in (stated, have.length):
        have = replace(have, length=length, hash=f"{name}:{found}")
    return have, crc


@lru_cache(maxsize=1_000)
def _stamp(lastmod: str | None) -> int:
    at = position_of(lastmod)
    return stamp_of(None if at is None else at // 1_000_000)


def entry_of(loc: str, path: str, wanted: SourceResource, have: Have) -> bytes:
    """As a manifest has it: what the Source said of the version that the copy has.

    Written as `render_entries` does, in a third of the time.
    """
    lastmod = "" if have.lastmod is None else f"<lastmod>{_escaped(have.lastmod)}</lastmod>"
    digest = "" if have.hash is None else f' hash="{escape(have.hash)}"'
    kind = "" if wanted.type is None else f' type="{_escaped(wanted.type)}"'
    links = "".join(map(render_link, kept_links(wanted.links))) if wanted.links else ""
    return (
        f'<url><loc>{escape(loc)}</loc>{lastmod}<rs:md{digest} length="{have.length}"{kind}'
        f' path="/{escape(name_of(loc, path))}"/>{links}</url>'
    ).encode()


def loc_of(entry: bytes) -> str:
    """The address in an entry of a manifest of ours."""
    return unescape(entry.partition(b"<loc>")[2].partition(b"</loc>")[0].decode())


def name_of(loc: str, path: str) -> str:
    """Where it is in a package; what XML cannot carry stands for itself as a digest."""
    is_plain = path.isascii() or not {"\ufffe", "\uffff"} & {*path}
    return f"{FOLDER}/{path if is_plain else digest(loc, 64)}"
