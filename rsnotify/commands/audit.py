"""`rsnotify audit`: how a copy stands beside its Source; a table or JSON, and the exit status."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rsnotify.commands.mirror import until_ended
from rsnotify.commands.mirror_shown import say
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify_client.network import Network
from rsnotify_mirror.audit import KINDS, Audit, audit, check_may_repair, repair
from rsnotify_mirror.report import Event

SHOWN = 20


def run_audit(
    url: str,
    directory: Path,
    *,
    token: str | None,
    sample: int | None,
    mend: bool,
    json: bool,
    network: Network,
    max_delete: float,
) -> int:
    """Audit, and mend what is found if that is wanted; the exit status."""
    words = {"token": token, "network": network}
    most = max_delete if mend else None
    return until_ended(_audit(url, directory, words, sample=sample, max_delete=most, json=json))


async def _audit(
    url: str,
    directory: Path,
    words: dict[str, Any],
    *,
    sample: int | None,
    max_delete: float | None,
    json: bool,
) -> int:
    """With `max_delete`, what is found is mended."""
    if max_delete is not None:
        check_may_repair(directory)
    try:
        found = await audit(url, directory, sample=sample, **words)
        if max_delete is not None and not found.is_in_sync:
            say("before the repair", err=True)
            print_audit(found, json=False, err=True)
            words_of_repair = words | {"report": _say_skipped, "max_delete": max_delete}
            await repair(url, directory, found, **words_of_repair)
            found = await audit(url, directory, **words)
            if not json:
                say("after the repair")
    except Rejected as error:
        raise InvalidSettings([error.detail]) from None
    print_audit(found, json=json)
    return 0 if found.is_in_sync else 1


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
        else f"IN SYNC as far as the sample of {found.checked} tells"
    )
