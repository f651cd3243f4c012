"""Replicas that are not known to have what was written: nobody is told that nothing was stored."""

from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import (
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)

from rsnotify.errors import TooFewReplicas
from rsnotify.storage.replicas import Replicas
from rsnotify.storage.script import Command

WRITTEN = [1, ResponseError("WRONGTYPE"), b"OK"]


async def confirmed(*answers: Any) -> list[Any]:
    """What is made of answers by a server that answers so to the `SET` and to the waiting."""

    async def ask(_: Sequence[Command]) -> list[Any]:
        return list(answers)

    confirm = Replicas(1).confirmation()
    assert confirm is not None
    return await confirm(ask, WRITTEN)


async def test_what_enough_replicas_have_is_answered_as_it_was() -> None:
    assert await confirmed(b"OK", [1, 1]) == WRITTEN


@pytest.mark.parametrize(
    "answers",
    [
        (b"OK", [1, 0]),
        (b"OK", NoPermissionError("User x has no permissions to run the 'waitaof' command")),
        (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), [1, 1]),
        (ReadOnlyError("You can't write against a read only replica."), [1, 1]),
        (MovedError("3999 127.0.0.1:6381"), [1, 1]),
    ],
)
async def test_what_they_may_not_have_may_be_stored(answers: tuple[Any, Any]) -> None:
    first, failed, last = await confirmed(*answers)
    assert failed is WRITTEN[1]
    assert isinstance(first, TooFewReplicas)
    assert first is last
    assert str(first).startswith("it may be stored, but ")
