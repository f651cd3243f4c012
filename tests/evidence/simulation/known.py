"""Faults that the code once had, or could have, put back on purpose: does the simulation find them?

    python -m tests.evidence.simulation --fault forgotten_key

Each is a few lines of the code as they are, and what they become; in which file they are does not
matter. `test_histories.py` fails when no file has the lines any more: then they are mended here.
`docs/simulation.md` names those that are not found.
"""

from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = ".venv/bin/python -m tests.evidence.simulation"
ROOT = Path(__file__).parents[3]
ROOTS = (ROOT / "rsnotify", *(ROOT / "clients/python").glob("rsnotify_*"))


class Fault(NamedTuple):
    """Lines that only one file has, what to put there, and the scenario that is about it."""

    scenario: str
    old: str
    new: str

    def broken(self) -> tuple[Path, str]:
        """The file, and its text with the fault."""
        kinds = ("*.py", "*.lua")
        files = (path for root in ROOTS for kind in kinds for path in root.rglob(kind))
        having = [(path, text) for path in files if self.old in (text := path.read_text())]
        assert len(having) == 1, f"{len(having)} files, not one, have: {self.old}"
        path, text = having[0]
        assert text.count(self.old) == 1, f"{path} has more than once: {self.old}"
        return path, text.replace(self.old, self.new)


FAULTS = {
    # A request that is repeated is stored again.
    "forgotten_key": Fault(
        "cut_answers",
        "  elseif known then\n    answers",
        "  elseif known and false then\n    answers",
    ),
    # A set turns private between a reader's admission and its place in the channel.
    "admitted_before": Fault(
        "reader_of_a_private_set",
        "                self._check_unchanged(entry.admitted.sets)\n",
        "",
    ),
    # A lease that was renewed in the second in which it ended is lost.
    "renewal_lost": Fault(
        "unanswered_renewal",
        "local stays = lease_end and lease_end ~= pairs_[i + 1]",
        "local stays = false",
    ),
    # An error of a callback moves its cursor on.
    "refusal_taken_for_success": Fault(
        "refusing_receiver",
        "    if answer.succeeded:\n        return",
        "    if answer.status:\n        return",
    ),
    # A connection whose answer nobody waits for any more is used again.
    "answer_of_another": Fault(
        "impatient_clients",
        '            self._end(ConnectionLost("nobody waits for the answers any more"))\n',
        "",
    ),
    # A reader that caught up is placed at the head without what came meanwhile.
    "head_too_early": Fault(
        "full_sockets",
        "        found = feed.tail.next_after(reader.cursor) if written < SEND_BYTES else None\n",
        "        found = None\n        reader.cursor = feed.tail.head\n",
    ),
    # Positions follow the clock of Redis, also when it goes back.
    "clock_back": Fault(
        "moved_clock",
        "  if own <= last then own = last + 1 end\n",
        "  if own == last then own = last + 1 end\n",
    ),
    # A stranger reads the topic of a set that turns private while its newest change is read.
    "topic_of_private": Fault(
        "reader_of_a_private_set",
        "record = await self._record_to_read(request, channel)  # it may",
        "record = self._hub.record(channel.set_name)  # it may",
    ),
    # What another process has appended is pushed before it is known that the set is private.
    "pushed_before_private": Fault(
        "published_after_private",
        "        if number != self._sets.number:\n            # So that",
        "        if False:\n            # So that",
    ),
    # The same for what this process has appended, after another one has made the set private.
    "told_before_private": Fault(
        "published_after_private",
        "if following.sets_version != self._sets.number or following.until == cursor:",
        "if following.until == cursor:",
    ),
    # What was appended for a Source that has gone is announced by nobody.
    "own_stroke_forgotten": Fault(
        "gone_source",
        "        self._own_strokes[name] = head, mark\n",
        "",
    ),
    # A call that Redis reads late is executed though its process has asked again.
    "late_call_stored": Fault(
        "late_append",
        "if number == tonumber(ARGV[9]) then\n    for known",
        "if false then\n    for known",
    ),
    # An append that has been given up is answered: `done()` twice, and its whole round fails.
    "answered_twice": Fault(
        "late_append",
        "        if not self.answer.done():\n            is_repeated = ",
        "        if True:\n            is_repeated = ",
    ),
    # A Source's own datetime lies before what an older Redis has lost.
    "no_floor": Fault(
        "started_with_older_data",
        "local function next_position(own)\n",
        "local function next_position(own)\n  local found_at = 0\n",
    ),
    # A reader whose socket is full forgets that it had got as far as the head.
    "paused_without_cursor": Fault(
        "full_sockets",
        "            reader.cursor = self._feed.tail.head\n        self._take_out",
        "            pass\n        self._take_out",
    ),
    # More changes than fit into a notification wait for the next stroke of the bell.
    "rest_unread": Fault(
        "large_publish",
        "                self._feeds.ring_again(feed.channel, newest)\n",
        "                pass\n",
    ),
    # A subscriber begins where the journal ends when its callback has answered, not when asked.
    "begins_too_late": Fault(
        "late_confirmation",
        "                head = await self._head()\n"
        "                verified_at = self._verifier.clock.now()  # WEBSUB 18: before the request "
        "goes out\n"
        "                confirms = await self._ask()\n",
        "                verified_at = self._verifier.clock.now()\n"
        "                confirms = await self._ask()\n"
        "                head = await self._head()\n",
    ),
    # Who reads behind the head is given what came after the set had become private.
    "read_behind_private": Fault(
        "reader_of_a_private_set",
        "        await self._check_sets()  # who may not read",
        "        # who may not read",
    ),
    # A reader of a set that was removed joins the one that was made again.
    "joins_another": Fault(
        "made_again",
        "            if record.created != before.created:\n                raise",
        "            if False:\n                raise",
    ),
    # An event stream does not begin at the id of the last event.
    "last_event_forgotten": Fault(
        "event_streams",
        "        after = parse_moment(last, LAST_EVENT_ID) if last else start\n",
        "        after = start\n",
    ),
    # A reader that does not answer is kept.
    "pong_unmissed": Fault(
        "half_open",
        "now >= reader.deadline and not reader.is_paused:\n            reader.close(",
        "now >= reader.deadline and False:\n            reader.close(",
    ),
    # Silence of a callback moves its cursor on.
    "silence_taken_for_success": Fault(
        "hanging_receiver",
        "            return _failure(error, monotonic() - begun)\n",
        "            return CallAnswer(200, '', seconds=monotonic() - begun)\n",
    ),
    # A Resource List says that it holds what came while it was made.
    "listed_too_early": Fault(
        "polled_resources",
        "        completed = max(at, await windows.now())\n",
        "        at, *_ = await snapshots.begin(set_name, claim)\n"
        "        completed = max(at, await windows.now())\n",
    ),
    # A Resource List stands where the clock does, not behind the newest change that is known.
    "listed_by_the_clock": Fault(
        "listed_after_a_loss",
        "local at = tonumber(record[1])\nif record[1] == record[2] then\n  at = at + 1\n"
        "  redis.call('HSET', KEYS[1], 'last', string.format('%.0f', at))\nend\n",
        "local t = redis.call('TIME')\nlocal at = t[1] * 1000000 + t[2]\n",
    ),
    # A Resource List is finished in a Redis that has lost changes since it was begun.
    "listed_across": Fault(
        "listed_across_a_loss",
        'self.token = f"{self._holder}+"',
        "self.token = self._holder",
    ),
    # A bell that is not heard any more is not connected with again.
    "deaf_bell": Fault(
        "half_open_redis",
        "                return\n\n    def _take_in(",
        "                continue\n\n    def _take_in(",
    ),
    # A request that is repeated after a failover is stored again.
    "key_of_script": Fault(
        "failover_in_a_script",
        "  elseif known then\n    answers",
        "  elseif known and false then\n    answers",
    ),
    # An append does not look whether the journal has lost what its process knows.
    "append_does_not_look": Fault(
        "overtaken",
        "if has_lost() then\n  leave_gap()\n  gap = last\nend\n",
        "",
    ),
    # Whoever reads on takes what he knows for proved.
    "follower_does_not_look": Fault(
        "bell_elsewhere",
        "            if there is None or not (is_more or end >= newest.position):\n",
        "            there = feed.witness.changes\n            if False:\n",
    ),
    # Nor does anybody when another server has taken over.
    "nobody_looks": Fault(
        "quiet_failover",
        "        if standing.last < known.given or left not in ([], [standing.newest]):\n",
        "        if False:\n",
    ),
    # Who was at the head when changes were lost goes on as if nothing had been.
    "readers_carried_over": Fault(
        "overtaken",
        "        self._notify_watchers(lambda watcher: watcher.fall_behind(before))\n",
        "",
    ),
    # A gap ends before what somebody was given.
    "gap_too_short": Fault(
        "moved_clock_after_a_loss",
        "  last = math.max(given + 1, last + 1, now)\n",
        "  last = math.max(last + 1, now)\n",
    ),
    # A newer change is taken for proof of those before it.
    "evidence_overwritten": Fault(
        "lost_between_two_rounds",
        "            self.changes += (known,)\n",
        "            self.changes = (known,)\n",
    ),
    # A change at the position of one that was lost is taken for it.
    "mark_not_compared": Fault(
        "same_position",
        "string.sub(row[2][1], 1, 6) ~= known then",
        "false then",
    ),
    # Who heard of a change before noticing the loss before it takes the gap for the newest of all.
    "newest_behind_head": Fault(
        "unread_after_a_loss",
        "        self.newest_known = max(self.newest_known, head)\n",
        "",
    ),
    # Others are told before a replica has it.
    "rung_before_confirmation": Fault(
        "confirmed_by_a_replica",
        '            bell = "" if self._client.confirms else keys.BELL\n',
        "            bell = keys.BELL\n",
    ),
    # A Source is answered before a replica has its changes.
    "no_confirmation": Fault(
        "confirmed_by_a_replica",
        "        confirm = self.replicas.confirmation() if self.replicas else None\n",
        "        confirm = None\n",
    ),
    # A reader that has left stays in the list of those who are pinged.
    "reader_kept": Fault(
        "at_rest",
        "        self._slots[reader.slot].pop(reader, None)\n",
        "",
    ),
    # The follower connects again without its cursor.
    "resumed_at_head": Fault(
        "python_client",
        "        socket = await _handshake(web, resumed(url, cursor))\n",
        "        socket = await _handshake(web, url)\n",
    ),
    # A mirror follows from now on, and not from where its lists ended.
    "followed_from_now": Fault(
        "killed_mirror",
        "            cursor=self.state.cursor,\n            web=self._web,\n",
        "            web=self._web,\n",
    ),
    # A hub asks the system, and not what the world has handed it: see `--times`.
    "real_process": Fault(
        "crashed_hub",
        '{host}:{self._machine.process_id()}"',
        '{host}:{os.getpid()}"',
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

    SourceFileLoader.get_code = patched


def _break_script(path: Path, broken: str) -> None:
    read_text = Path.read_text

    def patched(self: Path, *arguments: Any, **options: Any) -> str:
        return broken if self == path else read_text(self, *arguments, **options)

    Path.read_text = patched
