"""What is wrong in a file that is published or loaded: named by file, line and column."""

import gzip
import re
import subprocess
from pathlib import Path

import pytest

from rsnotify.errors import Fault, Rejected
from rsnotify_client import InvalidArgument, Publisher, changes_between
from rsnotify_client.commands.places import WrittenFile, WrittenFiles
from rsnotify_client.hub import JSON
from rsnotify_mirror import Options
from tests.integration.test_mistakes import NO, USE, typed
from tests.support import forks
from tests.support.amount import enough
from tests.support.running import TOKEN, clean_environment

GOOD = '{"loc": "http://e.com/a", "change": "updated"}'
STATE = '{"loc": "http://e.com/a"}'
ENTRY = '<url><loc>http://e.com/a</loc><rs:md change="updated"/></url>'
URLSET = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    ' xmlns:rs="http://www.openarchives.org/rs/terms/">{}\n</urlset>'
)
NOT_ABSOLUTE = "loc is 'e.com/b': it must be an absolute URI such as http://example.com/res1"
FILES = [
    ("a.ndjson", f'{GOOD}\n\n  {{"loc": "e.com/b", "change": "updated"}}\n', 3, 4, NOT_ABSOLUTE),
    ("a.ndjson", f'{GOOD}\n{{"é": 1, "change": "updated"}}\n', 2, 2, "unknown field `é`: known"),
    ("a.ndjson", f'{GOOD}\n{{"loc": "é", "change"}}\n', 2, 22, "JSON is malformed: expected ':'"),
    ("a.ndjson", f'{GOOD}\n{{"loc": "http://e.com/a",\n', 2, 1, "Input data was truncated"),
    (
        "a.ndjson",
        f"{GOOD}\n" * 1_200 + '{"loc": "e.com/b", "change": "updated"}',
        1201,
        2,
        NOT_ABSOLUTE,
    ),
    (
        "a.json",
        f'[\n {GOOD},\n  {{"change": "updated",\n   "loc": "e.com/b"}}]',
        4,
        4,
        NOT_ABSOLUTE,
    ),
    ("a.json", f"[\n {GOOD},\n {{}}\n]", 3, 2, "missing required field `loc`"),
    ("a.json", f"[\n {GOOD},\n é\n]", 3, 2, "JSON is malformed: invalid character"),
    (
        "a.xml",
        URLSET.format(f"\n{ENTRY}\n{ENTRY.replace('http://e.com/a', 'e.com/b')}"),
        3,
        6,
        NOT_ABSOLUTE,
    ),
    (
        "a.xml",
        URLSET.format(f"\n {ENTRY.replace('/>', ' length=&quot;a&quot; />')}"),
        2,
        63,
        "not well",
    ),
]


@pytest.mark.parametrize(("name", "content", "line", "column", "said"), FILES)
async def test_what_is_wrong_in_a_file_of_changes_is_named_by_line_and_column(
    real_hub, tmp_path, name, content, line, column, said
):
    (tmp_path / name).write_text(content)
    ended = await typed(
        f"publish dataset1 --file {tmp_path}/{name}",
        RSNOTIFY_URL=real_hub.url,
        RSNOTIFY_TOKEN=TOKEN,
    )
    assert ended.status == NO
    assert ended.err.startswith(f"error: {tmp_path}/{name}, line {line}, column {column}: "), ended
    assert said in ended.err.splitlines()[0]


@pytest.mark.parametrize("name", ["a.ndjson.gz", "a.gz", "a"])
async def test_a_packed_file_of_changes_is_published_and_its_lines_are_counted(
    real_hub, tmp_path, name
):
    settings = {"RSNOTIFY_URL": real_hub.url, "RSNOTIFY_TOKEN": TOKEN}
    (tmp_path / name).write_bytes(gzip.compress(f"{GOOD}\n{GOOD}\n".encode()))
    ended = await typed(f"publish dataset1 --file {tmp_path}/{name}", **settings)
    assert ended.out.startswith("accepted 2 changes"), ended
    wrong = f'{GOOD}\n{{"loc": "e.com/b", "change": "updated"}}'
    (tmp_path / name).write_bytes(gzip.compress(wrong.encode()))
    ended = await typed(f"publish dataset1 --file {tmp_path}/{name}", **settings)
    assert ended.err == f"error: {tmp_path}/{name}, line 2, column 2: {NOT_ABSOLUTE}\n"


async def test_lines_that_come_on_stdin_are_counted_from_the_first(real_hub):
    lines = (f"{GOOD}\n" * 1_200 + "\n" + '{"loc": "e.com/b", "change": "updated"}\n').encode()
    settings = {"RSNOTIFY_URL": real_hub.url, "RSNOTIFY_TOKEN": TOKEN}
    words = ["publish", "dataset1", "--file", "-", "--format", "ndjson"]
    ended = await forks.run(words, clean_environment() | settings, lines)
    assert f"error: stdin, line 1202, column 2: {NOT_ABSOLUTE}" in ended.err


async def test_how_much_of_a_file_is_published_is_said_where_a_later_part_is_refused(
    real_hub, tmp_path
):
    wrong = '{"loc": "e.com/b", "change": "updated"}\n'
    (tmp_path / "a.ndjson").write_text(f"{GOOD}\n" * 1_000 + wrong * 120)
    words = f"publish dataset1 --file {tmp_path}/a.ndjson"
    ended = await typed(words, RSNOTIFY_URL=real_hub.url, RSNOTIFY_TOKEN=TOKEN)
    lines = ended.err.splitlines()
    assert lines[9].startswith(f"error: {tmp_path}/a.ndjson, line 1010, column 2: ")
    assert lines[10:] == [
        "error: and 90 more, or more than that",
        "error: the first 1,000 changes are published, and none after them",
    ]


OF_A_LOAD = [
    (f'{{"as_of": "POSITION"}}\n{STATE}\n\n{{"loc": "e.com/b"}}', 4, 2, NOT_ABSOLUTE),
    (
        f"{STATE}\n{GOOD}",
        2,
        27,
        "`change` belongs to a change, and this is a resource: leave it out",
    ),
    (f'{STATE}\n{{"loc": "http://e.com/a", "colour": 1}}', 2, 27, "field `colour`: known are"),
    (f'{STATE}\n{{"loc": "http://e.com/a", "url": 1}}', 2, 27, "field `url`: did you mean loc?"),
    (f'[{STATE},\n\n{{"loc": "http://e.com/b" 1}}]', 3, 26, "JSON is malformed: expected ','"),
    (URLSET.format(f"\n{ENTRY}").replace(' change="updated"', ' hash="a"'), 2, 31, "hash"),
    (URLSET.format(f"\n{ENTRY} <a"), 3, 1, "not well-formed XML"),
]


@pytest.mark.parametrize(("content", "line", "column", "said"), OF_A_LOAD)
@pytest.mark.parametrize("packed", enough([False, True], 1))
async def test_what_is_wrong_in_a_file_of_resources_is_named_by_line_and_column(
    real_hub, tmp_path, content, line, column, said, packed
):
    with Publisher(real_hub.url, TOKEN) as publisher:
        position = publisher.position("dataset1")
    content = content.replace("POSITION", position)
    file = tmp_path / "state"
    file.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    words = f"resources load dataset1 {file}"
    ended = await typed(words, RSNOTIFY_URL=real_hub.url, RSNOTIFY_TOKEN=TOKEN)
    assert ended.status == NO
    assert ended.err.startswith(f"error: {file}, line {line}, column {column}: "), ended.err
    assert said in ended.err, ended.err


async def test_what_is_wrong_in_the_second_of_several_files_is_found_there(real_hub, tmp_path):
    for name, content in (("one", STATE), ("two", f'\n{STATE}\n{{"loc": "e.com/b"}}')):
        (tmp_path / name).write_text(content)
    words = f"resources load dataset1 {tmp_path}/one {tmp_path}/two"
    ended = await typed(words, RSNOTIFY_URL=real_hub.url, RSNOTIFY_TOKEN=TOKEN)
    assert ended.err == f"error: {tmp_path}/two, line 3, column 2: {NOT_ABSOLUTE}\n"


CSV = "is CSV, and not JSON: write a line of JSON for each row, such as {"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "loc,change\nhttp://e.com/a,updated\n"),
        ("a.tsv", "loc\tchange\nhttp://e.com/a\tupdated\n"),
        ("a.txt", "loc;change\nhttp://e.com/a;updated\n"),
    ],
)
@pytest.mark.parametrize("command", ["publish dataset1 --file", "resources load dataset1"])
async def test_a_table_is_called_one_and_what_to_make_of_it_is_shown(
    real_hub, tmp_path, name, content, command
):
    (tmp_path / name).write_text(content)
    words = f"{command} {tmp_path}/{name}"
    ended = await typed(words, RSNOTIFY_URL=real_hub.url, RSNOTIFY_TOKEN=TOKEN)
    example = STATE.replace("e.com/a", "example.com/res1")
    if "publish" in command:
        example = f'{example[:-1]}, "change": "updated"}}'
    said = f"error: {tmp_path}/{name} {CSV}{example[1:]}"
    assert (ended.status, ended.err.startswith(said)) == (NO, True), ended.err


async def test_the_command_of_the_docs_makes_of_a_table_what_can_be_published(real_hub, tmp_path):
    text = (Path(__file__).parents[4] / "docs/publishing.md").read_text()
    (command,) = re.findall(r"^(python3 -c .*?)\n```", text, re.MULTILINE | re.DOTALL)
    table = (
        "loc,change,length,type\nhttp://e.com/a,updated,5,\nhttp://e.com/b,deleted,,text/plain\n"
    )
    (tmp_path / "table.csv").write_text(table)
    assert subprocess.run(["bash", "-c", command], cwd=tmp_path, check=False).returncode == 0
    words = f"publish dataset1 --file {tmp_path}/table.ndjson"
    ended = await typed(words, RSNOTIFY_URL=real_hub.url, RSNOTIFY_TOKEN=TOKEN)
    assert ended.out.startswith("accepted 2 changes"), ended


async def test_a_pipe_that_is_named_as_a_file_of_a_load_is_refused_before_it_is_read(real_hub):
    """It can be read but once: what was looked at to know its form would be missing."""
    settings = {"RSNOTIFY_URL": real_hub.url, "RSNOTIFY_TOKEN": TOKEN}
    words = ["resources", "load", "dataset1", "/dev/stdin"]
    ended = await forks.run(words, clean_environment() | settings, f"{STATE}\n".encode() * 100)
    said = "error: /dev/stdin is no regular file, and it would be read twice: give - for stdin\n"
    assert (ended.status, ended.err) == (USE, said)


# Large files --------------------------------------------------------------------------------------

LARGE = 1024 * 1024


@pytest.mark.parametrize(
    ("index", "place"),
    [
        (0, "a.json, line 2, column 2"),
        (63, "a.json, line 65, column 2"),  # the last that begins before the end of what is read
        (64, "entry 65"),
        (65, "entry 66"),
    ],
)
def test_a_place_is_looked_for_in_64_mib_of_an_array_and_no_further(tmp_path, index, place):
    entry = '{"loc": "e.com/b"}'
    file = tmp_path / "a.json"
    with file.open("w") as written:  # entries of 1 MiB each, the first after two bytes
        written.write("[\n")
        for number in range(66):
            written.write(("," if number else " ") + entry.ljust(LARGE - 2) + "\n")
    files = WrittenFiles([WrittenFile("a.json", lambda: file.open("rb"))], JSON)
    refused = Rejected("", status=422, faults=[Fault(index=index, message="it is wrong")])
    assert str(files.refusal(refused)) == f"{place}: it is wrong"


# Percentages --------------------------------------------------------------------------------------

NO_PERCENT = [float("nan"), float("inf"), -0.1, 100.1, "10", True]


COMMANDS = [
    "publish dataset1 --between a.xml b.xml",
    "resources load dataset1 a.ndjson",
    "mirror http://127.0.0.1:9/ COPY",
    "audit http://127.0.0.1:9/ COPY",
    "bridge http://127.0.0.1:9/ dataset1",
]


@pytest.mark.parametrize("given", enough(["nan", "100.1", "-0.1", "inf", "NaN"], 2))
@pytest.mark.parametrize("command", COMMANDS)
async def test_what_is_no_percentage_is_refused_by_every_command(tmp_path, command, given):
    words = command.replace("COPY", str(tmp_path / "copy"))
    ended = await typed(f"{words} --max-delete={given}")
    assert ended.status == USE, ended
    assert "--max-delete" in ended.err
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("given", NO_PERCENT)
def test_and_by_every_function(given, tmp_path):
    for call in (
        lambda: list(changes_between("a.xml", "b.xml", max_delete=given)),
        lambda: Publisher("http://127.0.0.1:9").load("a", [], max_delete=given),
        lambda: Options(max_delete=given),
    ):
        with pytest.raises(InvalidArgument, match=r"^max_delete is .*: give a number of percent"):
            call()


@pytest.mark.parametrize("given", [0, 0.0, 100, 12.5])
def test_a_percentage_is_taken_from_0_to_100(given):
    assert Options(max_delete=given).max_delete == given
