"""`POST /api/validate`: what is wrong with a ResourceSync document.

Anybody may ask, so one document is checked at a time, in a thread, and few may wait.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.errors import TooMany
from rsnotify.intake.publishing import json_response, read_body
from rsnotify.resourcesync.validation.document_rules import check

DOCUMENT_BYTES = 2 * 1024 * 1024
WAITING = 8  # documents that wait for their turn


class Validation:
    """Checks documents that are sent."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0

    async def validate(self, request: Request) -> Response:
        document = await read_body(request, DOCUMENT_BYTES)
        violations = await self._checked(document)
        return json_response({"valid": not violations, "violations": violations})
