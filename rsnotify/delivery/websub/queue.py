"""Who is called next: the line in front of the slots, and the calls under way.

Rules that hold here: only a few calls begin in one turn of the event loop, so that whoever
publishes meanwhile has turns of its own; nobody is called for a share whose claim could end during
the call. Nothing here knows what a call is about.
"""

import asyncio
import logging
from functools import partial

from rsnotify.core.websub.slots import Slots
from rsnotify.delivery.websub.state import Call, Share
from rsnotify.errors import TryAgain

log = logging.getLogger(__name__)

BEGUN_AT_ONCE = 4  # calls that begin in one turn of the event loop: half a millisecond


class Queue:
    """The calls that wait, and those that are under way."""

    def __init__(self, slots: Slots[Call]) -> None:
        self._slots = slots
        self._is_woken = False

    @property
    def rests(self) -> bool:
        """Nobody is about to be called."""
        return not self._is_woken

    def add(self, call: Call) -> None:
        """Stand in line."""
        self._slots.add(call)
        self._wake()

    def unpark(self, share: Share) -> None:
        """Those that had to wait for the claim stand in line again."""
        parked, share.parked = share.parked, []
        for call in parked:
            self.add(call)

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._is_woken = False
        for _ in range(BEGUN_AT_ONCE):
            call = self._slots.take()
            if call is None:
                return
            self._begin(call)
        self._wake()

    def _begin(self, call: Call) -> None:
        if call.share.may_call:
            task = asyncio.create_task(self._run(call))
            call.share.tasks.add(task)
            task.add_done_callback(partial(self._end, call))
        else:
            call.share.parked.append(call)
            self._slots.done(call)

    async def _run(self, call: Call) -> None:
        try:
            await call.work(call)
        except TryAgain as error:
            log.warning("%r waits: %s", call, error.detail)
            call.share.parked.append(call)
        except Exception:
            log.exception("a bug while calling %s", call.callback)
            call.share.parked.append(call)

    def _end(self, call: Call, task: asyncio.Task[None]) -> None:
        call.share.tasks.discard(task)
        self._slots.done(call)
        self._wake()
