"""Who gets the page, and what its files are allowed to be."""

import re
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from rsnotify.web.page import MEDIA_TYPES, POLICY, framed, is_opened, prefers_html

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "rsnotify/web/static"
FILES = sorted(STATIC.iterdir())
CHROMIUM = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "is_person"),
    [
        (CHROMIUM, True),
        ("text/html", True),
        ("TEXT/HTML ; q=0.5", True),
        ("application/xhtml+xml", True),
        ("text/html, application/xml", True),
        ("text/html;q=0.9, application/xml", False),
        ("text/xml, text/html;q=0.1", False),
        ("text/html;q=0", False),
        ("text/html;q=much", False),
        ("application/xml", False),
        ("*/*", False),
        ("text/*", False),
        ("", False),
        ("x" * 1024 + ",text/html", False),
    ],
)
def test_whoever_names_html_and_prefers_no_xml_is_a_person(accept, is_person):
    assert prefers_html(accept) == is_person


def text_of(file: Path) -> str:
    return "" if file.suffix == ".woff2" else file.read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_is_of_a_known_type_and_names_no_other_host(file):
    assert file.suffix in MEDIA_TYPES
    text = text_of(file).replace("http://www.w3.org/2000/svg", "")
    for place in (
        r'(?:src|href)="https?:',
        r"url\((?!\"[\w-]+\.woff2\"\))",
        r"@import",
        r'from "https?:',
    ):
        assert re.search(place, text) is None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_file_has_anything_that_makes_markup_or_code_of_text(file):
    text = text_of(file)
    for place in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert place not in text
    assert re.search(r"<script(?! type=\"module\" src=)|<style| style=| on\w+=\"", text) is None


@pytest.mark.parametrize("view", ["overview", "set", "change", "debugger", "validator", "admin"])
def test_a_view_loads_its_own_modules_only(view):
    wanted, loaded = ["main.js", "token.js", f"{view}.js"], set[str]()
    while wanted:
        if (name := wanted.pop()) not in loaded:
            loaded.add(name)
            wanted += re.findall(r'(?:from|import) "\./(\w+\.js)"', (STATIC / name).read_text())
    others = {"overview.js", "set.js", "debugger.js", "validator.js", "admin.js"} - {f"{view}.js"}
    assert not loaded & others


def test_the_policy_allows_nothing_inline_and_no_other_host():
    assert set(re.findall(r"(\S+)(?:;|$)", POLICY)) == {"'none'", "'self'"}


def test_every_module_that_is_imported_is_there():
    client = ROOT / "clients/javascript"  # served beside them
    names = {file.name for file in FILES}
    names |= {f"client/{file.relative_to(client)}" for file in client.glob("lib/*.js")}
    names.add("client/rsnotify.js")
    for file in FILES:
        assert set(re.findall(r'from "\./([^"]+)"', text_of(file))) <= names
        assert set(re.findall(r'url\("([^"]+)"\)', text_of(file))) <= names


def test_title_and_place_are_filled_in_and_a_title_is_only_ever_text():
    page = framed("<b>", "<main></main>", root="../")
    assert "<title>&lt;b&gt;</title>" in page
    assert 'href="../static/page.css"' in page
    assert "{" not in page


GOOGLEBOT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "upgrade", "query", "expected"),
    [
        (CHROMIUM, "1", b"", True),
        (CHROMIUM, "1", b"from=2026-11-25", True),
        (CHROMIUM, "1", b"format=xml", False),
        (CHROMIUM, None, b"", False),  # a crawler
        (GOOGLEBOT, None, b"", False),
        (CHROMIUM, "0", b"", False),
        ("text/html", None, b"", True),
        ("text/html, application/xhtml+xml", None, b"", True),
        ("text/html, */*;q=0", None, b"", True),
        ("text/html, */*;q=0.1", None, b"", False),
        ("application/xml", "1", b"", False),
        ("*/*", "1", b"", False),
        ("", "1", b"", False),
    ],
)
def test_only_a_person_who_opens_an_address_gets_a_page_for_a_document(
    accept, upgrade, query, *, expected
):
    headers = {"accept": accept} | (
        {} if upgrade is None else {"upgrade-insecure-requests": upgrade}
    )
    assert is_opened(Headers(headers), {"query_string": query}) == expected
