"""`POST /api/validate`: what is wrong with a ResourceSync document, sent or named.

Anybody may send one, so one document is checked at a time, in a thread, and few may be sent or
wait meanwhile: each is in memory. A named one is fetched as a callback is called: only from
addresses that strangers may name.
"""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.access import Access
from rsnotify.errors import DETAIL_CHARACTERS, Rejected, TooMany, shown
from rsnotify.http.endpoints import JsonResponse, read_body
from rsnotify.outbound.dialler import Dialler
from rsnotify.resourcesync.change import misfit
from rsnotify.resourcesync.document_rules import Violation, check
from rsnotify.resourcesync.tables import MAX_BYTES
from rsnotify.websub.rules import checked_url

DOCUMENT_BYTES = 2 * 1024 * 1024
OTHERWISE = f"`rsnotify validate {{}}` checks documents of up to {MAX_BYTES} bytes"
WAITING = 16  # documents that come, wait, or are being checked
SHOWN = 1_000  # violations that an answer names


class DocumentAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document that the hub is to fetch."""

    url: str


class Validation:
    """Checks documents."""

    def __init__(
        self, access: Access, *, for_everybody: bool, private: bool, proxy: str | None = None
    ) -> None:
        self._access = access
        self._for_everybody = for_everybody  # whether they may name documents
        self._private = private  # whether these may be at private addresses
        self._proxy = proxy
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0

    async def validate(self, request: Request) -> Response:
        """Check a ResourceSync document that is sent, or that the admin names."""
        is_named = request.headers.get("content-type", "").startswith("application/json")
        if is_named and not self._for_everybody:
            await self._access.require_admin(request)
        violations = await self._checked(request, is_named=is_named)
        named = [_cut(each) for each in violations[:SHOWN]]
        return JsonResponse(
            {"valid": not violations, "count": len(violations), "violations": named}
        )

    async def _checked(self, request: Request, *, is_named: bool) -> Sequence[Violation]:
        if self._waiting >= WAITING:
            raise TooMany("other documents are being checked: try again in a moment")
        self._waiting += 1
        try:
            body = await _read(request)
            document = await self._fetched(body) if is_named else body
            async with self._turn:
                return await asyncio.to_thread(check, document)
        finally:
            self._waiting -= 1

    async def _fetched(self, body: bytes) -> bytes:
        url = _url(body)
        async with Dialler(
            private=self._private,
            proxy=self._proxy,
            body_bytes=DOCUMENT_BYTES,
            lines=DOCUMENT_BYTES,
        ) as dialler:
            reason = dialler.refusal(url)
            if reason is not None:
                raise Rejected(f"{url} may not be fetched: {reason}", status=403)
            answer = await dialler.get(url)
        if answer.refused:
            raise Rejected(f"{url} may not be fetched: {answer.note}", status=403)
        if answer.status != 200:
            why = f"it answered {answer.status}" if answer.status else answer.note
            raise Rejected(f"{url} cannot be fetched: {why}")
        if not answer.body:
            long = f"has more than {DOCUMENT_BYTES} bytes; {OTHERWISE.format(url)}"
            raise Rejected(f"{url} is empty, or {long}")
        return answer.body


def _cut(violation: Violation) -> Violation:
    """It repeats names of the document, which may be long."""
    path, message = shown(violation.path), shown(violation.message, DETAIL_CHARACTERS)
    return msgspec.structs.replace(violation, path=path, message=message)


def _url(body: bytes) -> str:
    try:
        url = msgspec.json.decode(body, type=DocumentAddress).url
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(f"the body does not fit: {misfit(error, DocumentAddress)}") from None
    return checked_url("url", url)


async def _read(request: Request) -> bytes:
    body = await read_body(request, DOCUMENT_BYTES, OTHERWISE.format("FILE|URL"))
    if not body:
        raise Rejected("send the document as the body of the request")
    return body
