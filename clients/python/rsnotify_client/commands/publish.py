"""`rsnotify publish`: changes from arguments, a file or stdin, in requests of a thousand.

Rules that hold here: a body leaves as it was written, cut between changes only; the hub
alone judges it.
"""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from typer import Argument, Option

from rsnotify.cli.options import (
    Base,
    Commands,
    Format,
    Framework,
    Json,
    Key,
    MaxDelete,
    check_choice,
    most_deleted,
)
from rsnotify.cli.output import WorkPace, counted, print_json, progress
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import HERE, Hub, SetName
from rsnotify.cli.terminal import echo
from rsnotify.errors import Fault, InvalidSettings, Rejected, TryAgain
from rsnotify.gunzip import MAGIC, BrokenGzip, Gunzip
from rsnotify.resourcesync.change import CHANGE_TYPES, Change
from rsnotify.resourcesync.notification import Kind
from rsnotify.resourcesync.xml_reader import parse_all_of_document
from rsnotify.resourcesync.xml_writer import render_document
from rsnotify_client.between import Unreadable, changes_between
from rsnotify_client.commands.places import NOWHERE, WrittenFile, WrittenFiles, check_is_no_table
from rsnotify_client.commands.resources import FORMATS, PIECE_BYTES, XML
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.hub import JSON, Accepted
from rsnotify_client.loading import NDJSON
from rsnotify_client.publisher import Publisher
from rsnotify_client.queue import checked_key
from rsnotify_client.token import Token

commands = Commands()


PUBLISH = """Publish changes to a set.

Name the resources as arguments, or give a file (`-` for stdin) of JSON, NDJSON or a
ResourceSync `<urlset>`. A file goes in requests of 1,000 changes, each all or nothing and
repeated until the hub has it. With `--format ndjson` lines on stdin are sent as they come.

`rsnotify publish dataset1 http://example.com/res1 --change created`

With `--framework` they are changes of capability documents, for the framework channel:

`rsnotify publish dataset1 http://example.com/resourcelist.xml --framework --capability
resourcelist`

With `--between` they are what changed between two lists, each a path or a URL of a Resource
List, a sitemap or an index of them, plain or gzip:

`rsnotify publish dataset1 --between yesterday.xml today.xml`

With `--dir` they are what changed in a folder since the last time; the first time the set gets all
of it. A file is published at the address that `--base` and its path make:

`rsnotify publish dataset1 --dir /srv/files --base https://example.com/files --watch`
"""


@commands.command(help=PUBLISH)
def publish(
    set_name: SetName,
    locs: Annotated[
        list[str] | None, Argument(metavar="[LOC]...", help="URIs of changed resources.")
    ] = None,
    change: Annotated[str | None, Option(help="created, updated or deleted. [updated]")] = None,
    lastmod: Annotated[str | None, Option(help="When they were last modified.")] = None,
    file: Annotated[
        Path | None, Option("--file", "-f", help="A file of changes; - is stdin.")
    ] = None,
    format_: Format = None,
    framework: Framework = False,
    capability: Annotated[
        str | None, Option(help="What the changed documents are, such as resourcelist.")
    ] = None,
    index: Annotated[
        str | None, Option(metavar="URI", help="The index that they lie under.")
    ] = None,
    between: Annotated[
        tuple[str, str] | None,
        Option(metavar="OLD NEW", help="What changed between two Resource Lists or sitemaps."),
    ] = None,
    max_delete: MaxDelete = None,
    dir_: Annotated[
        Path | None, Option("--dir", metavar="DIR", help="What changed in a folder of files.")
    ] = None,
    base: Base = None,
    watch: Annotated[
        bool, Option("--watch", help="Go on publishing what changes in --dir.")
    ] = False,
    state: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Keeps what is published already. [.DIR.rsnotify-SET.db, beside DIR]",
        ),
    ] = None,
    key: Key = None,
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    if [bool(locs), file is not None, between is not None, dir_ is not None].count(True) != 1:
        raise typer.BadParameter(
            "name resources, or give a --file, --between or --dir; one of them"
        )
    if dir_ is None and (base is not None or watch or state is not None):
        raise typer.BadParameter("--base, --watch and --state go with --dir")
    if dir_ is None and between is None:
        if max_delete is not None:
            raise typer.BadParameter("--max-delete goes with --between and --dir")
        fields = {"capability": capability, "index": index}
        own = {"change": change, "lastmod": lastmod}
        if file is not None and any(each is not None for each in (fields | own).values()):
            said = "each change says its own change, lastmod, capability and index"
            raise typer.BadParameter(f"in a --file {said}")
        _check_framework(framework, fields, has_file=file is not None)
        check_choice("--change", change or "updated", CHANGE_TYPES)
        fields |= {"change": change or "updated", "lastmod": lastmod}
        if file is None:
            source = of_locs(locs or [], **fields)
        else:
            with progress("reading stdin" if str(file) == "-" else f"reading {file}"):
                source = of_file(file, format_)
    elif framework or key or json:
        option = "--between" if dir_ is None else "--dir"
        raise typer.BadParameter(f"{option} goes without --framework, --key and --json")
    elif dir_ is not None and base is None:
        raise typer.BadParameter("--dir needs --base, the address where its files are served")
    most = most_deleted(max_delete)
    with hub.token() as token:
        if dir_ is not None:
            from rsnotify_client.commands.publish_folder import FolderSource, publish_folder

            folder = FolderSource(dir_, base or "", state, most, watch)
            publish_folder(hub.url, token, set_name, folder)
        elif between is not None:
            publish_between(hub.url, token, set_name, *between, most)
        else:
            kind: Kind = "framework" if framework else "change"
            publish_all(hub.url, token, set_name, source, kind=kind, key=key, json=json)


def _check_loc(loc: str) -> None:
    """What is likely to be meant as something else is no resource."""
    if loc in CHANGE_TYPES:
        raise typer.BadParameter(f"{loc!r} is no resource: say what happened with --change {loc}")
    if "://" in loc or len(loc) > 255:
        return
    if Path(loc).is_file():
        raise typer.BadParameter(f"{loc} is a file: publish the changes in it with --file {loc}")
    if Path(loc).is_dir():
        raise typer.BadParameter(f"{loc} is a folder: publish what changed in it with --dir {loc}")


def _check_framework(framework: bool, fields: dict[str, str | None], *, has_file: bool) -> None:
    if framework and not has_file and fields["capability"] is None:
        raise typer.BadParameter("--framework needs the --capability of the changed documents")
    if not framework and any(fields.values()):
        raise typer.BadParameter("--capability and --index go with --framework")


AT_ONCE = 1_000
EXAMPLE = '{"loc": "http://example.com/res1", "change": "updated"}'
FLUSH_SECONDS = 60.0


class PublishBody(NamedTuple):
    """One request's worth of changes; and from where in which file they are."""

    content: bytes
    content_type: str
    changes: int
    places: WrittenFiles = NOWHERE
    first: int = 0


class PublishInput(NamedTuple):
    """Where the bodies come from, and how many changes there will be, if that is known."""

    bodies: Iterator[PublishBody]
    total: int | None


def publish_all(
    url: str,
    token: Token | None,
    set_name: str,
    source: PublishInput,
    *,
    kind: Kind,
    key: str | None,
    json: bool,
) -> None:
    """Publish every body in turn; print what the hub accepted."""
    with wrong_use(InvalidArgument):
        run = checked_key(key)
    accepted: Accepted | None = None
    with Publisher(url, token) as publisher, progress(f"publishing to {set_name}") as say:
        done, pace = 0, WorkPace(say, f"publishing to {set_name}: changes")
        for number, body in enumerate(source.bodies):
            try:
                answer = publisher.publish_body(
                    set_name,
                    body.content,
                    body.content_type,
                    kind=kind,
                    key=run if number == 0 else f"{run}-{number}",
                )
            except Rejected as error:
                raise _refusal(error, body, done) from None
            if accepted is not None:
                answer = Accepted(accepted.accepted + answer.accepted, accepted.from_, answer.until)
            accepted = answer
            done += body.changes
            pace(done, source.total)
    if accepted is None:
        raise Rejected("there was no change to publish")
    if json:
        print_json(accepted)
    else:
        at = " at" if accepted.accepted == 1 else ", the last at"
        echo(f"accepted {counted(accepted.accepted, 'change')}{at} {accepted.until}")


def _refusal(error: Rejected, body: PublishBody, done: int) -> Rejected:
    """The refusal in words of the file; and what of it is published all the same."""
    refused = body.places.refusal(error, body.first)
    if refused is error or not done:
        return refused
    kept = Fault(message=f"the first {done:,} changes are published, and none after them")
    faults = refused.faults or [Fault(message=refused.detail)]
    return Rejected(refused.detail, status=refused.status, faults=[*faults, kept])


# Where changes come from ------------------------------------------------------------------------


def of_locs(locs: Sequence[str], **fields: Any) -> PublishInput:
    """What is named on the command line, all changed in the same way."""
    for loc in locs:
        _check_loc(loc)
    changes = [Change(loc, **fields) for loc in locs]
    return PublishInput(_json_bodies(changes), len(changes))


def of_file(path: Path, format_: str | None) -> PublishInput:
    """The changes in a file; `-` is stdin, in lines as they come if it is NDJSON."""
    if format_ is not None:
        check_choice("--format", format_, [*FORMATS])
    name = "stdin" if str(path) == "-" else str(path)
    if str(path) == "-":
        if sys.stdin is None:  # the parent process closed it
            raise InvalidSettings("--file -: stdin is closed: redirect something into it")
        if format_ in ("ndjson", "jsonl") and _comes_bit_by_bit(sys.stdin.fileno()):
            return PublishInput(_lines_as_they_come(sys.stdin.fileno()), None)
        content = sys.stdin.buffer.read()
    else:
        content = _read(path)
    if content.startswith(MAGIC):
        content = _unpacked(content, name)
    if format_ is None:
        check_is_no_table(path, content, EXAMPLE)
    content_type = FORMATS[format_ or _guessed(path, content)]
    places = WrittenFiles([WrittenFile(name, partial(BytesIO, content))], content_type)
    try:
        bodies = list(_placed(_BODIES[content_type](content), places))
    except Rejected as error:
        raise places.refusal(error) from None
    return PublishInput(iter(bodies), sum(body.changes for body in bodies))


def _unpacked(content: bytes, name: str) -> bytes:
    gunzip = Gunzip()
    try:
        unpacked = b"".join(gunzip.feed(content))
        gunzip.close()
    except BrokenGzip as error:
        raise Rejected(f"{name}: {error.detail}") from None
    return unpacked


def _placed(bodies: Iterator[PublishBody], places: WrittenFiles) -> Iterator[PublishBody]:
    """The bodies, each with where its first change stands among all."""
    first = 0
    for body in bodies:
        yield body._replace(places=places, first=first)
        first += body.changes


def _comes_bit_by_bit(stdin: int) -> bool:
    """Whether it must be waited for; a file, or /dev/null, is all there already."""
    mode = os.fstat(stdin).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(stdin)


def _read(path: Path) -> bytes:
    with wrong_use(OSError, at=f"cannot read {path}"):
        return path.read_bytes()


def _guessed(path: Path, content: bytes) -> str:
    """The format, by the file's name, else by how its content begins."""
    suffix = path.name.removesuffix(".gz").rpartition(".")[2]
    if suffix in FORMATS:
        return suffix
    start = content.lstrip()
    if start.startswith(b"<"):
        return "xml"
    return "ndjson" if start.startswith(b"{") and b"\n{" in start else "json"


def _json_bodies(changes: Sequence[object]) -> Iterator[PublishBody]:
    for start in range(0, len(changes), AT_ONCE):
        part = changes[start : start + AT_ONCE]
        yield PublishBody(msgspec.json.encode(part), JSON, len(part))


def _bodies_of_json(content: bytes) -> Iterator[PublishBody]:
    if not content.strip():
        raise Rejected("the file is empty: there was no change to publish")
    try:
        parts = msgspec.json.decode(content, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if content.lstrip().startswith(b"{") and "trailing" in str(error):
            raise Rejected(
                f"{error}: if there is a change in each line: say --format ndjson"
            ) from None
        known = ", ".join(FORMATS)
        raise Rejected(f"this is not JSON: {error}; --format may be {known}") from None
    return _json_bodies(parts if isinstance(parts, list) else [parts])


def _bodies_of_ndjson(content: bytes) -> Iterator[PublishBody]:
    lines = [line for line in content.splitlines() if line.strip()]
    for start in range(0, len(lines), AT_ONCE):
        part = lines[start : start + AT_ONCE]
        yield PublishBody(b"\n".join(part), NDJSON, len(part))


def _bodies_of_xml(content: bytes) -> Iterator[PublishBody]:
    """What is cut is written again: nothing may be lost that the hub would have refused."""
    document, oddities = parse_all_of_document(content.lstrip())
    if not document.entries and not oddities:
        return
    if not oddities and not any(each.md and each.md.change for each in document.entries):
        raise Rejected(
            "the file says of no resource that it changed: it is a list of resources, which "
            "`rsnotify resources load` loads"
        )
    if len(document.entries) <= AT_ONCE:
        yield PublishBody(content, XML, len(document.entries))
        return
    for oddity in oddities:
        if oddity.kind == "unknown":
            raise Rejected(f"{oddity.path}: {oddity.message}")
    for start in range(0, len(document.entries), AT_ONCE):
        part = document.entries[start : start + AT_ONCE]
        cut = msgspec.structs.replace(document, entries=part)
        yield PublishBody(render_document(cut), XML, len(part))


_BODIES = {JSON: _bodies_of_json, NDJSON: _bodies_of_ndjson, XML: _bodies_of_xml}


def _lines_as_they_come(stdin: int) -> Iterator[PublishBody]:
    """Those that are there go together; while they do, others may come."""
    begun, line = b"", 1
    os.set_blocking(stdin, True)  # another program with the same pipe may have set it otherwise
    while piece := os.read(stdin, PIECE_BYTES):
        lines, _, begun = (begun + piece).rpartition(b"\n")
        yield from _bodies_of_lines(lines, line)
        line += lines.count(b"\n") + bool(lines)
    yield from _bodies_of_lines(begun, line)


def _bodies_of_lines(lines: bytes, first_line: int) -> Iterator[PublishBody]:
    """Of some lines of stdin, of which this is the number of the first."""
    places = WrittenFiles([WrittenFile("stdin", partial(BytesIO, lines), first_line)], NDJSON)
    yield from _placed(_bodies_of_ndjson(lines), places)


def publish_between(
    url: str, token: Token | None, set_name: str, old: str, new: str, max_delete: float
) -> None:
    """Publish what changed; print how much, and end with status 1 if some of it was refused."""
    with wrong_use(ValueError):
        publisher = Publisher(url, token)
    with publisher:
        try:
            changes = changes_between(old, new, max_delete=max_delete)
            while part := list(islice(changes, AT_ONCE)):
                for change in part:
                    publisher.send(set_name, change)
                publisher.flush(FLUSH_SECONDS)
        except Unreadable as error:
            raise InvalidSettings(error.detail) from None
        except TimeoutError as error:
            raise TryAgain(str(error)) from None
        counters = publisher.counters
    echo(f"accepted {counted(counters.published, 'change')} between {old} and {new}")
    if counters.refused:
        raise Rejected(f"the hub refused {counters.refused} of them; see above")
