"""All sets in turn, some at a time: for what need not be done often."""

from collections.abc import Iterable

SOME = 200


class InTurn:
    """Hands out names until all had their turn, then begins anew."""

    def __init__(self) -> None:
        self._left: list[str] = []

    def next(self, names: Iterable[str]) -> list[str]:
        """The next of these; whoever came since the last beginning has its turn after that."""
        if not self._left:
            self._left = list(names)[::-1]
        some = self._left[-SOME:][::-1]
        del self._left[-SOME:]
        return some
