"""Who may do what: the admin token everything, other tokens what was chosen for them.

Anyone may read a public set. A private one does not exist for those who have no token for it. A
token is compared in constant time or found by its hash; its rights are read from Redis again every
two seconds. One that Redis does not have is not asked for again within a second, unless a token is
made meanwhile: strangers may send the same one without end. A token in an address is never the
admin's, is never logged, and counts only where a request does no harm. A JWT says itself what it
allows; its signature says who made it.
"""

import hmac
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from math import ceil
from time import monotonic
from typing import Protocol

import msgspec
from starlette.requests import HTTPConnection

from rsnotify.access.sent_token import COOKIE, SentToken, cookie_counts, is_jwt, sent_token
from rsnotify.access.throttle import RateLimit, TokenThrottle
from rsnotify.access.tokens import Right, Token, Tokens, token_key
from rsnotify.errors import NoSuchSet, Rejected, TokenRefused, TooMany, TryAgain
from rsnotify.journal.set_options import SetRecord

TOKEN_SECONDS = 2.0
UNKNOWN_SECONDS = 1.0  # for which Redis is not asked again about a token that it did not have
NOTE_SECONDS = 60.0  # between two notes of when a token was used
TOKENS_KNOWN = 10_000
PUBLISHES_PER_SECOND = 10_000
SECRET_CHARACTERS = 256  # ours have 47
TOKEN_CHARACTERS = 8 * 1024  # of whatever is sent as a token
UNKNOWN = "the token is unknown or has been revoked"
SEND = "send `Authorization: Bearer <token>`"
IN_ADDRESS = f"{UNKNOWN}; the admin token does not count in an address"
JWT = "jwt:"
"""What the keys of JWTs begin with; those of our tokens are hexadecimal."""
ClientAddressOf = Callable[[HTTPConnection], str]
OriginOf = Callable[[HTTPConnection], str]


class RightsOfToken(Protocol):
    """What a token may do: one of ours, or a JWT."""

    def key_of(self, secret: str) -> str: ...

    def may(self, right: Right, set_name: str) -> bool: ...

    def names(self, set_name: str) -> bool: ...


class RightsShown(msgspec.Struct, frozen=True):
    """What a request may do with one set, and whether it comes from the admin."""

    admin: bool
    publish: bool
    read: bool


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
    ) -> None:
        self._tokens = tokens
        self._admin_token = admin_token.encode()
        self.client_address = client_address
        """Finds the address of a peer, for the limits per address."""
        self._jwts = jwts
        self.own_origin = own_origin
        """Finds the hub's own origin, as the peer reaches it; empty if that is not known."""
        named = frozenset(allowed_origins or ()) - {"*", "null"}
        self.cookie_origins = frozenset() if jwts is None else named
        """Other origins whose pages may send the cookie of their visitors."""
        self._throttle = TokenThrottle()
        self._publishes = RateLimit(publishes_per_second)
        self._known: dict[str, tuple[float, Token]] = {}
        self._unknown: dict[str, float] = {}  # tokens that Redis does not have: until when
        tokens.made.append(self._forget_unknown)
        self._noted: dict[str, float] = {}  # by id: until when its use need not be noted again

    # --- what a request must have -----------------------------------------------------------------

    async def require_reader(
        self, connection: HTTPConnection, name: str, record: SetRecord | None
    ) -> str:
        """Require the right to read; the key of the token, or nothing if none was needed."""
        return await self._require_for(connection, name, record, "read")

    async def require_publisher(
        self, connection: HTTPConnection, set_name: str, *, in_address: bool = False
    ) -> None:
        """Require the right to publish to the set; `TooMany` if the token has done so too often."""
        sent = self._required(connection, in_address=in_address)
        await self._require(connection, sent, "publish", set_name)
        self._count_publish(sent.secret)

    async def require(
        self, connection: HTTPConnection, right: Right, set_name: str, *, in_address: bool = False
    ) -> str:
        """Require a right to the set; a token in the address counts only if the caller allows it.

        Returns the key of the token, or nothing for the admin token.
        """
        sent = self._required(connection, in_address=in_address)
        token = await self._require(connection, sent, right, set_name)
        return "" if token is None else token.key_of(sent.secret)

    async def require_admin(self, connection: HTTPConnection) -> None:
        sent = self._required(connection, in_address=False)
        if await self._token_of(connection, sent) is not None:
            raise Rejected("only the admin token may do this", status=403)

    async def require_token(self, connection: HTTPConnection) -> None:
        """Require any token that is known; what it may do is asked later."""
        self._required(connection, in_address=False)
        await self.require_known(connection)

    async def require_known(self, connection: HTTPConnection) -> None:
        """No token is needed here, but one that is sent must be known."""
        sent = self._sent(connection)
        if sent is not None:
            await self._token_of(connection, sent)

    async def require_aware(
        self, connection: HTTPConnection, name: str, record: SetRecord | None
    ) -> None:
        """Require that the peer may know of the set, whatever it may do with it."""
        await self._require_for(connection, name, record, None)

    async def _require(
        self, connection: HTTPConnection, sent: SentToken, right: Right, set_name: str
    ) -> RightsOfToken | None:
        token = await self._token_of(connection, sent)
        if token is not None and not token.may(right, set_name):
            raise _no_right(right, set_name)
        return token

    async def _require_for(
        self, connection: HTTPConnection, name: str, record: SetRecord | None, right: Right | None
    ) -> str:
        """To a peer whose token does not name it, a private set does not exist."""
        if record is not None and not record.private:
            return ""
        sent = self._sent(connection)
        if sent is None:
            raise NoSuchSet(name, " that can be read without a token")
        token = await self._token_of(connection, sent)
        if token is not None and (record is None or not token.names(name)):
            raise NoSuchSet(name, " that this token is for")
        if record is None:
            raise NoSuchSet(name)
        if token is None:
            return ""
        if right is not None and not token.may(right, name):
            raise _no_right(right, name)
        return token.key_of(sent.secret)

    def count_publish(self, connection: HTTPConnection) -> None:
        """Count a request to publish whose token was found to be right; `TooMany` if it is one too
        many."""
        sent = self._sent(connection)
        self._count_publish("" if sent is None else sent.secret)

    def _count_publish(self, secret: str) -> None:
        is_long = len(secret) > SECRET_CHARACTERS
        wait = self._publishes.seconds_to_wait(token_key(secret) if is_long else secret)
        if wait > 0:
            detail = "this token has published too often; put several changes into one request"
            raise TooMany(detail, retry_after_seconds=ceil(wait))

    # --- what a request may do --------------------------------------------------------------------

    def is_stranger(self, connection: HTTPConnection) -> bool:
        """Whether no token was sent: all of them may see the same."""
        return self._sent(connection) is None

    def is_admin(self, connection: HTTPConnection) -> bool:
        sent = self._sent(connection)
        if sent is None or sent.in_address or self._is_jwt(sent):
            return False
        return self._is_admins(self._address_to_check(connection, sent), sent)

    async def rights(
        self, connection: HTTPConnection, set_name: str, *, is_private: bool
    ) -> RightsShown:
        """The rights to a set; one that does not exist is judged as a private one."""
        sent = self._sent(connection)
        token = None if sent is None else await self._token_of(connection, sent)
        is_admin = sent is not None and token is None

        def may(right: Right) -> bool:
            return is_admin or (token is not None and token.may(right, set_name))

        return RightsShown(is_admin, may("publish"), not is_private or may("read"))

    async def visible_sets(
        self, connection: HTTPConnection, sets: Iterable[SetRecord]
    ) -> list[SetRecord]:
        """Those that the client may know of: public ones, and those that the token names."""
        sent = self._sent(connection)
        if sent is None:
            return [each for each in sets if not each.private]
        token = await self._token_of(connection, sent)
        if token is None:
            return list(sets)
        return [each for each in sets if not each.private or token.names(each.name)]

    async def revoked(self, token_keys: Sequence[str]) -> set[str]:
        """The keys of these tokens that have been revoked, as Redis says now."""
        return await self._tokens.revoked([key for key in token_keys if not key.startswith(JWT)])

    def ended_jwts(self, token_keys: Iterable[str]) -> set[str]:
        """The keys of JWTs that have expired, or whose signer is no longer trusted; Redis is not
        asked."""
        jwts = [key for key in token_keys if key.startswith(JWT)]
        return self._jwts.ended(jwts) if self._jwts is not None and jwts else set()

    # --- the token of a request -------------------------------------------------------------------

    def _required(self, connection: HTTPConnection, *, in_address: bool) -> SentToken:
        sent = self._sent(connection)
        if sent is None:
            raise TokenRefused(f"a token is needed: {SEND}")
        if sent.in_address and not in_address:
            raise TokenRefused(f"a token in the address is not accepted here: {SEND}")
        return sent

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

    async def _token_of(self, connection: HTTPConnection, sent: SentToken) -> RightsOfToken | None:
        """The token that was sent; None for the admin token."""
        if self._jwts is not None and self._is_jwt(sent):
            return await self._jwts.grant(sent.secret)  # nobody guesses a signature
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

    async def _find(self, secret: str) -> Token | None:
        """The rights of the token, as read from Redis a short time ago."""
        if self._tokens.is_revoked(secret) or len(secret) > SECRET_CHARACTERS:
            return None
        until, token = self._known.get(secret, (0.0, None))
        if monotonic() < until:
            return token
        unknown = self._unknown  # as it is before Redis is asked: a token may be made meanwhile
        if monotonic() < unknown.get(secret, 0.0):
            return None
        token = await self._tokens.find(secret)
        for kept in (self._known, unknown):
            if len(kept) >= TOKENS_KNOWN:
                kept.clear()
        if token is None:
            unknown[secret] = monotonic() + UNKNOWN_SECONDS
        else:
            self._known[secret] = (monotonic() + TOKEN_SECONDS, token)
            await self._note_use(token)
        return token

    def _forget_unknown(self, _: str) -> None:
        """A token was made, by any process: Redis may have one now that it did not have."""
        self._unknown = {}

    async def _note_use(self, token: Token) -> None:
        """Note once a minute that the token is used; it does not matter if that fails."""
        if monotonic() < self._noted.get(token.id, 0.0):
            return
        if len(self._noted) >= TOKENS_KNOWN:
            self._noted.clear()
        self._noted[token.id] = monotonic() + NOTE_SECONDS
        with suppress(TryAgain):
            await self._tokens.note_use(token.id)


def _no_right(right: Right, set_name: str) -> Rejected:
    return Rejected(f"the token has no right to {right} {set_name!r}", status=403)
