"""Tokens: who may publish to, or read, which sets. Redis has only their SHA-256 hashes."""

import hashlib
import logging
import secrets
from collections.abc import Callable, Collection
from time import monotonic, time
from typing import Literal

import msgspec

from rsnotify.coordination import keys
from rsnotify.errors import Rejected
from rsnotify.recent import Recent
from rsnotify.redis_client import Client, Script
from rsnotify.resourcesync.change import MICROSECONDS, Position


def new_secret() -> str:
    return f"rsn_{secrets.token_urlsafe(32)}"


def id_of(secret: str) -> str:
    """Computed from the secret, so that a caller that got no answer can still revoke the token."""
    return token_key(secret)[:8]


def token_key(secret: str) -> str:
    """Identifies a token without revealing it."""
    return hashlib.sha256(secret.encode()).hexdigest()


log = logging.getLogger(__name__)

_TOKENS = Script("access/tokens.lua")


Right = Literal["publish", "read"]


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the hub keeps of a token: never the token itself."""

    id: str
    sets: tuple[str, ...]
    created: str
    rights: tuple[Right, ...] = ("publish",)
    note: str = ""
    expires: str = ""  # a datetime; empty: never

    def is_expired(self) -> bool:
        """Whether it has expired, by the clock of this machine."""
        return bool(self.expires) and Position.parse(self.expires) <= time() * MICROSECONDS

    def may(self, right: Right, set_name: str) -> bool:
        return right in self.rights and set_name in self.sets

    def key_of(self, secret: str) -> str:
        return token_key(secret)

    def names(self, set_name: str) -> bool:
        return set_name in self.sets


class Tokens:
    """The tokens in Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ended: Recent[bytes] = Recent()  # by this process
        self._revoked: Recent[None] = Recent()  # by any process, as far as the bell has said
        self.made: list[Callable[[str], None]] = []  # called with the key of each that is made

    def hear(self, act: str, key: str) -> None:
        """A process has revoked a token, or made one."""
        if act == "revoked":
            self._note_revoked(key)
        else:
            self._note_made(key)

    def _note_made(self, key: str) -> None:
        self._revoked.forget(key)
        for note in self.made:
            note(key)

    def _note_revoked(self, key: str) -> None:
        self._revoked.note(key, None, monotonic())
        self._ended.forget(key)

    def is_revoked(self, secret: str) -> bool:
        """Whether it was revoked in the last minute, also if Redis has lost that since."""
        return bool(self._revoked) and self._revoked.has(token_key(secret), monotonic())

    async def create(self, secret: str, token: Token) -> bool:
        """Keep the token's record, but not the secret; false if there is one for it already."""
        key, record = token_key(secret), msgspec.json.encode(token)
        is_new = await self._act("create", key, record)
        if is_new:
            self._note_made(key)
        return bool(is_new)

    async def find(self, secret: str) -> Token | None:
        record = await self._client.hget(keys.TOKENS, token_key(secret))
        return None if record is None else msgspec.json.decode(record, type=Token)

    async def revoked(self, token_keys: Collection[str]) -> set[str]:
        """The keys of these tokens that do not exist any more, or have expired."""
        if not token_keys:
            return set()
        asked = list(token_keys)
        records = await self._client.hmget(keys.TOKENS, asked)
        lost = self._revoked.at(monotonic())
        found = zip(asked, records, strict=True)
        return {key for key, record in found if _is_over(record) or key in lost}

    async def last_used(self) -> dict[str, str]:
        """When each token was used last, by its id, to the minute."""
        used = await self._client.hgetall(keys.TOKENS_USED)
        return {id_.decode(): str(Position(int(at))) for id_, at in used.items()}

    async def note_use(self, token_id: str) -> None:
        await self._client.hset(keys.TOKENS_USED, token_id, int(time() * MICROSECONDS))

    async def of_id(self, token_id: str) -> tuple[bytes, Token]:
        """The key and the record of a token."""
        for key, token in (await self._records()).items():
            if token.id == token_id:
                return key, token
        raise Rejected(f"there is no token {token_id!r}", status=404)

    async def end(self, token_id: str, at: Position) -> None:
        """Let the token expire at this time, if not before."""
        found, token = await self.of_id(token_id)
        key = found.decode()
        record = msgspec.json.encode(msgspec.structs.replace(token, expires=str(at)))
        if await self._act("expire", key, record):
            self._ended.note(key, record, monotonic())

    async def all(self) -> list[Token]:
        return sorted((await self._records()).values(), key=lambda token: token.created)

    async def revoke(self, token_id: str) -> None:
        found, _ = await self.of_id(token_id)
        key = found.decode()
        await self._act("revoke", key)
        await self._client.hdel(keys.TOKENS_USED, token_id)
        self._note_revoked(key)

    async def close_again(self) -> None:
        """Redis has gone back, perhaps: what was ended or revoked of late stays so. A token that is
        lost is refused."""
        now = monotonic()
        ended = [await self._act("expire", *each) for each in self._ended.at(now).items()]
        again = list(self._revoked.at(now))
        gone = await self._act("revoke", *again) if again else 0
        if any(ended) or gone:
            log.error(
                "Redis had lost changes of tokens: %d were ended again, %d were revoked again; "
                "make those again that were made in its last seconds",
                sum(ended),
                gone,
            )

    async def _act(self, act: str, *arguments: str | bytes) -> int:
        command = _TOKENS.command([keys.TOKENS], act, keys.BELL, *arguments)
        (done,) = await self._client.durably([command])
        return int(done)

    async def _records(self) -> dict[bytes, Token]:
        records = await self._client.hgetall(keys.TOKENS)
        return {key: msgspec.json.decode(record, type=Token) for key, record in records.items()}


def _is_over(record: bytes | None) -> bool:
    return record is None or msgspec.json.decode(record, type=Token).is_expired()
