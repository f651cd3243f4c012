"""The delete guard: how much of what is known may vanish at once before it is not believed.

One rule for loads, lists that are compared, mirrors, audits, bridges and folders: a list may have
been cut short, a disk not mounted. Nothing here knows what becomes of deletions that are too many.
"""

from math import ceil
from typing import cast

MAX_DELETE = 10.0  # percent of what is known
FEW = 10
"""Deletions that those who watch alone believe in any case, if others are left."""


def wrong_percent(max_delete: object) -> str | None:
    """Why this is no `max_delete`; None if it is one.

    >>> wrong_percent(float("nan")), wrong_percent(100)
    ('max_delete is nan: give a number of percent, from 0 to 100', None)
    """
    is_number = isinstance(max_delete, int | float) and not isinstance(max_delete, bool)
    if is_number and 0 <= cast("float", max_delete) <= 100:
        return None
    return f"max_delete is {max_delete!r}: give a number of percent, from 0 to 100"


def too_many(
    deleted: int, known: int, max_delete: float, what: str = "resources", *, few: int = 0
) -> str | None:
    """Why this many of those known may not be deleted, to end a sentence; None if they may.

    They may if they are no more than `max_delete` percent: 0 allows none, 100 all. Up to `few` may
    too, unless none is allowed or they are all that is known.

    >>> too_many(1, 10, 10.0), too_many(10, 20, 10.0, few=10), too_many(20, 20, 100.0)
    (None, None, None)
    >>> too_many(34, 100, 10.0, "files")
    '34 of 100 files, which is more than 10 %; if that is meant, say so with max_delete=34 (in a \
command: --max-delete 34)'
    """
    percent = 100 * deleted / max(1, known)
    is_few = deleted <= few and deleted < known and max_delete > 0
    if not deleted or percent <= max_delete or max_delete >= 100 or is_few:
        return None
    least = min(ceil(percent), 100)
    return (
        f"{deleted} of {known} {what}, which is more than {max_delete:g} %; if that is meant, "
        f"say so with max_delete={least} (in a command: --max-delete {least})"
    )
