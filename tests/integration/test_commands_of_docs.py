"""Every command that the documents show is one that is there; those for a hub of your own do it."""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from sqlite3 import connect
from typing import NamedTuple
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from typer.main import get_command

from rsnotify.cli.root import app
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.outbox import Outbox
from tests.support import forks
from tests.support.needs import need
from tests.support.receivers import Receiver
from tests.support.redis_server import free_port
from tests.support.repositories import Repository
from tests.support.running import TOKEN, RunningHub, clean_environment, until
from tests.support.sources import CAPABILITIES, Source, rendered

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), DOCS.parent / "README.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:RSNOTIFY_\w+=\S+ )*((?:rsnotify|curl) .*)", re.MULTILINE)

NOT_RUN = {
    "rsnotify serve": "every test's hub is one",
    "rsnotify subscribe": "follows until somebody ends it: tests/integration/test_cli.py",
    "relay --database sqlite": "publishes until somebody ends it: test_bad_use.py of the clients",
    "text/event-stream": "follows until somebody ends it: tests/protocol/test_sse.py",
    "--watch": "follows until somebody ends it: test_folder.py of the clients",
    "--dump-every": "follows until somebody ends it: test_dump_every.py of the clients",
    "--verify-every": "follows until somebody ends it: test_verify_every.py of the clients",
    "s3://": "needs a bucket: test_dumps_in_a_bucket.py of the clients",
    "--retry 100": "waits for a hub that is away: test_shell_publish.py of the clients",
    "copy-of-the-copy": "needs a second mirror: test_republishing.py of the clients",
    "--moved": "needs a Source that has moved: test_moved.py of the clients",
    "resourcelist-*": "needs the pages of a list: test_resources_commands.py of the clients",
    "--release": "needs deletions that are held back: test_bridge_commands.py of the clients",
    "$AS_OF": "is part of a script: test_resources_commands.py of the clients",
    "$(cat from)": "is part of a script: tests/protocol/test_resync_page.py",
}
"""What a command that is not run has in it, and why it is not."""

ENDS = {"rsnotify mirror": " --once", "rsnotify bridge": " --once"}  # they go on without it
AS_READ = sorted(
    (page for page in PAGES if page.stem != "command-line"),  # it has synopses
    key=lambda page: page.stem != "tutorial",
)
"""The tutorial first: it makes the Resource List that the other pages ask for."""
NDJSON = '{"loc": "http://example.com/res1", "change": "updated"}\n'
PAYLOAD = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    ' xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>'
    '<url><loc>http://example.com/res1</loc><rs:md change="updated"/></url></urlset>'
)
AT = "2026-11-20T00:00:00Z"
DATABASES = ("app.db", "outbox.db")
STATE = "".join(f'{{"loc": "http://example.com/res{each}"}}\n' for each in (1, 2, 3))


def commands_of(page: Path) -> list[str]:
    """Without their comments; a line that goes on is one line."""
    blocks = BLOCK.findall(page.read_text())
    text = "".join(block for language, block in blocks if language in ("", "sh", "bash"))
    found = COMMAND.findall(re.sub(r"\\\n\s*", " ", text))
    return [re.sub(r"\s+#.*", "", each) for each in found]


def synopses(command: str) -> Iterator[str]:
    """The words of a synopsis, without and with what it leaves to the reader.

    >>> [*synopses("sets add NAME [--private|--public] [--topic URL]...")]
    ['sets add NAME', 'sets add NAME --private --topic URL']
    """
    yield " ".join(re.sub(r"\[.*?\](?:\.\.\.)?", "", command).split())
    if "[" in command:
        chosen = re.sub(r"\|[^\]]*|\.\.\.|[\[\]]", "", command)
        yield re.sub(r"\b(NUMBER|BYTES|DAYS|SECONDS|PERCENT)\b", "1", chosen)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_is_one_that_the_command_line_takes(page):
    for line in commands_of(page):
        if not line.startswith("rsnotify "):
            continue
        for words in synopses(re.sub(r"\b(FILE|SET)\.\.\.", r"\1", line.removeprefix("rsnotify "))):
            command, rest = get_command(app), shlex.split(words.replace("URL", "http://e.com/a"))
            while hasattr(command, "commands"):
                command = command.commands[rest.pop(0)]
            command.make_context(
                "rsnotify", [each.lower() if each in ("NAME", "SET") else each for each in rest]
            )


class Place(NamedTuple):
    """Where the commands are run, and what stands there for what the reader has."""

    folder: Path
    hub: RunningHub
    words: dict[str, str]

    async def command(self, line: str) -> str:
        """The line, with what is here; where it would go on, it ends."""
        ends = next((end for begin, end in ENDS.items() if line.startswith(begin)), "")
        if any(each in line for each in ("--show", "--status", "--release")):
            ends = ""
        for word, here in self.words.items():
            line = line.replace(word, here)
        if line.endswith(" ID") or " revoke " in line:
            line = f"{line.rpartition(' ')[0]} {await until(partial(self._first, line.split()[1]))}"
        if line.startswith("rsnotify bridge") and "--state" not in line:
            ends += f" --state {self.folder}/bridge.db"
        return line.partition(" | ")[0] + ends

    async def _first(self, kind: str) -> str | None:
        """The id of a token, or of the subscription once it is verified."""
        _, found = await self.hub.ask("GET", f"/api/{kind}")
        return found[0]["id"] if found else None


@asynccontextmanager
async def prepared(folder: Path) -> AsyncIterator[Place]:
    """One hub, two Sources and a repository for the commands of all pages."""
    files = {"changes.ndjson": NDJSON, "everything.ndjson": STATE, "changes.xml": PAYLOAD}
    resource_list = rendered("resourcelist", [Entry("http://example.com/res1")], at=AT).decode()
    files |= dict.fromkeys(("yesterday.xml", "today.xml"), resource_list)
    for file, text in files.items():
        (folder / file).write_text(text)
    for file in DATABASES:
        with closing(connect(folder / file)) as connection:
            Outbox().create(connection)
    async with (
        RunningHub(
            folder / "data",
            sets=("dataset1", "dataset2", "copies"),
            callback_private="allow",
            admin_email="repository@example.org",
        ) as hub,
        Source() as one,
        Source() as other,
        Receiver() as receiver,
    ):
        repository = Repository(one.loc("oai"))
        repository.put(1)
        one.handlers["/oai"] = repository.handler
        for source in (one, other):
            source.add("res1", b"content")
            source.list_resources()
        one.documents["/.well-known/resourcesync"] = rendered(
            "description", [Entry(one.url + CAPABILITIES, md=Md(capability="capabilitylist"))]
        )
        words = {
            "http://127.0.0.1:8080": hub.url,
            "$(cat data/admin-token)": TOKEN,
            "$TOKEN": TOKEN,
            "https://you.example/callback": receiver.callback,
            "https://a.example/set1": one.url,
            "https://b.example/": other.url + CAPABILITIES,
            "/srv/copy --republish dataset1": f"{folder}/republished --republish copies",
            "https://hub.copy.example": hub.url,
            "/srv/copy": f"{folder}/republished",
            "https://example.org/res1": one.loc("res1"),
            "https://example.org/ DIR": f"{one.url} {folder}/sets",
            f"{CAPABILITIES} DIR": f"{CAPABILITIES} {folder}/both",
            "https://example.org/": one.url + CAPABILITIES,
            "https://repository.example/ dataset1": f"{one.url}{CAPABILITIES} dataset2",
            "https://repository.example/": one.url + CAPABILITIES,
            "https://repo.example/oai": one.loc("oai"),
            "mirror URL DIR": f"mirror {one.url}{CAPABILITIES} {folder}/copy",
            "audit URL DIR": f"audit {one.url}{CAPABILITIES} {folder}/copy",
            "--status DIR": f"--status {folder}/copy",
            " copy": f" {folder}/copy",
            "/var/www": str(folder),
            "hub-2026-11-21": f"{folder}/backup",
            "/var/lib/rsnotify-new": f"{folder}/new",
            "/var/lib/rsnotify": str(hub.data),
            "bridge.db": f"{folder}/bridge.db",
            "https://hub.example.org/museum-a": f"{hub.url}/dataset1",
            **{file: f"{folder}/{file}" for file in (*files, *DATABASES)},
        }
        yield Place(folder, hub, words)


async def test_what_a_page_does_with_a_hub_is_done(tmp_path):
    need("curl")
    skipped = set[str]()
    async with prepared(tmp_path) as place:
        for page in AS_READ:
            for line in commands_of(page):
                if reasons := [part for part in NOT_RUN if part in line]:
                    skipped.update(reasons)
                    continue
                command = await place.command(line)
                status, said = await _run(command, place.hub)
                assert status == 0, (page.stem, line, command, said)
    assert skipped == NOT_RUN.keys()


async def test_the_callback_of_the_page_on_websub_prints_what_is_published(tmp_path):
    text = (DOCS / "websub.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (subscribing,) = [each for each in commands_of(DOCS / "websub.md") if ":9000" in each]
    port = str(free_port())

    async def listens() -> bool:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.close()
            return True
        return False

    async with prepared(tmp_path) as place:
        callback = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program.replace("9000", port)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert callback.stdout is not None
        await until(listens)
        form = [part for part in shlex.split(subscribing)[1:-1] if part != "-d"]
        fields = dict(each.replace("9000", port).split("=", 1) for each in form)
        fields["hub.topic"] = fields["hub.topic"].replace("http://127.0.0.1:8080", place.hub.url)
        await asyncio.to_thread(urlopen, f"{place.hub.url}/hub", urlencode(fields).encode())

        async def prints() -> bool:
            await place.hub.publish("http://example.com/told")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    return b"http://example.com/told" in await callback.stdout.readline()
            return False

        await until(prints)
        callback.kill()
        await callback.wait()


async def _run(command: str, hub: RunningHub) -> tuple[int, str]:
    environment = clean_environment() | {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}
    if command.startswith("rsnotify "):
        ended = await forks.run(shlex.split(command)[1:], environment)
        return ended.status, ended.out + ended.err
    fetching = await asyncio.create_subprocess_exec(
        *("sh", "-c", command.replace("curl ", "curl --silent --show-error --fail-with-body ", 1)),
        env=environment | {"PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await fetching.communicate()
    assert fetching.returncode is not None
    return fetching.returncode, out.decode()
