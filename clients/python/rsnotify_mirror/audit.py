"""Compare a copy with the Source as it is now: by length, by digest, by time.

Rules that hold here: what the Source has is what its Resource List and the changes since say when
they are read now; what the mirror has recorded of a file counts only after a look at the file.
Where the lists do not say enough to judge a file, the server is asked whether it has changed.
"""

import asyncio
import hashlib
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Literal, NamedTuple

import msgspec

from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.delete_guard import MAX_DELETE
from rsnotify_client.discovery import discover
from rsnotify_client.dumps import RemotePackages
from rsnotify_client.missing import kept_back, probe_locs
from rsnotify_client.network import Network
from rsnotify_client.resource import SourceResource, checker, digests
from rsnotify_client.token import Token
from rsnotify_client.web import Unchanged, Web, check_status
from rsnotify_mirror.disk import Disk
from rsnotify_mirror.fetch import condition_of
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.paths import OURS, Map, key_of
from rsnotify_mirror.plan import Have, Options, compared
from rsnotify_mirror.planning import Planner, found_at
from rsnotify_mirror.report import Event, Report
from rsnotify_mirror.state import FILE, State, StateRow

log = logging.getLogger(__name__)

ASKED_AT_ONCE = 8

FindingKind = Literal["missing", "length", "hash", "older", "extra"]
FINDINGS: dict[FindingKind, str] = {
    "missing": "not in the copy",
    "length": "another length",
    "hash": "another content",
    "older": "another version",
    "extra": "not at the Source",
}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One resource or file that is not as it should be."""

    kind: FindingKind
    loc: str | None
    path: str | None = None
    detail: str = ""


class Audit(msgspec.Struct):
    """What was looked at and found."""

    resources: int = 0  # that the copy should have
    selection: str | None = None  # of the copy, if it is not to have all
    listed: int | None = None  # in the Resource List, where only some are selected
    sample: int | None = None  # how many were to be looked at; extra files were not
    checked: int = 0
    by_hash: int = 0
    findings: list[Finding] = []
    skipped: list[str] = []
    repaired: list[Finding] = []  # what was found before, and is right now

    @property
    def is_in_sync(self) -> bool:
        return not self.findings and not self.skipped


class Now(NamedTuple):
    """What the Source has now, in a database of its own, and what could not be read of it."""

    web: Web
    state: State
    baseline: Event
    skipped: list[str]


def judged(wanted: SourceResource, row: StateRow | None, length: int | None) -> Finding | None:
    """What is wrong with a resource, as far as that shows without reading the file."""
    path = row.path if row else None
    if row is None or path is None or length is None:
        return Finding("missing", wanted.loc, path)
    if wanted.length not in (None, length):
        return Finding("length", wanted.loc, path, f"{length} bytes, not {wanted.length}")
    if row.have is not None and row.have.length not in (None, length):
        return Finding("length", wanted.loc, path, f"{length} bytes, not {row.have.length}")
    if checker(wanted.hash) is None and compared(wanted, row.have) is False:
        have = row.have.lastmod if row.have else None
        return Finding("older", wanted.loc, path, f"of {have}, not {wanted.lastmod}")
    return None


async def audit(
    url: str,
    directory: Path,
    *,
    token: Token | None = None,
    sample: int | None = None,
    network: Network | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Audit:
    """Look at every resource, or at a random sample of so many; `progress` is called with how many
    of how many were looked at."""
    with State(directory, is_writer=False) as copy:
        disk = Disk(directory)
        try:
            async with (
                Web(token, url, network=network) as web,
                _source_now(url, web, copy) as now,
            ):
                return await _compared(now, copy, disk, sample, progress)
        finally:
            disk.close()


async def _compared(
    now: Now, copy: State, disk: Disk, sample: int | None, progress: Callable[[int, int], None]
) -> Audit:
    found = Audit(
        selection=now.baseline.selection,
        listed=now.baseline.listed,
        sample=sample,
        skipped=now.skipped,
    )
    is_read_whole = not now.skipped
    query = "SELECT loc FROM resource WHERE json_extract(wanted, '$.change') IS NOT 'deleted'"
    found.resources = now.state.database.execute(f"SELECT count(*) FROM ({query})").fetchone()[0]  # noqa: S608
    if sample is not None:
        query += f" ORDER BY random() LIMIT {min(sample, found.resources)}"
    wanted_in_all = found.resources if sample is None else min(sample, found.resources)
    unknown: list[tuple[SourceResource, StateRow]] = []
    for (loc,) in now.state.database.execute(query):
        wanted, row = now.state.row(loc), copy.row(loc)
        assert wanted is not None  # noqa: S101
        with _noting(found, f"the file of {loc}"):
            is_right = await _check(found, wanted.wanted, row, disk)
            if is_right and row and _is_unknown(wanted.wanted, row.have):
                unknown.append((wanted.wanted, row))
        progress(found.checked, wanted_in_all)
        if len(unknown) >= ASKED_AT_ONCE:
            await _ask(found, now.web, disk, unknown)
        await asyncio.sleep(0)  # a mirror may run beside it
    await _ask(found, now.web, disk, unknown)
    if sample is None:
        if is_read_whole:  # else what was not read may name the rest
            await _find_extra(found, now, copy, disk)
        await _find_strangers(found, copy, disk)
    return found


@contextmanager
def _noting(found: Audit, what: str) -> Iterator[None]:
    """A file that may not be read is named in `skipped`; the audit goes on."""
    try:
        yield
    except OSError as error:
        _skip(found, what, error)


def _skip(found: Audit, what: str, error: OSError) -> None:
    found.skipped.append(f"cannot read {what}: {error.strerror}")


def _is_unknown(wanted: SourceResource, have: Have | None) -> bool:
    """Whether only the server can say that the copy has what the Source has."""
    return not digests(wanted.hash) and compared(wanted, have) is None


async def _ask(
    found: Audit, web: Web, disk: Disk, unknown: list[tuple[SourceResource, StateRow]]
) -> None:
    """Whether the server still has what is in these files."""
    await asyncio.gather(*(_ask_one(found, web, disk, *each) for each in unknown))
    unknown.clear()


async def _ask_one(
    found: Audit, web: Web, disk: Disk, wanted: SourceResource, row: StateRow
) -> None:
    assert row.path is not None  # noqa: S101 - it was looked at
    have, now = row.have or Have(), hashlib.sha256()
    try:
        with disk.open_file(row.path) as file:
            condition = condition_of(have)
            async with web.ask(wanted.loc, headers=condition) as answer:
                check_status(wanted.loc, answer, condition)
                async for piece in answer.pieces():
                    now.update(piece)
            held = await asyncio.to_thread(_digest, file, hashlib.sha256)
    except Unchanged:
        return
    except (Rejected, TryAgain) as error:
        found.skipped.append(error.detail)
        return
    except OSError as error:
        _skip(found, f"the file of {wanted.loc}", error)
        return
    if now.hexdigest() != held:
        detail = "the server has another one, though the lists do not say that it has changed"
        found.findings.append(Finding("hash", wanted.loc, row.path, detail))


async def _check(found: Audit, wanted: SourceResource, row: StateRow | None, disk: Disk) -> bool:
    """Whether a resource is right, as far as that shows."""
    status = disk.status(row.path) if row and row.path else None
    finding = judged(wanted, row, status.st_size if status else None)
    if finding is None and (checking := checker(wanted.hash)) and row and row.path:
        with disk.open_file(row.path) as file:
            digest = await asyncio.to_thread(_digest, file, lambda: checking[1])
        found.by_hash += 1
        if digest != checking[2]:
            detail = f"{checking[0]} is {digest}, not {checking[2]}"
            finding = Finding("hash", wanted.loc, row.path, detail)
    found.checked += 1
    if finding is not None:
        found.findings.append(finding)
    return finding is None


def _digest(file: Any, digest: Callable[[], Any]) -> str:
    return hashlib.file_digest(file, digest).hexdigest()


async def _find_extra(found: Audit, now: Now, copy: State, disk: Disk) -> None:
    """Files of resources that the Source calls deleted, or leaves out and does not have.

    What a list only leaves out is asked for: its pages may have moved while they were read.
    """
    detail, missing = "the Source does not have it", dict[str, str]()
    for row in copy.rows():
        await asyncio.sleep(0)
        there = now.state.row(row.loc)
        is_there = there is not None and not there.wanted.is_deleted
        if row.path is None or (is_there and copy.has_name(row)):
            continue
        with _noting(found, f"the file of {row.loc}"):
            if not disk.status(row.path):
                continue
            if there is None:
                missing[row.loc] = row.path
            else:
                found.findings.append(Finding("extra", row.loc, row.path, detail))
    gone, unknown = list[str](), list[str]()
    async with aclosing(probe_locs(now.web, missing)) as asked:
        async for loc, result in asked:
            if result.is_gone:
                gone.append(loc)
            elif not result.is_there:
                unknown.append(result.why)
    found.findings += [Finding("extra", loc, missing[loc], detail) for loc in sorted(gone)]
    if unknown:
        found.skipped.append(kept_back(len(unknown), unknown[0]))


async def _find_strangers(found: Audit, copy: State, disk: Disk) -> None:
    """Files of the directory that belong to no resource."""
    for path in _files(found, disk.root):
        await asyncio.sleep(0)
        known = copy.database.execute(
            "SELECT path FROM place WHERE key = ? AND is_file", (key_of(path),)
        ).fetchone()
        is_ours = known is not None and known[0] == path
        if not is_ours and not disk.is_on_its_way(path):
            found.findings.append(Finding("extra", None, path, "no resource is stored there"))


def _files(found: Audit, root: Path) -> Iterator[str]:
    """All files in the directory of the copy.

    A folder that may not be read, or is another mirror, is named in `skipped`.
    """

    def skip(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a running mirror removes what is empty
            _skip(found, f"the folder {error.filename}", error)

    for folder, folders, names in os.walk(root, onerror=skip):
        if folder == str(root):
            folders[:] = [each for each in folders if not each.startswith(OURS)]
            names = [each for each in names if not each.startswith(OURS)]  # noqa: PLW2901
        elif FILE in names:
            found.skipped.append(f"the folder {folder} is another mirror: move it out of {root}")
            folders.clear()
            continue
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


@asynccontextmanager
async def _source_now(url: str, web: Web, copy: State) -> AsyncIterator[Now]:
    events: list[Event] = []

    with (
        tempfile.TemporaryDirectory(prefix="rsnotify-audit-") as folder,
        State(Path(folder)) as state,
    ):
        await _read_now(web, url, copy, state, events.append)
        (baseline,) = (each for each in events if each.event == "baseline")
        yield Now(web, state, baseline, [each.problem for each in events if each.problem])


async def _read_now(web: Web, url: str, copy: State, state: State, report: Report) -> None:
    source = await found_at(url, partial(discover, web, url), copy.known_addresses)
    known = copy.fact("source")
    if known not in (None, source.url):
        raise InvalidSettings(
            f"{copy.directory} is the mirror of {known}, not of {source.url}: give its address"
        )
    options, packages = Options(selection=copy.selection), RemotePackages(web)
    planner = Planner(
        *(url, web, state, options), packages=packages, report=report, wake=lambda: None
    )
    await planner.prepare(source)
    await planner.bring_up_to_date()


def check_may_repair(directory: Path) -> None:
    """Before the long look: see that a repair can write, and that no mirror is at work."""
    with State(directory, is_writer=False):
        pass
    with State(directory):
        pass


async def repair(
    url: str,
    directory: Path,
    found: Audit,
    *,
    token: Token | None = None,
    report: Report | None = None,
    max_delete: float = MAX_DELETE,
    network: Network | None = None,
) -> bool:
    """Fetch what is missing or wrong and remove what is not at the Source.

    It removes at most `max_delete` percent of the copy's resources.
    """
    with State(directory, is_writer=False) as state:
        selection = state.selection
        maps = msgspec.json.decode(state.fact("maps") or "[]", type=tuple[Map, ...])
    options = Options(selection=selection, maps=maps, max_delete=max_delete, network=network)
    for each in found.findings:
        log.debug("to repair: %s: %s %s", each.kind, each.loc or each.path, each.detail)
    async with AsyncMirror(url, directory, options, token=token, report=report) as mirror:
        mirror.repair(
            [each.loc for each in found.findings if each.loc and each.kind != "extra"],
            [each.path for each in found.findings if each.loc is None and each.path],
        )
        return await mirror.once()


# From within a mirror that runs -----------------------------------------------------------------

TICK_SECONDS = 0.5
AGAIN_SECONDS = 600.0  # where the Source could not be read whole


async def keep_verified(mirror: AsyncMirror, seconds: float) -> None:
    """Audit the copy of a running mirror so often, and repair it; until cancelled.

    The first audit follows the baseline; a mirror that was stopped goes on where it was.
    """
    tried: float | None = None
    has_caught_up = False
    while True:
        has_caught_up = has_caught_up or mirror.has_caught_up
        if has_caught_up and time() >= due_at(mirror.verified_at, tried, seconds):
            await _verify_and_say(mirror)
            tried = time()
        await asyncio.sleep(TICK_SECONDS)


def due_at(verified: float | None, tried: float | None, seconds: float) -> float:
    """When the next audit is due, after the last whole one, and the last that was tried."""
    after_whole = 0.0 if verified is None else verified + seconds
    after_tried = 0.0 if tried is None else tried + min(seconds, AGAIN_SECONDS)
    return max(after_whole, after_tried)


async def _verify_and_say(mirror: AsyncMirror) -> None:
    """What cannot be read is said, and ends nothing."""
    try:
        found = await verify(mirror)
    except (Rejected, TryAgain) as error:
        found = Audit(skipped=[error.detail])
    except (InvalidSettings, OSError) as error:
        found = Audit(skipped=[str(error)])
    for each in found.findings:
        log.warning("verified: %s: %s %s", each.kind, each.loc or each.path, each.detail)
    mirror.say_verified(
        *(found.checked, len(found.repaired), len(found.findings)),
        problem=found.skipped[0] if found.skipped else None,
    )


async def verify(mirror: AsyncMirror) -> Audit:
    """Audit the copy of a running mirror, and let its workers fetch what is missing or wrong.

    Nothing is removed: what is not at the Source is only named. What the mirror is at work on, or
    has heard of since the audit has read the lists, is not judged.
    """
    directory, generation = mirror.state.directory, mirror.state.generation
    with State(directory, is_writer=False) as copy:
        disk = Disk(directory)
        try:
            async with _source_now(mirror.url, mirror.web, copy) as now:
                found = await _compared(now, copy, disk, None, lambda *_: None)
                found.findings = [
                    each for each in found.findings if is_settled(each, mirror.state, now.state)
                ]
                wrong = [each for each in found.findings if each.loc and each.kind != "extra"]
                rows = [now.state.row(each.loc) for each in wrong if each.loc]
        finally:
            disk.close()
    may_plan = generation == mirror.state.generation  # else its own lists are newer than these
    mirror.ask_again([row.wanted for row in rows if row is not None], may_plan=may_plan)
    for each in wrong:
        await _worked_on(mirror.state, each.loc or "")
    found.repaired = [each for each in wrong if each.loc and mirror.state.is_done(each.loc)]
    found.findings = [each for each in found.findings if each not in found.repaired]
    return found


async def _worked_on(state: State, loc: str) -> None:
    while True:
        if not state.is_under_way(loc):
            return
        await asyncio.sleep(TICK_SECONDS)


def is_settled(finding: Finding, mirrored: State, now: State) -> bool:
    """Whether the mirror has nothing to do with it that would explain the finding."""
    if finding.loc is None:
        return finding.path is not None and not mirrored.has_place(finding.path)
    row, there = mirrored.row(finding.loc), now.row(finding.loc)
    if there is not None and _is_after(there.wanted.position, mirrored.cursor):
        return False  # the mirror has yet to hear of it
    if row is None:  # never heard of, or deleted after the lists were read
        is_gone = _is_after(mirrored.gone_at(finding.loc), now.cursor)
        return finding.kind != "extra" and not is_gone
    return mirrored.is_done(finding.loc) and not _is_after(row.wanted.position, now.cursor)


def _is_after(position: int | None, cursor: int | None) -> bool:
    return None not in (position, cursor) and (position or 0) > (cursor or 0)
