"""Papers in a database; a change is published exactly if it was committed: `python app.py FILE`.

Reads commands from stdin, one transaction a line: `add NAME`, `edit NAME`, `drop NAME`; a line that
ends in `!` is rolled back. `load all` loads what the database has. RSNOTIFY_URL and RSNOTIFY_TOKEN
say where the hub is.
"""

import os
import sys

from sqlalchemy import Engine, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from rsnotify_client import Outbox, Publisher, Relay
from rsnotify_client.integrations.sqlalchemy import load_model, publish_model


class Base(DeclarativeBase):
    pass


class Paper(Base):
    __tablename__ = "papers"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    edition: Mapped[int] = mapped_column(default=1)


publish_model(Outbox(), Paper, "dataset1", loc=lambda paper: f"http://example.com/{paper.name}")


def obey(session: Session, command: str, name: str) -> None:
    if command == "add":
        session.add(Paper(name=name))
        return
    paper = session.scalars(select(Paper).where(Paper.name == name)).one()
    if command == "edit":
        paper.edition += 1
    else:
        session.delete(paper)


def load(engine: Engine) -> None:
    with Publisher(os.environ["RSNOTIFY_URL"], os.environ.get("RSNOTIFY_TOKEN")) as publisher:
        load_model(publisher, engine, Paper)


def main(path: str) -> None:
    engine = create_engine(f"sqlite:///{path}")
    Outbox.create(engine)
    Base.metadata.create_all(engine)
    relay = Relay(f"sqlite:///{path}", os.environ["RSNOTIFY_URL"], os.environ.get("RSNOTIFY_TOKEN"))
    with relay:
        for line in sys.stdin:
            command, name = line.split()
            if command == "load":
                load(engine)
                continue
            with Session(engine) as session:
                obey(session, command, name.rstrip("!"))
                session.flush()
                if not name.endswith("!"):
                    session.commit()
                    relay.wake()
        relay.flush(10)


if __name__ == "__main__":
    main(sys.argv[1])
