"""What the page decides without the page: its own tests, which Node runs."""

import subprocess
from pathlib import Path

from clients.javascript.tests.programs import NODE


def test_every_claim_about_the_pages_rules_holds():
    file = Path(__file__).with_name("rules.test.mjs")
    words = (NODE, "--test", "--test-reporter=tap", str(file))
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "\n# tests 0\n" not in ended.stdout
