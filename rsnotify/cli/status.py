"""`rsnotify status`: the hub at a glance."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from rsnotify.cli.hub_request import ask
from rsnotify.cli.target import DATA, HERE, Data, Json, Url

commands = typer.Typer()


Search = Annotated[
    str, typer.Option("--search", metavar="TEXT", help="Only sets that have this in their names.")
]


@commands.command()
def status(search: Search = "", json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """Show the hub at a glance: its sets and readers, its Redis, and, to the admin, WebSub."""
    wanted = urlencode({"search": search})
    print_status(ask(url, data, "GET", f"/api/status?{wanted}"), json=json)


def print_status(status: Mapping[str, Any], *, json: bool) -> None:
    """The whole at a glance."""
    if json:
        typer.echo(msgspec.json.encode(status))
        return
    console = Console(highlight=False, markup=False)
    state = "ready" if status["ready"] else f"not ready: {status['reason']}"
    console.print(f"rsnotify {status['version']} at {status['base_url']} is {state}")
    console.print(f"{status['store']['text']}; {status['following']['text']}")
    each = status["rates"].items()
    rates = (f"{number:.1f} {name.removesuffix('_per_second')}" for name, number in each)
    console.print(f"each second: {', '.join(rates)}")
    console.print(_sets(status["sets"]))
    if more := status["sets_total"] - len(status["sets"]):
        console.print(f"{more} more sets are not shown: choose some with --search TEXT")
    if "websub" in status:
        console.print(f"WebSub: {_websub(status['websub'])}")
        console.print(f"processes: {', '.join(map(_process, status['processes']))}")


def _sets(sets: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("set", "changes", "newest", "resources", "readers", "behind"):
        table.add_column(heading)
    for each in sets:
        channels = each["channels"]
        readers = sum(sum(channel["readers"].values()) for channel in channels)
        behind = sum(channel["behind"] for channel in channels)
        longest = max(channel["behind_seconds"] for channel in channels)
        cells = (each["changes"], each["newest"], each["resources"], readers)
        late = f"{behind} ({longest:.0f} s)" if behind else "0"
        table.add_row(each["name"], *("-" if cell is None else str(cell) for cell in cells), late)
    return table


def _websub(websub: Mapping[str, Any]) -> str:
    places = (f"{number} {place}" for place, number in websub["subscribers"].items() if number)
    counts = ", ".join(places) or "no subscribers"
    owed = websub["oldest_undelivered_seconds"]
    return f"{counts}; the oldest undelivered change is {owed:.0f} s old" if owed else counts


def _process(process: Mapping[str, Any]) -> str:
    return process["name"] if process["ready"] else f"{process['name']} ({process['reason']})"
