"""What caches have, and how long they may keep what is of a set, if it never changes.

A set may become private, or be removed, and whoever may not read it any more must not be answered
by a cache for ever. And a Redis may lose its newest seconds, and go on with other changes.
"""

import re

from rsnotify.resourcesync.change import HOUR

KEPT_SECONDS = 3_600  # after this a set that became private or was removed is closed everywhere
YOUNG_SECONDS = 60  # what Redis may lose yet

_OPAQUE = re.compile(r'(?:W/)?("[^"]*")')


def max_age(newest: int, now: int) -> str:
    """For something that has a change of then as its newest, or was made then; in microseconds.

    >>> max_age(0, HOUR), max_age(0, HOUR + 1)
    ('max-age=60', 'max-age=3600, immutable')
    """
    is_old = now - newest > HOUR
    return f"max-age={KEPT_SECONDS}, immutable" if is_old else f"max-age={YOUNG_SECONDS}"


def has_tag(if_none_match: str | None, tag: str) -> bool:
    """Whether the peer has what this entity tag stands for, by the weak comparison of RFC 9110.

    >>> has_tag('"a", W/"b,c"', 'W/"b,c"'), has_tag('W/"bc"', '"b"'), has_tag(" * ", '"b"')
    (True, False, True)
    """
    sent = if_none_match or ""
    return sent.strip() == "*" or tag.removeprefix("W/") in _OPAQUE.findall(sent)
