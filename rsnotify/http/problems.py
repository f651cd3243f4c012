"""The one place that turns errors into HTTP responses."""

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response

from rsnotify.errors import INTERNAL_ERROR, PROBLEM, Rejected, TryAgain
from rsnotify.http.json_response import JsonResponse

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
