"""Every view can be drawn, fits its window, and those of the docs are there."""

import pytest
from playwright.async_api import expect

from tests.browser.conftest import opened
from tests.browser.pictures import IN_THE_DOCS, MODES, SETS, VIEWS, draw
from tests.evidence.bench.pictures import FOLDER
from tests.support.running import RunningHub

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_view_is_drawn_light_dark_and_on_a_telephone(chromium, tmp_path):
    wanted = [(view, mode) for view in VIEWS for mode in MODES]
    await draw(chromium, tmp_path, wanted)
    assert {each.stem for each in tmp_path.iterdir()} == {f"page-{v}-{m}" for v, m in wanted}


async def test_on_a_telephone_the_table_of_the_sets_is_as_wide_as_the_window(chromium, tmp_path):
    async with (
        RunningHub(tmp_path / "data", sets=SETS) as hub,
        opened(chromium, hub, SETS[0], viewport=MODES["phone"]["viewport"]) as page,
    ):
        for name in SETS:
            await hub.publish(*(f"http://example.com/{n}" for n in range(1_000)), set_name=name)
        await page.goto(f"{hub.url}/?view=overview")
        await expect(page.locator("#overview")).to_contain_text("1,000")
        table = page.get_by_role("region", name="Sets")
        assert (
            await table.evaluate("({ scrollWidth, clientWidth }) => scrollWidth - clientWidth") == 0
        )
        ordered = table.locator("[aria-sort]")  # its arrow lies on no other head
        assert await ordered.evaluate("(head) => head.scrollWidth <= head.clientWidth")


async def test_the_docs_have_their_pictures_and_show_them():
    names = {f"page-{view}-{mode}.png" for view, mode in IN_THE_DOCS}
    assert {each.name for each in FOLDER.glob("*.png")} == names
    pages = [*FOLDER.parent.rglob("*.md"), FOLDER.parents[1] / "README.md"]
    text = "".join(page.read_text() for page in pages)
    assert [name for name in names if f"pictures/{name}" not in text] == []
