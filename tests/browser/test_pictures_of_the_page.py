"""Every view can be drawn, fits its window, and those of the docs are there."""

import pytest

from tests.browser.pictures import IN_THE_DOCS, MODES, VIEWS, draw
from tests.evidence.bench.pictures import FOLDER

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_view_is_drawn_light_dark_and_on_a_telephone(chromium, tmp_path):
    wanted = [(view, mode) for view in VIEWS for mode in MODES]
    await draw(chromium, tmp_path, wanted)
    assert {each.stem for each in tmp_path.iterdir()} == {f"page-{v}-{m}" for v, m in wanted}


async def test_the_docs_have_their_pictures_and_show_them():
    names = {f"page-{view}-{mode}.png" for view, mode in IN_THE_DOCS}
    assert {each.name for each in FOLDER.glob("*.png")} == names
    pages = [*FOLDER.parent.rglob("*.md"), FOLDER.parents[1] / "README.md"]
    text = "".join(page.read_text() for page in pages)
    assert [name for name in names if f"pictures/{name}" not in text] == []
