"""The options of bridges: one from the command line, or several from a file.

Rules that hold here: what a file says is judged whole before anything is begun; nobody is asked.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.delete_guard import MAX_DELETE
from rsnotify.resourcesync.notification import wrong_name
from rsnotify_bridge.oaipmh import PREFIX
from rsnotify_bridge.rules import Intervals, LocRule
from rsnotify_client.address import without_tokens, wrong_address
from rsnotify_client.discovery import http_twin
from rsnotify_client.token import TokenFile

MAX_BRIDGES = 10_000
ADDRESSES = ("http://", "https://", "ws://", "wss://", PREFIX)

Seconds = Annotated[float, msgspec.Meta(ge=1, le=366 * 86_400)]


class BridgeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """One bridge, as `[[bridge]]` in a file has it, or as the command line says it."""

    source: Annotated[str, msgspec.Meta(max_length=4_096)] = msgspec.field(name="from")
    set_name: str = msgspec.field(name="set")
    interval: Seconds = Intervals().least
    max_interval: Seconds = Intervals().most
    compare: Seconds | None = None
    max_delete: Annotated[float, msgspec.Meta(ge=0, le=100)] = MAX_DELETE
    create: bool = False  # the set, if the hub has none of its name
    shared: bool = False  # others publish to the set, too
    robots: bool = True
    loc_from: str | None = None
    loc: str | None = None
    loc_by: str | None = None
    token_file: str | None = None

    def problems(self) -> Iterator[str]:
        if not self.source.startswith(ADDRESSES):
            known = ", ".join(ADDRESSES)
            yield f"{self.source[:200]!r} is no address of a Source: it begins with one of {known}"
        elif (wrong := wrong_address(http_twin(self.source.removeprefix(PREFIX)))) is not None:
            yield without_tokens(f"{self.source}: {wrong}")
        if (wrong := wrong_name(self.set_name)) is not None:
            yield wrong
        if self.max_interval < self.interval:
            yield "the longest interval is shorter than the shortest: give --max-interval, too"
        has_rule = self.loc_from or self.loc or self.loc_by
        if has_rule and not self.source.startswith(PREFIX):
            yield "--loc-from, --loc and --loc-by are for OAI-PMH: write oai: before the address"
        try:
            _ = self.rule
        except InvalidSettings as error:
            yield from error.problems

    @property
    def name(self) -> str:
        """The Source, as it may be shown."""
        return without_tokens(self.source)

    @property
    def intervals(self) -> Intervals:
        return Intervals(self.interval, self.max_interval)

    @property
    def rule(self) -> LocRule:
        return LocRule.of(self.loc_from, self.loc, self.loc_by)

    def token(self) -> TokenFile | None:
        """That of the Source, from its own file, which is read anew when it has ended."""
        if self.token_file is None:
            return None
        try:
            if Path(self.token_file).read_text().strip():
                return TokenFile(self.token_file)
            why = "it is empty"
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
        raise InvalidSettings(f"token-file {self.token_file}: {why}")


class BridgeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`bridges.toml`."""

    bridge: Annotated[list[BridgeOptions], msgspec.Meta(min_length=1, max_length=MAX_BRIDGES)]


def read_bridges(path: Path) -> list[BridgeOptions]:
    """All problems of the file at once."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text()), BridgeFile).bridge
    except OSError as error:
        raise InvalidSettings(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, or of an option
        raise InvalidSettings(f"{path}: {error}") from None
    check_options(found, str(path))
    return found


def check_options(options: Sequence[BridgeOptions], where: str | None = None) -> None:
    """Raises `InvalidSettings`, and asks nobody."""
    problems = [
        f"{where}: bridge {number}: {problem}" if where else problem
        for number, each in enumerate(options, 1)
        for problem in each.problems()
    ]
    pairs = Counter((each.source, each.set_name) for each in options)
    problems += [f"{where}: {pair[0]} stands twice" for pair, count in pairs.items() if count > 1]
    if problems:
        raise InvalidSettings(*problems)
