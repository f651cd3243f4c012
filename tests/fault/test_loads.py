"""A set is loaded while the hub is killed and Redis fails: all of it is there, or nothing."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rsnotify.redis_client import connect
from tests.support.amount import enough
from tests.support.faults import SlowWay, too_few_replicas
from tests.support.loading import Loading, ndjson, said
from tests.support.pulling import SET, loc
from tests.support.running import RunningHub, until

PATH = f"/api/sets/{SET}/resources"
TEN = [f"res{number}" for number in range(10)]
HEADERS = {"Content-Type": "application/x-ndjson"}
TRY_AGAIN = 503


# --- Redis fails -------------------------------------------------------------------------------


@pytest.mark.parametrize("query", enough(["publish=yes", "publish=no"], 1))
@pytest.mark.parametrize(
    "act", ["begin", "stage", "differ", "decide", "complete", "replace", "finish"]
)
async def test_a_lost_answer_of_any_step_changes_nothing(own_redis, act, query):
    async with SlowWay(own_redis.url) as way:
        client = connect(way.url)
        async with Loading(client) as loading:
            await loading.load(ndjson(TEN))
            way.lose_next_answer(f"{act}\r\n")
            await loading.put(ndjson([*TEN[1:], "new"]), query)
            await until(lambda: nothing_is_left(loading))
            assert list(await loading.known()) == sorted([*TEN[1:], "new"])
            told = [("created", "new"), ("deleted", "res0")] if query == "publish=yes" else []
            assert said(await loading.told()) == told
            never_asked = {
                "decide": "publish=no",
                "complete": "publish=yes",
                "replace": "publish=yes",
            }.get(act)
            assert way.lost == (never_asked != query)
        await client.aclose()


async def nothing_is_left(loading: Loading) -> bool:
    await loading.keeper.keep_loads()
    return not await loading.leavings()


async def test_a_redis_that_refuses_is_answered_503_and_leaves_nothing(own_redis):
    client = connect(own_redis.url)
    async with Loading(client) as loading:
        await loading.load(ndjson(TEN))
        before = await loading.known()
        async with too_few_replicas(own_redis.client):
            assert (await loading.put(ndjson(["new"]), "max_delete=100"))[0] == 503
        upload = loading.upload("max_delete=100", is_eager=True)
        upload.send(ndjson(["new"]))
        await until(lambda: is_staged(loading))
        async with too_few_replicas(own_redis.client):
            upload.send(ndjson(["newer"]), is_last=True)
            assert (await upload.answer())[0] == 503
        assert await loading.leavings() != []
        await client.delete(f"rsnotify:{{{SET}}}:claim:load")  # as if its time were over
        await until(lambda: nothing_is_left(loading))
        assert (await loading.known(), await loading.told()) == (before, [])
    await client.aclose()


async def is_staged(loading: Loading) -> bool:
    return await loading.staged() > 0


# --- the hub is killed -------------------------------------------------------------------------


async def test_a_hub_killed_at_any_moment_leaves_the_old_state_or_the_new_one(tmp_path):
    await killed_rounds(tmp_path, rounds=2)


async def killed_rounds(folder: Path, *, rounds: int, resources: int = 2_000) -> None:
    """Load one state or the other, with a hub that is killed meanwhile, again and again."""
    states = [[f"{letter}{n}" for n in range(resources)] for letter in "ab"]
    chance = random.Random(5)
    async with RunningHub(folder / "data") as hub:
        status, _ = await hub.ask("PUT", PATH, data=ndjson(states[0]), headers=HEADERS)
        assert status == 200
        now = 0
        for number in range(rounds):
            query = f"?max_delete=100&publish={'yes' if number % 2 else 'no'}"
            sending = asyncio.create_task(_put(hub, query, ndjson(states[1 - now]), str(number)))
            await asyncio.sleep(chance.uniform(0, 0.7))
            await hub.kill()
            await sending
            await hub.start()
            await until(lambda: _is_done(hub))
            found = [await _is_known(hub, states[each][0]) for each in (0, 1)]
            assert sorted(found) == [False, True], "half a state"
            assert await _count(hub) == resources
            assert all([await _is_known(hub, name) for name in chance.sample(states[found[1]], 9)])
            answer = await _taken(hub, query, ndjson(states[1 - now]), str(number))
            assert answer.get("resources") == resources, answer
            now = 1 - now


async def _put(hub: RunningHub, query: str, body: bytes, key: str) -> tuple[int, Any]:
    with suppress(aiohttp.ClientError, OSError):
        return await hub.ask(
            "PUT", PATH + query, data=body, headers=HEADERS | {"Idempotency-Key": key}
        )
    return 0, None


async def _taken(hub: RunningHub, query: str, body: bytes, key: str) -> Any:
    """The answer to a load that is sent again for as long as it is asked for."""
    while True:
        status, answer = await _put(hub, query, body, key)
        if status != TRY_AGAIN:
            return answer


async def _is_done(hub: RunningHub) -> bool:
    return (await hub.ask("GET", PATH))[1]["load"] is None


async def _count(hub: RunningHub) -> int:
    return (await hub.ask("GET", PATH))[1]["resources"]


async def _is_known(hub: RunningHub, name: str) -> bool:
    return (await hub.ask("GET", f"{PATH}?loc={loc(name)}"))[0] == 200
