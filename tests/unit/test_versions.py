"""The versions that `make test-versions` runs."""

from tests.tools.versions import lowest, requirements


def test_the_lowest_version_is_the_one_that_is_demanded():
    demanded = ["redis[hiredis]>=8.1,<9", "aiohttp>=3.13.5,<4", "types-lxml>=2026.2.16,<2027"]
    assert lowest(demanded) == ["redis==8.1", "aiohttp==3.13.5", "types-lxml==2026.2.16"]


def test_nothing_is_left_to_chance():
    assert len(lowest(requirements())) == len(requirements()) > 15
