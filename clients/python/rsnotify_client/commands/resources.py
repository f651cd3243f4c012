"""`rsnotify resources`: files of the whole state of a set, sent as one body, and what became of it.

Rules that hold here: files leave as they are, in bounded memory; the hub alone judges them. A load
that breaks off is sent again with its key.
"""

import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple, cast
from urllib.parse import urlencode

import typer
from typer import Argument, Option

from rsnotify.cli.options import (
    Commands,
    DryRun,
    Format,
    Json,
    Key,
    MaxDelete,
    check_choice,
)
from rsnotify.cli.output import Say, WorkPace, print_fields, print_json, progress, size
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import HERE, Hub, SetName
from rsnotify.cli.terminal import echo
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.gunzip import MAGIC
from rsnotify_client.commands.places import WrittenFile, WrittenFiles, check_is_no_table
from rsnotify_client.hub import JSON
from rsnotify_client.loading import (
    COUNTS,
    GZIP_HEADER,
    NDJSON,
    LoadBody,
    LoadRequest,
    load,
    path_of_resources,
)
from rsnotify_client.loading import position as position_of

commands = Commands()
resources = Commands(no_args_is_help=True, help="Load the whole state of a set, ask about it.")
commands.add_typer(resources, name="resources")

Files = Annotated[
    list[Path],
    Argument(metavar="FILE...", help="NDJSON, JSON or Resource Lists, plain or gzip; - is stdin."),
]
AsOf = Annotated[
    str | None,
    Option(
        metavar="POSITION",
        help="What `resources position` said before the state was read. What was published later "
        "stays as it is.",
    ),
]
Overwrite = Annotated[
    bool,
    Option(
        "--overwrite", help="Without `--as-of`: take back what was published since the last load."
    ),
]


@resources.command("load")
def load_resources(
    set_name: SetName,
    files: Files,
    publish: Annotated[
        bool | None,
        Option("--publish/--no-publish", help="Publish the differences. [unless the set is empty]"),
    ] = None,
    max_delete: MaxDelete = None,
    as_of: AsOf = None,
    overwrite: Overwrite = False,
    format_: Format = None,
    dry_run: DryRun = False,
    key: Key = None,
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    """Make these the resources of the set: all of them, and no others.

    The differences are published as changes. The first load of an empty set is not: it becomes a
    Resource List. Several files are sent one after the other, such as a Resource List Index and its
    parts:

    `rsnotify resources load dataset1 resourcelist-index.xml part1.xml part2.xml`
    """
    if dry_run and (publish is not None or key is not None):
        raise typer.BadParameter("--dry-run goes without --publish, --no-publish and --key")
    wanted = LoadRequest(publish, max_delete, dry_run=dry_run, as_of=as_of, overwrite=overwrite)
    _load(hub, set_name, files, format_, wanted, key, json=json)


def _load(
    hub: Hub, set_name: str, files: list[Path], format_: str | None,
    wanted: LoadRequest, key: str | None, *, json: bool,
) -> None:  # fmt: skip
    found = files_of(files, format_)
    with progress("sending") as say, hub.token() as token:
        body = found.body(say)
        try:
            outcome = load(hub.url, token, set_name, body, wanted, key=key, say=say)
        except Rejected as error:
            raise (found.places().refusal(error) if found.is_repeatable else error) from None
    print_outcome(outcome, json=json)


@resources.command("position")
def position(set_name: SetName, json: Json = False, hub: Hub = HERE) -> None:
    """Say where the set stands. Ask before you read a state that you `load --as-of` this position.

    `AS_OF=$(rsnotify resources position dataset1)`
    """
    with hub.connected() as client:
        found = position_of(client, set_name)
    if json:
        print_json({"position": found})
    else:
        echo(found)


@resources.command("show")
def show(
    set_name: SetName,
    loc: Annotated[str | None, Argument(metavar="[LOC]", help="URI of a resource.")] = None,
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    """Show what the hub knows of one resource, or how many it knows and what is being loaded."""
    query = "" if loc is None else "?" + urlencode({"loc": loc})
    answer = hub.ask("GET", path_of_resources(set_name) + query)
    print_fields(answer.object("resources" if loc is None else "loc"), json=json)


XML = "application/xml"
FORMATS = {"json": JSON, "ndjson": NDJSON, "jsonl": NDJSON, "xml": XML}
PIECE_BYTES = 256 * 1024
BEGINNING_BYTES = 4096
EXAMPLE = '{"loc": "http://example.com/res1"}'
STDIN = Path("-")


class LoadedFiles(NamedTuple):
    """Files that are sent as one body."""

    files: Sequence[Path]
    headers: dict[str, str]

    @property
    def is_repeatable(self) -> bool:
        return STDIN not in self.files

    def pieces(self, say: Say) -> Iterator[bytes]:
        sent = 0
        total = sum(path.stat().st_size for path in self.files) if self.is_repeatable else None
        pace = WorkPace(say, "sent", size)
        for path in self.files:
            with _opened(path) as file:
                while piece := file.read1(PIECE_BYTES):
                    yield piece
                    sent += len(piece)
                    pace(sent, total)
            if not self.headers.keys() & GZIP_HEADER:
                yield b"\n"  # the last line of a file may have no end
        say("the hub compares it with what it knows")

    def places(self) -> WrittenFiles:
        """Where in these files what stands; they are read again."""
        files = [WrittenFile(str(each), partial(self._reading, each)) for each in self.files]
        return WrittenFiles(files, self.headers["Content-Type"])

    def _reading(self, path: Path) -> IO[bytes]:
        return (
            cast("IO[bytes]", gzip.open(path))
            if GZIP_HEADER.items() <= self.headers.items()
            else path.open("rb")
        )

    def body(self, say: Say = lambda _: None) -> LoadBody:
        return LoadBody(self.headers, partial(self.pieces, say), self.is_repeatable)


def files_of(files: Sequence[Path], format_: str | None) -> LoadedFiles:
    """The files, with what they are; gzip stays gzip."""
    if format_ is not None:
        check_choice("--format", format_, [*FORMATS])
    if STDIN in files:
        headers = {"Content-Type": FORMATS[format_ or "ndjson"]}
        return LoadedFiles(files, headers)
    begins = [_beginning(path) for path in files]
    packed = [begin.startswith(MAGIC) for begin in begins]
    if any(packed) and not all(packed):
        raise InvalidSettings("some files are gzip and some are not: make them all the same")
    begin = _unpacked(files[0]) if packed[0] else begins[0]
    if format_ is None:
        check_is_no_table(files[0], begin, EXAMPLE)
    kind = FORMATS[format_] if format_ else _kind(files[0], begin)
    return LoadedFiles(files, {"Content-Type": kind} | (GZIP_HEADER if packed[0] else {}))


def _kind(path: Path, begin: bytes) -> str:
    suffix = path.name.removesuffix(".gz").rpartition(".")[2]
    if suffix in FORMATS:
        return FORMATS[suffix]
    return {b"<": XML, b"[": JSON}.get(begin.lstrip()[:1], NDJSON)


def _beginning(path: Path) -> bytes:
    if path.exists() and not path.is_file() and not path.is_dir():
        twice = "is no regular file, and it would be read twice"
        raise InvalidSettings(f"{path} {twice}: give - for stdin")
    with wrong_use(OSError, at=f"cannot read {path}"), path.open("rb") as file:
        return file.read(BEGINNING_BYTES)


def _unpacked(path: Path) -> bytes:
    """The beginning of what is in a gzip file; nothing if it cannot be read, which the hub says."""
    try:
        with gzip.open(path) as file:
            return file.read(BEGINNING_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""


def _opened(path: Path) -> BufferedReader:
    return cast(BufferedReader, sys.stdin.buffer) if path == STDIN else path.open("rb")


def print_outcome(outcome: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(outcome)
        return
    for name in COUNTS:
        echo(f"{name:10}{outcome[name]:>10}")
    for each in outcome.get("first", ()):
        echo(f"{each['change']}: {each['loc']}")
    if outcome.get("refused"):
        echo(outcome["refused"], err=True)
    elif outcome["stage"] == "done":
        published = "the differences are" if outcome["published"] else "nothing is"
        echo(f"loaded; {published} published", err=True)
