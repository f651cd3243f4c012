"""The lines a newcomer copies: they find the hub, and its token, wherever these are."""

import subprocess
import sys
from pathlib import Path

import pytest

from rsnotify.cli.serve import next_steps
from rsnotify.process.settings import Settings


def printed(settings: Settings, address: str = "http://127.0.0.1:8080", *sets: str) -> str:
    return next_steps(address, settings, sets)


def test_nothing_is_loaded_for_it_while_the_first_requests_wait():
    program = "import sys, rsnotify.cli.serve; print('rich' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout == b"False\n"


def test_a_hub_where_the_commands_look_for_it_needs_no_options():
    assert "subscribe dataset1\n" in printed(Settings(), "http://127.0.0.1:8080", "dataset1")


def test_the_commands_are_told_of_another_address_and_another_data_directory():
    text = printed(Settings(data=Path("/my data")), "http://127.0.0.1:99")
    for verb in ("sets add", "subscribe"):
        assert f"{verb} dataset1 --url http://127.0.0.1:99 --data '/my data'\n" in text
    assert "$(cat '/my data/admin-token')" in text


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        (Settings(), "data/admin-token"),
        (Settings(admin_token="x"), "RSNOTIFY_ADMIN_TOKEN: set it in your other terminals too"),
    ],
)
def test_the_banner_says_where_the_admin_token_is(settings, where):
    assert f"  The admin token is in {where}\n" in printed(settings)


def test_on_a_terminal_the_address_of_the_page_opens_everything():
    text = next_steps("http://127.0.0.1:8080", Settings(), ["dataset1"], "16 of ours#&?/%")
    assert "browser:\n    http://127.0.0.1:8080/#token=16%20of%20ours%23%26%3F%2F%25\n" in text


def test_the_page_is_named_where_there_is_one():
    assert "browser:\n    http://127.0.0.1:8080/\n" in printed(Settings())
    assert "browser" not in printed(Settings(page="off"))
