"""The image that the Dockerfile makes: built from its context, and used as docker-compose.yml does.

No container engine is needed, and none is there: what it alone can do, `make images` shows.
"""

import asyncio
import fcntl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

from rsnotify.process.embedded_redis.binaries import find_binary
from rsnotify_client import Outbox
from tests.evidence.soak import databases
from tests.support import postgresql
from tests.support.contained import contained
from tests.support.faults import OwnRedis
from tests.support.files import source_of_files
from tests.support.hub_processes import eventually
from tests.support.image import ROOT, Image, context, lets_in, rules_of
from tests.support.redis_server import free_port
from tests.support.running import TOKEN
from tests.unit.test_deployment import HUB, defaults, of_kubernetes

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
CLIENTS = yaml.safe_load((ROOT / "docs/operations/compose-clients.yml").read_text())["services"]
READY = "rsnotify ready "
LOC = "http://example.com/res1"

PROBE = "import os, tempfile; print(os.getuid()); tempfile.gettempdir()"


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Image:
    """Built once, whichever test needs it first."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "image"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Image(folder)


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a Redis with the options of docker-compose.yml."""
    port = free_port()
    _, *options = COMPOSE["redis"]["command"].replace('""', "''").split()
    options = ["" if each == "''" else each for each in options]
    async with OwnRedis(tmp_path, *options, "--port", str(port), "--bind", "127.0.0.1"):
        yield f"redis://127.0.0.1:{port}/0"


def environment_of(service: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: defaults(value) for name, value in service["environment"].items()}


@contextmanager
def serving(
    image: Image, redis: str, before: Sequence[str] = (), **given: str
) -> Iterator[dict[str, str]]:
    """A hub of the image, with the environment of docker-compose.yml unless another is given.

    Yields the environment of its clients.
    """
    of_compose = environment_of(COMPOSE["hub"]) | {"RSNOTIFY_REDIS_URL": redis}
    environment = image.environment | (given or of_compose) | {"RSNOTIFY_ADMIN_TOKEN": TOKEN}
    words = image.command(*image.words, "--host", "127.0.0.1", "--port", "0")
    with subprocess.Popen(
        [*before, *words], env=environment, cwd="/tmp", stdout=subprocess.PIPE, text=True
    ) as hub:
        assert hub.stdout is not None
        line = hub.stdout.readline()
        try:
            assert line.startswith(READY), line
            url = line.removeprefix(READY).strip()
            yield image.environment | {"RSNOTIFY_URL": url, "RSNOTIFY_TOKEN": TOKEN}
        finally:
            hub.terminate()
    assert hub.returncode == 0


def run(image: Image, environment: dict[str, str], *words: str) -> str:
    command = image.command(*words)
    return subprocess.run(
        command, env=environment, cwd="/tmp", check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def publish_once(image: Image, environment: dict[str, str]) -> None:
    """With the commands of the image; the Change List has it then."""
    run(image, environment, "rsnotify", "sets", "add", "dataset1")
    run(image, environment, "rsnotify", "publish", "dataset1", LOC)
    with urlopen(f"{environment['RSNOTIFY_URL']}/dataset1/changelist.xml") as document:
        assert f"<loc>{LOC}</loc>" in document.read().decode()


def test_a_hub_of_the_image_publishes(image, redis):
    with serving(image, redis) as environment:
        publish_once(image, environment)


def test_the_image_has_the_code_of_the_wheel_and_not_of_these_tests(image):
    where = "import rsnotify, rsnotify_mirror; print(rsnotify.__file__, rsnotify_mirror.__file__)"
    for path in run(image, image.environment, "python", "-c", where).split():
        assert path.startswith(f"{image.folder}/opt/rsnotify/")


def test_it_serves_as_another_user_who_may_write_nowhere(image, redis):
    before = contained(image.user)
    tried = subprocess.run(
        [*before, *image.command("python", "-c", PROBE)],
        env=image.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.stdout == f"{image.user}\n"
    assert "No usable temporary directory" in tried.stderr
    with serving(image, redis, before) as environment:
        publish_once(image, environment)


def test_its_health_check_knows_a_hub_that_is_ready_from_one_that_is_gone(image, redis):
    with serving(image, redis) as environment:
        port = environment["RSNOTIFY_URL"].rpartition(":")[2]
        words = image.command(*(word.replace(":8080", f":{port}") for word in image.health))
        assert subprocess.run(words, env=image.environment, check=False).returncode == 0
    gone = subprocess.run(words, env=image.environment, check=False, capture_output=True)
    assert gone.returncode == 1


def test_the_relay_of_compose_clients_writes_nowhere_and_publishes(image, redis):
    before = contained(image.user)
    with postgresql.running() as database, serving(image, redis) as environment:
        databases.prepare(database)
        run(image, environment, "rsnotify", "sets", "add", "dataset1")
        environment |= {"RSNOTIFY_DATABASE": database}
        assert (
            environment.keys() - image.environment.keys() == CLIENTS["relay"]["environment"].keys()
        )
        words = [*before, *image.command(*CLIENTS["relay"]["command"])]
        with subprocess.Popen(words, env=environment, cwd="/tmp") as relay:
            with closing(databases.connect(database)) as connection:
                Outbox().created(connection, "dataset1", LOC)
                connection.commit()
            until_said(f"{environment['RSNOTIFY_URL']}/dataset1/changelist.xml", LOC)
            relay.terminate()
        assert relay.returncode == 0


@pytest.mark.evidence
def test_the_mirror_of_compose_clients_writes_only_its_copy(image, tmp_path):
    user = int(defaults(CLIENTS["mirror"]["user"]).partition(":")[0])
    copy = tmp_path / "copy"
    before = contained(user, copy)
    with source_of_files(tmp_path) as url:
        places = {"/copy": str(copy), defaults(CLIENTS["mirror"]["command"][2]): url}
        words = [places.get(defaults(word), word) for word in CLIENTS["mirror"]["command"]]
        with subprocess.Popen([*before, *image.command(*words)], env=image.environment) as mirror:
            eventually(lambda: [each.name for each in copy.rglob("*.txt")] == ["a.txt"], 60)
            mirror.terminate()
        assert mirror.returncode == 130


@pytest.mark.evidence
def test_the_bridge_of_compose_clients_writes_only_beside_its_configuration(image, redis, tmp_path):
    service = CLIENTS["bridge"]
    with (
        tempfile.TemporaryDirectory() as folder,  # pytest's is root's alone
        source_of_files(tmp_path) as url,
        serving(image, redis) as environment,
    ):
        Path(folder).chmod(0o755)
        own = Path(folder) / "bridge"
        before = contained(int(defaults(service["user"]).partition(":")[0]), own)
        run(image, environment, "rsnotify", "sets", "add", "dataset1")
        (own / "bridges.toml").write_text(f'[[bridge]]\nfrom = "{url}/"\nset = "dataset1"\n')
        assert environment.keys() - image.environment.keys() == service["environment"].keys()
        words = [word.replace("/bridge/", f"{own}/") for word in service["command"]]
        with subprocess.Popen([*before, *image.command(*words)], env=environment) as bridge:
            counted = f"{environment['RSNOTIFY_URL']}/api/sets/dataset1/resources"
            until_said(counted, '"resources":1')
            bridge.terminate()
        assert bridge.returncode == 130
        assert (own / "bridge.db").is_file()


def until_said(url: str, text: str) -> None:
    def is_said() -> bool:
        with urlopen(url) as answer:
            return text in answer.read().decode()

    eventually(is_said, 60)


def test_the_hub_of_kubernetes_publishes_to_the_valkey_of_kubernetes(image, tmp_path):
    """With the environment, the arguments and the users of kubernetes.yaml."""
    pod = of_kubernetes("StatefulSet", "rsnotify-valkey")["spec"]["template"]["spec"]
    (valkey,) = pod["containers"]
    (volume,) = valkey["volumeMounts"]
    data, port, password = tmp_path / "data", free_port(), "a long password"
    binary = asyncio.run(find_binary(tmp_path, None))
    (script,) = valkey["args"]
    script = script.replace("valkey-server", f"{binary.path} --port {port} --bind 127.0.0.1")
    words = [*valkey["command"], script.replace(volume["mountPath"], str(data))]
    secret = {"REDIS_PASSWORD": password}
    given = {each["name"]: each.get("value", TOKEN) for each in HUB["env"]} | secret
    given["RSNOTIFY_REDIS_URL"] = (
        given["RSNOTIFY_REDIS_URL"]
        .replace("$(REDIS_PASSWORD)", quote(password))
        .replace("rsnotify-valkey:6379", f"127.0.0.1:{port}")
    )
    before = contained(pod["securityContext"]["runAsUser"], data)
    with subprocess.Popen([*before, *words], env=image.environment | secret, cwd="/") as running:
        try:
            with serving(image, "", contained(image.user), **given) as environment:
                publish_once(image, environment)
        finally:
            running.terminate()
    assert running.returncode == 0
    assert [*data.glob("appendonlydir/*.incr.aof")]


@pytest.mark.evidence
def test_an_image_with_all_that_pip_fetches_publishes(redis):
    with tempfile.TemporaryDirectory() as folder:
        image = Image(Path(folder), fetches=True)
        run(image, image.environment, "python", "-c", "import psycopg, pymysql")
        with serving(image, redis) as environment:
            publish_once(image, environment)


# The context ------------------------------------------------------------------------------------


def test_the_context_has_the_code_and_no_more():
    folders = {each.parts[0] for each in context(ROOT)}
    assert folders == {"LICENSE", "README.md", "clients", "pyproject.toml", "rsnotify"}


@pytest.mark.parametrize(
    ("path", "is_let_in"),
    [
        ("tests/conftest.py", False),
        ("clients/python/a.py", True),
        ("clients/javascript/a.js", False),
        ("clients/python/deep/er/__pycache__/a.pyc", False),
        ("__pycache__/a.pyc", False),
        ("clients/python/a.pyc", True),
        ("README.md", True),
        ("README.mdx", False),
    ],
)
def test_the_last_rule_about_a_path_or_a_folder_above_it_decides(path, is_let_in):
    rules = rules_of(
        "# none\n*\n!README.md\n!clients\nclients/*\n!clients/python\n**/__pycache__\n"
    )
    assert lets_in(rules, PurePosixPath(path)) is is_let_in
