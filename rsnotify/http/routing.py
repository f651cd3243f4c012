"""Which endpoint answers a request: the first route that has its path and its method.

An error in an endpoint becomes its answer. An error in an answer that has begun is the server's,
which breaks it off.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache, partial

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from rsnotify.errors import Rejected, TryAgain
from rsnotify.http.messages import problem, response_to

PARAMETER = re.compile(r"\\{(\w+)\\}")

Endpoint = Callable[[Request], Awaitable[Response]]
SocketEndpoint = Callable[[WebSocket], Awaitable[None]]


class RequestHeaders(Headers):
    """Of a request: they never change, and several are asked for."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        self._first = dict(reversed(self._list))  # of each name

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        value = self._first.get(_raw(key))
        return default if value is None else value.decode("latin-1")


@lru_cache(maxsize=256)
def _raw(name: str) -> bytes:
    """The name of a header as it is in a scope; the hub asks for some twenty."""
    return name.lower().encode("latin-1")


class RoutedRequest(Request):
    """Its headers are an attribute; starlette tests at each use whether there are any yet."""

    headers: Headers = Headers()

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.headers = RequestHeaders(scope)


class Route:
    """What is at an address: `{name}` in its path is a parameter, one segment long."""

    def __init__(self, path: str, endpoint: Endpoint, methods: Collection[str] = ("GET",)) -> None:
        self.path = path
        self.match = pattern_of(path).fullmatch
        self.methods = {*methods, "HEAD"} if "GET" in methods else {*methods}
        self.app: ASGIApp = partial(_answer, endpoint)


class WebSocketRoute:
    """The same for WebSockets."""

    def __init__(self, path: str, endpoint: SocketEndpoint) -> None:
        self.path = path
        self.match = pattern_of(path).fullmatch
        self.app: ASGIApp = partial(_open, endpoint)


Routes = Sequence[Route | WebSocketRoute]


class Application:
    """The ASGI application with these routes; what answers where there is none is put `around`."""

    def __init__(
        self, routes: Routes, around: Callable[[ASGIApp], ASGIApp] = lambda app: app
    ) -> None:
        self.routes = routes
        self._around = around
        self._of_requests = [each for each in routes if isinstance(each, Route)]
        self._of_sockets = [each for each in routes if isinstance(each, WebSocketRoute)]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app = self._app_at(scope) or self._nothing_at(scope)
        return app(scope, receive, send)

    def _app_at(self, scope: Scope) -> ASGIApp | None:
        path = scope["path"]
        if scope["type"] == "websocket":
            for socket in self._of_sockets:
                if (match := socket.match(path)) is not None:
                    scope["path_params"] = match.groupdict()
                    return socket.app
            return None
        method = scope["method"]
        for route in self._of_requests:
            if method in route.methods and (match := route.match(path)) is not None:
                scope["path_params"] = match.groupdict()
                return route.app
        return None

    def _nothing_at(self, scope: Scope) -> ASGIApp:
        path = scope["path"]
        if scope["type"] == "websocket":
            return problem(404, f"there is no channel at {path}")
        allowed = [route.methods for route in self._of_requests if route.match(path)]
        if not allowed:
            return self._around(problem(404, f"there is nothing at {path}"))
        allow = ", ".join(sorted(set().union(*allowed)))
        detail = f"{scope['method']} is not allowed at {path}: use {allow}"
        refusal = problem(405, detail, {"Allow": allow})
        return self._around(refusal) if scope["method"] in ("GET", "HEAD") else refusal


def pattern_of(path: str) -> re.Pattern[str]:
    return re.compile(PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(path)))


async def _answer(endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
    request = RoutedRequest(scope, receive, send)
    try:
        response = await endpoint(request)
    except Exception as error:
        response = response_to(error, request)
        error.__traceback__ = None  # one error may be the answer to many
    await response(scope, receive, send)


async def _open(endpoint: SocketEndpoint, scope: Scope, receive: Receive, send: Send) -> None:
    websocket = WebSocket(scope, receive, send)
    try:
        await endpoint(websocket)
    except (Rejected, TryAgain) as error:
        response = response_to(error, websocket)
        await response(scope, receive, send)
