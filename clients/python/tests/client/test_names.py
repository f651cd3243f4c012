"""What `rsnotify_client` offers is what one finds in it: names, signatures, types and errors."""

import ast
import asyncio
import builtins
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import rsnotify_client
import rsnotify_mirror
from rsnotify import __version__
from rsnotify_client import (
    AsyncPublisher,
    Change,
    Error,
    FileCursor,
    Outbox,
    Publisher,
    Relay,
    SqliteCursor,
    changes_between,
    follow,
)

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/client.md").read_text()
PACKAGE = Path(str(rsnotify_client.__file__)).parent
MODULES = sorted(path for path in PACKAGE.glob("*.py") if path.stem != "__init__")
PUBLIC = {
    name: getattr(module, name)
    for module in (rsnotify_client, rsnotify_mirror)
    for name in module.__all__
}
CLASSES = {name: each for name, each in PUBLIC.items() if inspect.isclass(each)}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(
        AttributeError, match="module 'rsnotify_client' has no attribute 'Publsher'"
    ):
        _ = rsnotify_client.Publsher


def test_to_import_the_package_loads_none_of_it():
    code = (
        "import sys, rsnotify_client; print(*(each for each in sys.modules if 'rsnotify' in each))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"rsnotify", "rsnotify_client"}


# Signatures --------------------------------------------------------------------------------------


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, each in PUBLIC.items():
        if isinstance(each, FunctionType):
            yield name, each
    for name, each in CLASSES.items():
        for attribute in dir(each):
            found = getattr(each, attribute)
            is_ours = str(getattr(found, "__module__", "")).startswith(
                ("rsnotify_client", "rsnotify_mirror")
            )
            is_private = attribute.startswith("_") and not attribute.endswith("__")
            if inspect.isroutine(found) and is_ours and not is_private:
                yield f"{name}.{attribute}", found


CALLABLES = dict(public_callables())


@pytest.mark.parametrize("name", CALLABLES)
def test_every_public_signature_names_each_argument_and_its_type(name):
    found = inspect.signature(CALLABLES[name])
    for each in found.parameters.values():
        assert each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD), f"{name}: {each}"
        assert each.name == "self" or each.annotation is not each.empty, f"{name}: {each}"


MODULES_OF_USERS = (rsnotify_client, rsnotify_mirror)
OFFERED = {
    name: each
    for module in MODULES_OF_USERS
    for name in module.__all__
    if callable(each := getattr(module, name))
}
DEALT_WITH_IN_BOTH = "FollowedChange"  # in `with`, or in `async with`


def waits_in_a_loop(part: Any) -> bool:
    """Whether it is awaited, or iterated over by `async for`."""
    gives = str(getattr(part, "__annotations__", {}).get("return", ""))
    return inspect.iscoroutinefunction(part) or "AsyncGenerator" in gives


@pytest.mark.parametrize("name", sorted(OFFERED.keys() - {DEALT_WITH_IN_BOTH}))
def test_what_is_for_an_event_loop_says_so_in_its_name_and_nothing_else_does(name):
    """See "What waits" in docs/client.md."""
    each = OFFERED[name]
    parts = (
        [each, *(getattr(each, part) for part in dir(each))] if inspect.isclass(each) else [each]
    )
    assert any(map(waits_in_a_loop, parts)) == ("async" in name.lower())


PAIRS = [
    ("Publisher", "AsyncPublisher"),
    ("follow", "follow_async"),
    ("notifications", "notifications_async"),
    ("Mirror", "AsyncMirror"),
]


@pytest.mark.parametrize(("blocking", "of_loop"), PAIRS)
def test_both_ways_to_wait_take_the_same_and_stand_in_the_docs(blocking, of_loop):
    taken = [list(inspect.signature(OFFERED[name]).parameters) for name in (blocking, of_loop)]
    assert taken[0] == taken[1]
    rows = re.findall(r"^\| [^|]+ \| `([\w.]+)` \| `([\w.]+)` \|$", PAGE, re.MULTILINE)
    assert (blocking, of_loop) in [tuple(name.split(".")[-1] for name in row) for row in rows]
    assert len(rows) == len(PAIRS) == len([name for name in OFFERED if "async" in name.lower()])


@pytest.mark.parametrize("module", MODULES_OF_USERS)
def test_a_module_shows_what_it_offers_and_nothing_else(module):
    assert dir(module) == sorted(module.__all__)
    assert module.__version__ == __version__


def test_what_is_a_method_is_no_attribute_that_an_object_gets_later():
    assert {"Relay.wake", "Relay.flush", "Publisher.load", "AsyncPublisher.load"} <= {*CALLABLES}


USE = """
from rsnotify_client import Change, Publisher
Change("http://example.com/1", "moved")
Publisher("http://a").updated("papers", "http://example.com/1", lenght=5)
from rsnotify_client import Publsher
reveal_type(Publisher("http://a").publish("papers", [Change("http://example.com/1", "updated")]))
"""


@pytest.mark.evidence
def test_editors_see_the_types(tmp_path):
    """As mypy does, in a program that uses the package."""
    (tmp_path / "use.py").write_text(USE)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, str(tmp_path / "use.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"MYPYPATH": f"{ROOT}:{ROOT / 'clients/python'}", "PATH": ""},
    )
    said = done.stdout
    assert "incompatible type \"Literal['moved']\"" in said
    assert 'Unexpected keyword argument "lenght"' in said
    assert 'has no attribute "Publsher"' in said
    assert 'Revealed type is "rsnotify_client.hub.Accepted"' in said
    assert said.count(": error:") == 3


# Errors ------------------------------------------------------------------------------------------

CAUGHT_WITHIN = {
    "Unchanged",  # by whoever asks whether a document has changed
    "NotJoined",
    "Lost",
    "Cut",
    "Renewed",
    "TooOld",  # all five by the follower, which then asks again or reads the lists
    "BadAnswer",
    "OutOfReach",
    "StaleConnection",
    "TooSlow",  # all four become Unreachable, HubUnreachable or Refused
}
PYTHONS_OWN = {
    ("__init__", "AttributeError"),  # a name that is not there
    ("blocking_threads", "TimeoutError"),  # in a thread for which nobody waits
    ("change", "NotImplementedError"),
    ("documents", "StopIteration"),  # within an iterator
    ("follower", "NotImplementedError"),  # of a class that is not to be used itself
    ("network", "OSError"),  # of a proxy; becomes Unreachable or HubUnreachable
    ("textfile", "ValueError"),  # becomes InvalidSettings
    ("transport", "ValueError"),  # becomes Refused or Rejected
}


def test_every_error_that_can_come_out_is_an_error_of_ours_and_exported():
    found = {
        name: each
        for path in MODULES
        for name, each in vars(importlib.import_module(f"rsnotify_client.{path.stem}")).items()
        if inspect.isclass(each) and issubclass(each, Exception)
        if each.__module__ in (f"rsnotify_client.{path.stem}", "rsnotify.errors")
    }
    out = {name: each for name, each in found.items() if name not in CAUGHT_WITHIN}
    assert {name for name, each in out.items() if not issubclass(each, Error)} == set()
    assert out.keys() - PUBLIC.keys() == set()
    assert CAUGHT_WITHIN - found.keys() == set()


def test_no_error_of_python_is_raised_that_is_not_turned_into_one_of_ours():
    raised = {
        (path.stem, node.exc.func.id if isinstance(node.exc, ast.Call) else node.exc.id)
        for path in [*MODULES, PACKAGE / "__init__.py"]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise)
        if isinstance(node.exc, ast.Name)
        or (isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name))
    }
    assert {(stem, name) for stem, name in raised if hasattr(builtins, name)} == PYTHONS_OWN


NOWHERE = "http://127.0.0.1:9"


def switched_off() -> Publisher:
    return Publisher("", enabled=False)


NO_ZONE = __import__("datetime").datetime(2026, 11, 28)
FAILING: dict[str, Callable[[Path], object]] = {
    "no address": lambda _: Publisher("ftp://example.com"),
    "no token": lambda _: Publisher("http://example.com", "a\nb"),
    "no name": lambda _: switched_off().updated("a/b", "http://example.com/1"),
    "no zone": lambda _: switched_off().updated("a", "http://example.com/1", lastmod=NO_ZONE),
    "no loc": lambda _: switched_off().updated("a", None),
    "no text": lambda _: switched_off().updated("a", "http://example.com/\ud800"),
    "no JSON": lambda _: switched_off().send("a", Change("b", "updated", length=object())),
    "no JSON at once": lambda _: switched_off().publish("a", [object()]),
    "no key": lambda _: Publisher(NOWHERE).publish("a", [], key="\ud800"),
    "no key of a load": lambda _: Publisher(NOWHERE).load("a", [], key="\ud800"),
    "no URL": lambda _: Publisher("http://a\ud800.example").publish("a", [], timeout=0.1),
    "closed": lambda _: closed().updated("a", "http://example.com/1"),
    "nobody there": lambda _: flushed_nowhere(),
    "no state": lambda _: Publisher(NOWHERE).load("a", [{"length": 5}]),
    "no field": lambda _: Publisher(NOWHERE).load("a", [{"loc": "b", "lenght": 5}]),
    "no mapping": lambda _: Publisher(NOWHERE).load("a", [5]),
    "no position": lambda _: next(iter(follow(NOWHERE, position="yesterday"))),
    "no folder": lambda path: next(iter(follow(NOWHERE, cursor=path / "no" / "cursor"))),
    "no cursor": lambda path: FileCursor(spoilt(path)).load(),
    "no database": lambda path: SqliteCursor(spoilt(path)).load(),
    "no position kept": lambda _: next(iter(follow(NOWHERE, cursor=(lambda: "b", print)))),
    "no disk": lambda path: FileCursor(path / "no" / "cursor").save(rsnotify_client.Position(5)),
    "no list": lambda path: list(changes_between(path / "a", path / "b")),
    "no outbox": lambda path: Publisher(NOWHERE, outbox=path / "no" / "outbox").updated("a", "b"),
    "no kind of database": lambda _: Relay("oracle://a", NOWHERE),
    "no such driver": lambda _: Outbox.create(object()),
}


def closed() -> Publisher:
    publisher = switched_off()
    publisher.close()
    return publisher


def flushed_nowhere() -> None:
    publisher = Publisher(NOWHERE, "token")
    publisher.updated("a", "http://example.com/1")
    try:
        publisher.flush(0.05)
    finally:
        with suppress(Error):
            publisher.close(timeout=0)


def spoilt(path: Path) -> Path:
    (path / "cursor").write_text("no place at all\n" * 100)
    return path / "cursor"


@pytest.mark.parametrize("what", FAILING)
def test_whatever_goes_wrong_one_class_catches_it(what, tmp_path):
    with pytest.raises(Error):
        FAILING[what](tmp_path)


async def test_so_it_does_in_an_event_loop():
    publisher = AsyncPublisher(NOWHERE, "token")
    await publisher.updated("a", "http://example.com/1")
    with pytest.raises(Error):
        await publisher.flush(timeout=0.05)
    with pytest.raises(Error):
        await publisher.updated("a", "http://example.com/1", lastmod=NO_ZONE)
    with pytest.raises(Error):
        await publisher.close(timeout=0.05)
    assert not asyncio.current_task().cancelling()
