"""How often: an address may send wrong tokens, a token may publish.

An address that sends many wrong tokens has to wait. A token that was right from an address always
passes there. Repeating the same wrong one costs nothing, as a forgotten client does that. Memory is
bounded: what was not seen for longest is forgotten first. Right tokens are in memory anyway; wrong
ones are kept as hashes, since they may have any length, or be passwords of something else.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

KNOWN = 10_000  # keys of which something is kept

FREE_TRIES = 20  # wrong tokens that an address may send at once
SECONDS_EACH = 1.0  # after how long it may send one more
LONGEST_SECONDS = 60.0  # that it waits, however many it has sent

Mark = tuple[str, bytes]  # an address and a wrong token's hash
Key = TypeVar("Key")
Value = TypeVar("Value")


class TokenThrottle:
    """Slows down addresses that guess tokens, and no others."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._forgiven_at: OrderedDict[str, float] = OrderedDict()  # by address: its tries
        self._right: OrderedDict[tuple[str, str], None] = OrderedDict()  # an address and a token
        self._wrong: OrderedDict[Mark, None] = OrderedDict()

    def seconds_to_wait(self, address: str, secret: str) -> float:
        """Zero if the token may be checked now."""
        forgiven_at = self._forgiven_at.get(address)
        if forgiven_at is None:
            return 0.0
        if (address, secret) in self._right or _mark(address, secret) in self._wrong:
            return 0.0
        return max(0.0, forgiven_at - self._clock() - (FREE_TRIES - 1) * SECONDS_EACH)

    def was_right(self, address: str, secret: str) -> None:
        _keep(self._right, (address, secret), None)

    def was_wrong(self, address: str, secret: str) -> None:
        mark = _mark(address, secret)
        self._right.pop((address, secret), None)
        if mark not in self._wrong:
            self._count(address)
        _keep(self._wrong, mark, None)

    def _count(self, address: str) -> None:
        now = self._clock()
        forgiven_at = max(self._forgiven_at.get(address, now), now) + SECONDS_EACH
        longest = (FREE_TRIES - 1) * SECONDS_EACH + LONGEST_SECONDS
        _keep(self._forgiven_at, address, min(forgiven_at, now + longest))


class RateLimit:
    """Allows so many acts in a second, for each key."""

    def __init__(self, per_second: int, clock: Callable[[], float] = monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._free_at: OrderedDict[str, float] = OrderedDict()  # when all earlier acts are forgiven

    def seconds_to_wait(self, key: str) -> float:
        """How long the act must wait; zero if it may be done now, and then it is counted."""
        now = self._clock()
        free_at = max(self._free_at.pop(key, now), now)
        wait = free_at + 1 / self._per_second - now - 1
        if wait <= 1e-9:
            free_at, wait = free_at + 1 / self._per_second, 0.0
        self._free_at[key] = free_at
        if len(self._free_at) > KNOWN:
            self._free_at.popitem(last=False)
        return wait


def _mark(address: str, secret: str) -> Mark:
    return address, hashlib.blake2b(secret.encode(), digest_size=16).digest()


def _keep(known: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    """Keep the latest; beyond the cap the oldest is removed."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > KNOWN:
        known.popitem(last=False)
