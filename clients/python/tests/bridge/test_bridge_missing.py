"""What a Source no longer lists: it is asked for, and is deleted only where it is gone."""

from contextlib import closing

from aiohttp import web

from clients.python.tests.bridge.bridging import Bridging
from rsnotify_bridge.memory import BridgeStore
from rsnotify_client import missing
from tests.support.sources import Source

MAP = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'
NAMES = [f"r{number}" for number in range(30)]


def sitemap(source: Source, names: list[str]) -> bytes:
    return MAP.format("".join(f"<url><loc>{source.loc(n)}</loc></url>" for n in names)).encode()


ANSWERS = {  # what is asked for answers so: whether it is deleted
    "404": (404, None, True),
    "410": (410, None, True),
    "200": (200, None, False),
    "206": (206, None, False),
    "204": (204, None, False),
    "401": (401, None, False),
    "403": (403, None, False),
    "416": (416, None, False),
    "429": (429, None, False),
    "451": (451, None, False),
    "500": (500, None, False),
    "503": (503, None, False),
    "to a login page": (302, "/login", False),
    "to the front page": (301, "/", False),
    "to what is gone": (301, "/gone", True),
    "to itself": (302, "/r0", False),
    "to what is gone at another host": (302, "http://localhost:{port}/gone", False),
    "to what cannot be fetched": (302, "ftp://127.0.0.1/r0", False),
}


async def test_what_a_list_leaves_out_is_deleted_if_it_answers_404_or_410_and_else_is_kept(
    source, bridging, tmp_path
):
    """One set for each answer, of one Source."""
    source.resources |= {"/": b"front", "/login": b"log in"}
    for number, (name, (status, to, is_gone)) in enumerate(ANSWERS.items()):
        each = await begun(source, bridging, tmp_path, f"answered-{number}")
        port = source.url.rpartition(":")[2]
        headers = {"Location": to.format(port=port)} if to else {}
        source.answer("/r0", status=status, headers=headers)
        source.documents["/map.xml"] = sitemap(source, NAMES[1:])
        facts = await each.once(source.loc("map.xml"))
        wanted = [("deleted", "r0")] if is_gone else []
        assert (each.told(), facts.error, facts.is_well) == (wanted, None, is_gone), name
        assert is_gone or "r0" in (facts.held or ""), name
        del source.handlers["/r0"]


async def begun(source: Source, bridging: Bridging, folder, name: str) -> Bridging:
    """A set of its own that has all that there is."""
    bridging.hub.add_set(name)
    found = Bridging(bridging.hub, name, folder / f"{name}.db")
    source.documents["/map.xml"] = sitemap(source, NAMES)
    await found.once(source.loc("map.xml"))
    return found


async def test_what_was_kept_is_asked_for_again_and_deleted_when_it_is_gone(source, bridging):
    source.resources["/r0"] = b"there, though no list has it"
    for names, resources, wanted in (
        (NAMES, True, []),
        (NAMES[1:], True, []),
        (NAMES[1:], True, []),
        (NAMES, True, []),
        (NAMES[1:], False, [("deleted", "r0")]),
    ):
        source.documents["/map.xml"] = sitemap(source, names)
        if not resources:
            source.resources.clear()
        facts = await bridging.once(source.loc("map.xml"))
        is_kept = names != NAMES and resources
        assert (bridging.told(), facts.held is not None) == (wanted, is_kept)


async def test_what_was_kept_is_asked_for_again_though_its_list_is_unchanged(source, bridging):
    async def handler(request: web.Request) -> web.Response:
        body = sitemap(source, names)
        tag = f'"{len(body)}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        return web.Response(body=body, headers={"ETag": tag})

    source.handlers["/map.xml"] = handler
    source.resources["/r0"] = b"there"
    names = NAMES
    await bridging.once(source.loc("map.xml"))
    names = NAMES[1:]
    assert (await bridging.once(source.loc("map.xml"))).held is not None
    source.resources.clear()
    assert (await bridging.once(source.loc("map.xml"))).held is None
    assert bridging.told() == [("deleted", "r0")]


async def test_a_host_that_is_down_is_asked_once_and_what_was_not_asked_for_comes_first(
    source, bridging, monkeypatch
):
    source.documents["/map.xml"] = sitemap(source, NAMES)
    await bridging.once(source.loc("map.xml"))
    source.answer("/r0", status=503)
    source.documents["/map.xml"] = sitemap(source, NAMES[3:])
    facts = await bridging.once(source.loc("map.xml"))
    assert "3 resources are missing" in (facts.held or "")
    assert [source.asked[f"/r{number}"] for number in range(3)] == [1, 0, 0]
    source.resources["/r0"] = b"there"
    del source.handlers["/r0"]
    monkeypatch.setattr(missing, "ASKED_SECONDS", -1)
    facts = await bridging.once(source.loc("map.xml"))
    assert ("not asked for yet" in (facts.held or ""), bridging.told()) == (True, [])
    monkeypatch.undo()
    facts = await bridging.once(source.loc("map.xml"))
    assert "1 resource is missing" in (facts.held or "")
    assert sorted(bridging.told()) == [("deleted", "r1"), ("deleted", "r2")]


async def test_a_resource_that_is_never_answered_does_not_keep_those_behind_it_from_being_asked_for(
    source, bridging
):
    """Those of another host, which are asked for meanwhile, do not take their turn either."""
    other = source.loc("r9").replace("127.0.0.1", "localhost")
    more = f"<url><loc>{other}</loc></url></urlset>".encode()
    source.documents["/map.xml"] = sitemap(source, NAMES).replace(b"</urlset>", more)
    await bridging.once(source.loc("map.xml"))
    source.answer("/r0", status=503)
    source.documents["/map.xml"] = sitemap(source, NAMES[3:])
    await bridging.once(source.loc("map.xml"))
    assert (source.asked["/r1"], source.asked["/r2"], source.asked["/r9"]) == (0, 0, 1)
    facts = await bridging.once(source.loc("map.xml"))
    assert "1 resource is missing" in (facts.held or "")
    assert "r0 answers 503" in (facts.held or "")
    assert sorted(bridging.told())[:2] == [("deleted", "r1"), ("deleted", "r2")]


async def test_robots_that_are_asked_to_leave_a_resource_alone_do_not_ask_for_it(source, bridging):
    source.documents["/robots.txt"] = b"User-agent: *\nDisallow: /r0"
    source.documents["/map.xml"] = sitemap(source, NAMES)
    await bridging.once(source.loc("map.xml"))
    source.documents["/map.xml"] = sitemap(source, NAMES[2:])
    facts = await bridging.once(source.loc("map.xml"))
    assert "asks robots to leave" in (facts.held or "")
    assert (source.asked["/r0"], bridging.told()) == (0, [("deleted", "r1")])


async def test_what_was_kept_is_deleted_if_somebody_lets_it_through(source, bridging):
    source.documents["/map.xml"] = sitemap(source, NAMES)
    await bridging.once(source.loc("map.xml"))
    source.resources["/r0"] = b"a page that says: not found"
    source.documents["/map.xml"] = sitemap(source, NAMES[1:])
    facts = await bridging.once(source.loc("map.xml"))
    assert "r0 answers 200; if that is meant, let it through with --release" in (facts.held or "")
    with closing(BridgeStore(bridging.state, is_writer=False)) as memory:
        memory.all()[0].release()
    facts = await bridging.once(source.loc("map.xml"))
    assert (facts.held, bridging.told()) == (None, [("deleted", "r0")])


async def test_a_host_that_asks_to_wait_is_waited_for(source, bridging):
    source.documents["/map.xml"] = sitemap(source, NAMES)
    async with bridging.running(source.loc("map.xml")) as bridges:
        (bridge,) = bridges.bridges
        await bridge.once()
        source.answer("/r0", status=429, headers={"Retry-After": "900"})
        source.documents["/map.xml"] = sitemap(source, NAMES[1:])
        assert await bridge.round(is_once=False) == 900
        source.documents["/map.xml"] = sitemap(source, NAMES)
        assert await bridge.round(is_once=False) < 900
