"""`rsnotify validate`: a document from a file, stdin or the web, and what is wrong with it."""

import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
import typer

from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.validation.document_rules import check
from rsnotify.resourcesync.validation.entry_rules import Violation
from rsnotify.resourcesync.validation.tables import MAX_BYTES
from rsnotify_client.cause import cause_of

FETCH_SECONDS = 60


async def violations_of(document: str) -> list[Violation]:
    if document.startswith(("http://", "https://")):
        return check(await _fetched(document))
    return check(_read(document))


def _read(document: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if document == "-" else Path(document).read_bytes()
    except OSError as error:
        raise InvalidSettings([f"cannot read {document}: {error.strerror}"]) from None


async def _fetched(url: str) -> bytes:
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            answer.raise_for_status()
            content = bytearray()
            async for part in answer.content.iter_chunked(2**16):
                content += part
                if len(content) > MAX_BYTES:
                    break
            return bytes(content)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Rejected(f"cannot fetch {url}: {cause_of(error)}") from None


def print_violations(document: str, violations: Sequence[Violation], *, json: bool) -> None:
    if json:
        typer.echo(msgspec.json.encode(violations))
        return
    for violation in violations:
        typer.echo(f"{violation.path}: {violation.message} [{violation.clause}]")
        typer.echo(f"    {violation.mend}")
    number = len(violations)
    typer.echo(f"{document}: {'valid' if not number else f'{number} violation(s)'}", err=True)
