"""Who may do what: the admin token everything, other tokens what was chosen for them.

A public set is read by anyone. A private one does not exist for those who have no token for it. A
token is compared in constant time or found by its hash; its rights are read from Redis again every
two seconds. A token in an address only opens what does no harm, is never the admin's, and is never
logged. An address that sends many wrong tokens has to wait.
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import ceil
from time import monotonic

import msgspec
from starlette.requests import HTTPConnection

from rsnotify.errors import NoSuchSet, Rejected, TokenRefused, TooMany, TryAgain
from rsnotify.journal.set_options import SetRecord
from rsnotify.registry.token_throttle import RateLimit, TokenThrottle
from rsnotify.registry.tokens import Right, Token, Tokens, token_key

TOKEN_SECONDS = 2.0
NOTE_SECONDS = 60.0  # between two notes of when a token was used
TOKENS_KNOWN = 10_000
PUBLISHES_PER_SECOND = 10_000
SECRET_CHARACTERS = 256  # ours have 47

UNKNOWN = "the token is unknown or has been revoked"
SEND = "send `Authorization: Bearer <token>`"
IN_ADDRESS = f"{UNKNOWN}; the admin token does not count in an address"

Asker = Callable[[HTTPConnection], str]


class SentToken(msgspec.Struct, frozen=True):
    """A token, and where in the request it was."""

    secret: str
    in_address: bool


def address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else ""


def origins_that_read(allowed: tuple[str, ...] | None, *, is_private: bool) -> tuple[str, ...]:
    """The origins whose pages may read a set: as the operator says, else all for a public one."""
    if allowed is None:
        return () if is_private else ("*",)
    return allowed


class Access:
    """Judges requests and WebSocket handshakes."""

    def __init__(
        self,
        tokens: Tokens,
        admin_token: str,
        asker: Asker = address_of,
        *,
        publishes_per_second: int = PUBLISHES_PER_SECOND,
    ) -> None:
        self._tokens = tokens
        self._admin_token = admin_token.encode()
        self._asker = asker
        self._throttle = TokenThrottle()
        self._publishes = RateLimit(publishes_per_second)
        self._known: dict[str, tuple[float, Token | None]] = {}
        self._noted: dict[str, float] = {}  # by id: until when its use need not be noted again

    def asker(self, connection: HTTPConnection) -> str:
        """The address that limits count."""
        return self._asker(connection)

    def is_admin(self, connection: HTTPConnection) -> bool:
        sent = _sent(connection)
        if sent is None or sent.in_address:
            return False
        return self._is_admins(self._address_to_check(connection, sent), sent)

    async def require_admin(self, connection: HTTPConnection) -> None:
        sent = _required(connection, in_address=False)
        if await self._token_of(connection, sent) is not None:
            raise Rejected("only the admin token may do this", status=403)

    async def require_known(self, connection: HTTPConnection) -> None:
        """No token is needed here, but one that is sent must be known."""
        sent = _sent(connection)
        if sent is not None:
            await self._token_of(connection, sent)

    async def told_of(
        self, connection: HTTPConnection, sets: Iterable[SetRecord]
    ) -> list[SetRecord]:
        """Those that the asker may know of: public ones, and those that the token names."""
        sent = _sent(connection)
        if sent is None:
            return [each for each in sets if not each.private]
        token = await self._token_of(connection, sent)
        if token is None:
            return list(sets)
        return [each for each in sets if not each.private or each.name in token.sets]

    async def require_token(self, connection: HTTPConnection) -> None:
        """Require any token that is known; what it may do is asked later."""
        _required(connection, in_address=False)
        await self.require_known(connection)

    async def require(
        self, connection: HTTPConnection, right: Right, set_name: str, *, in_address: bool = False
    ) -> str:
        """Require a right to the set; a token in the address counts only if the caller allows it.

        Returns the key of the token, or nothing for the admin token.
        """
        sent = _required(connection, in_address=in_address)
        token = await self._require(connection, sent, right, set_name)
        return "" if token is None else token_key(sent.secret)

    async def require_publisher(
        self, connection: HTTPConnection, set_name: str, *, in_address: bool = False
    ) -> None:
        """Require the right to publish to the set; `TooMany` if the token has done so too often."""
        sent = _required(connection, in_address=in_address)
        await self._require(connection, sent, "publish", set_name)
        self._count_publish(sent.secret)

    async def _require(
        self, connection: HTTPConnection, sent: SentToken, right: Right, set_name: str
    ) -> Token | None:
        token = await self._token_of(connection, sent)
        if token is not None and not token.may(right, set_name):
            raise _no_right(right, set_name)
        return token

    def count_publish(self, connection: HTTPConnection) -> None:
        """A request to publish, by a token that was found to be right; `TooMany` if it is one too
        many."""
        sent = _sent(connection)
        self._count_publish("" if sent is None else sent.secret)

    def _count_publish(self, secret: str) -> None:
        wait = self._publishes.seconds_to_wait(secret)
        if wait > 0:
            told = "this token has published too often; put several changes into one request"
            raise TooMany(told, retry_after_seconds=ceil(wait))

    async def require_reader(
        self, connection: HTTPConnection, name: str, record: SetRecord | None
    ) -> str:
        """Only a token reads a private set: its key, or nothing if none was needed."""
        return await self._require_for(connection, name, record, "read")

    async def require_aware(
        self, connection: HTTPConnection, name: str, record: SetRecord | None
    ) -> None:
        """Require that the peer may know of the set, whatever it may do with it."""
        await self._require_for(connection, name, record, None)

    async def _require_for(
        self, connection: HTTPConnection, name: str, record: SetRecord | None, right: Right | None
    ) -> str:
        """A private set is as one that does not exist to a peer whose token does not name it."""
        if record is not None and not record.private:
            return ""
        sent = _sent(connection)
        if sent is None:
            raise NoSuchSet(name, " that can be read without a token")
        token = await self._token_of(connection, sent)
        if token is not None and (record is None or name not in token.sets):
            raise NoSuchSet(name, " that this token is for")
        if record is None:
            raise NoSuchSet(name)
        if token is None:
            return ""
        if right is not None and not token.may(right, name):
            raise _no_right(right, name)
        return token_key(sent.secret)

    async def revoked(self, token_keys: Sequence[str]) -> set[str]:
        """The keys of these tokens that have been revoked, as Redis says now."""
        return await self._tokens.revoked(token_keys)

    def _address_to_check(self, connection: HTTPConnection, sent: SentToken) -> str:
        """The address that the token came from; `TooMany` if it may not be checked now."""
        address = self._asker(connection)
        wait = self._throttle.seconds_to_wait(address, sent.secret)
        if wait > 0:
            seconds = ceil(wait)
            told = f"too many wrong tokens came from your address; wait {seconds} s"
            raise TooMany(told, retry_after_seconds=seconds)
        return address

    def _is_admins(self, address: str, sent: SentToken) -> bool:
        if sent.in_address:
            return False
        is_admins = hmac.compare_digest(sent.secret.encode(), self._admin_token)
        if is_admins:
            self._throttle.was_right(address, sent.secret)
        return is_admins

    async def _token_of(self, connection: HTTPConnection, sent: SentToken) -> Token | None:
        """The token that was sent; None for the admin token."""
        address = self._address_to_check(connection, sent)
        if self._is_admins(address, sent):
            return None
        token = await self._find(sent.secret)
        if token is None:
            self._throttle.was_wrong(address, sent.secret)
            raise TokenRefused(IN_ADDRESS if sent.in_address else UNKNOWN)
        if token.is_expired():
            raise TokenRefused(f"the token has expired at {token.expires}")
        self._throttle.was_right(address, sent.secret)
        return token

    async def _find(self, secret: str) -> Token | None:
        """The rights of the token, as read from Redis a short time ago."""
        if self._tokens.is_revoked(secret):
            return None
        until, token = self._known.get(secret, (0.0, None))
        if monotonic() < until or len(secret) > SECRET_CHARACTERS:
            return token
        token = await self._tokens.find(secret)
        if len(self._known) >= TOKENS_KNOWN:
            self._known.clear()
        if token is not None:
            self._known[secret] = (monotonic() + TOKEN_SECONDS, token)
            await self._note_use(token)
        return token

    async def _note_use(self, token: Token) -> None:
        """Once a minute; it does not matter if it cannot be noted."""
        if monotonic() < self._noted.get(token.id, 0.0):
            return
        if len(self._noted) >= TOKENS_KNOWN:
            self._noted.clear()
        self._noted[token.id] = monotonic() + NOTE_SECONDS
        with suppress(TryAgain):
            await self._tokens.note_use(token.id)


def _no_right(right: Right, set_name: str) -> Rejected:
    return Rejected(f"the token has no right to {right} {set_name!r}", status=403)


def _sent(connection: HTTPConnection) -> SentToken | None:
    """From the header, or from the query: a browser cannot set headers for a WebSocket."""
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        secret = secret.strip()
        return SentToken(secret, in_address=False) if secret else None
    in_query = connection.query_params.get("access_token")
    return SentToken(in_query, in_address=True) if in_query else None


def _required(connection: HTTPConnection, *, in_address: bool) -> SentToken:
    sent = _sent(connection)
    if sent is None:
        raise TokenRefused(f"a token is needed: {SEND}")
    if sent.in_address and not in_address:
        raise TokenRefused(f"a token in the address is not accepted here: {SEND}")
    return sent
