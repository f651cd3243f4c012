"""Answers in JSON, and errors turned into them."""

import logging
from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response

from rsnotify.errors import INTERNAL_ERROR, PROBLEM, Rejected, TryAgain


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


log = logging.getLogger(__name__)

UNSTATED: Mapping[str, str] = {}


def problem(
    status: int, detail: str, headers: Mapping[str, str] = UNSTATED, **members: object
) -> Response:
    """An RFC 9457 problem document."""
    content = {"type": "about:blank", "status": status, "detail": detail} | members
    answer = JsonResponse(content, status, PROBLEM.encode())
    answer.headers.update(headers)
    return answer


def response_to(error: Exception, request: HTTPConnection) -> Response:
    """What the peer is told of an error in an endpoint."""
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
