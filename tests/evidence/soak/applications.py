"""Applications, relays and hubs are killed: the hub holds what the database says is public.

With SQLAlchemy and with Django, on SQLite, and on PostgreSQL and MariaDB where they are installed,
or where `SOAK_POSTGRESQL` and `SOAK_MYSQL` name a database, whose tables `papers` and
`rsnotify_outbox` are then dropped. `SOAK_STEPS` is how many transactions each story has,
`SOAK_SEED` where chance begins.
"""

import json
import os
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import ClassVar

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, Session, mapped_column, relationship

from rsnotify_client import Outbox
from rsnotify_client.integrations.sqlalchemy import publish_model
from tests.evidence.soak.databases import urls
from tests.support.applications import Base, Story, connection_to, create_tables, engine_of
from tests.support.hub_processes import HubProcess


class Author(Base):
    __tablename__ = "authors"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(50))


class Work(Base):
    """Loaded by outer joins, none of which PostgreSQL can lock."""

    __tablename__ = "works"

    id: Mapped[int] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(String(50))
    kind: Mapped[str] = mapped_column(String(50), default="work")
    author_id: Mapped[int] = mapped_column(ForeignKey("authors.id"))
    author: Mapped[Author] = relationship(lazy="joined")
    __mapper_args__: ClassVar[dict[str, str]] = {
        "polymorphic_on": "kind",
        "polymorphic_identity": "work",
        "with_polymorphic": "*",
    }


class Thesis(Work):
    __tablename__ = "theses"

    id: Mapped[int] = mapped_column(ForeignKey("works.id"), primary_key=True)
    grade: Mapped[int] = mapped_column(default=1)
    __mapper_args__: ClassVar[dict[str, str]] = {"polymorphic_identity": "thesis"}


publish_model(Outbox(), Work, "works", loc=lambda work: f"{work.author.name}/{work.slug}")

STEPS = int(os.environ.get("SOAK_STEPS", "10000"))
SEED = int(os.environ.get("SOAK_SEED", "24"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        databases = [f"sqlite:///{folder}/papers.db", *urls(Path(folder), servers)]
        for number, database in enumerate(databases):
            joined_tables(database)
            for orm in ("sqlalchemy", "django"):
                with HubProcess(Path(folder) / f"{orm}-{number}", orm) as hub:
                    ended = Story(hub, orm, database, SEED).run(STEPS)
                kind = database.partition(":")[0]
                print(f"{orm} on {kind}: {dict(ended.outcomes)}, ", end="")
                print(f"relay killed {ended.relays_killed} times, ", end="")
                print(f"hub {ended.hubs_killed} times, ", end="")
                print(f"compared {ended.comparisons} times", flush=True)


def joined_tables(database: str) -> None:
    """A model of several tables is published by its old address and its new one."""
    create_tables(database)
    engine = engine_of(database)
    with Session(engine) as session:
        thesis = Thesis(slug="1", author=Author(name="ann"))
        session.add(thesis)
        session.commit()
        thesis.slug = "2"
        session.commit()
        thesis.author = Author(name="bob")
        session.commit()
        thesis.grade = 2
        session.commit()
        session.delete(thesis)
        session.commit()
    engine.dispose()
    with closing(connection_to(database)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT body FROM rsnotify_outbox ORDER BY id")
        told = [json.loads(body) for (body,) in cursor.fetchall()]
    assert [(each["change"], each["loc"]) for each in told] == [
        ("created", "ann/1"),
        ("deleted", "ann/1"),
        ("created", "ann/2"),
        ("deleted", "ann/2"),
        ("created", "bob/2"),
        ("updated", "bob/2"),
        ("deleted", "bob/2"),
    ]
