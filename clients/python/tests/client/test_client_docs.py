"""Every example of two pages, on the Python client and on applications, runs as it stands."""

import asyncio
import os
import re
import signal
import sqlite3
import threading
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from rsnotify import cli
from rsnotify.journal.usage import KEY_SECONDS
from rsnotify_client import Position, Publisher, SqliteCursor
from rsnotify_client.outboxfile import LOCKED_SECONDS, RESERVE_BYTES
from rsnotify_client.publisher import QUEUE_SIZE
from rsnotify_client.relay import LOOK_SECONDS
from rsnotify_client.sender import EXIT_SECONDS
from tests.support.hub_processes import HubProcess, eventually
from tests.support.running import TOKEN

ROOT = Path(__file__).parents[4]
PAGE = "".join((ROOT / "docs" / name).read_text() for name in ("client.md", "applications.md"))
HUB = "http://127.0.0.1:8080"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXCERPT = re.compile(r"# (examples/\S+)\n(.*)", re.DOTALL)

LIST = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'


class Example(NamedTuple):
    language: str
    text: str


EXAMPLES = [Example(*found) for found in BLOCK.findall(PAGE)]


@contextmanager
def until_published() -> Iterator[None]:
    """A relay runs until it is told to end; it is told when its table is empty."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def tell() -> None:
        with closing(sqlite3.connect("app.db")) as database:
            count = "SELECT COUNT(*) FROM rsnotify_outbox"
            eventually(lambda: database.execute(count).fetchone() == (0,))
        os.kill(os.getpid(), signal.SIGTERM)

    telling = threading.Thread(target=tell)
    telling.start()
    yield
    telling.join()
    for number, handler in handlers.items():
        signal.signal(number, handler)


class Reader:
    """Does what the page shows, in order, in an empty directory."""

    def __init__(self, hub: HubProcess) -> None:
        self._hub = hub
        self.names: dict[str, Any] = {"__name__": "example"}
        self._environ = {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}

    def follow(self, example: Example) -> None:
        getattr(self, f"_{example.language}")(example.text.replace(HUB, self._hub.url))

    def _python(self, text: str) -> None:
        if excerpt := EXCERPT.fullmatch(text):
            path, lines = excerpt.groups()
            assert lines in (ROOT / "clients/python" / path).read_text()
        else:
            exec(compile(text, "the page", "exec"), self.names)

    def _sh(self, text: str) -> None:
        for line in text.splitlines():
            words = line.split()
            if words[:2] == ["pip", "install"]:
                continue
            ends_when_published = "relay" in words and not {"--print-sql", "--status"} & set(words)
            with until_published() if ends_when_published else nullcontext():
                ended = CliRunner(env=self._environ).invoke(cli.app, words[1:])
            assert ended.exit_code == 0, ended.output

    def _console(self, text: str) -> None:
        """How the whole programs are run, which `test_with_hub.py` does."""
        assert "clients/python/examples" in text or "mirror --once" in text

    def _sql(self, text: str) -> None:
        self.names["connection"].execute(text)
        self.names["connection"].commit()


def test_every_example_runs(real_hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RSNOTIFY_TOKEN", TOKEN)
    for name in ("yesterday", "today"):
        names = [name, *range(9)]  # one of ten is gone, which is not too much
        entries = "".join(f"<url><loc>http://example.com/{each}</loc></url>" for each in names)
        Path(f"{name}.xml").write_text(LIST.format(entries))
    reader = Reader(real_hub)
    for example in EXAMPLES:
        reader.follow(example)
    app, connection = (reader.names[name] for name in ("app", "connection"))
    assert app.test_client().put("/res1").status_code == 204
    assert connection.execute("SELECT set_name FROM rsnotify_outbox").fetchall() == [("dataset1",)]
    connection.close()
    with app.app_context():
        reader.names["rsnotify"].publisher.close()
    told = real_hub.told()
    assert told[:2] == [("created", "draft"), ("deleted", "draft")]
    assert told[2:5] == [("created", "res1"), ("updated", "res2"), ("deleted", "res3")]
    assert told.count(("created", "today")) == 2
    assert told.count(("created", "res1")) == 2


async def test_the_example_that_follows_several_sets_prints_their_changes(
    real_hub, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    real_hub.add_set("dataset2")
    printed: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
    names = {"print": lambda *words: printed.put_nowait(words)}
    (example,) = [each.text for each in EXAMPLES if "follow_async" in each.text]
    exec(compile(example, "the page", "exec"), names)
    for name in ("dataset1", "dataset2"):
        SqliteCursor("cursors.db", name).save(Position(0))
    with Publisher(real_hub.url, TOKEN) as publisher:
        publisher.updated("dataset2", "http://example.com/res1")
    watching = asyncio.create_task(names["watch"](real_hub.url))
    async with asyncio.timeout(60):
        while (found := await printed.get())[0] != "dataset2":
            pass
    watching.cancel()
    assert found == ("dataset2", "updated", "http://example.com/res1")


def test_every_number_is_the_one_that_holds():
    for said in (
        f"{QUEUE_SIZE:,}, or `queue_size=`",
        f"locked for {LOCKED_SECONDS:g} s",
        f"keys for {KEY_SECONDS // 3600} hours",
        f"reserve of\n{RESERVE_BYTES // 1024} KB",
        f"waits {EXIT_SECONDS:g} s at most",
    ):
        assert said in PAGE
    assert LOOK_SECONDS == 1 / 10
    assert "looks at the table ten times a second" in PAGE


def test_every_extra_that_is_named_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = set(re.findall(r"\.\[(\w+)\]", PAGE))
    assert named
    assert named <= extras.keys()
