"""The options that several commands have: one by one, and in groups.

A group is a NamedTuple of options. A command takes it as one parameter; on the command line stands
each of its options.
"""

import inspect
import logging
import os
import re
import signal
from collections.abc import Callable, Coroutine, Sequence
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from msgspec.structs import replace
from typer import Option

from rsnotify.cli.root import wrong_use
from rsnotify.cli.terminal import LogLines
from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.delete_guard import MAX_DELETE, wrong_percent
from rsnotify.sd_notify import STOPPING, notify
from rsnotify_client.network import Network, parse_header
from rsnotify_client.notification import TRANSPORTS, ChannelTransport

Command = Callable[..., Coroutine[Any, Any, None] | None]
AnyCommand = TypeVar("AnyCommand", bound=Command)


class Commands(typer.Typer):
    """Commands, which may take groups of options, and may be coroutines."""

    def command(self, *words: Any, **settings: Any) -> Callable[[AnyCommand], AnyCommand]:
        register = super().command(*words, **settings)

        def registered(command: AnyCommand) -> AnyCommand:
            register(_ungrouped(command))
            return command

        return registered


def _ungrouped(command: Command) -> Callable[..., None]:
    """The command with every option of its groups in place of these."""
    signature = inspect.signature(command)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Callable[..., object]] = {}
    for parameter in signature.parameters.values():
        if hasattr(parameter.annotation, "_fields"):
            groups[parameter.name] = parameter.annotation
            parameters += inspect.signature(parameter.annotation).parameters.values()
        else:
            parameters.append(parameter)

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            options = {each: given.pop(each) for each in inspect.signature(group).parameters}
            given[name] = group(**options)
        running = command(**given)
        if running is not None:
            _until_ended(running)

    keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]
    return run


def _until_ended(work: Coroutine[Any, Any, None]) -> None:
    """Run until it ends; SIGTERM is an interruption as Ctrl-C is."""
    import asyncio

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await work

    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        notify(STOPPING)
        raise KeyboardInterrupt from None


def interrupted_by_sigterm() -> None:
    """From now on: what a command has begun to write goes away as it ends."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def check_choice(option: str, value: str, known: Sequence[str]) -> None:
    """Refuse what is none of these; name the one that is probably meant."""
    if value in known:
        return
    near = get_close_matches(value, known, n=1)
    question = f"; did you mean {near[0]}?" if near else ""
    raise typer.BadParameter(f"{option} {value}: choose one of {', '.join(known)}{question}")


def checked_key(key: str | None) -> str | None:
    if key == "":
        raise typer.BadParameter("--key is empty: is the variable set that you wrote there?")
    return key


Key = Annotated[
    str | None,
    Option(
        metavar="KEY",
        help="Idempotency key: repeated with it, nothing is done twice.",
        callback=checked_key,
    ),
]
Format = Annotated[
    str | None,
    Option(
        "--format",
        metavar="FORMAT",
        help="json, ndjson or xml. [by the file's name and first byte]",
    ),
]
Prefix = Annotated[
    list[str] | None,
    Option(metavar="URI", help="Only resources whose URI begins so. Repeatable."),
]
MediaType = Annotated[
    list[str] | None, Option("--type", help="Only of this media type, or image/*. Repeatable.")
]
InCollection = Annotated[
    list[str] | None,
    Option("--collection", metavar="URI", help="Only of this collection. Repeatable."),
]
Transport = Annotated[
    ChannelTransport | None,
    Option(
        metavar="|".join(TRANSPORTS),
        help="How the channel is read; else by the first of these that passes.",
    ),
]
Json = Annotated[bool, Option("--json", help="Print JSON, for scripts.")]
Once = Annotated[bool, Option("--once", help="Bring it up to date and end.")]
Status = Annotated[bool, Option("--status", help="Say how far it is, and end.")]
Framework = Annotated[
    bool, Option("--framework", help="The framework channel, which announces documents.")
]
Base = Annotated[str | None, Option(metavar="URL", help="Where the files are served.")]
Yes = Annotated[bool, Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, Option("--dry-run", "-n", help="Say what would be done, and do nothing.")]
Metrics = Annotated[
    Path | None,
    Option(metavar="FILE", help="Write numbers for Prometheus' textfile collector there."),
]


def _checked_percent(percent: float | None) -> float | None:
    """`nan` is within no range, and outside of none."""
    if percent is not None and wrong_percent(percent) is not None:
        raise typer.BadParameter(f"{percent:g} is no number of percent: give one from 0 to 100")
    return percent


MaxDelete = Annotated[
    float | None,
    Option(
        min=0,
        max=100,
        callback=_checked_percent,
        metavar="PERCENT",
        help="How much of what is known may be deleted at once. [10]",
    ),
]


def most_deleted(percent: float | None) -> float:
    """What `--max-delete` says, or what holds if nobody says it."""
    return MAX_DELETE if percent is None else percent


_SIZE = re.compile(r"(\d{1,15})(?: ?([kMGT])(i?))?B?", re.IGNORECASE)


def parse_size(text: str, option: str, least: int = 1) -> int:
    """
    >>> [parse_size(each, "--max-size") for each in ("65536", "500kB", "10G", "1GiB")]
    [65536, 500000, 10000000000, 1073741824]
    """
    found = _SIZE.fullmatch(text)
    count = 0
    if found is not None:
        power = "kmgt".index(found[2].lower()) + 1 if found[2] else 0
        count = int(found[1]) * (1024 if found[3] else 1000) ** power
    if count < least:
        raise InvalidSettings(
            f"{option} {text}: give a size such as 500M, 10G or 1GiB, {least:,} bytes at least"
        )
    return count


Verbose = Annotated[bool, Option("--verbose", "-v", help="Log each request.")]
LogFile = Annotated[
    Path | None, Option(metavar="FILE", help="Append a log there, with each request.")
]
Headers = Annotated[
    list[str] | None,
    Option(
        "--header",
        metavar="'[HOST ]NAME: VALUE'",
        help="Sent to the origin of URL, or to HOST. Repeatable.",
    ),
]
Timeout = Annotated[
    float | None,
    Option("--timeout", min=0.1, metavar="SECONDS", help="For an answer that does not come. [60]"),
]


class Requests(NamedTuple):
    """How others are asked, and what is logged of it."""

    header: Headers = None
    cookies: Annotated[
        Path | None, Option(metavar="FILE", help="cookies.txt, each for its own host.")
    ] = None
    rate: Annotated[
        float | None, Option(min=0.001, metavar="N", help="Requests a second, at most.")
    ] = None
    timeout: Timeout = None
    verbose: Verbose = False
    log_file: LogFile = None

    def network(self) -> Network:
        """What these options say, and what the environment says besides; logged from now on."""
        self._log()
        return replace(
            Network.of(os.environ),
            headers=tuple(map(parse_header, self.header or ())),
            cookies=None if self.cookies is None else str(self.cookies),
            rate=self.rate,
            timeout_seconds=self.timeout,
        )

    def _log(self) -> None:
        """Each request, on stderr or in a file."""
        if self.verbose or self.log_file is not None:
            for package in ("rsnotify_client", "rsnotify_mirror"):
                logging.getLogger(package).setLevel(logging.DEBUG)
        if self.log_file is None:
            return
        if not self.verbose:  # what stood on stderr before stands there still
            for handler in logging.getLogger().handlers:
                handler.setLevel(logging.INFO)
        with wrong_use(OSError, at=f"--log-file {self.log_file}"):
            file = logging.FileHandler(self.log_file)
        file.setFormatter(LogLines("%(asctime)s %(levelname)s %(message)s"))
        logging.getLogger().addHandler(file)


AS_USUAL = Requests()
