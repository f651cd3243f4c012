"""No answer is much longer than what it answers, whatever a stranger asks for."""

import re
from itertools import product

import msgspec
import pytest

from rsnotify.resourcesync.notification import CHANNEL_PATH
from rsnotify.web.page import DEEPEST, NAME, STATIC
from tests.protocol.test_front_page import get

BROWSER = {"Accept": "text/html", "Upgrade_Insecure_Requests": "1"}
PARAMETER = re.compile(r"\{\w+\}")
ASKED = 16_000  # bytes of an address; a little more is refused with 414
UNKNOWN = 16 * 1024  # bytes of the answer to an address at which there is nothing

PIECES = ["%7B", "/", "a/", "%00", "%22", "%F0%9F%98%80", "%0A", "%27", "%E2%80%AE"]
NAMES = ["root", "main", "aside", "title", "scripts", "version", "heading", "problem"]
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
