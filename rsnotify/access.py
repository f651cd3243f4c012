"""Who may do what: the admin everything, others what their token says.

Rules that hold here: a public set is read by anyone; a token is compared in constant time or found
by its hash; what a token may is asked of Redis again every two seconds.
"""

import hmac
from time import monotonic

from starlette.requests import HTTPConnection

from rsnotify.errors import Rejected
from rsnotify.storage.sets import SetRecord
from rsnotify.storage.tokens import Right, Token, Tokens, token_key

TOKEN_SECONDS = 2.0
TOKENS_KNOWN = 10_000
SECRET_CHARACTERS = 256  # ours have 47


class Access:
    """Judges requests and WebSocket handshakes."""

    def __init__(self, tokens: Tokens, admin_token: str) -> None:
        self._tokens = tokens
        self._admin_token = admin_token.encode()
        self._known: dict[str, tuple[float, Token | None]] = {}

    def is_admin(self, connection: HTTPConnection) -> bool:
        secret = _secret(connection)
        if not secret:
            return False
        return hmac.compare_digest(secret.encode(), self._admin_token)

    async def require_admin(self, connection: HTTPConnection) -> None:
        if not self.is_admin(connection):
            await self._token_of(connection)
            raise Rejected("only the admin token may do this", status=403)

    async def require_known(self, connection: HTTPConnection) -> None:
        """Nobody needs a token here, but one that is sent is a known one."""
        if _secret(connection) and not self.is_admin(connection):
            await self._token_of(connection)

    async def require(self, connection: HTTPConnection, right: Right, set_name: str) -> str:
        """The key of the token that gives the right; empty for the admin's."""
        if self.is_admin(connection):
            return ""
        token = await self._token_of(connection)
        if not token.may(right, set_name):
            raise Rejected(f"the token has no right to {right} {set_name!r}", status=403)
        return token_key(_required_secret(connection))

    async def require_reader(self, connection: HTTPConnection, record: SetRecord) -> str:
        """A private set is read with a token only: its key, empty if none was needed."""
        return await self.require(connection, "read", record.name) if record.private else ""

    async def _token_of(self, connection: HTTPConnection) -> Token:
        token = await self._find(_required_secret(connection))
        if token is None:
            raise Rejected("the token is not known, or was revoked", status=401)
        return token

    async def _find(self, secret: str) -> Token | None:
        """What the token may; a stranger's guesses leave no trace in our memory."""
        until, token = self._known.get(secret, (0.0, None))
        if monotonic() < until or len(secret) > SECRET_CHARACTERS:
            return token
        token = await self._tokens.find(secret)
        if len(self._known) >= TOKENS_KNOWN:
            self._known.clear()
        if token is not None:
            self._known[secret] = (monotonic() + TOKEN_SECONDS, token)
        return token


def _secret(connection: HTTPConnection) -> str | None:
    """From the header; browsers, whose WebSocket cannot set one, may use the query."""
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return secret.strip()
    return connection.query_params.get("access_token")


def _required_secret(connection: HTTPConnection) -> str:
    secret = _secret(connection)
    if not secret:
        raise Rejected("a token is needed: send `Authorization: Bearer <token>`", status=401)
    return secret
