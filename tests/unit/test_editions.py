"""A document is judged by its own edition, and everything that stands in it is seen."""

import pytest

from rsnotify.resourcesync.document_rules import judge_document
from rsnotify.resourcesync.xml_writer import RS_NS, SITEMAP_NS

DRAFT_NS = "http://www.openarchives.org/rs/"
AT = "2013-01-03T09:00:00Z"
LATER = "2013-01-03T10:00:00Z"


def document(body: str, root: str = "urlset", namespace: str = RS_NS) -> bytes:
    return f'<{root} xmlns="{SITEMAP_NS}" xmlns:rs="{namespace}">{body}</{root}>'.encode()


def url(name: str, rest: str = "", lastmod: str = AT) -> str:
    return f"<url><loc>http://example.com/{name}</loc><lastmod>{lastmod}</lastmod>{rest}</url>"


def messages(data: bytes) -> list[str]:
    return [
        f"{each.path}: {each.message} [{each.clause}]" for each in judge_document(data).violations
    ]


# Editions --------------------------------------------------------------------------------------

TO_LIST = '<rs:ln rel="resourcesync" href="http://example.com/capabilitylist.xml"/>'
CHANGED = '<rs:md change="updated"/>'
LIST_0_9 = f'{TO_LIST}<rs:md capability="resourcelist" from="{AT}"/>'
CHANGES_0_9 = f'{TO_LIST}<rs:md capability="changelist" from="{AT}" until="{LATER}"/>'

DESCRIBED = url("c", '<rs:md capability="capabilitylist"/>')
PACKED = url("a", '<rs:md path="/a"/>')
OF_0_9 = {
    "description": document(f'<rs:md capability="resourcesync"/>{DESCRIBED}'),
    "list": document(LIST_0_9 + url("a")),
    "list without links": document(f'<rs:md capability="resourcelist" from="{AT}"/>{url("a")}'),
    "part of an index": document(
        f'{TO_LIST}<rs:ln rel="up" href="http://example.com/index.xml"/>'
        f'<rs:md capability="resourcelist" from="{AT}"/>{url("a")}'
    ),
    "index": document(
        LIST_0_9 + "<sitemap><loc>http://example.com/1.xml</loc></sitemap>", "sitemapindex"
    ),
    "changes": document(CHANGES_0_9 + url("a", CHANGED) + url("a", CHANGED, LATER)),
    "manifest": document(f'<rs:md capability="resourcedump-manifest" from="{AT}"/>{PACKED}'),
}
OF_THE_DRAFT = {
    "list": document(
        f'<rs:md capability="resourcelist" modified="{AT}"/>'
        + url("a", '<rs:md length="8876" etag="114c12b-213f-4ccb066bfd140" type="text/html"/>'),
        namespace=DRAFT_NS,
    ),
    "changes": document(
        f'<rs:md capability="changelist" modified="{AT}"/>{url("a", CHANGED)}', namespace=DRAFT_NS
    ),
}


@pytest.mark.parametrize("name", OF_0_9)
def test_a_document_of_0_9_is_known_and_valid(name):
    assert (judge_document(OF_0_9[name]).edition, messages(OF_0_9[name])) == ("0.9", [])


@pytest.mark.parametrize("name", OF_THE_DRAFT)
def test_a_document_of_the_draft_is_known_and_valid(name):
    data = OF_THE_DRAFT[name]
    assert (judge_document(data).edition, messages(data)) == ("draft of 2013", [])


WRONG = [
    (document(LIST_0_9 + url("a") * 2), "loc 'http://example.com/a' stands in", "0.9, 4.1"),
    (document(CHANGES_0_9 + url("a")), "change is missing", "0.9, 6.1"),
    (
        document(CHANGES_0_9 + url("a", CHANGED, LATER) + url("a", CHANGED)),
        "is before that of an entry above",
        "0.9, 6.1",
    ),
    (document(LIST_0_9 + url("a", '<rs:md etag="1"/>')), "there is no attribute etag", "Core 7"),
    (
        document(f'<rs:md capability="changelist"/>{url("a")}', namespace=DRAFT_NS),
        "change is missing",
        "Draft of 2013, Figure 6",
    ),
    (
        document(f'<rs:md capability="description"/>{url("a")}', namespace=DRAFT_NS),
        "is no document that the specifications define",
        "Core 7",
    ),
]


@pytest.mark.parametrize(("data", "told", "clause"), WRONG)
def test_an_old_document_is_held_to_its_own_text(data, told, clause):
    (message,) = messages(data)
    assert told in message
    assert f"[{clause}]" in message


def test_a_resource_list_of_today_whose_time_is_called_from_is_not_of_0_9():
    up = '<rs:ln rel="up" href="http://example.com/c"/>'
    data = document(f'{up}<rs:md capability="resourcelist" from="{AT}"/>{url("a")}')
    assert judge_document(data).edition == "1.1"
    assert any("at is missing" in message for message in messages(data))


# All of a document ---------------------------------------------------------------------------

UP = '<rs:ln rel="up" href="http://example.com/capabilitylist.xml"/>'
HEAD = f'{UP}<rs:md capability="resourcelist" at="{AT}"/>'
MISPLACED = {
    f"{HEAD}{url('a')}lost": "/urlset: the text 'lost' stands between elements [Core 7]",
    f"{HEAD}<url>lost<loc>http://example.com/a</loc></url>": (
        "/urlset/url[1]: the text 'lost' stands between elements [Core 7]"
    ),
    f"{url('a')}{HEAD}": "/urlset/rs:ln: stands after an entry [Sitemap protocol]",
    f"{HEAD}<url><lastmod>{AT}</lastmod><loc>http://example.com/a</loc></url>": (
        "/urlset/url[1]/loc: stands after <lastmod> [Sitemap protocol]"
    ),
    f"{HEAD}<url><rs:md length='1'/><loc>http://example.com/a</loc></url>": (
        "/urlset/url[1]/loc: stands after <rs:md> [Sitemap protocol]"
    ),
    f'{HEAD}<url id="1"><loc>http://example.com/a</loc></url>': (
        "/urlset/url[1]: there is no attribute id [Core 7]"
    ),
    HEAD + url("a", "<rs:md><rs:ln/></rs:md>"): (
        "/urlset/url[1]/rs:md: <rs:ln> stands inside it: close the element before [Core 7]"
    ),
}


@pytest.mark.parametrize("body", MISPLACED)
def test_what_has_no_place_is_a_violation(body):
    assert MISPLACED[body] in messages(document(body))


@pytest.mark.parametrize(
    "body", [f"{HEAD}<x:a xmlns:x='urn:x'/>{url('a')}", HEAD + url("a", "<x:a xmlns:x='urn:x'/>")]
)
def test_elements_of_other_namespaces_are_allowed(body):
    assert messages(document(body)) == []


def test_an_xml_declaration_must_come_first():
    data = b'\n<?xml version="1.0"?>' + document(HEAD)
    assert "not well-formed" in messages(data)[0]


def test_a_sitemap_is_called_one():
    data = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://a/</loc></url></urlset>'
    assert judge_document(data).kind == "sitemap"
