"""A hub over its HTTP API: `sets`, `tokens`, `subscriptions`, `status`."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
import typer
from typer import Argument, Option

from rsnotify.cli.options import Commands, Json, Yes, check_choice
from rsnotify.cli.output import counted, print_done, print_fields, print_json, print_table, size
from rsnotify.cli.target import HERE, Hub, Search, SetName, SetNames, asked, path_of_set
from rsnotify.cli.terminal import echo
from rsnotify.errors import InvalidSettings, Rejected, TryAgain

commands = Commands()

# --- sets ----------------------------------------------------------------------------------------

sets = Commands(no_args_is_help=True, help="List, add, edit and remove sets; take snapshots.")
commands.add_typer(sets, name="sets")

ADDRESSES = (
    "describedby",
    "license",
    "resourcelist",
    "resourcedump",
    "changelist",
    "changedump",
    "resourcelist_archive",
    "resourcedump_archive",
    "changelist_archive",
    "changedump_archive",
    "topic",
    "framework_topic",
    "change_notification",
    "framework_notification",
    "channel_hub",
)
"""What of a set may lie elsewhere, by the names that the HTTP API has for it."""
IIIF_TYPES = ("Manifest", "Collection")
CREATED = 201
RECORD = ("name", "private")  # of a set, as the hub answers it
SetChoice = bool | int | str | None
SWITCHES = {
    "private": "--private/--public",
    "sockets_first": "--sockets-first/--topics-first",
    "oai": "--oai/--no-oai",
    "atom": "--atom/--no-atom",
    "filters": "--filters/--no-filters",
    "tombstones": "--tombstones/--no-tombstones",
}
VALUES = {"address": "NAME=URL", "title": "TEXT", "iiif": "TYPE", "max_bytes": "BYTES"}
NOTHING: Mapping[str, Any] = {"title": "", "iiif": "none", "max_bytes": 0}
"""By which of their values such a choice is taken back."""


class SetChoices(NamedTuple):
    """What may be chosen of a set, when it is added and later."""

    private: Annotated[
        bool | None,
        Option(SWITCHES["private"], help="Whether reading needs a token; a new set is public."),
    ] = None
    address: Annotated[
        list[str] | None,
        Option(
            "--address",
            metavar=VALUES["address"],
            help="A document or channel of yours elsewhere. Repeatable.",
        ),
    ] = None
    sockets_first: Annotated[
        bool | None,
        Option(
            SWITCHES["sockets_first"],
            help="For Destinations of version 0.8: name the Capability List with ws:// first.",
        ),
    ] = None
    oai: Annotated[
        bool | None, Option(SWITCHES["oai"], help="Whether it can be harvested by OAI-PMH.")
    ] = None
    atom: Annotated[
        bool | None, Option(SWITCHES["atom"], help="Whether its changes are a feed, too.")
    ] = None
    filters: Annotated[
        bool | None,
        Option(SWITCHES["filters"], help="Whether readers may ask for types and collections."),
    ] = None
    tombstones: Annotated[
        bool | None,
        Option(SWITCHES["tombstones"], help="Whether its deletions are kept for ever."),
    ] = None
    title: Annotated[
        str | None,
        Option("--title", metavar=VALUES["title"], help="What people call it; empty: its name."),
    ] = None
    iiif: Annotated[
        str | None,
        Option(
            "--iiif",
            metavar=VALUES["iiif"],
            help="What its resources are to IIIF: Manifest, Collection; none.",
        ),
    ] = None
    max_bytes: Annotated[
        int | None,
        Option(
            "--max-bytes",
            metavar=VALUES["max_bytes"],
            min=0,
            help="What it may take of Redis; 0: half of the maxmemory of Redis, if it has one. [0]",
        ),
    ] = None

    def chosen(self) -> dict[str, SetChoice]:
        """What is named, as the HTTP API has it; None: as nothing was chosen."""
        given = self._asdict()
        chosen: dict[str, SetChoice] = {
            name: given[name] for name in SWITCHES if given[name] is not None
        }
        for each in self.address or ():
            name, url = _address(each)
            if name in chosen:
                raise typer.BadParameter(f"--address {name} is given twice")
            chosen[name] = url
        if self.iiif is not None:
            check_choice("--iiif", self.iiif, (*IIIF_TYPES, NOTHING["iiif"]))
        for name, nothing in NOTHING.items():
            if given[name] is not None:
                chosen[name] = None if given[name] == nothing else given[name]
        return chosen


NO_CHOICE = SetChoices()


def option_of(choice: str, value: SetChoice) -> str:
    """The words that choose it.

    >>> option_of("private", False), option_of("topic", "http://a.example/")
    ('--public', '--address topic=http://a.example/')
    >>> option_of("max_bytes", None), option_of("title", "My theses"), option_of("iiif", None)
    ('--max-bytes 0', "--title 'My theses'", '--iiif none')
    """
    if choice in ADDRESSES:
        return f"--address {shlex.quote(f'{choice}=' + str(value or ''))}"
    if choice in SWITCHES:
        return SWITCHES[choice].split("/")[not value]
    return f"{_option(choice)} {shlex.quote(str(value or NOTHING[choice]))}"


def _all_options() -> str:
    """Each option with what it takes, for whoever has named none."""
    values = [f"{_option(name)} {what}" for name, what in VALUES.items()]
    return ", ".join([each.replace("/", "|") for each in SWITCHES.values()] + values)


def _option(choice: str) -> str:
    return f"--{choice.replace('_', '-')}"


@sets.command("list")
def list_sets(json: Json = False, hub: Hub = HERE) -> None:
    """List the sets that the hub serves."""
    rows = hub.ask("GET", "/api/sets").objects(*RECORD)
    print_table(rows, ("name", "created", "private", "max_bytes"), json=json)


ADDRESSED = f"""With `--address` the Capability List names your own documents and channels, beside
or instead of the hub's. An empty URL takes one out again. NAME is one of {", ".join(ADDRESSES)}."""
ADD = f"""Add sets; one that is there already stays as it is.

{ADDRESSED}
"""


@sets.command("add", help=ADD)
def add_sets(
    names: SetNames, choices: SetChoices = NO_CHOICE, json: Json = False, hub: Hub = HERE
) -> None:
    chosen = choices.chosen()
    made = []
    with hub.connected() as client:
        for name in names:
            answer = asked(client, "PUT", path_of_set(name), body=msgspec.json.encode(chosen))
            record = answer.object(*RECORD)
            made.append(record | {"made": answer.status == CREATED})
            if answer.status != CREATED:
                _check_as_asked(record, chosen)
            if not json:
                echo(name)
            if not json and answer.status != CREATED:
                echo(f"{name} was there already", err=True)
    if json:
        print_json(made)


def _check_as_asked(record: Mapping[str, Any], chosen: Mapping[str, SetChoice]) -> None:
    """What is asked for of a set that is there already must be so."""
    name = record["name"]
    for choice, value in chosen.items():
        if (has := record.get(choice)) != value:
            mend = f"rsnotify sets edit {name} {option_of(choice, value)}"
            raise Rejected(
                f"{name} is there already: {_edited(choice, has)}; change it with: {mend}"
            )


EDIT = f"""Change a set's options; what is not named stays as it is.

{ADDRESSED}

`rsnotify sets edit dataset1 --address resourcelist=http://example.com/resourcelist.xml`
"""


@sets.command("edit", help=EDIT)
def edit_set(
    name: SetName, choices: SetChoices = NO_CHOICE, json: Json = False, hub: Hub = HERE
) -> None:
    if not (chosen := choices.chosen()):
        raise typer.BadParameter(f"say what to edit: {_all_options()}")
    record = hub.ask("PATCH", path_of_set(name), chosen).object(*RECORD)
    said = ", ".join(_edited(*each) for each in chosen.items())
    print_done(record, f"{name} is edited: {said}", json=json)


def _address(text: str) -> tuple[str, str | None]:
    """
    >>> _address("topic=http://a.example/?b=c"), _address("topic=")
    (('topic', 'http://a.example/?b=c'), ('topic', None))
    """
    name, equals, url = text.partition("=")
    if not equals:
        example = f"{name if name in ADDRESSES else 'resourcelist'}=http://example.com/list.xml"
        raise typer.BadParameter(f"--address {text}: write NAME=URL, such as {example}")
    check_choice("--address", name, ADDRESSES)
    return name, url or None


EDITED = {  # what is said of an option that is chosen, and of one that is not
    "private": ("private", "public"),
    "sockets_first": ("sockets first", "topics first"),
    "atom": ("with a feed", "without a feed"),
    "filters": (
        "with filters by type and collection",
        "without filters by type and collection",
    ),
    "tombstones": ("keeps its tombstones", "keeps no tombstones"),
    "oai": ("harvested by OAI-PMH", "not harvested by OAI-PMH"),
}


def _edited(option: str, value: SetChoice) -> str:
    """
    >>> _edited("private", False), _edited("topic", None), _edited("topic", "http://a.example/")
    ('public', 'no topic', 'topic http://a.example/')
    """
    if option in EDITED:
        return EDITED[option][not value]
    return f"{option} {value}" if value else f"no {option}"


@sets.command("remove")
def remove_set(
    name: SetName,
    yes: Yes = False,
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    """Remove a set and everything that was ever published to it."""
    if not yes:
        known = hub.ask("GET", path_of_set(name) + "/resources").object("resources")
        resources = counted(known["resources"], "resource")
        question = f"Remove {name}, with {resources} and all its changes?"
        typer.confirm(question, abort=True)
    hub.ask("DELETE", path_of_set(name)).nothing()
    print_done({"removed": name}, f"{name} and all its changes are removed", json=json)


@sets.command("snapshot")
def snapshot(set_name: SetName, json: Json = False, hub: Hub = HERE) -> None:
    """Take a snapshot of a set now, for its Resource List.

    Otherwise the hub takes one as often as `RSNOTIFY_RESOURCELIST_MINUTES` says.
    """
    taken = hub.ask("POST", path_of_set(set_name) + "/snapshot", adds=False).object("set")
    print_snapshot(taken, json=json)


def print_snapshot(taken: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(taken)
    elif "at" in taken:
        echo(f"{counted(taken['resources'], 'resource')} at {taken['at']}")
    else:
        echo("The snapshot is being taken; it takes its place when it is complete.", err=True)


# --- tokens --------------------------------------------------------------------------------------

tokens = Commands(no_args_is_help=True, help="Make, list and revoke tokens.")
commands.add_typer(tokens, name="tokens")

RIGHTS = ("publish", "read")
TokenId = Annotated[str, Argument(metavar="ID", help="From `tokens list`.")]


@tokens.command("list")
def list_tokens(json: Json = False, hub: Hub = HERE) -> None:
    """List the tokens: what each may do, never the token itself."""
    columns = ("id", "sets", "rights", "created", "expires", "used", "note")
    rows = hub.ask("GET", "/api/tokens").objects("id")
    print_table(rows, columns, json=json)


@tokens.command("create")
def create_token(
    names: Annotated[list[str] | None, Argument(hidden=True)] = None,
    sets: Annotated[
        list[str] | None, Option("--set", metavar="NAME", help="A set it is for. Repeatable.")
    ] = None,
    rights: Annotated[
        list[str] | None,
        Option("--right", metavar="RIGHT", help="publish or read. Repeatable. [publish]"),
    ] = None,
    note: Annotated[str, Option(help="Whose it is; shown by `tokens list`.")] = "",
    expires: Annotated[
        int | None, Option(metavar="DAYS", help="Days until it is refused. [never]")
    ] = None,
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    """Make a token for the named sets. It is shown once and kept as a hash.

    `publish` lets its holder publish to them, `read` lets it read those that are private.
    """
    _check_named(sets or [], names or [])
    for right in rights or ():
        if right == "write":  # what others call it
            raise typer.BadParameter("--right write: to write to a set is --right publish")
        check_choice("--right", right, RIGHTS)
    content: dict[str, object] = {"sets": sets, "rights": rights or ["publish"], "note": note}
    if expires is not None:
        content["expires_days"] = expires
    print_secret(_made(hub, content), json=json)


def _check_named(sets: list[str], names: list[str]) -> None:
    """The sets are named by option: a word alone could as well be meant as a name of the token."""
    if not names and not sets:
        raise typer.BadParameter("name the sets that the token is for with --set")
    if names:
        options = " ".join(f"--set {each}" for each in [*sets, *names])
        raise InvalidSettings(
            f"name the sets that the token is for with --set: rsnotify tokens create {options}"
        )


def _path_of_token(token_id: str, act: str = "") -> str:
    from rsnotify.access.tokens import id_of

    if token_id.startswith("rsn_"):
        raise InvalidSettings(f"this is a token itself: give its ID, which is {id_of(token_id)}")
    return f"/api/tokens/{quote(token_id, safe='')}{act}"


@tokens.command("rotate")
def rotate_token(
    token_id: TokenId,
    grace: Annotated[
        int | None,
        Option(metavar="SECONDS", help="Seconds that the old one is still accepted. [86400]"),
    ] = None,
    now: Annotated[
        bool, Option("--now", help="The old one has leaked: it is refused at once.")
    ] = False,
    expires: Annotated[
        int | None,
        Option("--expires", metavar="DAYS", help="Days until it is refused. [as old]"),
    ] = None,
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    """Make another token with the same rights and expiry; the old one ends after the grace."""
    if now and grace is not None:
        raise InvalidSettings("--now and --grace exclude each other: --now means no grace")
    path = _path_of_token(token_id, "/rotate")
    chosen = {"grace_seconds": 0 if now else grace, "expires_days": expires}
    content = {name: value for name, value in chosen.items() if value is not None}
    print_secret(_made(hub, content, path), json=json)


@tokens.command("revoke")
def revoke_token(token_id: TokenId, json: Json = False, hub: Hub = HERE) -> None:
    """Revoke a token; it is refused two seconds later at the latest."""
    hub.ask("DELETE", _path_of_token(token_id)).nothing()
    words = f"{token_id} is revoked; within two seconds every hub process refuses it"
    print_done({"revoked": token_id}, words, json=json)


def _made(hub: Hub, content: Mapping[str, object], path: str = "/api/tokens") -> dict[str, Any]:
    """A token that is chosen here, so that the request can be repeated."""
    from rsnotify.access.tokens import id_of, new_secret

    secret = new_secret()
    try:
        return hub.ask("POST", path, {**content, "token": secret}).object("token")
    except TryAgain as error:
        advice = f"if `tokens list` shows {id_of(secret)}, revoke it: nobody has seen the token"
        raise TryAgain(f"{error.detail}; {advice}") from None


def print_secret(token: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(token)
        return
    echo(token["token"])
    echo("Keep it: it is not shown again.", err=True)


# --- subscriptions -------------------------------------------------------------------------------

subscriptions = Commands(no_args_is_help=True, help="Manage WebSub subscriptions.")
commands.add_typer(subscriptions, name="subscriptions")

Subscription = Annotated[
    str, Argument(metavar="ID", help="From `subscriptions list`.", show_default=False)
]


def _subscription(id_: str) -> str:
    if "://" in id_:
        advice = "name its ID, which `rsnotify subscriptions list` shows"
        raise InvalidSettings(f"{id_!r} is the callback of a subscription: {advice}")
    return f"/api/subscriptions/{quote(id_, safe='')}"


@subscriptions.command("list")
def list_subscriptions(json: Json = False, hub: Hub = HERE) -> None:
    """List the subscriptions: how far each has come, and what its callback answered last."""
    columns = ("id", "set", "kind", "callback", "behind_seconds", "last_answer", "next_attempt")
    rows = hub.ask("GET", "/api/subscriptions").objects("id")
    print_table(rows, columns, json=json)


@subscriptions.command("show")
def show_subscription(subscription: Subscription, json: Json = False, hub: Hub = HERE) -> None:
    """Show all there is to know of one subscription, its secret excepted."""
    print_fields(hub.ask("GET", _subscription(subscription)).object("id"), json=json)


@subscriptions.command("remove")
def remove_subscription(subscription: Subscription, json: Json = False, hub: Hub = HERE) -> None:
    """End a subscription before its lease does; its callback is notified."""
    hub.ask("DELETE", _subscription(subscription)).nothing()
    words = f"{subscription} is removed; its callback is notified"
    print_done({"removed": subscription}, words, json=json)


@subscriptions.command("retry")
def retry_subscription(subscription: Subscription, json: Json = False, hub: Hub = HERE) -> None:
    """Make the next attempt now instead of when the schedule says."""
    hub.ask("POST", _subscription(subscription) + "/retry").nothing()
    words = f"{subscription} is tried again now; see: rsnotify subscriptions show {subscription}"
    print_done({"retried": subscription}, words, json=json)


# --- status --------------------------------------------------------------------------------------

STATUS = ("version", "base_url", "ready", "store", "following", "rates", "sets", "sets_total")


@commands.command()
def status(
    search: Search = "",
    json: Json = False,
    hub: Hub = HERE,
) -> None:
    """Show the hub at a glance: its sets and readers, its Redis, and, to the admin, WebSub.

    Exit with 0 if the process that answers can be sent requests, else with 1.
    """
    wanted = urlencode({"search": search})
    found = hub.ask("GET", f"/api/status?{wanted}").object(*STATUS)
    print_status(found, json=json)
    if not found["ready"]:
        raise typer.Exit(1)


def print_status(status: Mapping[str, Any], *, json: bool) -> None:
    """The whole at a glance."""
    if json:
        print_json(status)
        return
    for line in said_above(status):
        echo(line)
    columns = ("set", "changes", "newest", "resources", "memory", "readers", "behind")
    print_table([row_of_set(found) for found in status["sets"]], columns, json=False)
    for line in said_below(status):
        echo(line)


def said_above(status: Mapping[str, Any]) -> Iterator[str]:
    """Of the hub as a whole, before its sets."""
    state = "ready" if status["ready"] else f"not ready: {status['reason']}"
    yield f"rsnotify {status['version']} at {status['base_url']} is {state}"
    for warning in status.get("warnings", ()):
        yield f"warning: {warning}"
    store = status["store"]
    memory = _memory(store.get("bytes"), store.get("max_bytes"))
    if status["ready"]:
        redis = f"{store['text']} and uses {memory}" if memory else store["text"]
    else:
        redis = f"Redis used {memory} when it answered last" if memory else "Redis is not known"
    yield f"{redis}; {status['following']['text']}"
    each = status["rates"].items()
    rates = (f"{number:.1f} {name.removesuffix('_per_second')}" for name, number in each)
    yield f"each second: {', '.join(rates)}"


def said_below(status: Mapping[str, Any]) -> Iterator[str]:
    """What is not shown; and what the admin sees, too."""
    if more := status["sets_total"] - len(status["sets"]):
        yield f"{more} more sets are not shown: choose some with --search TEXT"
    if "websub" in status:
        yield f"WebSub: {_websub(status['websub'])}"
        yield f"processes: {', '.join(map(_process, status['processes']))}"


def row_of_set(found: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a set."""
    channels = found["channels"]
    behind = sum(channel["behind"] for channel in channels)
    longest = max(channel["behind_seconds"] for channel in channels)
    return {
        "set": found["name"],
        "changes": found["changes"],
        "newest": found["newest"],
        "resources": found["resources"],
        "memory": _memory(found.get("bytes"), found.get("max_bytes")),
        "readers": sum(sum(channel["readers"].values()) for channel in channels),
        "behind": f"{behind} ({longest:.0f} s)" if behind else 0,
    }


def _memory(taken: int | None, most: int | None) -> str | None:
    """
    >>> _memory(12_300_000, 50_000_000), _memory(900, None), _memory(None, 50_000_000)
    ('12.3 MB of 50.0 MB', '900 B', None)
    """
    if taken is None:
        return None
    return f"{size(taken)} of {size(most)}" if most else size(taken)


def _websub(websub: Mapping[str, Any]) -> str:
    places = (f"{number} {place}" for place, number in websub["subscribers"].items() if number)
    counts = ", ".join(places) or "no subscribers"
    owed = websub["oldest_undelivered_seconds"]
    return f"{counts}; the oldest undelivered change is {owed:.0f} s old" if owed else counts


def _process(process: Mapping[str, Any]) -> str:
    return process["name"] if process["ready"] else f"{process['name']} ({process['reason']})"
