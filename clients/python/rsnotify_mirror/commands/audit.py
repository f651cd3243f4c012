"""`rsnotify audit`: a copy compared with its Source; a table or JSON, and the exit status."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import time
from typing import Annotated

import typer
from typer import Argument, Option

from rsnotify.cli.options import (
    AS_USUAL,
    Commands,
    Json,
    MaxDelete,
    Metrics,
    Requests,
    most_deleted,
)
from rsnotify.cli.output import WorkPace, print_found, progress
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import token_for_source
from rsnotify.cli.terminal import echo
from rsnotify.cli.watched import Numbers
from rsnotify.errors import Rejected
from rsnotify_client.network import Network
from rsnotify_client.textfile import Table, exposition
from rsnotify_client.token import Token
from rsnotify_mirror.audit import FINDINGS, Audit, audit, check_may_repair
from rsnotify_mirror.audit import repair as repair_copy
from rsnotify_mirror.commands.mirror import check_address
from rsnotify_mirror.report import Event

commands = Commands()


@commands.command("audit")
async def audit_copy(
    source: Annotated[str, Argument(metavar="URL", help="The Source's address.")],
    directory: Annotated[Path, Argument(metavar="DIR", help="Where the copy is.")],
    repair: Annotated[bool, Option("--repair", help="Repair what is found.")] = False,
    max_delete: MaxDelete = None,
    sample: Annotated[
        int | None, Option(min=1, metavar="N", help="Look at a random sample of N resources.")
    ] = None,
    json: Json = False,
    metrics: Metrics = None,
    requests: Requests = AS_USUAL,
) -> None:
    """Compare a copy with its Source: by length, digest and time.

    Exit status: 0 in sync, 1 out of sync, 2 wrong use, 130 interrupted.
    """
    check_address(source, directory)
    network = requests.network()
    numbers = Numbers(metrics)
    if repair:
        check_may_repair(directory)
    token = token_for_source(source)
    look = partial(_look, source, directory, token, network)
    with wrong_use(Rejected):
        found = await look(sample)
        if repair and not found.is_in_sync:
            echo("before the repair", err=True)
            print_audit(found, json=False, err=True)
            await repair_copy(
                *(source, directory, found),
                token=token,
                network=network,
                report=_say_skipped,
                max_delete=most_deleted(max_delete),
            )
            before, found = found.findings, await look(None)
            found.repaired = [each for each in before if each not in found.findings]
            if not json:
                echo("after the repair")
    numbers.write(partial(metrics_of, directory, found))
    print_audit(found, json=json)
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
    return exposition(METRICS, {(("directory", str(directory)),): numbers})


async def _look(
    url: str, directory: Path, token: Token | None, network: Network, sample: int | None
) -> Audit:
    with progress(f"reading what {url} lists") as say:
        pace = None

        def looked(done: int, of_all: int) -> None:
            nonlocal pace
            pace = pace or WorkPace(say, "resources looked at:")  # what is listed is read by now
            if done % 100 == 0:
                pace(done, of_all)

        return await audit(
            url, directory, token=token, sample=sample, network=network, progress=looked
        )


def _say_skipped(event: Event) -> None:
    if event.event == "skipped":
        echo(f"skipped: {event.problem}", err=True)


def print_audit(found: Audit, *, json: bool, err: bool = False) -> None:
    print_found(found, _lines(found), json=json, err=err)


def _lines(found: Audit) -> Iterator[str]:
    if found.selection is not None:
        all_ = "" if found.listed is None else f"; the Resource List has {found.listed} resources"
        yield f"compared: the selection {found.selection}{all_}"
    for words, count in _rows(found):
        yield f"{words:24} {count:>10}"
    for finding in found.findings[:SHOWN]:
        yield f"{finding.kind}: {finding.loc or finding.path} {finding.detail}".rstrip()
    if (more := len(found.findings) - SHOWN) > 0:
        yield f"and {more} more; --json names them all"
    for skipped in found.skipped[:SHOWN]:
        yield f"skipped: {skipped}"
    if found.is_in_sync and found.sample is not None:
        yield f"IN SYNC as far as the sample of {found.checked} shows"
    else:
        yield "IN SYNC" if found.is_in_sync else "OUT OF SYNC"


def _rows(found: Audit) -> Iterator[tuple[str, int | str]]:
    counts = Counter(finding.kind for finding in found.findings)
    yield f"{'selected' if found.selection else 'resources'} at the Source", found.resources
    yield "looked at", found.checked
    yield "of these by digest", found.by_hash
    yield "in sync", found.checked - counts.total() + counts["extra"]
    for kind, words in FINDINGS.items():
        is_looked_for = kind != "extra" or found.sample is None
        yield words, counts[kind] if is_looked_for else "-"
