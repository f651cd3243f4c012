"""What a hub lets one peer have, so that others get theirs."""

from pathlib import Path
from typing import Any

import aiohttp

from tests.running import RunningHub, until

CHANGE = {"loc": "http://example.com/1", "change": "updated"}


async def ask(
    hub: RunningHub, method: str, path: str, token: str, **options: Any
) -> tuple[int, Any, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, hub.url + path, **options) as answer,
    ):
        return answer.status, await answer.json(content_type=None), answer.headers


async def new_token(hub: RunningHub, **options: Any) -> dict[str, Any]:
    content = {"sets": ["dataset1"], "rights": ["publish", "read"]} | options
    status, token = await hub.ask("POST", "/api/tokens", json=content)
    assert status == 201
    return token


async def test_a_token_that_publishes_too_often_waits_and_no_other_does(tmp_path: Path) -> None:
    async with RunningHub(tmp_path / "data", publishes_per_second="3") as hub:
        wild, calm = [(await new_token(hub))["token"] for _ in range(2)]
        path = "/api/sets/dataset1/changes"
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {wild}"}) as session:

            async def refused() -> str | None:
                async with session.post(hub.url + path, json=CHANGE) as answer:
                    return answer.headers.get("Retry-After") if answer.status == 429 else None

            assert await until(refused) == "1"
        assert (await ask(hub, "POST", path, calm, json=CHANGE))[0] == 201


async def test_a_token_can_be_replaced_and_ends_what_was_opened_with_it(hub: RunningHub) -> None:
    await hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
    old = await new_token(hub, note="mirror", expires_days=1)
    assert "expires" in old
    headers = {"Authorization": f"Bearer {old['token']}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(hub.channel()) as reader,
    ):
        (listed,) = (await hub.ask("GET", "/api/tokens"))[1]
        assert listed["used"] is not None
        status, new = await hub.ask("POST", f"/api/tokens/{old['id']}/rotate")
        assert status == 201
        assert (new["sets"], new["rights"], new["note"]) == (
            ["dataset1"],
            ["publish", "read"],
            "mirror",
        )
        assert "expires" not in new
        assert (await reader.receive()).type is aiohttp.WSMsgType.CLOSE
        assert reader.close_code == 1008
    path = "/api/sets/dataset1/changes"

    async def is_refused() -> bool:
        return (await ask(hub, "POST", path, old["token"], json=CHANGE))[0] == 401

    await until(is_refused)
    assert (await ask(hub, "POST", path, new["token"], json=CHANGE))[0] == 201
    status, _ = await hub.ask("POST", f"/api/tokens/{new['id']}/rotate", json={"grace_seconds": -1})
    assert status == 400
    await hub.ask("POST", f"/api/tokens/{new['id']}/rotate", json={"grace_seconds": 3600})
    assert (await ask(hub, "POST", path, new["token"], json=CHANGE))[0] == 201


async def test_a_token_expires_in_a_day_at_least_and_ten_years_at_most(hub: RunningHub) -> None:
    for days, status in ((0, 400), (1, 201), (3_650, 201), (3_651, 400)):
        content = {"sets": ["dataset1"], "expires_days": days}
        assert (await hub.ask("POST", "/api/tokens", json=content))[0] == status
