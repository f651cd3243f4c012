"""`rsnotify resources`: files of the whole state of a set, sent as one body, and what became of it.

Rules that hold here: files leave as they are, in bounded memory; the hub alone judges them. A load
that breaks off is sent again with its key.
"""

import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from io import BufferedReader
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import urlencode

import msgspec
import typer
from typer import Argument, Option

from rsnotify.cli.options import Commands, Json
from rsnotify.cli.output import Say, print_fields, progress, size
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import HERE, Hub, SetName, asked, hub_at, path_of_set
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify_client.hub import HubClient

commands = Commands()
resources = Commands(
    no_args_is_help=True, help="Load the whole state of a set, compare it, ask about it."
)
commands.add_typer(resources, name="resources")

Files = Annotated[
    list[Path],
    Argument(metavar="FILE...", help="NDJSON, JSON or Resource Lists, plain or gzip; - is stdin."),
]
Format = Annotated[str | None, Option("--format", help="json, ndjson or xml. [by the first byte]")]
MaxDelete = Annotated[
    float | None,
    Option(min=0, max=100, help="Percent of the known resources that may be deleted. [10]"),
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
PATIENCE_SECONDS = 60.0  # a load takes long already


@resources.command("load")
def load_resources(
    set_name: SetName,
    files: Files,
    tell: Annotated[
        bool | None,
        Option("--tell/--no-tell", help="Publish the differences. [unless the set is empty]"),
    ] = None,
    max_delete: MaxDelete = None,
    as_of: AsOf = None,
    overwrite: Overwrite = False,
    format_: Format = None,
    key: Annotated[
        str | None, Option(help="Idempotency key, to repeat a load that broke off.")
    ] = None,
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    """Make these the resources of the set: all of them, and no others.

    The differences are published as changes. The first load of an empty set is not: it becomes a
    Resource List. Several files are sent one after the other, such as a Resource List Index and its
    parts:

    `rsnotify resources load dataset1 resourcelist-index.xml part1.xml part2.xml`
    """
    wanted = LoadRequest(tell, max_delete, as_of=as_of, overwrite=overwrite)
    _load(hub, set_name, files, format_, wanted, key, json=json)


@resources.command("compare")
def compare(
    set_name: SetName,
    files: Files,
    max_delete: MaxDelete = None,
    as_of: AsOf = None,
    overwrite: Overwrite = False,
    format_: Format = None,
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    """Say what `load` would change, and change nothing."""
    wanted = LoadRequest(None, max_delete, dry_run=True, as_of=as_of, overwrite=overwrite)
    _load(hub, set_name, files, format_, wanted, None, json=json)


def _load(
    hub: Hub, set_name: str, files: list[Path], format_: str | None,
    wanted: "LoadRequest", key: str | None, *, json: bool,
) -> None:  # fmt: skip
    body = body_of(files, format_)
    with progress("sending") as say, hub.token() as token:
        outcome = load(hub.url, token, set_name, body, wanted=wanted, key=key, say=say)
    print_outcome(outcome, json=json)


@resources.command("position")
def position(set_name: SetName, json: Json = False, hub: Hub = HERE) -> None:
    """Say where the set stands. Ask before you read a state that you `load --as-of` this position.

    `AS_OF=$(rsnotify resources position dataset1)`
    """
    answer = hub.ask("GET", path_of_resources(set_name)).object("position")
    typer.echo(
        msgspec.json.encode({"position": answer["position"]}) if json else answer["position"]
    )


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


JSON, NDJSON, XML = "application/json", "application/x-ndjson", "application/xml"
FORMATS = {"json": JSON, "ndjson": NDJSON, "jsonl": NDJSON, "xml": XML}
COUNTS = ("resources", "created", "updated", "deleted", "unchanged", "newer")
OUTCOME = ("stage", "told", *COUNTS)
PIECE_BYTES = 256 * 1024
AGAIN_SECONDS = 1.0
SEND_SECONDS = 120.0  # the hub takes no more while it stores what it has
LOAD_SECONDS = 3_600.0
GZIP = b"\x1f\x8b"
GZIP_HEADER = {"Content-Encoding": "gzip"}
STDIN = Path("-")


class LoadRequest(NamedTuple):
    """How a load is to be done."""

    tell: bool | None = None
    max_delete: float | None = None
    dry_run: bool = False
    as_of: str | None = None
    overwrite: bool = False

    def query(self) -> str:
        tell = None if self.tell is None else "yes" if self.tell else "no"
        chosen = {
            "tell": tell,
            "max_delete": self.max_delete,
            "dry_run": "yes" if self.dry_run else None,
            "as_of": self.as_of,
            "overwrite": "yes" if self.overwrite else None,
        }
        return urlencode({name: value for name, value in chosen.items() if value is not None})


class LoadBody(NamedTuple):
    """Files that are sent as one body."""

    files: Sequence[Path]
    headers: dict[str, str]

    @property
    def is_repeatable(self) -> bool:
        return STDIN not in self.files

    def pieces(self, say: Say) -> Iterator[bytes]:
        sent = 0
        total = sum(path.stat().st_size for path in self.files) if self.is_repeatable else None
        of_all = "" if total is None else f" of {size(total)}"
        for path in self.files:
            with _opened(path) as file:
                while piece := file.read1(PIECE_BYTES):
                    yield piece
                    sent += len(piece)
                    say(f"sent {size(sent)}{of_all}")
            if not self.headers.keys() & GZIP_HEADER:
                yield b"\n"  # the last line of a file may have no end
        say("the hub compares it with what it knows")


def body_of(files: Sequence[Path], format_: str | None) -> LoadBody:
    """The files, with what they are; gzip stays gzip."""
    if format_ is not None and format_ not in FORMATS:
        raise InvalidSettings(f"--format {format_}: must be one of {', '.join(FORMATS)}")
    if STDIN in files:
        headers = {"Content-Type": FORMATS[format_ or "ndjson"]}
        return LoadBody(files, headers)
    begins = [_beginning(path) for path in files]
    packed = [begin.startswith(GZIP) for begin in begins]
    if any(packed) and not all(packed):
        raise InvalidSettings("some files are gzip and some are not: make them all the same")
    kind = FORMATS[format_] if format_ else _kind(files[0], begins[0])
    return LoadBody(files, {"Content-Type": kind} | (GZIP_HEADER if packed[0] else {}))


def _kind(path: Path, begin: bytes) -> str:
    suffix = path.name.removesuffix(".gz").rpartition(".")[2]
    if suffix in FORMATS:
        return FORMATS[suffix]
    return {b"<": XML, b"[": JSON}.get(begin.lstrip()[:1], NDJSON)


def _beginning(path: Path) -> bytes:
    with wrong_use(OSError, at=f"cannot read {path}"), path.open("rb") as file:
        return file.read(64)


def _opened(path: Path) -> BufferedReader:
    return cast(BufferedReader, sys.stdin.buffer) if path == STDIN else path.open("rb")


def path_of_resources(set_name: str) -> str:
    return f"{path_of_set(set_name)}/resources"


def load(
    url: str,
    token: str | None,
    set_name: str,
    body: LoadBody,
    *,
    wanted: LoadRequest,
    key: str | None,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Send it until the hub has taken all of it, and wait until it is done."""
    path = f"{path_of_resources(set_name)}?{wanted.query()}"
    headers = body.headers | {"Idempotency-Key": key or secrets.token_hex(8)}
    hub = HubClient(url, token, connect_seconds=SEND_SECONDS, answer_seconds=LOAD_SECONDS)
    with closing(hub):
        answer = _sent(hub, path, body, headers, say)
    if answer["stage"] in ("done", "compared"):
        return answer
    return _done(url, token, set_name, say)


def _sent(
    hub: HubClient, path: str, body: LoadBody, headers: dict[str, str], say: Say
) -> dict[str, Any]:
    until = monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return hub.ask("PUT", path, headers, body.pieces(say)).object(*OUTCOME)
        except TryAgain as error:
            if not body.is_repeatable or monotonic() > until:
                raise
            typer.echo(f"{error.detail}; sending it again", err=True)
            sleep(AGAIN_SECONDS)


def _done(url: str, token: str | None, set_name: str, say: Say) -> dict[str, Any]:
    """What became of a load that takes long."""
    path = path_of_resources(set_name)
    with hub_at(url, token) as hub:
        while True:
            answer = asked(hub, "GET", path, patience_seconds=PATIENCE_SECONDS)
            standing = answer.object("load", "last_load")
            if standing["load"] is None and standing["last_load"] is None:
                raise Rejected(f"the load is gone: was {set_name} removed meanwhile?")
            if standing["load"] is None:
                return answer._replace(content=standing["last_load"]).object(*OUTCOME)
            say(f"the hub is at it: {standing['load']['stage']}")
            sleep(AGAIN_SECONDS)


def print_outcome(outcome: dict[str, Any], *, json: bool) -> None:
    if json:
        typer.echo(msgspec.json.encode(outcome))
        return
    for name in COUNTS:
        typer.echo(f"{name:10}{outcome[name]:>10}")
    for each in outcome.get("first", ()):
        typer.echo(f"{each['change']}: {each['loc']}")
    if outcome.get("refused"):
        typer.echo(outcome["refused"], err=True)
    elif outcome["stage"] == "done":
        published = "the differences are" if outcome["told"] else "nothing is"
        typer.echo(f"loaded; {published} published", err=True)
