"""Sets and tokens over HTTP, for the admin."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from time import time
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.access import Access
from rsnotify.access.bearer import rights_of, visible_to
from rsnotify.access.query import RIGHTS, parse_query, parse_sets_asked, single
from rsnotify.access.tokens import Right, Token, Tokens, id_of, new_secret
from rsnotify.documents.chores import Upkeep
from rsnotify.errors import NoSuchSet, Rejected, StoreFull
from rsnotify.http.endpoints import JsonResponse, read_body
from rsnotify.live.journals import Journals
from rsnotify.operation.shared_answers import SharedAnswers
from rsnotify.resourcesync.change import DAY, MICROSECONDS, Position, misfit, problem
from rsnotify.resourcesync.change_rules import URI_CHARACTERS
from rsnotify.sets.options import ADDRESSES, CHANNEL_OPTIONS, TOPICS, SetOptions, SetRecord
from rsnotify.websub.rules import channel_of

BODY_BYTES = 64 * 1024
SETS_OF_A_TOKEN = 1_000
NOTE_CHARACTERS = 255
EXPIRES_DAYS = 3_650
GRACE_SECONDS = 31 * 24 * 3600
GRACE_DEFAULT_SECONDS = 24 * 3600  # none at all would stop whoever still uses the old token
SECRET = re.compile(r"rsn_[A-Za-z0-9_-]{43,128}")  # 32 random bytes at least
SNAPSHOT_SECONDS = 20.0
WEB_ADDRESSES = ("license", *TOPICS, *CHANNEL_OPTIONS, "channel_hub")

Struct = TypeVar("Struct", bound=msgspec.Struct)


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a token; a caller that chooses the token itself can repeat the request."""

    sets: tuple[str, ...]
    rights: tuple[Right, ...] = ("publish",)
    note: str = ""
    token: str | None = None
    expires_days: int | None = None


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to replace a token by another one with the same rights."""

    grace_seconds: int = GRACE_DEFAULT_SECONDS  # that the old one is still accepted
    token: str | None = None
    expires_days: int | None = None  # the new one; without it, it expires when the old one would


class SnapshotShown(msgspec.Struct):
    """A snapshot that was taken; only its set if that goes on."""

    set: str
    resources: int | UnsetType = UNSET
    at: str | UnsetType = UNSET
    completed: str | UnsetType = UNSET


EXAMPLES = {
    SetOptions: '{"private": false}',
    NewToken: '{"sets": ["dataset1"], "rights": ["publish"]}',
    Rotation: '{"grace_seconds": 60}',
}


class Administration:
    """The sets and the tokens of a hub."""

    def __init__(self, journals: Journals, access: Access, tokens: Tokens, upkeep: Upkeep) -> None:
        self._journals = journals
        self._access = access
        self._tokens = tokens
        self._upkeep = upkeep
        self._shared = SharedAnswers()

    async def list_sets(self, request: Request) -> Response:
        """The sets by name; private ones only for tokens that name them."""
        asked = parse_sets_asked(request.scope["query_string"])
        bearer = await self._access.bearer(request)

        async def visible() -> Sequence[SetRecord]:
            return asked.part(visible_to(bearer, asked.among(self._journals.sets)))

        if bearer is None:  # all strangers may see the same
            return await self._shared.of(request, visible)
        return JsonResponse(await visible())

    async def show_rights(self, request: Request) -> Response:
        """What the token that is sent may do with a set.

        So a page shows no form that would be refused.
        """
        name = single(parse_query(request.scope["query_string"], RIGHTS), "name") or ""
        record = self._journals.sets.get(name)
        is_private = record is None or record.private
        bearer = await self._access.bearer(request)
        return JsonResponse(rights_of(bearer, name, is_private=is_private))

    async def add_set(self, request: Request) -> Response:
        """Make a set; one that is there stays as it is."""
        await self._access.require_admin(request)
        body = await read_body(request, BODY_BYTES) or b"{}"
        options = self._checked(_decoded(body, SetOptions))
        record, made = await self._journals.add_set(request.path_params["set"], options)
        if made:
            await self._upkeep.announcements.set_made(record)
        return JsonResponse(record, 201 if made else 200)

    async def edit_set(self, request: Request) -> Response:
        """Change the options that are named."""
        await self._access.require_admin(request)
        body = await read_body(request, BODY_BYTES)
        options = self._checked(_decoded(body, SetOptions))
        named = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        chosen = {name: getattr(options, name) for name in named}
        record = await self._journals.edit_set(request.path_params["set"], chosen)
        await self._upkeep.announcements.documents_changed(record.name)
        return JsonResponse(record)

    async def remove_set(self, request: Request) -> Response:
        """Remove a set and all its changes."""
        await self._access.require_admin(request)
        name = request.path_params["set"]
        if name in self._journals.sets:  # afterwards its channel would be gone
            with suppress(StoreFull):  # to remove it is what makes room
                await self._upkeep.announcements.set_goes(self._journals.sets[name])
        await self._journals.remove_set(name)
        return Response(status_code=204)

    async def take_snapshot(self, request: Request) -> Response:
        """Write a new Resource List; 202 if that takes longer.

        Whoever may publish to the set may have it written.
        """
        name = request.path_params["set"]
        await self._access.require_publisher(request, name)
        await self._journals.learn_of(name)
        if name not in self._journals.sets:
            raise NoSuchSet(name)
        await self._journals.usage.require_room(name, self._journals.max_bytes(name))
        taking = self._upkeep.snapshots.take_requested(name)
        done, _ = await asyncio.wait({taking}, timeout=SNAPSHOT_SECONDS)
        if not done:
            return JsonResponse(SnapshotShown(name), 202)
        taken = taking.result()
        shown = SnapshotShown(name, taken.resources, str(taken.at), str(taken.completed))
        return JsonResponse(shown, 201)

    async def list_tokens(self, request: Request) -> Response:
        """The tokens, without the tokens themselves."""
        await self._access.require_admin(request)
        used = await self._tokens.last_used()
        return JsonResponse(
            [
                msgspec.to_builtins(token)
                | {"expires": token.expires or None, "used": used.get(token.id)}
                for token in await self._tokens.all()
            ]
        )

    async def create_token(self, request: Request) -> Response:
        """Make a token; 200 if the one that was chosen is there already."""
        await self._access.require_admin(request)
        asked = _decoded(await read_body(request, BODY_BYTES), NewToken)
        await self._journals.learn_of(*asked.sets)
        self._check_sets(asked.sets)
        if not asked.rights:
            raise Rejected(
                "name one right at least, `publish` or `read`: this token could do nothing"
            )
        secret = _checked_secret(asked.token)
        token = Token(
            id=id_of(secret),
            sets=asked.sets,
            created=str(Position(_now())),
            rights=asked.rights,
            note=asked.note[:NOTE_CHARACTERS],
            expires=_expiry(asked.expires_days),
        )
        return await self._made(secret, token)

    async def _made(self, secret: str, token: Token) -> Response:
        """The token, shown the only time; 200 if the same request has made it before."""
        made = await self._tokens.create(secret, token)
        kept = token if made else _same(await self._tokens.find(secret), token)
        content = msgspec.to_builtins(kept) | {"token": secret}
        return JsonResponse(content, 201 if made else 200)

    async def rotate_token(self, request: Request) -> Response:
        """Replace a token by another one with the same rights.

        The old one ends after a while, or at once.
        """
        await self._access.require_admin(request)
        asked = _decoded(await read_body(request, BODY_BYTES) or b"{}", Rotation)
        if not 0 <= asked.grace_seconds <= GRACE_SECONDS:
            raise Rejected(f"grace_seconds must be from 0 to {GRACE_SECONDS}")
        secret, id_ = _checked_secret(asked.token), request.path_params["token"]
        if id_of(secret) == id_:
            raise Rejected("token is the one to be replaced: choose another one")
        _, old = await self._tokens.of_id(id_)
        created = str(Position(_now()))
        expires = await self._expiry_of_new(old, asked)
        token = msgspec.structs.replace(old, id=id_of(secret), created=created, expires=expires)
        answer = await self._made(secret, token)
        await self._tokens.end(id_, Position(_now() + asked.grace_seconds * MICROSECONDS))
        return answer

    async def _expiry_of_new(self, old: Token, asked: Rotation) -> str:
        """The old one's, unless another is asked for; what was made before keeps its own."""
        made = None if asked.token is None else await self._tokens.find(asked.token)
        if made is not None:
            return made.expires
        if asked.expires_days is not None:
            return _expiry(asked.expires_days)
        if old.is_expired():
            raise Rejected(
                f"the token has ended at {old.expires}, so would the new one: send expires_days",
                status=409,
            )
        return old.expires

    async def revoke_token(self, request: Request) -> Response:
        """Revoke a token."""
        await self._access.require_admin(request)
        await self._tokens.revoke(request.path_params["token"])
        return Response(status_code=204)

    def _checked(self, options: SetOptions) -> SetOptions:
        for name in TOPICS:
            if channel_of(getattr(options, name) or "", [self._journals.base_url]) is not None:
                raise Rejected(f"{name}: it is the hub's own name of a channel; leave it out")
        return _checked(options)

    def _check_sets(self, names: tuple[str, ...]) -> None:
        if not names or len(names) > SETS_OF_A_TOKEN:
            raise Rejected(f"name 1 to {SETS_OF_A_TOKEN} sets that the token is for")
        for name in names:
            if name not in self._journals.sets:
                raise NoSuchSet(name)


def _now() -> int:
    return int(time() * MICROSECONDS)


def _expiry(days: int | None) -> str:
    if days is None:
        return ""
    if not 1 <= days <= EXPIRES_DAYS:
        raise Rejected(f"expires_days must be from 1 to {EXPIRES_DAYS}")
    return str(Position(_now() + days * DAY))


def _checked(options: SetOptions) -> SetOptions:
    """The options, with addresses that documents may contain."""
    for name in ADDRESSES:
        address = getattr(options, name)
        wrong = None if address is None else _wrong_address(name, address)
        if wrong is not None:
            raise Rejected(f"{name}: {wrong}")
    return options


def _wrong_address(name: str, address: str) -> str | None:
    if len(address) > URI_CHARACTERS:
        return "the address is too long"
    schemes = ("http://", "https://") + (("ws://", "wss://") if name in CHANNEL_OPTIONS else ())
    if name in WEB_ADDRESSES and not address.startswith(schemes):
        return f"{address[:80]!r} must begin with one of {' '.join(schemes)}"
    return problem("loc", address)


def _checked_secret(chosen: str | None) -> str:
    if chosen is None:
        return new_secret()
    if SECRET.fullmatch(chosen) is None:
        raise Rejected("a token is rsn_ and 43 to 128 of A-Z a-z 0-9 _ -: choose it at random")
    return chosen


def _same(kept: Token | None, asked: Token) -> Token:
    """The existing token, if it is the same as the requested one."""
    known = kept and msgspec.structs.replace(asked, created=kept.created, expires=kept.expires)
    if kept is None or known != kept or bool(kept.expires) != bool(asked.expires):
        raise Rejected("this token exists already, with other rights", status=409)
    return kept


def _decoded(body: bytes, type_: type[Struct]) -> Struct:
    if not body.strip():
        raise Rejected("the body is empty: send a JSON object")
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = f"the body does not fit: {misfit(error, type_)}; send such as {EXAMPLES[type_]}"
        raise Rejected(detail) from None
