"""Sets and tokens over HTTP, for whoever holds the admin token.

Nothing here knows how either is kept.
"""

from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access import Access
from rsnotify.core.change import Position
from rsnotify.errors import Rejected, no_such_set
from rsnotify.hub import Hub
from rsnotify.intake import json_response, read_body
from rsnotify.storage.sets import SetOptions
from rsnotify.storage.tokens import Right, Token, Tokens, new_id

BODY_BYTES = 64 * 1024
SETS_OF_A_TOKEN = 1_000
NOTE_CHARACTERS = 255

Struct = TypeVar("Struct", bound=msgspec.Struct)


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked for when a token is made."""

    sets: tuple[str, ...]
    rights: tuple[Right, ...] = ("publish",)
    note: str = ""


class Administration:
    """The sets and the tokens of a hub."""

    def __init__(self, hub: Hub, access: Access, tokens: Tokens) -> None:
        self._hub = hub
        self._access = access
        self._tokens = tokens

    async def list_sets(self, request: Request) -> Response:
        everything = self._access.is_admin(request)
        records = self._hub.sets.values()
        return json_response([record for record in records if everything or not record.private])

    async def add_set(self, request: Request) -> Response:
        self._access.require_admin(request)
        body = await read_body(request, BODY_BYTES) or b"{}"
        options = _decoded(body, SetOptions)
        record, made = await self._hub.add_set(request.path_params["set"], options)
        return json_response(record, 201 if made else 200)

    async def edit_set(self, request: Request) -> Response:
        self._access.require_admin(request)
        body = await read_body(request, BODY_BYTES)
        options = _decoded(body, SetOptions)
        named = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        chosen = {name: getattr(options, name) for name in named}
        return json_response(await self._hub.edit_set(request.path_params["set"], chosen))

    async def remove_set(self, request: Request) -> Response:
        self._access.require_admin(request)
        await self._hub.remove_set(request.path_params["set"])
        return Response(status_code=204)

    async def list_tokens(self, request: Request) -> Response:
        self._access.require_admin(request)
        return json_response(await self._tokens.all())

    async def create_token(self, request: Request) -> Response:
        self._access.require_admin(request)
        asked = _decoded(await read_body(request, BODY_BYTES), NewToken)
        self._check_sets(asked.sets)
        now = Position.parse(datetime.now(UTC).isoformat())
        token = Token(
            id=new_id(),
            sets=asked.sets,
            created=str(now),
            rights=asked.rights,
            note=asked.note[:NOTE_CHARACTERS],
        )
        secret = await self._tokens.create(token)
        return json_response(msgspec.to_builtins(token) | {"token": secret}, 201)

    async def revoke_token(self, request: Request) -> Response:
        self._access.require_admin(request)
        await self._tokens.revoke(request.path_params["token"])
        return Response(status_code=204)

    def _check_sets(self, names: tuple[str, ...]) -> None:
        if not names or len(names) > SETS_OF_A_TOKEN:
            raise Rejected(f"name 1 to {SETS_OF_A_TOKEN} sets that the token is for")
        for name in names:
            if name not in self._hub.sets:
                raise no_such_set(name)


def _decoded(body: bytes, type_: type[Struct]) -> Struct:
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.DecodeError as error:
        raise Rejected(f"the body does not fit: {error}") from None
