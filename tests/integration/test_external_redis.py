"""A Redis of the operator's own that cannot be used: said at once, in one sentence."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rsnotify.errors import InvalidSettings
from rsnotify.process.embedded_redis.binaries import installed_binaries
from rsnotify.process.engine import _problem, replicas_of, wait_until_usable
from rsnotify.process.hub_process import StartedRedis, on_redis
from rsnotify.process.settings import Settings
from rsnotify.redis_client import Address, Replicas
from rsnotify.websub.subscription_store import Subscriptions
from tests.support.redis_replicas import knows_files
from tests.support.redis_sentinels import watched
from tests.support.redis_server import RedisServer
from tests.support.running import RunningHub, until
from tests.support.stream_server import StreamServer

CERTIFICATE = Path(__file__).parents[1] / "support/certificate.pem"
ADDRESS = "redis://localhost"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with RedisServer(tmp_path) as started:
        yield started


async def problem_of(url: str, *, replicas: Replicas | None = None) -> str:
    """Why this one is refused: long before patience ends."""
    async with asyncio.timeout(10):
        with pytest.raises(InvalidSettings) as refusal:
            await wait_until_usable(url, warn=False, replicas=replicas)
    (problem,) = refusal.value.problems
    return problem


@pytest.mark.parametrize(
    ("url", "environment", "count"),
    [
        ("redis://localhost", {}, 0),
        ("unix:///redis.sock", {}, 0),
        ("redis://localhost", {"RSNOTIFY_REPLICAS": "2"}, 2),
        ("redis+sentinel://localhost/main", {}, 1),
        ("redis+sentinel://localhost/main", {"RSNOTIFY_REPLICAS": "0"}, 0),
        ("rediss+cluster://localhost:6379", {}, 1),
        ("redis+cluster://localhost:6379", {"RSNOTIFY_REPLICAS": "2"}, 2),
    ],
)
def test_where_a_replica_may_take_over_one_confirms_unless_the_operator_says_otherwise(
    url, environment, count
):
    replicas = replicas_of(Settings.from_env(environment), url)
    assert (replicas.count, replicas.on_disk) == (count, False)


async def test_what_no_server_can_confirm_is_refused_with_the_mend(tmp_path):
    for binary in await installed_binaries():
        async with RedisServer(tmp_path, binary=binary.path) as server:
            settings = Settings.from_env(
                {"RSNOTIFY_REPLICAS": "1", "RSNOTIFY_REPLICAS_CONFIRM": "disk"}
            )
            replicas = replicas_of(settings, server.url)
            if knows_files(binary):
                await wait_until_usable(server.url, warn=False, replicas=replicas)
            else:
                problem = await problem_of(server.url, replicas=replicas)
                assert problem.endswith("update it, or leave out RSNOTIFY_REPLICAS_CONFIRM=disk")


async def test_a_hub_for_which_nobody_confirms_though_a_replica_takes_over_is_named(
    tmp_path, caplog
):
    async with watched(tmp_path) as redis:
        await wait_until_usable(redis.url, warn=True, replicas=Replicas(0))
        assert any("RSNOTIFY_REPLICAS=0: no replica confirms" in said for said in caplog.messages)
        caplog.clear()
        await wait_until_usable(redis.url, warn=True, replicas=Replicas(1))
        assert [said for said in caplog.messages if "REPLICAS" in said] == []
        await wait_until_usable(redis.url, warn=True, replicas=Replicas(2))
        assert any("has no more replicas than must confirm" in said for said in caplog.messages)


async def test_a_redis_that_stands_alone_will_do(server):
    await wait_until_usable(server.url, warn=False)


async def test_a_worker_or_hub_that_was_given_a_redis_takes_nobodys_claims(client, redis_url):
    sibling = Subscriptions(client, "here:1", pending_per_host=1, pending_per_address=1)
    await sibling.claim([1])
    settings = Settings.from_env({"RSNOTIFY_REDIS_URL": redis_url})
    given = []

    async def served(redis: StartedRedis) -> None:
        given.append(redis)

    await on_redis(settings, redis_url, served, is_worker=True)
    assert given == [StartedRedis(redis_url)]
    assert await sibling.renew([1]) == [True]


async def test_a_node_of_a_cluster_is_refused(tmp_path):
    async with RedisServer(tmp_path, "--cluster-enabled", "yes") as node:
        problem = await problem_of(node.url)
    assert problem.startswith(f"the server at {node.url} is a node of a Redis Cluster")
    assert problem.endswith("write redis+cluster://host:port,host:port")


async def test_a_sentinel_is_refused(tmp_path):
    settings = tmp_path / "sentinel.conf"
    settings.touch()
    async with RedisServer(tmp_path, str(settings), "--sentinel") as sentinel:
        problem = await problem_of(sentinel.url)
    assert problem.startswith(f"the server at {sentinel.url} is a Sentinel")
    assert problem.endswith("write redis+sentinel://host,host/name")


async def test_a_hub_of_several_workers_on_a_cluster_says_so_once_and_ends_with_status_2(tmp_path):
    async with RedisServer(tmp_path, "--cluster-enabled", "yes") as node:
        hub = RunningHub(tmp_path / "data", "--redis", node.url, "--workers", "2")
        with pytest.raises(AssertionError, match="the hub did not start"):
            await hub.start()
    assert hub.process.returncode == 2
    words = " ".join(hub.log.read_text().split())
    assert words.startswith("error: the server at"), words
    assert words.count("error") == 1


@pytest.mark.parametrize(
    ("server", "version", "is_new_enough"),
    [
        ("redis", "6.2.14", False),
        ("redis", "7.0.0", True),
        ("valkey", "7.1.99", False),
        ("valkey", "7.2.0", True),
    ],
)
def test_redis_7_0_and_valkey_7_2_are_the_oldest_to_be_used(server, version, is_new_enough):
    problem = _problem({"server": server, "version": version, "mode": "standalone"}, ADDRESS)
    assert (problem is None) == is_new_enough
    if problem:
        assert f"is {server.capitalize()} {version}, which is too old: rsnotify needs" in problem
        assert "leave --redis out" in problem


async def test_a_redis_older_than_hello_is_refused(tmp_path):
    async with RedisServer(tmp_path, "--rename-command", "HELLO", "") as old:
        assert "is too old" in await problem_of(old.url)


async def test_a_wrong_password_ends_the_start(server):
    async with server.client() as client:
        await client.config_set("requirepass", "right")
    for url in (server.url, server.url.replace("//", "//:wrong@")):
        problem = await problem_of(url)
        assert problem.startswith(f"--redis {Address.without_password(url)}: ")
        assert "in its address (" in problem
        assert "wrong@" not in problem


@pytest.mark.parametrize("user", [":secret", "nobody:x"])
async def test_a_user_or_password_that_nobody_asked_for_ends_the_start(server, user):
    problem = await problem_of(server.url.replace("//", f"//{user}@"))
    assert "refuses user or password: check them in its address" in problem


async def test_a_user_that_may_do_nothing_ends_the_start(server):
    async with server.client() as client:
        await client.acl_setuser("idle", enabled=True, passwords=["+x"], commands=["-@all"])
    assert "check what he may do" in await problem_of(server.url.replace("//", "//idle:x@"))


async def test_a_certificate_that_is_not_trusted_ends_the_start():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    async with StreamServer(hang_up, ssl=context) as listener:
        port = listener.port
        problem = await problem_of(f"rediss://127.0.0.1:{port}")
    assert "the certificate of Redis is not trusted (self" in problem
    assert "add ?ssl_ca_certs=FILE" in problem


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_a_redis_that_comes_late_is_waited_for(tmp_path, caplog):
    server = RedisServer(tmp_path)
    waiting = asyncio.create_task(wait_until_usable(server.url, warn=False))

    async def is_said() -> bool:
        return "waiting up to 30 s for it" in caplog.text

    await until(is_said)
    async with server:
        await waiting


async def test_rights_taken_from_a_running_hub_are_answered_503(server, tmp_path):
    async with server.client() as admin:
        everything = {"categories": ["+@all"], "keys": ["*"], "channels": ["*"]}
        await admin.acl_setuser("hub", enabled=True, passwords=["+x"], **everything)
        url = server.url.replace("//", "//hub:x@")
        async with RunningHub(tmp_path / "data", "--redis", url) as hub:
            await admin.acl_setuser("hub", enabled=True, categories=["-@all"])
            changes = [{"loc": "http://example.com/1", "change": "updated"}]
            status, _ = await hub.ask("POST", "/api/sets/dataset1/changes", json=changes)
            assert status == 503
            await admin.acl_setuser("hub", enabled=True, categories=["+@all"])
            await hub.publish("http://example.com/1")
            assert await hub.stop() == 0
        assert "Traceback" not in hub.log.read_text()
