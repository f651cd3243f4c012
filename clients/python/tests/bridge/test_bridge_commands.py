"""`rsnotify bridge` as a command; and the tutorial of docs/bridge.md, run as it stands."""

import asyncio
import os
import pty
import re
import shlex
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from clients.python.tests.bridge.bridging import Bridging
from clients.python.tests.client.test_commands import read_until
from rsnotify.errors import InvalidSettings
from rsnotify_bridge.options import MAX_BRIDGES, read_bridges
from tests.support.amount import enough
from tests.support.repositories import Repository
from tests.support.running import TOKEN, clean_environment, rsnotify

PAGE = (Path(__file__).parents[4] / "docs/bridge.md").read_text()
TUTORIAL = PAGE.partition("## Push for a repository")[2].partition("\n## ")[0]
COMMANDS = [*"".join(re.findall(r"```sh\n(.*?)```", TUTORIAL, re.DOTALL)).splitlines()]

MAP = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">%s</urlset>'


async def shell(line: str, folder: Path, url: str, token: str = TOKEN) -> tuple[int, str]:
    known = {"RSNOTIFY_URL": url, "RSNOTIFY_TOKEN": token}
    if not re.search(r"[|&$>]", line):
        name, *words = shlex.split(line)
        assert name == "rsnotify"
        ended = await rsnotify(*words, folder=folder, **known)
        return ended.status, ended.out + ended.err
    program = f'rsnotify() {{ "{sys.executable}" -m rsnotify "$@"; }}\n'
    environment = clean_environment() | known
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", program + line, cwd=folder, env=environment, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_the_tutorial_gives_push_to_a_repository_that_has_only_oai_pmh(
    real_hub, source, tmp_path
):
    repository = Repository(source.loc("oai"))
    source.handlers["/oai"] = repository.handler
    for number in range(12):
        repository.put(number)
    add, token, show, bridge, follow = [
        each.replace("https://repo.example/oai", source.loc("oai")) for each in COMMANDS
    ]
    assert follow == "rsnotify subscribe theses"
    status, made = await shell(f"{add} && {token.replace('export ', '')} && echo $RSNOTIFY_TOKEN",
                               tmp_path, real_hub.url)  # fmt: skip
    assert status == 0, made
    given = made.split()[-1]
    status, shown = await shell(show, tmp_path, real_hub.url, given)
    assert (status, "OAI-PMH: ListRecords of A repository" in shown) == (0, True)
    assert "\nall of it is compared once a week\n" in shown
    assert len(repository.asked) == 1  # to identify itself: nothing else is asked for
    loaded = "12 resources, 12 loaded"
    for number, expected in ((None, f"{loaded}\n"), (5, f"{loaded}, 1 published")):
        if number is not None:
            repository.put(number)
        status, said = await shell(f"{bridge} --once", tmp_path, real_hub.url, given)
        assert (status, expected in said) == (0, True), said
    assert real_hub.told("theses") == [("updated", "5")]


async def test_of_several_those_that_are_out_of_step_come_first(
    real_hub, set_name, source, tmp_path
):
    lines = []
    for name in ("a", "b", "c"):
        source.documents[f"/{name}.xml"] = (
            MAP % f"<url><loc>{source.loc(name)}</loc></url>".encode()
        )
        address = source.loc(f"{name}.xml")
        lines += ["[[bridge]]", f'from = "{address}"', f'set = "{set_name}"', "shared = true"]
    (tmp_path / "bridges.toml").write_text("\n".join(lines))
    once = "rsnotify bridge --config bridges.toml --once"
    status, said = await shell(once, tmp_path, real_hub.url)
    assert status == 0, said
    del source.documents["/b.xml"]
    assert (await shell(once, tmp_path, real_hub.url))[0] == 1
    _, said = await shell("rsnotify bridge --status", tmp_path, real_hub.url)
    rows = [each for each in said.splitlines() if f"  {set_name}  " in each]
    assert [row.split()[0] for row in rows] == ["NOT", "in", "in"]
    for name, row in zip("bac", rows, strict=True):
        assert source.loc(f"{name}.xml") in row
    assert "1 resource, 1 published, 0 waiting" in rows[0]
    assert "  failed 1 times: " in said.splitlines()[1]
    assert "\n2 in step, 1 not\n" in said


@pytest.mark.parametrize("garbage", enough(["<html>we are busy</html>", "", "<urlset"], 1))
@pytest.mark.parametrize("path", ["/map.xml", "/map"])
async def test_a_known_source_without_a_document_is_at_fault_and_not_the_command(
    real_hub, source, tmp_path, path, garbage
):
    source.documents[path] = MAP % f"<url><loc>{source.loc('a')}</loc></url>".encode()
    bridge = f"rsnotify bridge {source.url}{path} dataset1 --shared"
    assert (await shell(f"{bridge} --once", tmp_path, real_hub.url))[0] == 0
    source.answer(path, garbage)
    for line in (f"{bridge} --once", f"{bridge} --show"):
        status, said = await shell(line, tmp_path, real_hub.url)
        assert (status, "but a Source was found there before: try again" in said) == (1, True), said
    status, said = await shell(f"{bridge} --show --state none.db", tmp_path, real_hub.url)
    assert (status, "found there before" in said, (tmp_path / "none.db").exists()) == (
        2,
        False,
        False,
    )


async def test_what_is_held_back_is_shown_and_let_through(real_hub, set_name, source, tmp_path):
    source.documents["/map.xml"] = MAP % f"<url><loc>{source.loc('a')}</loc></url>".encode()
    once = f"rsnotify bridge {source.loc('map.xml')} {set_name} --once"
    assert (await shell(once, tmp_path, real_hub.url))[0] == 0
    assert (await shell("rsnotify bridge --status", tmp_path, real_hub.url))[0] == 0
    source.documents["/map.xml"] = MAP % b""
    for _ in range(2):  # each says it, and once
        status, said = await shell(once, tmp_path, real_hub.url)
        assert (status, said.count("1 of 1 resources"), said.count("let it through")) == (1, 1, 1)
    status, said = await shell("rsnotify bridge --status", tmp_path, real_hub.url)
    assert (status, "held back: 1 of 1 resources" in said) == (1, True)
    status, said = await shell("rsnotify bridge --release", tmp_path, real_hub.url)
    assert (status, "let through: 1 of 1" in said) == (0, True)
    assert "let it through" not in said
    metrics = f"{once} --metrics numbers.prom"
    assert (await shell(metrics, tmp_path, real_hub.url))[0] == 0
    assert real_hub.told(set_name) == [("deleted", "a")]
    labels = f'{{source="{source.loc("map.xml")}",set="{set_name}"}}'
    assert f"rsnotify_bridge_in_step{labels} 1\n" in (tmp_path / "numbers.prom").read_text()


async def test_a_bridge_that_fails_does_not_hold_up_the_others(
    real_hub, set_name, source, tmp_path
):
    source.documents["/map.xml"] = MAP % f"<url><loc>{source.loc('a')}</loc></url>".encode()
    (tmp_path / "bridges.toml").write_text(
        f'[[bridge]]\nfrom = "{source.loc("nothing.xml")}"\nset = "dataset1"\n'
        f'[[bridge]]\nfrom = "{source.loc("map.xml")}"\nset = "{set_name}"\n'
    )
    line = "rsnotify bridge --config bridges.toml --once"
    for _ in range(2):  # each says what has failed, and once
        status, said = await shell(line, tmp_path, real_hub.url)
        assert (status, f"to {set_name}: 1 resource," in said) == (1, True), said
        assert said.count("nothing at this address") == 1, said


async def test_a_set_that_is_not_there_yet_is_made_and_one_that_is_stays_as_it_is(
    real_hub, set_name, source, tmp_path
):
    source.documents["/map.xml"] = MAP % f"<url><loc>{source.loc('a')}</loc></url>".encode()
    new = f"new-{set_name[-50:]}"
    (tmp_path / "bridges.toml").write_text(
        f'[[bridge]]\nfrom = "{source.loc("map.xml")}"\nset = "{new}"\ncreate = true\n'
    )
    once = "rsnotify bridge --config bridges.toml --once"
    status, said = await shell(once, tmp_path, real_hub.url)
    assert (status, f"{new}: made at {real_hub.url}" in said) == (0, True), said
    edit = f"rsnotify sets edit {new} --private"
    assert (await shell(edit, tmp_path, real_hub.url))[0] == 0
    token = f"rsnotify tokens create --set {new} 2>/dev/null"
    _, publisher = await shell(token, tmp_path, real_hub.url)
    status, said = await shell(once, tmp_path, real_hub.url, publisher.strip())
    assert (status, "made at" in said) == (0, False), said
    _, shown = await shell(f"rsnotify sets list | grep {new}", tmp_path, real_hub.url)
    assert shown.split()[2] == "yes"


async def test_a_token_that_makes_no_sets_is_refused_at_once(real_hub, set_name, source, tmp_path):
    token = f"rsnotify tokens create --set {set_name} 2>/dev/null"
    _, publisher = await shell(token, tmp_path, real_hub.url)
    line = f"rsnotify bridge {source.loc('map.xml')} none-{set_name[-50:]} --create"
    status, said = await shell(line, tmp_path, real_hub.url, publisher.strip())
    assert status == 2
    assert f"there is no set 'none-{set_name[-50:]}' that this token may publish to" in said
    assert "and it cannot be made: only the admin token may do this" in said
    assert len(source.asked) == 0


async def test_a_set_is_made_when_the_hub_is_back_though_it_was_away_at_the_start(
    real_hub, set_name, source, tmp_path
):
    """No bridge is asked whether the hub takes what it has."""
    source.documents["/map.xml"] = MAP % f"<url><loc>{source.loc('a')}</loc></url>".encode()
    bridging = Bridging(real_hub, f"late-{set_name[-50:]}", tmp_path / "late.db")
    facts = await bridging.once(source.loc("map.xml"), create=True)
    assert (facts.error, bridging.count()) == (None, 1)


async def test_on_a_terminal_a_bridge_shows_what_it_knows_until_it_is_interrupted(
    real_hub, set_name, source, tmp_path
):
    source.documents["/map.xml"] = MAP % f"<url><loc>{source.loc('a')}</loc></url>".encode()
    ours, theirs = pty.openpty()
    bridge = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rsnotify", "bridge", source.loc("map.xml"), set_name),
        cwd=tmp_path, stdout=PIPE, stderr=theirs,
        env=clean_environment()
        | {"RSNOTIFY_URL": real_hub.url, "RSNOTIFY_TOKEN": TOKEN, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    await asyncio.to_thread(read_until, ours, "1 resources known, 0 published, 0 failing")
    bridge.terminate()
    said, _ = await bridge.communicate()
    os.close(ours)
    assert (said, bridge.returncode) == (b"rsnotify bridge ready, 1 bridge\n", 130)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bridge = 1", "Expected `array`"),
        ('[[bridge]]\nfrom = "x"\nset = "a"', "is no address of a Source"),
        ('[[bridge]]\nfrom = "http://a/"\nset = "A B"', "bridge 1"),
        ('[[bridge]]\nfrom = "http://a/"\nset = "a"\nspeed = 1', "speed"),
        ('[[bridge]]\nfrom = "http://a/"\nset = "a"\nloc = "x"', "are for OAI-PMH"),
        ('[[bridge]]\nfrom = "http://a/"\nset = "a"\ninterval = 9\nmax-interval = 5', "longest"),
        ("[[bridge]]\nfrom = 'http://a/'\nset = 'a'\n" * 2, "stands twice"),
        ("no toml", "Expected"),
        ("a = " + "[" * 5_000, "recursion"),
        ('[[bridge]]\nfrom = "http://a:99999/"\nset = "a"', "bridge 1: http://a:99999/: Port out"),
        ('[[bridge]]\nfrom = "http://u:secret@[x/"\nset = "a"', "bridge 1: http://[x/: "),
        ('[[bridge]]\nfrom = "oai:ftp://a/"\nset = "a"', "must be an address such as"),
        (f'[[bridge]]\nfrom = "http://a/{"x" * 4_096}"\nset = "a"', "of length <= 4096"),
        ('[[bridge]]\nfrom = "http://a/"\nset = "a"\nmax-interval = inf', "`float` <= 31622400"),
        ('[[bridge]]\nfrom = "http://a/"\nset = "a"\ncompare = nan', "`float` >= 1.0"),
        ('[[bridge]]\nfrom = "oai:http://a/"\nset = "a"\nloc = "{x}"', "bridge 1: --loc: {x}"),
    ],
)
def test_what_is_wrong_in_a_file_of_bridges_is_said(tmp_path, text, problem):
    (tmp_path / "bridges.toml").write_text(text)
    with pytest.raises(InvalidSettings) as refused:
        read_bridges(tmp_path / "bridges.toml")
    assert problem in " ".join(refused.value.problems)


@pytest.mark.parametrize("count", [0, 1, MAX_BRIDGES, MAX_BRIDGES + 1])
def test_a_file_has_one_to_ten_thousand_bridges(tmp_path, count):
    tables = (f'[[bridge]]\nfrom = "http://a.example/{each}"\nset = "a"\n' for each in range(count))
    (tmp_path / "bridges.toml").write_text("".join(tables) or "bridge = []")
    if 1 <= count <= MAX_BRIDGES:
        assert len(read_bridges(tmp_path / "bridges.toml")) == count
        return
    with pytest.raises(InvalidSettings, match="Expected `array` of length"):
        read_bridges(tmp_path / "bridges.toml")
