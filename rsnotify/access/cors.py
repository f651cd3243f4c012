"""Lets web pages of other origins read what is public, errors included.

The rule is that of the channels: all pages may read public sets and none private ones, unless the
operator has named origins. A page that may not read gets the same answer, but its browser withholds
it. Preflights are answered here. They and errors have the headers of a public set, so that neither
says whether there is a private one.
"""

from collections.abc import Collection, Mapping

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rsnotify.http.endpoints import Routes
from rsnotify.live.journals import Journals

EXPOSED = (
    "ETag, Link, Retry-After, Rsnotify-At, Rsnotify-From, Rsnotify-Until, "
    "Stream-Cursor, Stream-Next-Offset, Stream-Up-To-Date"
)
ALLOWED = "Accept, Authorization, If-Modified-Since, If-None-Match, Last-Event-ID"
METHODS = "GET, HEAD, OPTIONS"
PREFLIGHT_SECONDS = 86_400

ORIGIN = "access-control-allow-origin"
CREDENTIALS = "access-control-allow-credentials"


class Cors:
    """Lets pages of other origins read the answers of routes."""

    def __init__(
        self,
        journals: Journals,
        allowed_origins: tuple[str, ...] | None,
        cookie_origins: Collection[str] = (),
    ) -> None:
        self._journals = journals
        self._cookie_origins = cookie_origins
        self._allowed_origins = allowed_origins

    def opened(self, routes: Routes) -> Routes:
        """The same routes with CORS headers; those for GET answer preflights, too."""
        for route in routes:
            if "GET" in route.methods:
                route.methods = {*METHODS.split(", ")}
                route.app = self.around(route.app)
        return routes

    def around(self, app: ASGIApp) -> ASGIApp:
        """The same application with CORS headers."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope)

            async def send_cors(message: Message) -> None:
                if message["type"] == "http.response.start":
                    is_content = scope["method"] != "OPTIONS" and message["status"] < 400
                    is_private = is_content and self._is_private(request)
                    _add(
                        MutableHeaders(scope=message), self.headers(request, is_private=is_private)
                    )
                await send(message)

            await (_preflight if scope["method"] == "OPTIONS" else app)(scope, receive, send_cors)

        return answer

    def _is_private(self, request: Request) -> bool:
        record = self._journals.sets.get(request.path_params.get("set", ""))
        return record is not None and record.private

    def headers(self, request: Request, *, is_private: bool) -> Mapping[str, str]:
        """The headers that say who may read. What depends on the origin varies with it."""
        allowed = origins_that_read(self._allowed_origins, is_private=is_private)
        if "*" in allowed:
            return {ORIGIN: "*", "access-control-expose-headers": EXPOSED}
        origin = request.headers.get("origin")
        if origin in allowed:
            headers = {ORIGIN: origin, "access-control-expose-headers": EXPOSED, "vary": "origin"}
            return headers | ({CREDENTIALS: "true"} if origin in self._cookie_origins else {})
        return {"vary": "origin"} if allowed else {}


def origins_that_read(allowed: tuple[str, ...] | None, *, is_private: bool) -> tuple[str, ...]:
    """The origins whose pages may read a set: as the operator says, else all for a public one."""
    if allowed is None:
        return () if is_private else ("*",)
    return allowed


def _add(headers: MutableHeaders, cors: Mapping[str, str]) -> None:
    """Add these, unless the answer has them already, as an event stream does."""
    if ORIGIN in headers:
        return
    for name, value in cors.items():
        if name == "vary":
            headers.add_vary_header(value)
        else:
            headers[name] = value


async def _preflight(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {
        "allow": METHODS,
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": ALLOWED,
        "access-control-max-age": str(PREFLIGHT_SECONDS),
    }
    await Response(status_code=204, headers=headers)(scope, receive, send)
