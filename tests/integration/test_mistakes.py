"""What is typed wrong at the command line: no traceback, the right status, and the mend named."""

import asyncio
import gzip
import re
import shlex

import pytest
from aiohttp import web

from tests.support import forks
from tests.support.amount import enough
from tests.support.running import TOKEN, clean_environment
from tests.support.stream_server import WebServer, one_answer

USE, NO = 2, 1  # exit statuses: used wrong, or the hub or a document says no
AT_ONCE = 4  # commands, most of which wait for an answer

MISTAKES = [
    ("publsh", USE, "Did you mean 'publish'? See rsnotify --help"),
    ("publish", USE, "missing argument 'SET'; see rsnotify publish --help"),
    ("publish dataset1", USE, "name resources, or give a --file"),
    ("publish dataset1 LOC --token secret", USE, "set RSNOTIFY_TOKEN"),
    ("publish dataset1 LOC --tokn secret", USE, "set RSNOTIFY_TOKEN"),
    ("load dataset1 DIR/list.xml", USE, "did you mean `rsnotify resources load`? See"),
    ("create", USE, "no such command 'create'; did you mean `rsnotify tokens create`?"),
    (
        "show dataset1",
        USE,
        "did you mean `rsnotify resources show` or `rsnotify subscriptions show`? See",
    ),
    ("tokens add", USE, "the commands are list, create, rotate, revoke"),
    (
        "publish dataset1 LOC --chang created",
        USE,
        "no such option: --chang; did you mean --change?",
    ),
    (
        "publish dataset1 LOC --change create",
        USE,
        "deleted; did you mean created? See rsnotify pub",
    ),
    (
        "subscribe dataset1 --postion 2026-01-01",
        USE,
        "no such option: --postion; did you mean --position? See",
    ),
    ("subscribe dataset1 --frm 2026-01-01", USE, "did you mean --position? See rsnotify subsc"),
    ("subscribe dataset1 --zzz", USE, "no such option: --zzz; see rsnotify subscribe --help"),
    ("publish datset1 LOC", USE, "did you mean dataset1?"),
    ("publish zzz LOC", USE, "make it with: rsnotify sets add zzz"),
    ("publish LOC dataset1", USE, "is an address: name the set"),
    ("publish dataset1 example.com/a", NO, "an absolute URI such as http://example.com/res1"),
    ("publish dataset1 LOC --change changed", USE, "one of created, updated, deleted"),
    ("publish dataset1 LOC --lastmod yesterday", NO, "such as 2026-11-20T21:34:00Z"),
    ("publish dataset1 LOC/é", NO, "publish 'http://example.com/a/%C3%A9'"),
    ("publish dataset1 updated LOC", USE, "say what happened with --change updated"),
    ("publish dataset1 DIR/text", USE, "is a file: publish the changes in it with --file"),
    ("publish dataset1 DIR", USE, "is a folder: publish what changed in it with --dir"),
    ("publish dataset1 --file DIR/list.xml", NO, "which `rsnotify resources load` loads"),
    ("publish dataset1 --file DIR/list.xml --change created", USE, "in a --file each change says"),
    ("publish dataset1 --file DIR/list.xml --lastmod 2026-11-20", USE, "in a --file each change"),
    ("publish dataset1 --file DIR/lines.json", NO, "a change in each line: say --format ndjson"),
    ("publish dataset1 --file DIR/cut.json.gz", NO, "cut.json.gz: it is no whole gzip: it breaks"),
    (
        "publish dataset1 --framework --file DIR/list.xml --capability a",
        USE,
        "says its own change,",
    ),
    ("publish dataset1 LOC --key=", USE, "--key is empty"),
    ("publish dataset1 --between a", USE, "requires 2 arguments; see rsnotify publish --help"),
    ("publish DataSet1/ LOC", USE, "did you mean dataset1?"),
    ("publish dataset1 LOC --url HUB?a=b", USE, "give it without ?a=b"),
    ("publish dataset1 --file DIR/none.json", USE, "none.json: No such file"),
    ("publish dataset1 --file DIR/misspelt.json", NO, "`chnge`: did you mean change?"),
    ("publish dataset1 --file DIR/unknown.json", NO, "known are loc, change, lastmod"),
    ("publish dataset1 --file DIR/text", NO, "--format may be json, ndjson, jsonl, xml"),
    ("publish dataset1 --file DIR/empty.json", NO, "the file is empty"),
    ("publish dataset1 --file DIR/table.csv", NO, 'for each row, such as {"loc": "http://exampl'),
    ("resources load dataset1 DIR/table.csv", NO, "table.csv is CSV, and not JSON: write a line"),
    ("sets remove dataset1", NO, "Remove dataset1, with 0 resources and all its changes? [y/N]"),
    ("publish dataset1 --file DIR/text --format yaml", USE, "one of json, ndjson"),
    ("publish dataset1 LOC --index LOC", USE, "go with --framework"),
    ("publish dataset1 LOC --framework", USE, "--framework needs the --capability"),
    ("publish dataset1 LOC --framework --capability list", NO, "one of resourcelist"),
    ("publish dataset1 LOC --base http://a.org", USE, "--base, --watch and --state go with --dir"),
    ("publish dataset1 --dir .", USE, "--dir needs --base"),
    ("publish dataset1 LOC --url localhost:8080", USE, "write http://localhost:8080"),
    ("subscribe datset1", USE, "did you mean dataset1?"),
    ("subscribe dataset1 --position yesterday", USE, "2026-11-20T21:34:00.123456Z"),
    ("subscribe dataset1 --position 2099-01-01T00:00:00Z", NO, "in the future"),
    ("subscribe dataset1 --from 2020-01-01", USE, "--from is called --position"),
    ("subscribe dataset1 --count -1", USE, "'--count'"),
    ("subscribe dataset1 --cursor DIR/no/c", USE, "/no is not there: make"),
    ("subscribe HUB/dataset1", USE, "is an address: name the set"),
    ("tokens", USE, "create"),
    ("tokens create", USE, "name the sets that the token is for with --set"),
    (
        "tokens create --set dataset1 --right write",
        USE,
        "write: to write to a set is --right publish; see",
    ),
    ("tokens create --set dataset1 --right reed", USE, "one of publish, read; did you mean read?"),
    ("tokens create dataset1", USE, "--set: rsnotify tokens create --set dataset1\n"),
    ("tokens create a --set dataset1", USE, "tokens create --set dataset1 --set a\n"),
    ("tokens rotate nope", USE, "there is no token 'nope': `rsnotify tokens list` shows all"),
    ("tokens revoke rsn_secret", USE, "this is a token itself: give its ID, which is 8430c4da\n"),
    ("tokens create --set dataset1 --expires soon", USE, "'soon' is not a whole number"),
    ("tokens create --set dataset2", USE, "did you mean dataset1?"),
    ("tokens revoke nope", USE, "there is no token 'nope': `rsnotify tokens list` shows all"),
    ("sets ad museum", USE, "Did you mean 'add'?"),
    ("sets add MySet", USE, "a-z 0-9"),
    (
        "sets remove museum --filters",
        USE,
        "--filters; it belongs to `rsnotify sets add` and `rsnotify sets edit`; see rsnotify sets",
    ),
    (
        "sets edit museum --yes",
        USE,
        "no such option: --yes; this command asks nothing, so leave it out; see rsnotify sets edit",
    ),
    ("sets add museum --iiif Manifst", USE, "Manifest, Collection, none; did you mean Manifest?"),
    ("sets add museum --privat", USE, "no such option: --privat; did you mean --private?"),
    ("sets add hub", USE, "reserved for the hub itself"),
    ("sets remove datset1", USE, "did you mean dataset1?"),
    ("sets remove datset1 --yes", USE, "did you mean dataset1?"),
    ("sets remove zzz", USE, "error: there is no set 'zzz': `rsnotify sets list` shows all\n"),
    ("sets remove zzz --yes", USE, "error: there is no set 'zzz': `rsnotify sets list` shows all"),
    ("resources show zzz", USE, "error: there is no set 'zzz': `rsnotify sets list` shows all\n"),
    ("resources load zzz DIR/list.xml", USE, "make it with: rsnotify sets add zzz"),
    ("subscriptions show nope", USE, "no subscription 'nope': `rsnotify subscriptions list` shows"),
    ("sets list --url http://[::1", USE, "Invalid IPv6 URL"),
    ("sets edit dataset1", USE, "say what to edit: --private|--public, --sockets-first|--topics-"),
    (
        "sets edit dataset1",
        USE,
        "--address NAME=URL, --title TEXT, --iiif TYPE, --max-bytes BYTES",
    ),
    ("sets edit dataset1 --address topic=here", NO, "http:// https://"),
    ("sets snapshot datset1", USE, "did you mean dataset1?"),
    ("sets snapshot zzz", USE, "there is no set 'zzz': `rsnotify sets list` shows all\n"),
    ("sets edit dataset1 --address topic", USE, "write NAME=URL, such as topic=http://"),
    ("sets edit dataset1 --address resourcelst=LOC", USE, "; did you mean resourcelist? See"),
    ("sets edit dataset1 --address topic=LOC --address topic=", USE, "topic is given twice"),
    ("sets add one two --max-bytes x", USE, "'x' is not a whole number"),
    ("check --port 0", USE, "error: `rsnotify check` is called `rsnotify serve --check`\n"),
    ("check", USE, "error: `rsnotify check` is called `rsnotify serve --check`\n"),
    ("outbox --drop a", USE, "`rsnotify outbox` is called `rsnotify relay --status`\n"),
    ("snapshot dataset1", USE, "`rsnotify snapshot` is called `rsnotify sets snapshot`\n"),
    ("resources compare a b", USE, "`rsnotify resources compare` is called `rsnotify resources lo"),
    ("sets edit a --resource-list LOC", USE, "list is called --address resourcelist=URL\n"),
    ("sets edit a --topic=LOC", USE, "error: --topic is called --address topic=URL\n"),
    ("serve --connect", USE, "--connect and --json go with --check"),
    ("resources load a DIR/list.xml -n --publish", USE, "--dry-run goes without --publish"),
    ("relay --database sqlite:///none.db --status --drop a", USE, "--drop goes without --status"),
    ("relay --database sqlite:///none.db --drop a --forget a", USE, "--forget goes without --drop"),
    ("relay --database sqlite:///none.db --yes", USE, "--yes goes with --drop"),
    ("resources load dataset1 DIR/none.json", USE, "No such file"),
    ("resources load dataset1 DIR/text", NO, "JSON is malformed"),
    ("resources load dataset1 DIR/text --max-delete 101", USE, "'--max-delete'"),
    ("resources load DIR/text dataset1", USE, "text is a file: name the set first"),
    ("resources show datset1", USE, "did you mean dataset1?"),
    ("mirror", USE, "missing argument 'URL... [DIR]'"),
    ("resources load SET x.ndjson --tell", USE, "--tell is called --publish"),
    ("resources load SET x.ndjson --no-tell", USE, "--no-tell is called --no-publish"),
    ("mirror HUB copy --onse", USE, "no such option: --onse; did you mean --once? See"),
    ("mirror HUB/none copy --once", USE, "there is no set 'none'"),
    ("validate", USE, "name documents, or one Source with --site"),
    ("validate none.xml", USE, "cannot read none.xml"),
    ("validate DIR/text", NO, "not well-formed XML"),
    ("validate --site localhost:8080", USE, "http"),
    ("audit DIR/none HUB", USE, "the address comes first, then the directory"),
    ("serve --set MySet", USE, "did you mean myset?"),
    ("serve --data DIR/text", USE, "text is no directory"),
    ("subscriptions retry LOC", USE, "name its ID, which `rsnotify subscriptions list` shows"),
    ("backup", USE, "missing argument 'FILE'"),
    ("restore none", USE, "name one that `rsnotify backup` has written"),
    (
        "serve --check --connect --redis redis://127.0.0.1:9",
        USE,
        "cannot be reached: connection refused",
    ),
    ("mirror HUB copy --jobs 0", USE, "'--jobs': 0 is not in the range 1 to 256"),
    ("serve --check --port 99999", USE, "a whole number from 0 to 65535"),
    ("relay", USE, "--database"),
    ("relay --database sqlite:///none.db", USE, "--create-table"),
    ("status --url HUB/x", USE, "look at --url"),
    ("health --url TLS", NO, "it does not speak TLS: is it an http:// address?"),
    ("health --url http://127.0.0.1:9", NO, "connection refused; is the hub running?"),
    ("mirror HUB/", USE, "say where the copy shall be"),
    ("mirror HUB/ --stdout --json", USE, "--stdout goes without"),
    ("mirror copyx http://127.0.0.1:9", USE, "the address comes first, then the directory"),
    ("mirror copyx copy", USE, "give one that begins with http://, https:// or ws://"),
    ("mirror http://127.0.0.1:9/ DIR/copy --once", USE, "refused; is the address right?\n"),
    ("mirror http://no.invalid/ DIR/copy2 --once", USE, "name is known: is it spelt right?\n"),
    ("mirror http://a/ DIR/copy --map http://a/=../b", USE, "a folder inside the mirror"),
    ("mirror http://a/ DIR/copy --map http://a/=/b", USE, "a folder inside the mirror"),
    ("mirror http://a/ DIR/copy --map =b", USE, "a folder inside the mirror"),
    ("""mirror http://a/ DIR/copy --exec "'\"""", USE, "--exec: No closing quotation"),
    ("mirror http://a/ DIR/copy --exec ''", USE, "--exec: name a command"),
    ("mirror http://a/ DIR/copy --exec './no x'", USE, "--exec ./no: there is no such"),
    ("mirror http://a/ DIR/copy --exec 'true {path}'", USE, "Read $RSNOTIFY_PATH instead"),
    ("mirror http://a/ DIR/copy --exec 'true {loc}'", USE, "Read $RSNOTIFY_LOC instead"),
    (
        "dump DIR a.zip --from 2026-11-20 --announce a --json",
        USE,
        "goes without --announce, --json",
    ),
    ("dump DIR out --publish a", USE, "error: --publish is called --announce SET\n"),
    ("dump DIR a.zip --from 2026-11-20 --keep 9 --changes", USE, "goes without --changes, --keep"),
    ("bridge http://a/ a --source-token x", USE, "others see it: set RSNOTIFY_SOURCE_TOKEN"),
    ("mirror http://a/ DIR/copy --token x", USE, "others see it: set RSNOTIFY_TOKEN"),
    ("audit http://a/ DIR/nothing", USE, "is no mirror: make one with rsnotify mirror"),
    ("publish a --between http://[::1/x /dev/null", USE, "http://[::1/x: Invalid IPv6 URL; must"),
    ("publish a --between http://..é/ /dev/null", USE, "cannot be the name of a host"),
    ("publish a --between http://a/é /dev/null", USE, "write http://a/%C3%A9"),
    ("publish a --between http://127.0.0.1:9/ /dev/null", USE, "127.0.0.1:9/: connection refused"),
    ("publish a --between HUB/none.xml /dev/null", USE, "none.xml: it answered 404"),
    ("publish a --between none.xml /dev/null", USE, "cannot read none.xml: no such file"),
    ("publish a --between . /dev/null", USE, "cannot read .: is a directory"),
    ("relay --database mysql://[::1/x", USE, "cannot read the database's URL: Invalid IPv6 URL"),
    ("relay --database mysql://a:x/", USE, "cannot read the database's URL: Port could not be"),
    ("relay --database sqlite:///", USE, "names no file: write sqlite:///file.db"),
    ("relay --database sqlite:///a%00", USE, "names no file: write sqlite:///file.db"),
    ("publish 'data set' LOC --url http://127.0.0.1:9", USE, "'data set' is not a valid name"),
    ("sets add 'data set' --url http://127.0.0.1:9", USE, "'data set' is not a valid name"),
    ("validate HUB/none.xml", USE, "there is nothing at this address: look whether it is right"),
    ("validate http://[::1/x", USE, "http://[::1/x is no address that can be fetched"),
    ("validate http://127.0.0.1:9/a.xml", USE, "9/a.xml: connection refused"),
]


LIST = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    "<url><loc>http://e.com/a</loc></url></urlset>"
)


async def typed(line: str, **settings: str) -> forks.Ended:
    """What becomes of a command."""
    return await forks.run(shlex.split(line), clean_environment() | settings)


async def test_every_mistake_is_answered_with_its_mend(hub, tmp_path):
    (tmp_path / "misspelt.json").write_text('{"loc": "http://e.com/a", "chnge": "updated"}')
    (tmp_path / "unknown.json").write_text('{"loc": "http://e.com/a", "zzzzzzz": "updated"}')
    (tmp_path / "empty.json").write_text("\n")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "table.csv").write_text("loc,change\nhttp://e.com/a,updated\n")
    (tmp_path / "lines.json").write_text('{"loc": "http://e.com/a"}\n{"loc": "http://e.com/b"}\n')
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"{}" * 100)[:-9])
    (tmp_path / "list.xml").write_text(LIST)
    words = {
        "HUB": hub.url,
        "TLS": hub.url.replace("http:", "https:"),
        "LOC": "http://example.com/a",
        "DIR": str(tmp_path),
    }
    typing = asyncio.Semaphore(AT_ONCE)

    async def wrong(mistake: str, status: int, mend: str) -> str | None:
        line = re.sub("HUB|TLS|LOC|DIR", lambda found: words[found[0]], mistake)
        async with typing:
            ended = await typed(line, RSNOTIFY_URL=hub.url, RSNOTIFY_TOKEN=TOKEN)
        said = ended.out + ended.err
        if ended.status != status or mend not in said or "Traceback" in said:
            return f"{line}: {ended.status}, not {status} and {mend!r}: {said}"
        return None

    found = await asyncio.gather(*(wrong(*mistake) for mistake in MISTAKES))
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.parametrize("name", enough(["datset1", "secret", "zzz"], 2))
@pytest.mark.parametrize(
    ("sent", "mend"),
    [(False, "(none was sent, for there is no "), (True, "(it is the one in RSNOTIFY_TOKEN)")],
)
async def test_a_set_that_is_not_there_for_this_token_is_wrong_use(hub, tmp_path, name, sent, mend):
    await hub.ask("PUT", "/api/sets/secret", json={"private": True})
    settings = {"RSNOTIFY_URL": hub.url}
    if sent:
        made = await hub.ask("POST", "/api/tokens", json={"sets": ["dataset1"], "rights": ["read"]})
        settings["RSNOTIFY_TOKEN"] = made[1]["token"]
    line = f"subscribe {name} --data {tmp_path}/none"
    ended = await typed(line, **settings)
    assert ended.status == USE
    assert (mend if name != "datset1" else "did you mean dataset1?") in ended.err


@pytest.mark.parametrize(("option", "kind"), [("", "warning: "), (" --json", '{"warnings":["')])
async def test_a_misspelt_variable_is_said_and_the_command_goes_on(hub, option, kind):
    line = f"publish dataset1 http://example.com/a{option}"
    ended = await typed(
        line, RSNOTIFY_URL=hub.url, RSNOTIFY_TOKEN=TOKEN, RSNOTIFY_TOKN=TOKEN, RSNOTIFY_PORT="1"
    )
    said = f"{kind}RSNOTIFY_TOKN is no setting; did you mean RSNOTIFY_TOKEN?"
    assert (ended.status, ended.err.count("\n"), said in ended.err) == (0, 1, True), ended


@pytest.mark.parametrize("line", ["publish dataset1 http://e.com/a", "mirror http://a/ DIR/copy"])
async def test_a_misspelt_certificate_ends_a_command(hub, tmp_path, line):
    settings = {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN, "RSNOTIFY_CLIENT_CERT": "a.pem"}
    ended = await typed(line.replace("DIR", str(tmp_path)), **settings)
    assert ended.status == USE
    assert "RSNOTIFY_CLIENT_CERT is no setting: set RSNOTIFY_CLIENT_CERTIFICATE" in ended.err


async def test_the_shell_completes_sets_and_shows_nothing_else(hub):
    asked = {
        "_RSNOTIFY_COMPLETE": "complete_bash",
        "COMP_WORDS": "rsnotify publish data",
        "COMP_CWORD": "2",
        "RSNOTIFY_TOKEN": TOKEN,
        "RSNOTIFY_TOKN": TOKEN,
    }
    there = await typed("", RSNOTIFY_URL=hub.url, **asked)
    assert (there.out.strip(), there.err) == ("dataset1", ""), there
    away = await typed("", RSNOTIFY_URL="http://127.0.0.1:9", **asked)
    assert (away.out.strip(), away.err) == ("", ""), away


async def test_a_script_gets_its_errors_in_json(hub):
    line = "publish dataset1 example.com/a --json"
    ended = await typed(line, RSNOTIFY_URL=hub.url, RSNOTIFY_TOKEN=TOKEN)
    assert ended.err.startswith('{"errors":["loc is ')


async def test_the_likeliest_slip_in_a_setting_is_named():
    ended = await typed("serve --check", RSNOTIFY_WORKER="3")
    assert ended.status == USE
    assert "RSNOTIFY_WORKER is no setting; did you mean RSNOTIFY_WORKERS?" in ended.err


@pytest.mark.parametrize(
    ("line", "begin"),
    [
        ("help", "Usage: rsnotify [OPTIONS] COMMAND"),
        ("help publish", "Usage: rsnotify publish [OPTIONS] SET [LOC]..."),
        ("publish --help", "Usage: rsnotify publish [OPTIONS] SET [LOC]..."),
        ("-V", "rsnotify 0."),
    ],
)
async def test_help_and_version_are_where_one_looks_for_them(line, begin):
    ended = await typed(line)
    assert ended.status == 0
    assert ended.out.startswith(begin)


async def test_several_sets_are_counted_some_are_named_and_the_way_to_all_of_them_is_said(
    hub, tmp_path
):
    for number in range(41):
        assert (await hub.ask("PUT", f"/api/sets/set{number}", json={}))[0] in (200, 201)
    ended = await typed(f"mirror {hub.url}/ {tmp_path}/copy --once")
    named = ", ".join(f"{hub.url}/{name}/capabilitylist.xml" for name in ("dataset1", "set0"))
    assert ended.status == USE
    assert ended.err.startswith(
        f"error: {hub.url}/ offers 42 sets of resources: give the address of one, such as {named}, "
    )
    assert ended.err.endswith(
        "(39 more); or copy each into a directory of its own with --all-sets\n"
    )
    shown = await typed(f"bridge {hub.url}/ dataset1 --show --no-robots", RSNOTIFY_URL=hub.url)
    assert shown.err.endswith("(39 more)\n")


@pytest.fixture
async def no_source():
    """A site of which nothing leads to a Resource List; only its front is there."""

    async def answer(request: web.Request) -> web.Response:
        is_there = request.path in ("/", "/robots.txt")
        return web.Response(status=200 if is_there else 404, text="User-agent: *\nDisallow:\n")

    async with WebServer(one_answer(answer)) as site:
        yield site.url


TRIED = (
    "tried were a link in the page or its header, {0}/.well-known/resourcesync (404) and {0}/"
    "robots.txt (which names no sitemap); give the address of its Capability List or its sitemap"
)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/", "leads to no ResourceSync document: "),
        ("/papers", "there is nothing at this address: "),
        ("/a.xml", "there is nothing at this address; look whether it is right"),
    ],
)
async def test_where_nothing_is_found_all_that_was_tried_is_said(no_source, tmp_path, path, said):
    ended = await typed(f"mirror {no_source}{path} {tmp_path}/copy --once")
    assert ended.status == USE
    tried = "" if path == "/a.xml" else TRIED.format(no_source)
    assert f"{no_source}{path}" in ended.err
    assert ended.err.endswith(f"{said}{tried}\n"), ended.err
