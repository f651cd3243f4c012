"""gzip, wherever hub and clients meet it: all of them read the same of it, and refuse the same."""

import gzip
import io
import lzma
import struct
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from rsnotify.errors import Rejected
from rsnotify.gunzip import FREE_BYTES, PIECE_BYTES, BrokenGzip, Gunzip, content_within, unpacked
from rsnotify.http.endpoints import decoded
from rsnotify.publishing.loads.load_formats import UnpackedBody
from rsnotify_client.between import _unpacked as of_a_list
from rsnotify_client.dumps import _unxz
from rsnotify_client.web import Unpacker

MOST = 100_000_000
EMPTY = gzip.compress(b"", mtime=0)
A, B = gzip.compress(b"a" * 70_000, mtime=0), gzip.compress(b"b", mtime=0)
Reader = Callable[[bytes], Iterable[bytes]]


def _load(data: bytes) -> Iterator[bytes]:
    body = UnpackedBody("gzip")
    yield from body.feed(data)
    body.close()


def _document(data: bytes) -> Iterator[bytes]:
    unpacker = Unpacker()
    yield from unpacker.feed(data)
    yield from unpacker.close()


READERS: dict[str, Reader] = {
    "a posted body": lambda data: [decoded(data, "gzip", MOST)],
    "a load": _load,
    "a document": _document,
    "a list of publish --between": lambda data: of_a_list(io.BytesIO(data)),
    "a resource, or a package": lambda data: unpacked([data]),
}
WHOLE = {
    "one member": (A, b"a" * 70_000),
    "several members": (A + B + A, b"a" * 70_000 + b"b" + b"a" * 70_000),
    "an empty one": (EMPTY, b""),
    "empty ones between": (EMPTY + A + EMPTY + B + EMPTY, b"a" * 70_000 + b"b"),
    "10,000 empty ones": (EMPTY * 10_000 + B, b"b"),
    "zeros behind": (A + bytes(512), b"a" * 70_000),
    "zeros between": (A + bytes(7) + B, b"a" * 70_000 + b"b"),
}
BROKEN = {
    "cut": A[:-1],
    "cut in the second": A + B[:-1],
    "cut in a head": A + B[:5],
    "text behind": A + b"{}",
    "text behind zeros": A + bytes(9) + b"x",
    "half a beginning behind": A + b"\x1f",
    "a wrong check sum": A[:-8] + bytes(4) + A[-4:],
    "empty ones without end": EMPTY * (1 + FREE_BYTES // len(EMPTY)),
    "zeros without end": A + bytes(FREE_BYTES + 140_001),
    "a name without end": A[:3] + b"\x08" + A[4:10] + b"x" * (FREE_BYTES + 1),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", WHOLE)
def test_members_that_follow_each_other_are_one_content(reader, name):
    data, content = WHOLE[name]
    assert b"".join(READERS[reader](data)) == content


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_whole_or_has_something_behind_it_is_refused(reader, name):
    with pytest.raises(Rejected, match=r"(it|the body) is no whole gzip"):
        b"".join(READERS[reader](BROKEN[name]))


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("size", [1, 19, 1_000])
def test_it_does_not_matter_how_it_comes(name, size):
    data, content = WHOLE[name]
    gunzip = Gunzip()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert b"".join(piece for each in pieces for piece in gunzip.feed(each)) == content
    gunzip.close()


def test_what_comes_without_content_is_bounded():
    for beyond in (0, 1):
        gunzip = Gunzip()
        list(gunzip.feed(A))
        spare = FREE_BYTES - len(A) + 2 * 70_000
        if beyond:
            with pytest.raises(BrokenGzip, match="more than twice as long in gzip as unpacked"):
                list(gunzip.feed(bytes(spare + beyond)))
        else:
            list(gunzip.feed(bytes(spare)))
            gunzip.close()


AT_THE_BOUND = [
    (A, 70_000),
    (A + B, 70_001),
    (A + EMPTY + bytes(9), 70_000),
    (gzip.compress(bytes(PIECE_BYTES), mtime=0), PIECE_BYTES),
    (EMPTY, 0),
    (gzip.compress(bytes(20_000_000), mtime=0), 20_000_000),
]


@pytest.mark.parametrize(("packed", "length"), AT_THE_BOUND)
def test_content_is_read_up_to_the_bound_and_no_byte_beyond_it(packed, length):
    whole = content_within(length, packed)
    assert whole is not None
    assert len(whole) == len(decoded(packed, "gzip", length)) == length
    if length:
        assert content_within(length - 1, packed) is None
        with pytest.raises(Rejected, match=f"the body exceeds {length - 1} bytes") as refused:
            decoded(packed, "gzip", length - 1)
        assert refused.value.status == 413


@pytest.mark.parametrize("read", [lambda said: decoded(B, said, 9), UnpackedBody])
@pytest.mark.parametrize("said", ["br", "gzip, gzip", "x" * 100])
def test_a_coding_that_is_not_understood_is_refused_in_the_same_words(read, said):
    with pytest.raises(Rejected, match="is not understood; send gzip, or plain") as refused:
        read(said)
    assert (refused.value.status, refused.value.headers) == (415, {"accept-encoding": "gzip"})
    assert len(refused.value.detail) < 120


def test_bombs_come_in_pieces_and_many_members_take_no_time_that_grows_with_their_square():
    assert max(map(len, Gunzip().feed(gzip.compress(bytes(50_000_000))))) == PIECE_BYTES
    with pytest.raises(Rejected, match="exceeds"):
        decoded(A * 3 + EMPTY * 100, "gzip", 140_001)
    began = time.process_time()
    many = B * 40_000
    assert b"".join(Gunzip().feed(many)) == b"b" * 40_000
    assert time.process_time() - began < 5


XZ = lzma.compress(b"a" * 70_000), lzma.compress(b"b"), lzma.compress(b"")
WHOLE_XZ = {
    "one stream": (XZ[0], b"a" * 70_000),
    "several streams": (XZ[0] + XZ[1] + XZ[0], b"a" * 70_000 + b"b" + b"a" * 70_000),
    "empty ones between": (XZ[2] + XZ[0] + XZ[2] * 10_000 + XZ[1], b"a" * 70_000 + b"b"),
    "zeros behind": (XZ[0] + bytes(512), b"a" * 70_000),
    "zeros between": (XZ[0] + bytes(8) + XZ[1], b"a" * 70_000 + b"b"),
}


@pytest.mark.parametrize("name", WHOLE_XZ)
@pytest.mark.parametrize("size", [1, 1_000, 1_000_000])
def test_streams_of_xz_that_follow_each_other_are_one_content(name, size):
    data, content = WHOLE_XZ[name]
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert b"".join(_unxz(pieces)) == content


@pytest.mark.parametrize("behind", [b"x", bytes(4) + b"x", XZ[1][:-1], struct.pack("B", 0xFD)])
def test_xz_that_is_not_whole_or_has_something_behind_it_is_refused(behind):
    with pytest.raises(lzma.LZMAError):
        b"".join(_unxz([XZ[0] + behind]))
