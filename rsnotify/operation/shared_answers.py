"""Answers that are the same for all strangers, and take a while where a hub has thousands of sets.

They are made one after the other, so that strangers wait for each other and nobody else for them.
All who ask the same while one is made get the next one together: an answer is given only to those
who had asked before it was begun, so that nobody gets what was true before the question.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.errors import TryAgain
from rsnotify.http.endpoints import JsonResponse

WAITING = 200  # strangers, for the answers of others


class SharedAnswers:
    """Makes the answers of one address."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._ticks = count(1)
        self._waiting = 0
        self._last: tuple[bytes, int, Response] | None = None

    async def of(self, request: Request, make: Callable[[], Awaitable[object]]) -> Response:
        """The answer to this request, or to one like it."""
        query, asked = request.scope["query_string"], next(self._ticks)
        if self._waiting >= WAITING:
            raise TryAgain("too many ask this at once; try again", retry_after_seconds=5)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._made(query, asked, make)
        finally:
            self._waiting -= 1

    async def _made(
        self, query: bytes, asked: int, make: Callable[[], Awaitable[object]]
    ) -> Response:
        if self._last is not None and self._last[0] == query and self._last[1] > asked:
            return _again(self._last[2])
        begun = next(self._ticks)
        answer = JsonResponse(await make())
        self._last = query, begun, answer
        await asyncio.sleep(0)  # others have a turn before the next is made
        return _again(answer)


def _again(answer: Response) -> Response:
    """Of its own headers: those who send it add some."""
    again = Response(status_code=answer.status_code)
    again.body, again.raw_headers = answer.body, list(answer.raw_headers)
    return again
