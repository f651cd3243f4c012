"""Dumps: packages of many resources, ZIP or tar, and the changes that those of Change Dumps list.

Rules that hold here: a name in a package is never a path on our disk; what is inflated is bounded
by what the manifest says, or by what compression can honestly reach; a package or a member that is
hostile or cannot be read is skipped and named. Where a manifest can be had alone, nothing else is
fetched, unless the caller keeps what packages hold.
"""

import asyncio
import lzma
import struct
import tarfile
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from io import SEEK_END
from itertools import chain, islice
from shutil import copyfileobj
from tempfile import TemporaryFile
from time import time
from typing import BinaryIO, NamedTuple, cast

from rsnotify.errors import Rejected
from rsnotify.gunzip import MAGIC, SLICE_BYTES
from rsnotify.gunzip import unpacked as ungzip
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.stream import DocumentStream, Head
from rsnotify.resourcesync.tables import MAX_BYTES
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.address import joined
from rsnotify_client.changelists import (
    ChangeLists,
    ListRef,
    ReadTo,
    ahead_in,
    beginning_of,
    list_ref,
    stretches,
)
from rsnotify_client.discovery import Capabilities
from rsnotify_client.documents import Malformed
from rsnotify_client.moments import believed, ordered
from rsnotify_client.notification import Received
from rsnotify_client.resource import Check, SourceResource
from rsnotify_client.web import Refused, Tag, Web, check_status

MANIFEST = "manifest.xml"
XZ = b"\xfd7zXZ\0"
TEXTS = 100  # that hold for all members of a tar
MEMBERS = 0xFFFE  # what a ZIP without extensions can say
DIRECTORY_BYTES = 32 * 1024 * 1024
DICTIONARY_BYTES = 64 * 1024 * 1024  # what `xz -9` uses
RATIO = 200  # text compresses ten times, the emptiest honest file a hundred times
FREE_BYTES = 1024 * 1024
PACKAGE_BYTES = 4 * 1024**3
NAMED = 100  # of what is refused in a package
AT_ONCE = 1_000
PIECE_BYTES = 256 * 1024

_END_BYTES = 22 + 0xFFFF  # the record at the end of a package, with the longest comment
_RECORD_BYTES = 56  # the longest of the records before it
_MEMBER = struct.Struct("<28x3H12x")  # of the directory: how long its name and two texts are
_MEMBER_MARK = b"PK\x01\x02"


class Packed(NamedTuple):
    """A resource in a package."""

    entry: Entry
    name: str
    path: str


class Package:
    """One ZIP package, opened with care."""

    def __init__(self, file: BinaryIO, where: str, directory_bytes: int = DIRECTORY_BYTES) -> None:
        self._where = where
        self._file = file
        self.head = Head("urlset", Md())  # of the manifest, once its entries are read
        self.refused: list[str] = []
        self._refusals = 0
        try:
            opening = _Opening(file, where, directory_bytes)
            self._zip = zipfile.ZipFile(cast("BinaryIO", opening))
            self._zip.fp = file
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise Refused(f"{where} is no ZIP package: {error}") from None
        if sum(each.compress_size for each in self._zip.infolist()) > file.seek(0, SEEK_END):
            raise Refused(f"{where} has members that lie in each other, or are not there")

    def _refuse(self, problem: str) -> None:
        """So many are named; a manifest of a megabyte may have a million that are not."""
        self._refusals += 1
        more = self._refusals - NAMED
        self.refused[NAMED:] = [
            problem if more <= 0 else f"{self._where}: {more:,} more are refused"
        ]

    def resources(self) -> Iterator[Packed]:
        """What the manifest describes and the package holds; what it may not is in `refused`."""
        names = self._names()
        for entry in self.entries():
            path = entry.md.path if entry.md else None
            if path is not None and (name := names.get(path.lstrip("/"))) is not None:
                yield Packed(entry, name, path)
            elif path is not None:
                self._refuse(f"{self._where} does not hold {path[:200]!r}")

    def batches(self) -> Iterator[list[Entry]]:
        """All that the manifest says, so many entries at a time."""
        entries = self.entries()
        while batch := list(islice(entries, AT_ONCE)):
            yield batch

    def entries(self) -> Iterator[Entry]:
        """All that the manifest says; a path that leads out of the package is in `refused`."""
        name = self._names().get(MANIFEST)
        if name is None:
            raise Refused(f"{self._where} has no {MANIFEST}, which every package must have")
        stream = DocumentStream()
        for piece in chain(self._pieces(name, MAX_BYTES), (None,)):
            entries = self._read(stream, piece)
            self.head = stream.head if stream.has_head else self.head
            yield from filter(self._is_inside, entries)
        for each in stream.skipped:
            self._refuse(f"{self._where}: {each}")

    def unnamed(self, entries: Iterable[Entry]) -> list[str]:
        """Members that no entry of the manifest names, and no link of one."""
        named = {MANIFEST}
        for entry in entries:
            paths = (entry.md.path if entry.md else None, *(each.path for each in entry.links))
            named.update(path.lstrip("/") for path in paths if path)
        return [name for name in self._names() if name not in named and name[-1:] != "/"]

    def _names(self) -> dict[str, str]:
        return {info.filename.lstrip("/"): info.filename for info in self._zip.infolist()}

    def _is_inside(self, entry: Entry) -> bool:
        path = (entry.md.path if entry.md else None) or ""
        if ".." in path.replace("\\", "/").split("/"):
            self._refuse(f"{self._where}: {path[:200]!r} leads out of the package")
        elif "\0" in path or len(path) > 4_096:
            self._refuse(f"{self._where}: {path[:200]!r} is no path")
        else:
            return True
        return False

    def _read(self, stream: DocumentStream, piece: bytes | None) -> list[Entry]:
        try:
            return stream.close() if piece is None else stream.feed(piece)
        except Rejected as error:
            raise Refused(f"{self._where}: {MANIFEST}: {error.detail}") from None

    def content(self, packed: Packed) -> Iterator[bytes]:
        """A member's bytes; `Refused` where it is more than it may be."""
        md = packed.entry.md or Md()
        size = self._zip.getinfo(packed.name).compress_size
        cap = md.length if md.length is not None else size * RATIO + FREE_BYTES
        yield from self._pieces(packed.name, cap)

    def _check_dictionary(self, name: str) -> None:
        """LZMA remembers as much as a member says, whatever is in it."""
        info = self._zip.getinfo(name)
        if info.compress_type != zipfile.ZIP_LZMA:
            return
        self._file.seek(info.header_offset + 26)
        lengths = struct.unpack("<HH", self._file.read(4))
        self._file.seek(sum(lengths) + 5, 1)  # its name, and what is before the size
        if int.from_bytes(self._file.read(4), "little") > DICTIONARY_BYTES:
            raise Refused(f"{self._where}: {name[:200]!r} wants more than {DICTIONARY_BYTES} bytes")

    def _pieces(self, name: str, cap: int) -> Iterator[bytes]:
        total = 0
        try:
            self._check_dictionary(name)
            with self._zip.open(name) as member:
                while piece := member.read(PIECE_BYTES):
                    total += len(piece)
                    if total > cap:
                        raise Refused(f"{self._where}: {name[:200]!r} inflates beyond {cap} bytes")
                    yield piece
        except Rejected:
            raise
        except Exception as error:  # each way to compress has errors of its own
            raise Refused(f"{self._where}: cannot read {name[:200]!r}: {error}") from None


@asynccontextmanager
async def opened(file: BinaryIO, where: str) -> AsyncIterator[Package]:
    """The package in a file, which may be a tar in xz or gzip, too."""
    begins = file.read(len(XZ))
    file.seek(0)
    if not begins.startswith((XZ, MAGIC)):
        yield Package(file, where)
        return
    with TemporaryFile() as zipped:
        await asyncio.to_thread(_as_zip, file, where, cast("BinaryIO", zipped))
        yield Package(cast("BinaryIO", zipped), where)


def _as_zip(file: BinaryIO, where: str, zipped: BinaryIO) -> None:
    """The plain files of a tar, whose names are names and never paths; nothing else of it."""
    begins, size = file.read(len(XZ)), file.seek(0, 2)
    most = min(PACKAGE_BYTES, size * RATIO + FREE_BYTES)
    file.seek(0)
    try:
        with TemporaryFile() as plain, zipfile.ZipFile(zipped, "w") as package:
            pieces = iter(partial(file.read, PIECE_BYTES), b"")
            for piece in (_unxz if begins.startswith(XZ) else ungzip)(pieces):
                if plain.tell() + len(piece) > most:
                    raise Refused(f"{where} inflates beyond {most} bytes")
                plain.write(piece)
            plain.seek(0)
            careful = cast("BinaryIO", _CarefulTar(cast("BinaryIO", plain), where))
            with tarfile.open(fileobj=careful, mode="r:") as tar:
                _put_into(package, tar, where)
    except Refused:
        raise
    except Exception as error:  # tarfile has many
        raise Refused(f"{where} is no ZIP package, and no tar in xz or gzip: {error}") from None


def _put_into(package: zipfile.ZipFile, tar: tarfile.TarFile, where: str) -> None:
    seen = 0
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined] # each would be kept
        name = member.name.removeprefix("./")
        seen += 1
        if seen > MEMBERS or len(tar.pax_headers) > TEXTS:
            raise Refused(f"{where} has more than {MEMBERS:,} members: make smaller packages")
        if member.isreg() and not member.issparse() and name not in package.NameToInfo:
            content = tar.extractfile(member)
            with package.open(zipfile.ZipInfo(name), "w", force_zip64=True) as copy:
                copyfileobj(cast("BinaryIO", content), copy)


def _unxz(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Streams that follow each other are one content; zeros after a stream are padding."""
    stream = _xz_stream()
    for piece in pieces:
        for start in range(0, len(piece), SLICE_BYTES):
            packed = piece[start : start + SLICE_BYTES]
            while packed or not (stream.eof or stream.needs_input):
                if stream.eof:
                    if not (packed := packed.lstrip(b"\0")):
                        break
                    stream = _xz_stream()
                yield stream.decompress(packed, PIECE_BYTES)
                packed = stream.unused_data
    if not stream.eof:
        raise lzma.LZMAError("it has no end")


def _xz_stream() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DICTIONARY_BYTES + FREE_BYTES)


class _CarefulFile:
    """A file of which is judged how much is read at a time."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._where = where
        self.seek, self.tell = file.seek, file.tell


class _CarefulTar(_CarefulFile):
    """A tar as `tarfile` reads it: what a header says of the next one is not taken into memory."""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= PIECE_BYTES:
            raise Refused(f"{self._where} has a header of more than {PIECE_BYTES} bytes")
        return self._file.read(size)


class RemotePackages:
    """Packages over HTTP, for a caller who only wants their manifests."""

    stores = False  # what packages hold

    def __init__(self, web: Web) -> None:
        self._web = web
        self.when_kept: Callable[[], None] = lambda: None  # called after each that brings changes

    @asynccontextmanager
    async def open(self, wanted: SourceResource) -> AsyncIterator[Package]:
        check = Check(wanted.length, wanted.hash)
        with TemporaryFile() as file:
            async with self._web.ask(wanted.loc) as answer:
                check_status(wanted.loc, answer)
                async for piece in answer.pieces():
                    file.write(piece)
                    check.update(piece)
                    if check.length > PACKAGE_BYTES:
                        raise Refused(f"{wanted.loc} is longer than {PACKAGE_BYTES} bytes")
            if check.problem() is not None:
                raise Refused(
                    f"{wanted.loc} does not have the length and digest that its list says"
                )
            file.seek(0)
            async with opened(cast("BinaryIO", file), wanted.loc) as package:
                yield package

    async def unpack(self, wanted: SourceResource, package: Package | None) -> None:
        """What a manifest says is planned; without `package` only the manifest was read."""

    def forget(self, wanted: SourceResource) -> None:
        """It is not asked for again."""

    async def keep(self, wanted: SourceResource, package: Package | None) -> None:
        """The same for changes, of which the next package may have newer ones."""


class _Opening(_CarefulFile):
    """A package as `zipfile` reads it to open it: the directory that it takes is judged first.

    Which one that is, what it claims to hold and what it does are three questions; only the last
    one counts.
    """

    def __init__(self, file: BinaryIO, where: str, directory_bytes: int) -> None:
        super().__init__(file, where)
        self._most = directory_bytes

    def read(self, size: int = -1) -> bytes:
        if size > max(self._most, _RECORD_BYTES):
            raise Refused(
                f"{self._where} has a directory of {size} bytes, more than {self._most}: make "
                "smaller packages"
            )
        data = self._file.read(_END_BYTES if size < 0 else size)
        if len(data) == size and data.startswith(_MEMBER_MARK):
            self._count(data)
        return data

    def _count(self, directory: bytes) -> None:
        members = at = 0
        while directory.startswith(_MEMBER_MARK, at) and at + _MEMBER.size <= len(directory):
            members += 1
            at += _MEMBER.size + sum(_MEMBER.unpack_from(directory, at))
            if members > MEMBERS:
                raise Refused(
                    f"{self._where} has more than {MEMBERS:,} members: make smaller packages"
                )


def lists_of(
    web: Web,
    offered: Capabilities,
    *,
    skip: Callable[[str], object] | None = None,
    packages: RemotePackages | None = None,
) -> ChangeLists | None:
    """What a Source offers to catch up from: Change Lists, else Change Dumps, else nothing."""
    if offered.changelist is not None:
        return ChangeLists(web, offered.changelist, offered.archive, skip=skip)
    if offered.changedump is not None:
        return ChangeDumps(web, offered.changedump, skip=skip, packages=packages)
    return None


def package_of(url: str, entry: Entry) -> tuple[SourceResource, str | None]:
    """A package that a list names at this address, and where its manifest can be had alone."""
    contents = next((link.href for link in entry.links if link.rel == "contents"), None)
    package = SourceResource(
        joined(url, entry.loc),
        length=entry.md.length if entry.md else None,
        hash=entry.md.hash if entry.md else None,
    )
    return package, contents and joined(url, contents)


class ChangeDumps(ChangeLists):
    """Change Dumps, read as the Change Lists that their manifests are."""

    def __init__(
        self,
        web: Web,
        url: str,
        *,
        skip: Callable[[str], object] | None = None,
        packages: RemotePackages | None = None,
    ) -> None:
        super().__init__(web, url, skip=skip)
        self._packages = packages or RemotePackages(web)
        self._named_packages: dict[str, tuple[SourceResource, str | None]] = {}

    async def _named(self) -> list[ListRef]:
        found = await self._listed(self._url)
        packages = [package_of(*each) for each in found]
        self._named_packages = {each[0].loc: each for each in packages}
        return [list_ref(*each, time()) for each in found]

    async def _begin_of(self, ref: ListRef) -> Position | None:
        """By its dump alone: the package itself is fetched only where it is needed."""
        return ref.from_

    def _address_of(self, url: str) -> str:
        return self._named_packages[url][1] or url

    async def _changes(self, url: str, cursor: Position | None) -> AsyncGenerator[Received, None]:
        package, contents = self._named_packages[url]
        found = super()._changes(url, cursor) if contents else self._packed(package, cursor)
        self._extent.note_unknown()  # packages are not opened again to see it
        self.is_in_package = True
        try:
            async with aclosing(found) as pieces:
                async for received in pieces:
                    yield received
            if contents:
                await self._packages.keep(package, None)
        finally:
            self.is_in_package = False

    async def _packed(
        self, wanted: SourceResource, cursor: Position | None
    ) -> AsyncGenerator[Received, None]:
        read = self.read.get(wanted.loc)
        if read is not None and cursor is not None and cursor >= read.position:
            return
        before: Position | None = None
        skipped: list[str] = []
        now = time()
        try:
            async with self._packages.open(wanted) as package:
                batches = package.batches()  # not in other threads: see DocumentStream
                for entries in ordered(batches, skipped.append):
                    begin = before or beginning_of(package.head, cursor, now)
                    for received in stretches(entries, begin, cursor, skipped.append, now):
                        yield received
                        before = received.until
                    await asyncio.sleep(0)
                end = believed(package.head.md.until, now)
                skipped += ahead_in([package.head], now)
                if end is not None and (before is None or end > before):
                    yield Received(b"", before or end, end, ())
                    before = end
                await self._packages.keep(wanted, package)
        except Refused as error:
            raise Malformed(error.detail) from None
        for refused in (*package.refused, *(f"{wanted.loc}: {each}" for each in skipped)):
            self._skip(refused)
        if before is not None:
            self.read[wanted.loc] = ReadTo(Tag(), before)
