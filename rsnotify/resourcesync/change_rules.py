"""What is wrong with a published change: every fault, its field, and how to correct it.

`VALUES` judges single values, as in a document; this module adds what only publishers must observe.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rsnotify.resourcesync.change import (
    CHANGE_TYPES,
    HEX_DIGEST,
    NO_RARE_FIELDS,
    VALUES,
    Change,
    Link,
    not_ascii,
    problem,
    rare_fields,
)
from rsnotify.resourcesync.notification import Kind
from rsnotify.resourcesync.tables import FRAMEWORK_CHANGES

URI_CHARACTERS = 2_048  # the Sitemap schema's limit for `loc`
TEXT_CHARACTERS = 1_024  # of any other value
LINKS = 100  # a fragment's size is capped too; this names the cause
LENGTH_END = 10**18  # as in a document: what has more digits is not read there


class _Checked(NamedTuple):
    """A field's name, its longest text, and its check."""

    name: str
    longest: int
    fits: Callable[[str], object]


def _checked(struct: type[Change | Link]) -> tuple[_Checked, ...]:
    """Its fields, without those that are judged by rules of their own."""
    return tuple(
        _Checked(
            name,
            URI_CHARACTERS if name in ("loc", "href") else TEXT_CHARACTERS,
            VALUES[name].fits if name in VALUES else bool,
        )
        for name in struct.__struct_fields__
        if name not in ("links", "capability", "index")
    )


_OF_CHANGE, _OF_LINK = _checked(Change), _checked(Link)

_LOC, _LASTMOD, _TYPE = (VALUES[name].fits for name in ("loc", "lastmod", "type"))

FieldFault = tuple[str, str]


def faults_of(change: Change, kind: Kind) -> list[FieldFault]:
    """Every fault of a change that is published to a channel of this kind."""
    if kind == "change" and _is_plain(change):
        return []
    faults = list(_described(change, _OF_CHANGE, ""))
    if not any(field == "loc" for field, _ in faults) and (wrong := _wrong_address(change)):
        faults.append(("loc", wrong))
    if change.links:
        faults += _links(change.links)
    if kind == "framework":
        faults += _of_framework(change)
    elif change.capability is not None or change.index is not None:
        field = "index" if change.capability is None else "capability"
        faults.append((field, "is only for framework changes; post those to the set's /framework"))
    return faults


def _wrong_address(change: Change) -> str | None:
    """Why nobody could fetch it, or read a list with it; what was published may be deleted."""
    if change.change == "deleted":
        return None
    if change.loc[:5].lower() == "file:":
        return "loc is on your own machine: publish the address at which others can fetch it"
    if has_login(change.loc):
        return LOGIN.format("loc")
    return None if change.loc.isascii() else not_ascii(change.loc)


LOGIN = "{} has a login in it, and everybody reads it: leave out what stands before the @"


def has_login(address: str) -> bool:
    """Whether an address names a user, and maybe a password, before its host.

    >>> [has_login(f"https://{each}/a") for each in ("u:p@h", "u@h", "h", "h/@", "h?@")]
    [True, True, False, False, False]
    """
    return "@" in address and "@" in re.split(r"[/?#\\]", address.partition("//")[2], maxsplit=1)[0]


def _is_plain(change: Change) -> bool:
    """Whether it is as most are, and right: found sooner than all that may be wrong. Its address
    can be fetched by anybody, and it has one digest at most."""
    c = change
    return bool(
        (len(c.loc) <= URI_CHARACTERS and _LOC(c.loc) and c.change in CHANGE_TYPES)
        and (c.loc.startswith("http") and c.loc.isascii() and not has_login(c.loc))
        and (c.lastmod is None or (len(c.lastmod) <= TEXT_CHARACTERS and _LASTMOD(c.lastmod)))
        and (c.hash is None or HEX_DIGEST(c.hash))
        and (c.length is None or 0 <= c.length < LENGTH_END)
        and (c.type is None or (len(c.type) <= TEXT_CHARACTERS and _TYPE(c.type)))
        and c.datetime is None
        and rare_fields(c) == NO_RARE_FIELDS
    )


def _described(
    described: Change | Link, fields: tuple[_Checked, ...], prefix: str
) -> Iterator[FieldFault]:
    for name, longest, fits in fields:
        value = getattr(described, name)
        if value is not None:
            text = str(value)
            if len(text) > longest or not fits(text):
                yield prefix + name, _unfit(name, text, longest)


def _unfit(name: str, value: str, longest: int) -> str:
    if len(value) > longest:
        return f"{name} has {len(value)} characters; at most {longest} are allowed"
    return problem(name, value) or f"{name} is empty: leave it out"


def _links(links: tuple[Link, ...]) -> Iterator[FieldFault]:
    if len(links) > LINKS:
        yield "links", f"has {len(links)} links; at most {LINKS} are allowed"
        return
    for number, link in enumerate(links):
        yield from _described(link, _OF_LINK, f"links[{number}].")
        if has_login(link.href):
            yield f"links[{number}].href", LOGIN.format("href")


def _of_framework(change: Change) -> Iterator[FieldFault]:
    if change.capability is None:
        yield (
            "capability",
            "is missing; name the kind of document that changed, such as resourcelist",
        )
    elif change.capability not in FRAMEWORK_CHANGES:
        known = ", ".join(FRAMEWORK_CHANGES)
        yield "capability", f"capability is {change.capability[:80]!r}: it must be one of {known}"
    elif (
        change.change in CHANGE_TYPES and change.change not in FRAMEWORK_CHANGES[change.capability]
    ):
        yield "change", _not_in_table(change.change, change.capability)
    if change.index is not None:
        yield from _index(change.index)
    if change.index == change.loc:
        yield "loc", "is the index itself; name a document under it, and the index in `index`"


def _index(index: str) -> Iterator[FieldFault]:
    if len(index) > URI_CHARACTERS:
        yield "index", _unfit("index", index, URI_CHARACTERS)
    elif message := problem("loc", index):
        yield "index", message
    elif has_login(index):
        yield "index", LOGIN.format("index")


def _not_in_table(change: str, capability: str) -> str:
    allowed = " or ".join(sorted(FRAMEWORK_CHANGES[capability]))
    return (
        f"a {capability} may be {allowed}, not {change} "
        f"(Framework Notification 1.0.1, table of changes, row {capability})"
    )
