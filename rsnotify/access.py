"""Who may do what: the admin everything, others what their token says.

Rules that hold here: a public set is read by anyone; a token is compared in constant time or found
by its hash; what a token may is asked of Redis again every two seconds. A token in an address opens
what its holder could do no harm with, is never the admin's, and is never logged. Whoever sends one
wrong token after the other waits before the next is looked at.
"""

import hmac
from collections.abc import Callable, Sequence
from math import ceil
from time import monotonic
from typing import NamedTuple

from starlette.requests import HTTPConnection

from rsnotify.core.token_throttle import Guesses
from rsnotify.errors import Rejected, TokenRefused, TooMany
from rsnotify.storage.sets import SetRecord
from rsnotify.storage.tokens import Right, Token, Tokens, token_key

TOKEN_SECONDS = 2.0
TOKENS_KNOWN = 10_000
SECRET_CHARACTERS = 256  # ours have 47

Asker = Callable[[HTTPConnection], str]


class Sent(NamedTuple):
    """A token as it came."""

    secret: str
    in_address: bool


def address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else ""


class Access:
    """Judges requests and WebSocket handshakes."""

    def __init__(self, tokens: Tokens, admin_token: str, asker: Asker = address_of) -> None:
        self._tokens = tokens
        self._admin_token = admin_token.encode()
        self._asker = asker
        self._guesses = Guesses()
        self._known: dict[str, tuple[float, Token | None]] = {}

    def is_admin(self, connection: HTTPConnection) -> bool:
        sent = _sent(connection)
        return sent is not None and self._is_admins(connection, sent)

    async def require_admin(self, connection: HTTPConnection) -> None:
        sent = _required(connection, in_address=False)
        if not self._is_admins(connection, sent):
            await self._token_of(connection, sent)
            raise Rejected("only the admin token may do this", status=403)

    async def require_known(self, connection: HTTPConnection) -> None:
        """Nobody needs a token here, but one that is sent is a known one."""
        sent = _sent(connection)
        if sent is not None and not self._is_admins(connection, sent):
            await self._token_of(connection, sent)

    async def require(
        self, connection: HTTPConnection, right: Right, set_name: str, *, in_address: bool = False
    ) -> str:
        """The right to the set; by a token in the address only where the caller takes one.

        What comes back is the key of the token that gives it; nothing for the admin's.
        """
        sent = _required(connection, in_address=in_address)
        if self._is_admins(connection, sent):
            return ""
        token = await self._token_of(connection, sent)
        if not token.may(right, set_name):
            raise Rejected(f"the token has no right to {right} {set_name!r}", status=403)
        return token_key(sent.secret)

    async def require_reader(self, connection: HTTPConnection, record: SetRecord) -> str:
        """A private set is read with a token only: its key, or nothing if none was needed."""
        if not record.private:
            return ""
        return await self.require(connection, "read", record.name, in_address=True)

    async def revoked(self, token_keys: Sequence[str]) -> set[str]:
        """Those of the tokens with these keys that are no more, whatever was known before."""
        return await self._tokens.revoked(token_keys)

    def _is_admins(self, connection: HTTPConnection, sent: Sent) -> bool:
        if sent.in_address:
            return False
        address = self._asker(connection)
        self._check_patience(address, sent.secret)
        is_admins = hmac.compare_digest(sent.secret.encode(), self._admin_token)
        if is_admins:
            self._guesses.was_right(address, sent.secret)
        return is_admins

    def _check_patience(self, address: str, secret: str) -> None:
        wait = ceil(self._guesses.seconds_to_wait(address, secret))
        if wait > 0:
            told = f"too many wrong tokens came from your address; wait {wait} s"
            raise TooMany(told, retry_after_seconds=wait)

    async def _token_of(self, connection: HTTPConnection, sent: Sent) -> Token:
        address = self._asker(connection)
        self._check_patience(address, sent.secret)
        token = await self._find(sent.secret)
        if token is None:
            self._guesses.was_wrong(address, sent.secret)
            raise TokenRefused("the token is unknown or has been revoked")
        self._guesses.was_right(address, sent.secret)
        return token

    async def _find(self, secret: str) -> Token | None:
        """What the token may, as asked of Redis lately."""
        until, token = self._known.get(secret, (0.0, None))
        if monotonic() < until or len(secret) > SECRET_CHARACTERS:
            return token
        token = await self._tokens.find(secret)
        if len(self._known) >= TOKENS_KNOWN:
            self._known.clear()
        if token is not None:
            self._known[secret] = (monotonic() + TOKEN_SECONDS, token)
        return token


def _sent(connection: HTTPConnection) -> Sent | None:
    """From the header; who cannot set one, as a browser for its WebSocket, may use the query."""
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return Sent(secret.strip(), in_address=False) if secret.strip() else None
    in_query = connection.query_params.get("access_token")
    return Sent(in_query, in_address=True) if in_query else None


def _required(connection: HTTPConnection, *, in_address: bool) -> Sent:
    sent = _sent(connection)
    if sent is None:
        raise TokenRefused("a token is needed: send `Authorization: Bearer <token>`")
    if sent.in_address and not in_address:
        raise TokenRefused(
            "a token in the address is not accepted here: send `Authorization: Bearer <token>`"
        )
    return sent
