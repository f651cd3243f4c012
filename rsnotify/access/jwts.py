"""Judges JWTs by keys that are read again and again, so that a key taken away soon ends.

The keys come only from where the operator said. While they cannot be read, the last ones count for
an hour, and then none: no token is ever let through because a key is missing.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import monotonic, time

from rsnotify.access.jwt_rules import Grant, JwtKey, UnknownKey, is_over, judge_jwt, parse_key_set
from rsnotify.access.tokens import token_key
from rsnotify.errors import TryAgain
from rsnotify.loops import repeat
from rsnotify.single_flight import SingleFlight

REFRESH_SECONDS = 60
AGAIN_SECONDS = 10.0  # until an unknown key makes the hub read the key set again
KEPT_SECONDS = 3_600.0  # that keys count while they cannot be read again
GRANTS = 10_000  # remembered, so that a signature is checked once

log = logging.getLogger(__name__)


class KeySetSource:
    """Where a key set is read; `read` raises OSError or ValueError with the reason."""

    def __init__(
        self, where: str, read: Callable[[], Awaitable[bytes]], *, is_fetched: bool
    ) -> None:
        self.where = where
        self.read = read
        self.is_fetched = is_fetched


class Jwts:
    """The keys, and what tokens signed with them allow."""

    def __init__(
        self,
        fixed: Sequence[JwtKey] = (),
        source: KeySetSource | None = None,
        *,
        audience: str | None = None,
        skew_seconds: float = 0,
        refresh_seconds: float = REFRESH_SECONDS,
        remembered: int = GRANTS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._remembered = remembered
        self._clock = clock
        self._fixed = tuple(fixed)
        self._source = source
        self._audience = audience
        self._skew_seconds = skew_seconds
        self._refresh_seconds = refresh_seconds
        self._read: tuple[JwtKey, ...] = ()
        self._key_ids = frozenset(key.id for key in self._fixed)
        self._read_at = self._tried_at = -KEPT_SECONDS
        self.failure = "they have not been read yet" if source else ""
        """Why they cannot be read; empty if they can."""
        self._reading = SingleFlight[str, None]("reading the keys of JWTs")
        self._grants: OrderedDict[str, Grant] = OrderedDict()

    @property
    def keys(self) -> tuple[JwtKey, ...]:
        """All that count now."""
        return self._fixed + self._read

    async def grant(self, text: str) -> Grant:
        """What the token allows; `TokenRefused`, or `TryAgain` if its key may be one unread."""
        name = token_key(text)
        known = self._grants.get(name)
        if known is not None and not is_over(known.key, self._key_ids, time()):
            return known
        try:
            found = self._judged(text)
        except UnknownKey:
            await self._read_soon()
            try:
                found = self._judged(text)
            except UnknownKey:
                if self.failure:
                    raise TryAgain(f"the keys of JWTs cannot be read: {self.failure}") from None
                raise
        self._grants[name] = found
        if len(self._grants) > self._remembered:
            self._grants.popitem(last=False)
        return found

    def _judged(self, text: str) -> Grant:
        audience, skew = self._audience, self._skew_seconds
        return judge_jwt(text, self.keys, audience=audience, skew_seconds=skew, now=time())

    def ended(self, grant_keys: Iterable[str]) -> set[str]:
        """Those of tokens that have expired, or whose key counts no more."""
        now = time()
        return {each for each in grant_keys if is_over(each, self._key_ids, now)}

    async def run(self) -> None:
        """Read the key set for as long as the hub runs."""
        if self._source is None:
            await asyncio.Event().wait()
        await repeat(self.refresh, self._refresh_seconds)

    async def _read_soon(self) -> None:
        """A key may be new: look, but not as often as strangers can ask."""
        if self._clock() - self._tried_at >= min(AGAIN_SECONDS, self._refresh_seconds):
            await self.refresh()

    async def refresh(self) -> None:
        """Read the key set now; all who need that wait for the same reading."""
        if self._source is not None:
            await self._reading.result(self._source.where, self._refresh)

    async def _refresh(self) -> None:
        source = self._source
        assert source is not None  # noqa: S101
        try:
            keys, left_out = parse_key_set(await source.read(), is_fetched=source.is_fetched)
        except (OSError, ValueError) as error:
            self._failed(source.where, str(error) or type(error).__name__)
            return
        finally:
            self._tried_at = self._clock()
        self._read_at, self.failure = self._clock(), ""
        if {key.id for key in keys} != {key.id for key in self._read}:
            names = ", ".join(key.kid or key.id[:8] for key in keys)
            not_used = f"; not used: {'; '.join(left_out)}" if left_out else ""
            log.info("keys of JWTs at %s: %s%s", source.where, names, not_used)
        self._use(keys)

    def _failed(self, where: str, why: str) -> None:
        if self._read and self._clock() - self._read_at > KEPT_SECONDS:
            self._use(())
        if why != self.failure:
            then = "those read before still count" if self._read else "no JWT can be judged"
            log.error("the keys of JWTs at %s cannot be read: %s; %s", where, why, then)
        self.failure = why

    def _use(self, keys: Sequence[JwtKey]) -> None:
        self._read = tuple(keys)
        self._key_ids = frozenset(key.id for key in self.keys)
