"""Which resource a record of OAI-PMH is, and what it says of it.

Rules that hold here: nothing is fetched; a record that names no resource is said, not guessed.
"""

import re
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import NamedTuple
from urllib.parse import quote

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Change, Link
from rsnotify_bridge.rules import VIA, exact
from rsnotify_client.oaipmh import OaiPage, OaiRecord, OaiRequest, stamp_of

GROUP = "rsnotify.bridge.loc"
FIELDS = ("identifier", "local")
_FIELD = re.compile(r"\{(\+?)(\w+)\}")

LocFunction = Callable[[OaiRecord], str | None]


class LocRule(NamedTuple):
    """Which resource a record is: by itself, by an element, by a template, or by a function."""

    element: str | None = None
    template: str | None = None
    function: LocFunction | None = None

    @classmethod
    def of(cls, element: str | None, template: str | None, function: str | None) -> "LocRule":
        if sum(each is not None for each in (element, template, function)) > 1:
            raise InvalidSettings(["give one of --loc-from, --loc and --loc-by"])
        for _, name in _FIELD.findall(template or ""):
            if name not in FIELDS:
                raise InvalidSettings([f"--loc: {{{name}}} is not known: {', '.join(FIELDS)} are"])
        if template is not None and not _FIELD.search(template):
            raise InvalidSettings(["--loc: name a field such as {identifier} in it"])
        return cls(element, template, None if function is None else _function(function))

    @property
    def needs_metadata(self) -> bool:
        return self.element is not None or self.function is not None

    def loc(self, record: OaiRecord, address: str) -> str | None:
        """The resource of a record that itself has this address."""
        if self.function is not None:
            return self.function(record)
        if self.element is not None:
            values = record.fields.get(self.element, ())
            return next((each for each in values if re.match(r"https?://\S+$", each)), None)
        if self.template is None:
            return address
        local = record.identifier.rpartition(":")[2]
        given = {"identifier": record.identifier, "local": local}
        return _FIELD.sub(lambda m: _written(given[m[2]], keeps=bool(m[1])), self.template)


def _written(value: str, *, keeps: bool) -> str:
    """As RFC 6570 does it: {+name} keeps what has a meaning in addresses."""
    return quote(value, safe=":/?#[]@!$&'()*+,;=" if keeps else "")


def _function(name: str) -> LocFunction:
    for found in entry_points(group=GROUP, name=name):
        function: LocFunction = found.load()
        return function
    raise InvalidSettings([f"--loc-by {name}: no package has that entry point of {GROUP}"])


def changes_of(
    page: OaiPage, request: OaiRequest, rule: LocRule, skip: Callable[[str], object]
) -> Iterator[tuple[str, Change]]:
    """Each record as what it says of its resource."""
    if page.nameless:
        skip(f"{page.nameless} records without an identifier")
    for record in page.records:
        stamp = stamp_of(record)
        if stamp is None and record.datestamp:
            skip(f"the datestamp {record.datestamp[:40]!r} of {record.identifier[:200]}")
        when = exact(stamp)
        address = request.record(record.identifier)
        via = (Link(VIA, address, when),)
        try:
            loc = rule.loc(record, address)
        except Exception as error:  # of somebody's own function
            skip(f"{record.identifier[:200]}: {type(error).__name__}: {error}")
            continue
        if record.is_deleted:
            yield record.identifier, Change(loc or "", "deleted", stamp, when, links=via)
        elif loc is None:
            skip(f"{record.identifier[:200]} names no resource: see --loc-from, --loc")
        else:
            yield record.identifier, Change(loc, "created", stamp, when, links=via)
