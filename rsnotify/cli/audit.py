"""`rsnotify audit`: how a copy stands beside its Source; a table or JSON, and the exit status."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rsnotify.cli.mirror import (
    Cookies,
    Headers,
    LogFile,
    MaxDelete,
    Rate,
    Timeout,
    Verbose,
    check_address,
    log_more,
    network_of,
    until_ended,
)
from rsnotify.cli.mirror_output import say
from rsnotify.cli.output import progress
from rsnotify.cli.target import Json, token_of_environment
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify_client.network import Network
from rsnotify_mirror.audit import KINDS, Audit, audit, check_may_repair
from rsnotify_mirror.audit import repair as repair_copy
from rsnotify_mirror.report import Event

commands = typer.Typer()


AuditSource = Annotated[str, typer.Argument(metavar="URL", help="The Source's address.")]
AuditDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="Where the copy is.")]
Repair = Annotated[bool, typer.Option("--repair", help="Repair what is found.")]
Sample = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Look at a random sample of N resources.")
]


@commands.command("audit")
def audit_copy(
    source: AuditSource,
    directory: AuditDirectory,
    repair: Repair = False,
    max_delete: MaxDelete = 10,
    sample: Sample = None,
    json: Json = False,
    header: Headers = None,
    cookies: Cookies = None,
    rate: Rate = None,
    timeout: Timeout = None,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Compare a copy with its Source: by length, digest and time.

    Exit status: 0 in sync, 1 out of sync, 2 wrong use, 130 interrupted.
    """
    check_address(source, directory)
    log_more(verbose=verbose, file=log_file)
    network = network_of(header or [], cookies, rate, timeout)
    token = token_of_environment()
    most = max_delete if repair else None
    raise typer.Exit(until_ended(_audit(source, directory, token, network, sample, most, json)))


SHOWN = 20


async def _audit(
    url: str,
    directory: Path,
    token: str | None,
    network: Network,
    sample: int | None,
    max_delete: float | None,
    json: bool,
) -> int:
    """With `max_delete`, what is found is repaired; the exit status."""
    if max_delete is not None:
        check_may_repair(directory)
    try:
        found = await _audited(url, directory, token, network, sample)
        if max_delete is not None and not found.is_in_sync:
            say("before the repair", err=True)
            print_audit(found, json=False, err=True)
            await repair_copy(
                *(url, directory, found),
                token=token,
                network=network,
                report=_say_skipped,
                max_delete=max_delete,
            )
            found = await _audited(url, directory, token, network)
            if not json:
                say("after the repair")
    except Rejected as error:
        raise InvalidSettings([error.detail]) from None
    print_audit(found, json=json)
    return 0 if found.is_in_sync else 1


async def _audited(
    url: str, directory: Path, token: str | None, network: Network, sample: int | None = None
) -> Audit:
    with progress(f"reading what {url} lists") as say:

        def looked(done: int, of_all: int) -> None:
            if done % 100 == 0:
                say(f"looked at {done:,} of {of_all:,} resources")

        return await audit(
            url, directory, token=token, sample=sample, network=network, progress=looked
        )


def _say_skipped(event: Event) -> None:
    if event.event == "skipped":
        say(f"skipped: {event.problem}", err=True)


def print_audit(found: Audit, *, json: bool, err: bool = False) -> None:
    if json:
        say(msgspec.json.encode(found))
        return
    if found.selection is not None:
        all_ = "" if found.listed is None else f"; the Resource List has {found.listed} resources"
        say(f"compared: the selection {found.selection}{all_}", err=err)
    for words, count in _rows(found):
        say(f"{words:24} {count:>10}", err=err)
    for finding in found.findings[:SHOWN]:
        say(f"{finding.kind}: {finding.loc or finding.path} {finding.detail}".rstrip(), err=err)
    if (more := len(found.findings) - SHOWN) > 0:
        say(f"and {more} more; --json names them all", err=err)
    for skipped in found.skipped[:SHOWN]:
        say(f"skipped: {skipped}", err=err)
    say(_verdict(found), err=err)


def _rows(found: Audit) -> Iterator[tuple[str, int | str]]:
    counts = Counter(finding.kind for finding in found.findings)
    yield f"{'selected' if found.selection else 'resources'} at the Source", found.resources
    yield "looked at", found.checked
    yield "of these by digest", found.by_hash
    yield "in sync", found.checked - counts.total() + counts["extra"]
    for kind, words in KINDS.items():
        is_looked_for = kind != "extra" or found.sample is None
        yield words, counts[kind] if is_looked_for else "-"


def _verdict(found: Audit) -> str:
    if not found.is_in_sync:
        return "OUT OF SYNC"
    return (
        "IN SYNC"
        if found.sample is None
        else f"IN SYNC as far as the sample of {found.checked} shows"
    )
