"""What a hub's answer means, or that none came: who can put it right, and when to try again.

Nothing here knows how an answer travelled, nor what was asked. `ssl` is looked at only where it was
loaded already: loading it takes time and memory.
"""

import os
import re
import socket
import sys
from collections.abc import Mapping
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any, cast

import msgspec

from rsnotify.errors import Fault, Rejected, TryAgain
from rsnotify.resourcesync.retry import Backoff, retry_after_seconds
from rsnotify_client.address import shown
from rsnotify_client.errors import TokenUnavailable

if TYPE_CHECKING:
    import ssl

HUB_BACKOFF = Backoff(0.5, 30.0)
"""Nothing is certain of it: thousands of clients of a hub that was restarted come back spread."""


def in_words(seconds: float) -> str:
    """A pause for a message: never as short as nothing.

    >>> in_words(0.01), in_words(2.345)
    ('0.1 s', '2.3 s')
    """
    return f"{max(seconds, 0.1):.1f} s"


UNTRUSTED = 495  # no answer of a hub: the changes are kept

ERRNO = re.compile(r"\[Errno (\d+)\]")
TRUST = "name the file of the authority that signed it in SSL_CERT_FILE"
NO_HOST = "no host of this name is known: is it spelt right?"
ADVICE = {
    9: "look at the clock of this machine",
    10: "its holder must renew it",
    62: "use the name that it was made for",
    64: "use the name that it was made for",
}
"""What to do about a certificate, by the code of OpenSSL; for others, trust its authority."""


class TooSlow(TimeoutError):
    """The peer answers, but too slowly to be waited for."""


def cause_of(error: BaseException) -> str:
    """The cause without addresses and types, such as `connection refused`.

    >>> cause_of(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"))
    'connection refused'
    """
    if isinstance(error, TimeoutError):
        return str(error) if isinstance(error, TooSlow) else "no answer in time"
    if _is_of_tls(error, "SSLError"):  # its errno is a number of OpenSSL's
        return untrusted(error) or _of_tls(error)
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
        return NO_HOST
    found = ERRNO.search(str(error))  # the first, if several addresses were tried
    number = getattr(error, "errno", None) or (found and int(found[1]))
    if number and number > 0:
        return os.strerror(number).lower()
    words = getattr(error, "strerror", None) or str(error)
    return words[:1].lower() + words[1:] or type(error).__name__


def untrusted(error: BaseException) -> str | None:
    """Why the certificate is not trusted, and what to do; None if it is trusted."""
    if not _is_of_tls(error, "SSLCertVerificationError"):
        return None
    failed = cast("ssl.SSLCertVerificationError", error)
    advice = ADVICE.get(failed.verify_code, TRUST)
    return f"its certificate is not trusted ({failed.verify_message.rstrip('.')}): {advice}"


def _is_of_tls(error: BaseException, name: str) -> bool:
    tls = sys.modules.get("ssl")
    return tls is not None and isinstance(error, getattr(tls, name))


def _of_tls(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or str(error)  # OpenSSL alone gives a reason
    if reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS: is it an http:// address?"
    return f"TLS failed: {reason.replace('_', ' ').lower()}"


def asking(said: str, question: str) -> str:
    """What went wrong, with a question; if it ends with one already, that is enough.

    >>> asking("refused", "is it running?"), asking("is it spelt right?", "is it running?")
    ('refused; is it running?', 'is it spelt right?')
    """
    return said if said.endswith("?") else f"{said}; {question}"


AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
LONGEST_PAUSE_SECONDS = 60
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
NOTHING_THERE = "there is nothing at /"
"""How a hub's message begins about a path that it does not serve."""


class HubUnreachable(TryAgain):
    """No answer came from the hub's address."""

    def __init__(self, url: str, cause: str) -> None:
        said = asking(f"{url} cannot be reached: {cause}", "is the hub running?")
        super().__init__(said, retry_after_seconds=0)
        self.url, self.cause = url, cause


class NotAHub(Rejected):
    """What answered at the address is not an rsnotify hub, or is a proxy in front of it."""

    exit_status = 2  # of a command: it was given a wrong address

    def __init__(
        self, url: str, what: str, status: int, advice: str = "is this the hub's address?"
    ) -> None:
        super().__init__(f"{url} {what}; {advice}", status=status)


class WrongToken(Rejected):
    """The token is refused, or none was given; `said` is the hub's own sentence."""

    def __init__(self, url: str, refused: Rejected) -> None:
        advice = "give a token that may publish here (`rsnotify tokens create` makes one)"
        super().__init__(f"{url}: {refused.detail}; {advice}", status=refused.status)
        self.said = refused.detail


def hub_trouble(error: TryAgain) -> str:
    """The trouble in a line of the log."""
    if isinstance(error, HubUnreachable):
        return f"the hub {error.url} does not answer ({error.cause})"
    if isinstance(error, TokenUnavailable):
        return error.detail
    return f"the hub cannot do it now ({error.detail})"


def content_of(url: str, status: int, retry_after: str | None, body: bytes) -> Any:
    """The decoded content of a successful answer; any other is raised."""
    if status < 300:
        try:
            return msgspec.json.decode(body) if body else None
        except NO_JSON:
            what = f"answered {status} with something else than JSON"
            raise NotAHub(url, what, status) from None
    problem = problem_in(body)
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    answered = f"answered {status} {phrase}".rstrip()
    if status in AGAIN:
        pause = retry_after_seconds(retry_after, time(), LONGEST_PAUSE_SECONDS) or 0
        detail = problem.detail if problem else f"the hub {answered}"
        raise TryAgain(detail, retry_after_seconds=pause)
    if problem is None:
        raise NotAHub(url, answered, status)
    raise Rejected(problem.detail, status=status, faults=problem.errors)


class Problem(msgspec.Struct):
    """A problem document (RFC 9457) as a hub writes it; others may write it differently."""

    detail: str
    errors: tuple[Fault, ...] = ()


def problem_in(body: bytes) -> Problem | None:
    """The problem document, if it is one."""
    try:
        found = msgspec.json.decode(body, type=Problem)
    except NO_JSON:
        return None
    return Problem(shown(found.detail), tuple(map(_shown, found.errors)))


def _shown(fault: Fault) -> Fault:
    """As a stranger's text is shown."""
    cut = Fault(message=shown(fault["message"]))
    if "field" in fault:
        cut["field"] = shown(fault["field"])
    return fault | cut


KEY_IS_USED, TOO_LARGE = 409, 413
ABOUT_THE_CHANGES = frozenset({400, TOO_LARGE, 422})


def refused_changes(error: Rejected, count: int) -> Mapping[int, str] | None:
    """Why changes of a batch of `count` are refused, by their index.

    An empty answer means: try again with fewer, under a new key. None means that no change is at
    fault (a token, a set that is not there, a wrong address): keep all and wait.
    """
    named = {
        fault["index"]: words_of(fault)
        for fault in error.faults
        if "index" in fault and 0 <= fault["index"] < count
    }
    if named:
        return named
    if error.status == KEY_IS_USED:
        return None if isinstance(error, NotAHub) else {}
    if error.status not in ABOUT_THE_CHANGES:
        return None
    if isinstance(error, NotAHub):  # a proxy may have a limit of its own
        return {} if error.status == TOO_LARGE and count > 1 else None
    return {} if count > 1 else {0: error.detail}


def words_of(fault: Fault) -> str:
    """The message, with the field if it does not name that itself."""
    field, message = fault.get("field"), fault["message"]
    return message if not field or message.startswith(field) else shown(f"{field}: {message}")
