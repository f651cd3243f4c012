"""What is released is whole: it serves from an empty folder, and brings its tests."""

from pathlib import Path

from tests.release import ROOT, build, names_in, serve_answers, unpacked


def test_the_wheel_of_the_sdist_serves_from_an_empty_folder(tmp_path: Path) -> None:
    sdist, wheel = build(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert serve_answers(*unpacked(wheel, tmp_path), empty).startswith(str(tmp_path))
    code = {str(path.relative_to(ROOT)) for path in (ROOT / "rsnotify").rglob("*.lua")}
    assert code < names_in(wheel)
    assert not any(name.startswith(("tests/", "docs/")) for name in names_in(wheel))
    brought = {"tests/conftest.py", "docs/operations.md", "Makefile", "LICENSE", "CHANGELOG.md"}
    assert brought < names_in(sdist)
