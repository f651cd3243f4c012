"""Packed entries: they come back, gzip is right around them, and a cursor finds its place."""

import gzip
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsnotify.journal.gzip_parts import (
    PIECE_BYTES,
    PackedEntries,
    Packer,
    entries_after,
    pieces_after,
    rows_after,
    rows_until,
)
from rsnotify.journal.submission import fragment_of
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.notification import render_rows
from tests.support.packing import pack


def rows(*positions: int) -> bytes:
    loc = 'http://example.com/datetime="a"&b'
    fragment = fragment_of(Change(loc, "updated")).xml
    return render_rows([(Position(at), fragment) for at in positions])


@given(st.lists(st.binary(max_size=300)), st.binary(max_size=300), st.binary(max_size=300))
def test_gzip_around_packed_entries_reads_as_the_whole_document(pieces, head, foot):
    packed = pack(pieces)
    assert gzip.decompress(b"".join(packed.gzipped(head, foot))) == head + b"".join(pieces) + foot


@given(st.lists(st.binary(max_size=300), min_size=1))
def test_what_is_added_later_is_packed_with_what_was_there(pieces):
    packer = Packer()
    for piece, so_far in zip(pieces, accumulate(pieces), strict=True):
        packer.add(piece)
        assert b"".join(packer.packed().pieces()) == so_far
        assert gzip.decompress(b"".join(packer.packed().gzipped(b"<", b">"))) == b"<%b>" % so_far


def test_packed_entries_are_kept_as_bytes():
    packed = pack([b"a", b"b"])
    assert PackedEntries.from_bytes(packed.to_bytes()) == packed


def test_large_entries_are_unpacked_in_pieces():
    entries = b"x" * (3 * PIECE_BYTES + 1)
    assert list(map(len, pack([entries]).pieces())) == [PIECE_BYTES] * 3 + [1]


def test_a_cursor_finds_the_entries_after_it():
    entries = rows(10, 20, 30)
    for cursor, left in ((0, (10, 20, 30)), (10, (20, 30)), (19, (20, 30)), (20, (30,)), (30, ())):
        assert entries_after(entries, Position(cursor)) == rows(*left)


MANY = range(1, 5_001)  # some four pieces


@pytest.fixture(scope="module")
def long() -> PackedEntries:
    return pack([rows(*MANY)])


PLACES = (0, 1, 1_000, 1_001, 1_499, 2_500, 4_998, 4_999, 5_000, 5_001)


@pytest.mark.parametrize("cursor", PLACES)
def test_a_cursor_finds_its_place_in_any_piece(long, cursor):
    assert len(list(long.pieces())) > 3
    left = [at for at in MANY if at > cursor]
    assert b"".join(pieces_after(long, Position(cursor))) == rows(*left)
    found = [at for at, _ in rows_after(long, Position(cursor), 1_500)]
    assert found == left[:1_500]


@pytest.mark.parametrize("until", PLACES)
@pytest.mark.parametrize("count", [1, 2, 1_500, 5_000])
def test_the_last_rows_come_from_as_many_pieces_as_they_need(long, until, count):
    found = [at for at, _ in rows_until(long, Position(until), count)]
    assert found == [at for at in MANY if at <= until][-count:]


def test_a_packed_entry_without_a_datetime_is_a_bug():
    packed = pack([rows(1).replace(b" datetime=", b" modified=")])
    with pytest.raises(ValueError, match="has no datetime"):
        rows_after(packed, Position(0), 1)
