"""Records of sets, tokens and subscriptions that Redis has lost: what is put back, what goes again.

After a failover, records written in the last seconds may be missing, older ones may stand in their
place, and removed ones may be there again. The newer of two records of the same name counts. What
another process has removed is kept in Redis for a day, and checked there: it is never put back.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

REMEMBERED_SECONDS = 60.0  # a failover is over by then
REMEMBERED_RECORDS = 10_000

Record = TypeVar("Record")


class Recall(NamedTuple):
    """What a registry needs, by name."""

    put_back: Sequence[str]
    remove: Sequence[str]


def plan_recall(
    known: Mapping[str, Record],
    removed: Mapping[str, Record],
    stored: Mapping[str, Record],
    age: Callable[[Record], Any],
) -> Recall:
    """What is missing of a registry that now holds `stored`; a greater `age` is a newer record."""
    put_back = [
        name
        for name, record in known.items()
        if name not in stored or age(stored[name]) < age(record)
    ]
    remove = [
        name
        for name, record in removed.items()
        if name not in known and name in stored and age(stored[name]) <= age(record)
    ]
    return Recall(put_back, remove)


class Recent(Generic[Record]):
    """The records of the last minute, the oldest first; `now` never goes back."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[float, Record]] = {}

    def note(self, name: str, record: Record, now: float) -> None:
        self._noted.pop(name, None)
        self._noted[name] = now, record
        self._forget_oldest(now)

    def forget(self, name: str) -> None:
        self._noted.pop(name, None)

    def __bool__(self) -> bool:
        return bool(self._noted)

    def has(self, name: str, now: float) -> bool:
        """Whether it is there, and not older than a minute."""
        noted = self._noted.get(name)
        return noted is not None and now - noted[0] <= REMEMBERED_SECONDS

    def at(self, now: float) -> dict[str, Record]:
        """Those that are not older than a minute."""
        self._forget_oldest(now)
        return {name: record for name, (_, record) in self._noted.items()}

    def _forget_oldest(self, now: float) -> None:
        while self._noted:
            name = next(iter(self._noted))
            is_young = now - self._noted[name][0] <= REMEMBERED_SECONDS
            if is_young and len(self._noted) <= REMEMBERED_RECORDS:
                break
            del self._noted[name]
