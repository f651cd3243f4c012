"""What the failures of Redis mean to the caller: one pure function and its tables.

An error is judged by its code, wherever the client library left that (beside the text, in it, or
behind what a pipeline or a script puts before it), else by its class. What is in no table is a bug
or damaged data of one set, and is not translated.
"""

import logging
import re
import ssl
from collections.abc import Iterator, Sequence

from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import TimeoutError as AnswerLate

from rsnotify.errors import RedisRefuses, StoreFull, TryAgain

log = logging.getLogger(__name__)

# Failures that pass by themselves.
PASSING = {
    "BUSY": "a script keeps Redis busy",
    "UNKILLABLE": "a script keeps Redis busy",
    "LOADING": "Redis is loading its data",
    "NOREPLICAS": "too few replicas of Redis are connected",
    "READONLY": "this Redis is a replica",
    "MASTERDOWN": "this Redis has lost its master",
    "CLUSTERDOWN": "the Redis Cluster is down",
    "TRYAGAIN": "the Redis Cluster moves its keys",
}

# Failures that last until there is room again.
FULL = {
    "MISCONF": "Redis cannot write its data to disk",
    "OOM": "Redis has no memory left",
}

# Failures that last until an operator changes something.
LASTING = {
    "NOAUTH": "Redis wants a password: give it in its address",
    "WRONGPASS": "Redis refuses user or password: check them in its address",
    "NOPERM": "Redis does not allow this user to do it: check what he may do",
    "DENIED": "Redis lets only its own machine in",
    "MOVED": "this Redis is a node of a Cluster",
    "ASK": "this Redis is a node of a Cluster",
    "CROSSSLOT": "this Redis is a node of a Cluster",
}

MEANINGS = {TryAgain: PASSING, StoreFull: FULL, RedisRefuses: LASTING}

SPOILT = "the journal cannot be used: an answer of Redis cannot be read"

OF_ITS_AUTHORITY = "add ?ssl_ca_certs=FILE, with the certificate of its authority, to its address"

# By OpenSSL's number of what is wrong with the certificate of Redis.
CERTIFICATES = {
    10: "it must be renewed",
    62: "the address must name the host as the certificate does",
    64: "the address must name the host as the certificate does",
}

# By what the other side says of TLS, or by what it says that is no TLS.
OF_THE_HUB = "add ?ssl_certfile=FILE&ssl_keyfile=FILE to its address"
ALERTS = {
    "CERTIFICATE_REQUIRED": f"Redis wants to see a certificate of the hub: {OF_THE_HUB}",
    "HANDSHAKE_FAILURE": f"Redis wants to see a certificate of the hub: {OF_THE_HUB}",
    "ALERT_UNKNOWN_CA": "Redis does not trust the certificate of the hub: its ssl_certfile must be "
    "signed by an authority that Redis knows",
    "ALERT_BAD_CERTIFICATE": "Redis refuses the certificate of the hub: check its ssl_certfile",
    "ALERT_CERTIFICATE": "Redis refuses the certificate of the hub: check its ssl_certfile",
    "WRONG_VERSION_NUMBER": "what answers there speaks no TLS: write redis:// and not rediss://",
}

# Where NOAUTH is meant, of a long command; else NOPERM, of one in a script.
_UNCODED = re.compile("(error: unauthenticated)|user executing the script can't|ACL failure")

_BEGINS = re.compile(r"([A-Z]{3,}) ")
_WITHIN = re.compile(r"(?:because of: |: -?)([A-Z]{3,}) ")  # an aborted transaction; a script


def judge_error(error: Exception) -> Exception:
    """Which of our errors it is: `TryAgain` while Redis is in trouble, else the error itself."""
    for cause in _causes(error):
        if isinstance(cause, TryAgain):  # judged already, and wrapped by the client library
            return cause
        refusal = _refused_by_tls(cause)
        if refusal:
            return RedisRefuses(refusal)
    code = code_of(error)
    for kind, codes in MEANINGS.items():
        if code in codes:
            return kind(f"the journal cannot be used: {codes[code]} ({code})")
    if isinstance(error, ConnectionLost | AnswerLate | OSError) or _is_closed(error):
        return TryAgain(f"the journal cannot be reached: {error or type(error).__name__}")
    return error


def judge_unforeseen(error: Exception) -> Exception:
    """The same for whatever is raised where an answer is read: what is in no table was spoilt."""
    found = judge_error(error)
    if isinstance(found, TryAgain):
        return found
    log.warning(SPOILT, exc_info=error)
    return TryAgain(SPOILT)


def nobody_knows(who: str, errors: Sequence[Exception]) -> TryAgain:
    """Why none of several servers has said what they were asked: one that refuses comes before
    those that do not answer."""
    judged = [judge_error(error) for error in errors]
    refusals = [each for each in judged if isinstance(each, RedisRefuses)]
    if refusals:
        return RedisRefuses(f"a {who} refuses: {refusals[0].detail}")
    return TryAgain(f"no {who} answers: {judged[0]}")


def _is_closed(error: Exception) -> bool:
    """Whether the connection was closed in the moment in which it was to be written to: so the
    event loop says it, and the client library leaves it as it is."""
    return isinstance(error, RuntimeError) and "the handler is closed" in str(error)


def code_of(error: Exception) -> str:
    """The first word of what Redis said, such as MISCONF; empty if it said nothing."""
    said = getattr(error, "status_code", None)  # taken off the text by the client library
    if said not in (None, "ERR", "EXECABORT"):
        return str(said)
    if any(isinstance(each, AuthenticationError) for each in (error, error.__cause__)):
        return "WRONGPASS"  # the library hides it while it connects
    text = str(error)
    if uncoded := _UNCODED.search(text):
        return "NOAUTH" if uncoded[1] else "NOPERM"
    found = _BEGINS.match(text)
    if found and found[1] not in ("ERR", "EXECABORT"):
        return found[1]
    within = _WITHIN.search(text)
    return within[1] if within else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _refused_by_tls(error: BaseException) -> str | None:
    """What is wrong with a certificate, or with TLS itself, and how to put it right."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = CERTIFICATES.get(error.verify_code, OF_ITS_AUTHORITY)
        return f"the certificate of Redis is not trusted ({error.verify_message}): {advice}"
    if isinstance(error, ssl.SSLError):
        said = str(error).upper().replace(" ", "_")
        return next((means for words, means in ALERTS.items() if words in said), None)
    return None
