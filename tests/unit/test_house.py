"""The house keeps its order: imports go one way, and each foreign package has one room."""

import ast
import importlib
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rsnotify.__main__ import EXTRA_OF
from rsnotify.cli.root import COMMANDS
from tests.tools.coverage import PURE

ROOT = Path(__file__).parents[2]
HUB = ROOT / "rsnotify"
CLIENT = ROOT / "clients/python/rsnotify_client"
MIRROR = ROOT / "clients/python/rsnotify_mirror"
BRIDGE = ROOT / "clients/python/rsnotify_bridge"
CLIENT_ROOMS = (CLIENT, MIRROR, BRIDGE)
CLIENTS = tuple(folder.name for folder in CLIENT_ROOMS)

FLOORS = (
    ("errors",),
    ("gunzip", "recent", "sd_notify", "single_flight"),
    ("http", "loops", "redis_client", "resourcesync"),
    ("coordination", "outbound"),
    ("journal", "sets"),
    ("live",),
    ("access",),
    ("channels", "documents", "websub"),
    ("publishing", "streams", "views"),
    ("operation", "web"),
    ("openapi",),
    ("process",),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
COMMAND_ROOMS = (
    "rsnotify/cli/",
    *(f"clients/python/{package}/commands" for package in CLIENTS),
)
"""The hub's commands with the frame of all, and those that a client's package brings."""
ROOMS_OF = {
    "redis": ("rsnotify/redis_client/",),
    "lxml": (
        "rsnotify/resourcesync/xml_reader.py",
        "rsnotify/resourcesync/xml_structure.py",
        "rsnotify/resourcesync/stream.py",
        "clients/python/rsnotify_bridge/markup.py",
        "clients/python/rsnotify_mirror/patch.py",
    ),
    "aiohttp": (
        "rsnotify/outbound/",
        "rsnotify/cli/demo.py",
    ),
    "urllib3": (
        "clients/python/rsnotify_client/bounded.py",
        "clients/python/rsnotify_client/transport.py",
    ),
    "uvicorn": (
        "rsnotify/process/",
        "rsnotify/http/",
        "rsnotify/channels/handshake.py",
    ),
    "prometheus_client": ("rsnotify/operation/",),
    "isal": (
        "rsnotify/channels/frames.py",
        "rsnotify/documents/responses.py",
        "rsnotify/journal/gzip_parts.py",
        "rsnotify/streams/streams.py",
    ),
    "httptools": ("rsnotify/http/request_reader.py",),
    "jwt": ("rsnotify/access/jwt_rules.py",),
    "typer": COMMAND_ROOMS,
    "rich": COMMAND_ROOMS,
}


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


TESTS = (ROOT / "tests", *ROOT.glob("clients/*/tests"))
CODE = [path for folder in (HUB, CLIENT, MIRROR, BRIDGE) for path in sources(folder)]


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a module, from the module itself to the last name."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> list[str]:
    return list(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            if node.module == "rsnotify":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_command(path: Path) -> bool:
    """Whether it is part of the command line, be it the hub's or one that a client brings."""
    return str(path.relative_to(ROOT)).startswith(COMMAND_ROOMS)


def room_of(path: Path) -> str:
    return path.relative_to(HUB).parts[0].removesuffix(".py")


def test_a_room_imports_only_from_the_floors_below_it_and_its_own():
    arrows = [
        (path, room_of(path), name.split(".")[1])
        for path in sources(HUB)
        for name in imports(path)
        if name.startswith("rsnotify.")
    ]
    wrong = [
        f"{path.relative_to(ROOT)} imports rsnotify.{other}"
        for path, room, other in arrows
        if room in FLOOR and other in FLOOR and other != room and FLOOR[other] >= FLOOR[room]
    ]
    assert wrong == []
    assert {room_of(path) for path in sources(HUB)} - FLOOR.keys() == {"__init__"}


WAITS = {"asyncio", "random", "redis", "rsnotify.loops", "socket", "threading", "time"}
ASKS_ITS_THREAD = "stream.py"  # and waits for none


def test_what_decides_without_waiting_imports_nothing_that_waits():
    pure = {path for path in CODE if str(path.relative_to(ROOT)).startswith(PURE)}
    for path in pure:
        waits = WAITS - {"threading"} if path.name == ASKS_ITS_THREAD else WAITS
        for name in imports(path):
            assert not {name, name.partition(".")[0]} & waits, f"{path.name} imports {name}"
            if name.startswith("rsnotify.") and name != "rsnotify.errors":
                assert ROOT / f"{name.replace('.', '/')}.py" in pure, f"{path.name} imports {name}"


WALLED = {"http": {"errors", "gunzip"}, "redis_client": {"errors", "single_flight"}}
"""Libraries of our own, and what they may import of the hub."""
FACE_NAMES = 6  # modules, or what is in them


@pytest.mark.parametrize("room", WALLED)
def test_a_walled_library_has_a_small_face_and_knows_nothing_of_the_hub(room):
    """Whoever uses it imports from its face; its README says why it exists."""
    package = f"rsnotify.{room}"
    face = importlib.import_module(package).__all__
    assert len(face) <= FACE_NAMES
    for path in sources(HUB):
        for name in imports(path):
            if room_of(path) != room:
                inside = name.removeprefix(f"{package}.")
                assert inside == name or inside in face, f"{path} imports {name}"
            elif name.startswith("rsnotify.") and not name.startswith(package):
                assert name.split(".")[1] in WALLED[room], f"{path} imports {name}"
    assert (HUB / room / "README.md").stat().st_size > 0


def test_no_file_name_stands_twice():
    """Those of commands aside: they are called what the command is."""
    names = Counter(
        path.name for path in sources(HUB) if path.name != "__init__.py" and room_of(path) != "cli"
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(("package", "rooms"), ROOMS_OF.items())
def test_a_foreign_package_is_known_in_its_own_rooms_only(package, rooms):
    for path in CODE:
        where = str(path.relative_to(ROOT))
        if any(name.split(".")[0] == package for name in imports(path)):
            assert where.startswith(rooms), f"{where} imports {package}"


ASKS_THE_MACHINE = re.compile(
    r"\b(getpid|gethostname|getfqdn|uname|getrusage|cpu_count|getloadavg|process_time|utcnow)\("
    r"|datetime\.now\(|date\.today\(|Random\(\)|\"/proc/"
)


def test_a_hub_knows_its_machine_by_what_it_is_handed():
    """So it does, in a simulated world, what the world's seed says; `process` starts on a real one.

    Clocks and chance of Python are the world's there, but not those that are asked in C.
    """
    asked = {
        path.relative_to(HUB).as_posix()
        for path in sources(HUB)
        if room_of(path) not in ("process", "cli", "__main__")
        if ASKS_THE_MACHINE.search(path.read_text())
    }
    assert asked == {"operation/machine.py"}
    composition = (HUB / "process/composition.py").read_text()
    assert not ASKS_THE_MACHINE.search(composition)


def test_the_composition_hands_in_what_objects_need():
    """Nothing is put into an object once it has been made: no drawing would show that."""
    targets = [
        target
        for node in nodes(HUB / "process/composition.py")
        for target in assigned(node)
        if isinstance(target, ast.Attribute)
    ]
    late = [ast.unparse(target) for target in targets if ast.unparse(target.value) != "self"]
    assert targets
    assert late == []


def test_a_constructor_puts_nothing_into_what_it_is_handed():
    """Whoever makes both would not see it."""
    constructors = [
        (path, node)
        for path in sources(HUB)
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    late = [
        f"{path.relative_to(ROOT)}: {ast.unparse(target)}"
        for path, constructor in constructors
        for node in ast.walk(constructor)
        for target in assigned(node)
        if isinstance(target, ast.Attribute) and not ast.unparse(target).startswith("self.")
    ]
    assert constructors
    assert late == []


def assigned(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def dependencies(*extras: str) -> dict[str, str]:
    """What pyproject.toml demands for running, with these extras, by name."""
    demands = [*PROJECT["dependencies"]]
    for extra in extras:
        demands += PROJECT["optional-dependencies"][extra]
    named = ((re.split(r"[\[><=~]", each)[0], each) for each in demands if "rsnotify" not in each)
    return {IMPORTED_AS.get(name, name): each for name, each in named}


IMPORTED_AS = {"pyjwt": "jwt"}


JOINED = {"django", "flask", "obstore", "psycopg", "pymysql", "python_socks", "sqlalchemy"}
"""What the client can be joined with: known to what joins them, else nowhere."""


def test_what_is_only_joined_is_an_extra_of_its_own():
    extras = PROJECT["optional-dependencies"]
    named = {re.split(r"[\[><=~]", each)[0] for demands in extras.values() for each in demands}
    assert {name.replace("-", "_") for name in named} >= JOINED
    names = ("client/integrations/", "client/relay.py", "client/network.py")
    rooms = tuple(f"rsnotify_{name}" for name in (*names, "mirror/dumping/generations.py"))
    for path in CODE:
        if {name.split(".")[0] for name in imports(path)} & JOINED:
            assert any(room in str(path) for room in rooms), path


def test_what_is_imported_is_demanded():
    known = {*sys.stdlib_module_names, "rsnotify", *CLIENTS}
    imported = {name.split(".")[0] for path in CODE for name in imports(path)}
    chosen_by_name = {"httptools"}  # uvicorn takes its parser from it
    demanded = imported - known - {""} - JOINED | chosen_by_name
    assert demanded == dependencies("cli", "hub").keys()


def test_the_client_and_the_formats_need_no_extra():
    clients = [path for folder in CLIENT_ROOMS for path in sources(folder)]
    libraries = [path for path in clients if not is_command(path)]
    shared = [HUB / "errors.py", *sources(HUB / "resourcesync"), *libraries]
    known = {*sys.stdlib_module_names, "rsnotify", *CLIENTS, ""}
    imported = {name.split(".")[0] for path in shared for name in imports(path)}
    assert imported - known - JOINED == dependencies().keys()


def test_what_an_extra_brings_is_told_to_whoever_lacks_it():
    cli, hub = (dependencies(extra).keys() - dependencies().keys() for extra in ("cli", "hub"))
    assert dict.fromkeys(cli, "cli") | dict.fromkeys(hub, "hub") == EXTRA_OF


# Whose insides are used:
OVERRIDDEN = ("aiohttp", "redis", "typer", "urllib3", "uvicorn", "websockets")


def test_every_version_has_both_its_bounds():
    bounds = re.compile(r"[\w-]+(\[\w+\])?>=(\d+)\.?[\d.]*,<(\d+)")
    for name, demanded in dependencies("cli", "hub").items():
        found = bounds.fullmatch(demanded)
        if name in OVERRIDDEN:  # to the next minor version
            assert re.fullmatch(r"\w+>=\d+[\d.]*,<\d+\.\d+", demanded), demanded
        else:
            assert found, f"{demanded} has not both bounds"
            assert int(found[3]) - int(found[2]) in (1, 2), demanded


SHARED = {"resourcesync", "errors", "gunzip", "__version__"}
FRAME = {"options", "output", "root", "target", "terminal", "watched"}
"""What a client knows of the hub; its commands also know the frame of all commands."""


def test_the_client_knows_the_hubs_documents_and_errors_only():
    for path in (path for folder in CLIENT_ROOMS for path in sources(folder)):
        known = SHARED | {"cli", "sd_notify"} if is_command(path) else SHARED
        for name in imports(path):
            own = path.relative_to(CLIENT.parent).parts[0]
            others = {*CLIENTS} - {
                own,
                CLIENT.name,
            }  # the client knows neither, nor they each other
            assert name.partition(".")[0] not in others, path
            if name.startswith("rsnotify."):
                assert name.split(".")[1] in known, f"{path}: {name}"
            if name.startswith("rsnotify.cli."):
                assert name.split(".")[2] in FRAME, f"{path} imports a command of the hub: {name}"


def test_only_the_command_line_of_the_hub_knows_a_client_and_only_as_a_library():
    """Which commands the clients bring, its table says by name; nothing imports them otherwise."""
    for path in CODE:
        for name in imports(path):
            package, _, inside = name.partition(".")
            is_of_hub = path.is_relative_to(HUB)
            if package in CLIENTS and is_of_hub:
                assert (package, room_of(path)) == (CLIENT.name, "cli"), f"{path}: {name}"
            if package in CLIENTS and inside.split(".")[0] == "commands":
                assert (is_command(path), is_of_hub) == (True, False), f"{path}: {name}"


def test_the_frame_knows_no_command():
    for path in (HUB / "cli" / f"{name}.py" for name in FRAME):
        known = {name.split(".")[2] for name in imports(path) if name.startswith("rsnotify.cli.")}
        assert known <= FRAME, path


def test_every_module_of_commands_is_in_the_table():
    paths = [path for path in CODE if is_command(path) and "\ncommands = " in path.read_text()]
    names = {str(path.relative_to(ROOT)).removeprefix("clients/python/") for path in paths}
    named = {f"{module.replace('.', '/')}.py" for module, _ in COMMANDS.values()}
    assert named == names


def test_a_command_prints_nothing_that_steers_a_terminal():
    """JSON by `print_json` or `json_line`, lines by `echo`; the others print what is made safe."""
    direct = re.compile(r"(?:echo|say)\(\s*(?:msgspec\.)?json\.|yield msgspec\.json")
    printing = [path for path in CODE if "cli" in path.parts or is_command(path)]
    assert [path.name for path in printing if direct.search(path.read_text())] == []
    by_typer = {path.name for path in printing if "typer.echo(" in path.read_text()}
    assert by_typer == {
        "mirror_output.py",  # lines, and JSON of many at once
        "output.py",  # JSON, and tables with tabs
        "relay.py",  # SQL
        "root.py",  # errors, in colours
        "serve.py",  # its own settings and address
        "subscribe.py",  # XML, too
        "terminal.py",
    }


OF_OTHERS = {"_exit", "_extra", "_fields", "_replace", "_transport"}  # Python's own, so named
INSIDES = {
    "clients/python/tests/client/test_postgresql.py": {"_lock"},
    "clients/python/tests/client/test_publisher.py": {
        "_after_in_child",
        "_lock",
        "_sender",
        "_starting",
        "_store",
    },
    "tests/integration/test_closed_connections.py": {"_writer"},
    "tests/unit/test_several.py": {"_max_bytes", "_serving"},
    "tests/evidence/simulation/clients.py": {"_database", "_lock", "_planner"},
    "tests/evidence/simulation/loop.py": {"_cancelled", "_context"},
    "tests/evidence/simulation/virtual.py": {"_urandom"},
    "tests/evidence/simulation/world.py": {"_getaddrinfo"},
    "tests/evidence/soak/databases.py": {"_connect", "_connection", "_sock"},
    "tests/tools/workers.py": {"_tmp_path_factory"},
}
"""A fork that comes at the worst moment, a connection that is cut, a host that crashes: no public
step does that. Nor does pytest say otherwise where its folder is before a test asks."""


def test_tests_use_what_is_public():
    used = {
        str(path.relative_to(ROOT)): private_names(path) - OF_OTHERS
        for folder in TESTS
        for path in sources(folder)
        if re.search(r"(?<!\bself)(?<!\bcls)(?<!\braw)\._[a-z]", path.read_text())
    }
    assert {path: names for path, names in used.items() if names} == INSIDES


def private_names(path: Path) -> set[str]:
    """Of others: not of `self`, and not of `super()`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr)
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "raw"))
        if not isinstance(node.value, ast.Call)
    }


def test_servers_in_a_tests_own_loop_leave_no_connection_behind():
    """They are made in one place, which sees to it."""
    makes = re.compile(r"\b(start_server|start_unix_server|AppRunner|ServerRunner|TestServer)\(")
    found = {
        str(path.relative_to(ROOT))
        for folder in TESTS
        for path in sources(folder)
        if makes.search(path.read_text())
    }
    assert found == {"tests/support/stream_server.py"}


def test_tests_excuse_themselves_to_no_type_checker():
    """mypy checks the packages, and says there which excuse nobody needs; here none is read."""
    excuse = "type:" + " ignore"
    paths = [path for folder in TESTS for path in sources(folder)]
    assert [str(path.relative_to(ROOT)) for path in paths if excuse in path.read_text()] == []


def test_every_module_says_what_it_is_for():
    modules = [(path, nodes(path)[0]) for path in CODE]
    silent = [
        str(path.relative_to(ROOT))
        for path, module in modules
        if isinstance(module, ast.Module) and module.body and not ast.get_docstring(module)
    ]
    assert silent == []


def test_a_type_has_a_name_of_its_own():
    """Of the API's own documents and of Django's migrations aside: they are called what others
    call them."""
    names = [
        node.name
        for path in CODE
        if path != HUB / "openapi/schemas.py" and path.parent.name != "migrations"
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []
