"""Found from a Source's own site: the ways that docs/discovery.md shows, each with a real nginx."""

import re
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from rsnotify.errors import Rejected
from rsnotify_client.discovery import discover
from rsnotify_client.web import Web
from tests.support.needs import need
from tests.support.redis_server import free_port
from tests.support.reference import INSTALL_SECONDS
from tests.support.running import RunningHub, until

PAGE = (Path(__file__).parents[4] / "docs/discovery.md").read_text()
NGINX = Path(__file__).parents[4] / "docs/operations/nginx.conf"
HUB = "https://hub.example.org"
PLAIN = "<html><head><title>our site</title></head></html>"

CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error; events {{}}
http {{
  access_log off;
  {temporary}
  {outside}
  server {{ listen 127.0.0.1:{port}; root {folder}/html; {inside} }}
}}
"""
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def section(heading: str) -> list[str]:
    """The examples of a section of the page."""
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Site:
    """A Source's own site: what nginx serves there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "html").mkdir()
        self.write("index.html", PLAIN)

    def write(self, name: str, content: str) -> None:
        (self.folder / "html" / name).write_text(content)

    @contextmanager
    def served(self, hub: str, inside: str = "", outside: str = "") -> Iterator[str]:
        temporary = "".join(f"{name}_temp_path {self.folder}/{name};" for name in TEMPORARY)
        config = CONFIG.format(
            folder=self.folder,
            temporary=temporary,
            port=self.port,
            inside=inside.replace(HUB, hub),
            outside=outside,
        )
        (self.folder / "nginx.conf").write_text(config)
        command = [need("nginx"), "-e", f"{self.folder}/error", "-c", f"{self.folder}/nginx.conf"]
        server = subprocess.Popen(command)
        try:
            yield self.url
        finally:
            server.terminate()
            server.wait()

    async def is_up(self) -> None:
        async def accepted() -> bool:
            return accepts(self.port)

        await until(accepted)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    need("nginx")  # before a hub is started
    return Site(tmp_path)


@pytest_asyncio.fixture
async def listed(hub: RunningHub) -> AsyncIterator[RunningHub]:
    """A hub with a Resource List."""
    await hub.publish("http://example.com/a")
    status, _ = await hub.ask("POST", "/api/sets/dataset1/snapshot")
    assert status == 201
    yield hub


async def found_by_client(url: str) -> str:
    async with Web() as web:
        return (await discover(web, url)).url


async def found_by_resync(command: Path, site: Site, *options: str) -> str:
    """What it says about the list that it has found: here nothing of it is there yet."""
    words = [command, f"{site.url}={site.folder}/copy", "--audit", "--noauth", *options]
    (site.folder / "copy").mkdir(exist_ok=True)
    done = subprocess.run(words, cwd=site.folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.timeout(INSTALL_SECONDS + 60)
async def test_the_well_known_address_may_be_a_redirect(listed, site, resync):
    (inside,) = section("Redirect the well-known address")
    with site.served(listed.url, inside):
        await site.is_up()
        assert await found_by_client(site.url) == f"{listed.url}/dataset1/capabilitylist.xml"
        assert "to create=1" in await found_by_resync(resync, site)


@pytest.mark.timeout(INSTALL_SECONDS + 60)
async def test_site_and_hub_may_share_a_host(tmp_path, site, resync):
    (inside,) = section("One host behind nginx")
    (outside,) = re.findall(r"map [^}]*}", NGINX.read_text())
    settings = {"public_url": site.url, "trusted_proxies": "127.0.0.1"}
    async with RunningHub(tmp_path / "data", **settings) as hub:
        own = f"http://127.0.0.1:{hub.port}"
        hub.url = own
        await hub.publish("http://example.com/a")
        await hub.ask("POST", "/api/sets/dataset1/snapshot")
        with site.served(own, inside, outside):
            await site.is_up()
            assert await found_by_client(site.url) == f"{site.url}/dataset1/capabilitylist.xml"
            assert "to create=1" in await found_by_resync(resync, site)
            await _follows_through(site, hub)


async def _follows_through(site: Site, hub: RunningHub) -> None:
    """WebSockets and event streams pass."""
    path = f"{site.url}/channels/dataset1/change_notification_channel"
    told = b"<loc>http://example.com/b</loc>"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(path) as websocket,
        session.get(path, headers={"accept": "text/event-stream"}) as events,
    ):
        await hub.publish("http://example.com/b")
        message = await websocket.receive_str(timeout=10)
        assert told.decode() in message
        await events.content.readuntil(told)


async def test_a_page_may_link_the_capability_list(listed, site):
    html, header = section("A link in your pages")
    with site.served(listed.url):
        await site.is_up()
        site.write("linked.html", f"<html><head>{html.replace(HUB, listed.url)}</head></html>")
        found = await found_by_client(f"{site.url}/linked.html")
        assert found == f"{listed.url}/dataset1/capabilitylist.xml"
    with site.served(listed.url, header):
        await site.is_up()
        assert await found_by_client(site.url) == f"{listed.url}/dataset1/capabilitylist.xml"


async def test_robots_may_name_the_resource_list(listed, site):
    (robots,) = section("robots.txt")
    site.write("robots.txt", robots.replace(HUB, listed.url))
    with site.served(listed.url):
        await site.is_up()
        assert await found_by_client(site.url) == f"{listed.url}/dataset1/capabilitylist.xml"


async def test_without_any_of_these_nothing_is_found(listed, site):
    with site.served(listed.url):
        await site.is_up()
        with pytest.raises(Rejected, match="leads to no ResourceSync document"):
            await found_by_client(site.url)


@pytest.mark.timeout(INSTALL_SECONDS + 60)
async def test_a_set_may_name_its_sockets_first(listed, site, resync):
    status, _ = await listed.ask("PATCH", "/api/sets/dataset1", json={"sockets_first": True})
    assert status == 200
    async with Web() as web:
        source = await discover(web, listed.url)
    assert source.url == f"{listed.url}/dataset1/capabilitylist-ws.xml"
    assert (source.topic, (source.socket or "")[:5]) == (None, "ws://")
    (inside,) = section("Redirect the well-known address")
    with site.served(listed.url, inside):
        await site.is_up()
        assert "to create=1" in await found_by_resync(resync, site)
