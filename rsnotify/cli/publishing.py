"""Commands for those who publish: `publish`, `relay`, `outbox`, `demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rsnotify.cli.options import Data, Json, Metrics, SetName, Url
from rsnotify.cli.requests import speak
from rsnotify.commands.target import DATA, HERE, credential_for, refusals_of

if TYPE_CHECKING:
    from rsnotify.commands.publish import PublishInput
    from rsnotify.resourcesync.notification import Kind

commands = typer.Typer()

# publish ------------------------------------------------------------------------------------------

Locs = Annotated[
    list[str] | None, typer.Argument(metavar="[LOC]...", help="URIs of changed resources.")
]
What = Annotated[str, typer.Option(help="created, updated or deleted.")]
Lastmod = Annotated[str | None, typer.Option(help="When they were last modified.")]
File = Annotated[Path | None, typer.Option("--file", "-f", help="A file of changes; - is stdin.")]
Format = Annotated[
    str | None,
    typer.Option("--format", help="json, ndjson or xml. [by the file's name and first byte]"),
]
Framework = Annotated[bool, typer.Option("--framework", help="Publish to the framework channel.")]
Capability = Annotated[
    str | None, typer.Option(help="What the changed documents are, such as resourcelist.")
]
Index = Annotated[str | None, typer.Option(metavar="URI", help="The index that they lie under.")]
Between = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="OLD NEW", help="What changed between two Resource Lists or sitemaps."),
]
MaxDelete = Annotated[
    float | None,
    typer.Option(
        min=0, max=100, metavar="PERCENT", help="How much of OLD, or of DIR, may be gone. [10]"
    ),
]
Dir = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="What changed in a folder of files.")
]
Base = Annotated[
    str | None, typer.Option(metavar="URL", help="Where the files of --dir are served.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Go on publishing what changes in --dir.")]
State = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="What of --dir is published. [DIR/.rsnotify-SET.db]"),
]
Key = Annotated[
    str | None, typer.Option(help="Idempotency key: repeated with it, nothing is stored twice.")
]

PUBLISH = """Publish changes to a set.

Name the resources as arguments, or give a file (`-` for stdin) of JSON, NDJSON or a
ResourceSync `<urlset>`. A file goes in requests of 1,000 changes, each all or nothing and
repeated until the hub has it. With `--format ndjson` lines on stdin are sent as they come.

`rsnotify publish dataset1 http://example.com/res1 --change created`

With `--framework` they are changes of capability documents, for the framework channel:

`rsnotify publish dataset1 http://example.com/resourcelist.xml --framework --capability
resourcelist`

With `--between` they are what changed between two lists, each a path or a URL of a Resource
List, a sitemap or an index of them, plain or gzip:

`rsnotify publish dataset1 --between yesterday.xml today.xml`

With `--dir` they are what changed in a folder since the last time; the first time the set gets all
of it. A file is published at the address that `--base` and its path make:

`rsnotify publish dataset1 --dir /srv/files --base https://example.com/files --watch`
"""


@commands.command(help=PUBLISH)
def publish(
    set_name: SetName,
    locs: Locs = None,
    change: What = "updated",
    lastmod: Lastmod = None,
    file: File = None,
    format_: Format = None,
    framework: Framework = False,
    capability: Capability = None,
    index: Index = None,
    between: Between = None,
    max_delete: MaxDelete = None,
    dir_: Dir = None,
    base: Base = None,
    watch: Watch = False,
    state: State = None,
    key: Key = None,
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    if [bool(locs), file is not None, between is not None, dir_ is not None].count(True) != 1:
        raise typer.BadParameter(
            "name resources, or give a --file, --between or --dir; one of them"
        )
    if dir_ is not None:
        if framework or key or json:
            raise typer.BadParameter("--dir goes without --framework, --key and --json")
        if base is None:
            raise typer.BadParameter("--dir needs --base, the address where its files are served")
        state = state or dir_ / f".rsnotify-{set_name}.db"
        _publish_folder(url, data, set_name, dir_, base, state, max_delete, watch)
        return
    if base is not None or watch or state is not None:
        raise typer.BadParameter("--base, --watch and --state go with --dir")
    if between is not None:
        if framework or key or json:
            raise typer.BadParameter("--between goes without --framework, --key and --json")
        _publish_between(url, data, set_name, between, max_delete)
        return
    if max_delete is not None:
        raise typer.BadParameter("--max-delete goes with --between and --dir")
    of_documents = {"capability": capability, "index": index}
    _check_framework(framework, of_documents, has_file=file is not None)
    fields = {"change": change, "lastmod": lastmod, **of_documents}
    source = _source(locs, file, format_, fields)
    _publish(url, data, set_name, source, is_framework=framework, key=key, json=json)


def _check_framework(framework: bool, fields: dict[str, str | None], *, has_file: bool) -> None:
    if framework and not has_file and fields["capability"] is None:
        raise typer.BadParameter("--framework needs the --capability of the changed documents")
    if not framework and any(fields.values()):
        raise typer.BadParameter("--capability and --index go with --framework")
    if has_file and any(fields.values()):
        raise typer.BadParameter("in a --file each change says its own capability and index")


def _source(
    locs: list[str] | None, file: Path | None, format_: str | None, fields: dict[str, str | None]
) -> "PublishInput":
    from rsnotify.commands.publish import of_file, of_locs

    return of_locs(locs or [], **fields) if file is None else of_file(file, format_)


def _publish(
    url: str,
    data: Path,
    set_name: str,
    source: "PublishInput",
    *,
    is_framework: bool,
    key: str | None,
    json: bool,
) -> None:
    from rich.console import Console

    from rsnotify.commands.publish import publish as publish_all

    kind: Kind = "framework" if is_framework else "change"
    console = Console(stderr=True, highlight=False)
    speak(
        url,
        data,
        lambda token: publish_all(
            url, token, set_name, source, kind=kind, key=key, json=json, console=console
        ),
    )


def _publish_between(
    url: str, data: Path, set_name: str, between: tuple[str, str], max_delete: float | None
) -> None:
    from rsnotify.commands.between import publish_between
    from rsnotify_client.deletions import MAX_DELETE

    credential = credential_for(url, data)
    with refusals_of(credential):
        allowed = MAX_DELETE if max_delete is None else max_delete
        publish_between(url, credential.token, set_name, *between, allowed)


def _publish_folder(
    url: str,
    data: Path,
    set_name: str,
    folder: Path,
    base: str,
    state: Path,
    max_delete: float | None,
    watches: bool,
) -> None:
    from rsnotify.commands.publish_folder import FolderSource, publish_folder
    from rsnotify_client.deletions import MAX_DELETE

    credential = credential_for(url, data)
    with refusals_of(credential):
        allowed = MAX_DELETE if max_delete is None else max_delete
        told = FolderSource(folder, base, state, allowed, watches)
        publish_folder(url, credential.token, set_name, told)


# relay --------------------------------------------------------------------------------------------

Database = Annotated[
    str,
    typer.Option(
        envvar="RSNOTIFY_DATABASE",
        metavar="URL",
        help="Such as postgresql://user@host/name, mysql://…, sqlite:///file.db.",
    ),
]
CreateTable = Annotated[
    bool, typer.Option("--create-table", help="Create the table first, if it is not there.")
]
PrintSql = Annotated[
    bool, typer.Option("--print-sql", help="Print what creates the table, and end.")
]

RelayStatus = Annotated[
    bool, typer.Option("--status", help="Say what waits in the table, and end.")
]
RelayBehind = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help="With --status: how long a change may wait."),
]


@commands.command()
def relay(
    database: Database,
    create_table: CreateTable = False,
    print_sql: PrintSql = False,
    status: RelayStatus = False,
    max_behind: RelayBehind = 300,
    json: Json = False,
    metrics: Metrics = None,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Publish the outbox table of an application's database.

    It runs until SIGTERM or Ctrl-C. The application writes its changes to the table
    `rsnotify_outbox` in its own transactions; see `docs/client.md`. Any number of relays may run
    for one table: one of them works.
    """
    from rsnotify.commands import relay as relaying

    if print_sql:
        relaying.print_table(database)
        return
    if status:
        raise typer.Exit(relaying.show_status(database, json=json, max_behind=max_behind))
    credential = credential_for(url, data)
    running = relaying.make(database, url, credential.token)
    if create_table:
        relaying.create_table(database, running)
    with refusals_of(credential):
        relaying.check(running)
    relaying.run(running, metrics)


# outbox -------------------------------------------------------------------------------------------

Drop = Annotated[
    str | None, typer.Option("--drop", metavar="SET", help="Drop what waits of this set.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@commands.command()
def outbox(database: Database, drop: Drop = None, yes: Yes = False, json: Json = False) -> None:
    """Show what waits in an outbox, by set, or drop what waits of one set.

    It may be an outbox table or the outbox file of a publisher, which is
    `--database sqlite:///outbox.db`.
    """
    from rsnotify.commands import outbox as outboxes

    if drop is None:
        outboxes.show(database, json=json)
    else:
        outboxes.drop(database, drop, must_ask=not yes)


# demo ---------------------------------------------------------------------------------------------

Resources = Annotated[int, typer.Option(min=1, help="How many resources it begins with.")]
Rate = Annotated[float, typer.Option(min=0, max=100_000, help="Changes a second.")]
DemoSet = Annotated[
    str, typer.Option("--set", metavar="NAME", help="A set of its own on the hub; made if new.")
]
DemoHost = Annotated[str, typer.Option(help="Address to listen on.")]
DemoPort = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
Seed = Annotated[int | None, typer.Option(help="The same seed, the same changes.")]


@commands.command()
def demo(
    resources: Resources = 100,
    rate: Rate = 1.0,
    set_name: DemoSet = "demo",
    host: DemoHost = "127.0.0.1",
    port: DemoPort = 9000,
    seed: Seed = None,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Run a Source to try things with.

    Its resources change by themselves. It serves them over HTTP, publishes every change to the
    hub, and leads whoever looks at it to the hub's documents. What an earlier demo left in the set
    is deleted; a set with other resources is refused. Once it answers it prints one line,
    `rsnotify demo ready ADDRESS`, on stdout.
    """
    from rsnotify.commands.demo import run_demo

    options = {"host": host, "port": port, "count": resources, "rate": rate, "seed": seed}
    credential = credential_for(url, data)
    with refusals_of(credential):
        run_demo(url, credential.token, set_name, **options)  # type: ignore[arg-type]
