"""A Redis behind a password, an ACL and TLS, and what is said when one of them is not right."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rsnotify.process.embedded_redis.binaries import installed_binaries
from rsnotify.process.engine import wait_until_usable
from rsnotify.redis_client import Address, Replicas
from rsnotify.resourcesync.change import Change
from rsnotify_client.asyncpublisher import AsyncPublisher
from tests.integration.test_external_redis import problem_of
from tests.support.raw import raw_channel
from tests.support.receivers import Receiver, subscribe
from tests.support.redis_replicas import knows_files
from tests.support.redis_server import RedisServer
from tests.support.redis_tls import AUTHORITY, TRUSTING, WITH_CERTIFICATE, refusing, tls_before
from tests.support.running import TOKEN, RunningHub, until

OPERATIONS = Path(__file__).parents[2] / "docs/operations/redis.md"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with RedisServer(tmp_path, "--appendonly", "yes") as started:
        yield started


def documented_rights() -> list[str]:
    """The words of the line of the manual, after the user's name and password."""
    (line,) = re.findall(r"^user rsnotify on >PASSWORD (.+)$", OPERATIONS.read_text(), re.MULTILINE)
    return str(line).split()


async def test_a_user_with_the_documented_rights_is_enough_for_all_that_a_hub_does(
    server, tmp_path
):
    async with server.client() as admin:
        await admin.execute_command("ACL", "SETUSER", "rsnotify", "on", ">x", *documented_rights())
        url = server.url.replace("//", "//rsnotify:x@")
        receiver = Receiver()
        hub = RunningHub(
            tmp_path / "data", "--redis", url, callback_private="allow", changelist_max="2"
        )
        async with receiver, hub:
            await do_everything(hub, receiver)
            assert await hub.stop() == 0
        refused = await admin.execute_command("ACL", "LOG")
        assert refused == []
    log = hub.log.read_text()
    assert "Traceback" not in log
    assert "NOPERM" not in log


async def do_everything(hub: RunningHub, receiver: Receiver) -> None:
    """Every script and command of the hub, as far as it can be asked for from outside."""
    await subscribe(hub, receiver)
    async with raw_channel(hub.channel()) as reader, AsyncPublisher(hub.url, TOKEN) as publisher:
        for _ in range(2):
            await publisher.publish(
                "dataset1", [Change("http://example.com/1", "updated")], key="a"
            )
        assert b"http://example.com/1" in await reader.text()
    await hub.publish("http://example.com/2", "http://example.com/3")  # closes a Change List

    async def is_packed() -> bool:
        return b"<sitemap>" in (await hub.ask("GET", "/dataset1/changelist-index.xml"))[1]

    await until(is_packed)
    assert (await hub.ask("POST", "/api/sets/dataset1/snapshot"))[0] in (200, 201)
    assert (await hub.ask("PUT", "/api/sets/dataset2", json={}))[0] == 201
    assert (await hub.ask("PATCH", "/api/sets/dataset2", json={"private": True}))[0] == 200
    assert (await hub.ask("DELETE", "/api/sets/dataset2"))[0] == 204
    _, made = await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"]})
    assert (await hub.ask("DELETE", f"/api/tokens/{made['id']}"))[0] == 204


async def test_a_user_with_the_documented_rights_may_do_nothing_else(server):
    async with server.client() as admin:
        await admin.execute_command("ACL", "SETUSER", "rsnotify", "on", ">x", *documented_rights())
        for command in ("FLUSHALL", "KEYS *", "CONFIG SET save 1", "GET others", "SHUTDOWN"):
            words = ("ACL", "DRYRUN", "rsnotify", *command.split())
            assert b"no permissions" in await admin.execute_command(*words), command


@pytest.mark.parametrize(("right", "on_disk"), [("wait", False), ("waitaof", True)])
async def test_a_user_who_may_not_ask_for_replicas_is_told_how_to_mend_it(tmp_path, right, on_disk):
    for binary in await installed_binaries():
        if on_disk and not knows_files(binary):
            continue
        async with RedisServer(tmp_path, binary=binary.path) as server, server.client() as admin:
            rights = (*documented_rights(), f"-{right}")
            await admin.execute_command("ACL", "SETUSER", "rsnotify", "on", ">x", *rights)
            url = server.url.replace("//", "//rsnotify:x@")
            assert await problem_of(url, replicas=Replicas(1, on_disk=on_disk)) == (
                f"--redis {Address.without_password(url)}: Redis does not let the hub's user "
                f"ask how many replicas have what is written (NOPERM): allow it with +{right}, or "
                "set RSNOTIFY_REPLICAS=0"
            )


async def test_a_redis_behind_tls_with_a_certificate_of_the_hub_will_do(server, tmp_path):
    async with tls_before(server.port) as port:
        url = f"rediss://localhost:{port}/0{WITH_CERTIFICATE}"
        hub = RunningHub(tmp_path / "data", "--redis", url)
        async with hub, raw_channel(hub.channel()) as reader:
            await hub.publish("http://example.com/1")
            assert b"http://example.com/1" in await reader.text()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("rediss://localhost", "is not trusted (self-signed certificate in certificate chain)"),
        (f"rediss://127.0.0.1:{{port}}{TRUSTING}", "must name the host as the certificate does"),
    ],
)
async def test_what_tls_does_not_accept_is_said_at_once(server, address, said):
    async with tls_before(server.port) as port:
        host, query, rest = address.partition("?")
        host = host.format(port=port) if "{port}" in host else f"{host}:{port}"
        assert said in await problem_of(f"{host}{query}{rest}")


async def test_a_certificate_of_the_hub_that_redis_misses_is_said_at_once():
    with refusing() as port:
        problem = await problem_of(f"rediss://localhost:{port}{TRUSTING}")
    assert "wants to see a certificate of the hub: add ?ssl_certfile=FILE" in problem


@pytest.mark.parametrize(
    "url",
    [
        "rediss://localhost?ssl_ca_certs=/nowhere/ca.pem",
        f"rediss://localhost{TRUSTING}&ssl_certfile={AUTHORITY}",
        f"rediss://localhost?ssl_ca_certs={OPERATIONS}",
        "redis://localhost?colour=red",
        "redis+sentinel://localhost:26379",
        "redis+sentinel:///name",
        "redis+sentinel://localhost:port/name",
        "http://localhost",
    ],
)
async def test_an_address_that_can_never_work_is_refused_before_anything_is_dialled(url):
    assert (await problem_of(url)).startswith(f"--redis {url!r}: ")


@pytest.mark.evidence
async def test_a_password_from_a_file_opens_a_redis_for_a_hub_and_its_workers(server, tmp_path):
    (tmp_path / "password").write_text("s3cret/@\n")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "address").write_text(f"{server.url}\n")
    async with server.client() as admin:
        await admin.config_set("requirepass", "s3cret/@")
    files = {
        "redis_url_file": str(tmp_path / "address"),
        "redis_password_file": str(tmp_path / "password"),
    }
    async with RunningHub(tmp_path / "data", "--workers", "2", **files) as hub:
        await hub.publish("http://example.com/1")
    assert "s3cret" not in hub.log.read_text()
    await wait_until_usable(Address.with_password(server.url, "s3cret/@"), warn=False)
