"""`Mirror`: the copy of an `AsyncMirror`, for a program without an event loop.

Rules that hold here: the loop runs in a thread of its own, so a caller may have one that it blocks.
A call that is interrupted, by Ctrl-C for instance, ends what it has begun before it raises.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from rsnotify_client.network import NetworkOptions
from rsnotify_client.token import Token
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import Event, OnStatus, Report
from rsnotify_mirror.republication import Republication
from rsnotify_mirror.storing import Hook

Made = TypeVar("Made")

BlockingHook = Callable[[Event, bytes | None], object]
"""As the `Hook` of an `AsyncMirror`, but a plain function; it is called in a thread."""


class Mirror:
    """A copy of one Source in one directory.

    `hook` is called after each change that is in its place, with the content if it is in memory; if
    it raises `TryAgain`, it is called again later. `report` is called with each thing that happens.
    With `republish` the copy is published to a set of a hub.
    """

    def __init__(
        self,
        url: str,
        directory: str | os.PathLike[str],
        options: Options | None = None,
        *,
        token: Token | None = None,
        hook: BlockingHook | None = None,
        report: Report | None = None,
        on_status: OnStatus | None = None,
        network: NetworkOptions | None = None,
        republish: Republication | None = None,
    ) -> None:
        called = None if hook is None else _in_a_thread(hook)
        self._loop = asyncio.new_event_loop()
        self._running: asyncio.Task[Any] | None = None
        self._thread = Thread(target=self._loop.run_forever, name="rsnotify-mirror", daemon=True)
        self._thread.start()

        async def made() -> AsyncMirror:  # in the thread of the loop, for its database is of that
            return AsyncMirror(
                *(url, directory, options),
                token=token,
                hook=called,
                report=report,
                on_status=on_status,
                network=network,
                republish=republish,
            )

        try:
            self._mirror = self._ran(made())
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def once(self) -> bool:
        """Bring the copy up to date; return whether it is, and not stopped before."""
        try:
            return self._ran(self._mirror.once())
        except CancelledError:
            return False

    def run(self) -> None:
        """Keep the copy in step until `stop` is called, in another thread or a signal's handler."""
        try:
            self._ran(self._mirror.run())
        except CancelledError:
            return

    def stop(self) -> None:
        """End what `run` or `once` does; the copy is as far as it has come."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel)

    def close(self) -> None:
        """Let go of the directory; afterwards this is of no more use."""
        if self._thread.is_alive():
            try:
                self._ran(self._mirror.__aexit__(None, None, None))
            finally:
                self._end()

    def _end(self) -> None:
        self._ran(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _ran(self, work: Coroutine[Any, Any, Made]) -> Made:
        """What has come of it in the loop; what interrupts the wait ends it, and is raised then."""
        outcome: Future[Made] = Future()
        self._loop.call_soon_threadsafe(self._begin, work, outcome)
        try:
            return outcome.result()
        except CancelledError:
            raise
        except BaseException:
            if not outcome.done():
                self.stop()
                outcome.exception()
            raise

    def _begin(self, work: Coroutine[Any, Any, Made], outcome: "Future[Made]") -> None:
        self._running = task = self._loop.create_task(work)

        def settle(_: "asyncio.Task[Made]") -> None:
            self._running = None
            if task.cancelled():
                outcome.set_exception(CancelledError())
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        task.add_done_callback(settle)


def _in_a_thread(hook: BlockingHook) -> Hook:
    async def call(event: Event, content: bytes | None) -> None:
        await asyncio.to_thread(hook, event, content)

    return call
