"""The publisher against a real hub: what stands in the journal in the end."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from rsnotify import cli
from rsnotify_client import Publisher
from tests.evidence.soak.publishing import kills
from tests.support.amount import enough
from tests.support.hub_processes import HubProcess, eventually, python
from tests.support.redis_server import free_port
from tests.support.running import TOKEN

EXAMPLES = Path(__file__).parents[4] / "clients/python/examples"
LIST = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'


def test_a_few_lines_publish_what_happened(real_hub, set_name):
    with Publisher(real_hub.url, TOKEN) as publisher:
        publisher.created(set_name, "http://example.com/1", length=8876, type="text/html")
        publisher.updated(set_name, "http://example.com/1")
        publisher.deleted(set_name, "http://example.com/1")
    assert real_hub.told(set_name) == [("created", "1"), ("updated", "1"), ("deleted", "1")]


def test_one_bad_change_of_many_is_refused_alone(real_hub, set_name):
    refused: list[Any] = []
    with Publisher(real_hub.url, TOKEN, on_refused=refused.append) as publisher:
        for number in range(300):
            bad = number % 3 == 0
            publisher.updated(set_name, "nonsense" if bad else f"http://example.com/{number}")
    assert [name for _, name in real_hub.told(set_name)] == [str(n) for n in range(300) if n % 3]
    assert len(refused) == 100
    assert "loc is 'nonsense'" in refused[0].reason


def test_the_command_publishes_what_changed_between_two_lists(real_hub, set_name, tmp_path):
    urls = {name: f"<url><loc>http://example.com/{name}</loc></url>" for name in "ab"}
    for name, content in (("old", urls["a"]), ("new", urls["b"])):
        (tmp_path / name).write_text(LIST.format(content))
    words = ("publish", set_name, "--between", str(tmp_path / "old"), str(tmp_path / "new"))
    run = CliRunner(env=environment(real_hub)).invoke
    refused = run(cli.app, words)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert str(refused.exception).endswith(
        "say so with max_delete=100 (in a command: --max-delete 100)"
    )
    ended = run(cli.app, [*words, "--max-delete", "100"])
    assert ended.stdout.startswith("accepted 2 changes between "), ended.output
    assert real_hub.told(set_name) == [("deleted", "a"), ("created", "b")]


# The example applications ----------------------------------------------------------------------


def ask(method: str, url: str, body: bytes = b"") -> int:
    try:
        with urlopen(Request(url, body, method=method)) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def address_in(lines: Any) -> str:
    """Where the application says that it is."""
    return next(
        word.rstrip("/") for line in lines for word in line.split() if word.startswith("http://")
    )


def environment(hub: HubProcess, **more: str) -> dict[str, str]:
    return {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1"} | more


def test_the_flask_example_publishes_what_an_earlier_process_left(real_hub, set_name, tmp_path):
    outbox = str(tmp_path / "outbox")
    code = (
        "import os, sys; from rsnotify_client import Publisher; "
        "publisher = Publisher('http://127.0.0.1:9', outbox=sys.argv[1]); "
        "publisher.created(sys.argv[2], 'http://a/left'); "
        "os._exit(0)"
    )
    python("-c", code, outbox, set_name).communicate()
    words = ("-m", "flask", "--app", str(EXAMPLES / "flask/app.py"), "run", "--port", "0")
    process = python(*words, **environment(real_hub, OUTBOX=outbox))
    address_in(process.stderr)  # it runs
    eventually(lambda: real_hub.told(set_name) == [("created", "left")])
    process.terminate()
    process.communicate()


def test_the_flask_example_publishes(real_hub, tmp_path):
    before = len(real_hub.told())
    app = EXAMPLES / "flask/app.py"
    words = ("-m", "flask", "--app", str(app), "run", "--port", "0")
    process = python(*words, **environment(real_hub, OUTBOX=str(tmp_path / "outbox")))
    url = address_in(process.stderr)
    statuses = [
        ask(method, f"{url}/papers/one", b"text") for method in ("PUT", "PUT", "DELETE", "DELETE")
    ]
    eventually(lambda: len(real_hub.told()) == before + 3)
    process.terminate()
    process.communicate()
    assert statuses == [201, 204, 204, 404]
    told = real_hub.journal()[before:]
    assert [change.change for change in told] == ["created", "updated", "deleted"]
    assert told[0].loc == f"{url}/papers/one"
    assert told[0].length == 4


@pytest.mark.evidence
@pytest.mark.parametrize("outbox", ["", "outbox"])
def test_workers_of_gunicorn_publish_all_once_though_they_end_one_after_another(
    real_hub, tmp_path, outbox
):
    before = len(real_hub.told())
    seen = tmp_path / "seen"
    more = {"OUTBOX": str(tmp_path / outbox)} if outbox else {}
    process = gunicorn("flask", "app:app", seen, **environment(real_hub, **more))
    url = address_in(process.stderr)
    names = [f"paper{number}" for number in range(60)]
    with ThreadPoolExecutor(3) as many:
        statuses = set(many.map(lambda name: ask("PUT", f"{url}/papers/{name}", b"a"), names))
    eventually(lambda: len(real_hub.told()) >= before + len(names))
    process.terminate()
    process.communicate()
    assert statuses == {201}
    assert sorted(real_hub.told()[before:]) == sorted(("created", name) for name in names)
    assert len(set(seen.read_text().split())) >= 3


def gunicorn(folder: str, app: str, seen: Path, **environ: str) -> Any:
    """Three workers at a time, forked from one; which served a request is noted."""
    words = ["-m", "gunicorn", "--preload", "--chdir", str(EXAMPLES / folder), app]
    words += ["--bind", "127.0.0.1:0", "--workers", "3", "--max-requests", "5"]
    words += ["--access-logfile", str(seen), "--access-logformat", "%(p)s"]
    return python(*words, **environ)


@pytest.mark.parametrize("outbox", enough(["database", ""], 1))
def test_the_django_example_publishes_what_is_committed(real_hub, tmp_path, outbox):
    before = len(real_hub.told())
    manage = str(EXAMPLES / "django/manage.py")
    database = tmp_path / "papers.db"
    environ = environment(
        real_hub, DATABASE=str(database), **({"OUTBOX": outbox} if outbox else {})
    )
    migrated = python(manage, "migrate", "--verbosity", "0", **environ)
    assert migrated.communicate()[1] == ""
    process = python(manage, "runserver", "--noreload", "127.0.0.1:0", **environ)
    url = f"{address_in(process.stdout)}/papers"
    requests = [("PUT", "one", b"text"), ("PUT", "two", b""), ("PUT", "one", b"more")]
    statuses, published = [], before
    for method, name, content in (*requests, ("DELETE", "one", b"")):
        statuses.append(ask(method, f"{url}/{name}", content))
        published += name == "one"
        eventually(lambda: len(real_hub.told()) == published)  # noqa: B023
    process.terminate()
    process.communicate()
    assert statuses == [204, 400, 204, 204]
    told = real_hub.journal()[before:]
    assert [change.change for change in told] == ["created", "updated", "deleted"]
    assert told[0].loc == "http://127.0.0.1:8000/papers/one"


@pytest.mark.evidence
def test_the_relay_of_the_django_example_publishes_what_workers_of_gunicorn_commit(
    real_hub, tmp_path
):
    before = len(real_hub.told())
    seen, database = tmp_path / "seen", str(tmp_path / "papers.db")
    environ = environment(real_hub, DATABASE=database, OUTBOX="database")
    manage = str(EXAMPLES / "django/manage.py")
    assert python(manage, "migrate", "--verbosity", "0", **environ).communicate()[1] == ""
    process = gunicorn("django", "wsgi:application", seen, **environ)
    url = address_in(process.stderr)
    names = [f"paper{number}" for number in range(15)]
    for number, name in enumerate(names, 1):
        assert ask("PUT", f"{url}/papers/{name}", b"text") == 204
        eventually(lambda: len(real_hub.told()) == before + number)  # noqa: B023
    process.terminate()
    process.communicate()
    assert real_hub.told()[before:] == [("created", name) for name in names]
    assert len(set(seen.read_text().split())) >= 3


@contextmanager
def whole_flask(environ: dict[str, str], folder: Path, port: int) -> Iterator[None]:
    """The program with SQLAlchemy, and a relay beside it."""
    app = ("-m", "flask", "--app", str(EXAMPLES / "flask/papers.py"))
    serving = python(*app, "run", "--port", str(port), **environ)
    address_in(serving.stderr)
    database = f"sqlite:///{folder}/papers.db"
    relaying = python("-m", "rsnotify", "relay", "--database", database, **environ)
    yield
    loaded = python(*app, "load", **environ).communicate()
    assert loaded[0].startswith("1 papers: 0 created, 0 updated"), loaded
    for each in (serving, relaying):
        each.terminate()
        each.communicate()


@contextmanager
def whole_django(environ: dict[str, str], folder: Path, port: int) -> Iterator[None]:
    """The project, which publishes its outbox by itself."""
    manage = str(EXAMPLES / "django/manage.py")
    environ |= {"OUTBOX": "database", "DATABASE": str(folder / "papers.db")}
    assert python(manage, "migrate", "--verbosity", "0", **environ).communicate()[1] == ""
    serving = python(manage, "runserver", "--noreload", f"127.0.0.1:{port}", **environ)
    address_in(serving.stdout)
    yield
    loaded = python(manage, "load_papers", **environ).communicate()
    assert loaded[0] == "1 papers, 0 updated\n", loaded
    serving.terminate()
    serving.communicate()


@pytest.mark.evidence
@pytest.mark.parametrize("whole", [whole_flask, whole_django])
def test_a_whole_example_is_found_at_its_site_and_copied(whole, tmp_path):
    """From its table to the copy of somebody who knows nothing but the site."""
    port = free_port()
    site = f"http://127.0.0.1:{port}"
    with HubProcess(tmp_path / "data") as hub:
        database = f"sqlite:///{tmp_path}/papers.db"
        environ = environment(hub, SITE=site, DATABASE=database)
        with whole(environ, tmp_path, port):
            requests = [("PUT", "one", b"a text"), ("PUT", "two", b""), ("PUT", "one", b"other")]
            requests += [("PUT", "three", b"text"), ("DELETE", "three", b"")]
            statuses = [ask(way, f"{site}/papers/{name}", text) for way, name, text in requests]
            assert statuses == [204, 400, 204, 204, 204]
            eventually(lambda: hub.told()[-1:] == [("deleted", "three")])
            assert [*hub.told()[:2]] == [("created", "one"), ("updated", "one")]
            hub.ask("POST", "/api/sets/dataset1/snapshot", b"")
            copy = str(tmp_path / "copy")
            copied = CliRunner().invoke(cli.app, ["mirror", "--once", f"{site}/", copy])
            assert copied.exit_code == 0, copied.output
        (file,) = Path(copy).rglob("one")
        assert file.read_bytes() == b"other"


# Processes -------------------------------------------------------------------------------------


def test_workers_forked_from_a_process_that_made_the_publisher_each_publish(
    real_hub, set_name, tmp_path
):
    program = (
        "import os, sys\n"
        "from rsnotify_client import Publisher\n"
        "publisher = Publisher(sys.argv[1], sys.argv[2], outbox=sys.argv[4])\n"
        "children = []\n"
        "for who in range(4):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        for number in range(20):\n"
        "            publisher.updated(sys.argv[3], f'http://example.com/{who}-{number}')\n"
        "        publisher.close()\n"
        "        sys.exit()\n"
        "    children.append(child)\n"
        "print(max(os.waitpid(child, 0)[1] for child in children))\n"
    )
    outbox = str(tmp_path / "outbox")
    out, errors = python("-c", program, real_hub.url, TOKEN, set_name, outbox).communicate()
    assert out == "0\n", errors
    published = [name for _, name in real_hub.told(set_name)]
    for who in range(4):
        own = [name for name in published if name.startswith(f"{who}-")]
        assert own == [f"{who}-{number}" for number in range(20)]


@pytest.mark.evidence
def test_three_followers_hold_the_journal_while_hub_and_applications_are_killed(
    tmp_path, quick_retries
):
    assert kills(tmp_path, 2).endswith("three followers hold exactly the journal")
