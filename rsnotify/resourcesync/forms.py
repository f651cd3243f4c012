"""The forms in which one may read: XML, and JSON for those who ask for it.

`?format=` decides, else `Accept` with its qualities. Of forms that are equally welcome, the one
that was named wins over one that `*/*` covers, and then XML: crawlers get XML.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rsnotify.errors import CloseCode, Rejected

HEADER_CHARACTERS = 1024  # that are read of these headers; browsers send some hundred


class Form(NamedTuple):
    """A form, as `?format=` names it, and its media type."""

    name: str
    media_type: str


XML = Form("xml", "application/xml")
JSON = Form("json", "application/json")
NDJSON = Form("ndjson", "application/x-ndjson")
TURTLE = Form("turtle", "text/turtle")
JSONLD = Form("jsonld", "application/ld+json")

DOCUMENT_FORMS = (XML, JSON)
LIST_FORMS = (XML, JSON, NDJSON)

_ALSO: Mapping[Form, Sequence[str]] = {
    XML: ("text/xml",),
    JSON: (),
    NDJSON: ("application/ndjson", "application/jsonl"),
}
_QUALITY = re.compile(r"\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE).fullmatch

Wish = tuple[float, int]  # the quality, and how exactly it was asked for


def wanted_form(accept: str, named: str | None, offered: Sequence[Form]) -> Form:
    """The form that a peer wants; the first that is offered if it does not say."""
    if named is not None:
        return _named(named, offered)
    ranges = qualities_of(accept)
    return max(offered, key=lambda form: _wish(form, ranges))


def qualities_of(accept: str) -> dict[str, float]:
    """Each media range of `Accept`, or coding of `Accept-Encoding`, in lower case: its quality."""
    return dict(map(_range, accept[:HEADER_CHARACTERS].lower().split(",")))


def _named(name: str, offered: Sequence[Form]) -> Form:
    for form in offered:
        if form.name == name:
            return form
    known = " or ".join(form.name for form in offered)
    raise Rejected(f"format is {name[:80]!r}: it must be {known}", close_code=CloseCode.BAD_REQUEST)


def _range(part: str) -> tuple[str, float]:
    """A media range or a coding, and its quality; 0 if that cannot be read."""
    media_range, *parameters = part.split(";")
    quality = next((each for each in parameters if each.strip().startswith("q")), "q=1")
    found = _QUALITY(quality)
    return media_range.strip(), float(found[1]) if found else 0.0


def _wish(form: Form, ranges: Mapping[str, float]) -> Wish:
    kinds = (form.media_type, *_ALSO[form])
    named = [ranges[kind] for kind in kinds if kind in ranges]
    if named:
        return (max(named), 2) if any(named) else (0.0, 0)
    for specific, wildcard in ((1, "application/*"), (0, "*/*")):
        if wildcard in ranges:
            return ranges[wildcard], specific
    return 0.0, 0


def accepts_gzip(accepted: str | None) -> bool:
    """What `Accept-Encoding` says of gzip."""
    qualities = qualities_of(accepted or "")
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0
