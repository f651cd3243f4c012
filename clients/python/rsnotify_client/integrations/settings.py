"""What is wrong with an application's settings of the client, in words.

Rules that hold here: what cannot be meant is named, a misspelt name too, for it would lose changes
without a word; `shown` is how a setting's name stands in the sentence. A token is never shown.
"""

import os
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

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
    from rsnotify_client.outboxfile import wrong_place  # noqa: PLC0415  # brings sqlite3

    wrong = wrong_place(path)
    return [] if wrong is None else [f"{shown.format('OUTBOX')} is {str(path)!r}: {wrong}"]
