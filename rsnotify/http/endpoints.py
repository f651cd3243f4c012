"""Find the endpoint that answers a request, read its body, and turn its errors into answers.

The first route that has the path and the method of the request answers it. A posted body is read up
to a limit. An error in an endpoint is answered as a problem document. After an error in an answer
that has begun, the server breaks it off.
"""

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from inspect import cleandoc

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from rsnotify.errors import (
    DETAIL_CHARACTERS,
    INTERNAL_ERROR,
    PROBLEM,
    Rejected,
    TryAgain,
    shown,
)
from rsnotify.gunzip import BrokenGzip, content_within, is_gzip

UNSTATED: Mapping[str, str] = {}

log = logging.getLogger(__name__)


# --- a posted body, never longer than allowed ----------------------------------------------------


def decoded(body: bytes, encoding: str, most: int) -> bytes:
    """The content of a body with this `Content-Encoding`; it is never longer than `most`."""
    if not is_gzip(encoding):
        return body
    try:
        content = content_within(most, body)
    except BrokenGzip as error:
        raise error.of_a_body() from None
    if content is None:
        raise Rejected(f"unpacked, the body exceeds {most} bytes; post it in parts", status=413)
    return content


async def read_body(request: Request, limit: int, advice: str = "send less") -> bytes:
    """The whole body; as soon as it is too long it is refused, with advice."""
    if int(request.headers.get("content-length", 0)) > limit:
        raise _too_large(limit, advice)
    parts, size, is_last = [], 0, False
    while not is_last:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part, is_last = message["body"], not message["more_body"]
        size += len(part)
        if size > limit:
            raise _too_large(limit, advice)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int, advice: str) -> Rejected:
    return Rejected(f"the body exceeds {limit} bytes; {advice}", status=413)


# --- answers ------------------------------------------------------------------------------------


class JsonResponse(Response):
    """An answer in JSON. Its headers are made here, without starlette's detours.

    No cache keeps it: what it says depends on who asks, and a cache that is told nothing may keep
    even a 404 or a 410.
    """

    def __init__(
        self, content: object, status: int = 200, media_type: bytes = b"application/json"
    ) -> None:
        self.status_code = status
        self.background = None
        self.body = msgspec.json.encode(content)
        self.raw_headers = [
            (b"content-length", b"%d" % len(self.body)),
            (b"content-type", media_type),
            (b"cache-control", b"no-store"),
        ]


def problem(
    status: int, detail: str, headers: Mapping[str, str] = UNSTATED, **members: object
) -> Response:
    """An RFC 9457 problem document."""
    said = shown(detail, DETAIL_CHARACTERS)
    content = {"type": "about:blank", "status": status, "detail": said} | members
    answer = JsonResponse(content, status, PROBLEM.encode())
    answer.headers.update(headers)
    return answer


def response_to(error: Exception, path: str) -> Response:
    """What the peer gets for an error in an endpoint."""
    match error:
        case Rejected():
            faults = [
                each | {"message": shown(each["message"], DETAIL_CHARACTERS)}
                for each in error.faults
            ]
            members: Mapping[str, object] = {"errors": faults} if faults else {}
            return problem(error.status, error.detail, error.headers, **members)
        case TryAgain():
            after = {"retry-after": str(error.retry_after_seconds)}
            return problem(error.status, error.detail, after)
        case HTTPException():
            return problem(error.status_code, error.detail, error.headers or {})
        case ClientDisconnect():
            return Response(status_code=400)  # nobody is connected any more
    log.error("internal error while serving %s", path, exc_info=error)
    return problem(500, INTERNAL_ERROR)


# --- routes --------------------------------------------------------------------------------------

PARAMETER = re.compile(r"\\{(\w+)\\}")
SEGMENT = "[^/]+"
ONCE = (
    *("authorization", "content-length", "content-type", "host"),
    *("idempotency-key", "last-event-id", "origin"),
)
"""Fields with one value: which of two counts, a proxy before the hub might judge differently."""

Endpoint = Callable[[Request], Awaitable[Response]]
SocketEndpoint = Callable[[WebSocket], Awaitable[None]]


class RequestHeaders(Headers):
    """The headers of a request. They never change, so they are decoded once; lines of one name are
    joined, as RFC 9110 has it, but those of a field that has one value are refused."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        self._texts = {name.decode("latin-1"): text.decode("latin-1") for name, text in self._list}
        if len(self._texts) < len(self._list):
            self._texts |= _joined(self)

    def __getitem__(self, key: str) -> str:
        return self._texts[key.lower()]

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        return self._texts.get(key.lower(), default)


def _joined(headers: Headers) -> Iterator[tuple[str, str]]:
    """The fields that have several lines, each as one."""
    for name, count in Counter(headers.keys()).items():
        if count > 1 and name in ONCE:
            raise Rejected(f"the header {name.title()} is sent {count} times: send it once")
        if count > 1:
            yield name, ("; " if name == "cookie" else ", ").join(headers.getlist(name))


class RoutedRequest(Request):
    """A request whose headers are an attribute; starlette tests at each use whether they are."""

    headers: Headers = Headers()

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.headers = RequestHeaders(scope)


class RoutedSocket(WebSocket):
    """A handshake, with the headers of a request."""

    headers: Headers = Headers()

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.headers = RequestHeaders(scope)


HANDSHAKE = "(handshake)"  # in place of a method; no request can have this one


class Route:
    """An endpoint and its address: `{name}` in the path is a parameter, any one segment or one
    that this pattern has."""

    def __init__(
        self,
        path: str,
        endpoint: Endpoint,
        methods: Collection[str] = ("GET",),
        *,
        segment: str = SEGMENT,
        advice: str = "",
    ) -> None:
        self.path = path
        self.advice = advice
        """What somebody who uses another method may have meant."""
        self.summary = summary_of(endpoint)
        self.match = pattern_of(path, segment).fullmatch
        self.methods = {*methods, "HEAD"} if "GET" in methods else {*methods}
        self.app: ASGIApp = partial(_answer, endpoint)


def summary_of(endpoint: Endpoint) -> str:
    """What an endpoint says of itself first, without its full stop."""
    first, _, _ = cleandoc(endpoint.__doc__ or "").partition("\n\n")
    return " ".join(first.split()).removesuffix(".")


class WebSocketRoute:
    """An endpoint for WebSockets."""

    advice = ""

    def __init__(self, path: str, endpoint: SocketEndpoint) -> None:
        self.path = path
        self.methods = {HANDSHAKE}
        self.match = pattern_of(path).fullmatch
        self.app: ASGIApp = partial(_open, endpoint)


Routes = Sequence[Route | WebSocketRoute]


class Application:
    """The ASGI application with these routes; `around` wraps the answers where there is none."""

    def __init__(
        self, routes: Routes, around: Callable[[ASGIApp], ASGIApp] = lambda app: app
    ) -> None:
        self.routes = routes
        self._around = around

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._app_at(scope)(scope, receive, send)

    def _app_at(self, scope: Scope) -> ASGIApp:
        path = scope["path"]
        method = HANDSHAKE if scope["type"] == "websocket" else scope["method"]
        for route in self.routes:
            if method in route.methods and (match := route.match(path)) is not None:
                scope["path_params"] = match.groupdict()
                return route.app
        return self._nothing_at(path, method)

    def _nothing_at(self, path: str, method: str) -> ASGIApp:
        nothing = problem(404, f"there is nothing at {shown(path)}")
        if method == HANDSHAKE:
            return nothing
        matching = [each for each in self.routes if each.match(path)]
        allowed = set().union(*(each.methods for each in matching)) - {HANDSHAKE}
        if not allowed:
            return self._around(nothing)
        allow = ", ".join(sorted(allowed))
        advice = "".join(each.advice and f". {each.advice}" for each in matching[:1])
        detail = f"{shown(method)} is not allowed at {shown(path)}: use {allow}{advice}"
        refusal = problem(405, detail, {"Allow": allow})
        return self._around(refusal) if method in ("GET", "HEAD") else refusal


def pattern_of(path: str, segment: str = SEGMENT) -> re.Pattern[str]:
    return re.compile(PARAMETER.sub(lambda found: f"(?P<{found[1]}>{segment})", re.escape(path)))


async def _answer(endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
    try:
        response = await endpoint(RoutedRequest(scope, receive, send))
    except Exception as error:
        response = response_to(error, scope["path"])
        error.__traceback__ = None  # one error may be the answer to many
    await response(scope, receive, send)


async def _open(endpoint: SocketEndpoint, scope: Scope, receive: Receive, send: Send) -> None:
    try:
        await endpoint(RoutedSocket(scope, receive, send))
    except (Rejected, TryAgain) as error:
        response = response_to(error, scope["path"])
        await response(scope, receive, send)
