"""The log: lines of text or JSON, never with a token; floods held back; a line for each request,
and one as the hub begins to end."""

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rsnotify.http.extensions import LEND

REPEAT_SECONDS = 60.0
MESSAGES_KEPT = 1_000
OF_A_KIND = 30  # messages with the same words, in a minute

ACCESS = "rsnotify.access_log"
FIELDS = "fields"  # the attribute of a record that has them


class RepeatedWarningFilter(logging.Filter):
    """Drops a warning if the same text was logged within the last minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last_logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        message, now = record.getMessage(), self._clock()
        if now - self._last_logged.get(message, float("-inf")) < REPEAT_SECONDS:
            return False
        if len(self._last_logged) >= MESSAGES_KEPT:
            self._last_logged.clear()
        self._last_logged[message] = now
        return True


class FloodFilter(logging.Filter):
    """Lets so many messages of a kind through in a minute. The access log has no limit."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}  # when its minute began, how many since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == ACCESS:
            return True
        now, kind = self._clock(), str(record.msg)
        since, count = self._kinds.get(kind, (now, 0))
        if now - since >= REPEAT_SECONDS:
            _append_left_out(record, count - OF_A_KIND)
            since, count = now, 0
        if kind not in self._kinds and len(self._kinds) >= MESSAGES_KEPT:
            self._kinds.clear()
        self._kinds[kind] = (since, count + 1)
        return count < OF_A_KIND


def _append_left_out(record: logging.LogRecord, left_out: int) -> None:
    if left_out > 0:
        message = record.getMessage()
        record.msg, record.args = "%s (%d more like this were left out)", (message, left_out)


_TOKEN = re.compile(
    r"rsn_[\w-]{4,}|eyJ[\w-]+\.[\w-]+\.[\w-]*|(?<=access_token=)[^&\s\"']+|(?<=Bearer )[^\s\"']+"
)


def without_tokens(text: str) -> str:
    """The text with each token in it left out, so that it may be logged."""
    return _TOKEN.sub("…", text)


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormat(logging.Formatter):
    """`2026-11-21T20:24:26.241Z WARNING [2] what happened`; no number if there is one process."""

    def __init__(self, worker: str = "") -> None:
        super().__init__()
        self._worker = f"[{worker}] " if worker else ""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        return without_tokens(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return f"{_time(record)} {record.levelname} {self._worker}{record.message}"


class JsonFormat(logging.Formatter):
    """One object a line: `time`, `level`, `worker`, `room`, `message`, and `error` if there is.

    That of a request has `peer`, `method`, `path`, `status` and `milliseconds`, too; that of an end
    which begins `signal`, `connections` or `workers`, and `until`.
    """

    def __init__(self, worker: str = "") -> None:
        super().__init__()
        self._worker = int(worker or 1)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "worker": self._worker,
            "room": record.name,
            "message": without_tokens(record.getMessage()),
        }
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["error"] = without_tokens(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


def log_ending(name: str, seconds: float, **let_go: int) -> None:
    """A signal of this name was received: what is let go now, and how long that may take."""
    until = datetime.now(UTC) + timedelta(seconds=seconds)
    fields = {"signal": name, **let_go, "until": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
    what = ", ".join(
        f"{count} {noun[:-1] if count == 1 else noun}" for noun, count in let_go.items()
    )
    text = "%s: the hub ends, and lets %s go, until %s at the latest"
    of_hub.info(text, name, what, fields["until"], extra={FIELDS: fields})


of_hub = logging.getLogger(__name__)
log = logging.getLogger(ACCESS)

STATUS_OF = {LEND: 200, "websocket.accept": 101, "websocket.close": 403}


class AccessLog:
    """The application, with a line for each of its answers."""

    def __init__(self, app: ASGIApp, client_address: Callable[[HTTPConnection], str]) -> None:
        self._app = app
        self._client_address = client_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            known = STATUS_OF.get(message["type"], 0)
            status = message.get("status", known) or status
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            fields = {
                "peer": self._client_address(HTTPConnection(scope)),
                "method": scope.get("method", "WEBSOCKET"),
                "path": without_tokens(_printable(scope["path"])),
                "status": status,
                "milliseconds": round((monotonic() - began) * 1000, 1),
            }
            log.info("%s %s %s %d %.1f ms", *fields.values(), extra={FIELDS: fields})


def _printable(path: str) -> str:
    """A line break in a path must not begin a line of its own."""
    return path.encode("unicode_escape").decode()[:2_048]
