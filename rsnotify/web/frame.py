"""The frame of every page for people: header, views, footer."""

from html import escape
from importlib.resources import files

from rsnotify import __version__

STATIC = files("rsnotify.web") / "static"
FRONT_SCRIPTS = ("token.js", "main.js")

# Scripts, styles and connections of the hub itself only, none of them inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept",
}


def template(name: str) -> str:
    return (STATIC / name).read_text()


def framed(
    title: str, main: str, aside: str = "", scripts: tuple[str, ...] = (), root: str = "./"
) -> str:
    """The whole page. `title` is text, the rest is HTML; `root` leads from its address to `/`."""
    sources = (f'<script type="module" src="{{root}}static/{name}"></script>' for name in scripts)
    parts = {
        "title": escape(title),
        "scripts": "\n  ".join(sources),
        "aside": aside,
        "main": main,
        "version": __version__,
        "root": root,
    }
    page = template("frame.html")
    for name, content in parts.items():
        page = page.replace(f"{{{name}}}", content, 1 if name != "root" else -1)
    return page
