"""Dumps in an object store: with a real server, moto."""

import subprocess
import sys
from pathlib import Path

import obstore
from obstore.store import from_url

from clients.python.tests.mirror.test_dumps import mirrored, state_of
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify_mirror.dumping.generations import Bucket
from tests.support.running import clean_environment
from tests.support.s3_server import bucket

BASE = "https://bucket.example/d/"


def dump(copy: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "rsnotify", "dump", str(copy), "s3://dumps/d"]
    done = subprocess.run(
        [*command, "--base", BASE, "--changes", "--keep", "9"],
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def fetched(name: str) -> bytes:
    found = obstore.get(from_url("s3://dumps/d"), name)
    assert found.attributes["Content-Type"] in ("application/xml", "application/zip")
    return bytes(found.bytes())


def state_in(document: str, folder: Path, state: dict[str, bytes]) -> dict[str, bytes]:
    packages = []
    for entry in parse_document(fetched(document)).entries:
        packages.append(folder / entry.loc.rpartition("/")[2])
        packages[-1].write_bytes(fetched(entry.loc.removeprefix(BASE)))
    return state_of(packages, state)


async def test_the_bucket_has_what_the_source_has(source, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    source.add("large", b"12345" * 2_000_000)  # more than one piece of an upload
    source.list_resources()
    await mirrored(source, copy)
    with bucket("dumps") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        dump(copy, environment)
        first = state_in("resourcedump.xml", tmp_path, {})
        assert first == {source.url + path: body for path, body in source.resources.items()}
        for number in range(3):
            source.change("a.txt", b"new %d" % number)
            await mirrored(source, copy)
            dump(copy, environment)
        now = {source.url + path: body for path, body in source.resources.items()}
        assert state_in("resourcedump.xml", tmp_path, {}) == now
        assert state_in("changedump.xml", tmp_path, first) == now
        assert Bucket("s3://dumps/d").publish(copy / ".rsnotify-dumps") == 0  # it is there
        far: list[tuple[int, int]] = []
        Bucket("s3://dumps/again").publish(copy / ".rsnotify-dumps", lambda *sent: far.append(sent))
        assert far == sorted(far)
        assert far[-1][0] == far[-1][1] > 0
        listed = [each["path"] for some in obstore.list(from_url("s3://dumps/d")) for each in some]
        assert {each for each in listed if each.endswith(".zip")} == {
            f"packages/{path.name}" for path in copy.glob(".rsnotify-dumps/packages/*.zip")
        }
        for path in [*source.resources]:
            source.change(path[1:], None)
        await mirrored(source, copy)
        assert "there is no Resource Dump" in dump(copy, environment)
        listed = [each["path"] for some in obstore.list(from_url("s3://dumps/d")) for each in some]
        assert "resourcedump.xml" not in listed
        assert state_in("changedump.xml", tmp_path, first) == {}
    await mirrored(source, copy)  # the mirror leaves alone what is packed beside it
    assert list(copy.glob(".rsnotify-dumps/packages/*.zip"))
