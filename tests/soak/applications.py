"""Random stories of applications that are killed: the hub holds what the database says is public.

With SQLAlchemy and with Django, on SQLite, and on PostgreSQL where `SOAK_POSTGRESQL` names a
database, whose tables `papers` and `rsnotify_outbox` are then dropped. `SOAK_STEPS` is how many
transactions each story has, `SOAK_SEED` where chance begins.
"""

import os
import tempfile
from pathlib import Path

from tests.applications import Story
from tests.client.hubs import HubProcess

STEPS = int(os.environ.get("SOAK_STEPS", "10000"))
SEED = int(os.environ.get("SOAK_SEED", "24"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        databases = [f"sqlite:///{folder}/papers.db"]
        if (given := os.environ.get("SOAK_POSTGRESQL")) is None:
            print("SOAK_POSTGRESQL is not set: not tried", flush=True)
        else:
            databases.append(given)
        for number, database in enumerate(databases):
            for orm in ("sqlalchemy", "django"):
                with HubProcess(Path(folder) / f"{orm}-{number}", orm) as hub:
                    ended = Story(hub, orm, database, SEED).run(STEPS)
                kind = database.partition(":")[0]
                print(f"{orm} on {kind}: {dict(ended.outcomes)}, ", end="")
                print(f"relay killed {ended.relays_killed} times, ", end="")
                print(f"compared {ended.comparisons} times", flush=True)
