"""The command line against a real hub: what it prints, and how it ends."""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from rsnotify import __version__
from tests.support.running import TOKEN, RunningHub, clean_environment, rsnotify, until

URLSET = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:rs="http://www.openarchives.org/rs/terms/">{}</urlset>'
)
ENTRY = '<url><loc>http://example.com/{}</loc><rs:md change="created"/></url>'


@pytest.fixture
async def hub(shared_hub: RunningHub) -> RunningHub:
    """As new, though it is not: no test of this file with it ends it or looks at its files."""
    return shared_hub


async def without_reader(*words: str, hub: RunningHub | None = None) -> tuple[int, str]:
    """Its status and what it says, if nobody reads its stdout; terminated after a while."""
    of_reader, stdout = os.pipe()
    os.close(of_reader)
    environment = clean_environment()
    environment.pop("PYTHONUNBUFFERED", None)  # for what is left to be written as Python ends
    if hub is not None:
        environment |= {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", *words), stdout=stdout, stderr=PIPE, env=environment
    )
    os.close(stdout)
    later = asyncio.get_running_loop().call_later(60, process.terminate)
    _, err = await process.communicate()
    later.cancel()
    assert process.returncode is not None
    return process.returncode, err.decode()


async def follow(hub: RunningHub, *options: str) -> asyncio.subprocess.Process:
    """A `subscribe` that begins at the set's beginning, so that it misses nothing."""
    _, sets = await hub.ask("GET", "/api/sets")
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", "subscribe", "dataset1"),
        *("--position", sets[0]["created"], *options),
        stdout=PIPE,
        stderr=PIPE,
        env=clean_environment() | {"RSNOTIFY_URL": hub.url},
    )


@pytest.mark.parametrize(
    "command",
    [(sys.executable, "-m", "rsnotify"), (str(Path(sys.executable).with_name("rsnotify")),)],
    ids=["module", "script"],
)
async def test_the_module_and_the_script_are_the_command_line(command):
    process = await asyncio.create_subprocess_exec(
        *command, "--version", stdout=PIPE, env=clean_environment()
    )
    out, _ = await process.communicate()
    assert (process.returncode, out.decode()) == (0, f"rsnotify {__version__}\n")


async def test_resources_named_on_the_command_line_are_published(hub):
    ended = await rsnotify(
        *("publish", "dataset1", "http://example.com/a", "http://example.com/b"),
        *("--change", "created", "--json"), hub=hub,
    )  # fmt: skip
    assert ended.status == 0, ended.err
    assert json.loads(ended.out)["accepted"] == 2


async def test_what_is_said_of_one_change_is_its_datetime(hub):
    ended = await rsnotify("publish", "dataset1", "http://example.com/a", hub=hub)
    said = ended.out.removeprefix("accepted 1 change at ").strip()
    after = ("--position", "2020-01-01", "--count", "1")
    read = await rsnotify("subscribe", "dataset1", *after, hub=hub)
    assert read.out.split() == [said, "updated", "http://example.com/a"]


async def test_only_what_is_wanted_is_printed(hub):
    for name in ("a1", "b1", "a2"):
        await rsnotify("publish", "dataset1", f"http://example.com/{name}", hub=hub)
    after = ("--position", "2020-01-01", "--count", "2", "--prefix", "http://example.com/a")
    read = await rsnotify("subscribe", "dataset1", *after, hub=hub)
    assert [line.split()[2] for line in read.out.splitlines()] == [
        "http://example.com/a1",
        "http://example.com/a2",
    ]
    refused = await rsnotify("subscribe", "dataset1", "--type", "*", hub=hub)
    assert (refused.status, "it must be a media type" in refused.err) == (2, True)
    not_allowed = await rsnotify("subscribe", "dataset1", "--type", "image/*", hub=hub)
    assert not_allowed.status == 1
    assert "rsnotify sets edit SET --filters" in not_allowed.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps([{"loc": "http://example.com/a", "change": "created"}] * 2)),
        ("a.ndjson", '{"loc":"http://example.com/a","change":"created"}\n' * 2),
        ("a.xml", URLSET.format(ENTRY.format("a") + ENTRY.format("b"))),
        ("a", '{"loc":"http://example.com/a","change":"created"}\n' * 2),
        ("a", URLSET.format(ENTRY.format("a") + ENTRY.format("b"))),
    ],
)
async def test_a_file_of_any_format_is_published(hub, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    ended = await rsnotify("publish", "dataset1", "--file", str(tmp_path / name), hub=hub)
    assert ended.status == 0, ended.err
    assert ended.out.startswith("accepted 2 changes, the last at 20")


async def test_a_long_file_goes_in_several_requests_and_shows_its_sum(hub, tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_text('{"loc":"http://example.com/a","change":"updated"}\n' * 2_500)
    ended = await rsnotify("publish", "dataset1", "-f", str(path), hub=hub)
    assert ended.out.startswith("accepted 2500 changes")


async def test_lines_on_stdin_are_published(hub):
    line = b'{"loc":"http://example.com/a","change":"updated"}\n'
    ended = await rsnotify(
        "publish", "dataset1", "-f", "-", "--format", "ndjson", hub=hub, stdin=line * 3
    )
    assert ended.out.startswith("accepted 3 changes"), ended.err


@pytest.mark.parametrize(
    ("lines", "told"), [(2, "accepted 2 changes"), (0, "there was no change to publish")]
)
async def test_lines_of_a_file_as_stdin_are_published(hub, tmp_path, lines, told):
    path = tmp_path / "changes"
    path.write_text('{"loc":"http://example.com/a","change":"updated"}\n' * lines)
    with (path if lines else Path(os.devnull)).open() as stdin:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rsnotify", "publish", "dataset1", "-f", "-"),
            *("--format", "ndjson"), stdin=stdin, stdout=PIPE, stderr=STDOUT,
            env=clean_environment() | {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN},
        )  # fmt: skip
        out, _ = await process.communicate()
    assert told in out.decode()
    assert process.returncode == (0 if lines else 1)


async def test_a_framework_change_is_published_to_the_framework_channel(hub):
    ended = await rsnotify(
        *("publish", "dataset1", "http://example.com/resourcelist1.xml", "--framework"),
        *("--capability", "resourcelist", "--index", "http://example.com/resourcelist-index.xml"),
        "--json",
        hub=hub,
    )
    assert ended.status == 0, ended.err
    after = ("--position", json.loads(ended.out)["from"])
    options = ("--framework", "--json", "--count", "1")
    told = json.loads((await rsnotify("subscribe", "dataset1", *after, *options, hub=hub)).out)
    assert told["loc"] == "http://example.com/resourcelist1.xml"
    assert (told["capability"], told["index"]) == (
        "resourcelist",
        "http://example.com/resourcelist-index.xml",
    )


async def test_a_subscription_prints_a_line_for_each_change(hub):
    answer = await hub.publish("http://example.com/a")
    process = await follow(hub, "--count", "1")
    out, err = await process.communicate()
    assert out.decode() == f"{answer['until']}  updated  http://example.com/a\n"
    assert err.decode() == f"following dataset1/change at {hub.url}\n"


async def test_a_subscription_whose_reader_goes_away_ends_quietly(hub):
    await hub.publish("http://example.com/a")
    process = await follow(hub, "--json", "--count", "20000")
    await process.stdout.readline()
    process.stdout._transport.close()
    await hub.publish("http://example.com/b")
    assert (await process.stderr.read()).decode() == f"following dataset1/change at {hub.url}\n"
    assert await process.wait() == 1


@pytest.mark.parametrize(
    ("words", "status"), [("--version", 0), ("--help", 1), ("sets list", 1), ("status --json", 1)]
)
async def test_a_command_whose_output_nobody_reads_ends_quietly(hub, words, status):
    assert await without_reader(*words.split(), hub=hub) == (status, "")


async def test_a_subscription_prints_payloads_or_json_when_asked(hub):
    await hub.publish("http://example.com/a")
    for option, start in (("--xml", "<?xml"), ("--json", '{"loc":"http://example.com/a"')):
        out, _ = await (await follow(hub, "--count", "1", option)).communicate()
        assert out.decode().startswith(start)


async def test_a_subscription_goes_on_where_its_cursor_file_says(hub, tmp_path):
    cursor = str(tmp_path / "cursor")
    await hub.publish("http://example.com/a")
    await (await follow(hub, "--count", "1", "--cursor", cursor)).communicate()
    await hub.publish("http://example.com/b")
    ended = await rsnotify("subscribe", "dataset1", "--cursor", cursor, "--count", "1", hub=hub)
    assert ended.out.endswith("http://example.com/b\n")


@pytest.mark.parametrize("option", [(), ("--xml",)], ids=["lines", "xml"])
async def test_a_subscription_ends_after_so_many_changes_within_a_notification_and_goes_on_there(
    hub, tmp_path, option
):
    locs = [f"http://example.com/{each}" for each in "abc"]
    cursor = ("--cursor", str(tmp_path / "cursor"))
    await rsnotify("publish", "dataset1", *locs, hub=hub)
    first, _ = await (await follow(hub, "--count", "2", *cursor, *option)).communicate()
    assert re.findall(r"http://example.com/\w", first.decode()) == locs[:2]
    rest = await rsnotify("subscribe", "dataset1", *cursor, *option, "--count", "1", hub=hub)
    assert re.findall(r"http://example.com/\w", rest.out) == locs[2:]


async def test_a_subscription_outlives_a_killed_hub(own_hub):
    process = await follow(own_hub, "--count", "2")
    await own_hub.publish("http://example.com/a")
    first = await process.stdout.readline()
    await own_hub.kill()
    await own_hub.start()
    await own_hub.publish("http://example.com/b")
    out, err = await process.communicate()
    assert first.endswith(b"http://example.com/a\n")
    assert out.endswith(b"http://example.com/b\n")
    begin, *again, resumed = err.decode().splitlines()
    assert begin == f"following dataset1/change at {own_hub.url}"
    assert resumed == f"connected again, resuming after {first.decode().split()[0]}"
    assert all(re.fullmatch(r"the .* \(.*\); trying again in \d+\.\d s", each) for each in again)
    assert "the connection was lost (the hub is gone)" in again[0]


async def test_a_valid_document_exits_0(tmp_path):
    path = tmp_path / "a.xml"
    up = '<rs:ln rel="up" href="http://example.com/capabilitylist.xml"/>'
    md = '<rs:md capability="changelist" from="2026-11-20T00:00:00Z"/>'
    path.write_text(URLSET.format(up + md))
    ended = await rsnotify("validate", str(path))
    assert (ended.status, ended.out) == (0, "")


async def test_an_invalid_document_exits_1_and_names_clause_place_and_mend():
    ended = await rsnotify("validate", "-", stdin=URLSET.format(ENTRY.format("a")).encode())
    assert ended.status == 1
    assert ended.out.startswith("/urlset/rs:ln[@rel='up']: up is missing [Notification 0.8")
    assert "Add <rs:ln" in ended.out


LOST = '<url><loc>http://example.com/a</loc><rs:md change="created"><rs:ln/></rs:md></url>'


@pytest.mark.parametrize("count", [0, 1_000], ids=["as written", "cut"])
async def test_a_file_of_xml_loses_nothing_on_its_way(hub, tmp_path, count):
    path = tmp_path / "a.xml"
    path.write_text("\n" + URLSET.format(ENTRY.format("a") * count + LOST))
    ended = await rsnotify("publish", "dataset1", "--file", str(path), hub=hub)
    assert (ended.status, "<rs:ln> stands inside it" in ended.err) == (1, True), ended.err
    _, listed = await hub.ask("GET", "/dataset1/changelist.xml")
    assert b"<loc>" not in listed


LIST_0_9 = URLSET.format('<rs:md capability="resourcelist" from="2013-01-03T09:00:00Z"/>')


@pytest.mark.parametrize(
    ("second", "status", "summary"),
    [
        (LIST_0_9, 0, "2 documents: 2 valid, 0 not"),
        (URLSET.format("lost"), 1, "2 documents: 1 valid, 1 not"),
        (None, 2, "2 documents: 1 valid, 1 not"),
    ],
    ids=["valid", "wrong", "not there"],
)
async def test_many_documents_are_one_table_and_one_exit_status(tmp_path, second, status, summary):
    (tmp_path / "a.xml").write_text(LIST_0_9)
    if second is not None:
        (tmp_path / "b.xml").write_text(second)
    ended = await rsnotify("validate", str(tmp_path / "b.xml"), str(tmp_path / "a.xml"))
    assert (ended.status, summary in ended.err) == (status, True), ended.err
    assert "ResourceSync 0.9" in ended.err


LIST = "http://example.com/resourcelist.xml"


async def test_sets_are_added_listed_edited_and_removed(hub):
    assert (await rsnotify("sets", "add", "dataset2", hub=hub)).out == "dataset2\n"
    edited = await rsnotify(
        "sets", "edit", "dataset2", "--private", "--address", f"resourcelist={LIST}", hub=hub
    )
    assert edited == (0, "", f"dataset2 is edited: private, resourcelist {LIST}\n")
    listed = json.loads((await rsnotify("sets", "list", "--json", hub=hub)).out)
    assert [(each["name"], each["private"], each["resourcelist"]) for each in listed] == [
        ("dataset1", False, None),
        ("dataset2", True, LIST),
    ]
    words = ("--address", "resourcelist=", "--public", "--topics-first")
    emptied = await rsnotify("sets", "edit", "dataset2", *words, hub=hub)
    said = "dataset2 is edited: public, topics first, no resourcelist\n"
    assert emptied == (0, "", said)
    listed = json.loads((await rsnotify("sets", "list", "--json", hub=hub)).out)
    assert [each["resourcelist"] for each in listed] == [None, None]
    removed = await rsnotify("sets", "remove", "dataset2", "--yes", hub=hub)
    assert removed == (0, "", "dataset2 and all its changes are removed\n")
    assert "dataset2" not in (await rsnotify("sets", "list", hub=hub)).out


async def test_a_set_that_is_there_already_as_asked_for_is_remarked_on(hub):
    for options in ((), ("--public",)):
        ended = await rsnotify("sets", "add", "dataset1", *options, hub=hub)
        assert ended == (0, "dataset1\n", "dataset1 was there already\n")


async def test_a_set_that_is_there_with_another_option_is_not_added(hub):
    ended = await rsnotify("sets", "add", "dataset1", "--private", hub=hub)
    assert (ended.status, ended.out) == (1, "")
    assert (
        "dataset1 is there already: public; "
        "change it with: rsnotify sets edit dataset1 --private" in ended.err
    )


async def test_whether_a_set_keeps_its_tombstones_is_chosen(hub):
    async def kept() -> list[bool]:
        listed = json.loads((await rsnotify("sets", "list", "--json", hub=hub)).out)
        return [each["tombstones"] for each in listed if each["name"] == "dataset5"]

    add, edit = (("sets", act, "dataset5") for act in ("add", "edit"))
    assert (await rsnotify(*add, "--tombstones", hub=hub)).status == 0
    assert await kept() == [True]
    assert (await rsnotify(*add, "--tombstones", hub=hub)).status == 0
    ended = await rsnotify(*add, "--no-tombstones", hub=hub)
    assert ended.status == 1
    assert "keeps its tombstones; change it with: rsnotify sets edit dataset5 --no-" in ended.err
    for option, said in (("--no-tombstones", "no"), ("--tombstones", "its")):
        ended = await rsnotify(*edit, option, hub=hub)
        assert ended == (0, "", f"dataset5 is edited: keeps {said} tombstones\n")
        assert await kept() == [said == "its"]
    assert (await rsnotify("sets", "remove", "dataset5", "--yes", hub=hub)).status == 0


async def test_all_that_can_be_edited_can_be_chosen_when_a_set_is_added(hub):
    chosen = {
        "title": ("My theses", "No theses"),
        "filters": ("", "no-filters"),
        "address": ("resourcelist=http://example.com/list.xml", "resourcelist="),
        "iiif": ("Manifest", "none"),
        "max-bytes": ("2000000", "0"),
    }
    add = ("sets", "add", "dataset6")
    words = [f"--{name}={value}" if value else f"--{name}" for name, (value, _) in chosen.items()]
    assert await rsnotify(*add, *words, hub=hub) == (0, "dataset6\n", "")
    (made,) = [
        each for each in (await hub.ask("GET", "/api/sets"))[1] if each["name"] == "dataset6"
    ]
    assert (made["title"], made["filters"], made["iiif"]) == ("My theses", True, "Manifest")
    assert (made["resourcelist"], made["max_bytes"]) == ("http://example.com/list.xml", 2_000_000)
    again = await rsnotify(*add, *words, hub=hub)
    assert again == (0, "dataset6\n", "dataset6 was there already\n")
    for name, (_, other) in chosen.items():
        word = f"--{other}" if other == "no-filters" else f"--{name}={other}"
        refused = await rsnotify(*add, word, hub=hub)
        assert (refused.status, refused.out) == (1, "")
        mend = re.search(r"change it with: rsnotify (sets edit dataset6 .+)", refused.err)
        assert mend is not None, refused.err
        assert (await rsnotify(*shlex.split(mend[1]), hub=hub)).status == 0
        assert (await rsnotify(*add, word, hub=hub)).status == 0
    assert (await rsnotify("sets", "remove", "dataset6", "--yes", hub=hub)).status == 0


async def test_what_catalogues_call_a_set_is_chosen_and_taken_back(hub):
    license_ = "https://creativecommons.org/licenses/by/4.0/"
    edit = ("sets", "edit", "dataset1")
    ended = await rsnotify(*edit, "--title", "Theses", "--address", f"license={license_}", hub=hub)
    assert ended == (0, "", f"dataset1 is edited: license {license_}, title Theses\n")
    turtle = (await hub.ask("GET", "/dataset1/dcat.ttl"))[1]
    assert 'dct:title "Theses"' in str(turtle)
    ended = await rsnotify(*edit, "--title", "", "--address", "license=", hub=hub)
    assert ended == (0, "", "dataset1 is edited: no license, no title\n")
    ended = await rsnotify(*edit, "--address", "license=ftp://a.example/", hub=hub)
    assert (ended.status, "license" in ended.err) == (1, True)


async def test_what_a_set_may_take_of_redis_is_chosen_and_taken_back(hub):
    async def max_bytes() -> list[int | None]:
        listed = json.loads((await rsnotify("sets", "list", "--json", hub=hub)).out)
        return [each["max_bytes"] for each in listed if each["name"] == "dataset3"]

    add = ("sets", "add", "dataset3", "--max-bytes")
    assert (await rsnotify(*add, "5000000", hub=hub)).status == 0
    assert await max_bytes() == [5_000_000]
    assert (await rsnotify(*add, "5000000", hub=hub)).status == 0
    ended = await rsnotify(*add, "6000000", hub=hub)
    assert (ended.status, "sets edit dataset3 --max-bytes 6000000" in ended.err) == (1, True)
    edit = ("sets", "edit", "dataset3", "--max-bytes")
    assert await rsnotify(*edit, "6000000", hub=hub) == (
        *(0, ""),
        "dataset3 is edited: max_bytes 6000000\n",
    )
    assert await max_bytes() == [6_000_000]
    ended = await rsnotify(*edit, "0", hub=hub)
    assert ended == (0, "", "dataset3 is edited: no max_bytes\n")
    assert await max_bytes() == [None]
    ended = await rsnotify(*edit, "1000", hub=hub)
    assert (ended.status, "max_bytes must be from 1,048,576" in ended.err) == (1, True)
    assert (await rsnotify("sets", "remove", "dataset3", "--yes", hub=hub)).status == 0


async def test_a_token_is_made_shown_once_and_revoked(hub):
    made = await rsnotify("tokens", "create", "--set", "dataset1", hub=hub)
    secret = made.out.strip()
    published = await rsnotify(
        "publish", "dataset1", "http://example.com/a",
        RSNOTIFY_URL=hub.url, RSNOTIFY_TOKEN=secret,
    )  # fmt: skip
    assert published.status == 0, published.err
    (listed,) = json.loads((await rsnotify("tokens", "list", "--json", hub=hub)).out)
    assert secret not in str(listed)
    revoked = await rsnotify("tokens", "revoke", listed["id"], hub=hub)
    assert (revoked.status, revoked.out) == (0, "")
    assert revoked.err.startswith(f"{listed['id']} is revoked")
    assert json.loads((await rsnotify("tokens", "list", "--json", hub=hub)).out) == []


async def test_a_token_that_has_leaked_is_replaced_now(hub):
    old = json.loads(
        (await rsnotify("tokens", "create", "--set", "dataset1", "--json", hub=hub)).out
    )
    rotate = ("tokens", "rotate", old["id"])
    contradicted = await rsnotify(*rotate, "--now", "--grace", "5", hub=hub)
    assert (contradicted.status, "exclude each other" in contradicted.err) == (2, True)
    new = json.loads((await rsnotify(*rotate, "--now", "--json", hub=hub)).out)
    change = {"loc": "http://example.com/a", "change": "updated"}

    async def status(secret: str) -> int:
        headers = {"Authorization": f"Bearer {secret}"}
        answer = await hub.ask("POST", "/api/sets/dataset1/changes", headers=headers, json=change)
        return answer[0]

    async def is_refused() -> bool:
        return await status(old["token"]) == 401

    await until(is_refused)
    assert await status(new["token"]) == 201


async def test_on_the_hubs_own_machine_the_data_directory_gives_the_token(tmp_path):
    async with RunningHub(tmp_path / "data", admin_token="") as own_hub:
        options = ("--url", own_hub.url, "--data", str(own_hub.data))
        assert (await rsnotify("sets", "add", "dataset2", *options)).status == 0
        assert (own_hub.data / "admin-token").stat().st_mode & 0o777 == 0o600


async def test_a_hub_that_is_not_there_is_told_soon():
    ended = await rsnotify("sets", "list", "--url", "http://127.0.0.1:9")
    assert ended.status == 1
    *again, last = ended.err.splitlines()
    assert last == (
        "error: http://127.0.0.1:9 cannot be reached: connection refused; is the hub running?"
    )
    line = re.compile(
        r"the hub http://127\.0\.0\.1:9 does not answer \(connection refused\); "
        r"trying again in \d\.\d s"
    )
    assert again
    assert all(line.fullmatch(each) for each in again)


async def test_a_redis_of_no_address_is_refused_before_anything_is_written(tmp_path):
    data = tmp_path / "data"
    ended = await rsnotify("serve", "--redis", "nonsense", "--port", "0", "--data", str(data))
    assert (ended.status, data.exists()) == (2, False)
    assert "error: --redis 'nonsense': write redis://nonsense" in ended.err


async def test_a_second_hub_on_the_same_data_exits_2(own_hub):
    ended = await rsnotify("serve", "--port", "0", "--data", str(own_hub.data))
    assert ended.status == 2
    assert "in use" in ended.err


async def test_a_port_that_is_taken_exits_2(hub, tmp_path):
    ended = await rsnotify("serve", "--port", str(hub.port), "--data", str(tmp_path / "other"))
    assert ended.status == 2
    assert not (tmp_path / "other").exists()
    assert "choose another --host or --port" in ended.err


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
async def test_a_hub_asked_to_end_exits_0(own_hub, which):
    own_hub.process.send_signal(which)
    assert await own_hub.process.wait() == 0


async def test_a_redis_that_would_lose_changes_is_warned_of(client, redis_url, tmp_path):
    await client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        async with RunningHub(tmp_path / "data", "--redis", redis_url) as own_hub:
            assert "evicts keys" in " ".join(own_hub.log.read_text().split())
    finally:
        await client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.evidence
async def test_several_workers_share_the_port_and_the_sets(tmp_path):
    async with RunningHub(tmp_path / "data", "--workers", "2") as own_hub:
        process = await follow(own_hub, "--count", "20")
        for number in range(20):
            await own_hub.publish(f"http://example.com/{number}")
        out, _ = await process.communicate()
        assert [line.rpartition("/")[2] for line in out.decode().split("\n")[:-1]] == [
            str(number) for number in range(20)
        ]
        assert await own_hub.stop() == 0


async def test_several_sets_are_added_at_once_and_one_that_is_there_stays(hub):
    ended = await rsnotify("sets", "add", "dataset3", "dataset1", "dataset4", hub=hub)
    assert ended == (0, "dataset3\ndataset1\ndataset4\n", "dataset1 was there already\n")
    listed = json.loads((await rsnotify("sets", "list", "--json", hub=hub)).out)
    assert {each["name"] for each in listed} >= {"dataset3", "dataset4"}
    made = await rsnotify("sets", "add", "dataset4", "dataset5", "--private", "--json", hub=hub)
    assert (made.status, made.out.count("\n")) == (1, 0), "of none that is there otherwise"
    assert "dataset4 is there already: public; change it with" in made.err
    for name in ("dataset3", "dataset4", "dataset5"):
        await rsnotify("sets", "remove", name, "--yes", hub=hub)
