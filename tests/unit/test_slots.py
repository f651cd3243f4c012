"""The line for slots: fair between hosts, one call a callback, half of it closed to the slow."""

from typing import NamedTuple

from rsnotify.websub.call_slots import Slots


class Call(NamedTuple):
    host: str
    callback: str
    prompt: bool = True


def taken(slots: Slots[Call], count: int = 1000) -> list[Call]:
    calls = []
    while len(calls) < count and (call := slots.take()) is not None:
        calls.append(call)
    return calls


def slots_with(*calls: Call, total: int = 100, per_host: int = 4) -> Slots[Call]:
    slots = Slots[Call](total, per_host)
    for call in calls:
        slots.add(call)
    return slots


def test_no_more_than_the_total_are_under_way():
    slots = slots_with(*(Call(f"h{n}", f"c{n}") for n in range(10)), total=3)
    first = taken(slots)
    assert len(first) == slots.running == 3
    slots.done(first[0])
    assert len(taken(slots)) == 1


def test_no_more_than_so_many_of_a_host_are_under_way():
    slots = slots_with(*(Call("h", f"c{n}") for n in range(10)))
    first = taken(slots)
    assert len(first) == 4
    slots.done(first[0])
    assert taken(slots) == [Call("h", "c4")]


def test_hosts_take_turns():
    many = [Call("many", f"m{n}") for n in range(5)]
    few = [Call("few", f"f{n}") for n in range(2)]
    order = [call.host for call in taken(slots_with(*many, *few, per_host=9))]
    assert order[:4] == ["many", "few", "many", "few"]


def test_a_callback_is_called_by_one_at_a_time():
    slots = slots_with(Call("h", "same"), Call("h", "same", prompt=False), Call("h", "other"))
    first = taken(slots)
    assert {call.callback for call in first} == {"same", "other"}
    assert len(first) == 2
    for call in first:
        slots.done(call)
    assert [call.callback for call in taken(slots)] == ["same"]


def test_any_number_of_slow_ones_leaves_half_of_the_slots_free():
    slots = slots_with(*(Call(f"s{n}", f"s{n}", prompt=False) for n in range(100)), total=10)
    assert len(taken(slots)) == 5
    for number in range(10):
        slots.add(Call(f"p{number}", f"p{number}"))
    assert len(taken(slots)) == 5


def test_the_slow_ones_of_a_host_leave_one_of_its_slots_free():
    slots = slots_with(*(Call("h", f"s{n}", prompt=False) for n in range(9)))
    assert len(taken(slots)) == 3
    slots.add(Call("h", "prompt"))
    assert taken(slots) == [Call("h", "prompt")]


def test_the_prompt_ones_do_not_starve_the_slow():
    slots = slots_with(*(Call(f"p{n}", f"p{n}") for n in range(9)), total=4)
    slots.add(Call("s", "s", prompt=False))
    assert Call("s", "s", prompt=False) in taken(slots)


def test_one_slot_is_enough_for_everybody():
    slots = slots_with(Call("h", "a"), Call("h", "b", prompt=False), total=1, per_host=1)
    served = []
    while (call := slots.take()) is not None:
        served.append(call.callback)
        slots.done(call)
    assert sorted(served) == ["a", "b"]
