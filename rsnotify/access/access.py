"""Who may do what: the admin token everything, other tokens what was chosen for them.

Anyone may read a public set. A private one does not exist for those who have no token for it. A
token is compared in constant time or found by its hash; its rights are read from Redis again every
two seconds. One that Redis does not have is not asked for again within a second, unless a token is
made meanwhile: strangers may send the same one without end. A token in an address is never the
admin's, is never logged, and counts only where a request does no harm. A JWT says itself what it
allows; its signature says who made it.
"""

import hmac
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from time import monotonic
from typing import Protocol

from starlette.requests import HTTPConnection

from rsnotify.access.bearer import Bearer, RightsOfToken
from rsnotify.access.sent_token import COOKIE, SentToken, cookie_counts, is_jwt, sent_token
from rsnotify.access.throttle import RateLimit, TokenThrottle
from rsnotify.access.tokens import Token, Tokens, token_key
from rsnotify.errors import NoSuchSet, Rejected, TokenRefused, TooMany, TryAgain
from rsnotify.sets.options import SetRecord

TOKEN_SECONDS = 2.0
UNKNOWN_SECONDS = 1.0  # for which Redis is not asked again about a token that it did not have
NOTE_SECONDS = 60.0  # between two notes of when a token was used
TOKENS_KNOWN = 10_000
PUBLISHES_PER_SECOND = 10_000
SECRET_CHARACTERS = 256  # ours have 47
TOKEN_CHARACTERS = 8 * 1024  # of whatever is sent as a token
NOT_FOUND = (0.0, None)
UNKNOWN = "the token is unknown or has been revoked"
SEND = "send `Authorization: Bearer <token>`"
IN_ADDRESS = f"{UNKNOWN}; the admin token does not count in an address"
JWT = "jwt:"
"""What the keys of JWTs begin with; those of our tokens are hexadecimal."""
ClientAddressOf = Callable[[HTTPConnection], str]
OriginOf = Callable[[HTTPConnection], str]


class JwtJudge(Protocol):
    """Says what JWTs allow, and which of them have ended."""

    async def grant(self, text: str) -> RightsOfToken: ...

    def ended(self, grant_keys: Iterable[str]) -> set[str]: ...


def peer_address(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else ""


def no_origin(_: HTTPConnection) -> str:
    return ""


class Access:
    """Judges requests and WebSocket handshakes."""

    def __init__(
        self,
        tokens: Tokens,
        admin_token: str,
        client_address: ClientAddressOf = peer_address,
        *,
        publishes_per_second: int = PUBLISHES_PER_SECOND,
        jwts: JwtJudge | None = None,
        own_origin: OriginOf = no_origin,
        allowed_origins: Collection[str] | None = None,
        token_seconds: float = TOKEN_SECONDS,
        tokens_known: int = TOKENS_KNOWN,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._tokens = tokens
        self._token_seconds = token_seconds  # for so long are the rights of a token believed
        self._clock = clock
        self._tokens_known = tokens_known
        self._admin_token = admin_token.encode()
        self.client_address = client_address
        """Finds the address of a peer, for the limits per address."""
        self._jwts = jwts
        self.own_origin = own_origin
        """Finds the hub's own origin, as the peer reaches it; empty if that is not known."""
        named = frozenset(allowed_origins or ()) - {"*", "null"}
        self.cookie_origins = frozenset() if jwts is None else named
        """Other origins whose pages may send the cookie of their visitors."""
        self._throttle = TokenThrottle(clock)
        self._publishes = RateLimit(publishes_per_second, clock)
        self._known: dict[str, tuple[float, Token]] = {}
        self._unknown: dict[str, float] = {}  # tokens that Redis does not have: until when
        tokens.made.append(self._forget_unknown)
        self._noted: dict[str, float] = {}  # by id: until when its use need not be noted again

    # --- who sent a request, and what it must have ------------------------------------------------

    async def bearer(self, connection: HTTPConnection) -> Bearer | None:
        """Who has sent the request; None if it carries no token. One that does is refused unless
        its token counts."""
        sent = self._sent(connection)
        return None if sent is None else await self._bearer(connection, sent)

    async def require_bearer(
        self, connection: HTTPConnection, *, in_address: bool = False
    ) -> Bearer:
        """Require a token that counts, whatever it may do; one in the address counts only if the
        caller allows it."""
        sent = self._sent(connection)
        if sent is None:
            raise TokenRefused(f"a token is needed: {SEND}")
        if sent.in_address and not in_address:
            raise TokenRefused(f"a token in the address is not accepted here: {SEND}")
        return await self._bearer(connection, sent)

    async def still(
        self, connection: HTTPConnection, bearer: Bearer, *, in_address: bool = False
    ) -> Bearer:
        """Who has sent it, as that is known now: after a body, which may have come for long, the
        token may be revoked. It is found anew only if it is, or was found too long ago."""
        if self._clock() < bearer.until and not self._tokens.is_revoked(bearer.secret):
            return bearer
        return await self.require_bearer(connection, in_address=in_address)

    async def require_admin(self, connection: HTTPConnection) -> None:
        if not (await self.require_bearer(connection)).is_admin:
            raise Rejected("only the admin token may do this", status=403)

    async def require_publisher(
        self, connection: HTTPConnection, set_name: str, *, in_address: bool = False
    ) -> Bearer:
        """Require the right to publish to the set; `TooMany` if the token has done so too often."""
        bearer = await self.require_bearer(connection, in_address=in_address)
        bearer.require("publish", set_name)
        self.count_publish(bearer)
        return bearer

    def count_publish(self, bearer: Bearer) -> None:
        """Count a request to publish; `TooMany` if it is one too many."""
        secret = bearer.secret
        is_long = len(secret) > SECRET_CHARACTERS
        wait = self._publishes.seconds_to_wait(token_key(secret) if is_long else secret)
        if wait > 0:
            detail = "this token has published too often; put several changes into one request"
            raise TooMany(detail, retry_after_seconds=ceil(wait))

    async def require_reader(
        self, connection: HTTPConnection, name: str, record: SetRecord | None
    ) -> str:
        """Require the right to read; the key of the token, or nothing if none was needed."""
        return await self.require_readers(connection, {name: record})

    async def require_readers(
        self, connection: HTTPConnection, sets: Mapping[str, SetRecord | None]
    ) -> str:
        """Require the right to read all of these; the key of the token, or nothing if none was
        needed."""
        bearer = await self._require_aware(connection, sets)
        if bearer is None:
            return ""
        for name in _closed(sets):
            bearer.require("read", name)
        return bearer.key

    async def require_aware(
        self, connection: HTTPConnection, name: str, record: SetRecord | None
    ) -> None:
        """Require that the peer may know of the set, whatever it may do with it."""
        await self._require_aware(connection, {name: record})

    async def _require_aware(
        self, connection: HTTPConnection, sets: Mapping[str, SetRecord | None]
    ) -> Bearer | None:
        """To a peer whose token does not name it, a private set does not exist. None if no token is
        needed for any of these: then none is looked at."""
        closed = _closed(sets)
        bearer = await self.bearer(connection) if closed else None
        for name, record in closed.items():
            if bearer is None:
                raise NoSuchSet(name, " that can be read without a token")
            if not bearer.is_admin and (record is None or not bearer.names(name)):
                raise NoSuchSet(name, " that this token is for")
            if record is None:
                raise NoSuchSet(name)
        return bearer

    # --- tokens that have ended -------------------------------------------------------------------

    async def revoked(self, token_keys: Sequence[str]) -> set[str]:
        """The keys of these tokens that have been revoked, as Redis says now."""
        return await self._tokens.revoked([key for key in token_keys if not key.startswith(JWT)])

    def ended_jwts(self, token_keys: Iterable[str]) -> set[str]:
        """The keys of JWTs that have expired, or whose signer is no longer trusted; Redis is not
        asked."""
        jwts = [key for key in token_keys if key.startswith(JWT)]
        return self._jwts.ended(jwts) if self._jwts is not None and jwts else set()

    # --- the token of a request -------------------------------------------------------------------

    def _sent(self, connection: HTTPConnection) -> SentToken | None:
        """The token of a request; that of a cookie if it is a JWT and the page may use it."""
        sent = sent_token(connection) or self._sent_in_cookie(connection)
        if sent is not None and len(sent.secret) > TOKEN_CHARACTERS:
            raise TokenRefused(f"the token has more than {TOKEN_CHARACTERS} characters")
        return sent

    def _sent_in_cookie(self, connection: HTTPConnection) -> SentToken | None:
        if self._jwts is None or COOKIE not in connection.cookies:
            return None
        headers = connection.headers
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        trusted = self.cookie_origins | {self.own_origin(connection)}
        secret = connection.cookies[COOKIE]
        method = connection.scope.get("method", "")  # a WebSocket has none
        if not is_jwt(secret) or not cookie_counts(method, origin, site, trusted):
            return None
        return SentToken(secret, in_address=False)

    async def _bearer(self, connection: HTTPConnection, sent: SentToken) -> Bearer:
        if self._jwts is not None and self._is_jwt(sent):
            until = self._clock() + self._token_seconds
            return Bearer(sent.secret, await self._jwts.grant(sent.secret), until)
        address = self._address_to_check(connection, sent)  # nobody guesses a signature
        if self._is_admins(address, sent):
            return Bearer(sent.secret, None)
        return Bearer(sent.secret, *await self._token_of(address, sent))

    async def _token_of(self, address: str, sent: SentToken) -> tuple[Token, float]:
        """The token that was sent, and until when its rights are believed."""
        until, token = await self._find(sent.secret)
        if token is None:
            self._throttle.was_wrong(address, sent.secret)
            raise TokenRefused(IN_ADDRESS if sent.in_address else UNKNOWN)
        if token.is_expired():
            raise TokenRefused(f"the token has expired at {token.expires}")
        self._throttle.was_right(address, sent.secret)
        return token, until

    def _is_jwt(self, sent: SentToken) -> bool:
        """Whether it is judged as a JWT; an admin token may have that form, too."""
        return (
            self._jwts is not None and is_jwt(sent.secret) and not self._is_admin_token(sent.secret)
        )

    def _is_admins(self, address: str, sent: SentToken) -> bool:
        if sent.in_address:
            return False
        is_admins = self._is_admin_token(sent.secret)
        if is_admins:
            self._throttle.was_right(address, sent.secret)
        return is_admins

    def _is_admin_token(self, secret: str) -> bool:
        return hmac.compare_digest(secret.encode(), self._admin_token)

    def _address_to_check(self, connection: HTTPConnection, sent: SentToken) -> str:
        """The address that the token came from; `TooMany` if it may not be checked now."""
        address = self.client_address(connection)
        wait = self._throttle.seconds_to_wait(address, sent.secret)
        if wait > 0:
            seconds = ceil(wait)
            detail = f"too many wrong tokens came from your address; wait {seconds} s"
            raise TooMany(detail, retry_after_seconds=seconds)
        return address

    async def _find(self, secret: str) -> tuple[float, Token | None]:
        """The rights of the token, as read from Redis a short time ago; and until when they are
        believed."""
        if self._tokens.is_revoked(secret) or len(secret) > SECRET_CHARACTERS:
            return NOT_FOUND
        known = self._known.get(secret, NOT_FOUND)
        if self._clock() < known[0]:
            return known
        unknown = self._unknown  # as it is before Redis is asked: a token may be made meanwhile
        if self._clock() < unknown.get(secret, 0.0):
            return NOT_FOUND
        token = await self._tokens.find(secret)
        for kept in (self._known, unknown):
            if len(kept) >= self._tokens_known:
                kept.clear()
        if token is None:
            unknown[secret] = self._clock() + UNKNOWN_SECONDS
            return NOT_FOUND
        found = self._known[secret] = (self._clock() + self._token_seconds, token)
        await self._note_use(token)
        return found

    def _forget_unknown(self, _: str) -> None:
        """A token was made, by any process: Redis may have one now that it did not have."""
        self._unknown = {}

    async def _note_use(self, token: Token) -> None:
        """Note once a minute that the token is used; it does not matter if that fails."""
        if self._clock() < self._noted.get(token.id, 0.0):
            return
        if len(self._noted) >= self._tokens_known:
            self._noted.clear()
        self._noted[token.id] = self._clock() + NOTE_SECONDS
        with suppress(TryAgain):
            await self._tokens.note_use(token.id)


def _closed(sets: Mapping[str, SetRecord | None]) -> dict[str, SetRecord | None]:
    """Those that not everybody may read; one that does not exist counts as one of them."""
    return {name: record for name, record in sets.items() if record is None or record.private}
