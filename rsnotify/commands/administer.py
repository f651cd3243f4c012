"""Sets and tokens: asked of the hub, shown as tables or JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from rsnotify.errors import Rejected, TryAgain
from rsnotify.registry.token_secret import id_of, new_secret
from rsnotify_client.connection import Connection

CREATED = 201


async def ask(
    url: str, token: str | None, method: str, path: str, content: object | None = None
) -> Any:
    """One request; an unreachable hub is told at once, not after a minute."""
    body = None if content is None else msgspec.json.encode(content)
    async with Connection(url, token, patience_seconds=5) as hub:
        return await hub.ask(method, path, body=body)


async def create_token(
    url: str, token: str | None, content: Mapping[str, object], path: str = "/api/tokens"
) -> Any:
    """Make a token that is chosen here, so that the request can be repeated."""
    secret = new_secret()
    try:
        return await ask(url, token, "POST", path, {**content, "token": secret})
    except TryAgain as error:
        mend = f"if `tokens list` shows {id_of(secret)}, revoke it: nobody has seen the token"
        raise TryAgain(f"{error.detail}; {mend}") from None


async def add_set(url: str, token: str | None, path: str, private: bool | None) -> str | None:
    """Add a set with the options that were given; what to remark on one that is there already."""
    chosen = {} if private is None else {"private": private}
    async with Connection(url, token, patience_seconds=5) as hub:
        status, record = await hub.answer("PUT", path, body=msgspec.json.encode(chosen))
    if status == CREATED:
        return None
    if private not in (None, record["private"]):
        is_, mend = ("private", "--public") if record["private"] else ("public", "--private")
        name = record["name"]
        raise Rejected(
            f"{name} is there already and is {is_}; "
            f"change it with: rsnotify sets edit {name} {mend}"
        )
    return f"{record['name']} was there already"


def print_table(rows: Sequence[dict[str, Any]], columns: Sequence[str], *, json: bool) -> None:
    if json:
        typer.echo(msgspec.json.encode(rows))
        return
    table = Table(box=box.SIMPLE_HEAD)
    least = 2
    for column in columns:
        first = column == columns[0]  # what a next command is given: never cut
        words = column.split("_")
        width = max(map(len, words + [_shown(row[column]) for row in rows if first]))
        least += width + 3
        table.add_column(" ".join(words), no_wrap=first, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*(_shown(row.get(column, "")) for column in columns))
    console = Console()
    console.width = max(console.width, least)
    console.print(table)


def print_fields(fields: dict[str, Any], *, json: bool) -> None:
    """One thing, a line for each of its fields."""
    if json:
        typer.echo(msgspec.json.encode(fields))
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        typer.echo(f"{name.replace('_', ' '):{width}}  {_shown(value)}")


def print_secret(token: dict[str, Any], *, json: bool) -> None:
    if json:
        typer.echo(msgspec.json.encode(token))
        return
    typer.echo(token["token"])
    typer.echo("Keep it: it is not shown again.", err=True)


def print_snapshot(taken: dict[str, Any], *, json: bool) -> None:
    if json:
        typer.echo(msgspec.json.encode(taken))
    elif "at" in taken:
        typer.echo(f"{taken['resources']} resources at {taken['at']}")
    else:
        typer.echo("The snapshot is being taken; it takes its place when it is complete.", err=True)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
