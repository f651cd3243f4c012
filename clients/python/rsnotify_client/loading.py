"""Load the whole state of a set: sent as one body, waited for until it is done.

Rules that hold here: the moment of a state is the position that the hub gave before the state was
read. A body that breaks off is sent again from its beginning, under the same key, so it is loaded
once. What becomes of a load that goes on after its answer is asked for until it is known; a load
that vanished, with its set for instance, is an error.
"""

import gzip
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from math import inf
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, Any, NamedTuple, cast
from urllib.parse import quote, urlencode

import msgspec

from rsnotify.errors import Rejected, TryAgain, shown
from rsnotify.resourcesync.change import OF_A_CHANGE, Change, Position
from rsnotify.resourcesync.retry import Backoff
from rsnotify_client.answer import HubUnreachable
from rsnotify_client.change import make_change
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.hub import HubAnswer, HubClient, patiently, within
from rsnotify_client.network import NetworkOptions
from rsnotify_client.queue import encoded
from rsnotify_client.threads import waited
from rsnotify_client.token import HeldToken, Token

NDJSON = "application/x-ndjson"
GZIP_HEADER = {"Content-Encoding": "gzip"}
COUNTS = ("resources", "created", "updated", "deleted", "unchanged", "newer")
OUTCOME = ("stage", "published", "at", *COUNTS)
PIECE_BYTES = 64 * 1024
PATIENCE_SECONDS = 60.0
SEND_SECONDS = 120.0  # without a byte taken: while it stores what it has, the hub takes no more
LOAD_SECONDS = 3_600.0
LOOK_SECONDS = 1.0
BACKOFF = Backoff(1.0, 30.0, certain=0.5)  # a body may be large

State = Change | Mapping[str, Any]
"""A resource as it is: its fields, or a change; what says how it changed does not count."""

Say = Callable[[str], object]


class Loaded(msgspec.Struct, frozen=True):
    """What has come of a load. `resources` is how many it brought, and `newer` how many differences
    were left because those resources were published after the moment of the load."""

    set: str
    resources: int
    created: int
    updated: int
    deleted: int
    unchanged: int
    newer: int
    published: bool
    as_of: str | None = None


class LoadRequest(NamedTuple):
    """How a load is to be done."""

    publish: bool | None = None
    max_delete: float | None = None
    dry_run: bool = False
    as_of: str | None = None
    overwrite: bool = False

    def query(self) -> str:
        chosen = {
            "publish": None if self.publish is None else "yes" if self.publish else "no",
            "max_delete": None if self.max_delete is None else f"{self.max_delete:g}",
            "dry_run": "yes" if self.dry_run else None,
            "as_of": self.as_of,
            "overwrite": "yes" if self.overwrite else None,
        }
        return urlencode({name: value for name, value in chosen.items() if value is not None})


class LoadBody(NamedTuple):
    """What is sent: its headers, and its pieces from the first on, each time they are asked for."""

    headers: Mapping[str, str]
    pieces: Callable[[], Iterator[bytes]]
    is_repeatable: bool = True


def path_of_resources(set_name: str) -> str:
    return f"/api/sets/{quote(set_name, safe='')}/resources"


def position(hub: HubClient, set_name: str, timeout: float = PATIENCE_SECONDS) -> str:
    """The moment of a state that is read from now on."""

    def ask(seconds: float) -> HubAnswer:
        return hub.ask("GET", path_of_resources(set_name), seconds=seconds)

    found: str = within(ask, timeout).object("position")["position"]
    return found


def load(
    url: str,
    token: Token | HeldToken | None,
    set_name: str,
    body: LoadBody,
    request: LoadRequest,
    *,
    key: str | None = None,
    network: NetworkOptions | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
    timeout: float | None = None,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Send a load, again if need be, and wait until it is done; what has come of it.

    It is sent again, for `patience_seconds`, until the hub has taken all of it, unless it can be
    read only once. `say` is called with what the hub is doing. Everything together may take
    `timeout` seconds; then it is `TryAgain`, though the hub may go on with what it has taken.
    """
    token, left = HeldToken.of(token), _seconds_left(set_name, timeout)
    headers = {**body.headers, "Idempotency-Key": key or secrets.token_hex(8)}
    path = f"{path_of_resources(set_name)}?{request.query()}"
    sending = HubClient(
        url, token, network=network, connect_seconds=SEND_SECONDS, answer_seconds=LOAD_SECONDS
    )

    def pieces() -> Iterator[bytes]:
        with closing(cast("Any", body.pieces())) as found:
            for piece in found:
                left()
                yield piece

    def send() -> dict[str, Any]:
        sent = pieces if body.is_repeatable else pieces()
        return sending.ask("PUT", path, headers, sent, left()).object(*OUTCOME)

    with closing(sending):
        patience = min(patience_seconds, left() or inf)
        answer = patiently(send, patience, BACKOFF) if body.is_repeatable else send()
    with closing(HubClient(url, token, network=network)) as hub:

        def ask() -> HubAnswer:
            return hub.ask("GET", path_of_resources(set_name), seconds=left(answer["stage"]))

        while answer["stage"] not in ("done", "compared"):
            say(_doing(answer))
            if not waited(min(LOOK_SECONDS, left(answer["stage"]) or inf)):
                raise TryAgain(f"the load of {set_name!r} goes on, and nobody waits for it")
            patience = min(patience_seconds, left(answer["stage"]) or inf)
            try:
                asked = patiently(ask, patience)
            except HubUnreachable:
                left(f"{answer['stage']}, as it answered last")
                raise
            answer = standing_of(answer, asked)
    return answer


def _doing(answer: Mapping[str, Any]) -> str:
    """What the hub does with a load that it has taken."""
    differences = sum(answer[each] for each in ("created", "updated", "deleted"))
    what = {
        "publishing": f"the hub publishes {differences:,} differences",
        "listing": f"the hub lists {answer['resources']:,} resources",
    }
    return what.get(answer["stage"], f"the hub is at it: {answer['stage']}")


def _seconds_left(set_name: str, timeout: float | None) -> Callable[..., float | None]:
    """A function that says how long is left, and raises when nothing is; None is for ever."""
    if timeout is not None and not timeout > 0:
        raise InvalidArgument(f"timeout is {timeout}: give seconds, above 0")
    until = inf if timeout is None else monotonic() + timeout

    def left(stage: str | None = None) -> float | None:
        if timeout is None:
            return None
        if (seconds := until - monotonic()) > 0:
            return seconds
        at = "the hub has not taken it" if stage is None else f"the hub is at it: {stage}"
        again = "repeat it with the same key"
        raise TryAgain(f"the load of {set_name!r} took more than {timeout:g} s; {at}: {again}")

    return left


def standing_of(answer: dict[str, Any], asked: HubAnswer) -> dict[str, Any]:
    """How far the load is that was answered so, as the hub says it now.

    Loads follow one another. So if another one is under way, or was the last, this one is done.
    """
    standing = asked.object("load", "last_load")
    load, last = standing["load"], standing["last_load"]
    if load is not None and load["at"] == answer["at"]:
        return answer | {"stage": load["stage"]}
    ours = Position.parse(answer["at"])
    if last is None or (newest := Position.parse(last["at"])) < ours:
        raise Rejected("the load is gone: was the set removed meanwhile?", status=404)
    done = asked._replace(content=last).object(*OUTCOME) if newest == ours else answer
    return done | {"stage": "done"}


# A state in NDJSON --------------------------------------------------------------------------------

_LISTED = sorted({*Change.__struct_fields__} - {*OF_A_CHANGE})


def line_of(state: State) -> bytes:
    """A resource as a line of NDJSON."""
    if not isinstance(state, Change):
        state = _change_of(state)
    said = ((name, getattr(state, name)) for name in _LISTED)
    found = {name: value for name, value in said if value not in (None, ())}
    return encoded(msgspec.json.encode, found)


def _change_of(state: Mapping[str, Any]) -> Change:
    try:
        fields: Any = {name: value for name, value in state.items() if name not in OF_A_CHANGE}
        return make_change(fields.pop("loc"), "created", fields)
    except (AttributeError, KeyError, TypeError) as error:
        what: object = "it has no loc" if isinstance(error, KeyError) else error
        if not isinstance(state, Mapping):
            what = 'give a dict, such as {"loc": "http://example.com/res1"}, or a Change'
        raise InvalidArgument(f"{shown(repr(state))} is no resource: {what}") from None


def lines_of(states: Iterable[State], as_of: str | None = None) -> Iterator[bytes]:
    """Resources in NDJSON, in pieces that are worth sending; first their moment, if it is known."""
    piece = bytearray()
    if as_of is not None:
        piece += msgspec.json.encode({"as_of": as_of}) + b"\n"
    for state in states:
        piece += line_of(state) + b"\n"
        if len(piece) > PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


Progress = Callable[[int], object]
"""Called with how many states have been read, after each thousand and at the end."""


@contextmanager
def spooled(states: Iterable[State], progress: Progress | None = None) -> Iterator[LoadBody]:
    """The states in a file that has no name: read to their end before anything is sent."""
    if not isinstance(states, Iterable) or isinstance(states, str | bytes | Mapping):
        raise InvalidArgument(
            f"states is {shown(repr(states))}: give several, such as [{{'loc': 'http://a/1'}}]"
        )
    if progress is not None:
        states = _counted(states, progress)
    with TemporaryFile() as file:
        with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1) as packed:
            for piece in lines_of(states):
                packed.write(piece)
        headers = {"Content-Type": NDJSON, **GZIP_HEADER}
        yield LoadBody(headers, partial(_pieces, file))


COUNTED = 1_000


def _counted(states: Iterable[State], progress: Progress) -> Iterator[State]:
    number = 0
    for state in states:
        yield state
        number += 1
        if number % COUNTED == 0:
            progress(number)
    progress(number)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(PIECE_BYTES):
        yield piece
