"""DCAT without a hub: what is written of a tree of nodes, in both forms."""

import json

import pytest

from rsnotify.documents.dcat import (
    VOCABULARIES,
    Iri,
    Moment,
    Thing,
    between,
    catalog,
    dataset,
    listed,
    render,
)
from rsnotify.documents.documents import Offered
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.forms import JSONLD, TURTLE
from rsnotify.sets.options import SetRecord

NOW = Position.parse("2026-11-20T21:34:00Z")
BASE = "https://hub.example.org"
SET = SetRecord(name="a", created=str(NOW))


def turtle(*nodes: Thing) -> str:
    return render(nodes, TURTLE).decode().partition("\n\n")[2]


def linked(*nodes: Thing) -> list[dict[str, object]]:
    document = json.loads(render(nodes, JSONLD))
    assert document["@context"] == VOCABULARIES
    found: list[dict[str, object]] = document["@graph"]
    return found


NODE = Thing(
    "dcat:Dataset",
    Iri("http://a.example/b c"),
    (
        ("dct:title", 'a "b" \\ c\n\x00'),
        ("dct:issued", Moment(NOW)),
        ("dct:publisher", Thing("foaf:Agent", None, (("foaf:name", "\u00fc"),))),
    ),
)


def test_a_node_is_written_with_those_within_it():
    assert turtle(NODE) == (
        "<http://a.example/b%20c> a dcat:Dataset ;\n"
        '  dct:title "a \\u0022b\\u0022 \\u005c c\\u000a\\u0000" ;\n'
        '  dct:issued "2026-11-20T21:34:00.000000Z"^^xsd:dateTime ;\n'
        '  dct:publisher [ a foaf:Agent ;\n  foaf:name "\u00fc" ] .\n'
    )
    assert linked(NODE) == [
        {
            "@type": "dcat:Dataset",
            "@id": "http://a.example/b%20c",
            "dct:title": ['a "b" \\ c\n\x00'],
            "dct:issued": [{"@value": "2026-11-20T21:34:00.000000Z", "@type": "xsd:dateTime"}],
            "dct:publisher": [{"@type": "foaf:Agent", "foaf:name": ["\u00fc"]}],
        }
    ]


def test_a_node_without_an_address_may_stand_alone():
    assert turtle(Thing("foaf:Agent", None, ())) == "[] a foaf:Agent .\n"
    assert linked(Thing("foaf:Agent", None, ())) == [{"@type": "foaf:Agent"}]


@pytest.mark.parametrize("character", ["\x00", " ", "<", ">", '"', "{", "}", "|", "^", "`", "\\"])
def test_what_no_iri_may_have_is_encoded(character):
    assert Iri(f"u:a{character}b").escaped == f"u:a%{ord(character):02X}b"
    assert Iri("u:/?#[]@!$&'()*+,;=-._~%41\u00fc").escaped == "u:/?#[]@!$&'()*+,;=-._~%41\u00fc"


@pytest.mark.parametrize("form", [TURTLE, JSONLD])
def test_a_catalog_is_written_piece_by_piece_as_it_is_at_once(form):
    nodes = [catalog(BASE, NOW, "a@b.c"), *listed(BASE, SET)]
    pieces = [render([node], form) for node in nodes]
    whole = render(nodes, form)
    assert len(whole) < sum(map(len, pieces))
    assert whole.count(between(form)) >= len(nodes) - 1


def test_a_title_a_licence_and_an_address_are_said_where_they_are_known():
    plain, *_ = dataset(BASE, Offered(SET), NOW, None)
    said = dict(plain.properties)
    assert said["dct:title"] == "a"
    assert not {"dct:license", "dcat:contactPoint"} & said.keys()
    known = SetRecord(name="a", created=str(NOW), title="Theses", license="http://l.example/")
    described, *_ = dataset(BASE, Offered(known), NOW, "a+b@c.example")
    said = dict(described.properties)
    assert (said["dct:title"], said["dct:license"]) == ("Theses", Iri("http://l.example/"))
    assert said["dcat:contactPoint"] == Thing(
        "vcard:Kind", None, (("vcard:hasEmail", Iri("mailto:a%2Bb@c.example")),)
    )


def test_each_way_to_read_a_set_is_a_distribution():
    own = SetRecord(name="a", created=str(NOW), resourcedump="http://s.example/dump.xml")
    offered = Offered(own, has_resource_list=True, has_resource_list_archive=True)
    ways = [
        dict(value.properties)
        for name, value in dataset(BASE, offered, NOW, None)[0].properties
        if name == "dcat:distribution" and isinstance(value, Thing)
    ]
    xml = Iri("https://www.iana.org/assignments/media-types/application/xml")
    assert {str(way["dct:title"]): way.get("dcat:mediaType") for way in ways} == {
        "Resource List": xml,
        "Resource Dump": None,
        "Change List": xml,
        "Archive of Resource Lists": xml,
        "Channel of changes": None,
        "Channel of documents": None,
    }


def test_of_all_that_is_elsewhere_it_is_said_once_what_it_is():
    known = SetRecord(name="a", created=str(NOW), license="http://l.example/")
    _, *elsewhere = dataset(BASE, Offered(known, has_resource_list=True), NOW, None)
    kinds = {thing.address.address: thing.kind for thing in elsewhere if thing.address}
    assert len(kinds) == len(elsewhere)
    assert kinds["http://l.example/"] == "dct:LicenseDocument"
    assert kinds["https://www.iana.org/assignments/media-types/application/xml"] == "dct:MediaType"
    assert kinds[f"{BASE}/a/resourcelist.xml"] == "rdfs:Resource"
