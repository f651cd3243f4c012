"""`rsnotify subscriptions`: list, show, end and retry WebSub subscriptions."""

from typing import Annotated
from urllib.parse import quote

import typer

from rsnotify.cli.hub_request import ask
from rsnotify.cli.output import print_done, print_fields, print_table
from rsnotify.cli.target import DATA, HERE, Data, Json, Url
from rsnotify.errors import InvalidSettings

commands = typer.Typer()
subscriptions = typer.Typer(no_args_is_help=True, help="Manage WebSub subscriptions.")
commands.add_typer(subscriptions, name="subscriptions")

Subscription = Annotated[
    str, typer.Argument(metavar="ID", help="From `subscriptions list`.", show_default=False)
]


def _subscription(id_: str) -> str:
    if "://" in id_:
        advice = "name its ID, which `rsnotify subscriptions list` shows"
        raise InvalidSettings(f"{id_!r} is the callback of a subscription: {advice}")
    return f"/api/subscriptions/{quote(id_, safe='')}"


@subscriptions.command("list")
def list_subscriptions(json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """List the subscriptions: how far each has come, and what its callback answered last."""
    rows = ask(url, data, "GET", "/api/subscriptions")
    columns = ("id", "set", "kind", "callback", "behind_seconds", "last_answer", "next_attempt")
    print_table(rows, columns, json=json)


@subscriptions.command("show")
def show_subscription(
    subscription: Subscription, json: Json = False, url: Url = HERE, data: Data = DATA
) -> None:
    """Show all there is to know of one subscription, its secret excepted."""
    print_fields(ask(url, data, "GET", _subscription(subscription)), json=json)


@subscriptions.command("remove")
def remove_subscription(
    subscription: Subscription, json: Json = False, url: Url = HERE, data: Data = DATA
) -> None:
    """End a subscription before its lease does; its callback is notified."""
    ask(url, data, "DELETE", _subscription(subscription))
    words = f"{subscription} is removed; its callback is notified"
    print_done({"removed": subscription}, words, json=json)


@subscriptions.command("retry")
def retry_subscription(
    subscription: Subscription, json: Json = False, url: Url = HERE, data: Data = DATA
) -> None:
    """Make the next attempt now instead of when the schedule says."""
    ask(url, data, "POST", _subscription(subscription) + "/retry")
    words = f"{subscription} is tried again now; see: rsnotify subscriptions show {subscription}"
    print_done({"retried": subscription}, words, json=json)
