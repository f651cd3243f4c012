"""`rsnotify status`, `health` and `serve --check`, as an operator sees them."""

import json
import re
from unittest.mock import ANY

from rsnotify.cli.administer import print_status
from tests.support.running import TOKEN, rsnotify


async def test_status_shows_the_whole_and_health_answers_for_a_container(hub, tmp_path):
    await hub.publish("http://example.com/1", "http://example.com/2")
    mine = {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}
    status, out, _ = await rsnotify("status", **mine)
    assert status == 0
    assert f"at {hub.url} is ready\nRedis answers in " in out
    assert (
        "set\tchanges\tnewest\tresources\tmemory\treaders\tbehind\n" in out
    )  # as every table is in a pipe
    assert "\ndataset1\t2\t" in out
    assert "WebSub: no subscribers" in out
    _, out, _ = await rsnotify("status", "--json", "--url", hub.url, "--data", str(tmp_path))
    assert "websub" not in json.loads(out)  # who is not the admin is not told
    assert await rsnotify("health", "--url", hub.url) == (0, "ready\n", "")
    assert await rsnotify("health", "--quiet", "--url", hub.url) == (0, "", "")
    await hub.stop()
    status, out, err = await rsnotify("health", "--url", hub.url)
    assert (status, out) == (1, "")
    assert "cannot be reached: connection refused; is the hub running?" in err


async def test_an_operator_sees_what_a_set_takes_of_redis_and_may_take(hub):
    mine = {"RSNOTIFY_URL": hub.url, "RSNOTIFY_TOKEN": TOKEN}

    async def shown(command: str) -> list[list[str]]:
        _, out, _ = await rsnotify(*command.split(), **mine)
        return [line.split("\t") for line in out.splitlines() if line.count("\t") > 2]

    await hub.publish("http://example.com/1")
    head, row = await shown("status")
    assert re.fullmatch(r"\d+ B|\d+\.\d kB", row[head.index("memory")])
    assert await shown("sets list") == [
        ["name", "created", "private", "max_bytes"],
        [ANY, ANY, "no", "-"],
    ]
    await rsnotify("sets", "edit", "dataset1", "--max-bytes", "2000000", **mine)
    assert (await shown("sets list"))[1][3] == "2000000"
    head, row = await shown("status")
    assert re.fullmatch(r"\S+ k?B of 2\.0 MB", row[head.index("memory")])


def test_status_says_how_many_sets_it_does_not_show(capsys):
    status = {
        "version": "1",
        "base_url": "http://hub",
        "ready": True,
        "store": {"text": ""},
        "following": {"text": ""},
        "rates": {},
        "sets": [],
    }
    print_status(status | {"sets_total": 0}, json=False)
    assert "not shown" not in capsys.readouterr().out
    print_status(status | {"sets_total": 2}, json=False)
    assert "2 more sets are not shown" in capsys.readouterr().out


async def test_check_lists_everything_that_is_wrong_and_writes_nothing(tmp_path):
    data = str(tmp_path / "data")
    assert await rsnotify("serve", "--check", "--data", data) == (0, "the settings are good\n", "")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    wrong = {
        "RSNOTIFY_ADMIN_TOKEN": "short",
        "RSNOTIFY_REDIS_URL": "http://redis",
        "RSNOTIFY_WORKERS": "0",
        "RSNOTIFY_RETENTION_DAYS": "1",
        "RSNOTIFY_NONSENSE": "1",
    }
    status, out, err = await rsnotify("serve", "--check", "--data", str(tmp_path / "file"), **wrong)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 6
    assert "at least 16 characters" in err
    assert "is no directory that can be written to" in err
