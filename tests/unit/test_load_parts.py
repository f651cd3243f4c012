"""How what a load brings is sorted and cut before it is staged."""

from collections.abc import Sequence

import msgspec
import pytest

from rsnotify.coordination import keys
from rsnotify.documents.snapshots import SLICE_BYTES, SLICE_RESOURCES, _slices
from rsnotify.publishing.loads.load_store import Brought, Gathered, pack


def brought(count: int) -> list[Brought]:
    return [(b"http://example.com/%d" % number, b"</loc>%d" % number) for number in range(count)]


def gathered(resources: Sequence[Brought], **limits: int) -> Gathered:
    found = Gathered(**limits)
    found.add(resources)
    return found


def test_parts_hold_everything_once_sorted_by_shard():
    parts = list(gathered(brought(2_500)).parts())
    assert [len(part.brought) for part in parts] == [1_000, 1_000, 500]
    together = [each for part in parts for each in part.brought]
    assert sorted(together) == sorted(brought(2_500))
    shards = [keys.shard_of(loc) for loc, _ in together]
    assert shards == sorted(shards)


def test_a_part_is_packed_as_the_script_reads_it():
    (part,) = gathered(brought(1_000)).parts()
    packed = msgspec.msgpack.decode(part.packed)
    assert part.packed == pack(brought(1_000))
    assert packed[::2] == sorted({keys.shard_of(loc) for loc, _ in brought(1_000)})
    texts = [text for of_shard in packed[1::2] for text in of_shard]
    assert texts == [text.decode() for each in part.brought for text in each]


def test_of_a_resource_that_comes_twice_the_later_one_stays_behind():
    loc = b"http://example.com/1"
    (part,) = gathered([(loc, b"</loc>b"), *brought(50), (loc, b"</loc>a")]).parts()
    rests = [rest for each, rest in part.brought if each == loc]
    assert (rests[0], rests[-1]) == (b"</loc>b", b"</loc>a")


def test_so_many_resources_are_enough():
    full = [gathered(brought(count), most_resources=10).is_full for count in (9, 10)]
    assert full == [False, True]


def test_so_many_bytes_are_enough_and_go_in_smaller_parts():
    size = sum(len(text) for each in brought(10) for text in each)
    full = [gathered(brought(count), most_bytes=size).is_full for count in (9, 10)]
    assert full == [False, True]
    halves = gathered(brought(10), part_bytes=size // 2).parts()
    assert [len(part.brought) for part in halves] == [5, 5]
    single = gathered(brought(3), part_bytes=1).parts()
    assert [len(part.brought) for part in single] == [1, 1, 1]


@pytest.mark.parametrize(
    ("kept", "longest"),
    [(1, SLICE_RESOURCES), (SLICE_BYTES // 100, 101), (SLICE_BYTES, 2), (2 * SLICE_BYTES, 1)],
)
def test_a_slice_of_a_resource_list_is_bounded(kept, longest):
    shard = [(b"", b"x" * kept)] * 2_500 if kept == 1 else [(b"", b"x" * kept)] * 210
    assert max(map(len, _slices(shard))) == longest
    assert sum(map(len, _slices(shard))) == len(shard)
