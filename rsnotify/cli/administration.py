"""Commands for those who run a hub: `sets`, `snapshot`, `tokens`, `subscriptions`."""

from typing import Annotated
from urllib.parse import quote

import typer

from rsnotify.cli.options import Data, Json, SetName, Url
from rsnotify.cli.requests import ask, speak
from rsnotify.commands.target import DATA, HERE

commands = typer.Typer()
sets = typer.Typer(no_args_is_help=True, help="List, add, edit and remove sets of resources.")
tokens = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens.")
subscriptions = typer.Typer(no_args_is_help=True, help="Look after WebSub subscriptions.")
commands.add_typer(sets, name="sets")
commands.add_typer(subscriptions, name="subscriptions")
commands.add_typer(tokens, name="tokens")


def _done(what: str) -> None:
    typer.echo(what, err=True)


# sets ---------------------------------------------------------------------------------------------

IsPrivate = Annotated[
    bool | None,
    typer.Option("--private/--public", help="Whether reading needs a token. [public]"),
]
MakePrivate = Annotated[
    bool | None, typer.Option("--private/--public", help="Whether reading needs a token.")
]
DescribedBy = Annotated[
    str | None, typer.Option(metavar="URL", help="A document that describes the set.")
]
Topic = Annotated[
    str | None, typer.Option(metavar="URL", help="What you call the change channel: its topic.")
]
FrameworkTopic = Annotated[
    str | None, typer.Option(metavar="URL", help="What you call the framework channel.")
]
ResourceList = Annotated[
    str | None, typer.Option(metavar="URL", help="Your own Resource List, not the hub's.")
]
ResourceDump = Annotated[str | None, typer.Option(metavar="URL", help="Your own Resource Dump.")]
ChangeList = Annotated[
    str | None, typer.Option(metavar="URL", help="Your own Change List, not the hub's.")
]
SocketsFirst = Annotated[
    bool | None,
    typer.Option(
        "--sockets-first/--topics-first",
        help="For Destinations of version 0.8: name the Capability List with ws:// first.",
    ),
]
ChangeDump = Annotated[str | None, typer.Option(metavar="URL", help="Your own Change Dump.")]
ResourceListArchive = Annotated[
    str | None, typer.Option(metavar="URL", help="Your own Resource List Archive.")
]
ResourceDumpArchive = Annotated[
    str | None, typer.Option(metavar="URL", help="Your own Resource Dump Archive.")
]
ChangeListArchive = Annotated[
    str | None, typer.Option(metavar="URL", help="Your own Change List Archive, not the hub's.")
]
ChangeDumpArchive = Annotated[
    str | None, typer.Option(metavar="URL", help="Your own Change Dump Archive.")
]
ChangeNotification = Annotated[
    str | None, typer.Option(metavar="URL", help="A change channel of yours elsewhere.")
]
FrameworkNotification = Annotated[
    str | None, typer.Option(metavar="URL", help="A framework channel of yours elsewhere.")
]
ChannelHub = Annotated[
    str | None, typer.Option(metavar="URL", help="The WebSub hub of your channels elsewhere.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def _set(name: str) -> str:
    return f"/api/sets/{quote(name, safe='')}"


@sets.command("list")
def list_sets(json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """List the sets that the hub serves."""
    from rsnotify.commands import administer

    rows = ask(url, data, "GET", "/api/sets")
    administer.print_table(rows, ("name", "created", "private"), json=json)


@sets.command("add")
def add_set(name: SetName, private: IsPrivate = None, url: Url = HERE, data: Data = DATA) -> None:
    """Add a set; a set that is there already stays as it is."""
    from rsnotify.commands import administer

    remark = speak(url, data, lambda token: administer.add_set(url, token, _set(name), private))
    typer.echo(name)
    if remark:
        _done(remark)


@sets.command("edit")
def edit_set(
    name: SetName,
    private: MakePrivate = None,
    describedby: DescribedBy = None,
    topic: Topic = None,
    framework_topic: FrameworkTopic = None,
    resource_list: ResourceList = None,
    resource_dump: ResourceDump = None,
    change_list: ChangeList = None,
    change_dump: ChangeDump = None,
    resource_list_archive: ResourceListArchive = None,
    resource_dump_archive: ResourceDumpArchive = None,
    change_list_archive: ChangeListArchive = None,
    change_dump_archive: ChangeDumpArchive = None,
    change_notification: ChangeNotification = None,
    framework_notification: FrameworkNotification = None,
    channel_hub: ChannelHub = None,
    sockets_first: SocketsFirst = None,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Change a set's options; what is not named stays as it is.

    The Capability List names your own documents and channels beside or instead of the hub's. An
    empty URL takes one out again.
    """
    addresses = {
        "describedby": describedby,
        "topic": topic,
        "framework_topic": framework_topic,
        "resourcelist": resource_list,
        "resourcedump": resource_dump,
        "changelist": change_list,
        "changedump": change_dump,
        "resourcelist_archive": resource_list_archive,
        "resourcedump_archive": resource_dump_archive,
        "changelist_archive": change_list_archive,
        "changedump_archive": change_dump_archive,
        "change_notification": change_notification,
        "framework_notification": framework_notification,
        "channel_hub": channel_hub,
    }
    given = {option: text for option, text in addresses.items() if text is not None}
    chosen: dict[str, object] = {option: text or None for option, text in given.items()}
    switches = {"private": private, "sockets_first": sockets_first}
    chosen |= {option: choice for option, choice in switches.items() if choice is not None}
    if not chosen:
        raise typer.BadParameter(
            "say what to edit: --private or --public, or one of the addresses that "
            "`rsnotify sets edit --help` lists"
        )
    ask(url, data, "PATCH", _set(name), chosen)
    _done(f"{name} is edited: {', '.join(chosen)}")


@sets.command("remove")
def remove_set(name: SetName, yes: Yes = False, url: Url = HERE, data: Data = DATA) -> None:
    """Remove a set and everything that was ever published to it."""
    if not yes:
        typer.confirm(f"Remove {name} and all its changes for ever?", abort=True)
    ask(url, data, "DELETE", _set(name))
    _done(f"{name} and all its changes are removed")


@commands.command()
def snapshot(set_name: SetName, json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """Take a snapshot of a set now, for its Resource List.

    Otherwise the hub takes one as often as `RSNOTIFY_RESOURCELIST_MINUTES` says.
    """
    from rsnotify.commands import administer

    taken = ask(url, data, "POST", _set(set_name) + "/snapshot")
    administer.print_snapshot(taken, json=json)


# tokens -------------------------------------------------------------------------------------------

TokenSets = Annotated[
    list[str], typer.Option("--set", metavar="NAME", help="A set it is for. Repeatable.")
]
Rights = Annotated[
    list[str] | None, typer.Option("--right", help="publish or read. Repeatable. [publish]")
]
Note = Annotated[str, typer.Option(help="Whose it is; shown by `tokens list`.")]
TokenId = Annotated[str, typer.Argument(metavar="ID", help="From `tokens list`.")]


@tokens.command("list")
def list_tokens(json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """List the tokens: what each may do, never the token itself."""
    from rsnotify.commands import administer

    rows = ask(url, data, "GET", "/api/tokens")
    administer.print_table(rows, ("id", "sets", "rights", "created", "note"), json=json)


@tokens.command("create")
def create_token(
    sets: TokenSets,
    rights: Rights = None,
    note: Note = "",
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Make a token for the named sets. It is shown once and kept as a hash.

    `publish` lets its holder publish to them, `read` lets it read those that are private.
    """
    from rsnotify.commands import administer

    content = {"sets": sets, "rights": rights or ["publish"], "note": note}
    token = speak(url, data, lambda token: administer.create_token(url, token, content))
    administer.print_secret(token, json=json)


@tokens.command("revoke")
def revoke_token(token_id: TokenId, url: Url = HERE, data: Data = DATA) -> None:
    """Revoke a token; it is refused two seconds later at the latest."""
    ask(url, data, "DELETE", f"/api/tokens/{quote(token_id, safe='')}")
    _done(f"{token_id} is revoked; within two seconds every hub process refuses it")


# subscriptions ------------------------------------------------------------------------------------

Subscription = Annotated[
    str, typer.Argument(metavar="ID", help="From `subscriptions list`.", show_default=False)
]


def _subscription(id_: str) -> str:
    return f"/api/subscriptions/{quote(id_, safe='')}"


@subscriptions.command("list")
def list_subscriptions(json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """List the subscriptions: how far each has come, and what its callback answered last."""
    from rsnotify.commands import administer

    rows = ask(url, data, "GET", "/api/subscriptions")
    columns = ("id", "set", "kind", "callback", "behind_seconds", "last_answer", "next_attempt")
    administer.print_table(rows, columns, json=json)


@subscriptions.command("show")
def show_subscription(
    subscription: Subscription, json: Json = False, url: Url = HERE, data: Data = DATA
) -> None:
    """Show all there is to know of one subscription, its secret excepted."""
    from rsnotify.commands import administer

    administer.print_fields(ask(url, data, "GET", _subscription(subscription)), json=json)


@subscriptions.command("remove")
def remove_subscription(subscription: Subscription, url: Url = HERE, data: Data = DATA) -> None:
    """End a subscription before its lease does; its callback is told."""
    ask(url, data, "DELETE", _subscription(subscription))
    _done(f"{subscription} is removed; its callback is told")


@subscriptions.command("retry")
def retry_subscription(subscription: Subscription, url: Url = HERE, data: Data = DATA) -> None:
    """Make the next attempt now instead of when the schedule says."""
    ask(url, data, "POST", _subscription(subscription) + "/retry")
    _done(f"{subscription} is tried again now; see: rsnotify subscriptions show {subscription}")
