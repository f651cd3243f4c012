"""The simulation of `tests/evidence/scale`: what must come out, whatever things cost."""

import pytest

from rsnotify_client.answer import HUB_BACKOFF
from tests.evidence.scale.events import Clock, Core
from tests.evidence.scale.model import (
    HERD_PATIENCE_SECONDS,
    SAMPLES,
    Costs,
    Deployment,
    Outcome,
    Setup,
    herd_seconds,
)

pytestmark = pytest.mark.evidence

COSTS = Costs(
    publish=0.5e-3,
    append=0.1e-3,
    read_back=0.2e-3,
    write={1_000: 4e-6, 5_000: 5e-6},
    handshake=0.2e-3,
    receive={1_000: 6e-6, 5_000: 7e-6},
)


def outcome(**setup: object) -> Outcome:
    return Deployment(COSTS, Setup(**setup)).run()


def test_a_core_does_one_thing_after_another():
    clock, ended = Clock(), []
    core = Core(clock)
    for seconds in (3, 1):
        core.do(seconds, lambda: ended.append(clock.now))
    clock.at(10, lambda: core.do(1, lambda: ended.append(clock.now)))
    clock.run()
    assert ended == [3, 4, 11]
    assert core.busy == 5


def test_one_change_after_another_takes_what_its_parts_take():
    found = outcome(readers=1_000, seconds=1)
    assert found.seconds / found.published == pytest.approx(0.5e-3 + 0.1e-3 + 1_000 * 4e-6)
    assert found.deliveries == 1_000 * found.published


def test_readers_on_one_core_wait_for_each_other():
    alone, shared = (
        outcome(readers=5_000, seconds=1, readers_share_a_core=each) for each in (False, True)
    )
    before = 0.5e-3 + 0.1e-3
    assert alone.percentile(0.5) == pytest.approx(before + 2_500 * 5e-6)
    first = 5_000 / SAMPLES * 5e-6  # so many are sent before any of them is taken
    assert shared.percentile(0.5) == pytest.approx(before + first + 2_500 * 7e-6)
    assert shared.published < alone.published


@pytest.mark.parametrize("processes", [3, 1, 7])
def test_all_readers_get_all_that_is_published_however_many_processes(processes):
    found = outcome(readers=1_000, processes=processes, seconds=1)
    assert found.deliveries == 1_000 * found.published


def test_more_is_published_than_can_be_sent_one_by_one_so_rounds_take_several_changes():
    found = outcome(readers=10_000, changes_a_second=500, seconds=5)
    assert found.deliveries < 10_000 * found.published
    assert found.percentile(1.0) < 0.3, "it falls behind no further than two rounds"


def test_more_processes_are_faster():
    waits = [
        outcome(readers=50_000, processes=each, changes_a_second=5).percentile(0.5)
        for each in (1, 2, 8)
    ]
    assert waits == sorted(waits, reverse=True)


def test_who_is_slow_gets_fewer_notifications_and_holds_up_nobody():
    all_fast = outcome(readers=20_000, changes_a_second=5)
    some_slow = outcome(readers=20_000, changes_a_second=5, slow_share=0.1)
    assert some_slow.deliveries < all_fast.deliveries
    assert some_slow.percentile(0.5) <= all_fast.percentile(0.5)


def test_what_is_published_while_redis_is_away_comes_when_it_is_back():
    found = outcome(readers=1_000, changes_a_second=20, seconds=5, redis_is_away=(1.0, 3.0))
    assert 1.5 < found.percentile(1.0) < 2.5


def test_a_herd_is_back_when_all_handshakes_are_done():
    readers = int(HERD_PATIENCE_SECONDS / 2 / COSTS.handshake)
    work = readers * COSTS.handshake
    assert work <= herd_seconds(COSTS, readers) <= HUB_BACKOFF.first_seconds + work


def test_a_herd_that_is_too_large_comes_back_several_times():
    readers = int(2 * HERD_PATIENCE_SECONDS / COSTS.handshake)
    assert herd_seconds(COSTS, readers) > 1.25 * readers * COSTS.handshake


def test_the_same_seed_gives_the_same():
    setup = Setup(readers=1_000, changes_a_second=50, slow_share=0.1)
    first, second = (Deployment(COSTS, setup, seed=7).run() for _ in range(2))
    assert first == second
