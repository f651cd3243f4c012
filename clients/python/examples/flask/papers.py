"""A repository of papers whose changes others can follow: Flask, SQLAlchemy and an outbox table.

    flask --app papers run     # serves GET, PUT and DELETE /papers/NAME
    flask --app papers load    # gives the hub all papers: at first, and after a restored backup

`rsnotify relay --database sqlite:///papers.db` publishes what was committed. RSNOTIFY_URL and
RSNOTIFY_TOKEN say where the hub is, SET and DATABASE where the papers are there and here, SITE how
others reach us.
"""

import os
from datetime import UTC, datetime
from urllib.parse import quote

import click
from flask import Flask, Response, abort, redirect, request
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from werkzeug.wrappers import Response as Answer

from rsnotify_client import Error, Outbox, Publisher
from rsnotify_client.integrations.sqlalchemy import load_model, publish_model

HUB = os.environ["RSNOTIFY_URL"]
SET = os.environ.get("SET", "dataset1")
SITE = os.environ.get("SITE", "http://127.0.0.1:5000")


# The table -------------------------------------------------------------------------------------


class Base(DeclarativeBase):
    pass


def now() -> datetime:
    return datetime.now(UTC)


class Paper(Base):
    __tablename__ = "papers"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    text: Mapped[str]
    is_public: Mapped[bool] = mapped_column(default=True)
    changed: Mapped[datetime] = mapped_column(default=now, onupdate=now)


engine = create_engine(os.environ.get("DATABASE", "sqlite:///papers.db"))
Base.metadata.create_all(engine)
Outbox.create(engine)  # with migrations: `rsnotify relay --print-sql` prints its SQL


# What others learn of it -----------------------------------------------------------------------


def address(paper: Paper) -> str:
    return f"{SITE}/papers/{quote(paper.name)}"


def described(paper: Paper) -> dict[str, object]:
    length = len(paper.text.encode())
    return {"lastmod": paper.changed, "length": length, "type": "text/plain"}


def is_public(paper: Paper) -> bool:
    return paper.is_public


publish_model(Outbox(), Paper, SET, address, described, when=is_public, naive="utc")


# The application -------------------------------------------------------------------------------

app = Flask(__name__)


def found(session: Session, name: str) -> Paper | None:
    return session.scalars(select(Paper).where(Paper.name == name)).one_or_none()


@app.get("/papers/<name>")
def read(name: str) -> Response:
    with Session(engine) as session:
        paper = found(session, name)
        if paper is None or not paper.is_public:
            abort(404)
        answer = Response(paper.text, mimetype="text/plain")
    answer.headers["Link"] = f'<{HUB}/{SET}/capabilitylist.xml>; rel="resourcesync"'
    return answer


@app.put("/papers/<name>")
def write(name: str) -> tuple[str, int]:
    """`?draft=yes` keeps it from the public; a paper without text is not saved."""
    with Session(engine) as session, session.begin():
        paper = found(session, name) or Paper(name=name)
        session.add(paper)
        paper.text = request.get_data(as_text=True)
        paper.is_public = request.args.get("draft") != "yes"
        session.flush()
        if not paper.text:
            abort(400)  # the transaction is rolled back, and nothing is published
    return "", 204


@app.delete("/papers/<name>")
def remove(name: str) -> tuple[str, int]:
    with Session(engine) as session, session.begin():
        paper = found(session, name)
        if paper is None:
            abort(404)
        session.delete(paper)
    return "", 204


@app.get("/.well-known/resourcesync")
def source_description() -> Answer:
    """Whoever knows our site only finds the hub's documents, and with them everything."""
    return redirect(f"{HUB}/.well-known/resourcesync")


@app.cli.command("load")
def load() -> None:
    """Make the public papers all that the hub knows of the set."""
    try:
        with Publisher(HUB, os.environ["RSNOTIFY_TOKEN"]) as publisher:
            loaded = load_model(publisher, engine, Paper)
    except Error as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{loaded.resources} papers: {loaded.created} created, {loaded.updated} updated")
