"""How many calls may be young at once."""

from rsnotify.delivery.websub.breath import YOUNG, Breath


async def test_only_so_many_calls_are_young() -> None:
    breath = Breath(lambda: None)
    beats = [breath.begin() for _ in range(YOUNG)]
    assert not breath.has_room
    breath.end(beats[0])
    assert breath.has_room


async def test_calls_that_take_long_are_no_longer_counted() -> None:
    breath = Breath(lambda: None)
    for _ in range(YOUNG):
        breath.begin()
    breath._next()
    assert not breath.has_room
    breath._next()
    assert breath.has_room


async def test_the_end_of_a_call_that_is_no_longer_counted_changes_nothing() -> None:
    breath = Breath(lambda: None)
    old = breath.begin()
    breath._next()
    breath._next()
    for _ in range(YOUNG):
        breath.begin()
    breath.end(old)
    assert not breath.has_room


async def test_each_beat_is_told() -> None:
    told = []
    breath = Breath(lambda: told.append("beat"))
    breath.begin()
    breath._next()
    assert told == ["beat"]
