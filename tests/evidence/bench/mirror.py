"""What mirroring costs, beside the reference client `resync` 2.0.1 and beside curl, from one nginx.

The reference client is installed first, if no test has done so yet.
"""

import asyncio
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from rsnotify.cli.demo import Collection, Site
from rsnotify.cli.target import asked, hub_at
from rsnotify.resourcesync.change import Change, render_datetime
from rsnotify_client.hub import HubClient
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.report import Event, percentile
from tests.support.reference import installed
from tests.support.running import TOKEN, RunningHub
from tests.support.stream_server import WebServer

SMALL, LARGE, LARGE_BYTES = 2_000, 20, 50 * 1024 * 1024
TLS_BYTES, TURNS = 5_000, 3
DIGESTS = {"md5": "md5sum", "sha-256": "sha256sum"}  # and what computes them
CERTIFICATE = Path(__file__).parents[2] / "support/certificate.pem"
ENTRIES, MILLION, PART = 50_000, 1_000_000, 50_000
CHANGES, RATE = 500, 50
AT = "2026-11-20T00:00:00Z"
URLSET = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<urlset '
    'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:rs="http://www.openarchives.org/rs/terms/">'
)
NGINX = """daemon off; pid {0}/pid; error_log {0}/error; worker_processes 1; events {{}}
http {{ access_log off; sendfile on; keepalive_requests 1000000; {1}
server {{ listen 127.0.0.1:{2}{3}; root {0}/html; }} }}"""
TEMPORARY = "".join(
    f"{name}_temp_path {{0}}/{name};"
    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


class Ran(NamedTuple):
    seconds: float
    peak_mb: float
    said: str


def ran(*command: str, folder: Path | None = None) -> Ran:
    """A command's time and peak memory; it may leave files in the folder."""
    timed = [sys.executable, "-c", _MEASURE, *command]
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    done = subprocess.run(
        timed, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    said, _, measured = done.stdout.rpartition("MEASURED ")
    seconds, peak = map(float, measured.split())
    return Ran(seconds, peak / 1024, said + done.stderr)


NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Where this is set, ours would be compiled at each start, and what pip installed would not."""

_MEASURE = (
    "import resource, subprocess, sys, time; began = time.perf_counter(); "
    "subprocess.run(sys.argv[1:]); seconds = time.perf_counter() - began; "
    "print('MEASURED', seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


@contextmanager
def nginx(folder: Path, port: int, certificate: Path | None = None) -> Iterator[str]:
    folder.chmod(0o755)  # its worker is another user
    config = folder / "nginx.conf"
    pem = certificate and f"ssl_certificate {certificate}; ssl_certificate_key {certificate}"
    kind = "" if pem is None else f" ssl; {pem}"
    config.write_text(NGINX.format(folder, TEMPORARY.format(folder), port, kind))
    server = subprocess.Popen(["nginx", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        yield f"http://127.0.0.1:{port}" if certificate is None else f"https://localhost:{port}"
    finally:
        server.terminate()
        server.wait()


def describe(html: Path, url: str, names: list[str], digest_name: str = "md5") -> None:
    """The documents of a Source whose resources are these files."""
    entries = []
    hashed = partial(hashlib.new, digest_name.replace("-", ""), usedforsecurity=False)
    for name in names:
        content = (html / name).read_bytes()
        digest = hashed(content).hexdigest()
        entries.append(
            f"<url><loc>{url}/{name}</loc><lastmod>{AT}</lastmod>"
            f'<rs:md hash="{digest_name}:{digest}" length="{len(content)}"/></url>'
        )
    up = f'<rs:ln rel="up" href="{url}/capabilitylist.xml"/>'
    write(html / "resourcelist.xml", f'{up}<rs:md capability="resourcelist" at="{AT}"/>', entries)
    capabilities(html, url)


def capabilities(html: Path, url: str, *more: str) -> None:
    entries = [
        f'<url><loc>{url}/{name}.xml</loc><rs:md capability="{name}"/></url>'
        for name in ("resourcelist", *more)
    ]
    up = f'<rs:ln rel="up" href="{url}/.well-known/resourcesync"/>'
    write(html / "capabilitylist.xml", f'{up}<rs:md capability="capabilitylist"/>', entries)


def write(path: Path, head: str, entries: list[str]) -> None:
    path.write_text(f"{URLSET}{head}{''.join(entries)}</urlset>\n")


def ours(url: str, copy: Path, *options: str) -> Ran:
    rsnotify = str(Path(sys.executable).with_name("rsnotify"))
    return ran(rsnotify, "mirror", f"{url}/capabilitylist.xml", str(copy), "--once", *options)


def theirs(url: str, copy: Path, *mode: str) -> Ran:
    copy.mkdir(exist_ok=True)
    words = ["--noauth", "--delete"]
    words += ["--hash=md5"] if "--baseline" in mode else []  # it fails at digests in a Change List
    words += ["--capabilitylist", f"{url}/capabilitylist.xml"]
    words += ["--changelist-uri", f"{url}/changelist.xml"]
    done = ran(str(installed()), f"{url}={copy}", *words, *mode, folder=copy.parent)
    assert re.search(r"Status:\s+(SYNCED|IN SYNC|NO CHANGES)", done.said), done.said[-500:]
    return done


def row(what: str, mine: Ran, other: Ran | None, count: float, unit: str) -> None:
    their = f"{count / other.seconds:.0f} {unit}/s, {other.peak_mb:.0f} MB" if other else "-"
    times = f"{other.seconds / mine.seconds:.1f}" if other else "-"
    own = f"{count / mine.seconds:.0f} {unit}/s, {mine.peak_mb:.0f} MB"
    print(f"| {what} | {own} | {their} | {times} |", flush=True)


def baselines(folder: Path) -> None:
    html = folder / "html"
    html.mkdir()
    ran(str(Path(sys.executable).with_name("rsnotify")), "mirror", "http://127.0.0.1:9", "--stdout")
    with nginx(folder, 18_981) as url:
        names = [f"r{number}.txt" for number in range(SMALL)]
        for name in names:
            (html / name).write_bytes(os.urandom(500))
        describe(html, url, names)
        mine, other = ours(url, folder / "a"), theirs(url, folder / "b", "--baseline")
        assert len(list((folder / "a").rglob("*.txt"))) == SMALL, mine.said[-500:]
        row(f"baseline of {SMALL:,} of 500 bytes", mine, other, SMALL, "resources")
        change_list(html, url, folder)
        large(html, url, folder)


def change_list(html: Path, url: str, folder: Path) -> None:
    """Many changes, all known: nothing to do."""
    capabilities(html, url, "changelist")
    up = f'<rs:ln rel="up" href="{url}/capabilitylist.xml"/>'
    digest = hashlib.md5((html / "r0.txt").read_bytes(), usedforsecurity=False).hexdigest()
    entries = [
        f"<url><loc>{url}/r0.txt</loc><lastmod>{AT}</lastmod>"
        f'<rs:md change="updated" datetime="{render_datetime(1_795_132_800_000_000 + number)}" '
        f'hash="md5:{digest}" length="500"/></url>'
        for number in range(1, ENTRIES + 1)
    ]
    write(html / "changelist.xml", f'{up}<rs:md capability="changelist" from="{AT}"/>', entries)
    first = ours(url, folder / "a")
    mine = ours(url, folder / "a")
    after = "2026-11-30T00:00:00Z"
    other = theirs(url, folder / "b", "--incremental", "--from", after)
    row(f"{ENTRIES:,} changes read the first time", first, None, ENTRIES, "entries")
    row(f"{ENTRIES:,} changes, nothing new", mine, other, ENTRIES, "entries")
    capabilities(html, url)


def large(html: Path, url: str, folder: Path) -> None:
    names = large_files(html, LARGE)
    describe(html, url, names)
    other = theirs(url, with_memory(folder / "d", LARGE * LARGE_BYTES), "--baseline")
    beside_curl(html, url, folder, names, other)


def large_files(html: Path, count: int) -> list[str]:
    names = [f"large{number}" for number in range(count)]
    for name in names:
        (html / name).write_bytes(os.urandom(LARGE_BYTES))
    return names


def beside_curl(
    html: Path, url: str, folder: Path, names: list[str], resync: Ran | None, over: str = ""
) -> None:
    """Beside curl, which verifies nothing; with each digest, for that is most of our own work."""
    size = len(names) * LARGE_BYTES
    megabytes = size / 1e6

    def by_curl(then: str = "") -> Ran:
        return fetched(url, names, with_memory(folder / "c", size), then=then)

    for digest_name, sums in DIGESTS.items():
        describe(html, url, names, digest_name)
        mine, curl, verified = medians(
            lambda: copied(url, with_memory(folder / "a", size)), by_curl, partial(by_curl, sums)
        )
        what = f"{over}baseline of {len(names)} of 50 MB, {digest_name}"
        row(what, mine, resync if digest_name == "md5" else None, megabytes, "MB")
        for how, done in (("not verified", curl), (f"then {sums}", verified)):
            print(
                f"| the same by curl, {how} | {megabytes / done.seconds:.0f} MB/s "
                f"| | {done.seconds / mine.seconds:.2f} |"
            )


def with_memory(copy: Path, size: int) -> Path:
    """A virtual machine gives free memory back: who writes first would wait for its return."""
    with tempfile.TemporaryFile(dir=copy.parent) as file:
        for _ in range(size // 2**20):
            file.write(bytes(2**20))
    return copy


def fetched(url: str, names: list[str], folder: Path, *, then: str = "") -> Ran:
    """By curl; and verified by a program that reads it again."""
    folder.mkdir()
    words = [word for name in names for word in (f"{url}/{name}", "-o", f"{folder}/{name}")]
    verify = f" && {then} {folder}/* >/dev/null" if then else ""
    curl = ran("sh", "-c", f'curl -sS --fail "$@"{verify}', "sh", *words)
    assert not curl.said, curl.said
    shutil.rmtree(folder)
    return curl


def over_tls(folder: Path) -> None:
    """In alternating turns, of which the medians count."""
    html = folder / "html"
    html.mkdir()
    os.environ |= {"SSL_CERT_FILE": str(CERTIFICATE), "CURL_CA_BUNDLE": str(CERTIFICATE)}
    with nginx(folder, 18_983, CERTIFICATE) as url:
        names = [f"r{number}.txt" for number in range(SMALL)]
        for name in names:
            (html / name).write_bytes(os.urandom(TLS_BYTES))
        describe(html, url, names)
        mine, other = medians(
            lambda: copied(url, folder / "a"), lambda: copied_by_theirs(url, folder / "b")
        )
        row(f"TLS: baseline of {SMALL:,} of 5 KB", mine, other, SMALL, "resources")
        beside_curl(html, url, folder, large_files(html, LARGE), None, "TLS: ")


def copied(url: str, copy: Path) -> Ran:
    done = ours(url, copy)
    assert " 0 to do, 0 failed" in done.said, done.said[-500:]
    shutil.rmtree(copy)
    return done


def copied_by_theirs(url: str, copy: Path) -> Ran:
    done = theirs(url, copy, "--baseline")
    shutil.rmtree(copy, ignore_errors=True)
    return done


def medians(*each: Callable[[], Ran]) -> list[Ran]:
    """Of what is done in turns, by time."""
    turns = [[act() for act in each] for _ in range(TURNS)]
    return [sorted(runs)[TURNS // 2] for runs in zip(*turns, strict=True)]


PLAN = """
import asyncio, sys
from pathlib import Path
from rsnotify_mirror.mirror import AsyncMirror
async def main():
    async with AsyncMirror(sys.argv[1], Path(sys.argv[2])) as mirror:
        print(await mirror.plan())
asyncio.run(main())
"""


def million(folder: Path) -> None:
    html = folder / "html"
    html.mkdir()
    with nginx(folder, 18_982) as url:
        parts = []
        for start in range(0, MILLION, PART):
            entries = [
                f"<url><loc>http://example.com/dataset1/resource/{number}</loc>"
                f"<lastmod>{AT}</lastmod>"
                f'<rs:md hash="md5:{number:032x}" length="{number}"/></url>'
                for number in range(start, start + PART)
            ]
            head = f'<rs:md capability="resourcelist" at="{AT}"/>'
            write(html / f"part{start}.xml", head, entries)
            parts.append(f"<sitemap><loc>{url}/part{start}.xml</loc></sitemap>")
        write(html / "resourcelist.xml", head, parts)
        index = html / "resourcelist.xml"
        index.write_text(index.read_text().replace("urlset", "sitemapindex"))
        capabilities(html, url)
        address = f"{url}/capabilitylist.xml"
        mine = ran(sys.executable, "-c", PLAN, address, str(folder / "copy"))
        assert mine.said.strip().startswith(str(MILLION)), mine.said[-500:]
        row("a Resource List of 1,000,000 planned", mine, None, MILLION, "entries")


async def lag(folder: Path) -> None:
    """From publish to verified file, at a steady rate."""
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(RunningHub(folder / "data"))
        connection = stack.enter_context(hub_at(hub.url, TOKEN))
        collection = Collection("", 0, random.Random(1))
        app = Site(collection, hub.url, "dataset1").application()
        collection.base = (await stack.enter_async_context(WebServer(app))).url
        is_live = asyncio.Event()

        def report(event: Event) -> None:
            if event.event == "live":
                is_live.set()

        await hub.publish(collection.create().loc, change="created")
        address = f"{hub.url}/dataset1/capabilitylist.xml"
        async with AsyncMirror(address, folder / "copy", report=report) as mirror:
            keeping = asyncio.create_task(mirror.run())
            await is_live.wait()
            await asyncio.sleep(1)
            began = time.monotonic()
            for number in range(CHANGES):
                await publish(connection, collection.change())
                await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
            await asyncio.sleep(2)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            half, most = (percentile(mirror.sums.lags, part) or 0 for part in (0.5, 0.99))
    print(
        f"| publish to verified file at {RATE} changes/s, p50, p99 "
        f"| {half * 1000:.1f} ms, {most * 1000:.1f} ms | - | - |"
    )


async def publish(connection: HubClient, change: Change) -> None:
    headers = {"Content-Type": "application/json"}
    path = "/api/sets/dataset1/changes"
    ask = partial(asked, connection, body=msgspec.json.encode([change]), headers=headers)
    await asyncio.to_thread(ask, "POST", path)


def main() -> None:
    if shutil.which("nginx") is None:
        print("nginx is not installed: nothing is measured")
        return
    print("| what | rsnotify | resync 2.0.1 | times |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(lag(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        baselines(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        over_tls(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        million(Path(folder))
