"""Checks at the start that the operator's own Redis can keep a journal.

What may pass by itself is waited for, for a while. Anything else ends the start at once, with one
sentence that says how to correct it.
"""

import asyncio
import logging
from time import monotonic

from redis.exceptions import ResponseError

from rsnotify.errors import InvalidSettings, RedisRefuses, TooFewReplicas, TryAgain
from rsnotify.redis_client.address import parse_address, tls_context, without_password
from rsnotify.redis_client.connection import Client, connect
from rsnotify.redis_client.engine import OLDEST_IN_WORDS, Engine
from rsnotify.redis_client.failures import judge

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0  # how long it may take to appear
AGAIN_SECONDS = 1.0
LISTEN_SECONDS = 1.0

NOT_ALONE = {
    "cluster": "is a node of a Redis Cluster: write redis+cluster://host:port,host:port",
    "sentinel": "is a Sentinel, which keeps no data: write redis+sentinel://host,host/name",
}


async def wait_until_usable(url: str, *, warn: bool, replicas: int = 0) -> None:
    """Return once this Redis answers and can keep a journal; warn if it may lose of it."""
    async with connect(url, replicas=replicas) as client:
        await _answer(client, url)
        for warning in await durability_warnings(client) if warn else ():
            log.warning("%s", warning)


async def _answer(client: Client, url: str) -> None:
    address, until = without_password(url), monotonic() + PATIENCE_SECONDS
    said = ""
    while True:
        try:
            return await require_usable(client, address)
        except RedisRefuses as error:
            raise InvalidSettings([f"--redis {address}: {error.detail}"]) from None
        except TryAgain as error:
            if refusal := await _refusal_of_tls(url):
                raise InvalidSettings([f"--redis {address}: {refusal}"]) from None
            silence = f"no Redis answers at {address}: {error.detail}"
            if monotonic() > until:
                raise InvalidSettings([silence]) from None
            if silence != said:
                log.warning("%s; waiting up to %.0f s for it", silence, PATIENCE_SECONDS)
            said = silence
        await asyncio.sleep(AGAIN_SECONDS)


async def _refusal_of_tls(url: str) -> str | None:
    """What the other side has against us, heard before we say anything.

    Who has begun to speak may see nothing but a lost connection.
    """
    address = parse_address(url)
    if not address.has_tls or address.sentinels or address.nodes:
        return None
    host, port, context = (
        address.options["host"],
        address.options.get("port", 6379),
        tls_context(address),
    )
    try:
        async with asyncio.timeout(LISTEN_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                await reader.read(1)
            finally:
                writer.transport.abort()
    except OSError as error:  # a timeout is one too
        judged = judge(error)
        return judged.detail if isinstance(judged, RedisRefuses) else None
    return None


async def require_usable(client: Client, address: str) -> None:
    """Raise unless it is of a version and a kind that can keep a journal, and has loaded it."""
    for server in (await client.masters()).values():
        await _require_usable(server, address, is_cluster=client.is_cluster)
    try:
        await client.durably([("PING",)])  # until its replicas are there
    except TooFewReplicas as error:
        raise error.why from None


async def _require_usable(server: Client, address: str, *, is_cluster: bool) -> None:
    try:
        hello = await server.execute_command("HELLO")
    except ResponseError:  # Redis knows this command from 6.0 on
        raise InvalidSettings([_too_old(address, "is too old")]) from None
    await server.ping()
    problem = _problem(_pairs(hello), address, is_cluster=is_cluster)
    if problem:
        raise InvalidSettings([problem])
    if is_cluster:
        await _require_joined(server)


async def _require_joined(node: Client) -> None:
    """A node that has just started answers, but has no part in the Cluster for some seconds."""
    said = await node.execute_command("CLUSTER", "INFO")
    if b"cluster_state:ok" not in said:
        raise TryAgain("a part of the Redis Cluster is down")


def _pairs(hello: object) -> dict[str, str]:
    """The answer to HELLO, which comes as a list of names and values in turn."""
    assert isinstance(hello, list)  # noqa: S101
    texts = [each.decode() if isinstance(each, bytes) else str(each) for each in hello]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _problem(hello: dict[str, str], address: str, *, is_cluster: bool = False) -> str | None:
    """Why a server that says this of itself cannot be used; None if it can."""
    not_alone = NOT_ALONE.get(hello.get("mode", ""))
    if not_alone and not is_cluster:
        return f"the server at {address} {not_alone}"
    engine = Engine.parse(f"{hello.get('server')} {hello.get('version')}")
    if engine is not None and not engine.is_new_enough:
        return _too_old(address, f"is {engine}, which is too old")
    return None


def _too_old(address: str, how_old: str) -> str:
    return (
        f"the server at {address} {how_old}: rsnotify needs {OLDEST_IN_WORDS}; update it, "
        "or leave --redis out and the hub starts one of its own"
    )


async def durability_warnings(client: Client) -> list[str]:
    """What this Redis would do to acknowledged changes, in plain words; empty when all is well."""
    said = [
        warning for each in (await client.masters()).values() for warning in await _warnings(each)
    ]
    return list(dict.fromkeys(said))


async def _warnings(client: Client) -> list[str]:
    try:
        config: dict[str, str] = {}
        for name in ("appendonly", "appendfsync", "maxmemory-policy"):
            config |= await client.config_get(name)
    except (ResponseError, RedisRefuses):
        return [
            "Redis does not let us read its configuration: make sure that it has "
            "`appendonly yes` and `maxmemory-policy noeviction`."
        ]
    warnings = []
    if config.get("appendonly") != "yes":
        warnings.append(
            "This Redis keeps no append-only file: a restart of it loses acknowledged changes. "
            "Set `appendonly yes` (and `appendfsync always` against power cuts)."
        )
    elif config.get("appendfsync") == "no":
        warnings.append(
            "This Redis never syncs its append-only file: a power cut loses acknowledged changes. "
            "Set `appendfsync always`, or `everysec` to risk one second."
        )
    if config.get("maxmemory-policy", "noeviction") != "noeviction":
        warnings.append(
            f"This Redis evicts keys when full (`{config['maxmemory-policy']}`): whole journals "
            "would vanish. Set `maxmemory-policy noeviction`."
        )
    return warnings
