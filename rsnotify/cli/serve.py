"""`rsnotify serve`, and what a newcomer reads once the hub runs."""

import logging
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated
from urllib.parse import quote as percent_encoded

import typer

from rsnotify.cli.target import ADMIN_FILE, checked_name
from rsnotify.process.admin_token import admin_token
from rsnotify.process.hub_process import run
from rsnotify.process.logs import FloodFilter, JsonFormat, RepeatedWarningFilter, TextFormat
from rsnotify.process.settings import WORKER, Settings
from rsnotify.process.workers import end_with_parent

log = logging.getLogger(__name__)
commands = typer.Typer()

Host = Annotated[str | None, typer.Option(help="Address to listen on. [127.0.0.1]")]
Port = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="Port; 0 takes a free one. [8080]")
]
DataDirectory = Annotated[
    Path | None, typer.Option(help="Directory of the embedded Redis and the admin token. [data]")
]
Redis = Annotated[
    str | None,
    typer.Option(help="A Redis of your own, such as redis://localhost:6379/0. [embedded]"),
]
PublicUrl = Annotated[str | None, typer.Option(help="The address others reach the hub by.")]
ServedSets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME", help="A set to serve; made if new. Repeatable."),
]
Workers = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="Hub processes sharing the port. [1]")
]
InheritedSocket = Annotated[int | None, typer.Option(hidden=True)]  # how workers are started


@commands.command()
def serve(
    host: Host = None,
    port: Port = None,
    data: DataDirectory = None,
    redis: Redis = None,
    public_url: PublicUrl = None,
    sets: ServedSets = None,
    workers: Workers = None,
    inherited_socket: InheritedSocket = None,
) -> None:
    """Run the hub until SIGTERM or Ctrl-C.

    Without `--redis` the hub starts a Redis of its own, in the data directory, that keeps every
    acknowledged change on disk. Every other setting is an environment variable `RSNOTIFY_…`; an
    option given here wins over its variable. Once the hub answers it prints one line,
    `rsnotify ready ADDRESS`, on stdout.
    """
    for name in sets or []:
        checked_name(name)
    chosen = {"host": host, "port": port, "data": data, "redis_url": redis}
    chosen |= {"public_url": public_url, "workers": workers}
    settings = Settings.from_env(os.environ, **chosen)
    _log_as(settings)
    is_worker = inherited_socket is not None
    if is_worker:
        end_with_parent()
    on_ready = _announcer(settings, sets or [], is_worker)
    run(settings, sets or [], on_ready, inherited_socket=inherited_socket)


def _log_as(settings: Settings) -> None:
    """Log to stderr as the operator wants it."""
    worker = os.environ.get(WORKER, "")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormat(worker) if settings.log == "json" else TextFormat(worker))
    handler.addFilter(RepeatedWarningFilter())
    handler.addFilter(FloodFilter())
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)


def _announcer(settings: Settings, sets: list[str], is_worker: bool) -> Callable[[str], None]:
    """Called with the hub's address once it answers: what it needs has been loaded by then."""

    def ready(address: str) -> None:
        is_for_people = sys.stderr.isatty() and settings.log != "json"
        if not is_worker and not is_for_people:
            log.info("%s", _where_the_token_is(settings))
        typer.echo(f"rsnotify ready {address}")
        if not is_worker and is_for_people:
            typer.echo(next_steps(address, settings, sets, admin_token(settings)), err=True)

    return ready


def next_steps(address: str, settings: Settings, sets: Sequence[str], token: str = "") -> str:
    """The lines to copy for a first publish and a first subscription.

    `token` opens the page; a browser sends no fragment to the hub.
    """
    command = "rsnotify" if shutil.which("rsnotify") else sys.argv[0]
    if command.endswith("__main__.py"):
        command = f"{sys.executable} -m rsnotify"
    options = _options(address, settings)
    secret = _secret(settings)
    steps = {"The hub answers at": address}
    if settings.page == "on":
        fragment = f"#token={percent_encoded(token, safe='')}" if token else ""
        steps["Try it in a browser"] = f"{address}/{fragment}"
    if not sets:
        steps["Make a set"] = f"{command} sets add dataset1{options}"
    name = sets[0] if sets else "dataset1"
    steps["Follow its channel"] = f"{command} subscribe {name}{options}"
    steps["Publish a change"] = (
        f'curl -H "Authorization: Bearer {secret}" -H "Content-Type: application/json" \\\n'
        f'      -d \'{{"loc": "http://example.com/res1", "change": "updated"}}\' \\\n'
        f"      {address}/api/sets/{name}/changes"
    )
    lines = [f"{what}:\n    {how}" for what, how in steps.items()]
    lines.insert(1, _where_the_token_is(settings))
    return "".join(f"\n  {line}\n" for line in lines)


def _options(address: str, settings: Settings) -> str:
    """The options for a hub that is not where the commands look for it."""
    elsewhere = "" if address.endswith(":8080") else f" --url {address}"
    if settings.data != Settings.data:
        elsewhere += f" --data {quote(str(settings.data))}"
    return elsewhere


def _secret(settings: Settings) -> str:
    if not settings.admin_token:
        return f"$(cat {_token_file(settings)})"
    return f"$(cat ${ADMIN_FILE})" if _variable() == ADMIN_FILE else "$RSNOTIFY_ADMIN_TOKEN"


def _variable() -> str:
    """The variable in which the operator gave the admin token."""
    return ADMIN_FILE if ADMIN_FILE in os.environ else "RSNOTIFY_ADMIN_TOKEN"


def _where_the_token_is(settings: Settings) -> str:
    if settings.admin_token:
        return f"The admin token is in {_variable()}: set it in your other terminals too"
    return f"The admin token is in {_token_file(settings)}"


def _token_file(settings: Settings) -> str:
    return quote(str(settings.data / "admin-token"))
