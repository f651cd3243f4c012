"""Whatever ships beside the code is run by a test or by a job: what nobody runs is soon broken."""

import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHECKS, IMAGES = ".github/workflows/checks.yml", ".github/workflows/images.yml"
OPERATIONS, IMAGE = "tests/integration/test_operations.py", "tests/integration/test_image.py"
UNITS = "tests/integration/test_units.py"
CACHES = "tests/fault/test_caches.py"
PROXIES, EXAMPLES = "tests/fault/test_proxies.py", "clients/python/tests/client/test_with_hub.py"

RUN_BY = {
    ".ci/bare": [CHECKS],
    ".ci/first-minute": [CHECKS],
    ".ci/kubernetes": [IMAGES],
    ".ci/packages": [CHECKS],
    ".dockerignore": ["tests/support/image.py"],
    "Dockerfile": ["tests/support/image.py"],
    "clients/javascript/example/index.html": ["clients/javascript/tests/test_in_chromium.py"],
    "clients/javascript/example/page.js": ["clients/javascript/example/index.html"],
    "clients/python/examples/django": [EXAMPLES],
    "clients/python/examples/flask": [EXAMPLES],
    "docker-compose.yml": [IMAGE, "tests/tools/images.py"],
    "docs/operations/Caddyfile": [PROXIES],
    "docs/operations/alerts.yml": [OPERATIONS],
    "docs/operations/compose-clients.yml": [IMAGE, "tests/tools/images.py"],
    "docs/operations/grafana.json": [OPERATIONS],
    "docs/operations/haproxy.cfg": [PROXIES],
    "docs/operations/kubernetes.yaml": ["tests/unit/test_deployment.py", IMAGE, ".ci/kubernetes"],
    "docs/operations/nginx-cache.conf": [CACHES],
    "docs/operations/nginx-streams.conf": [CACHES],
    "docs/operations/nginx.conf": [PROXIES],
    "docs/operations/*.service": [OPERATIONS, UNITS],
    "docs/operations/*.timer": [OPERATIONS],
    "docs/operations/varnish.vcl": [CACHES],
}
"""A file, or a folder with all that is in it, and what runs it: its name stands there."""

BY_HAND = {
    ".ci/run": "all checks of a push on one machine; the jobs run its parts",
    ".editorconfig": "read by editors",
    ".gitignore": "read by git",
    ".pre-commit-config.yaml": "what it calls is tried below",
}


def shipped() -> set[str]:
    """What a user or a job may run, that is neither code nor a document."""
    folders = ("docs/operations", "clients/javascript/example", "clients/python/examples", ".ci")
    found = {each for folder in folders for each in (ROOT / folder).rglob("*") if each.is_file()}
    found |= {each for each in ROOT.iterdir() if each.is_file() and each.suffix in ("", ".yml")}
    found |= set(ROOT.glob(".*.y*ml"))
    names = {str(each.relative_to(ROOT)) for each in found if "__pycache__" not in each.parts}
    return {each for each in names if not each.endswith(".md")} - {"LICENSE", "Makefile", ".git"}


def is_below(name: str, pattern: str) -> bool:
    return any(each.match(pattern) for each in (Path(name), *Path(name).parents))


def test_whatever_ships_is_run():
    known = {*RUN_BY, *BY_HAND}
    assert [each for each in sorted(shipped()) if not any(is_below(each, k) for k in known)] == []


def test_whatever_is_run_ships():
    names = shipped()
    assert [k for k in {*RUN_BY, *BY_HAND} if not any(is_below(each, k) for each in names)] == []


@pytest.mark.parametrize("name", RUN_BY)
def test_what_runs_a_file_names_it(name):
    *_, last = name.split("/")
    for each in RUN_BY[name]:
        assert last.strip("*") in (ROOT / each).read_text(), each


def test_the_check_before_a_commit_is_one_that_there_is():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (hook,) = repository["hooks"]
    command, target = hook["entry"].split()
    assert (command, hook["language"], repository["repo"]) == ("make", "system", "local")
    dry = ["make", "--dry-run", "--directory", str(ROOT), target]
    subprocess.run(dry, check=True, capture_output=True)


@pytest.mark.parametrize("form", sorted((ROOT / ".github/ISSUE_TEMPLATE").iterdir()))
def test_a_form_for_issues_has_a_name_and_says_what_it_is_for(form):
    _, head, text = form.read_text().split("---\n", 2)
    assert {"name", "about"} <= yaml.safe_load(head).keys()
    assert text.strip()


@pytest.mark.parametrize("script", sorted((ROOT / ".ci").iterdir()), ids=lambda path: path.name)
def test_a_script_can_be_read_by_its_shell_and_called(script):
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)
