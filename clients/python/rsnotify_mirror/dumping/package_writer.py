"""One package, written in one go: a ZIP, a copy of its manifest, and an index for the next dump.

Rules that hold here: the three have their names only when they are complete and on the disk; the
index is a shortcut, and a package without one is written anew. What is copied from another package
is copied as it lies, many members at once. The digest is computed beside the writing, of what is in
the file.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO

import msgspec

from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.tables import MAX_BYTES
from rsnotify.resourcesync.xml_writer import Md, close_root, open_root
from rsnotify_client.dumps import DIRECTORY_BYTES, MANIFEST
from rsnotify_mirror.dumping.copy_reader import PIECE_BYTES, Content
from rsnotify_mirror.dumping.parts import Limits
from rsnotify_mirror.dumping.zip_records import (
    END_BYTES,
    Needed,
    ZipMember,
    central_record,
    end_records,
    local_header,
    stamp_of,
)

ZIP, XML, INDEX = ".zip", ".xml", ".index"
AT_ONCE = 500  # members in a piece of an index, at least
HASHED_BYTES = 16 * 1024 * 1024  # by the thread at a time
ENDS = 2 * (100 + len(MANIFEST)) + END_BYTES  # all that follows the last member
_decoder = msgspec.msgpack.Decoder(list[ZipMember])
_encoder = msgspec.msgpack.Encoder()


class MadePackage(msgspec.Struct, frozen=True):
    """A package as a document names it; `md` is the time that it is of."""

    name: str
    first: str  # address in it
    entries: int
    length: int
    hash: str
    md: Md
    index_crc: int = 0  # of all its index


class PackageWriter:
    """Writes one; `close` names it, `abandon` removes what is not complete."""

    def __init__(self, folder: Path, name: str, md: Md, up: str, limits: Limits) -> None:
        self.entries = self.deleted = 0
        self.name = name
        self._folder = folder
        self._md = md
        self._limits = limits
        self._digest = hashlib.sha256()
        self._offset = self._written = self._hashed = 0
        self._manifest_bytes = self._central_bytes = self._index_crc = 0
        self._first: str | None = None
        self._batch: list[ZipMember] = []
        self._run: tuple[str, int, int] | None = None  # to be copied: package, from there, to there
        self._zip, self._manifest, self._index = (
            (folder / f".{name}{end}").open("w+b", PIECE_BYTES) for end in (ZIP, XML, INDEX)
        )
        self._central = TemporaryFile(buffering=PIECE_BYTES, dir=folder)  # noqa: SIM115 - to the end
        self._hashing = ThreadPoolExecutor(1)  # beside the writing: both leave the interpreter
        self._up = Link("up", up)
        self._add_entries(open_root("urlset", [self._up], md))

    @property
    def length(self) -> int:
        """Of what is in it so far."""
        return self._offset + self._central_bytes + self._manifest_bytes

    def has_room(self, needed: Needed) -> bool:
        """Whether so much keeps the package within its limits; the first alone always does."""
        entries = self.entries + self.deleted + needed.entries
        manifest = self._manifest_bytes + needed.manifest + 20
        central = self._central_bytes + needed.directory
        return entries == 1 or (
            entries <= self._limits.entries
            and self._offset + needed.data + manifest + central + ENDS <= self._limits.bytes
            and manifest <= MAX_BYTES
            and central <= DIRECTORY_BYTES
        )

    def add(self, content: Content) -> None:
        """A resource of the copy."""
        member = content.member
        member.offset = self._offset
        self._write(local_header(member))
        if content.data is not None:
            self._write(content.data)
        if content.file is not None:
            with content.file as file:
                self._add_file(file, member)
        self._list([member])

    def copy(self, package: str, members: Sequence[ZipMember]) -> None:
        """Members of another package, as they lie there; they are moved to here."""
        for member in members:
            size, begin = member.size, member.offset
            end = begin + size
            if self._run is not None and self._run[0] == package and self._run[2] == begin:
                self._run = package, self._run[1], end
            else:
                self._end_run()
                self._run = package, begin, end
            member.offset = self._offset
            self._offset += size
        self._list(members)

    def add_deleted(self, loc: str, entry: bytes) -> None:
        """Add the entry of a deleted resource, which has no content."""
        self._first = loc if self._first is None else self._first
        self.deleted += 1
        self._add_entries(entry)

    def _list(self, members: Sequence[ZipMember]) -> None:
        self._first = members[0].loc if self._first is None else self._first
        self.entries += len(members)
        self._add_entries(b"".join([each.entry for each in members]))
        self._add_records(b"".join(map(central_record, members)))
        self._batch += members
        if len(self._batch) >= AT_ONCE:
            self._end_batch()

    def _add_entries(self, entries: bytes) -> None:
        self._manifest_bytes += len(entries)
        self._manifest.write(entries)

    def _add_records(self, records: bytes) -> None:
        self._central_bytes += len(records)
        self._central.write(records)

    def _end_batch(self) -> None:
        packed = _encoder.encode(self._batch)
        piece = len(packed).to_bytes(4, "little") + packed
        self._index.write(piece)
        self._index_crc = zlib.crc32(piece, self._index_crc)
        self._batch.clear()

    # The ZIP ------------------------------------------------------------------------------------

    def _write(self, piece: bytes) -> None:
        self._end_run()
        self._offset += len(piece)
        self._zip.write(piece)
        self._hash_on(len(piece))

    def _end_run(self) -> None:
        """Copy now what is to be copied; it is counted already."""
        if self._run is None:
            return
        (package, begin, end), self._run = self._run, None
        with (self._folder / f"{package}{ZIP}").open("rb", buffering=0) as file:
            file.seek(begin)
            while begin < end:
                if not (piece := file.read(min(end - begin, PIECE_BYTES))):
                    raise EOFError("a package is shorter than it was")
                begin += len(piece)
                self._zip.write(piece)
                self._hash_on(len(piece))

    def _add_file(self, file: BinaryIO, member: ZipMember) -> None:
        """What was verified before; nobody may have written into it since."""
        crc, left = 0, member.length
        while left and (piece := file.read(min(left, PIECE_BYTES))):
            self._write(piece)
            crc = zlib.crc32(piece, crc)
            left -= len(piece)
        if left or crc != member.crc or file.read(1):
            raise EOFError("a file was written into while it was read")

    def _hash_on(self, count: int) -> None:
        before, self._written = self._written, self._written + count
        if before // HASHED_BYTES != self._written // HASHED_BYTES:
            self._zip.flush()
            self._hashing.submit(self._hash, self._written)

    def _hash(self, end: int) -> None:
        """In its thread: what is written, up to there, and to the disk with it.

        What fails is tried again at the end.
        """
        while self._hashed < end:
            piece = os.pread(self._zip.fileno(), min(end - self._hashed, PIECE_BYTES), self._hashed)
            if not piece:
                raise EOFError("a package is shorter than what was written")
            self._digest.update(piece)
            self._hashed += len(piece)
        os.fsync(self._zip.fileno())

    # Its end ------------------------------------------------------------------------------------

    def close(self, until: str | None = None) -> MadePackage:
        """Complete it, and give it its name; `until` is as long as the text that it replaces."""
        self._add_entries(close_root("urlset"))
        self._end_batch()
        if until is not None:
            self._md = msgspec.structs.replace(self._md, until=until)
            self._manifest.seek(0)
            self._manifest.write(open_root("urlset", [self._up], self._md))
        crc = _crc(self._manifest)
        member = ZipMember("", b"", MANIFEST.encode(), self._manifest_bytes, crc, stamp_of(None))
        member.offset = self._offset
        self._write(local_header(member))
        for piece in _pieces(self._manifest):
            self._write(piece)
        self._add_records(central_record(member))
        begin = self._offset
        for piece in _pieces(self._central):
            self._write(piece)
        self._write(end_records(self.entries + 1, self._central_bytes, begin))
        self._zip.flush()
        hashed = self._hashing.submit(self._hash, self._offset)
        self._central.close()
        for file in (self._index, self._manifest):
            file.flush()
            os.fsync(file.fileno())
        hashed.result()
        self._hashing.shutdown()
        for file, end in ((self._index, INDEX), (self._manifest, XML), (self._zip, ZIP)):
            file.close()
            os.rename(file.name, self._folder / f"{self.name}{end}")
        return MadePackage(
            *(self.name, self._first or "", self.entries, self._offset),
            *(f"sha-256:{self._digest.hexdigest()}", self._md, self._index_crc),
        )

    def abandon(self) -> None:
        """Nothing of it stays, unless it is complete."""
        self._hashing.shutdown(cancel_futures=True)
        for file in (self._zip, self._manifest, self._index, self._central):
            with suppress(OSError):  # of a full disk, which has no room for what is buffered
                file.close()
        for end in (ZIP, XML, INDEX):
            (self._folder / f".{self.name}{end}").unlink(missing_ok=True)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(PIECE_BYTES):
        yield piece


def _crc(file: IO[bytes]) -> int:
    crc = 0
    for piece in _pieces(file):
        crc = zlib.crc32(piece, crc)
    return crc


def members(folder: Path, name: str) -> Iterator[list[ZipMember]]:
    """What a package has, in its order, some hundreds at a time."""
    with (folder / f"{name}{INDEX}").open("rb") as index:
        while head := index.read(4):
            if batch := _decoder.decode(index.read(int.from_bytes(head, "little"))):
                yield batch


def is_readable(folder: Path, made: MadePackage) -> bool:
    """Whether it is there with its index, as they were made."""
    try:
        length = (folder / f"{made.name}{ZIP}").stat().st_size
        with (folder / f"{made.name}{INDEX}").open("rb") as index:
            crc = _crc(index)
    except OSError:
        return False
    return (length, crc) == (made.length, made.index_crc)
