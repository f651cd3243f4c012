"""The command line: one short function per verb, each a thin edge over the hub or the client.

Rules that hold here: results go to stdout, everything else to stderr; exit status 1 means that the
hub or a document said no, 2 that the command or a setting is wrong. Each command loads what it
needs and no more: a client's command neither waits for the server's packages nor needs them.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import typer
from rich.console import Console
from rich.markup import escape

from rsnotify import __version__
from rsnotify.commands.target import DATA, HERE, checked_address, credential_for, refusals_of
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.notification import Kind

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A push-notification hub for ResourceSync (ANSI/NISO Z39.99).",
)
sets_app = typer.Typer(no_args_is_help=True, help="List, add, edit and remove sets of resources.")
tokens_app = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens.")
subscriptions_app = typer.Typer(no_args_is_help=True, help="Look after WebSub subscriptions.")
app.add_typer(sets_app, name="sets")
app.add_typer(subscriptions_app, name="subscriptions")
app.add_typer(tokens_app, name="tokens")

stderr = Console(stderr=True, highlight=False)

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="RSNOTIFY_URL", help="Where the hub is.", callback=checked_address
    ),
]
Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="RSNOTIFY_DATA",
        help="The hub's data directory, for its admin token, on the hub's own machine. "
        "Elsewhere set `RSNOTIFY_TOKEN`.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
SetName = Annotated[str, typer.Argument(metavar="SET", help="Name of the set of resources.")]
Subscription = Annotated[
    str, typer.Argument(metavar="ID", help="From `subscriptions list`.", show_default=False)
]

Answer = TypeVar("Answer")


def main() -> None:
    """Run the command line; every error on purpose becomes one message and an exit status.

    A reader of stdout that has gone away is no error to speak of: Typer ends quietly by itself.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        app()
    except (Rejected, TryAgain) as error:
        _complain(error.detail, *(fault["message"] for fault in getattr(error, "faults", ())[1:]))
        sys.exit(1)
    except InvalidSettings as error:
        _complain(*error.problems)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        sys.exit(130)


def _complain(*problems: str) -> None:
    for problem in problems:
        stderr.print(f"[bold red]error:[/] {escape(problem)}", soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rsnotify {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [127.0.0.1]")] = None,
    port: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Port; 0 takes a free one. [8080]")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Directory of the embedded Redis and the admin token. [data]"),
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(help="A Redis of your own, such as redis://localhost:6379/0. [embedded]"),
    ] = None,
    public_url: Annotated[
        str | None, typer.Option(help="The address others reach the hub by.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME", help="A set to serve; made if new. Repeatable."),
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Hub processes sharing the port. [1]")
    ] = None,
    share_port: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the hub until SIGTERM or Ctrl-C.

    Without `--redis` the hub starts a Redis of its own, in the data directory, that keeps every
    acknowledged change on disk. Every other setting is an environment variable `RSNOTIFY_…`; an
    option given here wins over its variable. Once the hub answers it prints one line,
    `rsnotify ready ADDRESS`, on stdout.
    """
    from rsnotify.commands import welcome
    from rsnotify.serving.log_filter import RepeatedWarningFilter
    from rsnotify.serving.serve import run
    from rsnotify.serving.workers import end_with_parent
    from rsnotify.settings import Settings

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", force=True)
    logging.getLogger().handlers[0].addFilter(RepeatedWarningFilter())
    settings = Settings.from_env(
        os.environ,
        host=host,
        port=port,
        data=data,
        redis_url=redis,
        public_url=public_url,
        workers=workers,
    )
    names = sets or []

    def ready(address: str) -> None:
        typer.echo(f"rsnotify ready {address}")
        if not share_port:
            welcome.print_next_steps(stderr, address, settings, names)

    if share_port:
        end_with_parent()
    run(settings, names, ready, share_port=share_port)


@app.command()
def publish(
    set_name: SetName,
    locs: Annotated[
        list[str] | None, typer.Argument(metavar="[LOC]...", help="URIs of changed resources.")
    ] = None,
    change: Annotated[str, typer.Option(help="created, updated or deleted.")] = "updated",
    lastmod: Annotated[str | None, typer.Option(help="When they were last modified.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A file of changes; - is stdin.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="json, ndjson or xml. [by the file's name and first byte]"),
    ] = None,
    framework: Annotated[
        bool, typer.Option("--framework", help="Publish to the framework channel.")
    ] = False,
    capability: Annotated[
        str | None,
        typer.Option(help="What the changed documents are, such as resourcelist."),
    ] = None,
    index: Annotated[
        str | None, typer.Option(metavar="URI", help="The index that they lie under.")
    ] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="OLD NEW", help="What changed between two Resource Lists or sitemaps."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: repeated with it, nothing is stored twice.")
    ] = None,
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Publish changes to a set.

    Name the resources as arguments, or give a file (`-` for stdin) of JSON, NDJSON or a
    ResourceSync `<urlset>`. A file goes in requests of 1,000 changes, each all or nothing and
    repeated until the hub has it; NDJSON on stdin is sent as it comes.

    `rsnotify publish dataset1 http://example.com/res1 --change created`

    With `--framework` they are changes of capability documents, for the framework channel:

    `rsnotify publish dataset1 http://example.com/resourcelist.xml --framework --capability
    resourcelist`

    With `--between` they are what changed between two lists, each a path or a URL of a Resource
    List, a sitemap or an index of them, plain or gzip:

    `rsnotify publish dataset1 --between yesterday.xml today.xml`
    """
    from rsnotify.commands.publish import of_file, of_locs
    from rsnotify.commands.publish import publish as publish_all

    locs = locs or []
    if [bool(locs), file is not None, between is not None].count(True) != 1:
        raise typer.BadParameter("name resources, or give a --file, or --between; one of them")
    if between is not None:
        from rsnotify.commands.between import publish_between

        if framework or key or json:
            raise typer.BadParameter("--between goes without --framework, --key and --json")
        credential = credential_for(url, data)
        with refusals_of(credential):
            publish_between(url, credential.token, set_name, *between)
        return
    if framework and locs and capability is None:
        raise typer.BadParameter("--framework needs the --capability of the changed documents")
    if not framework and (capability or index):
        raise typer.BadParameter("--capability and --index go with --framework")
    if file is not None and (capability or index):
        raise typer.BadParameter("in a --file each change says its own capability and index")
    fields = {"change": change, "lastmod": lastmod, "capability": capability, "index": index}
    source = of_locs(locs, **fields) if file is None else of_file(file, format_)
    kind: Kind = "framework" if framework else "change"
    _speak(
        *(url, data),
        lambda token: publish_all(
            *(url, token, set_name, source), kind=kind, key=key, json=json, console=stderr
        ),
    )


@app.command()
def relay(
    database: Annotated[
        str,
        typer.Option(
            envvar="RSNOTIFY_DATABASE",
            metavar="URL",
            help="Such as postgresql://user@host/name, mysql://…, sqlite:///file.db.",
        ),
    ],
    create_table: Annotated[
        bool, typer.Option("--create-table", help="Create the table first, if it is not there.")
    ] = False,
    print_sql: Annotated[
        bool, typer.Option("--print-sql", help="Print what creates the table, and end.")
    ] = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Publish the outbox table of an application's database, until SIGTERM or Ctrl-C.

    The application writes its changes to the table `rsnotify_outbox` in its own transactions; see
    `docs/client.md`. Any number of relays may run for one table: one of them works.
    """
    from rsnotify.commands import relay as relaying

    if print_sql:
        relaying.print_table(database)
        return
    running = relaying.make(database, url, credential_for(url, data).token)
    if create_table:
        relaying.create_table(database, running)
    relaying.run(running)


@app.command()
def subscribe(
    set_name: SetName,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="T", help="First all that came after T.")
    ] = None,
    cursor: Annotated[
        Path | None,
        typer.Option(help="File that keeps the cursor: begin there, and keep it up to date."),
    ] = None,
    framework: Annotated[
        bool, typer.Option("--framework", help="Follow the framework channel.")
    ] = False,
    xml: Annotated[bool, typer.Option("--xml", help="Print the payloads.")] = False,
    json: Json = False,
    count: Annotated[int, typer.Option(min=0, help="End after so many changes; 0 never ends.")] = 0,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Follow a set's channel and print each change as a line.

    A lost connection is resumed from the last notification, so no change is missed or printed
    twice. Each line has the change's datetime, what happened, and the resource.
    """
    from rsnotify.commands.subscribe import as_json, as_lines, as_xml
    from rsnotify.commands.subscribe import subscribe as follow

    show = as_xml if xml else as_json if json else as_lines
    kind: Kind = "framework" if framework else "change"
    _speak(
        *(url, data),
        lambda token: follow(
            *(url, token, set_name, kind),
            after=from_,
            cursor_file=cursor,
            show=show,
            count=count,
        ),
    )


@app.command()
def mirror(
    source: Annotated[
        str, typer.Argument(metavar="URL", help="A site, a set, a channel: any address of it.")
    ],
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Where the copy is.", show_default=False)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Bring it up to date and end.")] = False,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Only resources whose URI it matches. Repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="All but these. Repeatable.")
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="PREFIX=DIR", help="Where in DIR they go. Repeatable."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Fetch so many at once.")] = 16,
    per_host: Annotated[int, typer.Option(min=1, max=256, help="From one host so many.")] = 8,
    keep_deleted: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Move deleted files there.")
    ] = None,
    exec_: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Run after each change; {path}, {loc} in it."),
    ] = None,
    stdout: Annotated[
        bool, typer.Option("--stdout", help="Keep no files: print each change as a JSON line.")
    ] = False,
    lag: Annotated[bool, typer.Option("--lag", help="Print the time from change to file.")] = False,
    json: Json = False,
) -> None:
    """Make a copy of a Source and keep it in step for ever, or once.

    `rsnotify mirror https://example.org/ copy`

    Every resource is verified by length and digest before it takes its place. Interrupted, it goes
    on where it was. Exit status: 0 up to date, 1 something failed, 2 wrong use, 130 interrupted.
    """
    from rsnotify.commands.mirror import Shown, options_of, run_mirror

    if directory is None and not stdout:
        raise typer.BadParameter("say where the copy shall be: a DIR, or --stdout for no files")
    if stdout and (exec_ or keep_deleted or json):
        raise typer.BadParameter("--stdout goes without --exec, --keep-deleted and --json")
    words = (select or [], exclude or [], map_ or [], jobs, per_host, keep_deleted)
    options = options_of(*words, has_files=not stdout)
    shown = Shown(json=json, once=once, lag=lag, quiet=stdout)
    raise typer.Exit(
        run_mirror(
            *(source, directory, options),
            token=os.environ.get("RSNOTIFY_TOKEN"),
            once=once,
            command=exec_,
            shown=shown,
        )
    )


@app.command()
def audit(
    source: Annotated[str, typer.Argument(metavar="URL", help="The Source's address.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the copy is.")],
    repair: Annotated[bool, typer.Option("--repair", help="Mend what is found.")] = False,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Look at N resources, by chance.")
    ] = None,
    json: Json = False,
) -> None:
    """Hold a copy against its Source as it is now: by length, digest and time.

    Exit status: 0 in sync, 1 out of sync, 2 wrong use, 130 interrupted.
    """
    from rsnotify.commands.audit import run_audit

    token = os.environ.get("RSNOTIFY_TOKEN")
    options = {"token": token, "sample": sample, "mend": repair, "json": json}
    raise typer.Exit(run_audit(source, directory, **options))  # type: ignore[arg-type]


@app.command()
def demo(
    resources: Annotated[int, typer.Option(min=1, help="How many resources it begins with.")] = 100,
    rate: Annotated[float, typer.Option(min=0, help="Changes a second.")] = 1.0,
    set_name: Annotated[
        str, typer.Option("--set", metavar="NAME", help="The set on the hub; made if new.")
    ] = "dataset1",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 9000,
    seed: Annotated[int | None, typer.Option(help="The same seed, the same changes.")] = None,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Run a Source to try things with: its resources change by themselves.

    It serves them over HTTP, publishes every change to the hub, and leads whoever looks at it to
    the hub's documents. What an earlier run left in the set is deleted. Once it answers it prints
    one line, `rsnotify demo ready ADDRESS`, on stdout.
    """
    from rsnotify.commands.demo import run_demo

    options = {"host": host, "port": port, "count": resources, "rate": rate, "seed": seed}
    credential = credential_for(url, data)
    with refusals_of(credential):
        run_demo(url, credential.token, set_name, **options)  # type: ignore[arg-type]


@app.command()
def validate(
    document: Annotated[str, typer.Argument(metavar="FILE|URL", help="The document; - is stdin.")],
    json: Json = False,
) -> None:
    """Hold a ResourceSync document against the specifications.

    Prints each violation with its clause, its place and how to mend it, and exits 1; a valid
    document exits 0. Knows every document of the core 1.1, the Archives, and both notifications.
    """
    from rsnotify.commands.validate import print_violations, violations_of

    violations = asyncio.run(violations_of(document))
    print_violations(document, violations, json=json)
    raise typer.Exit(1 if violations else 0)


@sets_app.command("list")
def list_sets(json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """List the sets that the hub serves."""
    from rsnotify.commands import administer

    rows = _ask(url, data, "GET", "/api/sets")
    administer.print_table(rows, ("name", "created", "private"), json=json)


@sets_app.command("add")
def add_set(
    name: SetName,
    private: Annotated[
        bool | None,
        typer.Option("--private/--public", help="Whether reading needs a token. [public]"),
    ] = None,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Add a set; a set that is there already stays as it is."""
    from rsnotify.commands import administer

    remark = _speak(*(url, data), lambda token: administer.add_set(url, token, _set(name), private))
    typer.echo(name)
    if remark:
        _done(remark)


@sets_app.command("edit")
def edit_set(
    name: SetName,
    private: Annotated[
        bool | None, typer.Option("--private/--public", help="Whether reading needs a token.")
    ] = None,
    describedby: Annotated[
        str | None, typer.Option(metavar="URL", help="A document that describes the set.")
    ] = None,
    resource_list: Annotated[
        str | None, typer.Option(metavar="URL", help="Your own Resource List, not the hub's.")
    ] = None,
    resource_dump: Annotated[
        str | None, typer.Option(metavar="URL", help="Your own Resource Dump.")
    ] = None,
    change_dump: Annotated[
        str | None, typer.Option(metavar="URL", help="Your own Change Dump.")
    ] = None,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Change a set's options; what is not named stays as it is.

    The Capability List names your own documents beside the hub's. An empty URL takes one out again.
    """
    addresses = {
        "describedby": describedby,
        "resourcelist": resource_list,
        "resourcedump": resource_dump,
        "changedump": change_dump,
    }
    chosen: dict[str, object] = {
        option: address or None for option, address in addresses.items() if address is not None
    }
    if private is not None:
        chosen["private"] = private
    if not chosen:
        raise typer.BadParameter(
            "say what to edit: --private or --public, --describedby, --resource-list, "
            "--resource-dump, --change-dump"
        )
    _ask(url, data, "PATCH", _set(name), chosen)
    _done(f"{name} is edited: {', '.join(chosen)}")


@sets_app.command("remove")
def remove_set(
    name: SetName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Remove a set and everything that was ever published to it."""
    if not yes:
        typer.confirm(f"Remove {name} and all its changes for ever?", abort=True)
    _ask(url, data, "DELETE", _set(name))
    _done(f"{name} and all its changes are removed")


@app.command()
def snapshot(set_name: SetName, json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """Take a snapshot of a set now: its Resource List is up to date then.

    Otherwise the hub takes one as often as `RSNOTIFY_RESOURCELIST_MINUTES` says.
    """
    from rsnotify.commands import administer

    taken = _ask(url, data, "POST", _set(set_name) + "/snapshot")
    administer.print_snapshot(taken, json=json)


@tokens_app.command("list")
def list_tokens(json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """List the tokens: what each may do, never the token itself."""
    from rsnotify.commands import administer

    rows = _ask(url, data, "GET", "/api/tokens")
    administer.print_table(rows, ("id", "sets", "rights", "created", "note"), json=json)


@tokens_app.command("create")
def create_token(
    sets: Annotated[
        list[str], typer.Option("--set", metavar="NAME", help="A set it is for. Repeatable.")
    ],
    rights: Annotated[
        list[str] | None,
        typer.Option("--right", help="publish or read. Repeatable. [publish]"),
    ] = None,
    note: Annotated[str, typer.Option(help="Whose it is; shown by `tokens list`.")] = "",
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Make a token for the named sets. It is shown once and kept as a hash.

    `publish` lets its holder publish to them, `read` lets it read those that are private.
    """
    from rsnotify.commands import administer

    content = {"sets": sets, "rights": rights or ["publish"], "note": note}
    token = _speak(url, data, lambda token: administer.create_token(url, token, content))
    administer.print_secret(token, json=json)


@tokens_app.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="From `tokens list`.")],
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Revoke a token; it is refused two seconds later at the latest."""
    _ask(url, data, "DELETE", f"/api/tokens/{quote(token_id, safe='')}")
    _done(f"{token_id} is revoked; within two seconds every hub process refuses it")


@subscriptions_app.command("list")
def list_subscriptions(json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """List the subscriptions: how far each has come, and what its callback answered last."""
    from rsnotify.commands import administer

    rows = _ask(url, data, "GET", "/api/subscriptions")
    columns = ("id", "set", "kind", "callback", "behind_seconds", "last_answer", "next_attempt")
    administer.print_table(rows, columns, json=json)


@subscriptions_app.command("show")
def show_subscription(
    subscription: Subscription, json: Json = False, url: Url = HERE, data: Data = DATA
) -> None:
    """Show all there is to know of one subscription, its secret excepted."""
    from rsnotify.commands import administer

    administer.print_fields(_ask(url, data, "GET", _subscription(subscription)), json=json)


@subscriptions_app.command("remove")
def remove_subscription(subscription: Subscription, url: Url = HERE, data: Data = DATA) -> None:
    """End a subscription before its lease does; its callback is told."""
    _ask(url, data, "DELETE", _subscription(subscription))
    _done(f"{subscription} is removed; its callback is told")


@subscriptions_app.command("retry")
def retry_subscription(subscription: Subscription, url: Url = HERE, data: Data = DATA) -> None:
    """Make the next attempt now instead of when the schedule says."""
    _ask(url, data, "POST", _subscription(subscription) + "/retry")
    _done(f"{subscription} is tried again now; see: rsnotify subscriptions show {subscription}")


def _done(what: str) -> None:
    typer.echo(what, err=True)


def _set(name: str) -> str:
    return f"/api/sets/{quote(name, safe='')}"


def _subscription(id_: str) -> str:
    return f"/api/subscriptions/{quote(id_, safe='')}"


def _ask(url: str, data: Path, method: str, path: str, content: object | None = None) -> Any:
    from rsnotify.commands import administer

    return _speak(url, data, lambda token: administer.ask(url, token, method, path, content))


def _speak(
    url: str, data: Path, work: Callable[[str | None], Coroutine[Any, Any, Answer]]
) -> Answer:
    """Do what speaks to the hub, with the token for it."""
    credential = credential_for(url, data)
    with refusals_of(credential):
        return asyncio.run(work(credential.token))
