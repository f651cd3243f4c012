"""What a hub's answer means: its content, or an error sorted by who can put it right.

Nothing here knows how the answer travelled, nor what was asked.
"""

from http import HTTPStatus
from typing import Any

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.retry import told_seconds

AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
LONGEST_PAUSE_SECONDS = 60
NOTHING_THERE = "there is nothing at /"
"""So begins what a hub says of a path that it does not have."""


class HubUnreachable(TryAgain):
    """No answer came from the hub's address."""

    def __init__(self, url: str, cause: str) -> None:
        question = "" if cause.endswith("?") else "; is the hub running?"
        super().__init__(f"{url} cannot be reached: {cause}{question}", retry_after_seconds=0)
        self.url, self.cause = url, cause


class NotAHub(Rejected):
    """What answered at the address is no rsnotify hub, or a proxy before it."""

    def __init__(
        self, url: str, what: str, status: int, mend: str = "is this the hub's address?"
    ) -> None:
        super().__init__(f"{url} {what}; {mend}", status=status)


class WrongToken(Rejected):
    """The token is refused, or none was given; `said` is the hub's own sentence."""

    def __init__(self, url: str, refused: Rejected) -> None:
        mend = "give a token that may publish here (`rsnotify tokens create` makes one)"
        super().__init__(f"{url}: {refused.detail}; {mend}", status=refused.status)
        self.said = refused.detail


def in_short(error: TryAgain) -> str:
    """The trouble in a line of the log."""
    if isinstance(error, HubUnreachable):
        return f"the hub {error.url} does not answer ({error.cause})"
    return f"the hub cannot do it now ({error.detail})"


def content_of(url: str, status: int, retry_after: str | None, body: bytes) -> Any:
    """The decoded content of an answer that grants; the others are raised."""
    if status < 300:
        return _decoded(url, status, body)
    problem = _problem(body)
    detail = problem.get("detail", f"the hub answered {status} {_phrase(status)}".rstrip())
    if status in AGAIN:
        raise TryAgain(detail, retry_after_seconds=_whole(retry_after))
    if "detail" not in problem:
        raise NotAHub(url, f"answered {status} {_phrase(status)}".rstrip(), status)
    raise Rejected(detail, status=status, faults=problem.get("errors", ()))


def _decoded(url: str, status: int, body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        raise NotAHub(url, f"answered {status} with something else than JSON", status) from None


def _problem(body: bytes) -> dict[str, Any]:
    try:
        problem = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""


def _whole(text: str | None) -> int:
    return told_seconds(text, LONGEST_PAUSE_SECONDS) if text and text.isdecimal() else 0
