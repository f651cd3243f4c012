"""The clock and the chance of this process, handed to whoever runs the world.

Imported before anything of the hub, because its modules bind `time` and `monotonic` by name. While
no world runs, both are those of the machine.
"""

import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EPOCH = 1_800_000_000.0  # when each world begins

_real = (time.time, time.monotonic, os.urandom)
_start_thread = threading.Thread.start
threads: list[str] = []  # that were to begin in a world, whoever caught the error
_monotonic: Callable[[], float] | None = None
_wall: Callable[[], float] = time.time
_chance: random.Random | None = None


def _time() -> float:
    return _real[0]() if _monotonic is None else _wall()


def _elapsed() -> float:
    return _real[1]() if _monotonic is None else _monotonic()


def _urandom(size: int) -> bytes:
    return _real[2](size) if _chance is None else _chance.randbytes(size)


def _start(thread: threading.Thread) -> None:
    """When a real thread goes on is decided by the machine, so no history could be repeated."""
    if _monotonic is not None:
        threads.append(thread.name)
        raise RuntimeError(f"{thread!r} begins in a simulated world")
    _start_thread(thread)


time.time = _time
time.monotonic = time.perf_counter = _elapsed
time.time_ns = lambda: int(_time() * 1e9)
time.monotonic_ns = lambda: int(_elapsed() * 1e9)
os.urandom = _urandom
random._urandom = _urandom
threading.Thread.start = _start

real_monotonic = _real[1]


@contextmanager
def given_by(
    monotonic: Callable[[], float], wall: Callable[[], float], seed: str
) -> Iterator[None]:
    """Let clocks and chance come from a world."""
    global _monotonic, _wall, _chance  # noqa: PLW0603
    _monotonic, _wall, _chance = monotonic, wall, random.Random(seed)
    random.seed(seed)
    try:
        yield
    finally:
        _monotonic = _chance = None


def in_order(*kinds: type) -> None:
    """Sets of these go by when each was made, not by where it lies in memory: there one more
    allocation, of a process that waited once more for a real one, would change a history."""
    numbers, count = dict[int, int](), itertools.count()

    def number(kind: type) -> None:
        make = kind.__init__

        def making(self: object, *args: object, **options: object) -> None:
            numbers[id(self)] = next(count)
            make(self, *args, **options)

        kind.__init__ = making
        kind.__hash__ = lambda self: numbers[id(self)]

    for kind in kinds:
        number(kind)
