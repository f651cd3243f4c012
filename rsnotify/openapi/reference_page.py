"""The description for people: one HTML page in the frame of all, without scripts."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import msgspec

from rsnotify.web.frame import framed

Described = Mapping[str, Any]


def page_of(document: Described) -> str:
    """Every operation in the order of the document, then every schema."""
    main = "\n".join(_lines(document))
    return framed(f"{document['info']['title']}: HTTP", main)


def _lines(document: Described) -> Iterator[str]:
    info = document["info"]
    yield '<main id="main" class="reference" tabindex="-1">'
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}: HTTP</h1>"
    yield f"<p>{escape(info['description'])} For machines:"
    yield '<a href="./api/openapi.json">/api/openapi.json</a> (OpenAPI 3.1).</p>'
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "head":
                yield from _operation(path, method, operation)
    yield "<h1>Schemas</h1>"
    for name, schema in document["components"]["schemas"].items():
        yield f'<h2 id="{escape(name)}">{escape(name)}</h2>{_pre(schema)}'
    yield "</main>"


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
