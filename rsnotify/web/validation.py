"""`POST /api/validate`: what is wrong with a ResourceSync document.

Anybody may ask, so one document is checked at a time, in a thread, and few may wait.
"""

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.errors import Rejected, TooMany
from rsnotify.intake.publishing import json_response, read_body
from rsnotify.resourcesync.validation.document_rules import check
from rsnotify.resourcesync.validation.entry_rules import Violation

DOCUMENT_BYTES = 2 * 1024 * 1024
WAITING = 8  # documents that wait, or are being checked
SHOWN = 1_000  # violations that an answer names


class Validation:
    """Checks documents that are sent."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0

    async def validate(self, request: Request) -> Response:
        document = await _read(request)
        if not document:
            raise Rejected("send the document as the body of the request")
        violations = await self._checked(document)
        shown = violations[:SHOWN]
        return json_response(
            {"valid": not violations, "count": len(violations), "violations": shown}
        )

    async def _checked(self, document: bytes) -> Sequence[Violation]:
        if self._waiting >= WAITING:
            raise TooMany("other documents are being checked: try again in a moment")
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(check, document)
        finally:
            self._waiting -= 1


async def _read(request: Request) -> bytes:
    try:
        return await read_body(request, DOCUMENT_BYTES)
    except Rejected as rejected:
        told = f"the document has more than {DOCUMENT_BYTES} bytes: use `rsnotify validate`"
        raise Rejected(told, status=rejected.status) from None
