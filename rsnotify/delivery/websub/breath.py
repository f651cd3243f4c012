"""How many calls may be young at once, so that publishing keeps its share of the machine.

Rules that hold here: a receiver that answers within milliseconds is as fast with a dozen calls
under way as with a hundred, but a hundred answers that are ready at once make a Source wait for its
own; one that takes longer costs nothing while it takes. So what is limited is how many of the calls
under way began within the last two beats. Nothing here knows what is called.
"""

import asyncio
from collections.abc import Callable

BEAT_SECONDS = 0.005
YOUNG = 12


class Breath:
    """Counts the calls under way by the beat in which they began; `beaten` is told of each beat."""

    def __init__(self, beaten: Callable[[], None]) -> None:
        self._beaten = beaten
        self._beat = 0
        self._now = 0  # began in this beat and are still under way
        self._before = 0  # began in the beat before
        self._beating = False

    @property
    def has_room(self) -> bool:
        return self._now + self._before < YOUNG

    def begin(self) -> int:
        """One more; what is to be handed to `end`."""
        self._now += 1
        if not self._beating:
            self._beating = True
            asyncio.get_running_loop().call_later(BEAT_SECONDS, self._next)
        return self._beat

    def end(self, beat: int) -> None:
        if beat == self._beat:
            self._now -= 1
        elif beat == self._beat - 1:
            self._before -= 1

    def _next(self) -> None:
        self._beat += 1
        self._before, self._now = self._now, 0
        self._beating = self._before > 0
        if self._beating:
            asyncio.get_running_loop().call_later(BEAT_SECONDS, self._next)
        self._beaten()
