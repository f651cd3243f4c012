"""The errors that the hub raises on purpose, by who can correct them.

All have one root, `Error`. `Rejected`: the peer must change its request. `TryAgain`: the peer may
repeat it unchanged. `InvalidSettings`: the operator must change the configuration. Any other
exception is a bug.
Each error carries what an answer needs: HTTP status, WebSocket close code, the single faults.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NotRequired, Self, TypedDict

PROBLEM = "application/problem+json"
"""The content type in which a hub says why it refuses a request (RFC 9457)."""

INTERNAL_ERROR = "internal error; see the hub's log"
"""All that a peer learns of a bug."""


SHOWN_CHARACTERS = 200  # of what a peer has sent, in what it is answered
DETAIL_CHARACTERS = 1_000  # of what an error says


def shown(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """The text, or its beginning: an answer repeats no more than is needed to know what is meant.

    >>> shown("abcdef", 3)
    'abc…'
    """
    return text if len(text) <= most else f"{text[:most]}…"


class CloseCode(IntEnum):
    """With which code the hub closes a WebSocket; a client reads from it whether to come back."""

    GOING_AWAY = 1001
    NOT_ALLOWED = 1008
    TOO_LARGE = 1009
    FAILED = 1011
    TRY_AGAIN = 1013
    BAD_REQUEST = 4400
    NO_SUCH_SET = 4404
    HISTORY_GONE = 4410

    @property
    def is_final(self) -> bool:
        """Whether the same request would end the same: a client changes it, or ends."""
        return self is CloseCode.NOT_ALLOWED or self >= 4400


class Fault(TypedDict):
    """One thing that is wrong in a request: where it is, and how to correct it."""

    message: str
    index: NotRequired[int]
    field: NotRequired[str]


class Error(Exception):
    """The root of what rsnotify raises on purpose: catch it, and you have caught everything."""


class Rejected(Error):
    """The request is wrong and will stay wrong until the peer changes it."""

    def __init__(
        self,
        detail: str,
        *,
        status: int = 400,
        close_code: int = CloseCode.NOT_ALLOWED,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.close_code = close_code
        self.faults = tuple(faults)
        self.headers = dict(headers or {})  # that the HTTP answer also has


class Trimmed(Exception):
    """The journal no longer holds all changes after a position; never shown to a peer as it is."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the journal begins at {first}")
        self.first = first


class NoSuchSet(Rejected):
    """The hub serves no set of this name, or no longer, or none that the peer may know of."""

    def __init__(self, name: str, which: str = "") -> None:
        super().__init__(
            f"there is no set {shown(name)!r}{which}", status=404, close_code=CloseCode.NO_SUCH_SET
        )


class HistoryDeleted(Rejected):
    """What followed the reader's position has been deleted, or lost; what is kept begins later."""

    def __init__(self, detail: str, begins: int = 0) -> None:
        super().__init__(detail, status=410, close_code=CloseCode.HISTORY_GONE)
        self.begins = begins


class TokenRefused(Rejected):
    """A token is needed, and none or a wrong one was sent."""

    def __init__(self, detail: str) -> None:
        headers = {"www-authenticate": 'Bearer realm="rsnotify"'}
        super().__init__(detail, status=401, headers=headers)


class TryAgain(Error):
    """The hub cannot do this now; the same request may succeed later."""

    status = 503
    close_code: int = CloseCode.TRY_AGAIN

    def __init__(self, detail: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_seconds = retry_after_seconds

    def saying(self, detail: str) -> Self:
        """The same error in other words."""
        error = type(self).__new__(type(self), detail)
        error.__dict__.update(self.__dict__)
        error.detail = detail
        return error


class BecamePrivate(TryAgain):
    """A set that was read without a token needs one now."""

    def __init__(self, name: str) -> None:
        super().__init__(f"set {name!r} has become private: reconnect with a token")


class Unanswered(TryAgain):
    """It is unknown whether Redis did it; repeating it with the same key shows."""


class PartAway(TryAgain):
    """A part of Redis cannot be used now: one node of a Cluster. The others can."""


class KeysMoving(PartAway):
    """A Redis Cluster hands these keys to another node; nothing was done."""


class StoreFull(TryAgain):
    """Redis has no room for more; nothing was stored."""

    status = 507


class SetFull(StoreFull):
    """A set takes as much of Redis as it may; nothing was stored."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__(
            f"the set {name!r} may take {most:,} bytes of Redis, and this does not fit: nothing "
            "was stored. Send less, or ask the admin for a higher max_bytes: "
            f"rsnotify sets edit {name} --max-bytes BYTES",
            retry_after_seconds=10,
        )


class TooFewReplicas(TryAgain):
    """Redis did it, but may lose it: too few replicas have it, or nobody knows how many."""

    def __init__(self, why: TryAgain) -> None:
        repeat = "with the same Idempotency-Key it is safe to repeat"
        super().__init__(f"it may be stored, but {why.detail}; {repeat}")
        self.why = why


class RedisRefuses(TryAgain):
    """Redis refuses this hub, and will until its operator changes something."""


class TooMany(TryAgain):
    """The peer has sent too many requests."""

    status = 429


class InvalidSettings(Error):
    """The configuration cannot work; `problems` lists everything that is wrong with it."""

    exit_status = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
