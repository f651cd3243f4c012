"""What is released is whole: it serves from an empty folder, and brings its tests."""

import tomllib

import pytest

from tests.tools.release import (
    IMPORTED,
    ROOT,
    build,
    check_metadata,
    code_files,
    names_in,
    serve_answers,
    unpacked,
    wrong_versions,
)


@pytest.mark.evidence
def test_the_wheel_of_the_sdist_serves_from_an_empty_folder(tmp_path):
    sdist, wheel = build(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert serve_answers(*unpacked(wheel, tmp_path), empty).startswith(str(tmp_path))
    check_metadata(sdist, wheel)
    assert {name for name in names_in(wheel) if ".dist-info/" not in name} == code_files()
    brought = {"conftest.py", "docs/operations.md", "Makefile", "LICENSE", "CHANGELOG.md"}
    assert brought < names_in(sdist)


def test_one_version_is_released():
    assert wrong_versions() == []


def test_every_extra_is_tried_in_an_empty_environment():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert IMPORTED.keys() - {""} == project["optional-dependencies"].keys() - {
        "docs",
        "fuzz",
        "test",
    }
