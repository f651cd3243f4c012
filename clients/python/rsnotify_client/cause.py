"""Why a hub could not be reached, in the few words that a reader of a log needs.

Nothing here knows what was asked of the hub.
"""

import os
import re

ERRNO = re.compile(r"\[Errno (\d+)\]")


def cause_of(error: BaseException) -> str:
    """The cause without addresses and types, such as `connection refused`.

    >>> cause_of(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"))
    'connection refused'
    """
    error = getattr(error, "os_error", error)  # what aiohttp wraps
    if isinstance(error, TimeoutError):
        return "no answer in time"
    number = getattr(error, "errno", None) or _first_errno(str(error))
    if number is not None and number > 0:
        return os.strerror(number).lower()
    words = getattr(error, "strerror", None) or str(error)
    return words[:1].lower() + words[1:] or type(error).__name__


def _first_errno(text: str) -> int | None:
    """Of several addresses tried, the first one's."""
    found = ERRNO.search(text)
    return int(found[1]) if found else None
