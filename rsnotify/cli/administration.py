"""Commands for those who run a hub: `tokens`, `subscriptions`."""

from typing import Annotated
from urllib.parse import quote

import typer

from rsnotify.cli.options import Data, Json, Url
from rsnotify.cli.requests import ask, speak
from rsnotify.commands.target import DATA, HERE

commands = typer.Typer()
tokens = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens.")
subscriptions = typer.Typer(no_args_is_help=True, help="Look after WebSub subscriptions.")
commands.add_typer(subscriptions, name="subscriptions")
commands.add_typer(tokens, name="tokens")


# tokens -------------------------------------------------------------------------------------------

TokenSets = Annotated[
    list[str], typer.Option("--set", metavar="NAME", help="A set it is for. Repeatable.")
]
Rights = Annotated[
    list[str] | None, typer.Option("--right", help="publish or read. Repeatable. [publish]")
]
Note = Annotated[str, typer.Option(help="Whose it is; shown by `tokens list`.")]
Expires = Annotated[
    int | None, typer.Option(metavar="DAYS", help="Days until it is refused. [never]")
]
NewExpiry = Annotated[
    int | None, typer.Option("--expires", metavar="DAYS", help="Days until it is refused. [as old]")
]
Grace = Annotated[
    int, typer.Option(metavar="SECONDS", help="Seconds that the old one is still accepted.")
]
TokenId = Annotated[str, typer.Argument(metavar="ID", help="From `tokens list`.")]


@tokens.command("list")
def list_tokens(json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """List the tokens: what each may do, never the token itself."""
    from rsnotify.commands import administer

    rows = ask(url, data, "GET", "/api/tokens")
    administer.print_table(
        rows, ("id", "sets", "rights", "created", "expires", "used", "note"), json=json
    )


@tokens.command("create")
def create_token(
    sets: TokenSets,
    rights: Rights = None,
    note: Note = "",
    expires: Expires = None,
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Make a token for the named sets. It is shown once and kept as a hash.

    `publish` lets its holder publish to them, `read` lets it read those that are private.
    """
    from rsnotify.commands import administer

    content: dict[str, object] = {"sets": sets, "rights": rights or ["publish"], "note": note}
    if expires is not None:
        content["expires_days"] = expires
    token = speak(url, data, lambda token: administer.create_token(url, token, content))
    administer.print_secret(token, json=json)


@tokens.command("rotate")
def rotate_token(
    token_id: TokenId,
    grace: Grace = 0,
    expires: NewExpiry = None,
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Make another token with the same rights and expiry; the old one ends after the grace."""
    from rsnotify.commands import administer

    path = f"/api/tokens/{quote(token_id, safe='')}/rotate"
    content = {"grace_seconds": grace} | ({} if expires is None else {"expires_days": expires})
    token = speak(url, data, lambda token: administer.create_token(url, token, content, path))
    administer.print_secret(token, json=json)


@tokens.command("revoke")
def revoke_token(token_id: TokenId, url: Url = HERE, data: Data = DATA) -> None:
    """Revoke a token; it is refused two seconds later at the latest."""
    ask(url, data, "DELETE", f"/api/tokens/{quote(token_id, safe='')}")
    typer.echo(f"{token_id} is revoked; within two seconds every hub process refuses it", err=True)


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
    typer.echo(f"{subscription} is removed; its callback is told", err=True)


@subscriptions.command("retry")
def retry_subscription(subscription: Subscription, url: Url = HERE, data: Data = DATA) -> None:
    """Make the next attempt now instead of when the schedule says."""
    ask(url, data, "POST", _subscription(subscription) + "/retry")
    typer.echo(
        f"{subscription} is tried again now; see: rsnotify subscriptions show {subscription}",
        err=True,
    )
