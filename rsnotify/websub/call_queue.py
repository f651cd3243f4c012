"""The calls to callbacks that wait for a slot, and those in progress.

Only a few calls begin in one turn of the event loop, so that publishers get their turns between
them. Nobody is called for a share whose claim could end during the call. Nothing here knows what a
call sends.
"""

import asyncio
import logging
from functools import partial

from rsnotify.errors import TryAgain
from rsnotify.websub.call_slots import Slots
from rsnotify.websub.share import Call, Share

log = logging.getLogger(__name__)

BEGUN_AT_ONCE = 4  # calls that begin in one turn of the event loop: half a millisecond


class Queue:
    """The calls that wait, and those in progress."""

    def __init__(self, slots: Slots[Call]) -> None:
        self._slots = slots
        self._is_scheduled = False

    @property
    def is_idle(self) -> bool:
        """Whether no call is about to begin."""
        return not self._is_scheduled

    @property
    def calls(self) -> int:
        """How many are in progress."""
        return self._slots.running

    def add(self, call: Call) -> None:
        self._slots.add(call)
        self._schedule()

    def requeue(self, share: Share) -> None:
        """Add the calls again that were postponed until the claim was renewed."""
        postponed, share.postponed = share.postponed, []
        for call in postponed:
            self.add(call)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._is_scheduled = False
        for _ in range(BEGUN_AT_ONCE):
            call = self._slots.take()
            if call is None:
                return
            if call.share.may_call:
                task = asyncio.create_task(call.make())
                call.share.tasks.add(task)
                task.add_done_callback(partial(self._end, call))
            else:
                call.share.postponed.append(call)
                self._slots.done(call)
        self._schedule()

    def _end(self, call: Call, task: asyncio.Task[None]) -> None:
        call.share.tasks.discard(task)
        self._slots.done(call)
        self._schedule()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._postpone(call, error)

    def _postpone(self, call: Call, error: BaseException) -> None:
        """Make the call again once the claim was renewed."""
        call.share.postponed.append(call)
        if isinstance(error, TryAgain):
            log.warning("%r waits: %s", call, error.detail)
        else:
            log.error("a bug while calling %s", call.callback, exc_info=error)
