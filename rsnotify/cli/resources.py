"""Commands for the whole state of a set: `resources load`, `compare`, `show`."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from rsnotify.cli.options import Data, Json, SetName, Url
from rsnotify.cli.requests import ask, speak
from rsnotify.commands.target import DATA, HERE

commands = typer.Typer()
resources = typer.Typer(
    no_args_is_help=True, help="Load the whole state of a set, compare it, ask about it."
)
commands.add_typer(resources, name="resources")

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="NDJSON, JSON or Resource Lists, plain or gzip; - is stdin."
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", help="json, ndjson or xml. [by the first byte]")
]
MaxDelete = Annotated[
    float | None,
    typer.Option(min=0, max=100, help="Percent of the known resources that may be deleted. [10]"),
]
Tell = Annotated[
    bool | None,
    typer.Option("--tell/--no-tell", help="Publish the differences. [unless the set is empty]"),
]
Key = Annotated[str | None, typer.Option(help="Idempotency key, to repeat a load that broke off.")]


@resources.command("load")
def load(
    set_name: SetName,
    files: Files,
    tell: Tell = None,
    max_delete: MaxDelete = None,
    format_: Format = None,
    key: Key = None,
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Make these the resources of the set: all of them, and no others.

    The differences are published as changes. The first load of an empty set is not: it becomes a
    Resource List. Several files are sent one after the other, such as a Resource List Index and its
    parts:

    `rsnotify resources load dataset1 resourcelist-index.xml part1.xml part2.xml`
    """
    from rsnotify.commands import resources as does

    wanted = does.LoadRequest(tell, max_delete)
    body = does.body_of(files, format_)
    answer = speak(
        url, data, lambda token: does.load(url, token, set_name, body, wanted=wanted, key=key)
    )
    does.print_outcome(answer, json=json)


@resources.command("compare")
def compare(
    set_name: SetName,
    files: Files,
    max_delete: MaxDelete = None,
    format_: Format = None,
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Say what `load` would change, and change nothing."""
    from rsnotify.commands import resources as does

    wanted = does.LoadRequest(None, max_delete, dry_run=True)
    body = does.body_of(files, format_)
    answer = speak(
        url, data, lambda token: does.load(url, token, set_name, body, wanted=wanted, key=None)
    )
    does.print_outcome(answer, json=json)


@resources.command("show")
def show(
    set_name: SetName,
    loc: Annotated[str | None, typer.Argument(metavar="[LOC]", help="URI of a resource.")] = None,
    json: Json = False,
    url: Url = HERE,
    data: Data = DATA,
) -> None:
    """Show what the hub knows of one resource, or how many it knows and what is being loaded."""
    from rsnotify.commands import administer
    from rsnotify.commands.resources import path_of_resources

    query = "" if loc is None else "?" + urlencode({"loc": loc})
    administer.print_fields(ask(url, data, "GET", path_of_resources(set_name) + query), json=json)
