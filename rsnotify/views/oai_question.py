"""What a request of OAI-PMH asks: its verb, its arguments, and what is wrong with them.

The errors are those of OAI-PMH 2.0, section 3.6. Where several things are wrong, the first is told.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.xml_writer import escape

PREFIX = "oai_dc"
ARGUMENTS = 32  # of a request; the protocol has seven
LISTS = ("ListIdentifiers", "ListRecords")
NO_HARVESTING = ("access_token",)  # of the hub, not of OAI-PMH

_LISTED = ("metadataPrefix", "from", "until", "set", "resumptionToken")
VERBS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "Identify": ((), ()),
    "ListMetadataFormats": ((), ("identifier",)),
    "ListSets": ((), ("resumptionToken",)),
    "GetRecord": (("identifier", "metadataPrefix"), ("identifier", "metadataPrefix")),
    "ListIdentifiers": (("metadataPrefix",), _LISTED),
    "ListRecords": (("metadataPrefix",), _LISTED),
}
"""Of each verb: the arguments that it must have, and those that it may have."""

_WORD = r"[A-Za-z0-9\-_.!~*'()]+"
SYNTAX = {
    "metadataPrefix": re.compile(_WORD).fullmatch,
    "set": re.compile(f"{_WORD}(:{_WORD})*").fullmatch,
}
"""How the protocol's schema writes arguments that an answer repeats. An identifier may be any URI:
it is asked for as it stands."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII).fullmatch
_SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII).fullmatch


class OaiFault(Exception):
    """What is wrong with a request, by a code of the protocol."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class OaiQuestion(NamedTuple):
    """A request without a fault. `from_` and `until` belong to what is asked for."""

    verb: str
    arguments: Mapping[str, str]
    from_: Position | None = None
    until: Position | None = None

    @property
    def identifier(self) -> str | None:
        return self.arguments.get("identifier")

    @property
    def token(self) -> str | None:
        return self.arguments.get("resumptionToken")


def parse_arguments(text: bytes) -> list[tuple[str, str]]:
    """The arguments of a query or of a form, in UTF-8."""
    try:
        found = parse_qsl(
            text.decode(), keep_blank_values=True, errors="strict", max_num_fields=ARGUMENTS
        )
    except UnicodeDecodeError:
        raise OaiFault("badArgument", "the arguments are not UTF-8") from None
    except ValueError:
        raise OaiFault("badArgument", f"there are more than {ARGUMENTS} arguments") from None
    return [(name, value) for name, value in found if name not in NO_HARVESTING]


def parse_question(sent: Sequence[tuple[str, str]]) -> OaiQuestion:
    """The question in these arguments; `OaiFault` if it is none."""
    verb = _verb(sent)
    arguments = _arguments(verb, sent)
    return OaiQuestion(verb, arguments, *_range(arguments))


def check_served(question: OaiQuestion) -> None:
    """Refuse what a repository may have, and a set of the hub has not."""
    if "set" in question.arguments:
        raise OaiFault("noSetHierarchy", "a set of the hub has no sets in it: leave `set` out")
    if question.arguments.get("metadataPrefix", PREFIX) != PREFIX:
        raise OaiFault("cannotDisseminateFormat", f"the one metadataPrefix here is {PREFIX}")


def _verb(sent: Sequence[tuple[str, str]]) -> str:
    verbs = [value for name, value in sent if name == "verb"]
    if len(verbs) != 1:
        how_often = "given more than once" if verbs else "missing"
        raise OaiFault("badVerb", f"verb is {how_often}: send one of {', '.join(VERBS)}")
    if verbs[0] not in VERBS:
        raise OaiFault("badVerb", f"there is no such verb: send one of {', '.join(VERBS)}")
    return verbs[0]


def _arguments(verb: str, sent: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    needed, allowed = VERBS[verb]
    arguments = {name: value for name, value in sent if name != "verb"}
    if len(arguments) < len(sent) - 1:
        raise OaiFault("badArgument", "an argument is given more than once")
    if unknown := arguments.keys() - {*allowed}:
        known = ", ".join(allowed) or "none"
        name = ascii(min(unknown)[:80])
        raise OaiFault("badArgument", f"{verb} has no argument {name}; it has: {known}")
    for name, value in arguments.items():
        try:
            escape(value)
        except Rejected as error:
            raise OaiFault("badArgument", f"{name}: {error.detail}") from None
        if name in SYNTAX and not SYNTAX[name](value):
            allowed = "letters of ASCII, digits and -_.!~*'()"
            raise OaiFault("badArgument", f"{name} is {value[:80]!a}; it may have {allowed}")
    if "resumptionToken" in arguments:
        if len(arguments) > 1:
            raise OaiFault("badArgument", "resumptionToken is sent alone, with the verb")
        return arguments
    if missing := [name for name in needed if name not in arguments]:
        raise OaiFault("badArgument", f"{verb} needs {' and '.join(missing)}")
    return arguments


def _range(arguments: Mapping[str, str]) -> tuple[Position | None, Position | None]:
    """The first and the last position that are asked for."""
    from_, until = arguments.get("from"), arguments.get("until")
    first = None if from_ is None else parse_datestamp("from", from_)
    last = None if until is None else parse_datestamp("until", until, is_end=True)
    if from_ is not None and until is not None and len(from_) != len(until):
        raise OaiFault("badArgument", "from and until differ: send days, or seconds, in both")
    if first is not None and last is not None and first > last:
        raise OaiFault("badArgument", "from is later than until")
    return first, last


def parse_datestamp(name: str, text: str, *, is_end: bool = False) -> Position:
    """The first position of a day or of a second in UTC; the last one if it is an end.

    >>> parse_datestamp("until", "2026-11-20", is_end=True)
    Position(2026-11-20T23:59:59.999999Z)
    """
    time = ("T23:59:59Z" if is_end else "T00:00:00Z") if _DAY(text) else ""
    try:
        if not (time or _SECOND(text)):
            raise ValueError
        first = Position.parse(text + time)
    except (ValueError, OverflowError):
        detail = f"{name} is {text[:80]!a}: write 2026-11-20 or 2026-11-20T21:34:00Z"
        raise OaiFault("badArgument", detail) from None
    return Position(first + MICROSECONDS - 1) if is_end else first
