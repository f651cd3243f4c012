"""What a browser is shown changes no byte for anybody else, and tells nobody of a private set."""

from urllib.parse import urljoin

import pytest

from tests.protocol.test_front_page import get
from tests.support.running import RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
BROWSER = {"Accept": ACCEPT, "Upgrade_Insecure_Requests": "1"}
MACHINES = [{}, {"Accept": "*/*"}, {"Accept": "application/xml"}, {"Accept": ACCEPT}]
DOCUMENTS = ["capabilitylist", "changelist", "changelist-index", "capabilitylist-ws"]


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_document_is_a_page_for_a_browser_alone(websub_hub, new_set, method, name):
    url = f"{websub_hub.url}/{new_set}/{name}.xml"
    page = await get(url, method, **BROWSER)
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "etag" not in page.headers
    assert (b"</html>" in page.body) == (method == "GET")
    documents = [await get(url, method, **machine) for machine in MACHINES]
    for document in documents:
        assert document.headers["content-type"] == "application/xml"
        assert document.body == documents[0].body
        assert {"accept", "upgrade-insecure-requests"} <= {*document.headers["vary"].split(", ")}
        assert {*document.headers["vary"].split(", ")} <= {*page.headers["vary"].split(", ")}


@pytest.mark.parametrize("kind", ["change", "framework"])
async def test_a_channel_is_a_page_for_a_browser_alone(websub_hub, new_set, kind):
    url = f"{websub_hub.url}/channels/{new_set}/{kind}_notification_channel"
    page = await get(url, **BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for machine in MACHINES:
        answer = await get(url, **machine)
        assert answer.headers["content-type"] == "application/xml"
        assert {"accept", "upgrade-insecure-requests"} <= {*answer.headers["vary"].split(", ")}


async def test_several_channels_are_no_document_for_a_browser_either(websub_hub, new_set):
    url = f"{websub_hub.url}/channels/change_notification_channel?set={new_set}"
    page = await get(url, **BROWSER)
    assert (page.status, b"several channels are read" in page.body) == (406, True)


@pytest.mark.parametrize("form", ["xml", "json"])
async def test_a_form_that_is_asked_for_is_had_by_a_browser_too(websub_hub, new_set, form):
    answer = await get(f"{websub_hub.url}/{new_set}/changelist.xml?format={form}", **BROWSER)
    assert answer.headers["content-type"] == f"application/{form}"


async def test_what_a_cache_has_of_the_xml_is_no_page(websub_hub, new_set):
    """A browser that has the XML, too, does not get `304` in place of the page."""
    url = f"{websub_hub.url}/{new_set}/changelist.xml"
    tag = (await get(url)).headers["etag"]
    assert (await get(url, If_None_Match=tag)).status == 304
    assert (await get(url, If_None_Match=tag, **BROWSER)).status == 200


async def test_robots_txt_is_text_for_browsers_too(websub_hub):
    answer = await get(f"{websub_hub.url}/robots.txt", **BROWSER)
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.body


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_address_of_a_set_leads_a_browser_to_its_view(websub_hub, new_set, method):
    answer = await get(f"{websub_hub.url}/{new_set}?access_token=none", method, **BROWSER)
    assert (answer.status, answer.body) == (302, b"")
    page = urljoin(f"{websub_hub.url}/{new_set}", answer.headers["location"])
    assert page == f"{websub_hub.url}/?set={new_set}"
    assert (await get(page, **BROWSER)).status == 200


@pytest.mark.parametrize("headers", MACHINES)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_address_of_a_set_leads_others_to_its_capability_list(
    websub_hub, new_set, method, headers
):
    answer = await get(f"{websub_hub.url}/{new_set}", method, **headers)
    assert answer.status == 302
    found = urljoin(f"{websub_hub.url}/{new_set}", answer.headers["location"])
    assert found == f"{websub_hub.url}/{new_set}/capabilitylist.xml"
    assert {"accept", "upgrade-insecure-requests"} <= {*answer.headers["vary"].split(", ")}


@pytest.mark.parametrize("headers", [{}, BROWSER])
async def test_the_address_of_a_private_set_leads_on_who_may_read_it(websub_hub, new_set, headers):
    await websub_hub.ask("PATCH", f"/api/sets/{new_set}", json={"private": True})
    wanted = {"sets": [new_set], "rights": ["read"]}
    _, made = await websub_hub.ask("POST", "/api/tokens", json=wanted)
    url = f"{websub_hub.url}/{new_set}"
    assert (await get(url, **headers)).status == 404
    assert (await get(url, Authorization=f"Bearer {made['token']}", **headers)).status == 302
    answer = await get(f"{url}?access_token={made['token']}")
    document = await get(urljoin(url, answer.headers["location"]))
    assert (document.status, document.headers["content-type"]) == (200, "application/xml")


@pytest.mark.parametrize("path", ["/Nowhere", "/a/b/c", "/<script>alert(1)</script>"])
async def test_a_missing_address_is_a_page_for_a_browser_and_a_problem_for_others(websub_hub, path):
    page = await get(f"{websub_hub.url}{path}", **BROWSER)
    assert page.status == 404
    assert page.body.lower().count(b"there is nothing") == 1
    assert b"<script>" not in page.body
    other = await get(f"{websub_hub.url}{path}", Accept="*/*")
    assert other.status == 404
    assert other.headers["content-type"] == "application/problem+json"


async def test_turned_off_documents_are_documents_for_everybody(tmp_path):
    async with RunningHub(tmp_path / "data", page="off") as hub:
        answer = await get(f"{hub.url}/dataset1", **BROWSER)
        assert answer.headers["location"] == "dataset1/capabilitylist.xml"
        for path in ("/dataset1/changelist.xml", "/nowhere"):
            answer = await get(f"{hub.url}{path}", **BROWSER)
            assert not answer.headers["content-type"].startswith("text/html")
        assert (await get(f"{hub.url}/static/page.css")).status == 200  # of /api
        assert (await get(f"{hub.url}/static/client/rsnotify.js")).status == 404


async def test_the_javascript_client_is_served_and_nothing_beside_it(websub_hub):
    base = f"{websub_hub.url}/static/client"
    for name in ("rsnotify.js", "lib/publish.js"):
        assert (await get(f"{base}/{name}")).headers["access-control-allow-origin"] == "*"
    for name in ("package.json", "lib/..%2frsnotify.js", "lib/none.js", "README.md"):
        assert (await get(f"{base}/{name}")).status == 404
