"""The content of messages: a posted body is read, an answer is made, an error becomes a problem."""

import logging
import zlib
from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response

from rsnotify.errors import INTERNAL_ERROR, PROBLEM, Rejected, TryAgain

GZIP = 16 + zlib.MAX_WBITS
KNOWN = ("gzip", "x-gzip")
UNSTATED: Mapping[str, str] = {}

log = logging.getLogger(__name__)


# --- a posted body, never longer than allowed ----------------------------------------------------


def decoded(body: bytes, encoding: str, most: int) -> bytes:
    """The content of a body with this `Content-Encoding`; it is never longer than `most`."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in KNOWN:
        refused = f"Content-Encoding {name[:40]!r} is not understood; send gzip, or plain"
        raise Rejected(refused, status=415, headers={"accept-encoding": "gzip"})
    return _unzipped(body, most)


def _unzipped(body: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj(GZIP)
    try:
        content = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise Rejected("the body is not gzip, as its Content-Encoding says") from None
    if len(content) > most:
        raise Rejected(f"unpacked, the body exceeds {most} bytes; post it in parts", status=413)
    if not unpacker.eof or unpacker.unused_data:
        raise Rejected("the gzip of the body is cut off, or something follows it: send one whole")
    return content


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; refused as soon as it is known to be too long."""
    if int(request.headers.get("content-length", 0)) > limit:
        raise _too_large(limit)
    parts, size, is_last = [], 0, False
    while not is_last:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part, is_last = message["body"], not message["more_body"]
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> Rejected:
    return Rejected(f"the body exceeds {limit} bytes; post the changes in parts", status=413)


# --- answers ------------------------------------------------------------------------------------


class JsonResponse(Response):
    """Its headers are made here: nothing of them has to be found out."""

    def __init__(
        self, content: object, status: int = 200, media_type: bytes = b"application/json"
    ) -> None:
        self.status_code = status
        self.background = None
        self.body = msgspec.json.encode(content)
        self.raw_headers = [
            (b"content-length", b"%d" % len(self.body)),
            (b"content-type", media_type),
        ]


def problem(
    status: int, detail: str, headers: Mapping[str, str] = UNSTATED, **members: object
) -> Response:
    """An RFC 9457 problem document."""
    content = {"type": "about:blank", "status": status, "detail": detail} | members
    answer = JsonResponse(content, status, PROBLEM.encode())
    answer.headers.update(headers)
    return answer


def response_to(error: Exception, request: HTTPConnection) -> Response:
    """What the peer gets for an error in an endpoint."""
    match error:
        case Rejected():
            members: Mapping[str, object] = {"errors": error.faults} if error.faults else {}
            return problem(error.status, error.detail, error.headers, **members)
        case TryAgain():
            after = {"retry-after": str(error.retry_after_seconds)}
            return problem(error.status, error.detail, after)
        case HTTPException():
            return problem(error.status_code, error.detail, error.headers or {})
        case ClientDisconnect():
            return Response(status_code=400)  # nobody is connected any more
    log.error("internal error while serving %s", request.url.path, exc_info=error)
    return problem(500, INTERNAL_ERROR)
