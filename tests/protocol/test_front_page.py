"""The address `/` for people and machines, and the validator over HTTP."""

import asyncio
import re
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin

import aiohttp
import pytest

from rsnotify.resourcesync.tables import MAX_BYTES
from rsnotify.web.validation import DOCUMENT_BYTES, SHOWN, WAITING
from rsnotify_client.discovery import linked_in_html
from tests.support.receivers import Receiver, answers
from tests.support.running import TOKEN, RunningHub, until

STATIC = Path(__file__).parents[2] / "rsnotify/web/static"
HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def get(url: str, method: str = "GET", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession(skip_auto_headers=["Accept"]) as session,
        session.request(method, url, headers=named, allow_redirects=False) as answer,
    ):
        found = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status, found, await answer.read())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_browser_gets_the_page_with_its_policy(websub_hub, method):
    answer = await get(f"{websub_hub.url}/", method, **HTML)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["vary"] == "accept, accept-encoding"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert (b"</html>" in answer.body) == (method == "GET")


async def test_the_page_names_no_capability_list_as_it_is_of_no_set(websub_hub):
    """Core 6.3.3: the link names the list of the page's set, and never the Source Description."""
    answer = await get(f"{websub_hub.url}/", **HTML)
    assert answer.status == 200
    assert linked_in_html(answer.body.decode()) is None
    assert "link" not in answer.headers


@pytest.mark.parametrize("accept", ["*/*", "application/xml", "text/xml, */*;q=0.1"])
async def test_a_machine_is_sent_to_the_source_description(websub_hub, accept):
    answer = await get(f"{websub_hub.url}/", Accept=accept)
    assert (answer.status, answer.headers["location"]) == (302, "/.well-known/resourcesync")
    assert answer.headers["vary"] == "accept"


async def test_who_says_nothing_is_a_machine(websub_hub):
    assert (await get(f"{websub_hub.url}/")).status == 302


async def test_the_whole_page_is_compressed_on_its_way(websub_hub):
    """All views and documents; compressed, as every browser asks for it."""
    files = (each for each in STATIC.iterdir() if each.suffix not in (".html", ".woff2"))
    addresses = [f"static/{each.name}" for each in files]
    for address in ["", *addresses]:
        answer = await get(f"{websub_hub.url}/{address}", Accept_Encoding="gzip", **HTML)
        assert answer.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("address", ["", "dataset1/changelist.xml", "no/such/page"])
async def test_whatever_a_page_loads_is_there(websub_hub, address):
    """Without its script a page is a picture that connects for ever, and no answer is wrong."""
    opened = {"Upgrade_Insecure_Requests": "1", **HTML}
    page = (await get(f"{websub_hub.url}/{address}", **opened)).body.decode()
    loaded = re.findall(r'(?:src|href)="([^"#]*static/[^"]+)"', page)
    assert any(each.endswith("page.css") for each in loaded)
    assert address == "no/such/page" or any(each.endswith(".js") for each in loaded)
    for each in loaded:
        assert (await get(urljoin(f"{websub_hub.url}/{address}", each))).status == 200, each


async def test_a_file_that_the_browser_has_is_not_sent_again(websub_hub):
    first = await get(f"{websub_hub.url}/static/main.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = await get(f"{websub_hub.url}/static/main.js", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


async def test_a_font_is_sent_as_it_is_and_kept(websub_hub):
    """It is compressed by itself, and another one has another name."""
    for each in STATIC.glob("*.woff2"):
        answer = await get(f"{websub_hub.url}/static/{each.name}", Accept_Encoding="gzip")
        assert answer.headers["content-type"] == "font/woff2"
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert ("content-encoding" in answer.headers, answer.body) == (False, each.read_bytes())


async def test_what_the_page_has_is_never_more_than_150_kib(websub_hub):
    """Compressed, with its fonts: a telephone loads it in a second."""
    names = ["", *(f"static/{each.name}" for each in STATIC.iterdir() if each.suffix != ".html")]
    sent = [await get(f"{websub_hub.url}/{name}", Accept_Encoding="gzip", **HTML) for name in names]
    assert sum(int(each.headers["content-length"]) for each in sent) <= 150 * 1024


@pytest.mark.parametrize("name", ["nothing.js", "..%2fpage.py", "%2e%2e%2f__init__.py", ""])
async def test_nothing_but_the_files_of_the_page_is_served(websub_hub, name):
    assert (await get(f"{websub_hub.url}/static/{name}")).status == 404


async def test_turned_off_there_is_no_page_and_none_of_its_files(tmp_path):
    async with RunningHub(tmp_path / "data", page="off") as hub:
        answer = await get(f"{hub.url}/", **HTML)
        assert (answer.status, answer.headers["location"]) == (302, "/.well-known/resourcesync")
        assert (await get(f"{hub.url}/static/main.js")).status == 404
        answer = await get(f"{hub.url}/api", **HTML)
        assert (answer.status, b"<script" in answer.body) == (200, False)


# POST /api/validate -------------------------------------------------------------------------------

EMPTY = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>'


async def test_a_valid_document_has_no_violations(websub_hub, new_set):
    _, document = await websub_hub.ask("GET", f"/{new_set}/capabilitylist.xml")
    status, answer = await websub_hub.ask("POST", "/api/validate", data=document)
    assert (status, answer) == (200, {"valid": True, "count": 0, "violations": []})


async def test_a_stranger_may_ask_and_gets_each_violation_with_its_clause(websub_hub):
    headers = {"Authorization": ""}
    _, answer = await websub_hub.ask("POST", "/api/validate", data=EMPTY, headers=headers)
    assert not answer["valid"]
    assert answer["violations"][0].keys() == {"clause", "path", "message", "mend"}


async def test_what_is_no_xml_is_a_violation(websub_hub):
    _, answer = await websub_hub.ask("POST", "/api/validate", data=b"no document")
    assert answer["count"] == 1


async def test_so_many_violations_are_named_and_the_others_counted(websub_hub, new_set):
    _, list_ = await websub_hub.ask("GET", f"/{new_set}/changelist.xml")
    document = list_.replace(b"</urlset>", b"<url/>" * (SHOWN + 1) + b"</urlset>")
    _, answer = await websub_hub.ask("POST", "/api/validate", data=document)
    assert len(answer["violations"]) == SHOWN
    assert answer["count"] > SHOWN


@pytest.mark.parametrize(("more", "expected"), [(0, 200), (1, 413)])
async def test_a_document_may_be_so_long(websub_hub, more, expected):
    document = BytesIO(EMPTY.ljust(DOCUMENT_BYTES + more))
    status, answer = await websub_hub.ask("POST", "/api/validate", data=document)
    assert status == expected
    if status == 413:
        assert answer["detail"] == (
            f"the body exceeds {DOCUMENT_BYTES} bytes;"
            f" `rsnotify validate FILE|URL` checks documents of up to {MAX_BYTES} bytes"
        )


async def test_no_document_is_refused(websub_hub):
    status, answer = await websub_hub.ask("POST", "/api/validate")
    assert (status, answer["detail"]) == (400, "send the document as the body of the request")


async def test_when_too_many_documents_wait_the_others_are_to_come_again(websub_hub, new_set):
    _, list_ = await websub_hub.ask("GET", f"/{new_set}/changelist.xml")
    document = list_.replace(b"</urlset>", b"<url/>" * 5_000 + b"</urlset>")
    asked = (websub_hub.ask("POST", "/api/validate", data=document) for _ in range(3 * WAITING))
    statuses = [status for status, _ in await asyncio.gather(*asked)]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= WAITING


async def test_documents_that_do_not_come_whole_are_not_kept_without_end(websub_hub):
    sent = EMPTY.ljust(DOCUMENT_BYTES)
    head = b"POST /api/validate HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(sent)
    opened = [await asyncio.open_connection("127.0.0.1", websub_hub.port) for _ in range(WAITING)]
    for _, writer in opened:
        writer.write(head + sent[:-1])
        await writer.drain()
    try:

        async def is_refused() -> bool:
            return (await websub_hub.ask("POST", "/api/validate", data=EMPTY))[0] == 429

        await until(is_refused)
        reader, writer = opened[0]
        writer.write(sent[-1:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert not await is_refused()
    finally:
        for _, writer in opened:
            writer.close()


# A document that is named -------------------------------------------------------------------------


async def validate_named(hub: RunningHub, url: object, token: str = TOKEN) -> tuple[int, str]:
    """The status, and the detail of a refusal or how many violations there are."""
    headers = {"Authorization": f"Bearer {token}"}
    named = {"url": url}
    status, answer = await hub.ask("POST", "/api/validate", json=named, headers=headers)
    return status, answer.get("detail", answer.get("count"))


async def test_a_document_is_fetched_for_the_admin(websub_hub):
    async with Receiver(get=answers("200 OK", EMPTY)) as source:
        status, count = await validate_named(websub_hub, source.callback)
    assert status == 200
    assert count


async def test_a_stranger_cannot_have_a_document_fetched(websub_hub):
    async with Receiver(get=answers("200 OK", EMPTY)) as source:
        status, _ = await validate_named(websub_hub, source.callback, "")
        assert (status, source.asked) == (401, [])


async def test_a_stranger_can_where_the_operator_has_opened_it(tmp_path):
    async with (
        RunningHub(tmp_path / "data", validate_urls="everybody") as hub,
        Receiver(get=answers("200 OK", EMPTY)) as source,
    ):
        status, detail = await validate_named(hub, source.callback, "")
        assert (status, source.asked) == (403, [])  # on loopback, where no callback may be
        assert "127.0.0.1 is loopback" in detail


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (("302 Found", b"", {"Location": "http://127.0.0.1/"}), "it answered 302"),
        (("404 Not Found", b"", {}), "it answered 404"),
        (("200 OK", b"", {}), "is empty, or has more than"),
        (("200 OK", b" " * (DOCUMENT_BYTES + 1), {}), "bytes; `rsnotify validate {url}` checks"),
    ],
)
async def test_what_is_no_document_is_told(websub_hub, answer, told):
    status_line, body, headers = answer
    async with Receiver(get=answers(status_line, body, **headers)) as source:
        status, detail = await validate_named(websub_hub, source.callback)
        assert status == 400
        assert told.format(url=source.callback) in detail
        assert len(source.asked) == 1


async def test_a_document_of_the_largest_size_is_fetched(websub_hub):
    longest = b"\n" * (DOCUMENT_BYTES - len(EMPTY)) + EMPTY
    async with Receiver(get=answers("200 OK", longest)) as source:
        assert (await validate_named(websub_hub, source.callback))[0] == 200


@pytest.mark.parametrize("url", ["ftp://example.com/", "http://[", "/etc/passwd", "http://a/#b", 7])
async def test_what_is_no_address_of_the_web_is_refused(websub_hub, url):
    assert (await validate_named(websub_hub, url))[0] == 400
