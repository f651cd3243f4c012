"""What a set may be called."""

import re

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
RESERVED = frozenset({"api", "channels", "hub", "health", "metrics", "static"})


def wrong_name(name: str) -> str | None:
    """Why no set can have this name; None if one can.

    >>> wrong_name("hub")
    "the name 'hub' is reserved for the hub itself; choose another"
    """
    if NAME.fullmatch(name) is None:
        return (
            f"{name[:80]!r} is not a valid name for a set: use 1 to 64 of a-z 0-9 - _ . "
            "beginning with a letter or digit"
        )
    if name in RESERVED:
        return f"the name {name!r} is reserved for the hub itself; choose another"
    return None
