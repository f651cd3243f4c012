"""What the hub and its sets are, in DCAT 3: one graph, written as Turtle and as JSON-LD.

A description is a tree of things. What stands in it may come from a stranger: both writers escape
it, and what an IRI cannot have is percent-encoded before either.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from rsnotify.documents.documents import Offered, capabilities
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.forms import TURTLE, XML, Form
from rsnotify.resourcesync.xml_writer import Entry
from rsnotify.sets.options import SetRecord

VOCABULARIES = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
MEDIA_TYPES = "https://www.iana.org/assignments/media-types/"
TITLES = {
    "resourcelist": "Resource List",
    "resourcedump": "Resource Dump",
    "changelist": "Change List",
    "changedump": "Change Dump",
    "change-notification": "Channel of changes",
    "framework-notification": "Channel of documents",
}
"""Of capabilities; an archive is named after what it has."""

KINDS = {
    "dcat:accessURL": "rdfs:Resource",
    "dcat:mediaType": "dct:MediaType",
    "dct:license": "dct:LicenseDocument",
}
"""Of what stands elsewhere: the shapes of DCAT-AP 3.0 want it said."""

_NO_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\]')
_NO_TURTLE = re.compile(r'[\x00-\x1f"\\\x7f]')


class Iri(NamedTuple):
    """Something elsewhere."""

    address: str

    @property
    def escaped(self) -> str:
        return _NO_IRI.sub(lambda found: quote(found[0], safe=""), self.address)


class Moment(NamedTuple):
    """A time."""

    position: Position


class Thing(NamedTuple):
    """What something is, and its address if it has one."""

    kind: str
    address: Iri | None
    properties: "Sequence[tuple[str, Value]]"


Value = str | Iri | Moment | Thing


# --- what is said --------------------------------------------------------------------------------


def dataset(base: str, offered: Offered, changed: Position, email: str | None) -> list[Thing]:
    """A set, with all ways to read it; then the kind of each thing elsewhere that it names."""
    record = offered.record
    license_ = () if record.license is None else (("dct:license", Iri(record.license)),)
    entries = capabilities(base, offered).entries
    found = Thing(
        "dcat:Dataset",
        address_of_set(base, record),
        (
            *_about_set(record),
            ("dct:modified", Moment(changed)),
            *license_,
            *_contact(email),
            *(("dcat:distribution", _distribution(base, each, license_)) for each in entries),
        ),
    )
    return [found, *dict.fromkeys(_elsewhere(found))]


def catalog(base: str, changed: Position, email: str | None) -> Thing:
    """The hub, without its sets."""
    publisher = Thing("foaf:Agent", None, (("foaf:name", base),))
    return Thing(
        "dcat:Catalog",
        address_of_hub(base),
        (
            ("dct:title", f"Sets of resources at {base}"),
            ("dct:description", "Each set can be copied and followed by ResourceSync."),
            ("dct:modified", Moment(changed)),
            ("dct:publisher", publisher),
            *_contact(email),
        ),
    )


def listed(base: str, record: SetRecord) -> list[Thing]:
    """A set in the catalog, which has more of it elsewhere."""
    address = address_of_set(base, record)
    more = ("rdfs:seeAlso", Iri(f"{address.address}/dcat.ttl"))
    return [
        Thing("dcat:Catalog", address_of_hub(base), (("dcat:dataset", address),)),
        Thing("dcat:Dataset", address, (*_about_set(record), more)),
    ]


def address_of_hub(base: str) -> Iri:
    return Iri(f"{base}/")


def address_of_set(base: str, record: SetRecord) -> Iri:
    return Iri(f"{base}/{record.name}")


def _about_set(record: SetRecord) -> Iterator[tuple[str, Value]]:
    title = record.title or record.name
    yield "dct:title", title
    yield "dct:description", f"The resources of {title}, and their changes, by ResourceSync."
    yield "dct:identifier", record.name
    yield "dct:issued", Moment(Position.parse(record.created))


def _contact(email: str | None) -> Iterator[tuple[str, Value]]:
    if email is not None:
        mailbox = Iri(f"mailto:{quote(email, safe='@')}")
        yield "dcat:contactPoint", Thing("vcard:Kind", None, (("vcard:hasEmail", mailbox),))


def _distribution(base: str, entry: Entry, license_: Iterable[tuple[str, Value]]) -> Thing:
    capability = (entry.md and entry.md.capability) or ""
    of, archive, _ = capability.partition("-archive")
    is_document_of_hub = entry.loc.startswith(f"{base}/") and not capability.endswith(
        "notification"
    )
    media_type = (("dcat:mediaType", Iri(MEDIA_TYPES + XML.media_type)),)
    return Thing(
        "dcat:Distribution",
        None,
        (
            ("dct:title", f"Archive of {TITLES[of]}s" if archive else TITLES[of]),
            ("dcat:accessURL", Iri(entry.loc)),
            *(media_type if is_document_of_hub else ()),
            *license_,
        ),
    )


def _elsewhere(thing: Thing) -> Iterator[Thing]:
    """The kind of each address that a thing names, or one of those within it."""
    for name, value in thing.properties:
        if isinstance(value, Thing):
            yield from _elsewhere(value)
        elif isinstance(value, Iri) and name in KINDS:
            yield Thing(KINDS[name], value, ())


# --- how it is written ---------------------------------------------------------------------------


def render(things: Iterable[Thing], form: Form) -> bytes:
    """A whole document."""
    return b"".join((head(form), between(form).join(render_things(things, form)), foot(form)))


def head(form: Form) -> bytes:
    if form is TURTLE:
        lines = (f"@prefix {name}: <{iri}> .\n" for name, iri in VOCABULARIES.items())
        return "".join((*lines, "\n")).encode()
    return b'{"@context":%b,"@graph":[' % msgspec.json.encode(VOCABULARIES)


def between(form: Form) -> bytes:
    return b"\n" if form is TURTLE else b",\n"


def foot(form: Form) -> bytes:
    return b"" if form is TURTLE else b"]}\n"


def render_things(things: Iterable[Thing], form: Form) -> list[bytes]:
    if form is TURTLE:
        return [_turtle(thing).encode() for thing in things]
    return [msgspec.json.encode(_json(thing)) for thing in things]


def _turtle(thing: Thing) -> str:
    """A thing without an address stands within the one that has it."""
    subject = "[]" if thing.address is None else _turtle_value(thing.address)
    return f"{subject} {_turtle_properties(thing)} .\n"


def _turtle_properties(thing: Thing) -> str:
    parts = [
        f"a {thing.kind}",
        *(f"{name} {_turtle_value(each)}" for name, each in thing.properties),
    ]
    return " ;\n  ".join(parts)


def _turtle_value(value: Value) -> str:
    match value:
        case Iri():
            return f"<{value.escaped}>"
        case Moment():
            return f'"{value.position}"^^xsd:dateTime'
        case Thing():
            return f"[ {_turtle_properties(value)} ]"
    return '"' + _NO_TURTLE.sub(lambda found: f"\\u{ord(found[0]):04x}", value) + '"'


def _json(thing: Thing) -> dict[str, Any]:
    found: dict[str, Any] = {"@type": thing.kind}
    if thing.address is not None:
        found["@id"] = thing.address.escaped
    for name, value in thing.properties:
        found.setdefault(name, []).append(_json_value(value))
    return found


def _json_value(value: Value) -> Any:
    match value:
        case Iri():
            return {"@id": value.escaped}
        case Moment():
            return {"@value": str(value.position), "@type": "xsd:dateTime"}
        case Thing():
            return _json(value)
    return value
