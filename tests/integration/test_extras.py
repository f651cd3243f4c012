"""What a bare installation says when a command needs packages that it does not have."""

import subprocess
import sys

import pytest

from tests.support.amount import enough

WITHOUT = "import sys; sys.modules[{package!r}] = None; import rsnotify.__main__ as it; it.main()"


def run(package: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process where this package cannot be imported."""
    command = [sys.executable, "-c", WITHOUT.format(package=package), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_the_extra_the_command_line_says_how_to_install_it():
    ended = run("typer", "publish", "dataset1", "http://example.com/res1")
    assert ended.returncode == 2
    assert ended.stderr == (
        "error: The command line is not installed (typer is missing): "
        "in a clone of rsnotify, pip install '.[cli]'\n"
    )


@pytest.mark.parametrize("package", enough(["uvicorn", "redis", "starlette"], 1))
def test_without_the_extra_serve_says_how_to_install_the_hub(package):
    ended = run(package, "serve", "--port", "0")
    assert ended.returncode == 2
    assert "The hub itself is not installed" in ended.stderr
    assert ended.stderr.endswith("pip install '.[hub]'\n")


def test_the_version_is_told_without_any_of_them():
    assert run("typer", "--version").stdout.startswith("rsnotify ")


OF_THE_HUB = ["aiohttp", "starlette", "uvicorn", "redis"]


@pytest.mark.parametrize(
    ("words", "others"),
    [
        (["--help"], [*OF_THE_HUB, "rich", "msgspec", "lxml", "asyncio"]),
        (["publish", "--help"], OF_THE_HUB),
        (["mirror", "--help"], OF_THE_HUB),
    ],
)
def test_help_waits_for_no_package_that_it_does_not_need(words, others):
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({others})); import rsnotify.__main__ as it"
    )
    command = [sys.executable, "-c", f"{code}; it.main()", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Usage: ")


@pytest.mark.parametrize("package", enough(["redis", "uvicorn", "uvloop", "starlette"], 2))
def test_the_commands_need_nothing_of_the_hub(package):
    ended = run(package, "sets", "list", "--url", "http://127.0.0.1:1")
    assert "cannot be reached" in ended.stderr
    assert "not installed" not in ended.stderr
