"""Two hubs behind a proxy with the configuration of docs/operations, restarted one by one."""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.fault.test_workers import grown, publishing, reading, told
from tests.support.faults import OwnRedis
from tests.support.needs import need
from tests.support.redis_server import free_port
from tests.support.running import RunningHub, rsnotify, until

EXAMPLES = Path(__file__).parents[2] / "docs/operations"
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error; events {{}}
http {{ access_log off; {temporary} {site} }}
"""
Proxy = Callable[[Path, int, list[str]], list[str]]
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def nginx(folder: Path, port: int, hubs: list[str]) -> list[str]:
    site = (EXAMPLES / "nginx.conf").read_text()
    site = site.replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    site = re.sub(r"(?m)^ +ssl_certificate.*$", "", site)
    for example, hub in zip(("10.0.0.11:8080", "10.0.0.12:8080"), hubs, strict=True):
        site = site.replace(example, hub)
    temporary = "".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY)
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, temporary=temporary, site=site))
    return ["-e", f"{folder}/error", "-c", str(config)]


def haproxy(folder: Path, port: int, hubs: list[str]) -> list[str]:
    site = (EXAMPLES / "haproxy.cfg").read_text()
    site = re.sub(r"bind :443 .*", f"bind 127.0.0.1:{port}", site).replace("20000", "200")
    for example, hub in zip(("10.0.0.11:8080", "10.0.0.12:8080"), hubs, strict=True):
        site = site.replace(example, hub)
    config = folder / "haproxy.cfg"
    config.write_text(site)
    return ["-f", str(config)]


def caddy(folder: Path, port: int, hubs: list[str]) -> list[str]:
    site = (EXAMPLES / "Caddyfile").read_text()
    site = site.replace("{$SITE:localhost}", f"http://127.0.0.1:{port}")
    site = site.replace("{$HUBS:hub:8080}", " ".join(hubs))
    site = re.sub(r"(?m)^\s+stream_close_delay .*$", "", site)  # of Caddy 2.7, for a reload
    config = folder / "Caddyfile"
    config.write_text("{\n\tadmin off\n\tauto_https off\n}\n" + site)
    return ["run", "--config", str(config), "--adapter", "caddyfile"]


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    server = subprocess.Popen(command)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


class Proxied(RunningHub):
    """The hubs behind the proxy, as their peers see them: by its address."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder)
        self.url = f"http://127.0.0.1:{port}"

    async def is_up(self) -> bool:
        try:
            return (await self.ask("GET", "/health/ready"))[0] == 200
        except OSError:
            return False


@asynccontextmanager
async def two_hubs(folder: Path, redis: OwnRedis) -> AsyncIterator[list[RunningHub]]:
    options = ("--redis", redis.url)
    hubs = [
        RunningHub(folder / name, *options, drain_seconds="1", trusted_proxies="127.0.0.1")
        for name in ("one", "other")
    ]
    await asyncio.gather(*(hub.start() for hub in hubs))
    try:
        yield hubs
    finally:
        await asyncio.gather(*(hub.stop() for hub in hubs))


@asynccontextmanager
async def behind(proxy: Proxy, folder: Path, hubs: list[RunningHub]) -> AsyncIterator[Proxied]:
    """The hubs behind this proxy, as soon as it hands requests on."""
    program = need(proxy.__name__)
    port = free_port()
    proxied = Proxied(folder / "proxied", port)
    words = proxy(folder, port, [hub.url.partition("//")[2] for hub in hubs])
    with running([program, *words]):
        await until(proxied.is_up)
        yield proxied


@pytest.mark.parametrize("proxy", [nginx, haproxy])
async def test_hubs_behind_a_proxy_are_restarted_one_by_one_and_no_publish_is_dropped(
    tmp_path, own_redis, proxy
):
    async with (
        two_hubs(tmp_path, own_redis) as hubs,
        behind(proxy, tmp_path, hubs) as proxied,
        reading(proxied) as found,
        publishing(proxied.url, opening=20) as publishers,
    ):
        for hub in hubs:
            await until(lambda: grown(publishers))
            await hub.stop()
            await until(lambda: grown(publishers))
            await hub.start()
            await until(proxied.is_up)
        for publisher in publishers:
            publisher.end()
        await until(lambda: told(publishers, found))


async def test_readers_behind_caddy_miss_nothing_and_refused_publishes_can_be_repeated(
    tmp_path, own_redis
):
    """Caddy may answer 502 to a publish whose hub has ended: see docs/operations/deploying.md."""
    async with (
        two_hubs(tmp_path, own_redis) as hubs,
        behind(caddy, tmp_path, hubs) as proxied,
        reading(proxied) as found,
    ):
        names: list[str] = []
        for hub in hubs:
            await hub.stop()
            names += [await handed_over(proxied, f"{len(names) + n}") for n in range(20)]
            await hub.start()
            await until(proxied.is_up)

        async def are_told() -> bool:
            return found == [names, names]

        await until(are_told)


async def handed_over(proxied: Proxied, name: str) -> str:
    """Publish until it is acknowledged; the key makes that safe."""
    loc = f"http://example.com/{name}"
    asked = {"json": {"loc": loc, "change": "updated"}, "headers": {"Idempotency-Key": name}}

    async def is_accepted() -> bool:
        status, said = await proxied.ask("POST", "/api/sets/dataset1/changes", **asked)
        assert status in (201, 502, 503), said
        return status == 201

    await until(is_accepted)
    return loc


async def test_a_hub_below_a_path_is_found_published_to_and_followed(tmp_path):
    """By the lines of docs/operations/deploying.md, as they stand there."""
    page = (EXAMPLES / "deploying.md").read_text().partition("## Below a path")[2]
    (lines,) = re.findall(r"```nginx\n(.*?)```", page.partition("\n## ")[0], re.DOTALL)
    (upgrade,) = re.findall(r"map [^}]*}", (EXAMPLES / "nginx.conf").read_text())
    port = free_port()
    public = f"http://127.0.0.1:{port}/changes"
    async with RunningHub(tmp_path / "data", public_url=public) as hub:
        site = lines.replace("127.0.0.1:8080", hub.url.partition("//")[2])
        site = f"{upgrade} server {{ listen 127.0.0.1:{port}; {site} }}"
        temporary = "".join(f"{name}_temp_path {tmp_path}/{name};" for name in TEMPORARY)
        config = tmp_path / "nginx.conf"
        config.write_text(NGINX.format(folder=tmp_path, temporary=temporary, site=site))
        proxied = Proxied(tmp_path / "proxied", port)
        proxied.url = public
        with running([need("nginx"), "-e", f"{tmp_path}/error", "-c", str(config)]):
            await until(proxied.is_up)
            root = Proxied(tmp_path / "root", port)
            _, description = await root.ask("GET", "/.well-known/resourcesync")
            assert f"{public}/dataset1/capabilitylist.xml".encode() in description
            for path in ("/", "/static/page.css", "/static/main.js"):
                assert (await proxied.ask("GET", path))[0] == 200, path
            words = ("publish", "dataset1", "http://example.com/a", "--json")
            ended = await rsnotify(*words, hub=proxied)
            assert ended.status == 0, ended
            start = json.loads(ended.out)["from"]
            follow = ("subscribe", "dataset1", "--position", start, "--count", "1")
            assert "http://example.com/a" in (await rsnotify(*follow, hub=proxied)).out
            state = tmp_path / "state.ndjson"
            state.write_text(
                "".join(f'{{"loc": "http://example.com/{n:0999}"}}\n' for n in range(1200))
            )
            load = (
                "resources",
                "load",
                "dataset1",
                str(state),
                "--max-delete",
                "100",
                "--overwrite",
            )
            ended = await rsnotify(*load, hub=proxied)
            assert ended.status == 0, ended
