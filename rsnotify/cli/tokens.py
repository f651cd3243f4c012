"""`rsnotify tokens`: make, list, rotate and revoke tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from rsnotify.cli.hub_request import ask
from rsnotify.cli.output import print_done, print_table
from rsnotify.cli.target import DATA, HERE, Data, Json, Url
from rsnotify.errors import TryAgain
from rsnotify.registry.tokens import id_of, new_secret

commands = typer.Typer()
tokens = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens.")
commands.add_typer(tokens, name="tokens")

TokenSets = Annotated[
    list[str], typer.Option("--set", metavar="NAME", help="A set it is for. Repeatable.")
]
Rights = Annotated[
    list[str] | None,
    typer.Option("--right", metavar="RIGHT", help="publish or read. Repeatable. [publish]"),
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
    columns = ("id", "sets", "rights", "created", "expires", "used", "note")
    print_table(ask(url, data, "GET", "/api/tokens"), columns, json=json)


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
    content: dict[str, object] = {"sets": sets, "rights": rights or ["publish"], "note": note}
    if expires is not None:
        content["expires_days"] = expires
    print_secret(_made(url, data, content), json=json)


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
    path = f"/api/tokens/{quote(token_id, safe='')}/rotate"
    content = {"grace_seconds": grace} | ({} if expires is None else {"expires_days": expires})
    print_secret(_made(url, data, content, path), json=json)


@tokens.command("revoke")
def revoke_token(token_id: TokenId, json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """Revoke a token; it is refused two seconds later at the latest."""
    ask(url, data, "DELETE", f"/api/tokens/{quote(token_id, safe='')}")
    words = f"{token_id} is revoked; within two seconds every hub process refuses it"
    print_done({"revoked": token_id}, words, json=json)


def _made(
    url: str, data: Path, content: Mapping[str, object], path: str = "/api/tokens"
) -> dict[str, Any]:
    """A token that is chosen here, so that the request can be repeated."""
    secret = new_secret()
    try:
        made: dict[str, Any] = ask(url, data, "POST", path, {**content, "token": secret})
    except TryAgain as error:
        advice = f"if `tokens list` shows {id_of(secret)}, revoke it: nobody has seen the token"
        raise TryAgain(f"{error.detail}; {advice}") from None
    return made


def print_secret(token: dict[str, Any], *, json: bool) -> None:
    if json:
        typer.echo(msgspec.json.encode(token))
        return
    typer.echo(token["token"])
    typer.echo("Keep it: it is not shown again.", err=True)
