"""One package, written in one go: a ZIP, and a copy of its manifest.

Rules that hold here: both have their names only when they are complete and on the disk. What is
copied from another package is copied as it lies, many members at once, and not by way of this
process where the system can. The digest is computed beside the writing, of what is in the file.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO, NamedTuple

import msgspec

from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.validation.tables import MAX_BYTES
from rsnotify.resourcesync.xml_writer import Md, close_root, open_root
from rsnotify_client.dumps import DIRECTORY_BYTES, MANIFEST
from rsnotify_mirror.dumping.copy_reader import PIECE_BYTES, Content
from rsnotify_mirror.dumping.package_index import Mark
from rsnotify_mirror.dumping.parts import Limits
from rsnotify_mirror.dumping.zip_records import END_BYTES, ZipMember, end_records, moved

ZIP, XML = ".zip", ".xml"
HASHED_BYTES = 8 * 1024 * 1024  # by the thread at a time
KERNEL_BYTES = 64 * 1024  # what is less is quicker read and written
COPIED_BYTES = 64 * 1024 * 1024
ENDS = 2 * (100 + len(MANIFEST)) + END_BYTES + 20  # all that follows the last member


class MadePackage(msgspec.Struct, frozen=True):
    """A package as a document names it; `md` is the time that it is of."""

    name: str
    first: str  # address in it
    entries: int
    length: int
    hash: str
    md: Md
    head: int = 0  # of the manifest, before its first entry
    manifest: int = 0  # where that begins
    directory: int = 0

    @property
    def start(self) -> Mark:
        return Mark(self.first, manifest=self.head)


class OldPackage:
    """A package from which members are copied."""

    def __init__(self, folder: Path, made: MadePackage) -> None:
        self.made = made
        self._file = (folder / f"{made.name}{ZIP}").open("rb", buffering=0)
        self.number = self._file.fileno()
        self.close = self._file.close

    def entries(self, begin: Mark, end: Mark) -> Iterator[bytes]:
        """What its manifest says of them."""
        return self.pieces(*(self.made.manifest + each.manifest for each in (begin, end)))

    def records(self, begin: Mark, end: Mark) -> Iterator[bytes]:
        return self.pieces(*(self.made.directory + each.directory for each in (begin, end)))

    def pieces(self, begin: int, end: int) -> Iterator[bytes]:
        while begin < end:
            if not (piece := os.pread(self.number, min(end - begin, PIECE_BYTES), begin)):
                raise EOFError(f"{self.made.name}{ZIP} is shorter than it was")
            begin += len(piece)
            yield piece


class PackedRun(NamedTuple):
    """Members that lie together in a package."""

    old: OldPackage
    begin: Mark
    end: Mark

    @property
    def size(self) -> Mark:
        return self.end.since(self.begin)

    @property
    def entry(self) -> bytes:
        return b"".join(self.old.entries(self.begin, self.end))


class PackageWriter:
    """Writes one; `close` names it, `abandon` removes what there is of it."""

    def __init__(self, folder: Path, name: str, md: Md, up: str, limits: Limits) -> None:
        self.name = name
        self._folder = folder
        self._md = md
        self._limits = limits
        self._up = [Link("up", up)]
        head = open_root("urlset", self._up, md)
        self.mark = Mark("", manifest=len(head))
        self._start = self.mark
        self.first: str | None = None
        self._files = 0
        self._digest = hashlib.sha256()
        self._written = self._hashed = 0
        self._buffer = bytearray()
        self._zip = (folder / f".{name}{ZIP}").open("w+b", 0)
        self._manifest = (folder / f".{name}{XML}").open("w+b", PIECE_BYTES)
        self._directory = TemporaryFile("w+b", PIECE_BYTES, dir=folder)  # noqa: SIM115 - until the end
        self._hashing, self._syncing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._manifest.write(head)

    @property
    def room(self) -> Mark:
        """What it may hold yet."""
        return Mark(
            *("", self._limits.entries - self.mark.n, self._limits.bytes - self.mark.bytes - ENDS),
            *(MAX_BYTES - self.mark.manifest - 20, DIRECTORY_BYTES - self.mark.directory - 100),
        )

    def has_room(self, size: Mark) -> bool:
        """Whether so much keeps the package within its limits; the first always does."""
        return not self.mark.n or size.is_within(self.room)

    def add(self, content: Content) -> None:
        """A resource of the copy."""
        record = content.member.record(self.mark.zip)
        size = content.size._replace(directory=len(record))
        self._write(content.member.header())
        if content.data is not None:
            self._write(content.data)
        if content.file is not None:
            with content.file as file:
                self._add_file(file, content.member)
        self._manifest.write(content.entry)
        self._directory.write(record)
        self._move_on(content.row.loc, size, 1)

    def copy(self, old: OldPackage, begin: Mark, end: Mark, entry: bytes | None = None) -> None:
        """Members of another package, as they lie there; of one, `entry` is what is said now."""
        self._copy(old, begin.zip, end.zip)
        size, records = end.since(begin), bytearray()
        for piece in old.entries(begin, end) if entry is None else (entry,):
            self._manifest.write(piece)
        for piece in old.records(begin, end):
            records += piece
            if self.mark.zip == begin.zip:
                self._directory.write(records)
                records.clear()
            else:
                whole = moved(records, self.mark.zip - begin.zip)
                self._directory.write(records[:whole])
                del records[:whole]
        size = size if entry is None else size._replace(manifest=len(entry))
        self._move_on(end.loc, size, size.n)

    def tell(self, loc: str, entry: bytes) -> None:
        """Something of a resource that has no content: it is deleted."""
        self._manifest.write(entry)
        self._move_on(loc, Mark(loc, 1, 0, len(entry)), 0)

    def _move_on(self, loc: str, size: Mark, files: int) -> None:
        self.mark = self.mark.plus(size)._replace(loc=loc)
        self._files += files
        if self.first is None:
            self.first = loc

    # The ZIP ------------------------------------------------------------------------------------

    def _write(self, piece: bytes) -> None:
        self._buffer += piece
        if len(self._buffer) >= PIECE_BYTES:
            self._end_buffer()

    def _end_buffer(self) -> None:
        with memoryview(self._buffer) as view:
            begin = 0
            while begin < len(view):
                begin += self._zip.write(view[begin:])
        self._buffer.clear()
        self._hash_on(begin)

    def _copy(self, old: OldPackage, begin: int, end: int) -> None:
        """What lies together: by the system, if it is much and the system can."""
        if end - begin >= KERNEL_BYTES:
            self._end_buffer()
            with suppress(AttributeError, OSError):
                while begin < end and (
                    count := os.copy_file_range(
                        old.number, self._zip.fileno(), min(end - begin, COPIED_BYTES), begin
                    )
                ):
                    begin += count
                    self._hash_on(count)
        for piece in old.pieces(begin, end):
            self._write(piece)

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
        """In their threads: what is written is hashed, and goes to the disk.

        What fails is tried again at the end.
        """
        before, self._written = self._written, self._written + count
        if before // HASHED_BYTES != self._written // HASHED_BYTES:
            self._hashing.submit(self._hash, self._written)
            self._syncing.submit(os.fsync, self._zip.fileno())

    def _hash(self, end: int) -> None:
        while self._hashed < end:
            piece = os.pread(self._zip.fileno(), min(end - self._hashed, PIECE_BYTES), self._hashed)
            if not piece:
                raise EOFError("a package is shorter than what was written")
            self._digest.update(piece)
            self._hashed += len(piece)

    # Its end ------------------------------------------------------------------------------------

    def close(self, until: str | None = None) -> MadePackage:
        """Complete it, and give it its name; `until` is as long as the text that it replaces."""
        self._manifest.write(close_root("urlset"))
        if until is not None:
            self._md = msgspec.structs.replace(self._md, until=until)
            self._manifest.seek(0)
            self._manifest.write(open_root("urlset", self._up, self._md))
        crc = length = 0
        for piece in _pieces(self._manifest):
            crc = zlib.crc32(piece, crc)
            length += len(piece)
        synced = self._syncing.submit(os.fsync, self._manifest.fileno())
        member = ZipMember(MANIFEST.encode(), length, crc)
        self._directory.write(member.record(self.mark.zip))
        self._write(member.header())
        manifest = self._written + len(self._buffer)
        for file in (self._manifest, self._directory):
            for piece in _pieces(file):
                self._write(piece)
        directory = manifest + length
        self._write(end_records(self._files + 1, self._directory.tell(), directory))
        self._end_buffer()
        hashed = self._hashing.submit(self._hash, self._written)
        os.fsync(self._zip.fileno())
        synced.result()
        hashed.result()
        self._release()
        for file, end in ((self._manifest, XML), (self._zip, ZIP)):
            os.rename(file.name, self._folder / f"{self.name}{end}")
        return MadePackage(
            *(self.name, self.first or "", self._files, self._written),
            *(f"sha-256:{self._digest.hexdigest()}", self._md),
            *(self._start.manifest, manifest, directory),
        )

    def abandon(self) -> None:
        """Nothing of it stays."""
        self._release()
        for file in (self._zip, self._manifest):
            with suppress(FileNotFoundError):
                os.unlink(file.name)

    def _release(self) -> None:
        for pool in (self._hashing, self._syncing):
            pool.shutdown(cancel_futures=True)
        for file in (self._zip, self._manifest, self._directory):
            with suppress(OSError):  # of a full disk, which has no room for what is buffered
                file.close()


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(PIECE_BYTES):
        yield piece


def is_there(folder: Path, made: MadePackage) -> bool:
    """Whether a package is there, and as long as it was made."""
    with suppress(OSError):
        return (folder / f"{made.name}{ZIP}").stat().st_size == made.length
    return False
