"""Faults that the code once had, or could have, put back on purpose: does the simulation find them?

    python -m tests.evidence.simulation --fault forgotten_key

Each names the function of the code that has it and what is changed there, or a script of Redis and
its line. `test_mutation.py` fails where that is not there any more: then the fault is mended here.
`docs/simulation.md` names those that are not found.
"""

import ast
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

from tests.evidence.simulation.mutation import (
    ROOT,
    Change,
    NotThere,
    becomes,
    before,
    behind,
    changed,
    drop,
    swap,
    unsaid,
)

COMMAND = ".venv/bin/python -m tests.evidence.simulation"


class Fault(NamedTuple):
    """A change to a function, and the scenario that is about it."""

    scenario: str
    function: str
    change: Change

    def broken(self) -> tuple[Path, ast.Module]:
        """The file, and what it is with the fault."""
        return changed(self.function, self.change)


class ScriptFault(NamedTuple):
    """The same for a script, whose line has no tree here: it is there once, and becomes another."""

    scenario: str
    script: str
    old: str
    new: str

    def broken(self) -> tuple[Path, str]:
        path = ROOT / "rsnotify" / self.script
        text = path.read_text()
        if text.count(self.old) != 1:
            raise NotThere(f"{text.count(self.old)} times, and not once, {path} has: {self.old}")
        return path, text.replace(self.old, self.new)


FAULTS: dict[str, Fault | ScriptFault] = {
    # A request that is repeated is stored again.
    "forgotten_key": ScriptFault(
        "cut_answers", "journal/append.lua", "elseif known then", "elseif known and false then"
    ),
    # A set turns private between a reader's admission and its place in the channel.
    "admitted_before": Fault(
        "reader_of_a_private_set",
        "rsnotify.channels.channels.Channels.join",
        drop("self._check_unchanged"),
    ),
    # A lease that was renewed in the second in which it ended is lost.
    "renewal_lost": ScriptFault(
        "unanswered_renewal",
        "websub/subscriptions.lua",
        "local stays = lease_end and lease_end ~= pairs_[i + 1]",
        "local stays = false",
    ),
    # An error of a callback moves its cursor on.
    "refusal_taken_for_success": Fault(
        "refusing_receiver",
        "rsnotify.websub.subscription.after_answer",
        swap("answer.succeeded", "answer.status"),
    ),
    # A connection whose answer nobody waits for any more is used again.
    "answer_of_another": Fault(
        "impatient_clients", "rsnotify.redis_client.pool.DirectConnection.ask", drop("self._end")
    ),
    # A reader that caught up is placed at the head without what came meanwhile.
    "head_too_early": Fault(
        "full_sockets",
        "rsnotify.channels.channel._write",
        becomes("found", "found = None; reader.cursor = feed.tail.head"),
    ),
    # Positions follow the clock of Redis, also when it goes back.
    "clock_back": ScriptFault(
        "moved_clock",
        "journal/append.lua",
        "if own <= last then own =",
        "if own == last then own =",
    ),
    # A stranger reads the topic of a set that turns private while its newest change is read.
    "topic_of_private": Fault(
        "reader_of_a_private_set",
        "rsnotify.websub.subscribe_endpoint.Topic.get",
        becomes("record", "record = self._journals.record(channel.set_name)"),
    ),
    # What another process has appended is pushed before it is known that the set is private.
    "pushed_before_private": Fault(
        "published_after_private",
        "rsnotify.live.following.Following._read",
        swap("number != self._sets.number", "False"),
    ),
    # The same for what this process has appended, after another one has made the set private.
    "told_before_private": Fault(
        "published_after_private",
        "rsnotify.live.following.Following._next",
        swap("following.sets_version != self._sets.number", "False"),
    ),
    # What this process has appended is told to its readers when the journals are compared.
    "told_by_nobody": Fault(
        "gone_source",
        "rsnotify.journal.call.Append.resolve",
        drop("asyncio.get_running_loop().call_soon"),
    ),
    # A call that Redis reads late is executed though its process has asked again.
    "late_call_stored": ScriptFault(
        "late_append", "journal/append.lua", "if number == tonumber(ARGV[9]) then", "if false then"
    ),
    # An append that has been given up is answered: `done()` twice, and its whole round fails.
    "answered_twice": Fault(
        "late_append",
        "rsnotify.journal.call.Append.resolve",
        swap("not self.answer.done()", "True"),
    ),
    # A Source's own datetime lies before what an older Redis has lost.
    "no_floor": ScriptFault(
        "started_with_older_data",
        "journal/append.lua",
        "local function next_position(own)\n",
        "local function next_position(own)\n  local found_at = 0\n",
    ),
    # A reader whose socket is full forgets that it had got as far as the head.
    "paused_without_cursor": Fault(
        "full_sockets", "rsnotify.channels.channel.ChannelReaders.pause", drop("self._note_cursor")
    ),
    # Who wants a part is not noted to be where it was told to be.
    "told_without_cursor": Fault(
        "filtered_readers",
        "rsnotify.channels.filtered.FilteredReaders._give",
        drop("reader.cursor"),
    ),
    # Who passes over what is not for it, up to a loss, is not told that it has come so far.
    "led_to_the_gap_again": Fault(
        "filtered_readers",
        "rsnotify.live.reading.Reading.matching_after",
        swap("(HistoryDeleted, TryAgain)", "()"),
    ),
    # More changes than fit into a notification wait for the next message of the bell.
    "rest_unread": Fault(
        "large_publish",
        "rsnotify.live.following.Following._follow",
        drop("self._feeds.note_more_unread"),
    ),
    # A subscriber begins where the journal ends when its callback has answered, not when asked.
    "begins_too_late": Fault(
        "late_confirmation",
        "rsnotify.websub.verification.Verification._call",
        behind("head", "confirms"),
    ),
    # Who reads behind the head is given what came after the set had become private.
    "read_behind_private": Fault(
        "reader_of_a_private_set",
        "rsnotify.live.reading.Reading._from_journal",
        drop("self._check_sets"),
    ),
    # A reader of a set that was removed joins the one that was made again.
    "joins_another": Fault(
        "made_again",
        "rsnotify.live.journals.Journals.require_unchanged",
        swap("record.created != before.created", "False"),
    ),
    # An event stream does not begin at the id of the last event.
    "last_event_forgotten": Fault(
        "event_streams",
        "rsnotify.channels.requested_channels.requested_channels",
        becomes("after", "after = start"),
    ),
    # A reader that does not answer is kept.
    "pong_unmissed": Fault(
        "half_open",
        "rsnotify.channels.keepalive.Keepalive._check_pong",
        swap("not reader.is_paused", "False"),
    ),
    # Silence of a callback moves its cursor on.
    "silence_taken_for_success": Fault(
        "hanging_receiver",
        "rsnotify.outbound.dialler.Dialler._call",
        swap(
            "_failure(error, monotonic() - begun)",
            "CallAnswer(200, '', seconds=monotonic() - begun)",
        ),
    ),
    # A Resource List says that it holds what came while it was made.
    "listed_too_early": Fault(
        "polled_resources",
        "rsnotify.documents.snapshots.take_snapshot",
        before("completed", "at, *_ = await snapshots.begin(set_name, claim)"),
    ),
    # A Resource List stands where the clock does, not behind the newest change that is known.
    "listed_by_the_clock": ScriptFault(
        "listed_after_a_loss",
        "documents/begin_snapshot.lua",
        "local at = tonumber(record[1])\nif record[1] == record[2] then",
        "local t = redis.call('TIME')\nlocal at = t[1] * 1000000 + t[2]\nif false then",
    ),
    # A Resource List is finished in a Redis that has lost changes since it was begun.
    "listed_across": Fault(
        "listed_across_a_loss",
        "rsnotify.coordination.claims.Claim.begun",
        becomes("self.token", "self.token = self._holder"),
    ),
    # A bell that is not heard any more is not connected with again.
    "deaf_bell": Fault(
        "half_open_redis",
        "rsnotify.coordination.bell.Bell._until_silent",
        becomes("return", "continue"),
    ),
    # A request that is repeated after a failover is stored again.
    "key_of_script": ScriptFault(
        "failover_in_a_script",
        "journal/append.lua",
        "elseif known then",
        "elseif known and false then",
    ),
    # An append does not look whether the journal has lost what its process knows.
    "append_does_not_look": ScriptFault(
        "overtaken", "journal/append.lua", "if has_lost() then", "if false then"
    ),
    # Whoever reads on takes what he knows for proved.
    "follower_does_not_look": Fault(
        "bell_elsewhere",
        "rsnotify.live.following.Following._follow",
        swap(
            "proved is None or not (is_more or end >= newest.position)",
            "(proved := feed.witness.changes) is None",
        ),
    ),
    # Nor does anybody when another server has taken over.
    "nobody_looks": Fault(
        "quiet_failover",
        "rsnotify.live.losses.Losses.check",
        swap("standing.last < known.given or left not in ([], [standing.newest])", "False"),
    ),
    # Who was at the head when changes were lost goes on as if nothing had been.
    "readers_carried_over": Fault(
        "overtaken", "rsnotify.live.feed.Feed.pass_gap", drop("self._notify_watchers")
    ),
    # A gap ends before what somebody was given.
    "gap_too_short": ScriptFault(
        "moved_clock_after_a_loss",
        "journal/journal.lua",
        "last = math.max(given + 1, last + 1, now)",
        "last = math.max(last + 1, now)",
    ),
    # A newer change is taken for proof of those before it.
    "evidence_overwritten": Fault(
        "lost_between_two_rounds",
        "rsnotify.journal.witness.Witness.note_change",
        becomes("self.changes", "self.changes = (known,)"),
    ),
    # A change at the position of one that was lost is taken for it.
    "mark_not_compared": ScriptFault(
        "same_position", "journal/journal.lua", "string.sub(row[2][1], 1, 6) ~= known", "false"
    ),
    # Who heard of a change before noticing the loss before it takes the gap for the newest of all.
    "newest_behind_head": Fault(
        "unread_after_a_loss", "rsnotify.live.feed.Feed.skip_to", drop("self.known_head")
    ),
    # Others are told before a replica has it.
    "rung_before_confirmation": Fault(
        "confirmed_by_a_replica",
        "rsnotify.journal.appends.Appends._write_round",
        becomes("bell", "bell = keys.BELL"),
    ),
    # A Source is answered before a replica has its changes.
    "no_confirmation": Fault(
        "confirmed_by_a_replica",
        "rsnotify.redis_client.client.RedisClient.once",
        becomes("confirm", "confirm = None"),
    ),
    # A reader that has left stays in the list of those who are pinged.
    "reader_kept": Fault(
        "at_rest",
        "rsnotify.channels.keepalive.Keepalive.remove",
        drop("self._slots[reader.slot].pop"),
    ),
    # The follower connects again without its cursor.
    "resumed_at_head": Fault(
        "python_client",
        "rsnotify_client.live._by_websocket",
        becomes("socket", "socket = await _handshake(web, url)"),
    ),
    # A mirror follows from now on, and not from where its lists ended.
    "followed_from_now": Fault(
        "killed_mirror", "rsnotify_mirror.planning.Planner._follow", unsaid("Follower", "cursor")
    ),
    # A hub asks the system, and not what the world has handed it: see `--times`.
    "real_process": Fault(
        "crashed_hub",
        "rsnotify.process.composition.Composition.__init__",
        swap("self._machine.process_id()", "os.getpid()"),
    ),
}


def plant(name: str) -> None:
    """Load the code with this fault; before anything of the hub is imported."""
    path, broken = FAULTS[name].broken()
    if isinstance(broken, str):
        _break_script(path, broken)
    else:
        _break_module(path, broken)


def _break_module(path: Path, broken: ast.Module) -> None:
    get_code = SourceFileLoader.get_code

    def patched(self: Any, name: str) -> Any:
        if Path(self.get_filename(name)) == path:
            return compile(broken, str(path), "exec", dont_inherit=True)
        return get_code(self, name)

    SourceFileLoader.get_code = patched


def _break_script(path: Path, broken: str) -> None:
    read_text = Path.read_text

    def patched(self: Path, *arguments: Any, **options: Any) -> str:
        return broken if self == path else read_text(self, *arguments, **options)

    Path.read_text = patched
