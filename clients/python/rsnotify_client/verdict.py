"""Whose fault it is that a hub refuses a batch: some changes', its size, or nobody's here.

Nothing here sends anything, nor knows where the changes are kept.
"""

from collections.abc import Mapping

from rsnotify.errors import Fault, Rejected
from rsnotify_client.answer import NotAHub

KEY_IS_USED, TOO_LARGE = 409, 413
ABOUT_THE_CHANGES = frozenset({400, TOO_LARGE, 422})


def refused_changes(error: Rejected, count: int) -> Mapping[int, str] | None:
    """By index, why changes of a batch of `count` are refused.

    An empty answer means: try again with fewer, under a new key. None means that no change is at
    fault (a token, a set that is not there, a wrong address): keep all and wait for the mend.
    """
    named = {
        fault["index"]: _words(fault)
        for fault in error.faults
        if "index" in fault and 0 <= fault["index"] < count
    }
    if named or error.status == KEY_IS_USED:
        return named
    if error.status not in ABOUT_THE_CHANGES:
        return None
    if isinstance(error, NotAHub):  # a proxy may have a limit of its own
        return {} if error.status == TOO_LARGE and count > 1 else None
    return {} if count > 1 else {0: error.detail}


def _words(fault: Fault) -> str:
    """The message, with the field if it does not name that itself."""
    field, message = fault.get("field"), fault["message"]
    return message if not field or message.startswith(field) else f"{field}: {message}"
