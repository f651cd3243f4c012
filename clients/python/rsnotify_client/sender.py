"""The thread that publishes what waits in a store, until it is published or refused.

Rules that hold here: a batch goes out with the key that the store keeps for it, and again with it
until the hub has answered; only a change that the hub finds faulty is given up. A hub that does not
answer stops all channels, any other trouble only its own. The thread starts with the first change,
never at import, and again in a forked process. A process that ends waits for what is to be sent;
the caller of a later change waits for that. Nothing here knows where the changes are kept.
"""

import atexit
import logging
import random
import sys
import threading
from collections.abc import Callable, Mapping
from threading import Lock
from time import monotonic, sleep
from typing import NamedTuple
from weakref import WeakSet

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.address import printable
from rsnotify_client.answer import (
    HUB_BACKOFF,
    NO_JSON,
    HubUnreachable,
    hub_trouble,
    refused_changes,
)
from rsnotify_client.errors import InvalidArgument, TimedOut, TokenUnavailable
from rsnotify_client.hub import UNAUTHORIZED, HubClient
from rsnotify_client.queue import BATCH_CHANGES, Batch, ChangeStore, OutboxError, Refusal
from rsnotify_client.threads import is_given_up, notify_of_forks

SAY_AGAIN_SECONDS = 60.0  # what has been logged, if it lasts
LOOK_SECONDS = 1.0  # another process may have left something; the bell is a hint
TURN_SECONDS = 0.02  # until another sender of the same store may have finished
EXIT_SECONDS = 5.0  # that the end of the process waits until all is sent


class ThreadBell:
    """A bell that any thread rings, and that wakes the one that waits once for all messages."""

    def __init__(self) -> None:
        self._silence = Lock()
        self._silence.acquire()

    def ring(self) -> None:
        if self._silence.locked():
            try:  # noqa: SIM105 - to call what it proposes takes longer than to wake a thread
                self._silence.release()
            except RuntimeError:  # another thread was quicker
                pass

    def wait(self, seconds: float) -> bool:
        """Whether it rang, now or before; afterwards it is silent."""
        return self._silence.acquire(timeout=max(seconds, 0.0))


log = logging.getLogger(__name__)


class Trouble(NamedTuple):
    """Why a channel waits, and until when."""

    error: Rejected | TryAgain
    attempt: int
    since: float
    until: float
    said: float


NO_ANSWER = "the hub has not answered yet"


class Troubles:
    """The troubles of one sender, by channel; None stands for all channels."""

    def __init__(self) -> None:
        self._known: dict[ChannelName | None, Trouble] = {}
        self._eager_since = 0.0
        self._last = NO_ANSWER  # shown while it is tried again, too

    def __bool__(self) -> bool:
        return bool(self._known)

    def forgive(self, now: float) -> None:
        """Note that somebody waits: pauses that began before are not waited for."""
        self._eager_since = now

    def postpone(
        self,
        channel: ChannelName,
        error: Rejected | TryAgain,
        now: float,
        chance: float,
        *,
        asked: float | None = None,
    ) -> None:
        """The channel is not tried for a while, longer each time.

        `asked` is when that was asked which failed: an answer to what was asked before somebody
        began to wait means nothing to them.
        """
        is_of_all = isinstance(error, HubUnreachable | TokenUnavailable)
        where = None if is_of_all else channel
        known = self._known.get(where)
        is_new = known is None or known.since < self._eager_since
        attempt = 0 if known is None or is_new else known.attempt + 1
        asked_for = getattr(error, "retry_after_seconds", 0)
        pause = HUB_BACKOFF.seconds(attempt, chance, asked_for)
        said = 0.0 if known is None else known.said
        if not said or now - said > SAY_AGAIN_SECONDS:
            said = now
            log.warning("%s; it will be tried until it succeeds", _said(error))
        since = now if asked is None else asked
        self._known[where] = Trouble(error, attempt, since, now + pause, said)
        self._last = _said(error)

    def end(self, channel: ChannelName) -> bool:
        """Note that the hub has taken something; return whether that was in doubt."""
        self._last = NO_ANSWER
        ended = [self._known.pop(where, None) for where in (None, channel)]
        return any(trouble is not None and trouble.said for trouble in ended)

    def pause(self, now: float, longest: float) -> float:
        """Until the next try; trouble that is over without our doing leaves nothing to wait for."""
        self._known = {
            where: trouble for where, trouble in self._known.items() if trouble.until > now
        }
        return min([longest, *(trouble.until - now for trouble in self._known.values())])

    def postponed(self, now: float) -> list[ChannelName] | None:
        """The channels that are not to be tried now; None if none is."""
        waiting = [
            where
            for where, trouble in self._known.items()
            if trouble.until > now and trouble.since >= self._eager_since
        ]
        return None if None in waiting else [channel for channel in waiting if channel]

    def hopeless(self, since: float) -> Rejected | None:
        """A trouble that waiting will not end, if there is one."""
        for trouble in list(self._known.values()):
            if isinstance(trouble.error, Rejected) and trouble.since >= since:
                return trouble.error
        return None

    def words(self) -> str:
        """The first trouble in words, or the last that there was."""
        said = [_said(trouble.error) for trouble in list(self._known.values())]
        return said[0] if said else self._last


def _said(error: Rejected | TryAgain) -> str:
    return hub_trouble(error) if isinstance(error, TryAgain) else error.detail


class RefusedChange(NamedTuple):
    """A change that the hub refuses, and why. It has been given up."""

    set_name: str
    change: Change
    reason: str


class Counters(NamedTuple):
    """What a publisher has done in this process; `waiting` is what the store holds."""

    taken: int
    published: int
    refused: int
    waiting: int
    requests: int
    retries: int


class Sender:
    """Publishes from one store to one hub."""

    def __init__(
        self,
        store: ChangeStore,
        hub: HubClient,
        *,
        batch_seconds: float,
        look_seconds: float = LOOK_SECONDS,
        on_refused: Callable[[RefusedChange], object] | None = None,
    ) -> None:
        self._store = store
        self._hub = hub
        self._batch_seconds = batch_seconds
        self._look_seconds = look_seconds
        self._on_refused = on_refused
        self.is_ending = False
        """The process ends: whatever sent until now sends no more."""
        self._exit_seconds = EXIT_SECONDS
        self._begin()
        notify_of_forks(self)
        _senders.add(self)

    def _begin(self) -> None:
        self._thread: threading.Thread | None = None
        self._thread_id: int | None = None
        self._starting = threading.Lock()
        self._bell = ThreadBell()
        self._hurry = threading.Event()
        self._progress = threading.Condition()
        self._stopping = False
        self._at_most = BATCH_CHANGES
        self._turn_seconds = TURN_SECONDS
        self._troubles = Troubles()
        self._asked = 0.0
        self._failure: Exception | None = None  # of the store, or ours
        self.published = self.refused = self.requests = self.retries = 0

    def before_fork(self) -> None:
        """Nothing to do: each lock and event is made again in the child."""

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._begin()

    # From any thread ----------------------------------------------------------------------------

    def wake(self) -> None:
        """Note that something waits to be sent."""
        self._bell.ring()
        if self._thread is None:
            try:
                self.start()
            except RuntimeError as error:  # a change is taken by now: whoever repeats it doubles it
                log.error("%s: what waits is published once one can be started", error)
            if self.is_ending:
                self._send_last()

    def start(self) -> None:
        """Begin to send, if nobody has yet in this process."""
        with self._starting:
            if self._thread is None and not sys.is_finalizing():  # no thread runs after that
                self._stopping = False
                thread = threading.Thread(target=self._run, name="rsnotify-sender", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    if "shutdown" not in str(error):  # no threads are left, for example
                        raise
                    self.is_ending = True  # since Python 3.12 no thread begins then
                    return
                self._thread, self._thread_id = thread, thread.ident

    def counters(self, taken: int = 0) -> Counters:
        waiting = self._store.waiting()
        return Counters(taken, self.published, self.refused, waiting, self.requests, self.retries)

    def is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread_id

    def flush(self, timeout: float | None = None) -> None:
        """Wait until what waits now is published or refused.

        `TimedOut` says what is in the way; `Rejected` that waiting will not help; `OutboxError`
        that the outbox cannot be read now.
        """
        if self.is_own_thread():
            raise TimedOut("on_refused cannot flush: what it waits for is behind it")
        self._flush(timeout, is_patient=True)

    def _flush(self, timeout: float | None, *, is_patient: bool) -> None:
        if (ends := self._store.ends()) is None:
            return
        began = monotonic()
        self._troubles.forgive(began)
        self._hurry.set()
        self._bell.ring()
        self.start()
        while (now := self._store.ends()) is not None and now[0] <= ends[1]:
            if (hopeless := self._troubles.hopeless(began)) is not None:
                raise hopeless
            waited = monotonic() - began
            is_late = (timeout is not None and waited >= timeout) or is_given_up()
            in_trouble = (self._troubles or self._failure) and not is_patient
            if is_late or in_trouble or self._stopping or sys.is_finalizing():
                raise TimedOut(self._in_the_way(waited))
            if self._thread is None:  # none begins any more: whoever waits sends
                sleep(min(self._try_to_send_all(), TURN_SECONDS))
                continue
            with self._progress:
                self._progress.wait(TURN_SECONDS)

    def _in_the_way(self, waited: float) -> str:
        why = self._failure or self._troubles.words()
        if sys.is_finalizing():
            why = "the process has no threads any more"
        elif self._stopping:
            why = "it was closed meanwhile"
        return f"{_changes(self._store.waiting())} not published after {waited:.1f} s: {why}"

    def stop(self, seconds: float = EXIT_SECONDS) -> None:
        """End the thread as soon as its request is answered; what waits stays where it is.

        Its end is waited for so long, but at least 0.02 s, enough for an idle thread to end.
        """
        self._stopping = True
        self._bell.ring()
        self._hurry.set()
        if self._thread is not None and not self.is_own_thread():
            self._thread.join(min(max(seconds, TURN_SECONDS), threading.TIMEOUT_MAX))
        self._thread = self._thread_id = None

    def end(self) -> None:
        """Wait, as the process ends, for what is to be sent."""
        self.is_ending = True
        if self._thread is not None:  # else it has sent nothing: perhaps a forked one
            self._send_last()

    def _send_last(self) -> None:
        """Send what waits at the end, or comes later; all together may take `EXIT_SECONDS`."""
        began = monotonic()
        try:
            self._flush(self._exit_seconds, is_patient=not self._store.lasts)
        except (TimedOut, Rejected, OutboxError) as error:
            left = what_stays(error) if self._store.lasts else "the changes are lost"
            log.error("the process ends: %s; %s", error, left)
        self._exit_seconds -= monotonic() - began
        self.stop(self._exit_seconds)

    # In its own thread --------------------------------------------------------------------------

    def _run(self) -> None:
        idle = 0.0
        while not self._stopping:
            if self._bell.wait(idle) and not self._hurry.is_set():
                self._hurry.wait(self._batch_seconds)  # for what comes along
            self._bell.wait(0)  # what rang meanwhile is sent now
            self._hurry.clear()
            idle = self._try_to_send_all()
        self._store.close()  # what a late answer has opened after its owner closed it

    def _try_to_send_all(self) -> float:
        try:
            idle, self._failure = self._send_all(), None
        except Exception as error:
            if type(error) is not type(self._failure):
                ours = None if isinstance(error, OutboxError) else error
                log.error("%s; it will be tried until it succeeds", error, exc_info=ours)
            idle, self._failure = self._look_seconds, error
        return idle

    def _send_all(self) -> float:
        """Send all that can be sent now; how long to sleep if nobody wakes us."""
        if not self._store.lead():
            self._turn_seconds = min(self._turn_seconds * 2, self._look_seconds)
            return self._turn_seconds if self._store.ends() else self._look_seconds
        self._turn_seconds = TURN_SECONDS
        try:
            while not self._stopping and (batch := self._next()) is not None:
                self._send(batch)
        finally:
            self._store.rest()
        return self._troubles.pause(monotonic(), self._look_seconds)

    def _next(self) -> Batch | None:
        postponed = self._troubles.postponed(monotonic())
        return None if postponed is None else self._store.take(postponed, self._at_most)

    def _send(self, batch: Batch) -> None:
        self.requests += 1
        self._asked = monotonic()
        try:
            self._hub.publish(batch.channel, batch.body, batch.key)
        except TryAgain as error:
            self._postpone(batch, error)
        except Rejected as error:
            self._refuse_or_keep(batch, error)
        except InvalidArgument as error:  # what the token function gave is no token
            self._refuse_or_keep(batch, Rejected(str(error), status=UNAUTHORIZED))
        else:
            self._settle(batch)
        with self._progress:
            self._progress.notify_all()

    def _settle(self, batch: Batch) -> None:
        self.published += self._store.remove(batch, batch.ids)
        self._at_most = min(self._at_most * 2, BATCH_CHANGES)
        if self._troubles.end(batch.channel):
            log.info("publishing to %s again", self._hub.url)

    def _refuse_or_keep(self, batch: Batch, error: Rejected) -> None:
        refused = refused_changes(error, len(batch.ids))
        if refused is None:
            self._postpone(batch, error)
        elif refused:
            self._give_up(batch, refused)
        else:
            self._at_most = max(1, len(batch.ids) // 2)
            self._store.remove(batch, ())
            if len(batch.ids) == 1:  # only its key is another one now: that may not help either
                self._postpone(batch, error)

    def _give_up(self, batch: Batch, refused: Mapping[int, str]) -> None:
        """Give these changes up; the others of the batch go out again, under a new key."""
        last = max(refused)
        refusal = Refusal(refused[last], batch.changes[last])
        if not self._store.remove(batch, {batch.ids[index] for index in refused}, refusal):
            return  # another sender has reported it
        self.refused += len(refused)
        for index, reason in refused.items():
            content = batch.changes[index]
            log.error(
                "the hub refuses a change of %s: %s; it is given up: %s",
                printable(str(batch.channel)),
                reason,
                printable(content.decode(errors="replace")),
            )
            if self._on_refused is not None:
                self._tell(self._on_refused, batch.channel.set_name, content, reason)

    def _tell(
        self, on_refused: Callable[[RefusedChange], object], set_name: str, content: bytes, why: str
    ) -> None:
        try:
            change = RefusedChange(set_name, _decode(content), why)
        except NO_JSON as error:  # whoever wrote it into a table made no change of it
            log.error("on_refused is not called, for that is no change: %s", error)
            return
        try:
            on_refused(change)
        except BaseException:  # sys.exit() ends its thread alone, and who sends then?
            log.exception("on_refused failed for %s", change)

    def _postpone(self, batch: Batch, error: Rejected | TryAgain) -> None:
        self.retries += 1
        now, chance = monotonic(), random.random()  # noqa: S311
        self._troubles.postpone(batch.channel, error, now, chance, asked=self._asked)


_senders: WeakSet[Sender] = WeakSet()


@atexit.register
def _end_all() -> None:
    """End all senders; registered at import, so that a first publish at the exit is sent, too."""
    for each in list(_senders):
        each.end()


def what_stays(error: Exception) -> str:
    """What becomes of unpublished changes in an outbox."""
    if isinstance(error, OutboxError):  # nobody knows what it has, or whether it is there
        return "what was written to the outbox stays there"
    return "the changes stay in the outbox"


_decode = msgspec.json.Decoder(Change).decode


def _changes(count: int) -> str:
    return "1 change is" if count == 1 else f"{count} changes are"
