"""One package, written in one go: a ZIP, a copy of its manifest, and an index for the next dump.

Rules that hold here: the three have their names only when they are complete and on the disk; the
index is a shortcut, and a package without one is written anew. What is copied from another package
is copied as it lies, many members at once.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import msgspec

from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.validation.tables import MAX_BYTES
from rsnotify.resourcesync.xml_writer import Md, close_root, open_root
from rsnotify_client.dumps import DIRECTORY_BYTES, MANIFEST
from rsnotify_mirror.dumping.copy_reader import PIECE_BYTES, Content, name_of
from rsnotify_mirror.dumping.parts import Limits
from rsnotify_mirror.dumping.zip_records import (
    END_BYTES,
    ZipMember,
    central_record,
    end_records,
    local_header,
    stamp_of,
)

ZIP, XML, INDEX = ".zip", ".xml", ".index"
AT_ONCE = 500
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


class PackageWriter:
    """Writes one; `close` names it, `abandon` removes what there is of it."""

    def __init__(self, folder: Path, name: str, md: Md, up: str, limits: Limits) -> None:
        self.entries = self.told = 0
        self.name = name
        self._folder = folder
        self._md = md
        self._limits = limits
        self._digest = hashlib.sha256()
        self._buffer, self._entries_buffer, self._central_buffer = (bytearray() for _ in range(3))
        self._offset = self._manifest_bytes = self._central_bytes = 0
        self._first: str | None = None
        self._batch: list[ZipMember] = []
        self._run: tuple[BinaryIO, int, int] | None = None  # to be copied from there
        self._zip, self._manifest, self._index = (
            (folder / f".{name}{end}").open("w+b") for end in (ZIP, XML, INDEX)
        )
        self._central = TemporaryFile(dir=folder)  # noqa: SIM115 - until the end
        self._up = Link("up", up)
        self._add_entry(open_root("urlset", [self._up], md))

    @property
    def length(self) -> int:
        """Of what is in it so far."""
        return self._offset + self._central_bytes + self._manifest_bytes

    def has_room(self, length: int, name: str, entry: bytes) -> bool:
        """Whether one more member keeps the package within its limits; the first always does."""
        names = 4 * len(name.encode()) + 200  # of both headers, with all that may belong to them
        ends = len(MANIFEST) * 2 + 200 + END_BYTES + 2 * 20
        manifest = self._manifest_bytes + len(entry) + 20
        size = self._offset + self._central_bytes + length + names + manifest + ends
        count = self.entries + self.told
        return not count or (
            count < self._limits.entries
            and size <= self._limits.bytes
            and manifest <= MAX_BYTES
            and self._central_bytes + names <= DIRECTORY_BYTES
        )

    def add(self, content: Content, seen: bytes) -> ZipMember:
        """A resource of the copy."""
        name = name_of(content.row)
        head = local_header(name, content.length, content.crc, content.stamp)
        size = len(head) + content.length
        member = ZipMember(
            *(content.row.loc, seen, content.entry, name, self._offset, size),
            *(content.length, content.crc, content.stamp),
        )
        self._write(head)
        if content.data is not None:
            self._write(content.data)
        if content.file is not None:
            with content.file as file:
                self._copy(file, content.length, content.crc)
        self._listed(member)
        return member

    def copy(self, file: BinaryIO, member: ZipMember, seen: bytes | None = None) -> ZipMember:
        """A member of another package, as it lies there."""
        copied = msgspec.structs.replace(member, offset=self._offset, seen=seen or member.seen)
        if self._run is not None:
            source, begin, size = self._run
            if source is file and begin + size == member.offset:
                self._run = source, begin, size + member.size
                self._offset += member.size
                self._listed(copied)
                return copied
            self._end_run()
        self._run = file, member.offset, member.size
        self._offset += member.size
        self._listed(copied)
        return copied

    def tell(self, loc: str, entry: bytes) -> None:
        """Something of a resource that has no content: it is deleted."""
        self._first = loc if self._first is None else self._first
        self.told += 1
        self._add_entry(entry)

    def settle(self) -> None:
        """Copy now what is to be copied, so that the files it lies in may be closed."""
        if self._run is not None:
            self._end_run()

    def _listed(self, member: ZipMember) -> None:
        self._first = member.loc if self._first is None else self._first
        self.entries += 1
        self._add_entry(member.entry)
        self._add_record(member)
        self._batch.append(member)
        if len(self._batch) >= AT_ONCE:
            self._end_batch()

    def _add_entry(self, piece: bytes) -> None:
        self._manifest_bytes += len(piece)
        self._entries_buffer += piece
        if len(self._entries_buffer) >= PIECE_BYTES:
            self._end_entries()

    def _add_record(self, member: ZipMember) -> None:
        record = central_record(member)
        self._central_bytes += len(record)
        self._central_buffer += record
        if len(self._central_buffer) >= PIECE_BYTES:
            self._end_central()

    def _end_entries(self) -> None:
        self._manifest.write(self._entries_buffer)
        self._entries_buffer.clear()

    def _end_central(self) -> None:
        self._central.write(self._central_buffer)
        self._central_buffer.clear()

    def _end_batch(self) -> None:
        packed = _encoder.encode(self._batch)
        self._index.write(len(packed).to_bytes(4, "little") + packed)
        self._batch.clear()

    # The ZIP ------------------------------------------------------------------------------------

    def _write(self, piece: bytes | memoryview) -> None:
        if self._run is not None:
            self._end_run()
        self._offset += len(piece)
        self._buffer += piece
        if len(self._buffer) >= PIECE_BYTES:
            self._end_buffer()

    def _end_buffer(self) -> None:
        self._digest.update(self._buffer)
        self._zip.write(self._buffer)
        self._buffer.clear()

    def _end_run(self) -> None:
        """Copy what lies together; its length is counted already."""
        assert self._run is not None  # noqa: S101
        (file, begin, size), self._run = self._run, None
        self._end_buffer()
        file.seek(begin)
        while size:
            piece = file.read(min(size, PIECE_BYTES * 4))
            if not piece:
                raise EOFError("a package is shorter than it was")
            self._digest.update(piece)
            self._zip.write(piece)
            size -= len(piece)

    def _copy(self, file: BinaryIO, length: int, crc: int) -> None:
        """What was verified before; nobody may have written into it since."""
        copied, left = 0, length
        while left and (piece := file.read(min(left, PIECE_BYTES))):
            self._write(piece)
            copied = zlib.crc32(piece, copied)
            left -= len(piece)
        if left or copied != crc or file.read(1):
            raise EOFError("a file was written into while it was read")

    # Its end ------------------------------------------------------------------------------------

    def close(self, until: str | None = None) -> MadePackage:
        """Complete it, and give it its name; `until` is as long as the text that it replaces."""
        self._add_entry(close_root("urlset"))
        self._end_entries()
        self._end_batch()
        if until is not None:
            self._md = msgspec.structs.replace(self._md, until=until)
            self._manifest.seek(0)
            self._manifest.write(open_root("urlset", [self._up], self._md))
        crc, stamp = 0, stamp_of(None)
        for piece in _pieces(self._manifest):
            crc = zlib.crc32(piece, crc)
        member = ZipMember(
            "", b"", b"", MANIFEST, self._offset, 0, self._manifest_bytes, crc, stamp
        )
        self._write(local_header(MANIFEST, self._manifest_bytes, crc, stamp))
        for piece in _pieces(self._manifest):
            self._write(piece)
        self._add_record(member)
        self._end_central()
        begin = self._offset
        for piece in _pieces(self._central):
            self._write(piece)
        self._write(end_records(self.entries + 1, self._central_bytes, begin))
        self._end_buffer()
        self._central.close()
        for file, end in ((self._index, INDEX), (self._manifest, XML), (self._zip, ZIP)):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            os.rename(file.name, self._folder / f"{self.name}{end}")
        digest = f"sha-256:{self._digest.hexdigest()}"
        return MadePackage(
            self.name, self._first or "", self.entries, self._offset, digest, self._md
        )

    def abandon(self) -> None:
        """Nothing of it stays."""
        for file in (self._zip, self._manifest, self._index):
            with suppress(OSError):  # of a full disk, which has no room for what is buffered
                file.close()
            with suppress(FileNotFoundError):
                os.unlink(file.name)
        self._central.close()


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(PIECE_BYTES):
        yield piece


def members(folder: Path, name: str) -> Iterator[ZipMember]:
    """What a package has, in its order."""
    with (folder / f"{name}{INDEX}").open("rb") as index:
        while head := index.read(4):
            yield from _decoder.decode(index.read(int.from_bytes(head, "little")))


def is_readable(folder: Path, made: MadePackage) -> bool:
    """Whether it is there with its index, as it was made."""
    try:
        entries = sum(1 for _ in members(folder, made.name))
        return entries == made.entries and (folder / f"{made.name}{ZIP}").stat().st_size == (
            made.length
        )
    except (OSError, msgspec.MsgspecError):
        return False
