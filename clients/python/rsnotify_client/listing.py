"""The entries of a Resource List or sitemap, from a file or over HTTP, as they are read.

Rules that hold here: the parts of an index that is a file, and the pages of a list, lie beside it,
those of one that was fetched are fetched; a list with an entry or a page that cannot be read is not
read to its end, for what it leaves out would count as deleted.
"""

import gzip
import io
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote, urlsplit

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.stream import DocumentStream, Head
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify_client.address import joined, wrong_address
from rsnotify_client.cause import cause_of
from rsnotify_client.documents import next_after
from rsnotify_client.transport import Answer
from rsnotify_client.web import Web

GZIP = b"\x1f\x8b"
PIECE_BYTES = 64 * 1024
DOCUMENT_BYTES = 4 * 1024**3
"""Decompressed; a million entries take 300 MB. It ends what would otherwise never end."""


class Unreadable(Rejected):
    """There is no list at this path or address, or none that may be read."""


def entries_of(place: str) -> Iterator[Entry]:
    """Every entry of the list at a path or URL, or of all lists that it is an index of."""
    for root, entry in _document(place):
        if root == "urlset":
            yield entry
        else:
            yield from _of_part(_part(place, entry.loc))


def _of_part(place: str) -> Iterator[Entry]:
    for root, entry in _document(place):
        if root != "urlset":
            raise Rejected(f"{place} is an index under an index: name its parts in one")
        yield entry


def _part(index: str, loc: str) -> str:
    """Where a part of an index, or the next page of a list, is."""
    if _is_url(index):
        return joined(index, loc)
    name = unquote(urlsplit(loc).path).rpartition("/")[2]
    beside = Path(index).parent / name
    if name and beside.exists():
        return str(beside)
    raise Rejected(
        f"{index} names {loc}, but {beside} is not there: keep a list with its parts and pages"
    )


def _document(place: str) -> Iterator[tuple[str, Entry]]:
    """The entries of one document in all its pages, each with the name of its root."""
    pages, heads = [place], list[Head]()
    while len(heads) < len(pages):
        heads.append((yield from _page(pages[-1])))
        if heads[-1].root != heads[0].root:
            raise Rejected(f"{pages[-1]} is a {heads[-1].root}, not a page of {place}")
        if (named := heads[-1].link("next")) is not None:
            pages.append(_next(pages, named))


def _next(pages: list[str], named: str) -> str:
    if _is_url(pages[-1]):
        return next_after(pages, pages[-1], named)
    page = _part(pages[-1], named)
    if page in pages:
        raise Rejected(f"{pages[-1]} names {page} as its next page, which was read before it")
    return page


def _page(place: str) -> Generator[tuple[str, Entry], None, Head]:
    stream = DocumentStream()
    try:
        with closing(_opened(place)) as packed, closing(_unpacked(packed)) as file:
            for entries in _read(stream, file):
                if stream.skipped:
                    raise Rejected(stream.skipped[0])
                for entry in entries:
                    yield stream.head.root, entry
    except Rejected as error:
        if isinstance(error, Unreadable) or error.detail.startswith(place):
            raise
        raise Rejected(f"{place}: {error.detail}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise Rejected(f"cannot read {place}: {cause_of(error)}") from None
    return stream.head


def _read(stream: DocumentStream, file: IO[bytes]) -> Iterator[list[Entry]]:
    total = 0
    while data := file.read(PIECE_BYTES):
        total += len(data)
        if total > DOCUMENT_BYTES:
            raise Rejected(f"the document is longer than {DOCUMENT_BYTES} bytes")
        yield stream.feed(data)
    yield stream.close()


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _opened(place: str) -> IO[bytes]:
    if _is_url(place) and (wrong := wrong_address(place)) is not None:
        raise Unreadable(f"{place}: {wrong}")
    try:
        return _open(place)
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot read {place}: {cause_of(error)}") from None


def _open(place: str) -> IO[bytes]:
    if not _is_url(place):
        return Path(place).open("rb")
    try:
        answer = Web(None, place).answer(place, {"Accept-Encoding": "gzip"})
    except (Rejected, TryAgain) as error:
        why = getattr(error, "cause", error.detail)
        raise Unreadable(f"cannot read {place}: {why}") from None
    if answer.status != 200:
        answer.close()
        raise Unreadable(f"cannot read {place}: it answered {answer.status}")
    return cast("IO[bytes]", _Fetched(answer))


class _Fetched(io.RawIOBase):
    """An answer as a file."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        piece = self._answer.piece(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._answer.close()
        super().close()


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    """Told by its first bytes, whatever it is called."""
    buffered = io.BufferedReader(cast("io.RawIOBase", file), PIECE_BYTES)
    if buffered.peek(2)[:2] == GZIP:
        return cast("IO[bytes]", gzip.GzipFile(fileobj=buffered))
    return buffered
