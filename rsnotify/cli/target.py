"""The hub that a command speaks to: the options for it, the token for it, and requests to it.

A rule that holds here: a token goes to the address that it belongs to, whatever `--url` names.
"""

import logging
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
from rsnotify_client.address import EXAMPLE, origin, without_tokens, wrong_address, wrong_token
from rsnotify_client.answer import NOTHING_THERE, UNTRUSTED, NotAHub, WrongToken
from rsnotify_client.hub import HubAnswer, HubClient, patiently
from rsnotify_client.token import Token, TokenFile

log = logging.getLogger(__name__)

DATA = Path("data")
NO_SET = re.compile(r"there is no set '([^']+)'( that .+)?")
NO_ID = re.compile(r"there is no (token|subscription) ")
LIST_SETS = "`rsnotify sets list` shows all"
OURS = "RSNOTIFY_TOKEN"
FILE = "RSNOTIFY_TOKEN_FILE"
ADMIN = "RSNOTIFY_ADMIN_TOKEN"
ADMIN_FILE = "RSNOTIFY_ADMIN_TOKEN_FILE"
SOURCE = "RSNOTIFY_SOURCE_TOKEN"
SOURCE_FILE = "RSNOTIFY_SOURCE_TOKEN_FILE"
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


def token_for_source(url: str) -> Token | None:
    """The token for a Source, which may be anybody's: its own, or that of its hub if it is ours.

    It is never the admin's.
    """
    if (its_own := token_of_source()) is not None:
        return its_own
    for name in (OURS, FILE):
        if not os.environ.get(name):
            continue
        if _is_for(url, is_ours=False):
            return _token_in(name)
        shown = without_tokens(url)
        log.info("%s: it is not sent to %s; set %s for that", _whose(name), shown, SOURCE)
    return None


def token_of_source() -> Token | None:
    """The token for a Source where RSNOTIFY_TOKEN is the one for the hub."""
    for name in (SOURCE, SOURCE_FILE):
        if os.environ.get(name):
            return _token_in(name)
    return None


def _is_for(url: str, *, is_ours: bool) -> bool:
    """Whether a token of the environment may be shown to this address.

    It belongs to RSNOTIFY_URL. Without that it belongs to a hub on this machine, as commands speak
    to that one then; or `is_ours`: to the hub that `--url` names, whoever named it meant it.
    """
    if not (home := os.environ.get("RSNOTIFY_URL")):
        return is_ours or _is_here(url)
    with suppress(ValueError):  # where it is no address
        return origin(url) == origin(home) or (_is_here(url) and _is_here(home))
    return False


def _is_here(url: str) -> bool:
    with suppress(ValueError):  # where it is no address
        return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    return False


def _whose(name: str) -> str:
    return f"{name} is for {os.environ.get('RSNOTIFY_URL') or 'a hub on this machine'}"


def _token_in(name: str) -> Token | None:
    """What this variable has, or the file that it names; one for a file is read anew when asked."""
    value = os.environ[name]
    if name == ADMIN_FILE:
        return _read_token(Path(value), name)
    if name not in (FILE, SOURCE_FILE):
        return _checked_token(value, name)
    if not _read_token(Path(value), name):
        raise InvalidSettings(f"{name}={value!r}: it is empty")
    return TokenFile(value)


def _checked_token(token: str | None, where: str) -> str | None:
    if token and (wrong := wrong_token(token)) is not None:
        raise InvalidSettings(f"{where} cannot be sent: {wrong}")
    return token or None


def credential_for(url: str, data: Path) -> Credential:
    """The token to speak with: ours, the admin's, or that of the hub on this machine.

    None is for the hubs of others: the last, too, is shown to this machine, unless `--data` says
    otherwise.
    """
    none = NONE
    for name in (OURS, FILE, ADMIN, ADMIN_FILE):
        if not (value := os.environ.get(name)):
            continue
        if _is_for(url, is_ours=name in (OURS, FILE)):
            where = value if name in (FILE, ADMIN_FILE) else name
            return Credential(_token_in(name), f"it is the one in {where}")
        if none is NONE:
            how = f"set RSNOTIFY_URL={url}, and {OURS} to a token of that hub"
            none = Credential(None, f"none was sent, for {_whose(name)}: {how}")
    if data == DATA and not _is_here(url):
        return none
    ours = data / "admin-token"
    if not ours.exists():
        if none is not NONE:
            return Credential(None, f"{none.origin}; there is no {ours}, either")
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
