"""Faults that the code once had, or could have, put back on purpose: does the simulation find them?

    python -m tests.simulation --fault forgotten_key

Each is a few lines of the code as they are, and what they become; in which file they are does not
matter. `test_histories.py` fails when no file has the lines any more: then they are mended here.
Found within seconds: forgotten_key, head_too_early, clock_back, refusal_taken_for_success. The
scenarios do not reach the others yet.
"""

from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2] / "rsnotify"


class Fault(NamedTuple):
    """Lines that only one file has, what to put there, and the scenario that is about it."""

    scenario: str
    old: str
    new: str

    def broken(self) -> tuple[Path, str]:
        """The file, and its text with the fault."""
        files = (path for kind in ("py", "lua") for path in ROOT.rglob(f"*.{kind}"))
        having = [(path, text) for path in files if self.old in (text := path.read_text())]
        assert len(having) == 1, f"{len(having)} files, not one, have: {self.old}"
        path, text = having[0]
        assert text.count(self.old) == 1, f"{path} has more than once: {self.old}"
        return path, text.replace(self.old, self.new)


FAULTS = {
    # A request that is repeated is stored again.
    "forgotten_key": Fault(
        "cut_answers",
        "  if known then\n    answers",
        "  if known and false then\n    answers",
    ),
    # A set turns private between a reader's admission and its place in the channel.
    "admitted_before": Fault(
        "private_set",
        "                self._check_unchanged(entry.admitted.sets)\n",
        "",
    ),
    # A lease that was renewed in the second in which it ended is lost.
    "renewal_lost": Fault(
        "renewed_lease",
        "local stays = lease_end and lease_end ~= pairs_[i + 1]",
        "local stays = false",
    ),
    # The change before one's own is not remembered, though nobody else may know of it.
    "unknown_neighbour": Fault(
        "lost_and_repeated",
        "rows = (*stored.before, *stored.rows)",
        "rows = stored.rows",
    ),
    # Readers behind a change that was lost and appended again wait for ever.
    "moved_change": Fault(
        "lost_and_repeated",
        "return found if is_done and await self._repairs.is_moved(feed.channel, cursor) else ()",
        "return ()",
    ),
    # A gap is announced while another process still remembers what was lost.
    "hasty_gap": Fault(
        "lost_and_repeated",
        "is_alone=waited >= OTHERS_SECONDS",
        "is_alone=True",
    ),
    # An error of a callback moves its cursor on.
    "refusal_taken_for_success": Fault(
        "refusing_receiver",
        "    if answer.succeeded:\n        return",
        "    if answer.status:\n        return",
    ),
    # A connection whose answer nobody waits for any more is used again.
    "answer_of_another": Fault(
        "slow_readers",
        '            self._end(ConnectionLost("nobody waits for the answers any more"))\n',
        "",
    ),
    # A reader that caught up is placed at the head without what came meanwhile.
    "head_too_early": Fault(
        "slow_readers",
        "        found = feed.tail.next_after(follower.cursor) if written < TURN_BYTES else None\n",
        "        found = None\n        follower.cursor = feed.tail.head\n",
    ),
    # What a process has made of changes that Redis lost is served on.
    "stale_list": Fault(
        "lost_and_repeated",
        "                    feed.losses += 1\n",
        "",
    ),
    # A repair is not held to one process at a time.
    "two_repairs": Fault(
        "lost_and_repeated",
        "if record[1] ~= ARGV[7] or redis.call('GET', KEYS[6]) ~= ARGV[11] then return 0 end",
        "",
    ),
    # Positions follow the clock of Redis, also when it goes back.
    "clock_back": Fault(
        "moved_clock",
        "  if own <= last then own = last + 1 end\n",
        "  if own == last then own = last + 1 end\n",
    ),
}


def plant(name: str) -> None:
    """Load the code with this fault; before anything of the hub is imported."""
    path, broken = FAULTS[name].broken()
    if path.suffix == ".py":
        _break_module(path, broken)
    else:
        _break_script(path, broken)


def _break_module(path: Path, broken: str) -> None:
    get_code = SourceFileLoader.get_code

    def patched(self: Any, name: str) -> Any:
        if Path(self.get_filename(name)) == path:
            return self.source_to_code(broken.encode(), str(path))
        return get_code(self, name)

    SourceFileLoader.get_code = patched  # type: ignore[assignment,method-assign]


def _break_script(path: Path, broken: str) -> None:
    read_text = Path.read_text

    def patched(self: Path, *arguments: Any, **options: Any) -> str:
        return broken if self == path else read_text(self, *arguments, **options)

    Path.read_text = patched  # type: ignore[method-assign]
