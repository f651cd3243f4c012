"""The description for people: one HTML page, without scripts and without another host."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import msgspec

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h2 { margin: 2rem 0 0; font-size: 1.1rem; overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: .5rem; border: 1px solid; }
td, th { padding: 0 1rem 0 0; text-align: left; vertical-align: top; }
code { overflow-wrap: anywhere; }
"""
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; frame-ancestors 'none'"

Described = Mapping[str, Any]


def page_of(document: Described) -> str:
    """Every operation in the order of the document, then every schema."""
    return "\n".join(_lines(document))


def _lines(document: Described) -> Iterator[str]:
    info = document["info"]
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(info['title'])}: HTTP</title><style>{STYLE}</style></head><body><main>"
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}: HTTP</h1>"
    yield f"<p>{escape(info['description'])} For machines:"
    yield '<a href="/api/openapi.json">/api/openapi.json</a> (OpenAPI 3.1).</p>'
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "head":
                yield from _operation(path, method, operation)
    yield "<h1>Schemas</h1>"
    for name, schema in document["components"]["schemas"].items():
        yield f'<h2 id="{escape(name)}">{escape(name)}</h2>{_pre(schema)}'
    yield "</main></body></html>"


def _operation(path: str, method: str, operation: Described) -> Iterator[str]:
    identifier = escape(operation["operationId"])
    yield f'<h2 id="{identifier}">{method.upper()} <code>{escape(path)}</code></h2>'
    yield f"<p>{escape(operation['summary'])}.{_who(operation)}</p>"
    if operation["parameters"]:
        yield from _table("parameter", "in", map(_parameter, operation["parameters"]))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: <code>{escape(kind)}</code>{_schema(content['schema'])}</p>"
        if "example" in content:
            yield _pre(content["example"])
    yield from _table("answer", "meaning", map(_answer, operation["responses"].items()))


def _who(operation: Described) -> str:
    if "security" not in operation:
        return ""
    return " A private set needs a token." if {} in operation["security"] else " Needs a token."


def _parameter(parameter: Described) -> tuple[str, str]:
    schema = parameter["schema"]
    told = schema.get("description") or ", ".join(schema.get("enum", ())) or schema.get("type", "")
    return f"<code>{escape(parameter['name'])}</code>", escape(f"{parameter['in']}; {told}")


def _answer(answer: tuple[str, Described]) -> tuple[str, str]:
    status, described = answer
    kinds = described.get("content", {})
    forms = ", ".join(f"{escape(kind)}{_schema(kinds[kind]['schema'])}" for kind in kinds)
    return status, escape(described["description"]) + (f" ({forms})" if forms else "")


def _schema(schema: Described) -> str:
    """A link to the schema, where it has a name."""
    if "items" in schema:
        return _schema(schema["items"])
    name = schema.get("$ref", "").rpartition("/")[2]
    return f' <a href="#{escape(name)}">{escape(name)}</a>' if name else ""


def _table(first: str, second: str, rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield f'<table><tr><th scope="col">{first}</th><th scope="col">{second}</th></tr>'
    yield from (f"<tr><td>{name}</td><td>{told}</td></tr>" for name, told in rows)
    yield "</table>"


def _pre(content: object) -> str:
    """An example or a schema; scrolled by keyboard, too."""
    text = content if isinstance(content, str) else _indented(content)
    return f'<pre tabindex="0">{escape(text)}</pre>'


def _indented(content: object) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
