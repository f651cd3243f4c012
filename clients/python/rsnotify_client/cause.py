"""Why a hub could not be reached, in the few words that a reader of a log needs.

Nothing here knows what was asked of the hub. TLS is only looked at where it was used: to load it
takes time and memory.
"""

import os
import re
import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import ssl

ERRNO = re.compile(r"\[Errno (\d+)\]")
TRUST = "name the file of the authority that signed it in SSL_CERT_FILE"
MENDS = {
    9: "look at the clock of this machine",
    10: "its holder must renew it",
    62: "use the name that it was made for",
    64: "use the name that it was made for",
}
"""How to mend what OpenSSL finds wrong with a certificate; all else by trusting its authority."""


class TooSlow(TimeoutError):
    """The peer answers, but not in a time that anyone can wait for."""


def cause_of(error: BaseException) -> str:
    """The cause without addresses and types, such as `connection refused`.

    >>> cause_of(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"))
    'connection refused'
    """
    if isinstance(error, TimeoutError):
        return str(error) if isinstance(error, TooSlow) else "no answer in time"
    if _is_of_tls(error, "SSLError"):  # its errno is a number of OpenSSL's
        return untrusted(error) or _of_tls(error)
    number = getattr(error, "errno", None) or _first_errno(str(error))
    if number is not None and number > 0:
        return os.strerror(number).lower()
    words = getattr(error, "strerror", None) or str(error)
    return words[:1].lower() + words[1:] or type(error).__name__


def untrusted(error: BaseException) -> str | None:
    """Why the certificate is not trusted, and how to mend it; None if it is trusted."""
    if not _is_of_tls(error, "SSLCertVerificationError"):
        return None
    failed = cast("ssl.SSLCertVerificationError", error)
    mend = MENDS.get(failed.verify_code, TRUST)
    return f"its certificate is not trusted ({failed.verify_message.rstrip('.')}): {mend}"


def _is_of_tls(error: BaseException, name: str) -> bool:
    tls = sys.modules.get("ssl")
    return tls is not None and isinstance(error, getattr(tls, name))


def _of_tls(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or str(error)  # OpenSSL alone gives a reason
    if reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS: is it an http:// address?"
    return f"TLS failed: {reason.replace('_', ' ').lower()}"


def _first_errno(text: str) -> int | None:
    """Of several addresses tried, the first one's."""
    found = ERRNO.search(text)
    return int(found[1]) if found else None
