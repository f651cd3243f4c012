"""`rsnotify publish`: changes from arguments, a file or stdin, in requests of a thousand.

Rules that hold here: a body leaves as it was written, cut between changes only; what the hub
thinks of it, the hub says.
"""

import asyncio
import os
import secrets
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import Kind
from rsnotify.resourcesync.xml_reader import parse_all_of_document
from rsnotify.resourcesync.xml_writer import render_document
from rsnotify_client.asyncpublisher import AsyncPublisher
from rsnotify_client.hub import Accepted

AT_ONCE = 1_000
PAUSE_SECONDS = 0.1  # a line on stdin does not wait longer than this for others to go with it

JSON, NDJSON, XML = "application/json", "application/x-ndjson", "application/xml"
FORMATS = {"json": JSON, "ndjson": NDJSON, "jsonl": NDJSON, "xml": XML}


class PublishBody(NamedTuple):
    """One request's worth of changes."""

    content: bytes
    content_type: str
    changes: int


class PublishInput(NamedTuple):
    """Where the bodies come from, and how many changes there will be, if that is known."""

    bodies: AsyncIterator[PublishBody]
    total: int | None


async def publish(
    url: str,
    token: str | None,
    set_name: str,
    source: PublishInput,
    *,
    kind: Kind,
    key: str | None,
    json: bool,
    console: Console,
) -> None:
    """Publish every body in turn; print what the hub accepted."""
    run = key or secrets.token_hex(12)
    accepted: Accepted | None = None
    async with AsyncPublisher(url, token) as publisher:
        with _progress(console, source.total) as progress:
            task = progress.add_task(f"publishing to {set_name}", total=source.total)
            number = 0
            async for body in source.bodies:
                answer = await publisher.publish_body(
                    set_name,
                    body.content,
                    body.content_type,
                    kind=kind,
                    key=_key(run, number),
                )
                accepted = _together(accepted, answer)
                progress.advance(task, body.changes)
                number += 1
    if accepted is None:
        raise Rejected("there was no change to publish")
    _print(accepted, json=json)


def _key(run: str, number: int) -> str:
    return run if number == 0 else f"{run}-{number}"


def _together(before: Accepted | None, now: Accepted) -> Accepted:
    if before is None:
        return now
    return Accepted(before.accepted + now.accepted, before.from_, now.until)


def _print(accepted: Accepted, *, json: bool) -> None:
    if json:
        typer.echo(msgspec.json.encode(accepted))
    else:
        changes = "1 change" if accepted.accepted == 1 else f"{accepted.accepted} changes"
        typer.echo(f"accepted {changes} until {accepted.until}")


def _progress(console: Console, total: int | None) -> Progress:
    return Progress(
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=total is None or total <= AT_ONCE,
    )


# Where changes come from ------------------------------------------------------------------------


def of_locs(locs: Sequence[str], **fields: Any) -> PublishInput:
    """What is named on the command line, all changed in the same way."""
    changes = [Change(loc, **fields) for loc in locs]
    return PublishInput(_each(_json_bodies(changes)), len(changes))


def of_file(path: Path, format_: str | None) -> PublishInput:
    """The changes in a file; `-` is stdin, in lines as they come if it is NDJSON."""
    if format_ is not None and format_ not in FORMATS:
        raise InvalidSettings([f"--format {format_}: choose one of {', '.join(FORMATS)}"])
    if str(path) == "-":
        if sys.stdin is None:  # whoever started us closed it
            raise InvalidSettings(["--file -: stdin is closed: redirect something into it"])
        if format_ in ("ndjson", "jsonl") and _comes_bit_by_bit(sys.stdin.fileno()):
            return PublishInput(_lines_as_they_come(), None)
        content = sys.stdin.buffer.read()
    else:
        content = _read(path)
    content_type = FORMATS[format_ or _guessed(path, content)]
    bodies = list(_BODIES[content_type](content))
    return PublishInput(_each(iter(bodies)), sum(body.changes for body in bodies))


def _comes_bit_by_bit(stdin: int) -> bool:
    """Whether it must be waited for; a file, or /dev/null, is all there already."""
    mode = os.fstat(stdin).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(stdin)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSettings([f"cannot read {path}: {error.strerror}"]) from None


def _guessed(path: Path, content: bytes) -> str:
    """The format, by the file's name, else by how its content begins."""
    if path.suffix[1:] in FORMATS:
        return path.suffix[1:]
    start = content.lstrip()
    if start.startswith(b"<"):
        return "xml"
    return "ndjson" if start.startswith(b"{") and b"\n{" in start else "json"


def _json_bodies(changes: Sequence[object]) -> Iterator[PublishBody]:
    for start in range(0, len(changes), AT_ONCE):
        part = changes[start : start + AT_ONCE]
        yield PublishBody(msgspec.json.encode(part), JSON, len(part))


def _bodies_of_json(content: bytes) -> Iterator[PublishBody]:
    try:
        parts = msgspec.json.decode(content, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise Rejected(f"the file is no JSON: {error}") from None
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


async def _each(bodies: Iterator[PublishBody]) -> AsyncIterator[PublishBody]:
    for body in bodies:
        yield body


async def _lines_as_they_come() -> AsyncIterator[PublishBody]:
    reader = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while first := await reader.readline():
        lines = [first.rstrip()]
        while len(lines) < AT_ONCE and (line := await _soon(reader)):
            lines.append(line.rstrip())
        if lines := [line for line in lines if line]:
            yield PublishBody(b"\n".join(lines), NDJSON, len(lines))


async def _soon(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(PAUSE_SECONDS):
            return await reader.readline()
    except TimeoutError:
        return b""
