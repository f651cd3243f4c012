"""Tokens: who may publish to, or read, which sets. Redis has only their SHA-256 hashes."""

from collections.abc import Collection
from time import time
from typing import Literal

import msgspec

from rsnotify.core.token_secret import token_key
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.storage import keys
from rsnotify.storage.connection import Client

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
        """By this machine's clock."""
        return bool(self.expires) and Position.parse(self.expires) <= time() * MICROSECONDS

    def may(self, right: Right, set_name: str) -> bool:
        return right in self.rights and set_name in self.sets


class Tokens:
    """The registry of tokens in Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, secret: str, token: Token) -> bool:
        """Keep the token's record, but not the secret; false if there is one for it already."""
        record = msgspec.json.encode(token)
        command = ("HSETNX", keys.TOKENS, token_key(secret), record)
        (is_new,) = await self._client.durably([command])
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
        return {key for key, record in zip(asked, records, strict=True) if _is_over(record)}

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
        key, token = await self.of_id(token_id)
        expires = min(str(at), token.expires or str(at))
        record = msgspec.json.encode(msgspec.structs.replace(token, expires=expires))
        await self._client.durably([("HSET", keys.TOKENS, key, record)])

    async def all(self) -> list[Token]:
        return sorted((await self._records()).values(), key=lambda token: token.created)

    async def revoke(self, token_id: str) -> None:
        key, _ = await self.of_id(token_id)
        used = ("HDEL", keys.TOKENS_USED, token_id)
        await self._client.durably([("HDEL", keys.TOKENS, key), used])

    async def _records(self) -> dict[bytes, Token]:
        records = await self._client.hgetall(keys.TOKENS)
        return {key: msgspec.json.decode(record, type=Token) for key, record in records.items()}


def _is_over(record: bytes | None) -> bool:
    return record is None or msgspec.json.decode(record, type=Token).is_expired()
