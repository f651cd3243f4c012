"""Replicas that are not known to have what was written: nobody is told that nothing was stored."""

from collections.abc import Sequence
from typing import Any

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import ResponseError

from rsnotify.errors import TooFewReplicas
from rsnotify.redis_client.client import (
    WAIT_MILLISECONDS,
    WAITED_SECONDS,
    WAITS_FOR_FILES,
    Replicas,
)
from rsnotify.redis_client.pool import Command

read = BaseParser.parse_error  # an error as the client library reads it
WRITTEN = [1, ResponseError("WRONGTYPE"), b"OK"]


async def confirmed(*answers: Any, on_disk: bool = False) -> list[Any]:
    """What is made of answers by a server that answers so to the `SET` and to the waiting."""

    async def ask(commands: Sequence[Command]) -> list[Any]:
        return list(answers)[-len(commands) :]

    confirm = Replicas(1, on_disk=on_disk).confirmation()
    assert confirm is not None
    return await confirm(ask, WRITTEN)


async def test_what_enough_replicas_have_is_answered_as_it_was():
    assert await confirmed(b"OK", 1) == WRITTEN
    assert await confirmed(b"OK", [1, 1], on_disk=True) == WRITTEN


async def test_files_are_asked_about_again_before_replicas_say_so_by_themselves():
    asked: list[list[Command]] = []

    async def ask(commands: Sequence[Command]) -> list[Any]:
        asked.append(list(commands))
        return [b"OK", [1, int(len(asked) == 3)]][-len(commands) :]

    confirm = Replicas(1, on_disk=True).confirmation("key")
    assert confirm is not None
    assert await confirm(ask, WRITTEN) == WRITTEN
    waits = [("WAITAOF", 0, 1, milliseconds) for milliseconds in WAITS_FOR_FILES[:3]]
    assert asked == [[("SET", "key", "", "EX", WAITED_SECONDS), waits[0]], [waits[1]], [waits[2]]]


def test_files_are_waited_for_as_long_as_memory_is():
    assert sum(WAITS_FOR_FILES) == WAIT_MILLISECONDS


@pytest.mark.parametrize(
    ("answers", "on_disk"),
    [
        ((b"OK", 0), False),
        ((b"OK", [1, 0]), True),
        ((b"OK", read("NOPERM User x has no permissions to run the 'wait' command")), False),
        ((b"OK", read("NOPERM User x has no permissions to run the 'waitaof' command")), True),
        ((b"OK", read("ERR unknown command 'WAITAOF', with args beginning with: ")), True),
        ((read("OOM command not allowed when used memory > 'maxmemory'."), 1), False),
        ((read("READONLY You can't write against a read only replica."), 1), False),
        ((read("MOVED 3999 127.0.0.1:6381"), [1, 1]), True),
    ],
)
async def test_what_they_may_not_have_may_be_stored(answers, on_disk):
    first, failed, last = await confirmed(*answers, on_disk=on_disk)
    assert failed is WRITTEN[1]
    assert isinstance(first, TooFewReplicas)
    assert first is last
    assert str(first).startswith("it may be stored, but ")
