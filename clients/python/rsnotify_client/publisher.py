"""Publish changes to a hub: each exactly once, however often the network fails.

Rules that hold here: a call puts its change into the outbox or the queue in memory, and returns; a
thread of this process sends it. So a hub that is away never delays a caller, unless the queue in
memory is full and the caller chose to wait.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from rsnotify.errors import Error, Rejected
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.delete_guard import wrong_percent
from rsnotify.resourcesync.notification import Kind
from rsnotify_client.address import EXAMPLE
from rsnotify_client.change import ChangeMethods
from rsnotify_client.errors import InvalidArgument, TimedOut
from rsnotify_client.hub import (
    JSON,
    LEAST_SECONDS,
    Accepted,
    HubClient,
    telling_of_a_wrong_token,
    within,
)
from rsnotify_client.loading import (
    LOAD_SECONDS,
    Loaded,
    LoadRequest,
    State,
    load,
    position,
    spooled,
)
from rsnotify_client.network import NetworkOptions
from rsnotify_client.queue import (
    MemoryQueue,
    OutboxError,
    WhenFull,
    channel_of,
    check_name,
    checked_key,
    encode,
    encoded,
)
from rsnotify_client.sender import Counters, RefusedChange, Sender, what_stays
from rsnotify_client.threads import is_given_up
from rsnotify_client.token import HeldToken, Token

if TYPE_CHECKING:
    from rsnotify_client.outboxfile import OutboxFile

log = logging.getLogger(__name__)

QUEUE_SIZE = 10_000
BATCH_SECONDS = 0.003
CLOSE_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
LOST = "what is not published is lost when the process ends"


class PublisherClosed(Error, RuntimeError):
    """The change was not taken: the publisher has begun to close."""


class Publisher(ChangeMethods[None]):
    """Publishes to the sets that its token allows; safe in any thread and in forked processes.

    Without `outbox`, at most `queue_size` changes wait in memory; a further one waits for room or
    raises `QueueFull`, as `when_full` says. With `outbox`, changes wait in that SQLite file, which
    several processes may share, and survive the end of the process. With `enabled=False` nothing is
    published, and neither `url` nor `outbox` is looked at: for tests, and where there is no hub.
    """

    def __init__(
        self,
        url: str,
        token: Token | None = None,
        *,
        outbox: str | os.PathLike[str] | None = None,
        queue_size: int = QUEUE_SIZE,
        when_full: WhenFull = "wait",
        batch_seconds: float = BATCH_SECONDS,
        on_refused: Callable[[RefusedChange], object] | None = None,
        network: NetworkOptions | None = None,
        enabled: bool = True,
    ) -> None:
        self._is_enabled = enabled
        if not enabled:
            url, token, outbox, network = EXAMPLE, None, None, None  # nothing is asked or kept
        held = HeldToken.of(token)
        self._hub = HubClient(url, held, network=network)
        self._address = url, held
        self._network = network
        self._store = _store(outbox, queue_size, when_full)
        self._sender = Sender(
            self._store, self._hub, batch_seconds=batch_seconds, on_refused=on_refused
        )
        self._is_closed = False

    def __enter__(self) -> Self:
        if self._store.lasts:  # and may hold what an earlier process left
            self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except (TimedOut, Rejected) as error:
            if exc_type is None:
                raise
            log.error("%s", error)

    def send(self, set_name: str, change: Change, *, kind: Kind = "change") -> None:
        """Put any change in its set's queue: of a resource, or of a capability document."""
        self._put(set_name, change, kind, self._cannot_wait)

    def _put(
        self, set_name: str, change: Change, kind: Kind, cannot_wait: Callable[[], bool]
    ) -> None:
        if self._is_closed and not self._sender.is_own_thread():
            raise PublisherClosed("the publisher is closed: it takes no more changes")
        channel, body = channel_of(set_name, kind), encode(change)
        if self._is_enabled:
            self._store.put(channel, body, cannot_wait)
            self._sender.wake()

    def _cannot_wait(self) -> bool:
        """The sender's thread makes the room; a publisher that is closed makes none, and none is
        made as the process ends."""
        is_over = self._is_closed or self._sender.is_ending
        return is_over or self._sender.is_own_thread() or is_given_up()

    def start(self) -> None:
        """Send what an earlier process has left in the outbox, before the first change comes."""
        if self._is_enabled:
            self._sender.start()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every change put so far is published or refused.

        Raises `TimedOut`, or `Rejected` when waiting will not help: a refused token, a set that
        is not there. The changes stay in the queue and are tried on. If the publisher is closed
        meanwhile, that is `TimedOut`, too.
        """
        self._sender.flush(timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Flush and end. What is left then stays in the outbox; without one it is lost, and the
        error says so. Once it has begun, `send` raises `PublisherClosed`, but in `on_refused`;
        where it waits for room, `QueueFull`."""
        until = monotonic() + timeout
        self._is_closed = True
        try:
            self._send_rest(until)
        except (TimedOut, Rejected, OutboxError) as error:
            self._end_with(error)
        finally:
            self._sender.stop(until - monotonic())
            self._store.close()
            self._hub.close()

    def _send_rest(self, until: float) -> None:
        """`on_refused` is called after a change was removed, and may publish others."""
        while True:
            self._sender.flush(max(until - monotonic(), 0.0))
            self._sender.stop(until - monotonic())
            if self._store.lasts or self._store.ends() is None:
                return

    def _end_with(self, error: TimedOut | Rejected | OutboxError) -> None:
        """Log what an outbox keeps; raise what will be lost."""
        if self._store.lasts:
            log.warning("%s; %s", error, what_stays(error))
        elif isinstance(error, Rejected):
            raise _with_more(error, LOST) from None
        else:
            raise TimedOut(f"{error}; {LOST}") from None

    @property
    def counters(self) -> Counters:
        """What it has done in this process so far."""
        return self._sender.counters(self._store.taken)

    def publish(
        self,
        set_name: str,
        changes: Iterable[Change],
        *,
        kind: Kind = "change",
        key: str | None = None,
        timeout: float = PATIENCE_SECONDS,
    ) -> Accepted:
        """Publish these changes now and together: all are accepted, or none.

        They do not pass through the queue. While the hub is away this waits for it, at most
        `timeout` seconds; then it raises `TryAgain`.
        """
        several = isinstance(changes, Iterable) and not isinstance(changes, str | bytes | Mapping)
        return self.publish_body(
            set_name,
            encoded(msgspec.json.encode, [*changes] if several else changes),
            JSON,
            kind=kind,
            key=key,
            timeout=timeout,
        )

    def publish_body(
        self,
        set_name: str,
        body: bytes,
        content_type: str,
        *,
        kind: Kind = "change",
        key: str | None = None,
        timeout: float = PATIENCE_SECONDS,
    ) -> Accepted:
        """Publish a body in any form that the hub reads, as `publish` does."""
        channel, key = channel_of(set_name, kind), checked_key(key)
        if not self._is_enabled:
            return Accepted(0, "", "")
        return within(partial(self._hub.publish, channel, body, key, content_type), timeout)

    def position(self, set_name: str, *, timeout: float = PATIENCE_SECONDS) -> str:
        """Where the set stands: ask before you begin to read a state that you `load`."""
        check_name(set_name)
        return position(self._hub, set_name, timeout) if self._is_enabled else ""

    def load(
        self,
        set_name: str,
        states: Iterable[State],
        *,
        as_of: str | None = None,
        overwrite: bool = False,
        publish: bool | None = None,
        max_delete: float | None = None,
        key: str | None = None,
        timeout: float = LOAD_SECONDS,
        progress: Callable[[int], object] | None = None,
    ) -> Loaded:
        """Make these the resources of the set: all of them, and no others; wait until it is done.

        Each state is a dict such as `{"loc": "http://example.com/res1", "length": 5}`, or a
        `Change`. `as_of` is the `position` of the set before the states were read: what was
        published after it stays as it is. Without it nothing is taken back that was published since
        the load before, unless `overwrite` says so: the load is `Rejected`.

        All states are read before anything is sent, and `progress` is called with how many have
        been, after each thousand and at the end. Then what this publisher was given before is
        published, so that the load does not come before older changes; that and the load may take
        `timeout` seconds together. Then it raises `TimedOut` or `TryAgain`: repeat it with its key.
        """
        check_name(set_name)
        key = checked_key(key)
        if not timeout > 0:
            raise InvalidArgument(f"timeout is {timeout}: give seconds, above 0")
        if max_delete is not None and (wrong := wrong_percent(max_delete)) is not None:
            raise InvalidArgument(wrong)
        if not self._is_enabled:
            return Loaded(set_name, 0, 0, 0, 0, 0, 0, published=False, as_of=as_of)
        wanted = LoadRequest(publish, max_delete, as_of=as_of, overwrite=overwrite)
        with spooled(states, progress) as body:
            until = monotonic() + timeout
            self.flush(min(PATIENCE_SECONDS, timeout))
            with telling_of_a_wrong_token(self._hub.url):
                outcome = load(
                    *(*self._address, set_name, body, wanted),
                    key=key,
                    network=self._network,
                    timeout=max(until - monotonic(), LEAST_SECONDS),
                )
        return msgspec.convert(outcome, Loaded)


def _with_more(error: Rejected, more: str) -> Rejected:
    """A copy of the refusal with more words; the sender keeps the original."""
    longer = type(error).__new__(type(error), f"{error.detail}; {more}")
    vars(longer).update(vars(error), detail=str(longer))
    return longer


def _store(
    outbox: str | os.PathLike[str] | None, queue_size: int, when_full: WhenFull
) -> "MemoryQueue | OutboxFile":
    if outbox is None:
        return MemoryQueue(queue_size, when_full)
    from rsnotify_client.outboxfile import OutboxFile  # noqa: PLC0415  # brings sqlite3

    return OutboxFile(outbox)
