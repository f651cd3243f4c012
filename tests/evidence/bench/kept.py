"""Channels measured beside an nchan that keeps each message, too: in a Redis that syncs its file.

Then both have a message on disk before they pass it on. The Redis is the one that the hub starts,
on the core of the server, whose time it counts to.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from time import sleep

from rsnotify.process.embedded_redis.binaries import find_binary
from tests.evidence.bench.channels import (
    MODULE,
    NGINX_PATH,
    ROUNDS,
    Server,
    hub,
    measure,
    nchan,
    print_one_by_one,
    raise_open_files,
    side_by_side,
)
from tests.support.redis_replicas import DURABLE
from tests.support.redis_server import RedisServer

READERS = (1, 100, 1_000)
UPSTREAM = "upstream kept {{ nchan_redis_server {url}; }}"
PASSED = "nchan_redis_pass kept;"


@contextmanager
def keeping_nchan() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        data = Path(folder)
        chosen = runner.run(find_binary(data, written_by=None))
        redis = RedisServer(data, *DURABLE, binary=chosen.path)
        runner.run(redis.start())
        try:
            with nchan(UPSTREAM.format(url=redis.url), PASSED) as server:
                server.target["pids"].append(runner.run(_process_of(redis)))
                while _is_apart(server):  # nginx answers before it has connected with Redis
                    sleep(0.05)
                yield server
        finally:
            runner.run(redis.kill())


async def _process_of(redis: RedisServer) -> int:
    async with redis.client() as client:
        return int((await client.info("server"))["process_id"])


def _is_apart(server: Server) -> bool:
    asked = HTTPConnection(server.target["host"], server.target["port"])
    with closing(asked):
        asked.request("GET", server.target["publish"])
        return asked.getresponse().status == HTTPStatus.SERVICE_UNAVAILABLE


def main(rounds: int = ROUNDS) -> None:
    if not (NGINX_PATH and MODULE.exists()):
        print("This needs nchan: Debian has it as nginx and libnginx-mod-nchan")
        return
    raise_open_files()
    servers = {"rsnotify": hub, "nchan, kept in a Redis": keeping_nchan}
    print_one_by_one(
        {each: side_by_side(servers, partial(measure, each), rounds) for each in READERS}
    )


if __name__ == "__main__":
    main()
