"""The engines that can keep a journal, Redis and Valkey: their versions, and which reads whose
data.

Versions are compared by their first two numbers: patches do not change files. What is not known to
be readable counts as unreadable.
"""

import re
from typing import NamedTuple, Self

OLDEST = {"redis": (7, 0), "valkey": (7, 2)}
OLDEST_IN_WORDS = "Redis 7.0, Valkey 7.2, or later"
LAST_SHARED = (7, 2)  # Valkey began as a copy of Redis 7.2; later Redis writes files of its own

_NAME_AND_VERSION = re.compile(r"(?is)(redis|valkey)\b.{1,10}?(\d+)\.(\d+)\.(\d+)")


class Engine(NamedTuple):
    """Redis or Valkey, of one version."""

    name: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.name.capitalize()} {'.'.join(map(str, self.version))}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """From any text with a name and a version side by side; None where there are none.

        >>> str(Engine.parse("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0"))
        'Redis 7.0.15'
        >>> str(Engine.parse("valkey 9.1.2"))
        'Valkey 9.1.2'
        """
        found = _NAME_AND_VERSION.search(text)
        if found is None:
            return None
        name, *numbers = found.groups()
        major, minor, patch = map(int, numbers)
        return cls(name.lower(), (major, minor, patch))

    @property
    def series(self) -> tuple[int, int]:
        """The part of the version by which files and commands differ."""
        return self.version[:2]

    @property
    def is_new_enough(self) -> bool:
        return self.series >= OLDEST[self.name]

    def reads(self, data: Self) -> bool:
        """Whether it can go on with the files that `data` has written."""
        if self.name == data.name:
            return self.series >= data.series
        return self.name == "valkey" and data.series <= LAST_SHARED
