"""Memory that was freed goes back to the system."""

import pytest

from rsnotify.process.freed_memory import GROWN_BYTES, LOOKS, FreedMemory

BEGIN = 80_000_000


class Process:
    """So many bytes are resident; each trim frees all but those that are needed."""

    def __init__(self) -> None:
        self.resident = BEGIN
        self.needed = BEGIN
        self.trims = 0

    def trim(self, _: int) -> None:
        self.trims += 1
        self.resident = self.needed


async def test_a_process_is_trimmed_when_it_has_grown_by_so_much_and_not_before():
    process = Process()
    freed = FreedMemory(process.trim, lambda: process.resident)
    for grown, trims in [(0, 0), (GROWN_BYTES - 1, 0), (GROWN_BYTES, 1)]:
        process.resident = BEGIN + grown
        await freed.give_back()
        assert process.trims == trims


@pytest.mark.parametrize(("over", "left"), [(0, 0), (1, GROWN_BYTES)])
async def test_it_is_trimmed_for_a_minute_in_which_what_it_grew_for_may_end(over, left):
    process = Process()
    freed = FreedMemory(process.trim, lambda: process.resident)
    await freed.give_back()
    process.resident = process.needed = BEGIN + GROWN_BYTES
    for _ in range(LOOKS - 1 + over):
        await freed.give_back()
    process.needed = BEGIN
    for _ in range(5):
        await freed.give_back()
    assert (process.trims, process.resident) == (LOOKS, BEGIN + left)


async def test_growth_counts_from_the_least_since_then():
    process = Process()
    freed = FreedMemory(process.trim, lambda: process.resident)
    for resident in (BEGIN, BEGIN - 1_000_000, BEGIN - 1_000_000 + GROWN_BYTES):
        assert process.trims == 0
        process.resident = resident
        await freed.give_back()
    assert process.trims == 1


async def test_nothing_is_done_where_the_c_library_cannot_be_asked():
    await FreedMemory(None, lambda: 1 // 0).give_back()
