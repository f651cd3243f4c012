"""Everything the hub raises on purpose, sorted by who can put it right.

`Rejected`: the peer must change what it asked. `TryAgain`: the peer may repeat it unchanged.
`InvalidSettings`: the operator must change the configuration. All else is a bug of ours.
Each carries what an edge needs to answer: HTTP status, WebSocket close code, faults one by one.
"""

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict


class Fault(TypedDict):
    """One thing wrong in a request: where it stands and how to mend it."""

    message: str
    index: NotRequired[int]
    field: NotRequired[str]


class Rejected(Exception):
    """The request is wrong and will stay wrong until the peer changes it."""

    def __init__(
        self,
        detail: str,
        *,
        status: int = 400,
        close_code: int = 1008,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.close_code = close_code
        self.faults = tuple(faults)
        self.headers = dict(headers or {})  # what else an HTTP answer shall say


class Trimmed(Exception):
    """The journal no longer holds all that follows a cursor; translated where the peer is known."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the journal begins at {first}")
        self.first = first


def no_such_set(name: str) -> Rejected:
    return Rejected(f"there is no set {name!r}", status=404, close_code=4404)


class TryAgain(Exception):
    """The hub cannot serve this now; the very same request may succeed later."""

    status = 503
    close_code = 1013

    def __init__(self, detail: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_seconds = retry_after_seconds


class Unanswered(TryAgain):
    """Nobody knows whether it was done; asked again with the same key, it is answered."""


class RedisRefuses(TryAgain):
    """Redis does not let this hub in: waiting alone does not mend that, its operator can."""


class TooMany(TryAgain):
    """The peer has asked for too much at once."""

    status = 429


class InvalidSettings(Exception):
    """The configuration cannot work; lists every problem at once."""

    exit_status = 2

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
