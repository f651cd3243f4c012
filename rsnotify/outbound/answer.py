"""What an address has answered to a call."""

from typing import Literal, NamedTuple

CallOutcome = Literal["delivered", "forbidden", "unanswered", "unreachable", "gone", "refused"]


class CallAnswer(NamedTuple):
    """What was answered; status 0 if nothing."""

    status: int
    note: str = ""
    retry_after: str | None = None
    body: bytes = b""
    seconds: float = 0.0
    reached: bool = True  # False: no connection was made
    refused: bool = False  # the hub may not call this address

    @property
    def succeeded(self) -> bool:
        """WEBSUB 23: 2xx is success whatever the body; a redirect is not."""
        return 200 <= self.status < 300

    @property
    def outcome(self) -> CallOutcome:
        """What became of the call, in one word."""
        if self.succeeded:
            return "delivered"
        if self.refused:
            return "forbidden"
        if not self.status:
            return "unanswered" if self.reached else "unreachable"
        return "gone" if self.status == 410 else "refused"

    @property
    def text(self) -> str:
        return f"{self.status} {self.note}".rstrip() if self.status else self.note
