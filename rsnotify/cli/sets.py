"""Commands for sets: `sets`, `snapshot`."""

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any

import msgspec
import typer

from rsnotify.cli.hub_request import ask, connected
from rsnotify.cli.output import counted, print_done, print_table
from rsnotify.cli.target import DATA, HERE, Data, Json, SetName, Url, path_of_set
from rsnotify.errors import Rejected

commands = typer.Typer()
sets = typer.Typer(no_args_is_help=True, help="List, add, edit and remove sets of resources.")
commands.add_typer(sets, name="sets")

IsPrivate = Annotated[
    bool | None, typer.Option("--private/--public", help="Whether reading needs a token. [public]")
]
MakePrivate = Annotated[
    bool | None, typer.Option("--private/--public", help="Whether reading needs a token.")
]
SocketsFirst = Annotated[
    bool | None,
    typer.Option(
        "--sockets-first/--topics-first",
        help="For Destinations of version 0.8: name the Capability List with ws:// first.",
    ),
]
ADDRESSES = {
    "describedby": ("--describedby", "A document that describes the set."),
    "topic": ("--topic", "What you call the change channel: its topic."),
    "framework_topic": ("--framework-topic", "What you call the framework channel."),
    "resourcelist": ("--resource-list", "Your own Resource List, not the hub's."),
    "resourcedump": ("--resource-dump", "Your own Resource Dump."),
    "changelist": ("--change-list", "Your own Change List, not the hub's."),
    "changedump": ("--change-dump", "Your own Change Dump."),
    "resourcelist_archive": ("--resource-list-archive", "Your own Resource List Archive."),
    "resourcedump_archive": ("--resource-dump-archive", "Your own Resource Dump Archive."),
    "changelist_archive": ("--change-list-archive", "Your own Change List Archive, not the hub's."),
    "changedump_archive": ("--change-dump-archive", "Your own Change Dump Archive."),
    "change_notification": ("--change-notification", "A change channel of yours elsewhere."),
    "framework_notification": (
        "--framework-notification",
        "A framework channel of yours elsewhere.",
    ),
    "channel_hub": ("--channel-hub", "The WebSub hub of your channels elsewhere."),
}
"""For each option of a set that is an address: its name on the command line, its help."""
CREATED = 201
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@sets.command("list")
def list_sets(json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """List the sets that the hub serves."""
    rows = ask(url, data, "GET", "/api/sets")
    print_table(rows, ("name", "created", "private"), json=json)


@sets.command("add")
def add_set(
    name: SetName, private: IsPrivate = None, json: Json = False, url: Url = HERE, data: Data = DATA
) -> None:
    """Add a set; a set that is there already stays as it is."""
    chosen = {} if private is None else {"private": private}
    with connected(url, data) as hub:
        status, record = hub.answer("PUT", path_of_set(name), body=msgspec.json.encode(chosen))
    made = status == CREATED
    if not made and private not in (None, record["private"]):
        is_, option = ("private", "--public") if record["private"] else ("public", "--private")
        raise Rejected(
            f"{name} is there already and is {is_}; "
            f"change it with: rsnotify sets edit {name} {option}"
        )
    if json:
        typer.echo(msgspec.json.encode(record | {"made": made}))
        return
    typer.echo(name)
    if not made:
        typer.echo(f"{name} was there already", err=True)


def _with_addresses(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each address, where it says `**addresses`."""
    signature = inspect.signature(command)
    *own, json, url, data, _ = signature.parameters.values()
    addresses = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(option, metavar="URL", help=text)],
        )
        for name, (option, text) in ADDRESSES.items()
    ]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*own, *addresses, json, url, data]
    )
    return command


@sets.command("edit")
@_with_addresses
def edit_set(
    name: SetName,
    private: MakePrivate = None,
    sockets_first: SocketsFirst = None,
    *,
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
    **addresses: str | None,
) -> None:
    """Change a set's options; what is not named stays as it is.

    The Capability List names your own documents and channels beside or instead of the hub's. An
    empty URL takes one out again.
    """
    options = {"private": private, "sockets_first": sockets_first} | addresses
    chosen = {
        name: None if value == "" else value for name, value in options.items() if value is not None
    }
    if not chosen:
        raise typer.BadParameter(
            "say what to edit: --private or --public, or one of the addresses that "
            "`rsnotify sets edit --help` lists"
        )
    record = ask(url, data, "PATCH", path_of_set(name), chosen)
    print_done(record, f"{name} is edited: {', '.join(chosen)}", json=json)


@sets.command("remove")
def remove_set(
    name: SetName, yes: Yes = False, json: Json = False, url: Url = HERE, data: Data = DATA
) -> None:
    """Remove a set and everything that was ever published to it."""
    if not yes:
        known = ask(url, data, "GET", path_of_set(name) + "/resources")["resources"]
        question = f"Remove {name}, with {counted(known, 'resource')} and all its changes?"
        typer.confirm(question, abort=True)
    ask(url, data, "DELETE", path_of_set(name))
    print_done({"removed": name}, f"{name} and all its changes are removed", json=json)


@commands.command()
def snapshot(set_name: SetName, json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """Take a snapshot of a set now, for its Resource List.

    Otherwise the hub takes one as often as `RSNOTIFY_RESOURCELIST_MINUTES` says.
    """
    taken = ask(url, data, "POST", path_of_set(set_name) + "/snapshot")
    print_snapshot(taken, json=json)


def print_snapshot(taken: dict[str, Any], *, json: bool) -> None:
    if json:
        typer.echo(msgspec.json.encode(taken))
    elif "at" in taken:
        typer.echo(f"{taken['resources']} resources at {taken['at']}")
    else:
        typer.echo("The snapshot is being taken; it takes its place when it is complete.", err=True)
