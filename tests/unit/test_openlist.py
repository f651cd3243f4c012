"""Open Change Lists in memory: counted, let go of, made anew."""

from time import monotonic

import pytest

from rsnotify.documents.changelists import OpenList, OpenLists
from rsnotify.journal.gzip_parts import PACKER_BYTES
from rsnotify.journal.window import JournalRecord
from rsnotify.live.cache import MIB, Cache
from rsnotify.resourcesync.change import Position

ZERO = Position(0)
RECORD = JournalRecord(*(ZERO for _ in JournalRecord._fields))


async def grown(lists: OpenLists, set_name: str, size: int) -> OpenList:
    kept = lists.of(set_name, RECORD)

    async def read(after: Position, until: Position) -> tuple[bytes, Position]:
        return b"x" * size, until

    await kept.grow_to(Position(1), read)
    lists.used(set_name, kept)
    return kept


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)])
async def test_at_the_budget_both_lists_stay_and_one_past_it_the_older_is_made_anew(more, is_kept):
    lists = OpenLists(Cache(1, monotonic))
    older = await grown(lists, "older", MIB // 2)
    newer = await grown(lists, "newer", MIB // 2 + more)
    assert (lists.of("older", RECORD) is older) == is_kept
    assert lists.of("newer", RECORD) is newer
    assert b"".join(older.pieces) == b"x" * (MIB // 2), "who sends it yet is not disturbed"


async def test_a_list_that_was_let_go_of_while_it_grew_does_not_count():
    cache = Cache(1, monotonic)
    lists = OpenLists(cache)
    older = await grown(lists, "older", MIB)
    await grown(lists, "newer", 1)
    lists.used("older", older)
    assert cache.size == 1


async def test_what_compressing_takes_counts_and_is_taken_for_gzip_only():
    lists = OpenLists(Cache(1, monotonic))
    kept = await grown(lists, "set", 1_000)
    assert kept.size == 1_000
    packed, _ = await kept.packed()
    assert kept.size == 1_000 + PACKER_BYTES + len(packed.deflated)
