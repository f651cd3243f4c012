"""All sets in turn, some at a time: for what need not be done often."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from rsnotify.errors import TryAgain

SOME = 200


class InTurn:
    """Looks at some in each round until all had their turn, then begins anew."""

    def __init__(self) -> None:
        self._left: list[str] = []

    async def round(
        self, names: Iterable[str], look: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        """Look at the next of these; whoever came since the last beginning has its turn after that.

        If that is not possible now, the next round begins with them."""
        if not self._left:
            self._left = list(names)[::-1]
        some = self._left[-SOME:]
        del self._left[-SOME:]
        try:
            await look(some[::-1])
        except TryAgain:
            self._left += some
            raise
