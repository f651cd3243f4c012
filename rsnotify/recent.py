"""What a process has done in the last minute: a failover is over by then."""

from typing import Generic, TypeVar

REMEMBERED_SECONDS = 60.0
REMEMBERED_RECORDS = 10_000

Record = TypeVar("Record")


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
        """The records that are not older than a minute."""
        self._forget_oldest(now)
        return {name: record for name, (_, record) in self._noted.items()}

    def _forget_oldest(self, now: float) -> None:
        while self._noted:
            name = next(iter(self._noted))
            is_young = now - self._noted[name][0] <= REMEMBERED_SECONDS
            if is_young and len(self._noted) <= REMEMBERED_RECORDS:
                break
            del self._noted[name]
