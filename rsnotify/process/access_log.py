"""A line for each request, if it is turned on: who, what, the status, how long it took.

Only the path is logged: a query may hold a token. A WebSocket and an event stream are logged when
they open or are refused.
"""

import logging
from collections.abc import Callable
from time import monotonic

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rsnotify.process.log_filter import ACCESS

log = logging.getLogger(ACCESS)

STATUS_OF = {"websocket.accept": 101, "websocket.close": 403}


class AccessLog:
    """The application, with a line for each of its answers."""

    def __init__(self, app: ASGIApp, asker: Callable[[HTTPConnection], str]) -> None:
        self._app = app
        self._asker = asker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            known = STATUS_OF.get(message["type"], 0)
            status = message.get("status", known) or status
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            log.info(
                "%s %s %s %d %.1f ms",
                self._asker(HTTPConnection(scope)),
                scope.get("method", "WEBSOCKET"),
                _printable(scope["path"]),
                status,
                (monotonic() - began) * 1000,
            )


def _printable(path: str) -> str:
    """A line break in a path must not begin a line of its own."""
    return path.encode("unicode_escape").decode()[:2_048]
