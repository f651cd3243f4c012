"""Commands for those who read: `subscribe`, `mirror`, `audit`, `validate`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rsnotify.cli.options import Data, Json, Metrics, SetName, Url
from rsnotify.cli.requests import speak
from rsnotify.commands.target import DATA, HERE, token_of_environment
from rsnotify.errors import InvalidSettings

if TYPE_CHECKING:
    from rsnotify.resourcesync.notification import Kind

commands = typer.Typer()

# subscribe ----------------------------------------------------------------------------------------

From = Annotated[
    str | None, typer.Option("--from", metavar="T", help="First all that came after T.")
]
Cursor = Annotated[
    Path | None,
    typer.Option(help="File that keeps the cursor: begin there, and keep it up to date."),
]
Framework = Annotated[bool, typer.Option("--framework", help="Follow the framework channel.")]
Xml = Annotated[bool, typer.Option("--xml", help="Print the payloads.")]
Count = Annotated[int, typer.Option(min=0, help="End after so many changes; 0 never ends.")]


@commands.command()
def subscribe(
    set_name: SetName,
    from_: From = None,
    cursor: Cursor = None,
    framework: Framework = False,
    xml: Xml = False,
    json: Json = False,
    count: Count = 0,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Follow a set's channel and print each change as a line.

    A lost connection is resumed from the last notification, so no change is missed or printed
    twice. Each line has the change's datetime, what happened, and the resource.
    """
    from rsnotify.commands import subscribe as following

    show = following.as_xml if xml else following.as_json if json else following.as_lines
    kind: Kind = "framework" if framework else "change"
    speak(
        url,
        data,
        lambda token: following.subscribe(
            url, token, set_name, kind, after=from_, cursor_file=cursor, show=show, count=count
        ),
    )


# mirror -------------------------------------------------------------------------------------------

MirrorPlaces = Annotated[
    list[str],
    typer.Argument(
        metavar="URL... [DIR]",
        help="A site, a set, a channel: any address of a Source; then where the copy is.",
        show_default=False,
    ),
]
AllSets = Annotated[
    bool, typer.Option("--all-sets", help="Copy each set of the Source, into DIR/SET.")
]
Once = Annotated[bool, typer.Option("--once", help="Bring it up to date and end.")]
Select = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Only resources whose URI it matches. Repeatable."),
]
Exclude = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="All but these. Repeatable.")
]
MaxDelete = Annotated[
    float,
    typer.Option(
        min=0,
        max=100,
        metavar="PERCENT",
        help="How much of the copy a list that leaves it out, or another --select, may remove.",
    ),
]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="PREFIX=DIR", help="Where in DIR they go. Repeatable."),
]
Jobs = Annotated[int, typer.Option(min=1, max=256, help="Fetch so many at once.")]
PerHost = Annotated[int, typer.Option(min=1, max=256, help="From one host so many.")]
KeepDeleted = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Move deleted files there, outside the copy."),
]
Exec = Annotated[
    str | None,
    typer.Option("--exec", metavar="CMD", help="Run after each change; {path}, {loc} in it."),
]
Stdout = Annotated[
    bool, typer.Option("--stdout", help="Keep no files: print each change as a JSON line.")
]
Lag = Annotated[bool, typer.Option("--lag", help="Print the time from change to file.")]

SameSite = Annotated[
    bool, typer.Option("--same-site", help="Ask for nothing at other hosts than the Source's.")
]
Status = Annotated[bool, typer.Option("--status", help="Say how far the copy in DIR is, and end.")]
MaxBehind = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help="With --status: how long ago it may be in step."),
]

DryRun = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Say what would be done, and do nothing.")
]

# Of both mirror and audit
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="'[HOST ]NAME: VALUE'",
        help="Sent to the origin of URL, or to HOST. Repeatable.",
    ),
]
Cookies = Annotated[
    Path | None, typer.Option(metavar="FILE", help="cookies.txt, each for its own host.")
]
Rate = Annotated[
    float | None, typer.Option(min=0.001, metavar="N", help="Requests a second, at most.")
]
Timeout = Annotated[
    float | None,
    typer.Option(min=0.1, metavar="SECONDS", help="For an answer that does not come. [60]"),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log each request.")]
LogFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Append a log there, with each request.")
]

MIRROR = """Copy a Source and keep the copy in step, for ever or once.

`rsnotify mirror https://example.org/ copy`

Every resource is verified by length and digest before it takes its place. Interrupted, it goes
on where it was. Exit status: 0 up to date, 1 something failed, 2 wrong use, 130 interrupted.
"""


@commands.command(help=MIRROR)
def mirror(
    places: MirrorPlaces,
    once: Once = False,
    select: Select = None,
    exclude: Exclude = None,
    max_delete: MaxDelete = 10,
    map_: Map = None,
    jobs: Jobs = 16,
    per_host: PerHost = 8,
    keep_deleted: KeepDeleted = None,
    exec_: Exec = None,
    stdout: Stdout = False,
    lag: Lag = False,
    json: Json = False,
    status: Status = False,
    max_behind: MaxBehind = 7200,
    metrics: Metrics = None,
    same_site: SameSite = False,
    header: Headers = None,
    cookies: Cookies = None,
    rate: Rate = None,
    timeout: Timeout = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
    all_sets: AllSets = False,
) -> None:
    from rsnotify.commands.mirror import options_of, run_mirror, run_several, show_plan, show_status
    from rsnotify.commands.mirror_shown import Shown
    from rsnotify.commands.network import log_more, network_of

    if status:
        raise typer.Exit(show_status(Path(places[-1]), json=json, max_behind=max_behind))
    sources, directory = _placed(places, all_sets=all_sets, stdout=stdout, dry_run=dry_run)
    if stdout and (exec_ or keep_deleted or json):
        raise typer.BadParameter("--stdout goes without --exec, --keep-deleted and --json")
    words = (select or [], exclude or [], map_ or [], jobs, per_host, keep_deleted)
    log_more(verbose=verbose, file=log_file)
    network = network_of(header or [], cookies, rate, timeout)
    chosen = {"max_delete": max_delete, "has_files": not stdout, "same_site": same_site}
    options = options_of(*words, network=network, **chosen)  # type: ignore[arg-type]
    if dry_run:
        where = directory or Path(os.devnull)
        raise typer.Exit(
            show_plan(sources[0], where, options, token=token_of_environment(), json=json)
        )
    shown = Shown(json=json, once=once, lag=lag, quiet=stdout)
    token = token_of_environment()
    work = {"token": token, "once": once, "command": exec_, "shown": shown, "metrics": metrics}
    if directory is not None and (all_sets or sources[1:]):
        work["all_sets"] = all_sets
        raise typer.Exit(run_several(sources, directory, options, **work))  # type: ignore[arg-type]
    raise typer.Exit(run_mirror(sources[0], directory, options, **work))  # type: ignore[arg-type]


def _placed(
    places: list[str], *, all_sets: bool, stdout: bool, dry_run: bool
) -> tuple[list[str], Path | None]:
    """The Sources, and where their copies are."""
    sources, directory = places[:-1], Path(places[-1])
    if (all_sets or sources[1:]) and (stdout or dry_run):
        option = "--stdout" if stdout else "--dry-run"
        raise typer.BadParameter(f"{option} takes one set: give one URL, without --all-sets")
    if sources:
        return sources, directory
    if not stdout or all_sets:
        raise typer.BadParameter("say where the copy shall be: a DIR, or --stdout for no files")
    return places, None


# audit --------------------------------------------------------------------------------------------

AuditSource = Annotated[str, typer.Argument(metavar="URL", help="The Source's address.")]
AuditDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="Where the copy is.")]
Repair = Annotated[bool, typer.Option("--repair", help="Mend what is found.")]
Sample = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Look at a random sample of N resources.")
]


@commands.command()
def audit(
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
    from rsnotify.commands.audit import run_audit
    from rsnotify.commands.network import log_more, network_of

    log_more(verbose=verbose, file=log_file)
    network = network_of(header or [], cookies, rate, timeout)

    token = token_of_environment()
    options = {"token": token, "sample": sample, "mend": repair, "json": json}
    words = options | {"network": network, "max_delete": max_delete}
    raise typer.Exit(run_audit(source, directory, **words))  # type: ignore[arg-type]


# validate -----------------------------------------------------------------------------------------

Documents = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE|URL]…", help="The documents; - is stdin.")
]
Site = Annotated[
    str | None, typer.Option(metavar="URL", help="Look at the whole Source that this leads to.")
]
MostDocuments = Annotated[
    int, typer.Option("--documents", min=1, help="With --site: documents at most.")
]
MostSamples = Annotated[
    int, typer.Option("--samples", min=0, help="With --site: resources to compare.")
]
MostPackages = Annotated[
    int, typer.Option("--packages", min=0, help="With --site: ZIP packages to open.")
]
Listen = Annotated[
    float, typer.Option(min=0, max=3600, help="With --site: seconds to listen to each channel.")
]


@commands.command()
def validate(
    documents: Documents = None,
    site: Site = None,
    most_documents: MostDocuments = 200,
    samples: MostSamples = 20,
    packages: MostPackages = 20,
    listen: Listen = 3,
    json: Json = False,
) -> None:
    """Hold ResourceSync documents, or a whole Source, against the specifications.

    Prints each violation with its clause, its place and how to mend it, and of several documents a
    table. Exits 0 if all are valid, 1 if one is not, 2 if one cannot be read. Knows every document
    of the core 1.1, the Archives, both notifications, of 0.8, of 0.9, and of the draft of 2013.
    With --site: discovery, all documents, packages, each channel, and some resources; exits 1 also
    if something could not be checked.
    """
    import asyncio

    from rsnotify.commands import validate as command

    if (site is None) == (not documents):
        raise InvalidSettings(["name documents, or one Source with --site"])
    if site is not None:
        from rsnotify.commands.site import run_site
        from rsnotify_mirror.inspection.checked import Bounds

        bounds = Bounds(
            documents=most_documents, samples=samples, packages=packages, listen_seconds=listen
        )
        raise typer.Exit(run_site(site, token_of_environment(), bounds, json=json))
    assert documents is not None  # noqa: S101
    if len(documents) == 1:
        found = [asyncio.run(command.judged(documents[0]))]
        command.print_one(found[0], json=json)
    else:
        found = asyncio.run(command.all_judged(documents))
        command.print_all(found, json=json)
    raise typer.Exit(command.exit_status(found))
