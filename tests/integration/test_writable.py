"""Whether changes can be stored, as the readiness of a hub has it."""

import pytest

from rsnotify.operation.health import Writable, why_full
from rsnotify.operation.warnings import LOW_BYTES, why_low
from rsnotify.redis_client import connect

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("memory", "is_full"),
    [
        ({"maxmemory": 0, "used_memory": 10**12}, False),
        ({"maxmemory": 1_000, "used_memory": 990}, False),
        ({"maxmemory": 1_000, "used_memory": 991}, True),
        ({"maxmemory": 1_000, "used_memory": 1_100}, True),
        ({"maxmemory": 1_000, "used_memory": 1_100, "mem_not_counted_for_evict": 110}, False),
        ({"maxmemory": 1_000, "used_memory": 1_100, "mem_not_counted_for_evict": 109}, True),
    ],
)
def test_a_redis_with_hardly_any_memory_left_is_full(memory, is_full):
    assert bool(why_full(memory)) is is_full


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ({"maxmemory": 0, "used_memory": 10**12}, ""),
        ({"maxmemory": 1000 * MIB, "used_memory": 900 * MIB}, ""),
        ({"maxmemory": 1000 * MIB, "used_memory": 900 * MIB + 1}, "less than 10 %"),
        ({"maxmemory": 100 * MIB, "used_memory": 100 * MIB - LOW_BYTES}, ""),
        ({"maxmemory": 100 * MIB, "used_memory": 100 * MIB - LOW_BYTES + 1}, "less than 16 MiB"),
    ],
)
def test_a_redis_is_nearly_full_while_a_large_request_may_not_fit(memory, said):
    assert said in why_low(memory)
    assert bool(why_low(memory)) is bool(said)


@pytest.mark.parametrize(("left", "is_full"), [(2 * MIB, False), (MIB // 4, True)])
async def test_a_small_write_does_not_hide_that_there_is_no_room_for_changes(
    own_redis, left, is_full
):
    await own_redis.client.setrange("large", 64 * MIB, b"x")
    used = (await own_redis.client.info("memory"))["used_memory"]
    await own_redis.client.config_set("maxmemory", used + left)
    async with connect(own_redis.url) as client:
        reason = await Writable(client).why_not()
    assert reason.startswith("Redis has less than 1 % of its memory left" if is_full else "")
    assert bool(reason) is is_full
