"""`rsnotify dump`: ZIPs of a copy and the documents that name them; and how the hub announces them.

A run that was killed between the two is found by the next one: what was announced last stands
beside the dumps, and each generation has an idempotency key of its own.
"""

from pathlib import Path
from shlex import quote
from typing import Annotated

import msgspec
import typer
from typer import Argument, Option

from rsnotify.cli.options import Base, Commands, Json, parse_size
from rsnotify.cli.output import WorkPace, counted, print_json, progress, size
from rsnotify.cli.target import HERE, Hub, asked, checked_name, path_of_set
from rsnotify.cli.terminal import echo
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.tables import FRAMEWORK_CHANGES
from rsnotify_client.hub import HubClient
from rsnotify_client.loading import position
from rsnotify_client.network import without_login
from rsnotify_mirror.dumping.changes import make_window
from rsnotify_mirror.dumping.dump import KEEP, Dumped, DumpOptions, PublishedAs, make
from rsnotify_mirror.dumping.dump_documents import GENERATIONS, Generation
from rsnotify_mirror.dumping.generations import PUBLISHED, SCHEMES, Bucket, DumpFolder
from rsnotify_mirror.dumping.parts import MAX_ENTRIES, Limits
from rsnotify_mirror.paths import OURS
from rsnotify_mirror.republication import PublishedPlace
from rsnotify_mirror.state import LOADED, PLACE, State

commands = Commands()

PACKAGE = "1GiB"
LEAST_BYTES = 64 * 1024
BESIDE = f"{OURS}-dumps"  # in the copy: what is in a bucket, for the next dump
ANNOUNCED = ".announced.json"


@commands.command()
def dump(
    copy: Annotated[
        Path,
        Argument(metavar="COPY", help="What `rsnotify mirror` keeps.", show_default=False),
    ],
    out: Annotated[
        str,
        Argument(
            metavar="OUT",
            help="The folder that is served, or s3://bucket/prefix; with --from a ZIP.",
            show_default=False,
        ),
    ],
    base: Base = None,
    max_bytes: Annotated[
        str, Option(metavar="SIZE", help="How long a package may be, such as 500MiB.")
    ] = PACKAGE,
    max_entries: Annotated[
        int,
        Option("--max-entries", min=1, max=MAX_ENTRIES, help="How many resources it may hold."),
    ] = MAX_ENTRIES,
    changes: Annotated[
        bool,
        Option("--changes", help="Make Change Dumps, too: what changed since the last run."),
    ] = False,
    keep: Annotated[
        int, Option(min=1, max=1000, help="Keep so many dumps, the newest included.")
    ] = KEEP,
    without_failed: Annotated[
        bool,
        Option("--without-failed", help="Leave out what the mirror could not fetch; name it."),
    ] = False,
    capability_list: Annotated[
        str | None,
        Option(metavar="URL", help="Of the dumps' set. [that of the mirror's Source]"),
    ] = None,
    announce: Annotated[
        str | None,
        Option(metavar="SET", help="Let the hub's set name the dumps, and announce them."),
    ] = None,
    after: Annotated[
        str | None,
        Option("--from", metavar="TIME", help="Only what has changed since, as one ZIP."),
    ] = None,
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    """Make a Resource Dump of a copy, and Change Dumps.

    `rsnotify dump copy /var/www/dumps --base https://dumps.example/ --changes`

    What has not changed since the last dump is not packed again. Exit status: 0 made, or nothing
    has changed; 1 the copy is not whole, or something was left out; 2 wrong use.
    """
    if after is not None:
        of_dumps = {
            "--base": base,
            "--changes": changes,
            "--keep": keep != KEEP,
            "--max-bytes": max_bytes != PACKAGE,
            "--max-entries": max_entries != MAX_ENTRIES,
            "--without-failed": without_failed,
            "--capability-list": capability_list,
            "--announce": announce,
            "--json": json,
        }
        if given := [name for name, is_given in of_dumps.items() if is_given]:
            raise typer.BadParameter(f"--from makes one ZIP, and goes without {', '.join(given)}")
        _window(copy, Path(out), after)
        return
    if base is None or not base.startswith(("http://", "https://")):
        raise typer.BadParameter("--base: give the address at which OUT is served, as https://…/")
    options = DumpOptions(
        base=base.rstrip("/") + "/",
        limits=Limits(parse_size(max_bytes, "--max-bytes", LEAST_BYTES), max_entries),
        makes_change_dumps=changes,
        keep=keep,
        leaves_out=without_failed,
        up=capability_list,
    )
    announce = announce and checked_name(announce)
    if announce is not None and (place := _published_to(copy, announce, hub.url)) is not None:
        with hub.connected() as client:
            at = Position.parse(position(client, announce))
        own = f"{place.hub}/{announce}/capabilitylist.xml"
        published = PublishedAs(place.base, at)
        options = options._replace(up=capability_list or own, published=published)
    bucket = Bucket(out) if out.startswith(SCHEMES) else None
    with DumpFolder(Path(out) if bucket is None else copy / BESIDE) as folder:
        with progress(f"packing {copy}") as show:
            dumped = make(copy, folder, options, WorkPace(show, "resources packed:"))
        if bucket is not None:
            with progress(f"sending to {out}") as show:
                bucket.publish(folder.directory, WorkPace(show, f"sent to {out}:", size))
        if announce is not None:
            with hub.connected() as client:
                _announce(folder, announce, client)
    _say_dumped(dumped, folder, json=json)
    raise typer.Exit(1 if dumped.problems else 0)


def _published_to(copy: Path, set_name: str, hub: str) -> PublishedPlace | None:
    """Where the copy is published, if that is this set of this hub: its dumps go with it."""
    with State(copy, is_writer=False) as state:
        place = state.fact(PLACE)
        found = None if place is None else PublishedPlace.parse(place)
        hub = without_login(hub.rstrip("/"))
        is_it = found is not None and (found.hub, found.set_name) == (hub, set_name)
        if is_it and state.fact(LOADED) is None:
            raise Rejected(f"{set_name} has not had all of {copy}: run rsnotify mirror first")
    return found if is_it else None


def _window(copy: Path, zipped: Path, after: str) -> None:
    if zipped.suffix != ".zip":
        raise typer.BadParameter(f"{zipped}: with --from, name the ZIP to be made")
    try:
        moment = Position.parse(after)
    except ValueError as error:
        raise typer.BadParameter(f"--from: {error}") from None
    with progress(f"packing what has changed since {moment}") as show:
        count = make_window(copy, zipped, moment, WorkPace(show, "changes packed:"))
    echo(f"{zipped}: {counted(count, 'change')} since {moment}", err=True)


def _say_dumped(dumped: Dumped, folder: DumpFolder, *, json: bool) -> None:
    made, newest = dumped.generation, folder.kept[-1] if folder.kept else None
    packages = newest.packages if newest else ()
    resources = sum(each.entries for each in packages)
    if json:
        found = {
            "made": made is not None,
            "at": newest and newest.at,
            "resources": resources,
            "packages": [f"{each.name}.zip" for each in packages],
            "changes": [f"{each.name}.zip" for each in (newest and newest.changes) or ()],
            "problems": dumped.problems,
        }
        print_json(found)
        return
    for problem in dumped.problems:
        echo(f"left out: {problem}", err=True)
    if not packages:
        echo("the copy has no resource: there is no Resource Dump", err=True)
        return
    if made is None:
        echo(f"nothing has changed: the dump of {newest and newest.at} stays", err=True)
        return
    new = [each for each in made.packages if each.name.startswith(made.name)]
    echo(
        f"{counted(resources, 'resource')} of {made.at} in {counted(len(made.packages), 'package')}"
        f", {len(new)} of them new",
        err=True,
    )


# Announcing -------------------------------------------------------------------------------------


def _announce(folder: DumpFolder, set_name: str, hub: HubClient) -> None:
    """Let the set name what there is, then say that it is new; once for each generation."""
    if not folder.kept:
        return
    newest, note = folder.kept[-1], folder.directory / ANNOUNCED
    announced = msgspec.json.encode({"set": set_name, "generation": newest.name})
    if note.exists() and note.read_bytes() == announced:  # half of it, of a killed run, is none
        return
    ours = {name.removesuffix(".xml"): newest.base + name for name in PUBLISHED}
    named = {name: loc for name, loc in ours.items() if (folder.directory / f"{name}.xml").exists()}
    sets = asked(hub, "GET", f"/api/sets?name={set_name}").objects("name")
    record = next((each for each in sets if each["name"] == set_name), {})
    known = {name: record.get(name.replace("-", "_")) for name in ours}
    other = {
        name: named.get(name) for name in ours if (known[name] == ours[name]) != (name in named)
    }
    if other:  # the hub announces what a set names newly, or no more
        _name_in_set(hub, set_name, other)
    for capability, loc in named.items() - other.items():
        change = _change(newest, capability, loc)
        key = f"dump-{newest.name}-{capability}"
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        path = f"{path_of_set(set_name)}/framework"
        asked(hub, "POST", path, body=msgspec.json.encode([change]), headers=headers)
    note.write_bytes(announced)


def _name_in_set(hub: HubClient, set_name: str, named: dict[str, str | None]) -> None:
    options = {name.replace("-", "_"): loc for name, loc in named.items()}
    try:
        asked(hub, "PATCH", path_of_set(set_name), body=msgspec.json.encode(options))
    except Rejected as error:
        if error.status != 403:
            raise
        words = " ".join(f"--address {name}={quote(loc or '')}" for name, loc in named.items())
        advice = f"let its administrator run once: rsnotify sets edit {set_name} {words}"
        raise InvalidSettings(f"{error.detail}: {advice}") from None


def _change(newest: Generation, capability: str, loc: str) -> dict[str, str]:
    """Resource Dumps are made anew, whatever else there is grows; a part stands for its index."""
    change = FRAMEWORK_CHANGES[capability][0 if capability == "resourcedump" else 1]
    announced = {"loc": loc, "change": change, "capability": capability}
    if capability == "resourcedump" and newest.is_in_parts:
        part = f"{newest.base}{GENERATIONS}/{newest.name}/resourcedump-1.xml"
        return announced | {"loc": part, "index": loc}
    return announced
