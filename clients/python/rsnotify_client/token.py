"""The token that is shown: one that was given, or what a function answers, asked in time.

Rules that hold here: a function is asked before the first request, before a JWT ends, once after a
refusal, and when its file was replaced, by one thread for all who need a token; while the one in
use counts nobody waits for the next. When a JWT ends is read, and nothing of it is verified: that
is for who is shown it. The clock of this machine may be wrong, so only a refusal proves that a
token has ended. No error says one.
"""

import logging
import os
from base64 import urlsafe_b64decode
from collections.abc import Callable
from copy import copy
from inspect import iscoroutine, iscoroutinefunction
from math import inf, isfinite
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic, time
from typing import NamedTuple

import msgspec

from rsnotify.errors import TryAgain
from rsnotify_client.address import without_tokens, wrong_token
from rsnotify_client.errors import InvalidArgument, TokenUnavailable
from rsnotify_client.threads import GIVE_UP_SECONDS, is_given_up

log = logging.getLogger(__name__)

Token = str | Callable[[], str]
"""A token, or a function that is asked for one; it may block, and is called in a thread."""

ANSWER_SECONDS = 30.0
"""How long a function is waited for."""
EARLY_SECONDS = 30.0
"""So long before a JWT ends another one is asked for, or a quarter of its time, if that is less."""
AGAIN_SECONDS = 1.0
"""A function that has failed, or has brought nothing new, is not asked again before."""
LOOK_SECONDS = 1.0
"""Between two looks at whether a token file was replaced."""
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError)


class TokenFile:
    """The token in a file, for `token=`: it is read anew when it was replaced, or another one is
    needed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._read: tuple[int, ...] = ()
        self._looked = -inf

    @property
    def is_replaced(self) -> bool:
        """Whether the file is another than when it was read, as far as it was looked at."""
        if (now := monotonic()) < self._looked + LOOK_SECONDS:
            return False
        self._looked = now
        return self._state() not in ((), self._read)

    def _state(self) -> tuple[int, ...]:
        """What changes when it is written, or another file takes its place; empty if it is away."""
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def __call__(self) -> str:
        self._read = self._state()  # before it is read: what is written meanwhile is seen later
        try:
            found = self.path.read_text().strip()
        except OSError as error:
            raise TokenUnavailable(f"the token file {self.path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InvalidArgument(f"the token file {self.path}: it has no text") from None
        if not found:  # as while it is written anew
            raise TokenUnavailable(f"the token file {self.path}: it is empty")
        return found

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"


class _Held(NamedTuple):
    """A token, when another one is to be asked for, and until when it counts."""

    secret: str
    due: float
    ends: float


class _Asking:
    """One call of the function, and what came of it."""

    def __init__(self) -> None:
        self.has_ended = Event()
        self.secret = ""
        self.error: Exception | None = None
        self.until = inf  # so long what came of it stands

    def result(self, seconds: float) -> str:
        until = monotonic() + seconds
        while not self.has_ended.wait(max(0.0, min(until - monotonic(), GIVE_UP_SECONDS))):
            if monotonic() >= until or is_given_up():
                raise TokenUnavailable(f"the token function has not answered in {seconds:.3g} s")
        if self.error is not None:
            raise self.error
        return self.secret


class HeldToken:
    """The token in use, for all connections of a client."""

    def __init__(self, given: Token) -> None:
        self._function: Callable[[], str] | None = None
        self._file: TokenFile | None = None
        if isinstance(given, str):
            self._held: _Held | None = _Held(_checked(given, "the token"), inf, inf)
        elif not callable(given):
            raise InvalidArgument(
                f"the token is of type {type(given).__name__}: give text, or a function"
            )
        elif iscoroutinefunction(given) or iscoroutinefunction(type(given).__call__):
            raise InvalidArgument(
                "the token function is a coroutine: give a plain one. It may block, as it is "
                "called in a thread"
            )
        else:
            self._function, self._held = given, None
            if isinstance(given, TokenFile):  # others that were given it look for themselves
                self._function = self._file = copy(given)
        self._begin()

    @classmethod
    def of(cls, given: "Token | HeldToken | None") -> "HeldToken | None":
        """What is to be shown; None for nothing, which an empty text means, too."""
        return given if isinstance(given, HeldToken) else cls(given) if given else None

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._asking: _Asking | None = None

    @property
    def can_be_renewed(self) -> bool:
        return self._function is not None

    def shown(self, seconds: float = ANSWER_SECONDS) -> str:
        """The token to show now. The function is waited for only if none is known to count."""
        held = self._held
        if held is not None and self._file is not None and self._file.is_replaced:
            self._asking_if(lambda _: True)
        if held is not None and monotonic() < held.due:
            return held.secret
        asking = self._asking_if(_is_due)
        if (held := self._held) is not None and monotonic() < held.ends:
            return held.secret
        assert asking is not None  # noqa: S101 - there is one where nothing counts
        return asking.result(seconds)

    def has_another(self, than: str, seconds: float = ANSWER_SECONDS) -> bool:
        """Whether there is another token than this one, which was refused or soon ends.

        The function is asked once, together with all who ask at the same time.
        """
        if self._function is None or self._held is None:  # then it was not ours
            return False
        asking = self._asking_if(lambda held: held is not None and held.secret == than)
        return asking is None or asking.result(seconds) != than

    def seconds_left(self, of: str) -> float:
        """How long nothing else is to be asked for than this token."""
        held = self._held
        if held is None or held.secret != of:
            return 0.0
        return max(0.0, held.due - monotonic())

    def _asking_if(self, is_needed: "Callable[[_Held | None], bool]") -> _Asking | None:
        """The function is being asked, or was a moment ago, if what is held makes that needed."""
        if self._process != os.getpid():  # whoever asked is not in this process
            self._begin()
        with self._lock:
            if not is_needed(self._held):
                return None
            if self._asking is None or monotonic() >= self._asking.until:
                self._asking = _Asking()
                self._start(self._asking)
            return self._asking

    def _start(self, asking: _Asking) -> None:
        thread = Thread(target=self._run, args=(asking,), name="rsnotify-token", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread begins any more as the process ends
            self._run(asking, has_lock=True)

    def _run(self, asking: _Asking, *, has_lock: bool = False) -> None:
        assert self._function is not None  # noqa: S101 - else nobody asks
        try:
            asking.secret = _checked(self._function(), "what the token function gave")
        except (TryAgain, InvalidArgument) as error:
            asking.error = error
        except BaseException as error:
            said = without_tokens(f"{type(error).__name__}: {error}").rstrip(": ")
            asking.error = TokenUnavailable(f"the token function has failed: {said}")
        if has_lock:
            self._settle(asking)
        else:
            with self._lock:
                self._settle(asking)
        asking.has_ended.set()

    def _settle(self, asking: _Asking) -> None:
        now, before = monotonic(), self._held
        is_new = asking.error is None and (before is None or before.secret != asking.secret)
        asking.until = now if is_new else now + AGAIN_SECONDS
        if asking.error is None:
            self._held = _held(asking.secret, now, is_new=is_new)
        elif before is not None:
            log.warning("%s; it will be asked again", asking.error)
            self._held = before._replace(due=now + AGAIN_SECONDS)


def _is_due(held: _Held | None) -> bool:
    return held is None or monotonic() >= held.due


def _held(secret: str, now: float, *, is_new: bool) -> _Held:
    ends_at = end_of(secret)
    if ends_at is None:
        return _Held(secret, inf, inf)
    left = ends_at - time()
    if left <= 0:
        if is_new:
            log.warning(
                "by the clock of this machine the token has ended that its function gave; it is "
                "shown until it is refused"
            )
        return _Held(secret, inf, inf)
    due = left - min(left / 4, EARLY_SECONDS)
    return _Held(secret, now + (due if is_new else max(due, AGAIN_SECONDS)), now + left)


def _checked(given: object, what: str) -> str:
    if not isinstance(given, str):
        if iscoroutine(given):
            given.close()
        raise InvalidArgument(f"{what} is of type {type(given).__name__}: a token is text")
    if not given:
        raise InvalidArgument(f"{what} is empty")
    if (wrong := wrong_token(given)) is not None:
        raise InvalidArgument(f"{what} cannot be sent: {wrong}")
    return given


def end_of(token: str) -> float | None:
    """When a JWT ends, in seconds since 1970, as it says itself; None for any other token.

    >>> end_of("e30.eyJleHAiOjE3MDAwMDAwMDB9.c2ln"), end_of("rsn_abc")
    (1700000000.0, None)
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except NO_JSON:
        return None
    found = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not isfinite(found):
        return None
    return float(found)
