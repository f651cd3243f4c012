"""`rsnotify bridge`: Sources of ResourceSync, sitemaps and channels, bridged to a set of a hub."""

import asyncio
import json
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web
from msgspec.structs import replace

from clients.python.tests.bridge.bridging import Bridging
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_bridge import bridge as bridge_module
from rsnotify_bridge.memory import BridgeStore
from rsnotify_bridge.target import HubTarget
from rsnotify_client import Publisher
from tests.support.hub_processes import eventually
from tests.support.running import TOKEN
from tests.support.sources import CAPABILITIES, Source, rendered, sitemap_index

MAP = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'


def sitemap(source: Source, names: Iterable[str], lastmod: str | None = None) -> bytes:
    when = f"<lastmod>{lastmod}</lastmod>" if lastmod else ""
    entries = "".join(f"<url><loc>{source.loc(name)}</loc>{when}</url>" for name in names)
    return MAP.format(entries).encode()


async def test_the_whole_state_is_loaded_silently_and_then_changes_are_published(source, bridging):
    address = source.url + CAPABILITIES
    first = await bridging.once(address)
    assert (first.error, first.is_loaded, bridging.told()) == (None, True, [])
    source.change("a.txt", b"new")
    source.change("b.txt", None)
    source.change("z.txt", b"z")
    await bridging.once(address)
    assert bridging.told() == [("updated", "a.txt"), ("deleted", "b.txt"), ("created", "z.txt")]
    await bridging.once(address)
    assert len(bridging.told()) == 3
    found = bridging.hub.journal(bridging.set_name)[0]
    assert (found.lastmod, found.hash, found.length) == (
        source.changes[0].lastmod,
        source.changes[0].hash,
        source.changes[0].length,
    )
    assert [(link.rel, link.href) for link in found.links] == [("via", address)]


async def test_changes_since_an_old_list_are_in_the_first_state(source, bridging):
    source.change("a.txt", None)
    source.change("new.txt", b"x")
    await bridging.once(source.url + CAPABILITIES)
    assert (bridging.told(), bridging.count()) == ([], 3)


async def test_sitemaps_are_compared(source, bridging):
    source.documents["/map.xml"] = sitemap(source, "abcdefghijklm")
    await bridging.once(source.loc("map.xml"))
    source.documents["/map.xml"] = sitemap(source, "abcdefghijkln")
    facts = await bridging.once(source.loc("map.xml"))
    assert (facts.error, facts.held) == (None, None)
    assert bridging.told() == [("created", "n"), ("deleted", "m")]


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_list_that_is_another_one_is_found(source, bridging, monkeypatch, is_gone):
    """After a failure at once, and else after a day, while the bridge runs."""
    bridging.set_name = f"another-{is_gone}".lower()
    bridging.hub.add_set(bridging.set_name)
    source.documents["/robots.txt"] = f"Sitemap: {source.loc('old.xml')}".encode()
    source.documents |= {"/old.xml": sitemap(source, "a"), "/new.xml": sitemap(source, "ab")}
    async with bridging.running(source.url + "/") as bridges:
        assert await bridges.once()
        source.documents["/robots.txt"] = f"Sitemap: {source.loc('new.xml')}".encode()
        if is_gone:
            del source.documents["/old.xml"]
            assert not await bridges.once()
        else:
            monkeypatch.setattr(bridge_module, "AGAIN_SECONDS", 0.0)
        assert await bridges.once()
    assert bridging.told() == [("created", "b")]


async def test_a_lastmod_that_is_another_is_an_update(source, bridging):
    source.documents["/map.xml"] = sitemap(source, "ab", "2026-11-01")
    await bridging.once(source.loc("map.xml"))
    source.documents["/map.xml"] = sitemap(source, "ab", "2026-11-02")
    await bridging.once(source.loc("map.xml"))
    assert bridging.told() == [("updated", "a"), ("updated", "b")]


async def test_an_unchanged_part_of_an_index_is_not_read_again(source, bridging):
    asked: list[str | None] = []

    async def part(request: web.Request) -> web.Response:
        asked.append(request.headers.get("If-None-Match"))
        if asked[-1] == '"1"':
            return web.Response(status=304)
        return web.Response(body=sitemap(source, "abc"), headers={"ETag": '"1"'})

    source.handlers["/one.xml"] = part
    source.documents["/two.xml"] = sitemap(source, "defghijklmnop")
    source.documents["/index.xml"] = sitemap_index(source, "one.xml", "two.xml")
    await bridging.once(source.loc("index.xml"))
    source.documents["/two.xml"] = sitemap(source, "defghijklmno")
    await bridging.once(source.loc("index.xml"))
    assert asked == [None, '"1"', '"1"']  # the second time to see whether it has moved
    assert (bridging.told(), bridging.count()) == ([("deleted", "p")], 15)


async def test_a_list_that_is_written_again_in_its_second_is_read_again(source, bridging):
    source.documents["/map.xml"] = sitemap(source, "a")
    second = format_datetime(datetime.now(UTC), usegmt=True)

    async def handler(request: web.Request) -> web.Response:
        told = {"Last-Modified": second, "Date": second}
        if request.headers.get("If-Modified-Since") == second:
            return web.Response(status=304, headers=told)
        return web.Response(body=source.documents["/map.xml"], headers=told)

    source.handlers["/map.xml"] = handler
    await bridging.once(source.loc("map.xml"))
    source.documents["/map.xml"] = sitemap(source, "ab")
    await bridging.once(source.loc("map.xml"))
    assert bridging.told() == [("created", "b")]


async def test_a_list_that_is_suddenly_empty_deletes_nothing_until_that_is_said(source, bridging):
    source.documents["/map.xml"] = sitemap(source, "abc")
    await bridging.once(source.loc("map.xml"))
    source.documents["/map.xml"] = sitemap(source, "")
    facts = await bridging.once(source.loc("map.xml"))
    assert "3 of 3 resources" in (facts.held or "")
    assert bridging.told() == []
    with closing(BridgeStore(bridging.state, is_writer=False)) as memory:
        memory.all()[0].release()
    facts = await bridging.once(source.loc("map.xml"))
    assert facts.held is None
    assert sorted(bridging.told()) == [("deleted", "a"), ("deleted", "b"), ("deleted", "c")]


async def test_a_list_that_comes_back_is_not_held_any_more(source, bridging):
    source.documents["/map.xml"] = sitemap(source, "abc")
    await bridging.once(source.loc("map.xml"))
    source.documents["/map.xml"] = sitemap(source, "")
    await bridging.once(source.loc("map.xml"))
    source.documents["/map.xml"] = sitemap(source, "abcd")
    facts = await bridging.once(source.loc("map.xml"))
    assert (facts.held, bridging.told()) == (None, [("created", "d")])


async def test_too_many_deletions_in_a_change_list_are_held_back(source, bridging):
    await bridging.once(source.url + CAPABILITIES)
    for name in "abc":
        source.change(f"{name}.txt", None)
    facts = await bridging.once(source.url + CAPABILITIES)
    assert facts.held is not None
    assert bridging.told() == []


async def test_deletions_that_a_source_takes_back_as_it_was_are_not_held_any_more(source, bridging):
    """Each as it was known before, so that nothing is news, and nothing is left to release."""
    await bridging.once(source.url + CAPABILITIES)
    before = dict(source.resources)
    for name in "abc":
        source.change(f"{name}.txt", None)
    assert (await bridging.once(source.url + CAPABILITIES)).held is not None
    for names, is_held in (("ab", True), ("c", False)):
        for name in names:
            change = source.change(f"{name}.txt", before[f"/{name}.txt"])
            source.changes[-1] = replace(change, lastmod=str(source.at))
        source.list_changes()
        facts = await bridging.once(source.url + CAPABILITIES)
        assert (facts.held is not None, bridging.told(), bridging.count()) == (is_held, [], 3)


async def test_a_gap_in_the_change_lists_is_closed_by_a_comparison(source, bridging):
    await bridging.once(source.url + CAPABILITIES)
    source.change("a.txt", b"lost in the gap")
    source.now += 5_000_000
    source.at = type(source.at)(source.now)
    source.changes.clear()
    source.list_resources()
    facts = await bridging.once(source.url + CAPABILITIES)
    assert facts.error is None
    assert bridging.told()[0] == ("updated", "a.txt")
    source.change("b.txt", b"after the gap")
    await bridging.once(source.url + CAPABILITIES)
    assert bridging.told()[-1] == ("updated", "b.txt")


async def test_a_change_list_deletes_what_a_list_that_was_empty_has_had_held_back(source, bridging):
    await bridging.once(source.url + CAPABILITIES)
    resources = dict(source.resources)
    source.now += 5_000_000
    source.at = type(source.at)(source.now)
    source.resources.clear()
    source.list_resources()
    assert (await bridging.once(source.url + CAPABILITIES)).held is not None
    source.resources |= resources
    source.list_resources()
    source.change("b.txt", None)
    await bridging.once(source.url + CAPABILITIES)
    assert bridging.told() == [("deleted", "b.txt")]


async def test_a_channel_is_followed_as_it_changes(real_hub, bridging):
    real_hub.add_set("upstream")
    with Publisher(real_hub.url, TOKEN) as publisher:
        publisher.publish("upstream", [change("created", "http://a.example/1")])
        async with bridging.running(f"{real_hub.url}/upstream") as bridges:
            keeping = asyncio.create_task(bridges.keep())
            state = bridges.bridges[0].state
            await until(lambda: state.facts.is_loaded)
            publisher.publish("upstream", [change("updated", "http://a.example/1", length=3)])
            publisher.publish("upstream", [change("created", "http://a.example/2")])
            await until(lambda: state.facts.published == 2)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
    assert state.facts.how.startswith("channel: ws://")
    assert bridging.told() == [("updated", "1"), ("created", "2")]
    via = bridging.hub.journal(bridging.set_name)[0].links[0]
    assert via.href == f"{real_hub.url}/upstream/capabilitylist.xml"


async def test_what_is_let_through_while_the_hub_is_away_is_published_when_it_is_back(
    real_hub, bridging, monkeypatch
):
    """Also where nothing else happens on the channel."""
    monkeypatch.setattr(bridge_module, "HUB_SECONDS", 0.1)
    monkeypatch.setattr(bridge_module, "BEAT_SECONDS", 0.1)
    real_hub.add_set("quiet")
    locs = [f"http://a.example/{number}" for number in range(20)]
    with Publisher(real_hub.url, TOKEN) as publisher:
        publisher.publish("quiet", [change("created", loc) for loc in locs])
        async with bridging.running(f"{real_hub.url}/quiet") as bridges:
            keeping = asyncio.create_task(bridges.keep())
            state = bridges.bridges[0].state
            await until(lambda: state.facts.is_loaded)
            publisher.publish("quiet", [change("deleted", loc) for loc in locs[:15]])
            await until(lambda: state.facts.held)
            with monkeypatch.context() as patched:

                async def publish(*_: object) -> None:
                    raise TryAgain("the hub is away")

                patched.setattr(HubTarget, "publish", publish)
                state.release()
                await until(lambda: state.facts.error == "the hub is away")
            await until(lambda: state.facts.is_well)
            assert not state.waiting
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
    assert bridging.count() == 5


async def test_what_is_loaded_silently_is_found_by_comparing_while_a_channel_is_followed(
    real_hub, bridging
):
    real_hub.add_set("loaded")
    options = {"compare": 1.0}
    async with bridging.running(f"{real_hub.url}/loaded", **options) as bridges:
        keeping = asyncio.create_task(bridges.keep())
        state = bridges.bridges[0].state
        await until(lambda: state.facts.is_loaded)
        real_hub.ask(
            "PUT", "/api/sets/loaded/resources?publish=no", b'[{"loc":"http://a.example/1"}]'
        )
        real_hub.ask("POST", "/api/sets/loaded/snapshot")
        await until(lambda: state.facts.published == 1)
        with Publisher(real_hub.url, TOKEN) as publisher:
            publisher.publish("loaded", [change("created", "http://a.example/2")])
        await until(lambda: state.facts.published == 2)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    assert bridging.told() == [("created", "1"), ("created", "2")]


async def test_two_hubs_that_bridge_each_other_do_not_echo(real_hub, bridging, tmp_path):
    here, there = bridging.set_name, "the-other-one"
    real_hub.add_set(there)
    back = Bridging(real_hub, there, tmp_path / "back.db")
    with Publisher(real_hub.url, TOKEN) as publisher:
        publisher.publish(here, [change("created", "http://a.example/here")])
        publisher.publish(there, [change("created", "http://a.example/there")])
        for _ in range(4):
            await bridging.once(f"{real_hub.url}/{there}", shared=True)
            await back.once(f"{real_hub.url}/{here}", shared=True)
    assert sorted(bridging.told()) == [("created", "here"), ("created", "there")]
    assert sorted(back.told()) == [("created", "here"), ("created", "there")]


async def test_a_resource_of_two_sources_keeps_the_newest(source, bridging):
    source.documents["/one.xml"] = sitemap(source, "ab", "2026-11-01")
    source.documents["/two.xml"] = sitemap(source, "b", "2026-11-05")
    addresses = source.loc("one.xml"), source.loc("two.xml")

    async def look() -> None:
        async with bridging.running(*addresses, **{"max-delete": 100}) as bridges:
            for each in bridges.bridges:
                await each.once()

    await look()
    first = bridging.hub.journal(bridging.set_name)
    assert [(each.change, each.lastmod) for each in first if each.loc.endswith("/b")] == [
        ("created", "2026-11-01"),
        ("updated", "2026-11-05"),
    ]
    assert {link.href for each in first for link in each.links} == {*addresses}
    source.documents["/two.xml"] = sitemap(source, "c", "2026-11-05")
    await look()
    last = bridging.hub.journal(bridging.set_name)[len(first) :]
    (older,) = [each for each in last if each.loc.endswith("/b")]
    assert (older.change, older.lastmod) == ("updated", "2026-11-01")
    assert older.links[0].href == source.loc("one.xml")


def change(kind: str, loc: str, **fields: object) -> Change:
    return Change(loc, kind, **fields)


async def until(fact: object, seconds: float = 20) -> None:
    await asyncio.to_thread(eventually, fact, seconds)


async def test_a_first_load_deletes_nothing_that_others_put_into_the_set(source, bridging):
    """Nor does a bridge that lost its state: it cannot know what is its own."""
    with Publisher(bridging.hub.url, TOKEN) as publisher:
        publisher.publish(bridging.set_name, [change("created", "http://elsewhere.example/1")])
    source.documents["/map.xml"] = sitemap(source, "abcdefghijklmnop")
    for _ in range(2):
        facts = await bridging.once(source.loc("map.xml"))
        assert "1 of 1 resources" in (facts.held or "")
        assert "--shared" in (facts.held or "")
        assert (facts.is_loaded, bridging.count()) == (False, 1)
    with closing(BridgeStore(bridging.state, is_writer=False)) as memory:
        memory.all()[0].release()
    facts = await bridging.once(source.loc("map.xml"))
    assert (facts.error, facts.held, facts.is_loaded, bridging.count()) == (None, None, True, 16)


async def test_a_bridge_that_lost_its_state_goes_on_where_nothing_is_gone(source, bridging):
    source.documents["/map.xml"] = sitemap(source, "ab")
    await bridging.once(source.loc("map.xml"))
    bridging.state.unlink()
    source.documents["/map.xml"] = sitemap(source, "abc")
    facts = await bridging.once(source.loc("map.xml"))
    assert (facts.held, bridging.told(), bridging.count()) == (None, [("created", "c")], 3)


async def test_a_clock_that_is_hours_off_is_said_and_loses_nothing(source, bridging):
    async def handler(_: web.Request) -> web.Response:
        date = format_datetime(datetime.now(UTC) - timedelta(hours=5), usegmt=True)
        return web.Response(body=sitemap(source, names), headers={"Date": date})

    names = "ab"
    source.handlers["/map.xml"] = handler
    facts = await bridging.once(source.loc("map.xml"))
    assert "5 h 0 min behind" in (facts.clock or "")
    names = "abc"
    facts = await bridging.once(source.loc("map.xml"))
    assert (facts.error, bridging.told()) == (None, [("created", "c")])
    del source.handlers["/map.xml"]
    source.documents["/map.xml"] = sitemap(source, names)
    facts = await bridging.once(source.loc("map.xml"))
    assert facts.clock is None


async def test_a_topic_without_channel_and_lists_is_polled(source, bridging):
    def notify(name: str, since: int, until: int) -> None:
        source.documents["/topic"] = rendered(
            "change-notification",
            [
                Entry(
                    source.loc(name), md=Md(change="created", datetime=f"2026-11-20T00:00:{until}Z")
                )
            ],
            **{"from": f"2026-11-20T00:00:{since}Z", "until": f"2026-11-20T00:00:{until}Z"},
        )

    notify("a", 10, 20)
    facts = await bridging.once(source.loc("topic"))
    assert (facts.error, facts.how.partition(":")[0]) == (None, "topic, polled")
    notify("b", 20, 30)
    facts = await bridging.once(source.loc("topic"))
    assert (facts.error, facts.skipped, bridging.told()) == (None, None, [("created", "b")])
    notify("d", 40, 50)
    facts = await bridging.once(source.loc("topic"))
    assert "does not reach back" in (facts.skipped or "")
    assert bridging.told() == [("created", "b"), ("created", "d")]


async def test_the_token_of_a_source_is_read_from_its_own_file(source, bridging, tmp_path):
    async def handler(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer the-token-of-the-source":
            return web.Response(status=401)
        return web.Response(body=sitemap(source, "ab"))

    source.handlers["/map.xml"] = handler
    facts = await bridging.once(source.loc("map.xml"))
    assert "a token is needed" in (facts.error or "")
    (tmp_path / "token").write_text("the-token-of-the-source\n")
    given = {"token-file": str(tmp_path / "token")}
    facts = await bridging.once(source.loc("map.xml"), **given)
    assert (facts.error, bridging.count()) == (None, 2)
    with pytest.raises(InvalidSettings, match="token-file"):
        await bridging.once(source.loc("map.xml"), **{"token-file": str(tmp_path / "none")})


async def test_a_set_that_was_made_anew_gets_all_again(source, bridging):
    """Also one that has lost a part, and who has followed it since is told."""
    source.documents["/map.xml"] = sitemap(source, "abc")
    assert (await bridging.once(source.loc("map.xml"), create=True)).is_well
    path = f"/api/sets/{bridging.set_name}"
    bridging.hub.ask("DELETE", path)
    facts = await bridging.once(source.loc("map.xml"))
    assert "there is no set" in (facts.error or "")
    source.documents["/map.xml"] = sitemap(source, "abcd")
    facts = await bridging.once(source.loc("map.xml"), create=True)
    assert (facts.is_well, bridging.count()) == (True, 4)
    assert sorted(bridging.told()) == [("created", name) for name in "abcd"]
    change = json.dumps([{"loc": source.loc("b"), "change": "deleted"}])
    bridging.hub.ask("POST", f"{path}/changes", change.encode())
    assert (await bridging.once(source.loc("map.xml"))).is_well
    assert bridging.told()[-2:] == [("deleted", "b"), ("created", "b")]


async def test_a_set_that_was_made_anew_gets_all_of_several_sources_again(source, bridging):
    source.documents |= {"/1.xml": sitemap(source, "ab"), "/2.xml": sitemap(source, "bc")}
    both = [source.loc("1.xml"), source.loc("2.xml")]
    for count in (0, 1):
        async with bridging.running(*both, create=True) as bridges:
            assert await bridges.once()
        assert bridging.count() == 3
        if count == 0:
            bridging.hub.ask("DELETE", f"/api/sets/{bridging.set_name}")


async def test_what_no_hub_takes_is_said_and_is_no_success(source, bridging, caplog):
    def listed(*locs: str) -> bytes:
        return MAP.format("".join(f"<url><loc>{loc}</loc></url>" for loc in locs)).encode()

    good, long = source.loc("a"), source.loc("x" * 4_000)
    for locs in ((good, long), (good, f"{long}y", source.loc("b"))):
        source.documents["/map.xml"] = listed(*locs)
        for _ in range(2):  # it stays no success
            facts = await bridging.once(source.loc("map.xml"), **{"max-delete": 100})
            assert "not published: 1 of its resources" in (facts.skipped or "")
            assert facts.skipped in caplog.text, "each run says why it does not succeed"
            caplog.clear()
            assert not facts.is_well
    assert (bridging.told(), bridging.count()) == ([("created", "b")], 2)
    source.documents["/map.xml"] = listed(good, source.loc("b"))
    facts = await bridging.once(source.loc("map.xml"), **{"max-delete": 100})
    assert (facts.is_well, facts.refused) == (True, 2)  # it is gone


async def test_what_the_hub_refused_is_published_when_it_takes_it(source, bridging, monkeypatch):
    """Also what had waited, and is refused before the Source is found."""
    monkeypatch.setattr(bridge_module, "HUB_SECONDS", 0.0)
    source.documents["/map.xml"] = sitemap(source, "a")
    assert (await bridging.once(source.loc("map.xml"))).is_well
    source.documents["/map.xml"] = sitemap(source, "ab")
    for error in (TryAgain("the hub is away"), Rejected("not this", status=422)):
        with monkeypatch.context() as patched:

            async def publish(*_: object, error: Exception = error) -> None:
                raise error

            patched.setattr(HubTarget, "publish", publish)
            facts = await bridging.once(source.loc("map.xml"))
            assert str(error) in f"{facts.error} {facts.skipped}"
            assert not facts.is_well
    assert not (await bridging.once(source.loc("map.xml"))).is_well
    monkeypatch.setattr(bridge_module, "AGAIN_SECONDS", 0.0)
    facts = await bridging.once(source.loc("map.xml"))
    assert (facts.skipped, facts.is_well, facts.refused) == (None, True, 1)
    assert bridging.told() == [("created", "b")]


async def not_this(*_: object) -> None:
    raise Rejected("not this", status=422)


async def test_what_the_hub_refused_and_is_gone_is_not_published_later(
    source, bridging, monkeypatch
):
    """Also if the Source writes its address as no hub does."""
    source.documents["/map.xml"] = sitemap(source, "abc")
    assert (await bridging.once(source.loc("map.xml"))).is_well
    source.documents["/map.xml"] = sitemap(source, "abcü")
    with monkeypatch.context() as patched:
        patched.setattr(HubTarget, "publish", not_this)
        assert not (await bridging.once(source.loc("map.xml"))).is_well
    source.documents["/map.xml"] = sitemap(source, "abc")
    assert (await bridging.once(source.loc("map.xml"), **{"max-delete": 100})).is_well
    monkeypatch.setattr(bridge_module, "AGAIN_SECONDS", 0.0)
    assert (await bridging.once(source.loc("map.xml"))).is_well
    assert [change for change, _ in bridging.told()] == ["deleted"]


async def test_what_the_hub_refused_and_a_load_has_brought_is_refused_no_more(
    source, bridging, monkeypatch
):
    source.documents["/map.xml"] = sitemap(source, "a")
    assert (await bridging.once(source.loc("map.xml"))).is_well
    source.documents["/map.xml"] = sitemap(source, "ab")
    with monkeypatch.context() as patched:
        patched.setattr(HubTarget, "publish", not_this)
        assert not (await bridging.once(source.loc("map.xml"))).is_well
    bridging.hub.ask("DELETE", f"/api/sets/{bridging.set_name}")
    bridging.hub.add_set(bridging.set_name)
    facts = await bridging.once(source.loc("map.xml"))
    assert (facts.skipped, facts.is_well, bridging.count()) == (None, True, 2)


async def test_what_no_hub_takes_and_was_gone_before_the_load_that_succeeds_is_not_missed(
    source, bridging
):
    other = json.dumps([{"loc": "http://other.example/", "change": "created"}])
    bridging.hub.ask("POST", f"/api/sets/{bridging.set_name}/changes", other.encode())
    source.documents["/map.xml"] = sitemap(source, ["a", "x" * 4_000])
    async with bridging.running(source.loc("map.xml")) as bridges:
        assert not await bridges.once()
        source.documents["/map.xml"] = sitemap(source, "a")
        bridges.bridges[0].state.release()
        assert await bridges.once()


async def test_a_source_that_has_moved_is_followed_with_what_is_known_of_it(source, bridging):
    old = source.url + CAPABILITIES
    await bridging.once(old)
    async with Source() as moved:
        moved.documents |= source.documents
        moved.documents[CAPABILITIES] = moved.capability_list("resourcelist", "changelist")
        source.change("a.txt", b"second")
        moved.documents["/changelist.xml"] = source.documents["/changelist.xml"]
        source.documents.clear()
        new = moved.url + CAPABILITIES

        def move(from_: str) -> None:
            with closing(BridgeStore(bridging.state)) as memory:
                memory.move(from_, new, bridging.hub.url, bridging.set_name)

        with pytest.raises(InvalidSettings, match="none is from http://other"):
            move("http://other.example/")
        move(old)
        move(old)  # said again
        facts = await bridging.once(new)
        assert (facts.error, facts.held) == (None, None)
        assert bridging.told() == [("updated", "a.txt")]
        with closing(BridgeStore(bridging.state)) as memory:
            (known,) = memory.all()
            assert known.source == new
