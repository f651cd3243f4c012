"""What a Source may choose for a load, in the address."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from rsnotify.errors import Rejected
from rsnotify.publishing.loads.load import MAX_DELETE


class LoadOptions(msgspec.Struct, frozen=True):
    """How a load is done."""

    tell: bool | None = None  # None: unless the set was empty
    dry_run: bool = False
    max_delete: float = MAX_DELETE  # percent

    def is_told(self, known: int) -> bool:
        """Whether the differences are published, in a set of which so many resources are known."""
        return known > 0 if self.tell is None else self.tell


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("yes or no")
    return text == "yes"


def _percent(text: str) -> float:
    if not text.isascii() or not text.replace(".", "", 1).isdecimal() or float(text) > 100:
        raise ValueError("a number of percent from 0 to 100")
    return float(text)


_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "tell": _yes_or_no,
    "dry_run": _yes_or_no,
    "max_delete": _percent,
}


def read_options(query: Iterable[tuple[str, str]]) -> LoadOptions:
    """The options; `Rejected` for one that is unknown or cannot be understood."""
    options: dict[str, Any] = {}
    for name, text in query:
        if name in options:
            raise Rejected(f"{name} is given more than once: keep one")
        options[name] = _read(name, text)
    return LoadOptions(**options)


def _read(name: str, text: str) -> Any:
    if name not in _OPTIONS:
        raise Rejected(f"{name[:80]!r} is not understood here; there are {', '.join(_OPTIONS)}")
    try:
        return _OPTIONS[name](text)
    except ValueError as error:
        raise Rejected(f"{name} is {text[:80]!r}: it must be {error}") from None
