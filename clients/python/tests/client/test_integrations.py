"""What the example applications do not show of the integrations."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from flask import Flask
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from rsnotify_client import InvalidSettings, Outbox, Publisher
from rsnotify_client.integrations.flask import RSNotify
from rsnotify_client.integrations.sqlalchemy import publish_model
from tests.support.amount import enough
from tests.support.hub_processes import accept, python, scripted_hub


class Base(DeclarativeBase):
    pass


class Told:
    """A session, and what is published of it."""

    def __init__(self, session: Session, publisher: Publisher, posted: list) -> None:
        self.session = session
        self._publisher = publisher
        self._posted = posted

    def add(self, name: str) -> "Paper":
        paper = Paper(name=name)
        self.session.add(paper)
        self.session.flush()
        return paper

    @property
    def locs(self) -> list[str]:
        self._publisher.flush(10)
        return [loc for request in self._posted for loc in request.locs]


class Paper(Base):
    __tablename__ = "papers"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


@pytest.fixture(scope="module")
def hub() -> Iterator[tuple[Publisher, list]]:
    with scripted_hub(accept) as (url, posted), Publisher(url) as publisher:
        publish_model(publisher, Paper, "a", loc=lambda paper: paper.name)
        yield publisher, posted


@pytest.fixture
def told(hub: tuple[Publisher, list]) -> Iterator[Told]:
    publisher, posted = hub
    posted.clear()
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield Told(session, publisher, posted)
    engine.dispose()


def test_what_a_session_commits_is_published_then_and_not_before(told):
    paper = told.add("1")
    assert told.locs == []
    told.session.commit()
    paper.name = "2"
    told.session.commit()
    told.session.delete(paper)
    told.session.commit()
    assert told.locs == ["1", "1", "2", "2"]  # the old address goes, too


def test_what_a_session_rolls_back_is_not_published(told):
    told.add("1")
    told.session.rollback()
    told.add("2")
    told.session.commit()
    assert told.locs == ["2"]


def test_a_savepoint_that_is_rolled_back_takes_its_changes_and_no_others(told):
    told.add("before")
    with suppress(ZeroDivisionError), told.session.begin_nested():
        told.add("within")
        with told.session.begin_nested():
            told.add("deeper")
        raise ZeroDivisionError
    with told.session.begin_nested():
        told.add("kept")
    assert told.locs == []
    told.session.commit()
    assert told.locs == ["before", "kept"]


def test_a_committed_savepoint_goes_with_its_transaction(told):
    with told.session.begin_nested():
        told.add("1")
    told.session.rollback()
    told.session.commit()
    assert told.locs == []


def test_a_change_that_finds_no_room_is_logged_and_its_commit_succeeds(caplog):
    class Note(Base):
        __tablename__ = "notes"

        id: Mapped[int] = mapped_column(primary_key=True)

    publisher = Publisher("http://127.0.0.1:9", queue_size=1, when_full="raise")
    publish_model(publisher, Note, "a", loc=lambda note: f"note {note.id}")
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Note(id=1), Note(id=2), Note(id=3)])
        session.commit()
    assert "not published: Change(loc='note 2'" in caplog.text
    assert "not published: Change(loc='note 3'" in caplog.text
    assert publisher.counters.waiting == 1
    with suppress(TimeoutError):
        publisher.close(0)
    engine.dispose()


def test_flask_needs_an_address():
    with pytest.raises(InvalidSettings, match="set RSNOTIFY_URL"):
        RSNotify(Flask("app"))


def flask_with(**settings: object) -> Flask:
    app = Flask("app")
    app.config.update({f"RSNOTIFY_{name}": value for name, value in settings.items()})
    return app


WHERE = {"URL": "http://127.0.0.1:9", "TOKEN": "a"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"URL": "http://a"},
            "^set RSNOTIFY_TOKEN in the app's configuration, or RSNOTIFY_ENABLED",
        ),
        (WHERE | {"OUTBX": "a.db"}, "^RSNOTIFY_OUTBX is no setting; did you mean OUTBOX[?]$"),
        (WHERE | {"COLOUR": 1}, "^RSNOTIFY_COLOUR is no setting$"),
        (WHERE | {"OUTBOX": "/nope/o.db"}, "^RSNOTIFY_OUTBOX is '/nope/o.db': its directory must"),
        (WHERE | {"OUTBOX": 5}, "^RSNOTIFY_OUTBOX must be text$"),
        (WHERE | {"TOKEN": b"secret"}, "^RSNOTIFY_TOKEN must be text$"),
        ({"ENABLED": "False"}, "^RSNOTIFY_ENABLED is 'False': must be True or False$"),
        (WHERE | {"ENABLED": 0}, "^RSNOTIFY_ENABLED is 0: must be True or False$"),
    ],
)
def test_flask_refuses_settings_with_which_changes_would_be_lost(settings, problem):
    with pytest.raises(InvalidSettings, match=problem):
        RSNotify(flask_with(**settings))


def test_flask_can_be_switched_off():
    app = Flask("app")
    app.config["RSNOTIFY_ENABLED"] = False
    rsnotify = RSNotify(app)
    rsnotify.start(app)
    with app.app_context():
        rsnotify.updated("a", "http://a/1")
        assert rsnotify.publisher.counters.waiting == 0


@contextmanager
def flask_without_hub() -> Iterator[RSNotify]:
    """Within an application of Flask whose hub is away."""
    app = flask_with(**WHERE)
    rsnotify = RSNotify(app)
    with app.app_context():
        yield rsnotify


def test_a_flask_request_that_finds_no_room_logs_it_and_succeeds(caplog):
    with flask_without_hub() as rsnotify, caplog.at_level(logging.ERROR):
        for number in range(10_001):
            rsnotify.updated("a", str(number))
        with suppress(TimeoutError):
            rsnotify.publisher.close(0)
    assert "not published: Change(loc='10000'" in caplog.text


def test_a_flask_request_after_the_end_of_the_publisher_logs_it_and_succeeds(caplog):
    with flask_without_hub() as rsnotify, caplog.at_level(logging.ERROR):
        rsnotify.publisher.close()
        rsnotify.updated("a", "http://a/1")
    assert "not published: Change(loc='http://a/1'" in caplog.text


def test_two_first_requests_of_django_at_once_share_a_publisher():
    program = (
        "import threading\n"
        "from django.conf import settings\n"
        "settings.configure(RSNOTIFY={'URL': 'http://127.0.0.1:9', 'TOKEN': 'a'})\n"
        "from rsnotify_client.integrations import django\n"
        "make, both, got = django.Publisher, threading.Barrier(2), []\n"
        "def slow(*words, **options):\n"
        "    both.wait(60)\n"
        "    return make(*words, **options)\n"
        "django.Publisher = slow\n"
        "request = lambda: got.append(django.publisher())\n"
        "threads = [threading.Thread(target=request) for _ in range(2)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "print(got[0] is got[1] is django.publisher())\n"
    )
    out, errors = python("-c", program).communicate(timeout=200)
    assert out == "True\n", errors


DJANGO = """
import sys, json, threading
import django
from django.conf import settings
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
settings.configure(RSNOTIFY=json.loads(sys.argv[1]), DATABASES={"default": database})
django.setup()
from django.core.checks import run_checks
from django.db.transaction import atomic
from django.db import models
from django.db.models.signals import post_delete, post_save
from rsnotify.resourcesync.change import Change
from rsnotify_client.integrations.django import publish, publish_model, publisher, start
class Paper(models.Model):
    class Meta:
        app_label = "papers"
publish_model(Paper, "a")
"""
USE = """
start()
post_save.send(Paper, instance=Paper(), created=True, using="default", raw=False)
post_delete.send(Paper, instance=Paper(), using="default")
publish("a", Change("http://a/1", "updated"))
publisher().flush(10)
print(threading.active_count())
"""
NEEDS = 'settings.RSNOTIFY needs "{}"'
NO_SCHEME = "http:// or https:// is missing: write http://"


def says(name: str, what: str) -> str:
    return f'settings.RSNOTIFY: "{name}" {what}'


NO_ADDRESS = says("URL", f"is 'hub': {NO_SCHEME}hub")


def in_django(program: str, **settings: object) -> list[str]:
    out, errors = run_django(program, settings)
    assert not errors
    return out.splitlines()


def run_django(program: str, settings: object) -> tuple[str, str]:
    """What a program printed, and its errors."""
    return python("-c", DJANGO + program, json.dumps(settings)).communicate(timeout=200)


CHECKED = (
    ({}, [NEEDS.format(name) for name in ("URL", "TOKEN", "BASE_URL")]),
    (None, [NEEDS.format(name) for name in ("URL", "TOKEN", "BASE_URL")]),
    (["URL"], ["settings.RSNOTIFY must be a dict"]),
    (WHERE | {"URL": "hub", "BASE_URL": "http://a"}, [NO_ADDRESS]),
    ({"OUTBOX": "database"}, [NEEDS.format("BASE_URL")]),
    ({"ENABLED": False}, []),
    (WHERE | {"BASE_URL": ""}, []),
    (WHERE | {"BASE_URL": "a.b"}, [says("BASE_URL", "is 'a.b': " + NO_SCHEME + "a.b")]),
    (
        WHERE | {"BASE_URL": "", "OUTBOX": "/nope/o.db"},
        [says("OUTBOX", "is '/nope/o.db': its directory must exist")],
    ),
    ({"OUTBOX": "Database"}, [says("OUTBOX", "is 'Database': did you mean \"database\"?")]),
    ({"OUTBX": "a.db"}, [says("OUTBX", "is no setting; did you mean OUTBOX?")]),
    ({"ENABLED": "False"}, [says("ENABLED", "is 'False': must be True or False")]),
    ({"URL": 5}, [says("URL", "must be text")]),
)


def test_the_check_of_django_names_all_that_is_wrong():
    program = f"""
for settings.RSNOTIFY in {[each for each, _ in CHECKED]!r}:
    print(json.dumps([each.msg for each in run_checks()]))
"""
    said = [json.loads(line) for line in in_django(program)]
    assert list(zip([each for each, _ in CHECKED], said, strict=True)) == list(CHECKED)


def test_the_check_of_django_hints_at_the_mend_in_a_sentence():
    program = "print(*(each.hint for each in run_checks() if 'RSNOTIFY' in each.msg), sep='\\n')"
    hint = 'Set it, or set "ENABLED": False if nothing is to be published'
    assert in_django(program, OUTBOX="database") == [hint]


@pytest.mark.parametrize("outbox", enough([None, "database"], 1))
def test_django_can_be_switched_off(outbox):
    assert in_django(USE, ENABLED=False, OUTBOX=outbox) == ["1"]


WRONG_NAME = """
told = Change("a", "updated")
for call in (lambda: publish_model(Paper, "http://a"), lambda: publish("http://a", told)):
    try:
        call()
    except ValueError as error:
        print(error)
"""


def test_a_name_that_no_set_can_have_is_refused_where_it_is_written():
    told = in_django(WRONG_NAME, URL="http://127.0.0.1:9")
    assert len(told) == 2
    assert all("is not a valid name for a set" in line for line in told)
    with pytest.raises(ValueError, match="is not a valid name"):
        publish_model(Outbox(), Paper, "http://a", loc=str)


@pytest.mark.parametrize(
    ("settings", "problem"),
    enough(
        [
            pytest.param(*each)
            for each in [
                (WHERE | {"OUTBX": "a.db"}, says("OUTBX", "is no setting; did you mean OUTBOX?")),
                (WHERE | {"ENABLED": "no"}, says("ENABLED", "is 'no': must be True or False")),
                ({"URL": "http://127.0.0.1:9"}, NEEDS.format("TOKEN")),
            ]
        ],
        1,
    ),
)
def test_django_publishes_nothing_with_settings_that_cannot_be_meant(settings, problem):
    assert in_django(TRY.format('publish("a", Change("http://a/1", "updated"))'), **settings) == [
        problem
    ]


def test_the_start_of_django_refuses_an_outbox_that_can_be_nowhere():
    problem = says("OUTBOX", "is '/nope/o.db': its directory must exist")
    assert in_django(TRY.format("start()"), **WHERE, OUTBOX="/nope/o.db") == [problem]


TRY = """
from django.core.exceptions import ImproperlyConfigured
try:
    {}
except ImproperlyConfigured as error:
    print(error)
"""


@pytest.mark.parametrize("within", enough(["with atomic():", "if True:"], 1))
def test_a_commit_of_django_succeeds_whose_outbox_fails_and_says_what_is_lost(within):
    publishing = f'{within}\n    publish("a", Change("http://a/1", "updated"))\nprint("committed")'
    out, errors = run_django(publishing, WHERE | {"OUTBOX": "/nope/o.db"})
    assert out == "committed\n", errors
    assert errors.startswith("not published: Change(loc='http://a/1'")
    assert "its directory must exist" in errors
    assert "Traceback" not in errors


def test_django_says_how_to_create_the_table_that_is_missing():
    publishing = 'publish("a", Change("http://a/1", "updated"))'
    _, errors = run_django(publishing, {"OUTBOX": "database"})
    assert 'OperationalError: no such table: rsnotify_outbox\nAdd "rsnotify_client' in errors


@pytest.mark.parametrize(
    ("base", "path", "loc"),
    [
        ("", "http://a/1", "http://a/1"),
        ("http://a/", "/1", "http://a/1"),
        ("", "/1", says("BASE_URL", "is empty, but /1 is no address")),
        (None, "http://a/1", NEEDS.format("BASE_URL")),
    ],
)
def test_the_address_of_a_django_model_may_be_whole(base, path, loc):
    class_ = f"Paper.get_absolute_url = lambda self: {path!r}\n"
    saving = "post_save.send(Paper, instance=Paper(), created=True, using='default', raw=False)"
    print_it = "import rsnotify_client.integrations.django as ours\n"
    print_it += "ours.publish = lambda set_name, change, using: print(change.loc)\n"
    assert in_django(class_ + print_it + TRY.format(saving), **WHERE, BASE_URL=base) == [loc]
