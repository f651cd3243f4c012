"""Pictures of every view of the page: `make pictures` draws those of the docs, of a hub of its own.

`python -m tests.browser.pictures FOLDER` draws all: light, dark, and on a telephone.
"""

import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import launched
from tests.evidence.bench.pictures import FOLDER
from tests.support.running import TOKEN, RunningHub

SETS = ("maps", "museum", "photographs")
LOC = "https://museum.example/objects/{}"
KINDS = ("created", "updated", "updated", "deleted")
DESK = {"width": 1200, "height": 860}

MODES: Mapping[str, Mapping[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": DESK},
    "dark": {"color_scheme": "dark", "viewport": DESK},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}
VIEWS = {  # the address, and what is there when it is ready
    "overview": ("/?view=overview", "#overview tr >> nth=2"),
    "set": ("/?set=museum", "#latest tr >> nth=5"),
    "debugger": ("/?view=debugger&set=museum", "#connection"),
    "validator": ("/?view=validator&set=museum&document=museum/changelist.xml", "text=Valid:"),
    "admin": (f"/?view=admin#token={TOKEN}", "#tokens button >> nth=1"),
    "document": ("/museum/changelist.xml", "tbody tr >> nth=5"),
    "description": ("/.well-known/resourcesync", "tbody tr >> nth=2"),
    "api": ("/api", "h1 >> nth=0"),
    "missing": ("/no/where", "#problem"),
}
IN_THE_DOCS = (("set", "light"), ("set", "dark"), ("document", "light"))


async def draw(browser: Browser, folder: Path, wanted: Sequence[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as data:
        async with RunningHub(Path(data, "data"), sets=SETS) as hub:
            await _fill(hub)
            for view in dict(wanted):
                context = await browser.new_context()
                page = await context.new_page()
                told: list[str] = []
                page.on("pageerror", lambda error, told=told: told.append(str(error)))
                await _show(page, hub, view)
                for mode in (mode for each, mode in wanted if each == view):
                    await _change_to(page, mode)
                    await page.screenshot(path=folder / f"page-{view}-{mode}.png")
                assert told == [], view
                await context.close()


async def _fill(hub: RunningHub) -> None:
    changes = [{"loc": LOC.format(n), "change": "created"} for n in range(1_204)]
    changes += [{"loc": LOC.format(7 * n), "change": KINDS[n % 4]} for n in range(60)]
    for name, some in (("museum", changes), ("photographs", changes[:310])):
        status, _ = await hub.ask("POST", f"/api/sets/{name}/changes", json=some)
        assert status == 201
        token = {"sets": [name], "note": f"the database of {name}", "expires_days": 90}
        await hub.ask("POST", "/api/tokens", json=token)


async def _show(page: Page, hub: RunningHub, view: str) -> None:
    address, ready = VIEWS[view]
    await page.goto(hub.url + address)
    await expect(page.locator(ready)).to_be_visible()
    if view == "set":
        await expect(page.locator("#readers")).to_have_text("1")


async def _change_to(page: Page, mode: str) -> None:
    look = MODES[mode]
    await page.emulate_media(color_scheme=look["color_scheme"])
    await page.set_viewport_size(look["viewport"])
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page.url


async def main(folder: Path, wanted: Sequence[tuple[str, str]]) -> None:
    async with launched() as browser:
        await draw(browser, folder, wanted)


if __name__ == "__main__":
    every = [(view, mode) for view in VIEWS for mode in MODES]
    given = [Path(each) for each in sys.argv[1:2]]
    asyncio.run(main(given[0] if given else FOLDER, every if given else IN_THE_DOCS))
