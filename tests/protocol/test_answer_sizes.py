"""No answer is much longer than what it answers, whatever a stranger asks for.

The bound of each address stands in docs/reference/limits.md; an address without one fails here.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from rsnotify.openapi.operations import OPERATIONS
from rsnotify.resourcesync.notification import CHANNEL_PATH, CHANNELS_PATH
from rsnotify.sets.options import ADDRESSES
from rsnotify.web.page import CLONE, DEEPEST, NAME, STATIC
from rsnotify.web.validation import DOCUMENT_BYTES
from tests.protocol.test_front_page import get
from tests.support.running import PATIENT_SECONDS, RunningHub

BROWSER = {"Accept": "text/html", "Upgrade_Insecure_Requests": "1"}
PARAMETER = re.compile(r"\{\w+\}")
ASKED = 16_000  # bytes of an address; a little more is refused with 414
UNKNOWN = 16 * 1024  # bytes of the answer to an address at which there is nothing

PIECES = ["%7B", "/", "a/", "%00", "%22", "%F0%9F%98%80", "%0A", "%27", "%E2%80%AE"]
NAMES = ["root", "main", "aside", "title", "scripts", "version", "heading", "problem", "oai"]
PATHS = [
    *("/{}", "/{}/changelist.xml", "/{}/changelist/{}.xml", "/static/{}", "/static/client/{}"),
    *("/{}/resourcelist/{}.xml", CHANNEL_PATH.replace("{set}", "{}").replace("{kind}", "change")),
    *("/api/sets/{}", "/api/sets/{}/changes", "/api/sets?{}", "/api/status?set={}"),
    "/dataset1/changelist.xml?from={}",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", [{}, BROWSER], ids=["machine", "browser"])
async def test_an_unknown_address_is_answered_shortly(websub_hub, path, headers):
    sizes = {}
    for piece in [*PIECES, *(f"%7B{name}%7D" for name in NAMES), "%7Broot%7D/"]:
        count = (ASKED - len(path)) // len(piece) // path.count("{}")
        asked = path.replace("{}", piece * count)
        answer = await get(f"{websub_hub.url}{asked}", **headers)
        sizes[piece] = len(answer.body)
    assert min(sizes.values()) > 60  # it was no refusal of the address's form
    assert max(sizes.values()) <= UNKNOWN, sizes


def test_every_name_of_the_templates_is_tried():
    templates = (STATIC / name for name in ("frame.html", "document.html", "index.html"))
    assert {name for each in templates for name in NAME.findall(each.read_text())} == {*NAMES}


@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 1])
async def test_a_page_leads_back_from_far_away(websub_hub, depth):
    page = await get(f"{websub_hub.url}/{'a/' * depth}%7Broot%7D", **BROWSER)
    root = "../" * depth if depth == DEEPEST else "/"
    assert f'href="{root}static/page.css"'.encode() in page.body


async def test_what_an_address_says_is_shown_as_it_was_sent(websub_hub):
    page = await get(f"{websub_hub.url}/%7Broot%7D%7Bmain%7D%3Cb%3E", **BROWSER)
    assert b"there is nothing at /{root}{main}&lt;b&gt;" in page.body


REFUSED = 32 * 1024  # bytes of any refusal of what strangers ask or post


async def test_no_address_refuses_a_stranger_at_length(websub_hub):
    """Every address of the description, by every method, with long names and queries."""
    described = msgspec.json.decode((await get(f"{websub_hub.url}/api/openapi.json")).body)
    sizes = {}
    for path, methods in described["paths"].items():
        parts = [PARAMETER.sub("%22" * 1_500, path), PARAMETER.sub("dataset1", path)]
        for asked, method in product(parts, (name.upper() for name in methods)):
            for headers in ({}, BROWSER, {"Authorization": f"Bearer {'b' * 8_193}"}):
                answer = await get(f"{websub_hub.url}{asked}?a={'%22' * 1_500}", method, **headers)
                if answer.status >= 400:
                    sizes[method, path] = max(sizes.get((method, path), 0), len(answer.body))
    assert len(sizes) > 30
    assert max(sizes.values()) <= REFUSED, sizes


@pytest.mark.parametrize(("characters", "said"), [(8_192, "unknown"), (8_193, "more than 8192")])
async def test_a_token_has_8192_characters_at_most(websub_hub, characters, said):
    answer = await get(f"{websub_hub.url}/api/tokens", Authorization=f"Bearer {'b' * characters}")
    assert (answer.status, said in answer.body.decode()) == (401, True)


# Every address ----------------------------------------------------------------------------------

LIMITS = Path(__file__).parents[2] / "docs/reference/limits.md"
BOUND = re.compile(
    r"^\| `(?P<address>(?:GET|POST) /[^`|]*)` "
    r"\| (?:(?P<fixed>[\d,]+)(?: for each (?P<one>[\w ]+?))?)"
    r"(?: \+ (?P<each>\d+) for each (?P<thing>[\w ]+))? \|",
    re.MULTILINE,
)
KIB = 1024


class Answered(NamedTuple):
    """What the longest answer may have: so much, and so much more for each of its things."""

    fixed: int
    one: str  # what `fixed` is for; of an answer if that is nothing
    each: int
    thing: str

    def bytes_of(self, counts: dict[str, int]) -> int:
        return KIB * (self.fixed * counts[self.one] + self.each * counts[self.thing])


def bounds() -> dict[tuple[str, str], Answered]:
    """The table of the documentation, by method and path."""
    found: dict[tuple[str, str], Answered] = {}
    for row in BOUND.finditer(LIMITS.read_text()):
        method, _, path = row["address"].partition(" ")
        fixed, each = int(row["fixed"].replace(",", "")), int(row["each"] or 0)
        found[method, path] = Answered(fixed, row["one"] or "", each, row["thing"] or "")
    return found


def test_every_address_that_a_stranger_may_ask_has_its_bound_in_the_docs():
    asked = {key for key, each in OPERATIONS.items() if each.who in ("everybody", "reader")}
    assert bounds().keys() == asked


SETS = 20  # besides the first
CHANGES = 25  # in each of three requests; their Change Lists are closed
LONGEST = 2_048


def uri(name: str, characters: int = LONGEST) -> str:
    """As long as it may be; in XML an ampersand takes five bytes."""
    return f"http://example.com/{name}/".ljust(characters, "&")


def options(name: str) -> dict[str, str]:
    return {each: uri(f"{each}-{name}") for each in ADDRESSES} | {"channel_hub": uri("hub")}


def large(name: str) -> dict[str, object]:
    """A change that is as long as may be in JSON: a backslash is two characters there."""
    links = [
        {"rel": "describedby", "href": uri(f"{number}", 100), "profile": "\\" * 1_000}
        for number in range(20)
    ]
    return {"loc": uri(name, 100), "change": "updated", "links": links}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def full_hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningHub]:
    """Whatever can be long in a public set, is."""
    data = tmp_path_factory.mktemp("full") / "data"
    async with RunningHub(data, changelist_max="20", admin_email="a@hub.example") as hub:
        chosen = options("first") | {"iiif": "Manifest"}
        await hub.ask("PATCH", "/api/sets/dataset1", json=chosen)
        for number in range(SETS):
            path = f"/api/sets/{number:x<64}"
            assert (await hub.ask("PUT", path, json=options(str(number))))[0] == 201
        for time in range(3):
            changes = msgspec.json.encode([large(f"{time}-{number}") for number in range(CHANGES)])
            sent = {"data": BytesIO(changes), "headers": {"Content-Type": "application/json"}}
            published = await hub.ask("POST", "/api/sets/dataset1/changes", **sent)
            assert published[0] == 201, published[1]
            assert (await hub.ask("POST", "/api/sets/dataset1/snapshot"))[0] == 201
        yield hub


COUNTS = {
    "": 1,
    "set": SETS + 1,
    "process": 1,
    "notification": 1,
    "change": 3 * CHANGES,
    "resource": 3 * CHANGES,
    "Change List": 10,
    "Resource List": 10,
}
FORMS = [*({"Accept": f"application/{form}"} for form in ("xml", "json", "x-ndjson")), BROWSER, {}]
HEAD = 16 * 1024  # bytes of all headers of an answer
LONG_HOST = ".".join(["h" * 63] * 3)
QUERIES = {
    "/{set}/changelist.xml": ["from={first}", "limit=50000", "until=9999-01-01T00:00:00Z"],
    "/{set}/resourcelist.xml": ["limit=50000"],
    "/api/sets/{set}/resources": [f"loc={uri('0-0', 100).replace('&', '%26')}"],
    "/api/sets": ["limit=10000", "search=x"],
    "/api/status": ["limit=10000", "search=x"],
    CHANNELS_PATH: ["set=dataset1"],
    "/{set}/feed.atom": ["access_token=x"],
    "/{set}/oai": [
        "verb=Identify",
        "verb=ListRecords&metadataPrefix=oai_dc",
        f"verb=GetRecord&metadataPrefix=oai_dc&identifier={'%22' * 5_000}",
        f"verb=ListRecords&resumptionToken={'%26' * 5_000}",
    ],
}
MISSING = {
    "/{set}/changelist-archive.xml",  # no list is so old
    "/.well-known/resourcesync/{part}.xml",  # one names all sets
}
FILES = {
    "/static/{file}": STATIC,
    "/static/client/{file}": CLONE / "clients/javascript",
    "/static/client/lib/{file}": CLONE / "clients/javascript/lib",
}


async def asked_at(hub: RunningHub, path: str) -> list[str]:
    """Addresses that there are, for the path of an operation."""
    asked = QUERIES.get(path, ())
    if path in FILES:
        names = (each.name for each in FILES[path].iterdir() if each.suffix in (".js", ".css"))
        return [path.replace("{file}", name) for name in names]
    index = (await get(f"{hub.url}/dataset1/changelist-index.xml")).body.decode()
    archive = (await get(f"{hub.url}/dataset1/resourcelist-archive.xml")).body.decode()
    (first, *_) = re.findall(r"/changelist/([^<]*?)\.xml", index)
    (part, *_) = re.findall(r"/resourcelist/([^<]*?)\.xml", archive)
    values = {"{set}": "dataset1", "{kind}": "change", "{from_}": first, "{part}": part}
    for name, value in values.items():
        path = path.replace(name, value)
    queries = ["", *(f"?{query.format(first=first)}" for query in asked)]
    return [f"{PARAMETER.sub('x', path)}{query}" for query in queries]


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=str)
async def test_no_answer_to_a_stranger_is_longer_than_the_docs_say(full_hub, method, path):
    bound = bounds().get((method, path))
    found = set()
    for asked, form in product(await asked_at(full_hub, path), FORMS):
        answer = await get(f"{full_hub.url}{asked}", method, Host=LONG_HOST, **form)
        is_refused = bound is None or answer.status >= 400
        most = REFUSED if is_refused else bound.bytes_of(COUNTS)
        assert len(answer.body) <= most, (asked, form, answer.status)
        found.add(answer.status)
    if bound is not None and method == "GET" and path != CHANNELS_PATH:
        assert found <= ({404} if path in MISSING else {200, 302})


RANGES = {"Range": f"bytes={','.join(['0-'] * 3_000)}"}
UNUSUAL = [  # method, path, query, headers
    ("HEAD", "/{set}/changelist.xml", "from=1970-01-01T00:00:00Z", {}),
    ("GET", "/{set}/changelist.xml", "limit=1&from=1970-01-01T00:00:00Z", {}),
    ("GET", "/{set}/changelist.xml", f"limit=50000&from={'9' * 5_000}", BROWSER),
    ("GET", "/{set}/changelist.xml", "", RANGES),
    ("GET", "/{set}/resourcelist.xml", "", RANGES),
    ("GET", "/{set}/changelist/{from_}.xml", "", RANGES),
    ("GET", "/static/{file}", "", RANGES),
    ("GET", "/api/sets", f"limit=10000&search={'%22' * 5_000}", {}),
    ("GET", "/api/status", "&".join(["name=dataset1"] * 256), {}),
    ("HEAD", "/metrics", "", {}),
    ("GET", "/metrics", "&".join(["name[]=rsnotify_readers"] * 200), {"Accept": "a/b," * 3_000}),
    ("GET", "/channels/{set}/{kind}_notification_channel", "from=1970-01-01T00:00:00Z", {}),
    ("HEAD", CHANNELS_PATH, "&".join(["set=dataset1"] * 200), {}),
    ("GET", "/.well-known/resourcesync", f"x={'{root}' * 2_000}", BROWSER),
    ("GET", "/api/openapi.json", "a" * 15_000, {"Accept-Encoding": "gzip;q=0"}),
]


@pytest.mark.parametrize(("method", "path", "query", "headers"), UNUSUAL)
async def test_an_unusual_question_has_no_longer_answer(full_hub, method, path, query, headers):
    (asked, *_) = await asked_at(full_hub, path)
    answer = await get(f"{full_hub.url}{asked}?{query}", method, **headers)
    most = REFUSED if answer.status >= 400 else bounds()["GET", path].bytes_of(COUNTS)
    assert len(answer.body) <= (0 if method == "HEAD" else most)
    assert sum(map(len, [*answer.headers, *answer.headers.values()])) <= HEAD


async def test_an_event_stream_is_no_longer_than_what_is_published(full_hub):
    """Nothing is sent for what was published before it was opened."""
    path = CHANNELS_PATH.replace("{kind}", "change")
    url = f"{full_hub.url}{path}?set=dataset1&set={0:x<64}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Accept": "text/event-stream"}) as stream,
    ):
        assert stream.status == 200
        await full_hub.ask("POST", "/api/sets/dataset1/changes", json=large("streamed"))
        read = bytearray()
        async with asyncio.timeout(PATIENT_SECONDS):
            while b"streamed" not in read or not read.endswith(b"\n\n"):
                read += await stream.content.readany()
    assert len(read) <= bounds()["GET", CHANNELS_PATH].bytes_of(COUNTS)


LOC = "<loc>http://a.example/#</loc>"  # another number in each entry
LONG_NAME = "\U00010400" * 500  # the longest document has a thousand such, and the answer names all
UNPRINTABLE = "\U000e0001" * 500  # ten characters each, where a message shows it


@pytest.mark.parametrize(
    "entry",
    [
        f"<url {LONG_NAME}=''>{LOC}</url>",
        f"<url>{LOC}<rs:md rs:{LONG_NAME}=''/></url>",
        f"<url>{LOC}<rs:md><rs:{LONG_NAME}/></rs:md></url>",
        f"<url>{LOC}<{LONG_NAME}/><loc/></url>",
        f"<{LONG_NAME}/>",
        f"<url>{LOC}<rs:md capability='{LONG_NAME}'/></url>",
        f"<url>{LOC}<rs:md hash='{LONG_NAME}'/></url>",
        f"<url><loc>{LONG_NAME}</loc><lastmod>{LONG_NAME}</lastmod></url>",
        f"<url>{LOC}<rs:md capability='#{UNPRINTABLE}'/></url>",
        "<url/>",
    ],
)
async def test_what_is_wrong_with_a_document_takes_no_more_than_the_docs_say(websub_hub, entry):
    head = (
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
        'xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="capabilitylist"/>'
    )
    count = (DOCUMENT_BYTES - len(head) - 20) // len(entry.replace("#", "123456").encode())
    entries = (entry.replace("#", f"{number:06}") for number in range(count))
    document = f"{head}{''.join(entries)}</urlset>".encode()
    status, answer = await websub_hub.ask("POST", "/api/validate", data=BytesIO(document))
    assert (status, answer["count"] > 0) == (200, True)
    size = len(msgspec.json.encode(answer))
    assert size <= bounds()["POST", "/api/validate"].bytes_of(COUNTS), size
