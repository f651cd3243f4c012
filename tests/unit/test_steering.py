"""How connections are spread over listening sockets: what is decided, what the kernel does."""

import logging
import random
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress

import pytest

from rsnotify.process.steering import ARRIVING, Steering, weights

CONNECTIONS = 200


@pytest.mark.parametrize(
    ("connections", "found"),
    [
        ([0, 0], [ARRIVING // 2, ARRIVING // 2]),
        ([100, 100 - ARRIVING], [0, ARRIVING]),
        ([100, 100 - ARRIVING // 2], [ARRIVING // 4, 3 * ARRIVING // 4]),
        ([5, None], [ARRIVING, 0]),
        ([None, None], [1, 1]),
    ],
)
def test_who_has_fewer_connections_gets_more_of_the_next(
    connections: list[int | None], found: list[int]
) -> None:
    assert weights(connections, 0) == found


@pytest.mark.parametrize("arriving", [-500, 0, ARRIVING + 1, 10_000])
def test_what_is_expected_makes_all_even(arriving: int) -> None:
    had = [300, 310, 290]
    parts = weights(had, arriving)
    all_had = [before + part for before, part in zip(had, parts, strict=True)]
    assert max(all_had) == min(all_had)
    assert sum(parts) >= max(arriving, ARRIVING)


@pytest.fixture
def listening() -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        made: list[socket.socket] = []
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(("127.0.0.1", made[0].getsockname()[1] if made else 0))
            made.append(one)
        for one in made:
            one.listen(CONNECTIONS)
            one.setblocking(False)
        yield made


def accepted(sockets: Sequence[socket.socket]) -> list[int]:
    """How many of some new connections each gets."""
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(sockets[0].getsockname()))
        return [_accept_all(one) for one in sockets]


def _accept_all(one: socket.socket) -> int:
    number = 0
    with suppress(BlockingIOError):
        while True:
            one.accept()[0].close()
            number += 1
    return number


def test_the_kernel_follows(listening: list[socket.socket]) -> None:
    steering = Steering(listening)
    steering.look([1_000, 0, 1_000])  # they have come since the last look, and as many may again
    steering.look([1_000, 0, 1_000])
    assert accepted(listening) == [0, CONNECTIONS, 0]
    steering.look([1_000, None, 0])
    assert accepted(listening) == [0, 0, CONNECTIONS]
    steering.look([1_000, 1_000, 1_000])
    assert min(accepted(listening)) > 0
    steering.look([None, None, None])
    assert min(accepted(listening)) > 0


def test_another_system_than_linux_is_not_asked(
    listening: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    steering = Steering(listening)
    for _ in range(2):
        steering.look([1_000, 0, 1_000])
    assert min(accepted(listening)) > 0


def test_a_kernel_that_takes_no_program_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with socket.socket(socket.AF_UNIX) as other:  # has no group of sockets
        steering = Steering([other])
        steering.look([0])
        steering.look([1_000])
    assert len(caplog.records) == 1


class Simulated(Steering):
    """Steers nothing; what it would tell the kernel is known."""

    def __init__(self) -> None:
        super().__init__([])
        self.chosen: Sequence[int] = [1, 1]

    def _attach(self, steps: bytes) -> None:  # noqa: ARG002
        self.chosen = self._weights


def test_workers_stay_even_when_their_parent_is_late() -> None:
    had = {seed: had_by_workers_of_a_late_parent(seed) for seed in range(500)}
    assert {seed: each for seed, each in had.items() if max(each) > 1.5 * min(each)} == {}


def had_by_workers_of_a_late_parent(seed: int) -> list[int]:
    """400 connections, 40 between two looks; what is told is two looks old, and 20 are left out."""
    chance, steering = random.Random(seed), Simulated()
    had, told = [0, 0], [[0, 0], [0, 0]]
    late = range(late_at := chance.randrange(10), late_at + 20)
    for turn in range(10):
        if turn not in late:
            steering.look(told[0])
        for worker in chance.choices((0, 1), steering.chosen, k=40):
            had[worker] += 1
        told = [told[1], [*had]]
    return had
