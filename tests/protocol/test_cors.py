"""Pages of other origins: they read what is public, errors included, and nothing private."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from tests.support.receivers import topic
from tests.support.running import TOKEN, RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGE, OTHER = "https://page.example", "https://other.example"
ALLOW, EXPOSE = "access-control-allow-origin", "access-control-expose-headers"
PUBLIC = (
    "/.well-known/resourcesync",
    "/robots.txt",
    "/SET/capabilitylist.xml",
    "/SET/changelist.xml",
    "/SET/changelist.xml?limit=1",
    "/SET/changelist-index.xml",
    "/channels/SET/change_notification_channel",
)
ERRORS = {
    "/SET/resourcelist.xml": 404,
    "/SET/changelist.xml?from=yesterday": 400,
    "/nowhere/changelist.xml": 404,
    "/SET/changelist.xml?limit=0": 400,
}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def choosy(tmp_path_factory) -> AsyncIterator[RunningHub]:
    """A hub whose operator has named an origin."""
    data = tmp_path_factory.mktemp("choosy") / "data"
    async with RunningHub(data, allowed_origins=PAGE) as hub:
        await hub.ask("PUT", "/api/sets/secret", json={"private": True})
        yield hub


async def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str]]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=sent, allow_redirects=False) as answer,
    ):
        return answer.status, {name.lower(): text for name, text in answer.headers.items()}


def preflight(url: str, origin: str = PAGE) -> dict[str, str]:
    return {
        "url": url,
        "method": "OPTIONS",
        "origin": origin,
        "access_control_request_method": "GET",
    }


@pytest.mark.parametrize("path", PUBLIC)
async def test_every_page_may_read_what_is_public(websub_hub, new_set, path):
    status, headers = await ask(websub_hub.url + path.replace("SET", new_set), origin=PAGE)
    assert (status, headers[ALLOW]) == (200, "*")
    assert {"ETag", "Link", "Retry-After", "Rsnotify-From"} <= {*headers[EXPOSE].split(", ")}


async def test_a_page_that_follows_a_site_is_led_on(websub_hub):
    for path in ("/", "/dataset1"):
        status, headers = await ask(websub_hub.url + path, origin=PAGE)
        assert (status, headers[ALLOW]) == (302, "*")


@pytest.mark.parametrize("path", ERRORS)
async def test_a_page_may_read_why_it_was_refused(websub_hub, new_set, path):
    status, headers = await ask(websub_hub.url + path.replace("SET", new_set), origin=PAGE)
    assert (status, headers[ALLOW]) == (ERRORS[path], "*")


async def test_a_condition_that_holds_may_be_read_too(websub_hub, new_set):
    url = f"{websub_hub.url}/{new_set}/changelist.xml"
    _, first = await ask(url)
    status, headers = await ask(url, origin=PAGE, if_none_match=first["etag"])
    assert (status, headers[ALLOW]) == (304, "*")


@pytest.mark.parametrize("path", PUBLIC)
async def test_a_preflight_is_answered(websub_hub, new_set, path):
    status, headers = await ask(**preflight(websub_hub.url + path.replace("SET", new_set)))
    assert (status, headers[ALLOW]) == (204, "*")
    assert "If-None-Match" in headers["access-control-allow-headers"]
    assert "Authorization" in headers["access-control-allow-headers"]
    assert "GET" in headers["access-control-allow-methods"]


async def test_nothing_but_reading_is_opened(websub_hub, new_set):
    for path in (f"/api/sets/{new_set}/changes", "/hub", "/api/sets"):
        status, headers = await ask(**preflight(websub_hub.url + path))
        assert (status, ALLOW in headers) == (405, False)
    url = f"{websub_hub.url}/{new_set}/changelist.xml"
    status, headers = await ask(url, "POST", origin=PAGE)
    assert (status, headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_no_page_reads_a_private_set(websub_hub, new_set):
    await websub_hub.ask("PATCH", f"/api/sets/{new_set}", json={"private": True})
    for url in (f"{websub_hub.url}/{new_set}/changelist.xml", topic(websub_hub, new_set)):
        status, headers = await ask(url, origin=PAGE, authorization=f"Bearer {TOKEN}")
        assert (status, ALLOW in headers) == (200, False)
        status, headers = await ask(url, origin=PAGE)
        assert (status, headers[ALLOW]) == (404, "*")


@pytest.mark.parametrize("path", ["/nowhere", "/a/b/c/d", "/Set", "/static/none", "/hub"])
async def test_a_page_may_read_that_there_is_nothing(websub_hub, path):
    status, headers = await ask(websub_hub.url + path, origin=PAGE)
    assert (status, headers[ALLOW]) == (405 if path == "/hub" else 404, "*")
    if path != "/hub":
        status, headers = await ask(**preflight(websub_hub.url + path))
        assert (status, headers[ALLOW]) == (204, "*")


@pytest.mark.parametrize("name", ["secret", "dataset1"])
async def test_a_named_origin_reads_and_no_other(choosy, name):
    url = f"{choosy.url}/{name}/changelist.xml"
    token = {"authorization": f"Bearer {TOKEN}"}
    status, headers = await ask(url, origin=PAGE, **token)
    assert (status, headers[ALLOW]) == (200, PAGE)
    for asked in ({"origin": OTHER}, {}, {"origin": "null"}):
        _, headers = await ask(url, **asked, **token)
        assert (ALLOW in headers, "origin" in headers["vary"]) == (False, True)
    assert (await ask(**preflight(url)))[1][ALLOW] == PAGE
    assert ALLOW not in (await ask(**preflight(url, OTHER)))[1]


async def test_an_event_stream_says_it_once(websub_hub, new_set):
    async with (
        aiohttp.ClientSession(headers={"accept": "text/event-stream", "origin": PAGE}) as session,
        session.get(topic(websub_hub, new_set)) as answer,
    ):
        assert answer.headers.getall(ALLOW) == [PAGE]
