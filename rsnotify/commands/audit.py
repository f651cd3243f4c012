"""`rsnotify audit`: how a copy stands beside its Source; a table or JSON, and the exit status."""

from collections import Counter
from pathlib import Path

import msgspec

from rsnotify.commands.mirror import until_ended
from rsnotify.commands.mirror_shown import say
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify_client.audit import KINDS, Audit, audit, repair

SHOWN = 20


def run_audit(
    url: str,
    directory: Path,
    *,
    token: str | None,
    sample: int | None,
    mend: bool,
    json: bool,
) -> int:
    """Audit, and mend what is found if that is wanted; the exit status."""
    return until_ended(_audit(url, directory, token=token, sample=sample, mend=mend, json=json))


async def _audit(
    url: str, directory: Path, *, token: str | None, sample: int | None, mend: bool, json: bool
) -> int:
    try:
        found = await audit(url, directory, token=token, sample=sample)
        if mend and not found.is_in_sync:
            say("before the repair", err=True)
            print_audit(found, json=False, err=True)
            await repair(url, directory, found, token=token)
            found = await audit(url, directory, token=token)
            if not json:
                say("after the repair")
    except Rejected as error:
        raise InvalidSettings([error.detail]) from None
    print_audit(found, json=json)
    return 0 if found.is_in_sync else 1


def print_audit(found: Audit, *, json: bool, err: bool = False) -> None:
    if json:
        say(msgspec.json.encode(found))
        return
    counts = Counter(finding.kind for finding in found.findings)
    in_sync = found.checked - sum(counts.values()) + counts["extra"]
    rows = [("resources at the Source", found.resources), ("looked at", found.checked)]
    rows += [("of these by digest", found.by_hash), ("in sync", in_sync)]
    rows += [(words, counts[kind]) for kind, words in KINDS.items()]
    for words, count in rows:
        say(f"{words:24} {count:>10}", err=err)
    for finding in found.findings[:SHOWN]:
        say(f"{finding.kind}: {finding.loc or finding.path} {finding.detail}".rstrip(), err=err)
    if (more := len(found.findings) - SHOWN) > 0:
        say(f"and {more} more; --json names them all", err=err)
    for skipped in found.skipped[:SHOWN]:
        say(f"skipped: {skipped}", err=err)
    say("IN SYNC" if found.is_in_sync else "OUT OF SYNC", err=err)
