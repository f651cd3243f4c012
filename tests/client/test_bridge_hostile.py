"""Sources that are broken or hostile, bridged: each is a clear line, and nothing is deleted."""

import gzip
from pathlib import Path

import pytest

from tests.client.bridging import Bridging
from tests.client.hubs import HubProcess
from tests.support.sources import Source

NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
GOOD = f"<urlset {NS}><url><loc>http://a.example/a</loc></url></urlset>"

BAD = {
    "a login page": ("<html><form>password</form></html>", "login"),
    "cut short": (GOOD[:-12], "not well-formed"),
    "a DOCTYPE": ('<!DOCTYPE a [<!ENTITY b "c">]>' + GOOD, "DOCTYPE"),
    "an index of itself": (
        f"<sitemapindex {NS}><sitemap><loc>map.xml</loc></sitemap></sitemapindex>",
        "index under an index",
    ),
    "another encoding": ('<?xml version="1.0" encoding="utf-16"?>' + GOOD, "encoding"),
    "nothing": ("", ""),
}


async def test_what_is_no_list_deletes_nothing_and_is_said(
    real_hub: HubProcess, set_name: str, source: Source, tmp_path: Path
) -> None:
    bridging = Bridging(real_hub, set_name, tmp_path / "bridge.db")
    source.documents["/map.xml"] = GOOD.encode()
    async with bridging.running(source.loc("map.xml"), **{"max-delete": 100}) as bridges:
        assert await bridges.once()
        for text, problem in BAD.values():
            source.documents["/map.xml"] = text.encode()
            assert not await bridges.once()
            error = bridges.bridges[0].state.facts.error or ""
            assert error
            assert problem in error or problem == "login"
        source.documents["/map.xml"] = GOOD.encode()
        assert await bridges.once()
    assert (bridging.told(), bridging.count()) == ([], 1)


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("self", '{"type":"OrderedCollection","last":{"id":"self"}}', "was read before"),
        ("away", '{"type":"OrderedCollection","last":"http://169.254.169.254/"}', "another host"),
        ("feed", "<feed><link rel='next' href='feed'/></feed>", "was read before"),
        ("deep", f"<feed>{'<a>' * 1_000}{'</a>' * 1_000}</feed>", "not well-formed"),
        ("bomb", '<!DOCTYPE a [<!ENTITY b "c">]><feed>&b;</feed>', "DOCTYPE"),
    ],
)
async def test_a_feed_that_leads_nowhere_is_said(
    real_hub: HubProcess, source: Source, tmp_path: Path, path: str, body: str, problem: str
) -> None:
    source.documents[f"/{path}"] = body.encode()
    facts = await Bridging(real_hub, "dataset1", tmp_path / "bridge.db").once(source.loc(path))
    assert problem in (facts.error or "")


async def test_a_sitemap_in_gzip_is_followed_and_half_of_it_is_not(
    real_hub: HubProcess, set_name: str, source: Source, tmp_path: Path
) -> None:
    bridging = Bridging(real_hub, set_name, tmp_path / "bridge.db")
    whole = gzip.compress(GOOD.encode())
    source.documents["/map.xml.gz"] = whole
    facts = await bridging.once(source.loc("map.xml.gz"), **{"max-delete": 100})
    assert (facts.error, bridging.count()) == (None, 1)
    spaces = gzip.compress(f"<urlset {NS}>{' ' * 60 * 1024 * 1024}</urlset>".encode())
    for body in (whole[:-10], gzip.compress(GOOD[:-12].encode()), spaces, gzip.compress(spaces)):
        source.documents["/map.xml.gz"] = body
        facts = await bridging.once(source.loc("map.xml.gz"), **{"max-delete": 100})
        assert facts.error is not None
    assert (bridging.told(), bridging.count()) == ([], 1)


async def test_what_robots_txt_closes_is_not_asked_for(
    real_hub: HubProcess, source: Source, tmp_path: Path
) -> None:
    source.documents["/robots.txt"] = b"User-agent: *\nDisallow: /map.xml\n"
    source.documents["/map.xml"] = GOOD.encode()
    bridging = Bridging(real_hub, "dataset1", tmp_path / "bridge.db")
    facts = await bridging.once(source.loc("map.xml"))
    assert "asks robots to leave /map.xml alone" in (facts.error or "")
    assert source.asked["/map.xml"] == 0
