"""How the hub's log looks: a line of text, or of JSON, for each thing; never a token.

Times are UTC, with their zone. A worker says its number.
"""

import logging
import re
from datetime import UTC, datetime

import msgspec

_TOKEN = re.compile(r"rsn_[\w-]{4,}|(?<=access_token=)[^&\s\"']+|(?<=Bearer )[^\s\"']+")


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
    """One object a line: `time`, `level`, `worker`, `room`, `message`, and `error` if there is."""

    def __init__(self, worker: str = "") -> None:
        super().__init__()
        self._worker = int(worker or 1)

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "worker": self._worker,
            "room": record.name,
            "message": without_tokens(record.getMessage()),
        }
        if record.exc_info:
            told["error"] = without_tokens(self.formatException(record.exc_info))
        return msgspec.json.encode(told).decode()
