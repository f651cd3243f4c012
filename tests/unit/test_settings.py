"""Settings: where they come from, and what is said about those that are wrong."""

import re
from pathlib import Path

import pytest

from rsnotify.errors import InvalidSettings
from rsnotify.process.settings import Settings, for_worker, misspelt


def problems(**environ: str) -> tuple[str, ...]:
    with pytest.raises(InvalidSettings) as invalid:
        Settings.from_env(environ)
    return invalid.value.problems


def test_a_command_line_option_wins_over_the_environment():
    settings = Settings.from_env({"RSNOTIFY_PORT": "1", "RSNOTIFY_DATA": "/a"}, port=2, data=None)
    assert (settings.port, settings.data) == (2, Path("/a"))


def test_an_unknown_setting_is_refused_with_the_one_that_was_meant():
    assert problems(RSNOTIFY_PROT="1") == (
        "RSNOTIFY_PROT is no setting; did you mean RSNOTIFY_PORT?",
    )


@pytest.mark.parametrize("name", ["RSNOTIFY_QQQQQQQQQQQQQQQQ", "RSNOTIFY_WEBSUB_LEASE"])
def test_a_setting_like_no_other_is_refused_with_where_all_of_them_stand(name):
    """All names begin in the same way: that makes them no more alike."""
    assert problems(**{name: "1"}) == (
        f"{name} is no setting; see docs/reference/settings.md for all of them",
    )


def test_all_problems_are_told_at_once():
    assert len(problems(RSNOTIFY_PORT="x", RSNOTIFY_WORKERS="0", RSNOTIFY_NONSENSE="1")) == 3


def test_lists_are_not_gone_before_they_leave_the_index():
    days = {"RSNOTIFY_CHANGELIST_DAYS": "7", "RSNOTIFY_RETENTION_DAYS": "7"}
    assert Settings.from_env(days).retention_days == 7
    (told,) = problems(**days | {"RSNOTIFY_RETENTION_DAYS": "6"})
    assert "RSNOTIFY_RETENTION_DAYS=6 is below RSNOTIFY_CHANGELIST_DAYS=7" in told
    assert told.endswith("keep lists for 7 days or more, or let them leave the index after 6")


@pytest.mark.parametrize("text", ["-1", "65536", "eighty", "", "8 0", "0x50"])
def test_a_port_is_a_number_in_its_range(text):
    assert "whole number from 0 to 65535" in problems(RSNOTIFY_PORT=text)[0]


WRONG_ADDRESSES = (
    *("hub.example.org", "ftp://hub", "http://hub/?a", "http://", "http://a b/", "http://a/<b>"),
    *("http://user:password@hub", "http://hub:0", "http://hub:65536", "http:///a"),
)


@pytest.mark.parametrize("text", WRONG_ADDRESSES)
def test_a_public_url_is_a_web_address(text):
    assert "https://hub.example.org" in problems(RSNOTIFY_PUBLIC_URL=text)[0]


def test_a_public_url_loses_its_last_slash():
    settings = Settings.from_env({"RSNOTIFY_PUBLIC_URL": "https://hub.example.org/"})
    assert settings.public_url == "https://hub.example.org"


SHORT = "https://hub.example.org/"


@pytest.mark.parametrize(
    ("longest", "longer"),
    [
        (SHORT.ljust(300, "a"), SHORT.ljust(301, "a")),
        (SHORT.ljust(300, "a") + "/", SHORT.ljust(301, "a") + "/"),
        ((SHORT + "&").ljust(296, "a"), (SHORT + "&").ljust(297, "a")),
    ],
    ids=["plain", "last slash", "escaped"],
)
def test_a_public_url_is_no_longer_than_documents_allow_for(longest, longer):
    settings = Settings.from_env({"RSNOTIFY_PUBLIC_URL": longest})
    assert settings.public_url == longest.rstrip("/")
    (told,) = problems(RSNOTIFY_PUBLIC_URL=longer)
    assert told == (
        f"RSNOTIFY_PUBLIC_URL={longer!r}: must have at most 300 bytes in XML, and has 301"
    )


@pytest.mark.parametrize(
    ("written", "mend"),
    [
        ("https://bücher.example:8080/a/", "write https://xn--bcher-kva.example:8080/a"),
        ("https://日本.example", "write https://xn--wgv71a.example"),
        ("https://hub.example.org/é", "write https://hub.example.org/%C3%A9"),
        (f"https://{'ü' * 80}.example", "no host has such a name"),
    ],
)
def test_a_public_url_is_in_ascii_and_a_mistake_says_how_to_write_it(written, mend):
    (told,) = problems(RSNOTIFY_PUBLIC_URL=written)
    assert told == f"RSNOTIFY_PUBLIC_URL={written!r}: must be in ASCII, as links are: {mend}"
    if mend.startswith("write "):
        settings = Settings.from_env({"RSNOTIFY_PUBLIC_URL": mend.removeprefix("write ")})
        assert settings.public_url == mend.removeprefix("write ")


def test_the_address_of_a_description_is_no_longer_than_others_in_documents():
    longest = SHORT.ljust(2_048, "a")
    assert Settings.from_env({"RSNOTIFY_DESCRIBEDBY": longest}).describedby == longest
    (told,) = problems(RSNOTIFY_DESCRIBEDBY=longest + "a")
    assert told.endswith("': must have at most 2048 characters, and has 2049")


def test_an_origin_that_no_browser_would_send_is_refused():
    for text in ("a.example", "https://a.example/page", "https://a.example,b"):
        (told,) = problems(RSNOTIFY_ALLOWED_ORIGINS=text)
        assert "must be origins such as https://a.example" in told
    allowed = "https://a.example:8443/, chrome-extension://abc, null, *"
    settings = Settings.from_env({"RSNOTIFY_ALLOWED_ORIGINS": allowed})
    assert len(settings.allowed_origins or ()) == 4


def test_a_token_that_no_header_can_carry_is_refused_and_not_shown():
    (told,) = problems(RSNOTIFY_METRICS_TOKEN="sécret")
    assert told == "RSNOTIFY_METRICS_TOKEN: must be visible ASCII, or no client could send it"


def test_what_the_commands_read_is_no_problem_to_the_hub():
    assert Settings.from_env({"RSNOTIFY_URL": "x", "RSNOTIFY_TOKEN": "y", "HOME": "/"})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RSNOTIFY_TOKN", "RSNOTIFY_TOKN is no setting; did you mean RSNOTIFY_TOKEN?"),
        (
            "RSNOTIFY_TOKEN_FIL",
            "RSNOTIFY_TOKEN_FIL is no setting; did you mean RSNOTIFY_TOKEN_FILE?",
        ),
        ("RSNOTIFY_ZZZZ", "RSNOTIFY_ZZZZ is no setting; see docs/reference/settings.md"),
    ],
)
def test_what_no_command_reads_is_named_with_what_may_be_meant(name, said):
    (problem,) = misspelt({name: "x"})
    assert problem.startswith(said)


@pytest.mark.parametrize(
    "name",
    ["RSNOTIFY_TOKEN", "RSNOTIFY_PORT", "RSNOTIFY_ADMIN_TOKEN_FILE", "RSNOTIFY_PATH", "HOME"],
)
def test_what_a_hub_a_command_or_a_hook_has_is_not_misspelt(name):
    assert misspelt({name: "x"}) == []


def test_no_variable_of_the_page_is_misspelt():
    page = Path(__file__).parents[2] / "docs/reference/settings.md"
    names = set(re.findall(r"^\| `(RSNOTIFY_[A-Z_]+)`", page.read_text(), re.MULTILINE))
    assert {"RSNOTIFY_TOKEN_FILE", "RSNOTIFY_PORT"} < names
    assert misspelt(dict.fromkeys(names, "x")) == []


def test_an_option_is_held_to_what_its_variable_is_and_named_when_it_is_wrong():
    with pytest.raises(InvalidSettings) as invalid:
        Settings.from_env(
            {"RSNOTIFY_DRAIN_SECONDS": "x"}, port="99999", workers=0, public_url="nonsense"
        )
    assert invalid.value.problems == (
        "RSNOTIFY_DRAIN_SECONDS='x': must be a whole number from 0 to 3600",
        "--port 99999: must be a whole number from 0 to 65535",
        "--workers 0: must be a whole number from 1 to 64",
        "--public-url nonsense: must be an address such as https://hub.example.org",
    )


def test_a_secret_may_stand_in_a_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("  secret\n")
    environ = {
        f"RSNOTIFY_{name}_FILE": str(file)
        for name in ("ADMIN_TOKEN", "REDIS_URL", "REDIS_PASSWORD")
    }
    settings = Settings.from_env(environ)
    assert settings.admin_token == settings.redis_url == settings.redis_password == "secret"


def test_a_secret_is_given_once(tmp_path):
    file = tmp_path / "token"
    file.write_text("secret")
    assert problems(RSNOTIFY_ADMIN_TOKEN="a", RSNOTIFY_ADMIN_TOKEN_FILE=str(file)) == (
        "RSNOTIFY_ADMIN_TOKEN and RSNOTIFY_ADMIN_TOKEN_FILE are both given: leave one of them out",
    )


def test_a_file_of_a_secret_that_cannot_be_read_is_named(tmp_path):
    (problem,) = problems(RSNOTIFY_REDIS_PASSWORD_FILE=str(tmp_path / "none"))
    assert problem.startswith(f"RSNOTIFY_REDIS_PASSWORD_FILE='{tmp_path}/none': ")
    assert "No such file" in problem


def test_an_empty_file_of_a_secret_is_refused(tmp_path):
    """Else a hub whose secret was not there would be open, or begin with another Redis."""
    file = tmp_path / "empty"
    file.write_text(" \n")
    for name in ("ADMIN_TOKEN", "METRICS_TOKEN", "REDIS_URL", "REDIS_PASSWORD"):
        (told,) = problems(**{f"RSNOTIFY_{name}_FILE": str(file)})
        assert told.endswith("the file is empty")


def test_only_secrets_stand_in_files():
    assert "RSNOTIFY_PORT_FILE is no setting" in problems(RSNOTIFY_PORT_FILE="/x")[0]


def test_a_worker_is_told_once_where_redis_is_and_reads_its_password_by_itself():
    environ = {"RSNOTIFY_REDIS_URL_FILE": "/a", "RSNOTIFY_REDIS_PASSWORD_FILE": "b", "HOME": "/"}
    assert for_worker(environ, "redis://c") == {
        "RSNOTIFY_REDIS_URL": "redis://c",
        "RSNOTIFY_REDIS_PASSWORD_FILE": "b",
        "HOME": "/",
    }
