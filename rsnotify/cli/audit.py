"""`rsnotify audit`: a copy compared with its Source; a table or JSON, and the exit status."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Annotated

import msgspec
import typer

from rsnotify.cli import mirror
from rsnotify.cli.output import progress
from rsnotify.cli.target import Json, Metrics, token_of_environment
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify_client.network import Network
from rsnotify_client.textfile import Table, exposition, write
from rsnotify_mirror.audit import FINDINGS, Audit, audit, check_may_repair
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
    max_delete: mirror.MaxDelete = 10,
    sample: Sample = None,
    json: Json = False,
    metrics: Metrics = None,
    header: mirror.Headers = None,
    cookies: mirror.Cookies = None,
    rate: mirror.Rate = None,
    timeout: mirror.Timeout = None,
    verbose: mirror.Verbose = False,
    log_file: mirror.LogFile = None,
) -> None:
    """Compare a copy with its Source: by length, digest and time.

    Exit status: 0 in sync, 1 out of sync, 2 wrong use, 130 interrupted.
    """
    mirror.check_address(source, directory)
    mirror.log_more(verbose=verbose, file=log_file)
    network = mirror.network_of(header or [], cookies, rate, timeout)
    if repair:
        check_may_repair(directory)
    auditing = _audit(source, directory, network, sample, max_delete if repair else None, json)
    found = mirror.until_ended(auditing)
    print_audit(found, json=json)
    if metrics is not None:
        write(metrics, metrics_of(directory, found))
    raise typer.Exit(0 if found.is_in_sync else 1)


SHOWN = 20

METRICS: Table = {
    "rsnotify_audit_in_sync": ("gauge", "1 if nothing is wrong and all could be read"),
    "rsnotify_audit_timestamp_seconds": ("gauge", "When these numbers were written"),
    "rsnotify_audit_checked": ("gauge", "Resources looked at"),
    "rsnotify_audit_findings": ("gauge", "Resources and files that are not as they should be"),
    "rsnotify_audit_skipped": ("gauge", "What could not be read"),
    "rsnotify_audit_repaired": ("gauge", "Findings that --repair has put right"),
}


def metrics_of(directory: Path, found: Audit) -> str:
    counts = (len(found.findings), len(found.skipped), len(found.repaired))
    numbers = (found.is_in_sync, time(), found.checked, *counts)
    return exposition(METRICS, {("directory", str(directory)): numbers})


async def _audit(
    url: str,
    directory: Path,
    network: Network,
    sample: int | None,
    max_delete: float | None,
    json: bool,
) -> Audit:
    """With `max_delete`, what is found is repaired, and looked at again."""
    token = token_of_environment()
    try:
        found = await _audited(url, directory, token, network, sample)
        if max_delete is not None and not found.is_in_sync:
            typer.echo("before the repair", err=True)
            print_audit(found, json=False, err=True)
            await repair_copy(
                *(url, directory, found),
                token=token,
                network=network,
                report=_say_skipped,
                max_delete=max_delete,
            )
            before, found = found.findings, await _audited(url, directory, token, network)
            found.repaired = [each for each in before if each not in found.findings]
            if not json:
                typer.echo("after the repair")
    except Rejected as error:
        raise InvalidSettings(error.detail) from None
    return found


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
        typer.echo(f"skipped: {event.problem}", err=True)


def print_audit(found: Audit, *, json: bool, err: bool = False) -> None:
    if json:
        typer.echo(msgspec.json.encode(found))
        return
    if found.selection is not None:
        all_ = "" if found.listed is None else f"; the Resource List has {found.listed} resources"
        typer.echo(f"compared: the selection {found.selection}{all_}", err=err)
    for words, count in _rows(found):
        typer.echo(f"{words:24} {count:>10}", err=err)
    for finding in found.findings[:SHOWN]:
        typer.echo(
            f"{finding.kind}: {finding.loc or finding.path} {finding.detail}".rstrip(), err=err
        )
    if (more := len(found.findings) - SHOWN) > 0:
        typer.echo(f"and {more} more; --json names them all", err=err)
    for skipped in found.skipped[:SHOWN]:
        typer.echo(f"skipped: {skipped}", err=err)
    typer.echo(_verdict(found), err=err)


def _rows(found: Audit) -> Iterator[tuple[str, int | str]]:
    counts = Counter(finding.kind for finding in found.findings)
    yield f"{'selected' if found.selection else 'resources'} at the Source", found.resources
    yield "looked at", found.checked
    yield "of these by digest", found.by_hash
    yield "in sync", found.checked - counts.total() + counts["extra"]
    for kind, words in FINDINGS.items():
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
