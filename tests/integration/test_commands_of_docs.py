"""Every command that the documents show is one that is there; those for a hub of your own do it."""

import asyncio
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from rsnotify.cli.root import app
from tests.support import forks
from tests.support.needs import need
from tests.support.running import TOKEN, RunningHub, clean_environment

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), DOCS.parent / "README.md"]
BLOCK = re.compile(r"^```(?:sh|bash)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:RSNOTIFY_\w+=\S+ )*((?:rsnotify|curl) .*)", re.MULTILINE)

# Run by the tests of what they are about: they end only when somebody ends them, or need a Source.
ELSEWHERE = ("serve", "subscribe", "bridge", "mirror", "dump", "audit", "backup", "restore")
# They hold what is the reader's own, or of another block: the tests of these commands have it.
OF_THE_READER = ("66be6a82", " ID", "--watch", "--retry 100", "resourcelist-*", "$HUB", "/hub")
NDJSON = '{"loc": "http://example.com/res1", "change": "updated"}\n'
STATE = "".join(f'{{"loc": "http://example.com/res{each}"}}\n' for each in (1, 2, 3))


def commands_of(page: Path) -> list[str]:
    """Without their comments; a line that goes on is one line."""
    text = "".join(BLOCK.findall(page.read_text()))
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
        yield re.sub(r"\b(NUMBER|DAYS|SECONDS|PERCENT)\b", "1", chosen)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_is_one_that_the_command_line_takes(page: Path) -> None:
    for line in commands_of(page):
        if not line.startswith("rsnotify "):
            continue
        for words in synopses(line.removeprefix("rsnotify ").replace("FILE...", "FILE")):
            command, rest = get_command(app), shlex.split(words.replace("URL", "http://e.com/a"))
            while hasattr(command, "commands"):
                command = command.commands[rest.pop(0)]
            command.make_context(
                "rsnotify", [each.lower() if each in ("NAME", "SET") else each for each in rest]
            )


async def test_what_a_page_does_with_a_hub_is_done(tmp_path: Path) -> None:
    need("curl")
    texts = {"changes.ndjson": NDJSON, "everything.ndjson": STATE}
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    async with RunningHub(tmp_path / "data", sets=("dataset1", "dataset2")) as hub:
        for name in ("tutorial", "publishing", "pulling", "websub"):
            for line in commands_of(DOCS / f"{name}.md"):
                if line.split()[1] in ELSEWHERE or any(each in line for each in OF_THE_READER):
                    continue
                command = line.replace("http://127.0.0.1:8080", hub.url).partition(" | ")[0]
                command = command.replace("$(cat data/admin-token)", TOKEN)
                for file in texts:
                    command = command.replace(file, str(tmp_path / file))
                status, said = await _run(command, hub)
                assert status == 0, (name, line, said)


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
