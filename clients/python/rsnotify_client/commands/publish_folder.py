"""`rsnotify publish --dir`: a folder as a Source, once or for as long as it is watched.

Rules that hold here: a hub that has not had the folder yet gets all of it, as a load of the whole
state; what changes afterwards waits in the state's outbox until the hub has it. What could not be
read, is held back or still being written is named, and is no success.
"""

import logging
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import quote

import msgspec

from rsnotify.cli.output import counted
from rsnotify.cli.root import wrong_use
from rsnotify.cli.target import hub_at
from rsnotify.cli.terminal import echo
from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.commands.relay import rung_by_signals
from rsnotify_client.commands.resources import LoadedFiles
from rsnotify_client.folder import Folder, Look
from rsnotify_client.loading import NDJSON, LoadRequest, load, position
from rsnotify_client.queue import OutboxError
from rsnotify_client.relay import Relay
from rsnotify_client.token import Token

log = logging.getLogger(__name__)

SETTLE_SECONDS = 30.0
"""How long files that are being written are waited for, without --watch."""
LOOK_SECONDS = 0.5
PAUSE_SECONDS = 1.0
"""Between two looks of --watch; five times as long as a look takes, if that is more."""
FLUSH_SECONDS = 60.0


class FolderSource(NamedTuple):
    """What the options of the command say."""

    folder: Path
    base: str
    state: Path | None
    max_delete: float
    watches: bool


def publish_folder(url: str, token: Token | None, set_name: str, options: FolderSource) -> None:
    """Publish what is new; with `watches`, go on until SIGTERM or Ctrl-C."""
    opened = Folder(options.folder, options.base, set_name, options.state)
    with closing(opened) as folder, folder.checked():
        publishing = Publishing(url, token, set_name, folder, options)
        publishing.begin()
        with wrong_use(ValueError):
            relay = Relay(
                f"sqlite:///{quote(str(folder.state.absolute()))}",
                url,
                token,
                on_refused=lambda refused: publishing.refused.append(refused.change.loc),
            )
        with closing(relay):
            relay.start()
            if options.watches:
                publishing.watch(relay)
            else:
                publishing.finish(relay)


@dataclass(repr=False, eq=False)
class Publishing:
    """One run of the command."""

    url: str
    token: Token | None
    set_name: str
    folder: Folder
    options: FolderSource
    refused: list[str] = field(default_factory=list)
    _found: Counter[str] = field(default_factory=Counter)
    _said: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Load the whole state, if the hub has not had it."""
        if self.folder.is_loaded(self.url):
            return
        with hub_at(self.url, self.token) as hub:
            as_of = position(hub, self.set_name)
        look = self._settled(is_loaded=False)
        if look.held_back or look.unread:
            raise Rejected("nothing was loaded: " + "; ".join(_problems(look)))
        if not look.files and self.options.max_delete < 100:
            raise Rejected(
                f"{self.options.folder} has no file to publish: is it mounted? If it is meant to "
                "be empty, say so with --max-delete 100"
            )
        self.folder.forget_changes()
        with tempfile.NamedTemporaryFile(suffix=".ndjson") as file:
            self._write_resources(file)
            outcome = self._load(Path(file.name), as_of)
        self.folder.has_loaded(self.url)
        self._found.clear()
        counts = {name: outcome[name] for name in ("created", "updated", "deleted")}
        loaded = counted(outcome["resources"], "resource")
        echo(f"loaded {loaded}: {_counted(Counter(counts))}")

    def _write_resources(self, file: "IO[bytes]") -> None:
        for loc, fields in self.folder.resources():
            file.write(msgspec.json.encode({"loc": loc, **fields}) + b"\n")
        file.flush()

    def _load(self, path: Path, as_of: str) -> dict[str, int]:
        body = LoadedFiles([path], {"Content-Type": NDJSON}).body()
        wanted = LoadRequest(max_delete=self.options.max_delete, as_of=as_of)
        return load(self.url, self.token, self.set_name, body, wanted)

    def finish(self, relay: Relay) -> None:
        """Publish what changed until now; what is left undone is no success."""
        look = self._settled(is_loaded=True)
        try:
            relay.flush(FLUSH_SECONDS)
        except (TimeoutError, OutboxError) as error:
            raise TryAgain(f"{error}; the next run publishes them") from None
        echo(f"{counted(look.files, 'file')}: {_counted(self._found)}")
        problems = _problems(look)
        if self.refused:
            problems.append(f"the hub refused {counted(len(self.refused), 'change')}; see above")
        if problems:
            raise Rejected("; ".join(problems))

    def _settled(self, *, is_loaded: bool) -> Look:
        """Look until no file is being written."""
        until = time.monotonic() + SETTLE_SECONDS
        while (look := self._looked(is_loaded=is_loaded)).unsettled and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        return look

    def _looked(self, *, is_loaded: bool) -> Look:
        look = self.folder.look(max_delete=self.options.max_delete, is_loaded=is_loaded)
        self._found += look.found
        for each in look.left_out:
            self._say(f"left out: {each}")
        return look

    def watch(self, relay: Relay) -> None:
        ended = rung_by_signals()
        echo(f"rsnotify publish ready, watching {self.options.folder}")
        pause = 0.0
        while not ended.wait(pause):
            began = time.monotonic()
            look = self._looked(is_loaded=True)
            if look.found.total():
                relay.wake()
                log.info("to publish: %s", _counted(look.found))
            for problem in _problems(look._replace(unsettled=[])):
                self._say(problem)
            self._said &= {*_problems(look), *(f"left out: {each}" for each in look.left_out)}
            pause = max(PAUSE_SECONDS, 5 * (time.monotonic() - began))

    def _say(self, text: str) -> None:
        """Once, as long as it stays so."""
        if text not in self._said:
            log.warning("%s", text)
            self._said.add(text)


def _problems(look: Look) -> list[str]:
    problems = [f"cannot read {each}" for each in _first(look.unread)]
    problems += [f"{each} is still being written" for each in _first(look.unsettled)]
    if look.held_back is not None:
        problems.append(f"nothing was deleted, for it would be {look.held_back}")
    return problems


def _first(names: Sequence[str], count: int = 3) -> list[str]:
    more = len(names) - count
    return [*names[:count], *([f"{more} more"] if more > 0 else [])]


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{found[kind]} {kind}" for kind in ("created", "updated", "deleted"))
