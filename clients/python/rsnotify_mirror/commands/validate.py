"""`rsnotify validate`: documents from files, stdin or the web, and what is wrong with them."""

import asyncio
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from html import unescape
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option

from rsnotify.cli.options import AS_USUAL, Commands, Json, Requests
from rsnotify.cli.output import counted, how_far, print_json, progress
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import token_for_source
from rsnotify.cli.terminal import echo
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.document_rules import Violation, judge_document
from rsnotify.resourcesync.tables import MAX_BYTES
from rsnotify_client.network import Network
from rsnotify_client.token import Token
from rsnotify_client.web import Unreachable, Web, origin_of
from rsnotify_mirror.inspection.inspection import Inspection, inspect
from rsnotify_mirror.inspection.samples import Bounds, Checked

commands = Commands()


@commands.command()
def validate(
    documents: Annotated[
        list[str] | None, Argument(metavar="[FILE|URL]…", help="The documents; - is stdin.")
    ] = None,
    site: Annotated[
        str | None, Option(metavar="URL", help="Look at the whole Source that this leads to.")
    ] = None,
    most_documents: Annotated[
        int, Option("--documents", min=1, help="With --site: documents at most.")
    ] = 200,
    samples: Annotated[
        int, Option("--samples", min=0, help="With --site: resources to compare.")
    ] = 20,
    packages: Annotated[
        int, Option("--packages", min=0, help="With --site: ZIP packages to open.")
    ] = 20,
    listen: Annotated[
        float, Option(min=0, max=3600, help="With --site: seconds to listen to each channel.")
    ] = 3,
    json: Json = False,
    requests: Requests = AS_USUAL,
) -> None:
    """Validate ResourceSync documents, or a whole Source, against the specifications.

    Prints each violation with its clause, its place and how to fix it, and of several documents a
    table. Exits 0 if all are valid, 1 if one is not, 2 if one cannot be read. Knows every document
    of the core 1.1, the Archives, both notifications, of 0.8, of 0.9, and of the draft of 2013.
    With --site: discovery, all documents, packages, each channel, and some resources; exits 1 also
    if something could not be checked.
    """
    if (site is None) == (not documents):
        raise InvalidSettings("name documents, or one Source with --site")
    network = requests.network()
    if site is not None:
        bounds = Bounds(
            documents=most_documents, samples=samples, packages=packages, listen_seconds=listen
        )
        raise typer.Exit(run_site(site, token_for_source(site), bounds, network, json=json))
    assert documents is not None  # noqa: S101
    if len(documents) == 1:
        found = [asyncio.run(judged(documents[0], network))]
        print_one(found[0], json=json)
    else:
        found = asyncio.run(all_judged(documents, network))
        print_all(found, json=json)
    raise typer.Exit(max(2 if each.error else bool(each.violations) for each in found))


FETCH_SECONDS = 60
HEAD_BYTES = 8 * 1024  # of a document, in which its links are looked for
_WHOLE = re.compile(rb'<rs:ln rel="canonical" href="([^"]*)"').search  # RFC 6596
NOTHING_THERE = "there is nothing at this address: look whether it is right"


class Judged(msgspec.Struct):
    """What became of one of the documents; without an edition it could not be read at all."""

    document: str
    kind: str
    edition: str | None
    violations: list[Violation]
    error: str | None = None

    @property
    def outcome(self) -> str:
        if self.error is not None:
            return self.error
        return counted(len(self.violations), "violation") if self.violations else "valid"


def _is_address(document: str) -> bool:
    return document.startswith(("http://", "https://"))


async def judged(
    document: str, network: Network | None = None, *, source: str | None = None
) -> Judged:
    """The document's verdict; raises if it cannot be read or fetched.

    A token is shown where the Source is: at the document's own address, or at this one.
    """
    is_address = _is_address(document)
    content = await _fetched(document, source, network) if is_address else _read(document)
    verdict = judge_document(content)
    return Judged(document, *verdict._replace(kind=_as_part(verdict.kind, content)))


def _as_part(kind: str, content: bytes) -> str:
    """What it is, in words that nobody takes for all changes where it says that it is a part.

    >>> _as_part("changelist", b'<rs:ln rel="canonical" href="http://a/?x&amp;y"/><rs:md/>')
    'part of the changelist http://a/?x&y'
    """
    head = content[:HEAD_BYTES].partition(b"<url>")[0]
    found = _WHOLE(head) if kind == "changelist" else None
    return kind if found is None else f"part of the changelist {unescape(found[1].decode())}"


async def all_judged(documents: Sequence[str], network: Network | None = None) -> list[Judged]:
    """Each one's verdict; one that cannot be read stops no other."""
    first, found = next(filter(_is_address, documents), None), []
    for document in documents:
        try:
            found.append(await judged(document, network, source=first))
        except InvalidSettings as error:
            found.append(Judged(document, "", None, [], error.problems[0]))
    return found


def _read(document: str) -> bytes:
    with wrong_use(OSError, at=f"cannot read {document}"):
        return sys.stdin.buffer.read() if document == "-" else Path(document).read_bytes()


async def _fetched(url: str, source: str | None, network: Network | None) -> bytes:
    """With the token, headers and cookies of `mirror`: a document may be private."""
    try:
        token = token_for_source(url) if origin_of(url) == origin_of(source or url) else None
        async with asyncio.timeout(FETCH_SECONDS), Web(token, url, network=network) as web:
            page = await web.page(url, cap=MAX_BYTES + 1)
    except TimeoutError:
        raise InvalidSettings(f"cannot fetch {url}: no answer in time") from None
    except Unreachable as error:
        raise InvalidSettings(f"cannot fetch {url}: {error.cause}") from None
    except (Rejected, TryAgain) as error:
        raise InvalidSettings(f"cannot fetch {url}: {error.detail}") from None
    if page.status != 200:
        why = NOTHING_THERE if page.status in (404, 410) else f"it answers {page.status}"
        raise InvalidSettings(f"cannot fetch {url}: {why}")
    return page.body


def print_one(found: Judged, *, json: bool) -> None:
    if json:
        print_json(found.violations)
        return
    print_violations(found.violations)
    echo(f"{found.document}: {found.outcome} ({_named(found)})", err=True)


def print_all(found: Sequence[Judged], *, json: bool) -> None:
    """The violations under the name of each document, then one table of all."""
    if json:
        print_json(found)
        return
    for each in found:
        if each.violations:
            echo(f"{each.document}:")
            print_violations(each.violations, indent="  ")
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("document", overflow="fold")  # whole, however long: it identifies the document
    table.add_column("what it is")
    table.add_column("outcome", no_wrap=True)
    for each in found:
        table.add_row(*map(escape, (each.document, _named(each), each.outcome)))
    Console(stderr=True).print(table)
    wrong = sum(each.outcome != "valid" for each in found)
    echo(f"{len(found)} documents: {len(found) - wrong} valid, {wrong} not", err=True)


def _named(found: Judged) -> str:
    return "" if found.edition is None else f"{found.kind}, {_EDITIONS[found.edition]}"


_EDITIONS = {
    "1.1": "ResourceSync 1.1",
    "0.9": "ResourceSync 0.9",
    "0.8": "Notification 0.8",
    "draft of 2013": "the draft of 2013",
}


def print_violations(violations: Iterable[Violation], indent: str = "") -> None:
    for violation in violations:
        said = f"{violation.path}: {violation.message} [{violation.clause}]"
        further = indent + "  "
        mend = _wrapped(violation.mend, further + "  ", further + "  ")
        for line in (*_wrapped(said, indent, further), *mend):
            echo(line)


def _wrapped(text: str, first: str, others: str) -> Sequence[str]:
    """As wide as the terminal; whole where a program reads it. An address is never broken."""
    if not sys.stdout.isatty():
        return [first + text]
    width = shutil.get_terminal_size().columns
    lines = textwrap.TextWrapper(
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.wrap(text)


def run_site(url: str, token: Token | None, bounds: Bounds, network: Network, *, json: bool) -> int:
    """Inspect it and print what was found; the exit status."""
    console = Console(stderr=True)
    with progress(f"looking at {url}") as say:
        numbers, begun = count(1), monotonic()

        def report(checked: Checked) -> None:
            far = how_far(next(numbers), None, monotonic() - begun)
            say(f"documents looked at: {far}; the last is {checked.document}")

        with wrong_use(Rejected, TryAgain):  # the address itself
            looking = inspect(url, token=token, bounds=bounds, network=network, report=report)
            found = asyncio.run(looking)
    if json:
        print_json(found)
    else:
        _print(found, console)
    return 0 if found.is_right else 1


def _print(found: Inspection, console: Console) -> None:
    for each in found.checked:
        if each.violations:
            echo(f"{each.document}:")
            print_violations(each.violations, indent="  ")
    console.print(_table(found.checked))
    for each in found.checked:
        if each.note:
            echo(f"{each.kind} {each.document}: {each.note}", err=True)
    for unchecked in found.unchecked:
        echo(f"not checked: {unchecked}", err=True)
    violations = counted(found.violations, "violation") if found.violations else "no violation"
    checks = counted(len(found.checked), "check")
    more = f", {len(found.unchecked)} not complete" if found.unchecked else ""
    echo(f"{found.site}: {violations} in {checks}{more}", err=True)


def _table(found: Sequence[Checked]) -> Table:
    """A row for each kind."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("what it is", no_wrap=True)
    for name in ("checked", "wrong", "not checked"):
        table.add_column(name, justify="right")
    for kind in dict.fromkeys(each.kind for each in found):
        those = [each for each in found if each.kind == kind]
        wrong = sum(bool(each.violations) for each in those)
        numbers = (len(those), wrong, sum(each.error is not None for each in those))
        table.add_row(escape(kind), *(str(each or "") for each in numbers))
    return table
