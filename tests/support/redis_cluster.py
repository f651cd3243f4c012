"""A Redis Cluster of three masters with a replica each, quick to notice and to decide.

Not so quick that a node which waits for the processor is taken for one that has failed.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from redis.crc import key_slot

from rsnotify.coordination import keys
from rsnotify.resourcesync.notification import ChannelName
from tests.support.redis_replicas import DURABLE, QUICK
from tests.support.redis_server import RedisServer
from tests.support.running import until

MASTERS = 3
SLOTS = 16_384
OPTIONS = (
    *("--cluster-enabled", "yes", "--cluster-node-timeout", "3000"),
    *("--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no"),
    *DURABLE,
    *QUICK,
)


class RunningCluster:
    """Its six servers; the first three began as masters."""

    def __init__(self, servers: Sequence[RedisServer]) -> None:
        self.servers = servers
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in servers)

    async def say(self, server: RedisServer, *command: Any) -> Any:
        async with server.client() as client:
            return await client.execute_command(*command)

    async def id_of(self, server: RedisServer) -> str:
        return str((await self.say(server, "CLUSTER", "MYID")).decode())

    async def known_by(self, server: RedisServer) -> str:
        """Which nodes it knows, a line each."""
        return str((await self.say(server, "CLUSTER", "NODES")).decode())

    async def master_of(self, slot: int, asked: RedisServer | None = None) -> RedisServer:
        """The server that has the slot, as this one of them believes."""
        if asked is None:
            asked = self.servers[0]
        nodes: Mapping[str, Any] = await self.say(asked, "CLUSTER NODES")
        for host, node in nodes.items():
            if "master" in node["flags"] and "fail" not in node["flags"]:
                for begin, *end in node["slots"]:
                    if int(begin) <= slot <= int((end or [begin])[0]):
                        return self.at(int(host.rpartition(":")[2]))
        raise LookupError(slot)

    def at(self, port: int) -> RedisServer:
        return next(each for each in self.servers if each.port == port)

    async def master_of_set(self, name: str, asked: RedisServer | None = None) -> RedisServer:
        """Also where a node that waited for the processor is taken for one that has failed."""

        async def found() -> RedisServer | None:
            with suppress(LookupError):
                return await self.master_of(slot_of_set(name), asked)
            return None

        master: RedisServer = await until(found)
        return master

    async def begin_to_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        source_id, target_id = await self.id_of(source), await self.id_of(target)
        await self.say(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        await self.say(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)

    async def keys_in(self, slot: int, server: RedisServer) -> list[bytes]:
        found: list[bytes] = await self.say(server, "CLUSTER", "GETKEYSINSLOT", slot, 10_000)
        return found

    async def move_keys(
        self, names: Sequence[bytes], source: RedisServer, target: RedisServer
    ) -> None:
        if names:
            where = ("127.0.0.1", target.port, "", 0, 5000)
            await self.say(source, "MIGRATE", *where, "KEYS", *names)

    async def end_move(self, slot: int, target: RedisServer) -> None:
        target_id = await self.id_of(target)
        others = [each for each in self.servers if each is not target]
        for server in (target, *others):
            role = (await self.say(server, "ROLE"))[0]
            if role == b"master":
                await self.say(server, "CLUSTER", "SETSLOT", slot, "NODE", target_id)

    async def move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """As `redis-cli --cluster reshard` does it, key by key."""
        await self.begin_to_move(slot, source, target)
        while names := await self.keys_in(slot, source):
            for name in names:
                await self.move_keys([name], source, target)
        await self.end_move(slot, target)

    async def is_promoted(self, instead_of: RedisServer, slot: int) -> bool:
        """Whether all others know another master of the slot."""
        others = [each for each in self.servers if each is not instead_of]
        try:
            masters = [await self.master_of(slot, asked) for asked in others]
        except LookupError:
            return False
        return instead_of not in masters


def slot_of_set(name: str) -> int:
    return key_slot(keys.stream(ChannelName(name, "change")).encode())


@asynccontextmanager
async def cluster(folder: Path, *, binary: str | None = None) -> AsyncIterator[RunningCluster]:
    """All nodes know each other, all slots are served, all replicas follow."""
    async with AsyncExitStack() as started:
        servers = [_server(folder / f"node{number}", binary) for number in range(2 * MASTERS)]
        await asyncio.gather(*map(started.enter_async_context, servers))
        running = RunningCluster(servers)
        await _meet(running)
        yield running
        for each in servers:
            each.signal(signal.SIGCONT)


def _server(folder: Path, binary: str | None) -> RedisServer:
    folder.mkdir()
    return RedisServer(folder, *OPTIONS, binary=binary)


async def _meet(running: RunningCluster) -> None:
    """Each begins with an epoch of its own, also who will be a replica: a master that must take a
    new one, as another has the same, and is killed before all know of it, is never replaced."""
    for number, server in enumerate(running.servers[:MASTERS]):
        begin, end = SLOTS * number // MASTERS, SLOTS * (number + 1) // MASTERS - 1
        await running.say(server, "CLUSTER", "ADDSLOTSRANGE", begin, end)
    for epoch, server in enumerate(running.servers, 1):
        await running.say(server, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
    try:
        await until(lambda: _have_met(running))
    except TimeoutError:
        known = [await running.known_by(each) for each in running.servers]
        raise AssertionError("\n\n".join(known)) from None
    for master, replica in zip(running.servers[:MASTERS], running.servers[MASTERS:], strict=True):
        id_ = await running.id_of(master)
        await running.say(replica, "CLUSTER", "REPLICATE", id_)
    await until(lambda: _all_say(running, "cluster_state:ok"))
    await until(lambda: _all_follow(running))


async def _have_met(running: RunningCluster) -> bool:
    """Those that do not know each other are told again: a node that was busy for a second forgets
    whom it met. Others are not: each handshake that goes on is one more node for that time."""
    ids = [await running.id_of(each) for each in running.servers]
    known = [await running.known_by(each) for each in running.servers]
    if all(id_ in each for id_ in ids for each in known):
        return True
    first = running.servers[0]
    for server, id_, its in zip(running.servers[1:], ids[1:], known[1:], strict=True):
        if ids[0] not in its or id_ not in known[0]:
            await running.say(server, "CLUSTER", "MEET", "127.0.0.1", first.port)
    return False


async def _all_say(running: RunningCluster, line: str) -> bool:
    said = [await running.say(each, "CLUSTER", "INFO") for each in running.servers]
    return all(line in str(each) for each in said)


async def _all_follow(running: RunningCluster) -> bool:
    roles = [await running.say(each, "ROLE") for each in running.servers[MASTERS:]]
    return all(role[0] == b"slave" and role[3] == b"connected" for role in roles)
