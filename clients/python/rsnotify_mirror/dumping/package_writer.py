"""One package, written in one go: a ZIP, a copy of its manifest, and an index for the next dump.

Rules that hold here: the three have their names only when they are complete and on the disk; the
index is a shortcut, and a package without one is written anew. What is copied from another package
is copied as it lies, many members at once, if the content of each is what was written. The digest
is computed beside the writing, of what is in the file. What the disk did not take at any time is an
error of the whole.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import msgspec

from rsnotify.errors import TryAgain
from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.tables import MAX_BYTES
from rsnotify.resourcesync.xml_writer import Md, close_root, open_root
from rsnotify_client.dumps import MANIFEST
from rsnotify_mirror.dumping.copy_reader import PIECE_BYTES, NotAsFetched
from rsnotify_mirror.dumping.parts import PIECES, Limits, Pieces
from rsnotify_mirror.dumping.zip_records import (
    END_BYTES,
    MOST_RECORD,
    BytesOrFile,
    ZipMember,
    central_record,
    end_records,
    local_header,
    stamp_of,
)

ZIP, XML, INDEX = ".zip", ".xml", ".index"
FORMAT = 2  # of an index: the check of one in an older format fails
MANIFEST_BYTES = MAX_BYTES - len(close_root("urlset"))
ENDS = 2 * (100 + len(MANIFEST)) + END_BYTES  # all that follows the last member
ContentsAt = str | Mapping[str, BytesOrFile] | None
"""Where the contents of members are: in this package, or here by address; or they have none."""
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

    def __init__(
        self, folder: Path, name: str, md: Md, up: str, limits: Limits, pieces: Pieces = PIECES
    ) -> None:
        self.entries = self.deleted = 0
        self.name = name
        self._folder = folder
        self._md = md
        self._limits, self._pieces = limits, pieces
        self._digest = hashlib.sha256()
        self._offset = self._hashed = 0
        self._index_crc = FORMAT
        self._first: str | None = None
        self._batch: list[ZipMember] = []
        self._zip, self._manifest, self._index = (
            (folder / f".{name}{end}").open("w+b", PIECE_BYTES) for end in (ZIP, XML, INDEX)
        )
        self._central = TemporaryFile(buffering=PIECE_BYTES, dir=folder)  # noqa: SIM115 - to the end
        self._hashing = ThreadPoolExecutor(1)  # beside the writing: both leave the interpreter
        self._hashes: list[Future[None]] = []
        self._up = Link("up", up)
        self._manifest.write(open_root("urlset", [self._up], md))

    def has_room(self, members: Sequence[ZipMember], about: Limits) -> bool:
        """Whether these keep it within its limits, and all but the last within what it should have.

        The first one alone always does.
        """
        entries = self.entries + self.deleted + len(members)
        manifest, central = self._manifest.tell(), self._central.tell()
        before = self._offset + manifest + central
        manifest += sum([len(each.entry) for each in members])
        central += sum([MOST_RECORD + len(each.name) for each in members])
        length = self._offset + sum([each.size for each in members]) + manifest + central
        return entries == 1 or (
            entries <= about.entries
            and (before if len(members) == 1 else length) < about.bytes
            and length + ENDS <= self._limits.bytes
            and manifest <= MANIFEST_BYTES
            and central + ENDS <= self._limits.directory_bytes
        )

    def put(self, members: Sequence[ZipMember], contents: ContentsAt) -> None:
        """Add these, one after another."""
        self._first = members[0].loc if self._first is None else self._first
        if contents is None:
            self.deleted += len(members)
        else:
            if isinstance(contents, str):
                self._copy(members, contents)
            else:
                self._add(members, contents)
            self.entries += len(members)
            self._central.write(b"".join(map(central_record, members)))
            self._batch += members
        self._manifest.write(b"".join([each.entry for each in members]))
        if len(self._batch) >= self._pieces.indexed:
            self._end_batch()

    def _end_batch(self) -> None:
        packed = _encoder.encode(self._batch)
        piece = len(packed).to_bytes(4, "little") + packed
        self._index.write(piece)
        self._index_crc = zlib.crc32(piece, self._index_crc)
        self._batch.clear()

    # The ZIP ------------------------------------------------------------------------------------

    def _write(self, piece: bytes) -> None:
        self._zip.write(piece)
        before, self._offset = self._offset, self._offset + len(piece)
        hashed = self._pieces.hashed_bytes
        if before // hashed != self._offset // hashed:
            self._hash_on()

    def _add(self, members: Sequence[ZipMember], contents: Mapping[str, BytesOrFile]) -> None:
        for member in members:
            content, member.offset = contents[member.loc], self._offset
            if isinstance(content, bytes):
                self._write(local_header(member) + content)
            else:
                with content:
                    self._add_file(content.fileno(), member)

    def _add_file(self, file: int, member: ZipMember) -> None:
        """What was verified before; nobody may have written into it since."""
        self._write(local_header(member))
        crc = 0
        with suppress(EOFError):
            for piece in _pieces(file, 0, member.length):
                self._write(piece)
                crc = zlib.crc32(piece, crc)
        if crc != member.crc or os.pread(file, 1, member.length):
            raise NotAsFetched(f"{member.loc}: its file was written into while it was read")

    def _copy(self, members: Sequence[ZipMember], package: str) -> None:
        """As they lie there; they are moved to here."""
        with open(f"{self._folder}/{package}{ZIP}", "rb", buffering=0) as file:
            begin = end = members[0].offset
            for member in members:
                if member.offset != end:
                    self._write_from(file, begin, end)
                    begin = end = member.offset
                if not _is_as_written(file, member):
                    (self._folder / f"{package}{INDEX}").unlink(missing_ok=True)
                    raise TryAgain(
                        f"{self._folder}/{package}{ZIP} is damaged: the next run writes it anew"
                    )
                end += member.size
                member.offset += self._offset - begin
            self._write_from(file, begin, end)

    def _write_from(self, file: IO[bytes], begin: int, end: int) -> None:
        for piece in _pieces(file.fileno(), begin, end):
            self._write(piece)

    def _hash_on(self) -> None:
        self._zip.flush()
        self._hashes.append(self._hashing.submit(self._hash, self._offset))

    def _hash(self, end: int) -> None:
        """In its thread: what is written, up to there, and to the disk with it."""
        for piece in _pieces(self._zip.fileno(), self._hashed, end):
            self._digest.update(piece)
        self._hashed = end
        os.fsync(self._zip.fileno())

    # Its end ------------------------------------------------------------------------------------

    def close(self, until: str | None = None) -> MadePackage:
        """Complete it, and give it its name; `until` is as long as the text that it replaces."""
        self._manifest.write(close_root("urlset"))
        length = self._manifest.tell()
        if until is not None:
            self._md = msgspec.structs.replace(self._md, until=until)
            self._manifest.seek(0)
            self._manifest.write(open_root("urlset", [self._up], self._md))
        self._end_batch()
        for file in (self._manifest, self._index):
            file.flush()
        crc = _crc(self._manifest, 0)
        member = ZipMember("", b"", MANIFEST.encode(), length, crc, stamp_of(None))
        member.offset = self._offset
        self._write(local_header(member))
        self._write_from(self._manifest, 0, length)
        self._central.write(central_record(member))
        self._central.flush()
        begin, size = self._offset, self._central.tell()
        self._write_from(self._central, 0, size)
        self._write(end_records(self.entries + 1, size, begin))
        self._hash_on()
        self._central.close()
        for file in (self._index, self._manifest):
            os.fsync(file.fileno())
        for each in self._hashes:
            each.result()
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


def _pieces(file: int, begin: int, end: int) -> Iterator[bytes]:
    while begin < end:
        if not (piece := os.pread(file, min(end - begin, PIECE_BYTES), begin)):
            raise EOFError("a file is shorter than it was")
        begin += len(piece)
        yield piece


def _is_as_written(file: IO[bytes], member: ZipMember) -> bool:
    """Whether a member's content in another package is what was written there."""
    crc, end = 0, member.offset + member.size
    with suppress(EOFError):
        for piece in _pieces(file.fileno(), end - member.length, end):
            crc = zlib.crc32(piece, crc)
    return crc == member.crc


def _crc(file: IO[bytes], crc: int) -> int:
    for piece in _pieces(file.fileno(), 0, os.fstat(file.fileno()).st_size):
        crc = zlib.crc32(piece, crc)
    return crc


def members(folder: Path, name: str) -> Iterator[list[ZipMember]]:
    """What a package has, in its order, a piece of the index at a time."""
    with (folder / f"{name}{INDEX}").open("rb") as index:
        while head := index.read(4):
            if batch := _decoder.decode(index.read(int.from_bytes(head, "little"))):
                yield batch


def is_readable(folder: Path, made: MadePackage) -> bool:
    """Whether it is there with its index, as they were made."""
    try:
        length = (folder / f"{made.name}{ZIP}").stat().st_size
        with (folder / f"{made.name}{INDEX}").open("rb") as index:
            crc = _crc(index, FORMAT)
    except OSError:
        return False
    return (length, crc) == (made.length, made.index_crc)
