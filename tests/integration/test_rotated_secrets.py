"""A secret is replaced while a hub of two processes serves: no publish is refused, and whoever
follows misses nothing. Each is replaced as docs/operations/secrets.md says it.
"""

import asyncio
import base64
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from rsnotify_client import follow_async
from tests.support.redis_server import RedisServer
from tests.support.running import TOKEN, RunningHub, until

ENOUGH = 20  # publishes before something is changed, and after it
PAUSE_SECONDS = 0.01  # between two
JWKS_SECONDS = 1


@dataclass
class Traffic:
    """Publishes a hundred changes a second, each over a new connection and none a second time."""

    hub: RunningHub
    token: Callable[[], str]
    statuses: list[int] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)
    is_ending: bool = False

    async def publish(self) -> None:
        while not self.is_ending:
            body = {"loc": f"http://a/{len(self.statuses)}", "change": "updated"}
            async with aiohttp.ClientSession(headers=bearer(self.token())) as session:
                url = f"{self.hub.url}/api/sets/dataset1/changes"
                async with session.post(url, json=body) as answer:
                    self.statuses.append(answer.status)
            await asyncio.sleep(PAUSE_SECONDS)

    async def follow(self) -> None:
        source = f"{self.hub.url}/dataset1"
        async for change in follow_async(source, position="2000-01-01T00:00:00Z"):
            self.followed.append(change.loc)

    async def goes_on(self) -> None:
        begun = len(self.statuses)

        async def grown() -> bool:
            return len(self.statuses) >= begun + ENOUGH

        await until(grown)

    async def reached(self) -> bool:
        return len(self.followed) == len(self.statuses)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def steady(hub: RunningHub, token: Callable[[], str]) -> AsyncIterator[Traffic]:
    """Publishes go on while something is changed; then each was accepted, and read once."""
    traffic = Traffic(hub, token)
    following = asyncio.create_task(traffic.follow())
    publishing = asyncio.create_task(traffic.publish())
    try:
        await traffic.goes_on()
        yield traffic
        await traffic.goes_on()
    finally:
        traffic.is_ending = True
        await publishing
    assert set(traffic.statuses) == {201}
    await until(traffic.reached)
    assert traffic.followed == [f"http://a/{number}" for number in range(len(traffic.statuses))]
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


async def made_token(hub: RunningHub) -> dict[str, Any]:
    _, made = await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"]})
    return made


async def reload(hub: RunningHub) -> None:
    """`systemctl reload`: each process is replaced."""
    replaced = hub.log.read_text().count("all workers are replaced")
    assert hub.process is not None
    hub.process.send_signal(signal.SIGHUP)

    async def done() -> bool:
        return hub.log.read_text().count("all workers are replaced") > replaced

    await until(done)


def two_processes(tmp_path: Path, *options: str, **settings: str) -> RunningHub:
    data = tmp_path / "data"
    return RunningHub(data, "--workers", "2", *options, drain_seconds="1", **settings)


@pytest.mark.evidence
async def test_a_token_of_a_source_is_rotated(tmp_path):
    async with two_processes(tmp_path) as hub:
        token = await made_token(hub)
        secret = token["token"]
        async with steady(hub, lambda: secret) as traffic:
            path = f"/api/tokens/{token['id']}/rotate"
            _, rotated = await hub.ask("POST", path, json={"grace_seconds": 3600})
            await traffic.goes_on()
            secret = rotated["token"]
            await traffic.goes_on()
            status, _ = await hub.ask("DELETE", f"/api/tokens/{token['id']}")
            assert status == 204


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("admin_token", "/api/tokens"),
        pytest.param("metrics_token", "/metrics", marks=pytest.mark.evidence),
    ],
)
async def test_a_token_of_the_operator_is_replaced_in_its_file(tmp_path, setting, path):
    file = tmp_path / "secret"
    file.write_text("a-secret-of-yesterday")
    async with two_processes(tmp_path, **{f"{setting}_file": str(file)}) as hub:
        admin = "a-secret-of-yesterday" if setting == "admin_token" else TOKEN
        body = {"sets": ["dataset1"]}
        _, made = await hub.ask("POST", "/api/tokens", json=body, headers=bearer(admin))
        async with steady(hub, lambda: made["token"]):
            file.write_text("a-secret-of-today-x")
            await reload(hub)
            for secret, expected in (("a-secret-of-today-x", 200), ("a-secret-of-yesterday", 401)):
                for _ in range(ENOUGH):  # each process
                    status, _ = await hub.ask("GET", path, headers=bearer(secret))
                    assert status == expected


def key_set(folder: Path, *kids: str) -> Path:
    keys = [{"kty": "oct", "alg": "HS256", "kid": kid, "k": _encoded(kid)} for kid in kids]
    part = folder / "jwks.part"
    part.write_text(json.dumps({"keys": keys}))
    return part.rename(folder / "jwks.json")


def _secret(kid: str) -> str:
    return kid * 8


def _encoded(kid: str) -> str:
    return base64.urlsafe_b64encode(_secret(kid).encode()).rstrip(b"=").decode()


def signed(kid: str) -> str:
    claims = {"exp": int(time.time()) + 600, "rsnotify": {"publish": ["*"], "read": ["*"]}}
    return jwt.encode(claims, _secret(kid), algorithm="HS256", headers={"kid": kid})


@pytest.mark.evidence
async def test_a_key_of_jwts_is_replaced_in_the_key_set(tmp_path):
    jwks = key_set(tmp_path, "yesterday")
    async with two_processes(tmp_path, jwks=str(jwks), jwks_seconds=str(JWKS_SECONDS)) as hub:
        token = signed("yesterday")
        async with steady(hub, lambda: token) as traffic:
            key_set(tmp_path, "yesterday", "todayxxxx")
            # As the page says. To ask does not show it, for one process may answer each time.
            await asyncio.sleep(2 * JWKS_SECONDS)
            token = signed("todayxxxx")
            await traffic.goes_on()
            key_set(tmp_path, "todayxxxx")
            await until(partial(_all_say, hub, signed("yesterday"), 401))


async def _all_say(hub: RunningHub, token: str, status: int) -> bool:
    """Each process, as far as asking often shows it."""
    path = "/api/rights?name=dataset1"
    asked = [await hub.ask("GET", path, headers=bearer(token)) for _ in range(ENOUGH)]
    return {said for said, _ in asked} == {status}


@pytest.mark.evidence
async def test_the_password_of_redis_is_replaced(tmp_path):
    password = tmp_path / "password"
    password.write_text("yesterday")
    server = RedisServer(tmp_path, "--requirepass", "yesterday", password="yesterday")
    async with server:
        options = ("--redis", server.url)
        hub = two_processes(tmp_path, *options, redis_password_file=str(password))
        async with hub:
            made = await made_token(hub)
            async with steady(hub, lambda: made["token"]), server.client() as client:
                await client.execute_command("ACL", "SETUSER", "default", ">today")
                password.write_text("today")
                await reload(hub)
                await client.execute_command("ACL", "SETUSER", "default", "<yesterday")
            await until(partial(_answers, hub))
            server.password = "today"
            async with server.client() as client:
                await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await until(partial(_publishes, hub))


@pytest.mark.evidence
async def test_a_wrong_password_in_the_file_replaces_no_process(tmp_path):
    password = tmp_path / "password"
    password.write_text("yesterday")
    server = RedisServer(tmp_path, "--requirepass", "yesterday", password="yesterday")
    async with server:
        hub = two_processes(tmp_path, "--redis", server.url, redis_password_file=str(password))
        async with hub:
            made = await made_token(hub)
            async with steady(hub, lambda: made["token"]):
                password.write_text("mistyped")
                assert hub.process is not None
                hub.process.send_signal(signal.SIGHUP)

                async def is_given_up() -> bool:
                    return "did not become ready; the rest stay" in hub.log.read_text()

                await until(is_given_up)
            assert "all workers are replaced" not in hub.log.read_text()


async def _answers(hub: RunningHub) -> bool:
    status, _ = await hub.ask("GET", "/health/ready")
    return status == 200


async def _publishes(hub: RunningHub) -> bool:
    body = {"loc": "http://a/last", "change": "updated"}
    status, _ = await hub.ask("POST", "/api/sets/dataset1/changes", json=body)
    return status == 201
