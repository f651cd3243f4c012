"""How much is read of each peer in a turn of the event loop."""

import asyncio
from itertools import count

import pytest

from rsnotify.http.input_turns import RESUMED, BoundedInput, InputTurns

TURN, LEAST = 1_000, 100


class Paused(asyncio.Transport):
    """Says whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Connection(BoundedInput):
    """Takes what it is sent."""

    def __init__(self, turns: InputTurns) -> None:
        self.turns = turns
        self.transport = Paused()
        self.got: list[int] = []

    @property
    def is_read(self) -> bool:
        return self.transport.is_read

    def receive_data(self, data: bytes) -> None:
        self.got.append(len(data))

    def is_sent(self, size: int) -> None:
        """As the loop does it: as much as there is room for."""
        room = len(self.get_buffer(-1))
        self.buffer_updated(min(size, room))


@pytest.fixture
def turns() -> InputTurns:
    return InputTurns(turn_bytes=TURN, least_bytes=LEAST)


async def test_who_has_more_to_say_than_a_turn_takes_waits_for_the_next(turns):
    one = Connection(turns)
    one.is_sent(TURN - 1)
    assert one.is_read
    await asyncio.sleep(0)
    one.is_sent(TURN + 1)
    assert (one.got, one.is_read) == ([TURN - 1, TURN], False)
    await asyncio.sleep(0)
    assert one.is_read


async def test_all_share_a_turn_but_each_has_a_little_of_its_own(turns):
    many = [Connection(turns) for _ in range(5)]
    for each in many:
        each.is_sent(TURN)
    assert [each.got for each in many] == [[TURN], *[[LEAST]] * 4]
    await asyncio.sleep(0)
    many[4].is_sent(TURN)
    assert many[4].got == [LEAST, TURN]


async def test_what_most_peers_send_is_free(turns):
    many = [Connection(turns) for _ in range(2 * TURN // LEAST)]
    for each in many:
        each.is_sent(LEAST - 1)
    assert all(each.is_read for each in many)
    assert len(turns.get_buffer(-1)) == TURN
    many[0].is_sent(LEAST)
    assert len(turns.get_buffer(-1)) == TURN - LEAST


async def test_so_many_go_on_in_a_turn_those_who_wait_longest_first(turns):
    many = [Connection(turns) for _ in range(2 * RESUMED + 1)]
    for each in many:
        each.is_sent(TURN)
    for turn in count(1):
        await asyncio.sleep(0)
        assert [each.is_read for each in many] == [at < turn * RESUMED for at in range(len(many))]
        if turn * RESUMED > len(many):
            break


async def test_who_has_left_the_line_is_not_read_again(turns):
    one = Connection(turns)
    one.is_sent(TURN)
    assert turns.is_waiting(one)
    assert turns.leave(one)
    assert not turns.leave(one)
    await asyncio.sleep(0)
    assert not one.is_read
