"""What strangers ask of all sets is made once for many of them, and is never old."""

import asyncio

import aiohttp
import pytest

from tests.support.running import RunningHub

ADDRESSES = ["/api/sets", "/api/status", "/api/status?limit=10000", "/api/sets?search=new"]


async def asked(session: aiohttp.ClientSession, url: str) -> list[str]:
    async with session.get(url) as answer:
        assert answer.status == 200
        found = await answer.json()
        return [each["name"] for each in (found["sets"] if isinstance(found, dict) else found)]


@pytest.mark.evidence
@pytest.mark.parametrize("address", ADDRESSES)
async def test_many_strangers_are_each_answered_with_what_is_so_when_they_ask(
    shared_hub: RunningHub, address
):
    hub = shared_hub
    async with aiohttp.ClientSession() as session:
        for number in range(3):
            crowd = [asyncio.create_task(asked(session, hub.url + address)) for _ in range(40)]
            name = f"new{number}"
            assert (await hub.ask("PUT", f"/api/sets/{name}"))[0] == 201
            later = [asked(session, hub.url + address) for _ in range(20)]
            assert all(name in names for names in await asyncio.gather(*later))
            await asyncio.gather(*crowd)
            await hub.ask("DELETE", f"/api/sets/{name}")
            assert name not in await asked(session, hub.url + address)


async def test_a_private_set_is_in_no_answer_that_strangers_share(shared_hub: RunningHub):
    hub = shared_hub
    await hub.ask("PUT", "/api/sets/hidden", json={"private": True})
    async with aiohttp.ClientSession() as session:
        asking = [asked(session, f"{hub.url}/api/sets") for _ in range(20)]
        admins = [hub.ask("GET", "/api/sets") for _ in range(20)]
        found = asyncio.gather(*asking)
        for status, sets in await asyncio.gather(*admins):
            assert status == 200
            assert "hidden" in [each["name"] for each in sets]
        assert all("hidden" not in names for names in await found)
    await hub.ask("DELETE", "/api/sets/hidden")
