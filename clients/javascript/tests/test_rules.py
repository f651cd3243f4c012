"""What the JavaScript client decides, and how it is typed and packed: its own tests."""

import json
import os
import re
import shutil
import subprocess
import tarfile

import pytest

from clients.javascript.tests.programs import CLIENT, HERE, NO_DENO, NODE, deno, nodes
from rsnotify import __version__
from tests.support.needs import need


@pytest.mark.parametrize("node", nodes())
@pytest.mark.parametrize("file", sorted(HERE.glob("*.test.mjs")), ids=lambda file: file.name)
def test_every_claim_about_the_client_holds(node, file):
    words = (node, "--test", "--test-timeout=240000", "--test-reporter=tap", str(file))
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "\n# fail 0\n" in ended.stdout
    assert "\n# tests 0\n" not in ended.stdout


@pytest.mark.evidence
@pytest.mark.skipif(deno() is None, reason=NO_DENO)
@pytest.mark.parametrize("file", sorted(HERE.glob("*.test.mjs")), ids=lambda file: file.name)
def test_every_claim_about_the_client_holds_in_deno(file):
    words = (deno(), "test", "--allow-all", "--no-check", str(file))
    plain = os.environ | {"NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}
    ended = subprocess.run(words, capture_output=True, text=True, check=False, env=plain)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| 0 failed" in ended.stdout
    assert "| 0 passed" not in ended.stdout


def test_the_types_hold():
    tsc = need("tsc")
    ended = subprocess.run([tsc, "-p", str(HERE)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_what_is_typed_is_what_can_be_imported():
    script = f"console.log(JSON.stringify(Object.keys(await import('{CLIENT}/rsnotify.js'))))"
    words = (NODE, "--input-type=module", "--eval", script)
    exported = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    typed = (CLIENT / "rsnotify.d.ts").read_text()
    names = [
        line.split("(")[0].split()[2]
        for line in typed.splitlines()
        if line.startswith(("export class", "export function"))
    ]
    assert sorted(exported) == sorted(names)


@pytest.mark.parametrize("function", ["Follow", "Publish"])
def test_the_options_that_are_typed_are_those_that_are_known(function):
    known = f"(await import('{CLIENT}/lib/options.js')).{function.upper()}_OPTIONS"
    words = (NODE, "--input-type=module", "--eval", f"console.log(JSON.stringify({known}))")
    names = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    typed = (CLIENT / "rsnotify.d.ts").read_text()
    options = typed.partition(f"export interface {function}Options {{\n")[2].partition("\n}\n")[0]
    assert sorted(re.findall(r"^  (\w+)\?:", options, re.MULTILINE)) == sorted(names)


def test_the_package_has_the_hubs_version_and_needs_nothing():
    package = json.loads((CLIENT / "package.json").read_text())
    assert package["version"] == __version__
    assert not package.keys() & {"dependencies", "devDependencies", "scripts"}


def test_every_module_says_what_it_is_for():
    for path in [*CLIENT.rglob("*.js"), *HERE.glob("*.mjs")]:
        assert path.read_text().startswith("// "), path


def test_a_packed_client_runs_where_it_is_installed(tmp_path):
    """`npm install` of what `npm pack` makes is to unpack these files into node_modules."""
    package = json.loads((CLIENT / "package.json").read_text())
    installed = tmp_path / "node_modules/rsnotify"
    if (npm := shutil.which("npm")) is not None:
        words = (npm, "pack", "--silent", "--pack-destination", str(tmp_path))
        subprocess.run(words, cwd=CLIENT, capture_output=True, check=True)
        with tarfile.open(next(tmp_path.glob("*.tgz"))) as packed:
            safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
            packed.extractall(tmp_path / "unpacked", **safely)
        shutil.copytree(tmp_path / "unpacked/package", installed)
        assert {path.name for path in installed.iterdir()} == {
            *package["files"],
            "package.json",
            "README.md",
        }
    else:
        installed.mkdir(parents=True)
        for name in ("package.json", *package["files"]):
            copy = shutil.copytree if (CLIENT / name).is_dir() else shutil.copy
            copy(CLIENT / name, installed / name)
    script = "import { follow } from 'rsnotify'; console.log(typeof follow);"
    words = (NODE, "--input-type=module", "--eval", script)
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "function\n"
