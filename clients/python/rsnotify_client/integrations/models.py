"""What is wrong with an application's settings of the client, in words.

Rules that hold here: what cannot be meant is named, a misspelt name too, for it would lose changes
without a word; `shown` is how a setting's name stands in the sentence. A token is never shown.
"""

import os
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from itertools import count
from typing import Any, Literal

from rsnotify.resourcesync.change import Change, ChangeKind
from rsnotify_client.change import TIMES, Fields, make_change
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.queue import check_name

TEXTS = ("URL", "TOKEN", "BASE_URL")


def wrong_settings(given: Mapping[str, Any], known: Collection[str], shown: str) -> list[str]:
    """Names that no setting has, and values of the wrong type.

    >>> wrong_settings({"OUTBX": "a.db", "ENABLED": True}, ["OUTBOX", "ENABLED"], "RSNOTIFY_{}")
    ['RSNOTIFY_OUTBX is no setting; did you mean OUTBOX?']
    """
    problems = [
        f"{shown.format(name)} {_meant(name, known)}" for name in given if name not in known
    ]
    if not isinstance(enabled := given.get("ENABLED", True), bool):
        problems.append(f"{shown.format('ENABLED')} is {enabled!r}: must be True or False")
    wrong = [name for name in TEXTS if not isinstance(given.get(name), str | None)]
    if not isinstance(given.get("OUTBOX"), str | os.PathLike | None):
        wrong.append("OUTBOX")
    return problems + [f"{shown.format(name)} must be text" for name in wrong]


def _meant(name: str, known: Collection[str]) -> str:
    close = get_close_matches(str(name), known, n=1)
    return f"is no setting; did you mean {close[0]}?" if close else "is no setting"


def wrong_outbox(path: str | os.PathLike[str] | None, shown: str) -> list[str]:
    """Why no outbox can be at this path; nothing is made there."""
    if path is None:
        return []
    from rsnotify_client.database import wrong_place  # noqa: PLC0415  # brings sqlite3

    wrong = wrong_place(path)
    return [] if wrong is None else [f"{shown.format('OUTBOX')} is {str(path)!r}: {wrong}"]


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
            raise InvalidArgument(f'naive is {naive!r}: give "utc", or a tzinfo such as a ZoneInfo')
        self.set_name = set_name
        self.key = next(_keys)
        self.model, self.name = model, model.__name__
        self._loc, self._fields, self._when = loc, fields, when
        self._zone = UTC if naive == "utc" else naive

    def address(self, instance: Any) -> str | None:
        """Where the object is published; None if it is not public."""
        if self._when is not None and not self._when(instance):
            return None
        loc = self._loc(instance)
        if loc is not None and not (isinstance(loc, str) and loc):
            raise InvalidArgument(
                f"{self.name}: the loc of publish_model gives {loc!r}: it must be an address, "
                "or None for an object that is not public"
            )
        return loc

    def change(self, loc: str, kind: ChangeKind, instance: Any) -> Change:
        """The change at an address; its other fields are those of the object, if it lives."""
        fields = {} if self._fields is None or kind == "deleted" else self._fields(instance)
        return make_change(loc, kind, self._with_zone(fields))

    def _with_zone(self, fields: Fields) -> Fields:
        for name in TIMES:
            when = fields.get(name)
            if not isinstance(when, datetime) or when.tzinfo is not None:
                continue
            if self._zone is None:
                raise InvalidArgument(
                    f"{self.name}: {name} is {when!r}, which has no time zone: say which one is "
                    'meant, with publish_model(…, naive="utc") or another tzinfo'
                )
            fields = fields | {name: when.replace(tzinfo=self._zone)}  # type: ignore[assignment]
        return fields


def steps(before: Collection[str], now: Collection[str]) -> list[tuple[str, ChangeKind]]:
    """What happened to each address, from those that were public to those that are.

    >>> steps(["/a", "/b"], ["/b", "/c"])
    [('/a', 'deleted'), ('/b', 'updated'), ('/c', 'created')]
    """
    gone: list[tuple[str, ChangeKind]] = [(loc, "deleted") for loc in before if loc not in now]
    return gone + [(loc, "updated" if loc in before else "created") for loc in now]
