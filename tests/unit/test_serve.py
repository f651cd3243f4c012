"""How a hub process begins and ends."""

import socket

import pytest

from rsnotify.errors import InvalidSettings
from rsnotify.process.admin_token import ADMIN_TOKEN_CHARACTERS, admin_token
from rsnotify.process.hub_process import only_error
from rsnotify.process.own_address import own_address, reachable, warning
from rsnotify.process.settings import Settings

# --- the admin token -----------------------------------------------------------------------------

SHORTEST = "s" * ADMIN_TOKEN_CHARACTERS


def test_an_admin_token_of_16_characters_is_taken(tmp_path):
    assert admin_token(Settings(admin_token=SHORTEST)) == SHORTEST
    (tmp_path / "admin-token").write_text(SHORTEST + "\n")
    assert admin_token(Settings(data=tmp_path)) == SHORTEST


@pytest.mark.parametrize("token", [SHORTEST[1:], "tökén" * 9, "a\tb" * 9, " " * 20, "a" * 16 + " "])
def test_a_weak_admin_token_is_refused_and_not_repeated(token):
    with pytest.raises(InvalidSettings, match="RSNOTIFY_ADMIN_TOKEN must have at least 16") as told:
        admin_token(Settings(admin_token=token))
    assert token not in str(told.value)


def test_one_in_the_data_directory_is_refused_too(tmp_path):
    (tmp_path / "admin-token").write_text(SHORTEST[1:])
    with pytest.raises(InvalidSettings, match="admin-token must have at least 16"):
        admin_token(Settings(data=tmp_path))


# --- the address that others reach the hub by ----------------------------------------------------


def test_a_hub_on_one_address_is_reached_by_it():
    assert reachable("192.0.2.77") == "192.0.2.77"


@pytest.mark.parametrize(
    ("every", "family"), [("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)]
)
def test_a_hub_on_every_address_is_reached_by_one_of_the_machine(every, family):
    host = reachable(every)
    assert host != every
    own = own_address(family)
    assert own is None or host == own
    found = socket.AF_INET6 if ":" in host else socket.AF_INET
    if host != "::1":  # which is of no use where IPv6 is switched off, as `::` is
        with socket.socket(found) as bound:  # whose address it is not cannot listen there
            bound.bind((host, 0))


@pytest.mark.parametrize(
    ("host", "public_url", "warns"),
    [
        ("0.0.0.0", None, True),
        ("::", None, True),
        ("0.0.0.0", "https://hub.example.org", False),
        ("127.0.0.1", None, False),
    ],
)
def test_whoever_listens_everywhere_without_a_public_address_is_warned(host, public_url, warns):
    told = warning(host, "http://192.0.2.7:8080", public_url)
    assert bool(told and "use http://192.0.2.7:8080" in told) is warns


# --- what ends it --------------------------------------------------------------------------------

WRONG, OTHER, BUG = InvalidSettings("a"), InvalidSettings("b"), RuntimeError()


@pytest.mark.parametrize(
    ("errors", "shown"),
    [
        ([BUG], BUG),
        ([WRONG], WRONG),
        ([WRONG, OTHER], WRONG),  # of two workers at once
        ([ExceptionGroup("", [WRONG]), OTHER], WRONG),
    ],
)
def test_the_operator_sees_one_error(errors, shown):
    assert only_error(ExceptionGroup("", [ExceptionGroup("", errors)])) is shown


def test_a_bug_beside_wrong_settings_is_not_hidden():
    both = ExceptionGroup("", [WRONG, BUG])
    assert only_error(both) is both
