"""One hub, asked from threads: a request, and its answer or an error.

Rules that hold here: connections are kept for the next request; a forked process never uses those
of its parent. A request is made once, unless `patiently` makes it.
"""

import logging
import os
import random
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.resourcesync.retry import Backoff
from rsnotify_client.address import origin, without_tokens, wrong_address
from rsnotify_client.answer import (
    HUB_BACKOFF,
    NO_HOST,
    NOTHING_THERE,
    UNTRUSTED,
    HubUnreachable,
    NotAHub,
    WrongToken,
    cause_of,
    content_of,
    hub_trouble,
    in_words,
    untrusted,
)
from rsnotify_client.errors import InvalidArgument, checked_url
from rsnotify_client.network import Credentials, NetworkOptions, network_of, without_login
from rsnotify_client.threads import waited
from rsnotify_client.token import HeldToken, Token
from rsnotify_client.transport import Transport

log = logging.getLogger(__name__)

Answered = TypeVar("Answered")

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
NO_HOST_SECONDS = 5.0  # a misspelt name does not come; that of a container which starts may
ANSWER_BYTES = 1024 * 1024  # of what a publisher asks

JSON = "application/json"
UNAUTHORIZED, FORBIDDEN = 401, 403
PLACES = {"change": "changes", "framework": "framework"}


Body = bytes | Iterator[bytes] | Callable[[], Iterator[bytes]] | None
"""What is sent; a function gives its pieces from the first on, each time it is called."""

LEAST_SECONDS = 0.001  # that a try has, though the time of all tries is over


class Accepted(msgspec.Struct, frozen=True):
    """The hub has made the changes durable; they stand in `(from_, until]`."""

    accepted: int
    from_: str = msgspec.field(name="from")
    until: str


class HubAnswer(NamedTuple):
    """What was answered to a request that was granted; `NotAHub` if no hub can have answered it."""

    url: str
    status: int
    content: Any

    def nothing(self) -> None:
        """Nothing, as to a request whose answer has no body."""
        if self.content is not None:
            raise self._not_a_hub()

    def object(self, *fields: str) -> dict[str, Any]:
        """An object that has these fields."""
        return self._objects([self.content], *fields)[0]

    def objects(self, *fields: str) -> list[dict[str, Any]]:
        """A list of objects that have these fields."""
        return self._objects(self.content, *fields)

    def _objects(self, found: Any, *fields: str) -> list[dict[str, Any]]:
        if not isinstance(found, list) or not all(
            isinstance(each, dict) and each.keys() >= {*fields} for each in found
        ):
            raise self._not_a_hub()
        return found

    def _not_a_hub(self) -> NotAHub:
        return NotAHub(
            self.url, f"answered {self.status} with JSON that no hub answers", self.status
        )


class HubClient:
    """A hub's address and the token to speak with."""

    def __init__(
        self,
        url: str,
        token: Token | HeldToken | None = None,
        *,
        network: NetworkOptions | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        self.url = checked_url(url, "the hub's url").rstrip("/")
        if (wrong := wrong_address(self.url)) is not None:
            raise InvalidArgument(f"the hub's url is {without_tokens(url)!r}: {wrong}")
        self._network = network_of(network)
        self._network.proxies.lead_to(*origin(self.url))  # or it says what is missing
        self._credentials = Credentials(self._network, token, self.url)
        self._headers = {"User-Agent": self._network.agent, "Accept-Encoding": "identity"}
        self.url = without_login(self.url)
        self._path = urlsplit(self.url).path
        self._seconds = (connect_seconds, answer_seconds)
        self._answer_bytes = answer_bytes
        self._transport = self._new_transport()
        self._process = os.getpid()

    def publish(
        self,
        channel: ChannelName,
        body: bytes,
        key: str,
        content_type: str = JSON,
        seconds: float | None = None,
    ) -> Accepted:
        """Publish the changes of a body, once under this key however often it is asked."""
        headers = {"Content-Type": content_type, "Idempotency-Key": key}
        try:
            answer = self._ask("POST", self._place(channel), headers, body, seconds)
            return msgspec.convert(answer, Accepted)
        except msgspec.ValidationError:
            raise NotAHub(self.url, "does not say what it accepted", 200) from None

    def _place(self, channel: ChannelName) -> str:
        return f"/api/sets/{quote(channel.set_name, safe='')}/{PLACES[channel.kind]}"

    def check(self) -> None:
        """Ask whether this is a hub that knows the token; what else it may do is not asked."""
        if self._credentials.token is None and not self._credentials.headers(self.url):
            needed = Rejected(
                "a token is needed to publish, and none is given", status=UNAUTHORIZED
            )
            raise WrongToken(self.url, needed)
        try:
            self._ask("GET", "/api/sets")
        except Rejected as error:
            if error.status != FORBIDDEN:  # only the admin may see all sets
                raise

    def check_right(self, channel: ChannelName) -> None:
        """Ask whether the token may publish to the channel, with a body that holds no change."""
        try:
            self._ask("POST", self._place(channel), {"Content-Type": JSON}, b"[]")
        except WrongToken:
            raise
        except Rejected:
            pass  # there is no change, or no set yet

    def close(self) -> None:
        """Keep none of these connections, nor one that is being used now; later ones are kept."""
        self._connections().release()

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        seconds: float | None = None,
    ) -> HubAnswer:
        """Ask once; what the hub refuses is `Rejected`, as it says it.

        Where the token has ended, it is asked again with another one, if there is one; a body that
        is an iterator is not sent again. It takes so many seconds at most, if they are fewer than
        this client has for every request.
        """
        until = monotonic() + sum(self._seconds)
        if seconds is not None:
            until = min(until, monotonic() + seconds)
        shown = self._shown(until)
        sent = self._headers | shown | dict(headers or {})
        try:
            return self._asked(method, path, sent, body, until, seconds)
        except Rejected as refused:
            left, is_sent = until - monotonic(), isinstance(body, Iterator)
            if refused.status != UNAUTHORIZED or is_sent or left <= 0:
                raise
            if not self._credentials.has_others(shown, left):
                raise
        sent |= self._shown(until)
        left = max(until - monotonic(), LEAST_SECONDS)
        return self._asked(method, path, sent, body, until, None if seconds is None else left)

    def _shown(self, until: float) -> dict[str, str]:
        return self._credentials.headers(self.url, seconds=until - monotonic())

    def _asked(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Body,
        until: float,
        seconds: float | None,
    ) -> HubAnswer:
        pieces = body() if callable(body) else body
        try:
            answer = self._connections().ask(method, self.url + path, headers, pieces, seconds)
            try:
                answer.limit(until)
                content = answer.read(self._answer_bytes)
            finally:
                answer.close()
        except OSError as error:  # first: a certificate's error is a ValueError, too
            if (why := untrusted(error)) is not None:
                raise Rejected(f"{self.url} is not spoken to: {why}", status=UNTRUSTED) from None
            raise HubUnreachable(self.url, cause_of(error)) from None
        except UnicodeEncodeError:  # a command says which of its arguments it was
            raise
        except ValueError as error:
            raise Rejected(f"the request to {self.url} cannot be sent: {error}") from None
        finally:
            if isinstance(pieces, Generator):
                pieces.close()
        pause = answer.headers.get("retry-after")
        found = content_of(self.url, answer.status, pause, content)
        return HubAnswer(self.url, answer.status, found)

    def _ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        seconds: float | None = None,
    ) -> Any:
        """As `ask`; a refusal says what to do about it.

        The hub cannot say it: it does not know the address that we were given.
        """
        try:
            with telling_of_a_wrong_token(self.url):
                return self.ask(method, path, headers, body, seconds).content
        except (NotAHub, WrongToken):
            raise
        except Rejected as refused:
            if self._path and refused.detail.startswith(NOTHING_THERE):
                what = f"has nothing at {self._path}{path}"
                advice = f"give the hub's address without {self._path}"
                raise NotAHub(self.url, what, refused.status, advice) from None
            raise

    def _connections(self) -> Transport:
        """Those of this process."""
        if self._process != os.getpid():
            self._transport.abandon()
            self._transport, self._process = self._new_transport(), os.getpid()
        return self._transport

    def _new_transport(self) -> Transport:
        connect, answer = self._seconds
        return Transport(self._network, connect_seconds=connect, read_seconds=answer)


@contextmanager
def telling_of_a_wrong_token(url: str) -> Iterator[None]:
    """A refusal that is due to the token is `WrongToken`."""
    try:
        yield
    except (NotAHub, WrongToken):
        raise
    except Rejected as refused:
        if refused.status in (UNAUTHORIZED, FORBIDDEN):
            raise WrongToken(url, refused) from None
        raise


def within(ask: Callable[[float], Answered], timeout: float) -> Answered:
    """Ask again, as `patiently`; all tries together take so long at most, and each knows what is
    left of it."""
    if not timeout > 0:
        raise InvalidArgument(f"timeout is {timeout}: give seconds, above 0")
    until = monotonic() + timeout
    return patiently(lambda: ask(max(until - monotonic(), LEAST_SECONDS)), timeout)


def patiently(
    ask: Callable[[], Answered], seconds: float, backoff: Backoff = HUB_BACKOFF
) -> Answered:
    """Ask again while the hub cannot answer, so long at most: it must be harmless to repeat."""
    begun, attempt = monotonic(), 0
    while True:
        try:
            return ask()
        except TryAgain as error:
            wait = backoff.seconds(attempt, random.random(), error.retry_after_seconds)  # noqa: S311
            is_misspelt = isinstance(error, HubUnreachable) and error.cause == NO_HOST
            most = min(seconds, NO_HOST_SECONDS) if is_misspelt else seconds
            if monotonic() + wait > begun + most:
                raise
            log.warning("%s; trying again in %s", hub_trouble(error), in_words(wait))
            if not waited(wait):
                raise
        attempt += 1
