"""What of a model is public and at which address, and what a write to it changes of that.

Rules that hold here: the address that an object had is that of its row before the write, never one
that was remembered; an address is announced as `deleted` before another one is as `created`.
Nothing here knows an ORM.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, tzinfo
from itertools import count
from typing import Any, Literal

from rsnotify.resourcesync.change import Change
from rsnotify_client.batch import check_name
from rsnotify_client.change import TIMES, Fields, make_change

Naive = Literal["utc"] | tzinfo | None

BEFORE = "_rsnotify_before"
"""Where an object keeps its addresses while it is written, by the keys of `PublishedModel`s."""

_keys = count()


class PublishedModel:
    """A model whose public objects are the resources of a set."""

    def __init__(
        self,
        model: type[Any],
        set_name: str,
        loc: Callable[[Any], str | None],
        fields: Callable[[Any], Fields] | None,
        when: Callable[[Any], bool] | None,
        naive: Naive,
    ) -> None:
        check_name(set_name)  # refused here: after the commit the caller would not see the error
        if naive not in (None, "utc") and not isinstance(naive, tzinfo):
            raise ValueError(f'naive is {naive!r}: give "utc", or a tzinfo such as a ZoneInfo')
        self.set_name = set_name
        self.key = next(_keys)
        self._name = model.__name__
        self._loc, self._fields, self._when = loc, fields, when
        self._zone = UTC if naive == "utc" else naive

    def address(self, instance: Any) -> str | None:
        """Where the object is published; None if it is not public."""
        if self._when is not None and not self._when(instance):
            return None
        loc = self._loc(instance)
        if loc is not None and not (isinstance(loc, str) and loc):
            raise ValueError(
                f"{self._name}: the loc of publish_model gives {loc!r}: it must be an address, "
                "or None for an object that is not public"
            )
        return loc

    def change(self, loc: str, kind: str, instance: Any) -> Change:
        """The change at an address; what else is told of it is that of the object, if it lives."""
        told = {} if self._fields is None or kind == "deleted" else self._fields(instance)
        return make_change(loc, kind, self._with_zone(told))

    def _with_zone(self, told: Fields) -> Fields:
        for name in TIMES:
            when = told.get(name)
            if not isinstance(when, datetime) or when.tzinfo is not None:
                continue
            if self._zone is None:
                raise ValueError(
                    f"{self._name}: {name} is {when!r}, which has no time zone: say which one is "
                    'meant, with publish_model(…, naive="utc") or another tzinfo'
                )
            told = told | {name: when.replace(tzinfo=self._zone)}  # type: ignore[assignment]
        return told


def steps(before: Collection[str], now: Collection[str]) -> list[tuple[str, str]]:
    """What happened to each address, from those that were public to those that are.

    >>> steps(["/a", "/b"], ["/b", "/c"])
    [('/a', 'deleted'), ('/b', 'updated'), ('/c', 'created')]
    """
    gone = [(loc, "deleted") for loc in before if loc not in now]
    return gone + [(loc, "updated" if loc in before else "created") for loc in now]
