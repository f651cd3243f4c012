"""Every number of docs/reference/limits.md is the code's; most are held at their edge here."""

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from rsnotify import errors, loops, recent, single_flight
from rsnotify.access import access, jwt_rules, query, throttle
from rsnotify.channels import channel as turns
from rsnotify.channels import event_stream as sse_reader
from rsnotify.channels import handshake, keepalive, reader_input, received_frames
from rsnotify.documents import announcements, pages, stretches
from rsnotify.documents import snapshots as snapshot
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.http import connection_limits, deadlines, request_reader
from rsnotify.http import protocol as http_protocol
from rsnotify.journal import appends, submission, usage, window
from rsnotify.live import cache
from rsnotify.operation import administration, shared_answers, status
from rsnotify.outbound import bounded_answer, dialler
from rsnotify.process import engine, listening
from rsnotify.process.embedded_redis import directory
from rsnotify.process.settings import PREFIX, Settings
from rsnotify.publishing import bodies
from rsnotify.publishing.bodies import read_submission
from rsnotify.publishing.loads import load, load_formats, moment
from rsnotify.publishing.loads import load_endpoint as load_body
from rsnotify.publishing.loads import load_endpoint as resources
from rsnotify.publishing.loads import load_store as loads
from rsnotify.resourcesync import change_rules, delete_guard, forms, notification, tables
from rsnotify.resourcesync import xml_structure as xml
from rsnotify.resourcesync.change import HOUR, MICROSECONDS, Position
from rsnotify.resourcesync.notification import Kind
from rsnotify.resourcesync.xml_writer import RS_NS, SITEMAP_NS
from rsnotify.sets import options as set_options
from rsnotify.sets import records as sets
from rsnotify.streams import stream_headers, stream_query
from rsnotify.views import harvests, listing, oai_endpoint, oai_question, oai_token
from rsnotify.web import validation
from rsnotify.websub import rules as protocol
from rsnotify.websub import rules as retry_schedule
from rsnotify_bridge import markup, memory, oaipmh, options, polite, sources
from rsnotify_client import (
    between,
    database,
    discovery,
    documents,
    dumps,
    folder,
    missing,
    moments,
    outboxfile,
    publisher,
    queue,
    sender,
    transport,
    web,
)
from rsnotify_client import bounded as bounded_answers
from rsnotify_client.commands import publish_folder
from rsnotify_mirror import mirror, paths, state, storing, workers
from rsnotify_mirror.commands import mirror_sets
from rsnotify_mirror.dumping import dump_documents, parts
from rsnotify_mirror.inspection import contents
from rsnotify_mirror.inspection.samples import SILENT, Bounds

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
DOCUMENT = (REFERENCE / "limits.md").read_text()
STRANGERS = re.compile(r"^## What a stranger is answered.*?(?=^## )", re.DOTALL | re.MULTILINE)
"""Held to every address by tests/protocol/test_answer_sizes.py."""
ROW = re.compile(
    r"^\| (?P<what>[^|]+?) \| (?P<most>[\d,]+)(?: (?P<unit>KiB|MiB|MB))? \|", re.MULTILINE
)
RANGE = re.compile(r"^\| `(RSNOTIFY_\w+)`[^|]*\| `\d+`, ([\d,]+) to ([\d,]+) \|", re.MULTILINE)
UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "MB": 10**6}

LIMITS: dict[str, float] = {
    "deletions that a bridge and `publish --dir` believe in any case, if others are left": (
        delete_guard.FEW
    ),
    "bytes of a page of OAI-PMH, a feed or activities": markup.PAGE_BYTES,
    "tags of such a page": markup.TAGS,
    "characters of a resumption token; of an identifier": oaipmh.NAME_CHARS,
    "characters of an element that names a record's resource": oaipmh.FIELD_CHARS,
    "attributes of one tag": markup.ATTRIBUTES,
    "pages of one harvest": oaipmh.MAX_PAGES,
    "pages without a new record, one after the other": oaipmh.STALE_PAGES,
    "readings of pages that move, of OAI-PMH one less": sources.SourceAdapter.readings,
    "seconds in which what was left out is asked for": missing.ASKED_SECONDS,
    "harvests begun anew because a resumption token has expired": oaipmh.EXPIRED,
    "seconds that a repository may have a harvest wait": oaipmh.WAIT_SECONDS,
    "entries of a feed or collection": sources.MAX_ENTRIES,
    "parts of an index of lists, those of indexes under it counted": documents.MAX_PARTS,
    "indexes under each other": documents.DEPTH,
    "bytes of a robots.txt": polite.ROBOTS_BYTES,
    "seconds that a page may have itself waited for": polite.PAGE_SECONDS,
    "seconds between two requests that robots.txt may ask for": polite.LONGEST_DELAY_SECONDS,
    "bridges of a file": options.MAX_BRIDGES,
    "changes of a batch": memory.BATCH,
    "changes that wait in memory (`queue_size`)": publisher.QUEUE_SIZE,
    "changes that the client sends at once": queue.BATCH_CHANGES,
    "body of a request by the client, unless one change is longer": queue.BATCH_BYTES,
    "seconds that an outbox file may be locked by others": outboxfile.LOCKED_SECONDS,
    "seconds that a cursor, or the file of a mirror, a bridge or `publish --dir`, may be locked by "
    "others": database.LOCKED_SECONDS,
    "seconds that a process waits at its end for what is in its queue": sender.EXIT_SECONDS,
    "a list to compare, decompressed": between.DOCUMENT_BYTES,
    "records of a page of [OAI-PMH](../harvesters.md)": listing.PAGE_RECORDS,
    "bytes of what is known of them, after which a page ends": listing.PAGE_BYTES,
    "resources or changes that are looked at for such a page": harvests.LOOKED_AT,
    "hours that a resumption token lives": oai_token.LIFETIME / HOUR,
    "characters of a resumption token": oai_token.TOKEN_CHARACTERS,
    "arguments of a request by OAI-PMH": oai_question.ARGUMENTS,
    "body of a request by OAI-PMH": oai_endpoint.FORM_BYTES,
    "pages of harvests that are made at once": oai_endpoint.AT_ONCE,
    "changes in a request": bodies.MAX_CHANGES,
    "body of a request": bodies.BODY_BYTES,
    "changes of a request, as the hub writes them in XML": submission.ENTRIES_BYTES,
    "one change, as the hub writes it in XML": submission.FRAGMENT_BYTES,
    "characters of `loc`, `index` or `href`": change_rules.URI_CHARACTERS,
    "characters of any other text of a change": change_rules.TEXT_CHARACTERS,
    "digits of `length`": len(str(change_rules.LENGTH_END - 1)),
    "links of a change": change_rules.LINKS,
    "`pri` of a link": 999_999,
    "characters of an `Idempotency-Key`": 255,
    "hours that a key is remembered": usage.KEY_SECONDS / 3600,
    "faults that an answer names": bodies.MAX_FAULTS,
    (
        "percent of the `maxmemory` of Redis that one set takes, if it has one and the set has no "
        "`max_bytes`; of the smallest node of a Cluster"
    ): usage.DEFAULT_PERCENT,
    "bytes of Redis that a set may be given (`max_bytes`), at least": set_options.LEAST_BYTES,
    "bytes of Redis that a set may be given (`max_bytes`), at most": set_options.MOST_BYTES,
    "seconds that a cache may keep a part of a [stream](../streams.md), once its newest change is "
    "an hour old": stream_headers.KEPT_SECONDS,
    "seconds that a cache may keep a part of a stream before that": stream_headers.YOUNG_SECONDS,
    "seconds that a cache may keep the newest part of a stream": stream_headers.NEWEST_SECONDS,
    "digits of a stream's `cursor`": stream_query.CURSOR_DIGITS,
    (
        "bytes that a set grows by before it is counted what it takes, or an eighth of what it may "
        "take"
    ): usage.COUNTED_AFTER_BYTES,
    "revoked tokens, removed sets and ended subscriptions that a process remembers, "
    "so that a failover does not bring them back": (recent.REMEMBERED_RECORDS),
    "seconds for which it remembers them": recent.REMEMBERED_SECONDS,
    "changes that wait for Redis in one process; in all twice as much": appends.WAITING_BYTES,
    "resources of a load": load_formats.LOAD_RESOURCES,
    "body of a load, decompressed": load_formats.LOAD_BYTES,
    "bytes of one resource of a load, in NDJSON or JSON": load_formats.ENTRY_BYTES,
    "bytes of a load's body besides its resources": load_formats.PADDING_BYTES,
    "bytes of a load's body besides its resources, in addition for each resource": (
        load_formats.PADDING_OF_ONE
    ),
    "seconds for the body of a load to come": load_body.LOAD_SECONDS,
    "percent of what is known that may be deleted at once (`max_delete`, `--max-delete`): see "
    "[the delete guard](command-line.md#the-delete-guard)": delete_guard.MAX_DELETE,
    "differences that a dry run names": load.NAMED,
    "seconds after a Resource List in which changes make no other one": window.EARLY_SECONDS,
    "changes that a refused load would take back, named": moment.SHOWN,
    "characters of each that are shown": moment.SHOWN_CHARACTERS,
    "changes that a load publishes at once": load.PUBLISHED_CHANGES,
    "seconds that a request waits for a load that is decided": resources.ANSWER_SECONDS,
    "seconds after which the load of a process that is gone is taken up": loads.CLAIM_SECONDS,
    "bytes from one `<` to the next": xml.TAG_BYTES,
    "tags of a document (if it is longer than 16 MB: one for every 16 bytes)": xml.MARKUP,
    "attributes of a document (if it is longer than 16 MB: one for every 16 bytes)": xml.MARKUP,
    "characters of a set's name": 64,
    "sets that a token is for": administration.SETS_OF_A_TOKEN,
    "characters of a token, of whatever kind": access.TOKEN_CHARACTERS,
    "characters of a JWT": jwt_rules.JWT_CHARACTERS,
    "sets that a JWT names": jwt_rules.PATTERNS,
    "keys tried for a JWT that names none": jwt_rules.TRIED,
    "characters of a token's note": administration.NOTE_CHARACTERS,
    "random characters of a token that you choose, at least 43": 128,
    "days until a token expires": administration.EXPIRES_DAYS,
    "seconds that a token is accepted after it was replaced": administration.GRACE_SECONDS,
    "body of a request about sets or tokens": administration.BODY_BYTES,
    "sets in a status, if no `limit` is sent": status.SETS_SHOWN,
    "`limit` of a list of sets, or of a status": query.SETS_LISTED,
    "strangers who wait for a list of sets, or for a status: those are made one after the other": (
        shared_answers.WAITING
    ),
    "seconds that a request for a snapshot waits": administration.SNAPSHOT_SECONDS,
    "seconds until a revoked token is refused everywhere": access.TOKEN_SECONDS,
    (
        "seconds for which Redis is not asked again about a token that it did not have; "
        "one that is made is accepted at once"
    ): access.UNKNOWN_SECONDS,
    "seconds that changes of the Source Description are gathered": announcements.GATHER_SECONDS,
    "a channel's latest notifications in memory, with their frames": cache.TAIL_BYTES,
    "seconds that a channel which nobody reads stays in memory": cache.IDLE_SECONDS,
    "seconds that a hub which ends waits until all who have connected are accepted": (
        listening.LAST_ACCEPTED_SECONDS
    ),
    "seconds that background work has to end, after the drain": loops.END_SECONDS,
    "changes in a notification": notification.NOTIFICATION_CHANGES,
    "bytes of changes in a notification": notification.NOTIFICATION_BYTES,
    "sets over one connection": query.SETS_OF_A_CONNECTION,
    "seconds that a position may be in the future": query.AHEAD_SECONDS,
    "bytes, or one notification, for a reader who is behind, before the next one's turn": (
        turns.SEND_BYTES
    ),
    "bytes of a message from a reader": received_frames.MESSAGE_BYTES,
    "bytes from a reader in a second, or without a pause": reader_input.BYTES_PER_SECOND,
    "WebSocket frames from a reader in a second, pings and pongs included": (
        reader_input.FRAMES_PER_SECOND
    ),
    "bytes that follow the request for a WebSocket before it is answered": handshake.EARLY_BYTES,
    "bytes that follow the request for an event stream": sse_reader.IGNORED_BYTES,
    "seconds between two pings": keepalive.PING_SECONDS,
    "seconds for a pong": keepalive.PONG_SECONDS,
    "changes after a `?from=`": window.STRETCH_CHANGES,
    "entries of a page: `?limit=`": Settings().page_size,
    "bytes of changes on a page, after which it ends": pages.PAGE_BYTES,
    "characters that are read of `Accept`": forms.HEADER_CHARACTERS,
    "entries of a Resource List": snapshot.PART_RESOURCES,
    "bytes of entries in a list": window.WINDOW_BYTES,
    "bytes of a document that `rsnotify validate` reads": tables.MAX_BYTES,
    "bytes of a document that `/api/validate` reads": validation.DOCUMENT_BYTES,
    "pages of Change Lists that are made at once (`limit`, `until`)": pages.PAGES_AT_ONCE,
    "requests that wait for that, or for packed changes": single_flight.WAITING,
    "pieces of lists that are read at once": stretches.READS_AT_ONCE,
    "documents that come or wait for `/api/validate`, or are checked": validation.WAITING,
    "violations that `/api/validate` names": validation.SHOWN,
    "characters of the place of a violation that is named": errors.SHOWN_CHARACTERS,
    "characters of what it says": errors.DETAIL_CHARACTERS,
    "entries of a document that is valid": tables.MAX_ENTRIES,
    "characters of a callback or topic": protocol.URL_CHARACTERS,
    "bytes of `hub.secret`": protocol.SECRET_BYTES - 1,
    "days of a lease": protocol.LEASE_MAX_SECONDS / 86_400,
    "body of a request to `/hub` that is a form": protocol.FORM_BYTES,
    "fields of a form": protocol.FORM_FIELDS,
    "seconds that a callback has to answer": dialler.CALL_SECONDS,
    "further attempts to verify a callback that accepts no connection, after 1, 5 and 25 s": len(
        retry_schedule.VERIFICATION_WAITS
    ),
    "a callback's answer, headers included": bounded_answer.ANSWER_BYTES,
    "lines of a callback's answer": bounded_answer.ANSWER_LINES,
    "body of a callback's answer to a verification": dialler.BODY_BYTES,
    "hours that a `Retry-After` is obeyed": retry_schedule.LONGEST_RETRY_AFTER / 3600,
    "a request's head": request_reader.HEAD_BYTES,
    "header fields of a request": request_reader.HEAD_FIELDS,
    "a header field of a request": request_reader.LINE_BYTES,
    "an address that is asked for, with its query": request_reader.LINE_BYTES,
    "parameters of an address": request_reader.QUERY_FIELDS,
    "characters of an address, or of another name that was sent, in the answer": (
        errors.SHOWN_CHARACTERS
    ),
    "characters of what is wrong in an answer, or of each of several faults": (
        errors.DETAIL_CHARACTERS
    ),
    "bytes of the answer to an address at which there is nothing": 16 * 1024,
    "chunk extensions and trailers between two parts of a body": request_reader.FRAMING_BYTES,
    "requests that wait for the answer to the one before": http_protocol.PIPELINED,
    "seconds until a request's head is complete": http_protocol.HEAD_SECONDS,
    "seconds without a byte of its body": http_protocol.BODY_SECONDS,
    "seconds between two requests of a connection": deadlines.IDLE_SECONDS,
    "connections accepted in a turn of the event loop": listening.ACCEPTED_A_TURN,
    "requests begun in a turn of the event loop": http_protocol.FIRST_A_TURN,
    "handshakes in a turn, and requests that had waited for the answer to the one before": (
        http_protocol.STARTED_A_TURN
    ),
    "waiting connections whose peers closed their direction before they were accepted": (
        listening.LATE
    ),
    "requests for Change Lists that wait though their peers closed their direction": (
        stretches.CLOSED_WAITING
    ),
    "idle connections, or a quarter of the open files if fewer": deadlines.IDLE_CONNECTIONS,
    "seconds that the hub waits for your own Redis to appear": engine.PATIENCE_SECONDS,
    "seconds that it waits for the workers of a killed hub": directory.WORKERS_LIMIT_SECONDS,
    "files that a process must be allowed to open": (
        connection_limits.SPARE_FILES + connection_limits.LEAST_CONNECTIONS
    ),
    "bytes of a document that a Destination reads, decompressed": tables.MAX_BYTES,
    "documents of a Source (`--documents`)": Bounds().documents,
    "documents from the address to one that is read": Bounds().depth,
    "bytes of all documents, decompressed": Bounds().total_bytes,
    "addresses asked of a host that does not answer": SILENT,
    "resources that are compared (`--samples`)": Bounds().samples,
    "a resource that is compared": Bounds().sample_bytes,
    "entries of indexes, Capability Lists and dumps together": Bounds().entries,
    "ZIP packages that are opened (`--packages`)": Bounds().packages,
    "bytes of all packages": Bounds().package_bytes,
    "bytes of all that is in packages": Bounds().unpacked_bytes,
    "links `describedby` and `duplicate` that are followed": Bounds().links,
    "resources for which the same violation is named": contents.NAMED,
    "sets of a hub that are asked for a Source's own topic": discovery.MAX_SETS_ASKED,
    "sets of a Source with `--all-sets`": discovery.MAX_SETS,
    "sets that are copied at once with `--once`": mirror_sets.AT_ONCE,
    'pages of a list, joined by `rel="next"`': documents.MAX_PAGES,
    "changes of a list that begins with the newest, to be turned round": moments.MAX_HELD,
    "seconds that a time may be ahead of the clock": moments.CLOCK_SECONDS,
    "notifications that are read of a channel": Bounds().payloads,
    "members of a ZIP package": dumps.MEMBERS,
    "bytes of the directory of a ZIP package": dumps.DIRECTORY_BYTES,
    "faults that are named of a ZIP package": dumps.NAMED,
    "bytes that a member compressed with LZMA refers back": dumps.DICTIONARY_BYTES,
    "bytes of a component of a path": paths.COMPONENT_BYTES,
    "bytes of a path": paths.PATH_BYTES,
    "a resource with `--stdout`": storing.IN_MEMORY_BYTES,
    "a resource that is fetched whole": web.SMALL_BYTES,
    "a resource that is asked for in gzip, packed and unpacked": web.SMALL_BYTES,
    "head of a server's answer": bounded_answers.HEAD_BYTES,
    "header fields of a server's answer": bounded_answers.HEAD_LINES - 2,
    "interim answers (1xx) before a server's answer": bounded_answers.INTERIM_ANSWERS,
    "bytes a minute of a body, at least": bounded_answers.SLOWEST_BYTES,
    "redirects of one request": web.REDIRECTS,
    "idle connections to one server": transport.IDLE_PER_ORIGIN,
    "servers to which connections are kept": transport.ORIGINS,
    "seconds without a byte of an answer": bounded_answers.SILENCE_SECONDS,
    "hours that a server's `Retry-After` is obeyed": workers.LONGEST_SECONDS / 3600,
    "quick attempts at a resource": workers.ATTEMPTS,
    "seconds for which a written file of `publish --dir` counts as unfinished": (
        folder.SETTLE_SECONDS
    ),
    "seconds that `publish --dir` waits for unfinished files": publish_folder.SETTLE_SECONDS,
    "readings of the Change Lists by `--once`": mirror.ROUNDS,
    "entries of a package": parts.MAX_ENTRIES,
    "bytes of a package (`--max-bytes`)": parts.MAX_BYTES,
    "bytes of a manifest": tables.MAX_BYTES,
    "bytes of the directory of a package that is made": dumps.DIRECTORY_BYTES,
    "packages of a document": dump_documents.MAX_ENTRIES,
    "days for which a mirror knows deletions": state.GONE_SECONDS / 86_400,
    "changes of a window": parts.MAX_ENTRIES,
    "wrong tokens from an address at once; then one a second": throttle.FREE_TRIES,
}


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_documented_limits_are_the_ones_that_hold():
    found = {
        row["what"]: whole(row["most"]) * UNITS[row["unit"] or ""]
        for row in ROW.finditer(STRANGERS.sub("", DOCUMENT))
    }
    assert found == LIMITS


# Settings --------------------------------------------------------------------------------------

RANGES = {
    name: (whole(low), whole(high))
    for name, low, high in RANGE.findall((REFERENCE / "settings.md").read_text())
}


def test_every_number_among_the_settings_has_its_range_in_the_docs():
    assert RANGES.keys() == {
        PREFIX + each.name.upper() for each in fields(Settings) if isinstance(each.default, int)
    }


DAYS = {"RSNOTIFY_CHANGELIST_DAYS": "1", "RSNOTIFY_RETENTION_DAYS": "36500"}  # fit with any other


@pytest.mark.parametrize("name", RANGES)
def test_a_setting_may_be_what_its_range_says_and_no_more(name):
    low, high = RANGES[name]
    for value in (low, high):
        settings = Settings.from_env({**DAYS, name: str(value)})
        assert getattr(settings, name.removeprefix(PREFIX).lower()) == value
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidSettings, match=f"a whole number from {low} to {high}"):
            Settings.from_env({name: str(value)})


# What a change may be --------------------------------------------------------------------------

ONE = {"loc": "http://example.com/a", "change": "updated"}
LINK = {"rel": "describedby", "href": "http://example.com/b"}
FRAMEWORK = {"loc": "http://example.com/l", "change": "updated", "capability": "changelist"}


def uri(characters: int) -> str:
    return "http://example.com/".ljust(characters, "a")


def accepted(
    change: object,
    kind: Kind = "change",
    key: str | None = None,
    media_type: str = "application/json",
) -> bool:
    try:
        body = change if isinstance(change, bytes) else json.dumps(change).encode()
        read_submission(kind, body, media_type, key)
    except Rejected:
        return False
    return True


def with_(**chosen: object) -> dict[str, object]:
    return {**ONE, **chosen}


LONGEST_HASH = "md5:" + "0" * 32
AT_MOST: dict[str, tuple[int, Callable[[int], bool]]] = {
    "loc": (2_048, lambda n: accepted(with_(loc=uri(n)))),
    "index": (2_048, lambda n: accepted({**FRAMEWORK, "index": uri(n)}, "framework")),
    "href": (2_048, lambda n: accepted(with_(links=[{**LINK, "href": uri(n)}]))),
    "encoding": (1_024, lambda n: accepted(with_(encoding="g" * n))),
    "profile": (1_024, lambda n: accepted(with_(links=[{**LINK, "profile": "p" * n}]))),
    "hash": (1_024, lambda n: accepted(with_(hash=LONGEST_HASH.ljust(n)))),
    "length": (10**18 - 1, lambda n: accepted(with_(length=n))),
    "length of a link": (10**18 - 1, lambda n: accepted(with_(links=[{**LINK, "length": n}]))),
    "links": (100, lambda n: accepted(with_(links=[LINK] * n))),
    "pri": (999_999, lambda n: accepted(with_(links=[{**LINK, "pri": n}]))),
    "Idempotency-Key": (255, lambda n: accepted(ONE, key="k" * n)),
    "body": (8 * 1024**2, lambda n: accepted(json.dumps(ONE).encode().ljust(n))),
}


@pytest.mark.parametrize("name", AT_MOST)
def test_a_change_may_be_as_long_as_documented_and_no_longer(name):
    most, is_accepted = AT_MOST[name]
    assert is_accepted(most)
    assert not is_accepted(most + 1)


def test_a_change_takes_as_many_bytes_as_documented_and_no_more():
    links = [{**LINK, "href": uri(2_000)}] * 15 + [{**LINK, "href": uri(1_200)}]
    (fragment,) = read_submission(
        "change", json.dumps(with_(links=links, type="a/b")).encode(), "application/json", None
    ).fragments
    left = submission.FRAGMENT_BYTES - len(fragment.xml) - len(' encoding=""')
    assert accepted(with_(links=links, type="a/b", encoding="e" * left))
    assert not accepted(with_(links=links, type="a/b", encoding="e" * (left + 1)))


def test_a_length_means_the_same_in_every_format():
    """A digit more could be published, but nobody would read it in the notification."""
    for digits, fits in [(18, True), (19, False)]:
        entry = f'<url><loc>{uri(30)}</loc><rs:md change="updated" length="{"9" * digits}"/></url>'
        body = f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">{entry}</urlset>'.encode()
        assert accepted(body, media_type="text/xml") == fits
        assert accepted(with_(length=int("9" * digits))) == fits


# The rest --------------------------------------------------------------------------------------


def test_a_set_s_name_has_64_characters_at_most():
    sets.check_name("a" * 64)
    with pytest.raises(Rejected, match="use 1 to 64"):
        sets.check_name("a" * 65)


@pytest.mark.parametrize("name", ["hub.callback", "hub.topic"])
def test_a_callback_or_topic_has_2048_characters_at_most(name):
    form = {"hub.callback": ["http://a.example/"], "hub.topic": ["http://hub.example/"]}
    protocol.parse_subscription_request({**form, name: [uri(2_048)]}, "subscribe")
    with pytest.raises(Rejected, match="longer than 2048 characters"):
        protocol.parse_subscription_request({**form, name: [uri(2_049)]}, "subscribe")


def test_a_form_has_100_fields_at_most():
    assert len(protocol.parse_form(b"&".join([b"a=b"] * 100))["a"]) == 100
    with pytest.raises(Rejected, match="form cannot be read"):
        protocol.parse_form(b"&".join([b"a=b"] * 101))


@pytest.mark.parametrize(
    ("asked", "granted"), [(2_678_399,) * 2, (2_678_400,) * 2, (2_678_401, 2_678_400)]
)
def test_a_lease_lasts_31_days_at_most(asked, granted):
    form = {"hub.callback": ["http://a.example/"], "hub.topic": ["http://hub.example/"]}
    form["hub.lease_seconds"] = [str(asked)]
    assert protocol.parse_subscription_request(form, "subscribe").lease_seconds == granted


@pytest.mark.parametrize(
    ("wrong", "more"), [(99, "98 more"), (100, "99 more at least"), (101, "99 more at least")]
)
def test_an_answer_names_100_faults_and_does_not_count_the_others(wrong, more):
    body = json.dumps([with_(change="moved")] * wrong).encode()
    with pytest.raises(Rejected) as refused:
        read_submission("change", body, "application/json", None)
    assert len(refused.value.faults) == min(wrong, 100)
    assert refused.value.detail.endswith(f"(and {more})")


def test_a_position_may_be_5_seconds_in_the_future_and_no_more():
    now, newest = 10 * MICROSECONDS, Position(0)
    query.check_not_future(Position(now + 5 * MICROSECONDS), newest, now)
    with pytest.raises(Rejected, match="in the future"):
        query.check_not_future(Position(now + 5 * MICROSECONDS + 1), newest, now)
    query.check_not_future(Position(now * 9), Position(now * 9), now)  # there is such a change
