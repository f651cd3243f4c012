"""Decides what leaves memory when a size limit is passed: the least recently used, entirely."""

from typing import Generic, NamedTuple, TypeVar

Owner = TypeVar("Owner")


class _Usage(NamedTuple):
    size: int
    used_at: float


class Budget(Generic[Owner]):
    """How many bytes each owner holds, the least recently used owner first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._kept: dict[Owner, _Usage] = {}

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._kept

    def use(self, owner: Owner, size: int, now: float) -> list[Owner]:
        """Note that the owner was used and holds so much; return those that must be released."""
        before = self._kept.pop(owner, None)
        self._kept[owner] = _Usage(size, now)
        self.total += size if before is None else size - before.size
        return self._evict()

    def forget(self, owner: Owner) -> None:
        """The owner holds nothing any more."""
        kept = self._kept.pop(owner, None)
        if kept is not None:
            self.total -= kept.size

    def idle(self, since: float) -> list[Owner]:
        """The keepers that were not used since then."""
        return [owner for owner, kept in self._kept.items() if kept.used_at < since]

    def _evict(self) -> list[Owner]:
        given: list[Owner] = []
        while self.total > self.limit:
            owner = next(iter(self._kept))
            self.forget(owner)
            given.append(owner)
        return given

    def __repr__(self) -> str:
        return f"<Budget {self.total} of {self.limit} bytes, {len(self._kept)} keepers>"
