"""The hub that a command speaks to: the options for it, the token for it, and requests to it."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
from typer import Argument, Option

from rsnotify.cli.root import wrong_use
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.notification import wrong_name
from rsnotify_client.address import EXAMPLE, wrong_address, wrong_token
from rsnotify_client.answer import NOTHING_THERE, UNTRUSTED, NotAHub, WrongToken
from rsnotify_client.hub import HubAnswer, HubClient, patiently
from rsnotify_client.token import Token, TokenFile

DATA = Path("data")
NO_SET = re.compile(r"there is no set '([^']+)'( that .+)?")
NO_ID = re.compile(r"there is no (token|subscription) ")
LIST_SETS = "`rsnotify sets list` shows all"
VARIABLES = ("RSNOTIFY_TOKEN", "RSNOTIFY_ADMIN_TOKEN")
FILE = f"{VARIABLES[0]}_FILE"
SOURCE = "RSNOTIFY_SOURCE_TOKEN"
ADMIN_FILE = "RSNOTIFY_ADMIN_TOKEN_FILE"
ANSWER_BYTES = 64 * 1024 * 1024  # such as a list of all sets
PATIENCE_SECONDS = 5  # an unreachable hub is reported soon, not after a minute


def path_of_set(name: str) -> str:
    """The path of a set in the hub's HTTP API."""
    return f"/api/sets/{quote(name, safe='')}"


class Credential(NamedTuple):
    """A token and where it came from, for the message if the hub refuses it."""

    token: Token | None
    origin: str


NONE = Credential(None, "none was sent: set RSNOTIFY_TOKEN")


def checked_address(url: str) -> str:
    """The hub's address, or what is wrong with it."""
    wrong = wrong_address(url)
    if wrong is None and not (parts := urlsplit(url)).query and not parts.fragment:
        return url
    wrong = wrong or f"give it without {url.partition(parts.path or parts.netloc)[2]}"
    name = "RSNOTIFY_URL=" if os.environ.get("RSNOTIFY_URL") == url else "--url "
    raise InvalidSettings(f"{name}{url}: {wrong}")


def checked_name(set_name: str) -> str:
    """A name that a set can have, or what is wrong with it."""
    set_name.encode()  # what is not UTF-8 is reported as for any argument
    if "://" in set_name:
        raise InvalidSettings(f"{set_name[:80]!r} is an address: name the set, such as dataset1")
    if (wrong := wrong_name(set_name)) is not None:
        if Path(set_name[:256]).exists():
            raise InvalidSettings(f"{set_name} is a file: name the set first, such as dataset1")
        meant = set_name.lower().strip("/")
        question = "" if wrong_name(meant) else f"; did you mean {meant}?"
        raise InvalidSettings(wrong + question)
    return set_name


def token_of_environment() -> Token | None:
    """The token for a Source, which may be somebody else's: ours, never the admin's."""
    token = _checked_token(os.environ.get("RSNOTIFY_TOKEN"), "RSNOTIFY_TOKEN")
    return token or _token_in_file()


def token_of_source() -> Token | None:
    """The token for a Source where RSNOTIFY_TOKEN is the one for the hub."""
    return _checked_token(os.environ.get(SOURCE), SOURCE)


def _token_in_file() -> TokenFile | None:
    """The file that is read anew when its token has ended; it must have one now."""
    if not (file := os.environ.get(FILE)):
        return None
    if not _read_token(Path(file), FILE):
        raise InvalidSettings(f"{FILE}={file!r}: it is empty")
    return TokenFile(file)


def _checked_token(token: str | None, where: str) -> str | None:
    if token and (wrong := wrong_token(token)) is not None:
        raise InvalidSettings(f"{where} cannot be sent: {wrong}")
    return token or None


def credential_for(url: str, data: Path) -> Credential:
    """The token to speak with: ours, the admin's, or that of the hub on this machine.

    The last is not for the hubs of others: unless `--data` says so, it is shown to this machine.
    """
    for name in VARIABLES:
        if chosen := _checked_token(os.environ.get(name), name):
            return Credential(chosen, f"it is the one in {name}")
        if name == VARIABLES[0] and (in_file := _token_in_file()) is not None:
            return Credential(in_file, f"it is the one in {in_file.path}")
    if file := os.environ.get(ADMIN_FILE):
        return Credential(_read_token(Path(file), ADMIN_FILE), f"it is the one in {file}")
    if data == DATA and urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
        return NONE
    ours = data / "admin-token"
    if not ours.exists():
        advice = "set RSNOTIFY_TOKEN, or name the hub's data directory with --data"
        return Credential(None, f"none was sent, for there is no {ours}: {advice}")
    from rsnotify.process.admin_token import read_admin_token

    return Credential(_checked_token(read_admin_token(data), str(ours)), f"it is the one in {ours}")


def _read_token(file: Path, name: str) -> str | None:
    with wrong_use(OSError, UnicodeDecodeError, at=f"{name}={str(file)!r}"):
        return _checked_token(file.read_text().strip(), str(file))


def hub_at(url: str, token: Token | None) -> closing[HubClient]:
    """The hub, until the block ends."""
    return closing(HubClient(url, token, answer_bytes=ANSWER_BYTES))


@contextmanager
def refusals_of(credential: Credential, url: str, *, adds: bool = True) -> Iterator[None]:
    """A refused token, an unknown set and a wrong address are wrong use; say what to do.

    `adds`: what is asked for makes sense with a set that is new.
    """
    try:
        yield
    except Rejected as refused:
        if (message := _with_advice(refused, credential, url, adds=adds)) is None:
            raise
        raise InvalidSettings(message) from None


def _with_advice(refused: Rejected, credential: Credential, url: str, *, adds: bool) -> str | None:
    if isinstance(refused, NotAHub) or refused.status == UNTRUSTED:
        return refused.detail
    said = refused.said if isinstance(refused, WrongToken) else refused.detail
    if (advice := _of_missing(said, credential, url, adds=adds)) is not None:
        return said + advice
    if NO_SET.fullmatch(said) or refused.status in (401, 403):
        return f"{said} ({credential.origin})"
    if said.startswith(NOTHING_THERE):
        return f"{said}: look at --url and at the name of the set"
    return None


def _of_missing(said: str, credential: Credential, url: str, *, adds: bool) -> str | None:
    """What to do about a name that the hub does not know."""
    if (unknown := NO_ID.match(said)) is not None:
        return f": `rsnotify {unknown[1]}s list` shows all"
    if (found := NO_SET.fullmatch(said)) is None:
        return None
    if near := get_close_matches(found[1], sets_of(url, credential.token), n=1):
        return f"; did you mean {near[0]}? {LIST_SETS}"
    if found[2] is not None:  # none that this token may know of
        return None
    return f": make it with: rsnotify sets add {found[1]}" if adds else f": {LIST_SETS}"


def sets_of(url: str, token: Token | None) -> list[str]:
    """The names of the sets of the hub that this token may see, as far as it says them at once."""
    with suppress(Rejected, TryAgain), hub_at(url, token) as hub:
        return [each["name"] for each in hub.ask("GET", "/api/sets").objects("name")]
    return []


def _completed(incomplete: str) -> list[str]:
    """Sets whose names begin so, for the shell."""
    url = os.environ.get("RSNOTIFY_URL", EXAMPLE)
    with suppress(InvalidSettings):
        names = sets_of(url, credential_for(url, Path(os.environ.get("RSNOTIFY_DATA", DATA))).token)
        return [name for name in names if name.startswith(incomplete)]
    return []


# Options that several commands have ---------------------------------------------------------------

Url = Annotated[
    str,
    Option("--url", envvar="RSNOTIFY_URL", help="Where the hub is.", callback=checked_address),
]


class Hub(NamedTuple):
    """The hub that a command speaks to, with the token for it; what it refuses says what to do."""

    url: Url = EXAMPLE
    data: Annotated[
        Path,
        Option(
            "--data",
            envvar="RSNOTIFY_DATA",
            metavar="DIR",
            help="The hub's data directory, for its admin token, on the hub's own machine. "
            "Elsewhere set `RSNOTIFY_TOKEN`.",
        ),
    ] = DATA

    @contextmanager
    def token(self, *, adds: bool = True) -> Iterator[Token | None]:
        credential = credential_for(*self)
        with refusals_of(credential, self.url, adds=adds):
            yield credential.token

    @contextmanager
    def connected(self, *, adds: bool = True) -> Iterator[HubClient]:
        with self.token(adds=adds) as token, hub_at(self.url, token) as client:
            yield client

    def ask(
        self, method: str, path: str, content: object | None = None, *, adds: bool | None = None
    ) -> HubAnswer:
        """Make one request; what was answered."""
        body = None if content is None else msgspec.json.encode(content)
        adds = method not in ("GET", "DELETE") if adds is None else adds
        with self.connected(adds=adds) as client:
            return asked(client, method, path, body=body)


HERE = Hub()


def asked(
    hub: HubClient,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> HubAnswer:
    """The hub's answer; asked again while there is none, so it must be harmless to repeat."""
    return patiently(partial(hub.ask, method, path, headers, body), patience_seconds)


Search = Annotated[
    str, Option("--search", metavar="TEXT", help="Only sets that have this in their names.")
]
SetName = Annotated[
    str,
    Argument(
        metavar="SET",
        help="Name of the set of resources.",
        callback=checked_name,
        autocompletion=_completed,
    ),
]
SetNames = Annotated[
    list[str],
    Argument(
        metavar="SET...",
        help="Names of sets of resources.",
        callback=lambda names: [*map(checked_name, names)],
    ),
]
