"""Which engines can keep a journal, and whether the operator's own Redis can: checked at the start.

Redis and Valkey are compared by the first two numbers of their versions: patches do not change
files. What is not known to be readable counts as unreadable.

What may pass by itself is waited for, for a while. Anything else ends the start at once, with one
sentence that says how to correct it.
"""

import asyncio
import logging
import re
from time import monotonic
from typing import Any, NamedTuple, Self

from rsnotify.errors import InvalidSettings, RedisRefuses, TooFewReplicas, TryAgain
from rsnotify.process.settings import Settings
from rsnotify.redis_client import Address, Client, Replicas, connect

log = logging.getLogger(__name__)


# --- versions ------------------------------------------------------------------------------------

OLDEST = {"redis": (7, 0), "valkey": (7, 2)}
OLDEST_IN_WORDS = "Redis 7.0, Valkey 7.2, or later"
LAST_SHARED = (7, 2)  # Valkey began as a copy of Redis 7.2; later Redis writes files of its own

_NAME_AND_VERSION = re.compile(r"(?is)(redis|valkey)\b.{1,10}?(\d+)\.(\d+)\.(\d+)")

PATIENCE_SECONDS = 30.0  # how long it may take to appear
AGAIN_SECONDS = 1.0


class Engine(NamedTuple):
    """Redis or Valkey, of one version."""

    name: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.name.capitalize()} {'.'.join(map(str, self.version))}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """From any text with a name and a version side by side; None where there are none.

        >>> str(Engine.parse("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0"))
        'Redis 7.0.15'
        >>> str(Engine.parse("valkey 9.1.2"))
        'Valkey 9.1.2'
        """
        found = _NAME_AND_VERSION.search(text)
        if found is None:
            return None
        name, *numbers = found.groups()
        major, minor, patch = map(int, numbers)
        return cls(name.lower(), (major, minor, patch))

    @property
    def series(self) -> tuple[int, int]:
        """The part of the version by which files and commands differ."""
        return self.version[:2]

    @property
    def is_new_enough(self) -> bool:
        return self.series >= OLDEST[self.name]

    def reads(self, data: Self) -> bool:
        """Whether it can go on with the files that `data` has written."""
        if self.name == data.name:
            return self.series >= data.series
        return self.name == "valkey" and data.series <= LAST_SHARED


# --- the operator's Redis ------------------------------------------------------------------------


NOT_ALONE = {
    "cluster": "is a node of a Redis Cluster: write redis+cluster://host:port,host:port",
    "sentinel": "is a Sentinel, which keeps no data: write redis+sentinel://host,host/name",
}
NOBODY_CONFIRMS = (
    "RSNOTIFY_REPLICAS=0: no replica confirms what is published, so a failover loses what had not "
    "been copied, even if it was answered 201. Leave RSNOTIFY_REPLICAS out to prevent that."
)


def replicas_of(settings: Settings, url: str) -> Replicas:
    """Which replicas confirm what the hub writes. Where a replica may take over, one does."""
    count = settings.replicas
    if count is None:
        count = int(Address.parse(url).fails_over)
    return Replicas(count, on_disk=settings.replicas_confirm == "disk")


async def wait_until_usable(url: str, *, warn: bool, replicas: Replicas | None = None) -> None:
    """Return once this Redis answers and can keep a journal; warn if it may lose of it."""
    async with connect(url, replicas=replicas) as client:
        await _wait_for_answer(client, url)
        if not warn:
            return
        wanted = replicas.count if replicas else 0
        for warning in await durability_warnings(client, wanted):
            log.warning("%s", warning)
        if Address.parse(url).fails_over and not wanted:
            log.warning("%s", NOBODY_CONFIRMS)


async def _wait_for_answer(client: Client, url: str) -> None:
    address, until = Address.without_password(url), monotonic() + PATIENCE_SECONDS
    said = ""
    while True:
        try:
            return await require_usable(client, address)
        except RedisRefuses as error:
            raise InvalidSettings(f"--redis {address}: {error.detail}") from None
        except TryAgain as error:
            if refusal := await Address.parse(url).refusal_of_tls():
                raise InvalidSettings(f"--redis {address}: {refusal}") from None
            silence = f"no Redis answers at {address}: {error.detail}"
            if monotonic() > until:
                raise InvalidSettings(silence) from None
            if silence != said:
                log.warning("%s; waiting up to %.0f s for it", silence, PATIENCE_SECONDS)
            said = silence
        await asyncio.sleep(AGAIN_SECONDS)


async def require_usable(client: Client, address: str) -> None:
    """Raise unless it is of a version and a kind that can keep a journal, and has loaded it."""
    for server in (await client.masters()).values():
        await _require_usable(server, address, is_cluster=client.is_cluster)
    try:
        await client.durably([("PING",)])
    except TooFewReplicas as error:
        if isinstance(error.why, RedisRefuses):
            raise error.why from None
        # Replicas that are away may come back: until then readers are served, publishing waits.


async def _require_usable(server: Client, address: str, *, is_cluster: bool) -> None:
    hello = await _answer(server, "HELLO")
    if isinstance(hello, TryAgain):
        raise hello
    if isinstance(hello, Exception):  # Redis knows this command from 6.0 on
        raise InvalidSettings(_too_old(address, "is too old"))
    await server.ping()
    problem = _problem(_pairs(hello), address, is_cluster=is_cluster)
    if problem:
        raise InvalidSettings(problem)
    if is_cluster:
        await _require_joined(server)


async def _require_joined(node: Client) -> None:
    """A node that has just started answers, but has no part in the Cluster for some seconds."""
    said = await node.execute_command("CLUSTER", "INFO")
    if b"cluster_state:ok" not in said:
        raise TryAgain("a part of the Redis Cluster is down")


async def _answer(server: Client, *command: str) -> Any:
    """What it says; an error is an answer too."""
    pipeline = server.pipeline(transaction=False)
    pipeline.execute_command(*command)
    (answer,) = await pipeline.execute(raise_on_error=False)
    return answer


def _pairs(answer: object) -> dict[str, str]:
    """The answer to HELLO or CONFIG GET: a list of names and values in turn."""
    assert isinstance(answer, list)  # noqa: S101
    texts = [each.decode() if isinstance(each, bytes) else str(each) for each in answer]
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


async def durability_warnings(client: Client, replicas: int) -> list[str]:
    """What this Redis would do to acknowledged changes, in plain words; empty when all is well."""
    said = []
    for each in (await client.masters()).values():
        said += [*await _file_warnings(each), *await _replica_warnings(each, replicas)]
    return list(dict.fromkeys(said))


async def _replica_warnings(server: Client, wanted: int) -> list[str]:
    if not wanted:
        return []
    answer = await _answer(server, "INFO", "replication")
    if isinstance(answer, TryAgain) and not isinstance(answer, RedisRefuses):
        raise answer
    connected = 0 if isinstance(answer, Exception) else int(answer.get("connected_slaves", 0))
    warning = None if isinstance(answer, Exception) else of_replicas(connected, wanted)
    return [warning] if warning else []


def of_replicas(connected: int, wanted: int) -> str | None:
    """What it means that so many replicas are connected where so many are to confirm.

    >>> of_replicas(2, 1)
    """
    if connected > wanted:
        return None
    if connected == wanted:
        return (
            f"Redis has no more replicas than must confirm each publish ({wanted}): while one is "
            "away, publishes are answered 503. One more replica prevents that."
        )
    return (
        f"Redis has {connected} of the {wanted} replicas that must confirm each publish: publishes "
        f"are answered 503 until the others are connected. If there are no others, set "
        f"RSNOTIFY_REPLICAS={connected}"
        + ("; a failover then loses what had not been copied." if not connected else ".")
    )


async def _file_warnings(client: Client) -> list[str]:
    config: dict[str, str] = {}
    for name in ("appendonly", "appendfsync", "maxmemory-policy"):
        answer = await _answer(client, "CONFIG", "GET", name)
        if isinstance(answer, TryAgain) and not isinstance(answer, RedisRefuses):
            raise answer
        if isinstance(answer, Exception):
            return [
                "Redis does not let us read its configuration: make sure that it has "
                "`appendonly yes` and `maxmemory-policy noeviction`."
            ]
        config |= _pairs(answer)
    warnings = []
    if config.get("appendonly") != "yes":
        warnings.append(
            "This Redis keeps no append-only file: a restart of it loses acknowledged changes, and "
            "its replicas copy the loss. Set `appendonly yes` (and `appendfsync always` against "
            "power cuts)."
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
