"""The hub that a command speaks to, and the token that goes with it."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rsnotify.cli import target
from rsnotify.cli.target import (
    checked_address,
    credential_for,
    refusals_of,
    token_for_source,
)
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify_client.answer import NotAHub

HERE = "http://127.0.0.1:8080"
NOWHERE = "http://127.0.0.1:9"
ELSEWHERE = "https://hub.example.org"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are given: nothing is set, and a hub keeps its data there."""
    for name in (
        *("RSNOTIFY_URL", "RSNOTIFY_TOKEN", "RSNOTIFY_TOKEN_FILE", "RSNOTIFY_ADMIN_TOKEN"),
        *("RSNOTIFY_ADMIN_TOKEN_FILE", "RSNOTIFY_SOURCE_TOKEN", "RSNOTIFY_SOURCE_TOKEN_FILE"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for data in ("data", "other"):
        Path(data).mkdir()
        Path(data, "admin-token").write_text(f"of {data}\n")
    return tmp_path


@pytest.mark.parametrize(
    "url", [HERE, ELSEWHERE, "http://[::1]:8080/", "https://a.example/hub", "http://a:65535"]
)
def test_an_address_of_the_web_is_one(url):
    assert checked_address(url) == url


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://a b/", "it has a space"),
        ("http://a/\r\nX: y", "it has a space"),
        ("http://a/\udcff", "cannot be printed"),
        ("http://..é/", "'..é' cannot be the name of a host"),
        ("http://:80/", "must be an address such as"),
        ("http://a.example/é?ü", "write http://a.example/%C3%A9?%C3%BC"),
    ],
)
def test_an_address_that_cannot_be_asked_is_told_why(url, words):
    with pytest.raises(InvalidSettings) as wrong:
        checked_address(url)
    assert words in wrong.value.problems[0]


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "localhost:8080", "hub.example.org", "[::1]:80"])
def test_an_address_without_http_is_told_what_is_missing(url):
    with pytest.raises(InvalidSettings) as wrong:
        checked_address(url)
    assert wrong.value.problems == (
        f"--url {url}: http:// or https:// is missing: write http://{url}",
    )


@pytest.mark.parametrize("url", ["ws://hub:8080", "http://", "ftp://hub", "http:///path"])
def test_another_address_is_shown_an_example(url, monkeypatch):
    monkeypatch.setenv("RSNOTIFY_URL", url)
    with pytest.raises(InvalidSettings) as wrong:
        checked_address(url)
    assert wrong.value.problems == (f"RSNOTIFY_URL={url}: must be an address such as {HERE}",)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://127.0.0.1:65536", "Port out of range 0-65535"),
        ("http://127.0.0.1:x", "Port could not be cast"),
    ],
)
def test_an_address_that_cannot_be_read_is_told_why(url, words):
    with pytest.raises(InvalidSettings) as wrong:
        checked_address(url)
    (problem,) = wrong.value.problems
    assert problem.startswith(f"--url {url}: {words}")
    assert problem.endswith(f"must be an address such as {HERE}")


def test_a_token_is_named_by_where_it_came_from(monkeypatch):
    assert credential_for(HERE, Path("data")) == ("of data", "it is the one in data/admin-token")
    monkeypatch.setenv("RSNOTIFY_ADMIN_TOKEN", "a")
    assert credential_for(HERE, Path("data")) == ("a", "it is the one in RSNOTIFY_ADMIN_TOKEN")
    monkeypatch.setenv("RSNOTIFY_TOKEN", "b")
    assert credential_for(HERE, Path("data")) == ("b", "it is the one in RSNOTIFY_TOKEN")


def test_the_hub_of_others_is_not_shown_the_token_of_the_one_here():
    nobody = (None, "none was sent: set RSNOTIFY_TOKEN")
    assert credential_for(ELSEWHERE, Path("data")) == nobody
    assert credential_for(ELSEWHERE, Path("other"))[0] == "of other"


@pytest.mark.parametrize(
    ("home", "url", "ours", "admins"),
    [
        (None, HERE, True, True),
        (None, ELSEWHERE, True, False),
        (ELSEWHERE, ELSEWHERE, True, True),
        (ELSEWHERE, f"{ELSEWHERE}:443/below/", True, True),
        (ELSEWHERE, "http://hub.example.org", False, False),
        (ELSEWHERE, f"{ELSEWHERE}:8443", False, False),
        (ELSEWHERE, f"{ELSEWHERE}.evil.example", False, False),
        (ELSEWHERE, f"{ELSEWHERE}@evil.example", False, False),
        (ELSEWHERE, HERE, False, False),
        (HERE, ELSEWHERE, False, False),
        (HERE, "http://localhost:1", True, True),
        (HERE, "http://localhost.evil.example", False, False),
        ("http://[", ELSEWHERE, False, False),
        (None, "http://[::1", True, False),
        (ELSEWHERE, "http://[::1", False, False),
    ],
)
def test_a_token_of_the_environment_goes_to_the_hub_that_it_is_for_alone(
    home, url, ours, admins, tmp_path, monkeypatch
):
    monkeypatch.setenv("RSNOTIFY_URL", home or "")
    file = tmp_path / "secret"
    file.write_text("secret")
    for name, is_shown in (("TOKEN", ours), ("ADMIN_TOKEN", admins)):
        for variable, value in ((f"RSNOTIFY_{name}", "secret"), (f"RSNOTIFY_{name}_FILE", file)):
            monkeypatch.setenv(variable, str(value))
            found = credential_for(url, Path("data"))
            shown = found.token() if callable(found.token) else found.token
            assert (shown == "secret") is is_shown
            if not is_shown and url != HERE:
                whose = home or "a hub on this machine"
                assert found.origin.startswith(f"none was sent, for {variable} is for {whose}: ")
                assert f"RSNOTIFY_URL={url}" in found.origin
            monkeypatch.delenv(variable)


@pytest.mark.parametrize(
    ("home", "url", "is_shown"),
    [
        (None, HERE, True),
        (None, "http://localhost:9000/", True),
        (None, ELSEWHERE, False),
        (None, "http://127.0.0.1.evil.example", False),
        (None, "http://[::1", False),
        (HERE, ELSEWHERE, False),
        (ELSEWHERE, HERE, False),
        (ELSEWHERE, f"{ELSEWHERE}/a/capabilitylist.xml", True),
    ],
)
def test_a_source_is_shown_our_token_only_if_that_is_for_the_hub_there(
    home, url, is_shown, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO")
    monkeypatch.setenv("RSNOTIFY_URL", home or "")
    file = tmp_path / "secret"
    file.write_text("secret")
    for variable, value in (("RSNOTIFY_TOKEN", "secret"), ("RSNOTIFY_TOKEN_FILE", str(file))):
        monkeypatch.setenv(variable, value)
        assert (token_for_source(url) is not None) is is_shown
        kept = f"{variable} is for {home or 'a hub on this machine'}: it is not sent to {url}; "
        kept += "set RSNOTIFY_SOURCE_TOKEN for that"
        assert caplog.messages == ([] if is_shown else [kept])
        monkeypatch.delenv(variable)
        caplog.clear()


def test_a_source_is_shown_its_own_token_and_ours_only_if_that_is_for_it(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setenv("RSNOTIFY_ADMIN_TOKEN", "the admin's")
    monkeypatch.setenv("RSNOTIFY_TOKEN", "ours")
    monkeypatch.setenv("RSNOTIFY_URL", HERE)
    assert token_for_source(HERE) == "ours"
    assert token_for_source(ELSEWHERE) is None
    assert caplog.messages == [
        f"RSNOTIFY_TOKEN is for {HERE}: it is not sent to {ELSEWHERE}; "
        "set RSNOTIFY_SOURCE_TOKEN for that"
    ]
    monkeypatch.setenv("RSNOTIFY_SOURCE_TOKEN", "its")
    assert token_for_source(ELSEWHERE) == "its"


def test_the_page_names_each_variable_that_may_have_a_token():
    page = (Path(__file__).parents[2] / "docs/authentication.md").read_text()
    table = page.partition("\n## Where the commands and clients take it from\n")[2].partition(
        "\n\n**"
    )[0]
    ours = (target.OURS, target.FILE, target.ADMIN, target.ADMIN_FILE)
    for each in (*ours, target.SOURCE, target.SOURCE_FILE):
        assert f"`{each}`" in table


def test_without_a_token_where_it_was_looked_for_is_told():
    mend = "set RSNOTIFY_TOKEN, or name the hub's data directory with --data"
    nobody = (None, f"none was sent, for there is no nowhere/admin-token: {mend}")
    assert credential_for(HERE, Path("nowhere")) == nobody


def test_a_token_that_was_kept_back_is_told_where_there_is_none_of_this_machine(monkeypatch):
    monkeypatch.setenv("RSNOTIFY_URL", ELSEWHERE)
    monkeypatch.setenv("RSNOTIFY_TOKEN", "secret")
    said = (
        f"none was sent, for RSNOTIFY_TOKEN is for {ELSEWHERE}: set RSNOTIFY_URL={HERE}, and "
        "RSNOTIFY_TOKEN to a token of that hub; there is no nowhere/admin-token, either"
    )
    assert credential_for(HERE, Path("nowhere")) == (None, said)


def test_a_file_that_is_named_is_read_anew_when_it_is_asked(tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("first\n")
    monkeypatch.setenv("RSNOTIFY_TOKEN_FILE", str(file))
    monkeypatch.setenv("RSNOTIFY_ADMIN_TOKEN", "the admin's")
    token, origin = credential_for(HERE, Path("data"))
    assert origin == f"it is the one in {file}"
    assert callable(token)
    assert token() == "first"
    file.write_text("second\n")
    assert token() == "second"
    assert callable(token_for_source(HERE))
    monkeypatch.setenv("RSNOTIFY_TOKEN", "given")
    assert credential_for(HERE, Path("data"))[0] == token_for_source(HERE) == "given"


def test_a_source_has_a_file_of_its_own_which_is_read_anew_too(tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("first\n")
    monkeypatch.setenv("RSNOTIFY_SOURCE_TOKEN_FILE", str(file))
    monkeypatch.setenv("RSNOTIFY_TOKEN", "ours")
    token = token_for_source(ELSEWHERE)
    assert callable(token)
    assert token() == "first"
    file.write_text("second\n")
    assert token() == "second"
    monkeypatch.setenv("RSNOTIFY_SOURCE_TOKEN", "given")
    assert token_for_source(ELSEWHERE) == "given"
    monkeypatch.delenv("RSNOTIFY_SOURCE_TOKEN")
    file.write_text("\n")
    with pytest.raises(InvalidSettings, match=f"RSNOTIFY_SOURCE_TOKEN_FILE='{file}': it is empty"):
        token_for_source(ELSEWHERE)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"a\nb", b"\xff"])
def test_a_file_that_has_no_token_is_named_before_anything_is_asked(content, tmp_path, monkeypatch):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("RSNOTIFY_TOKEN_FILE", str(file))
    for ask in (lambda: token_for_source(HERE), lambda: credential_for(HERE, Path("data"))):
        with pytest.raises(InvalidSettings, match=str(file)):
            ask()


def asked() -> AbstractContextManager[None]:
    return refusals_of(credential_for(HERE, Path("data")), NOWHERE)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_names_the_token(status):
    with (
        pytest.raises(InvalidSettings) as refused,
        asked(),
    ):
        raise Rejected("the token is not known", status=status)
    assert refused.value.problems == ("the token is not known (it is the one in data/admin-token)",)


@pytest.mark.parametrize(
    ("error", "mend"),
    [
        (Rejected("there is no set 'a'"), "there is no set 'a': make it with: rsnotify sets add a"),
        (Rejected("there is nothing at /x"), "there is nothing at /x: look at --url"),
        (NotAHub("http://a", "answered 501", 501), "501; is this the hub's address?"),
    ],
)
def test_a_set_or_an_address_that_is_not_there_is_told_with_the_mend(error, mend):
    with (
        pytest.raises(InvalidSettings) as refused,
        asked(),
    ):
        raise error
    assert mend in refused.value.problems[0]


@pytest.mark.parametrize("token", ["a\nb", "a\r", "ä", "\udcff", "\x7f"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token, monkeypatch):
    monkeypatch.setenv("RSNOTIFY_TOKEN", token)
    with pytest.raises(InvalidSettings, match=r"^RSNOTIFY_TOKEN cannot be sent: it has ") as wrong:
        credential_for(HERE, Path("data"))
    assert token not in wrong.value.problems[0]


@pytest.mark.parametrize("content", [b"a\nb", "ä".encode(), b"\xff"])
@pytest.mark.parametrize("chosen", [True, False])
def test_a_file_whose_token_no_header_can_carry_is_named(chosen, content, tmp_path, monkeypatch):
    file = tmp_path / "admin-token"
    file.write_bytes(content)
    if chosen:
        monkeypatch.setenv("RSNOTIFY_ADMIN_TOKEN_FILE", str(file))
    with pytest.raises(InvalidSettings, match=str(file)):
        credential_for(HERE, Path("data") if chosen else tmp_path)


def test_what_is_no_refusal_of_the_token_says_nothing_of_it():
    with (
        pytest.raises(Rejected, match=r"^no such set$"),
        asked(),
    ):
        raise Rejected("no such set", status=404)


def test_a_command_finds_the_admin_token_in_the_file_that_the_hub_has(tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("of-the-file\n")
    monkeypatch.setenv("RSNOTIFY_ADMIN_TOKEN_FILE", str(file))
    assert credential_for(HERE, Path("data")).token == "of-the-file"
    file.unlink()
    with pytest.raises(InvalidSettings, match=r"RSNOTIFY_ADMIN_TOKEN_FILE=.*No such file"):
        credential_for(HERE, Path("data"))
