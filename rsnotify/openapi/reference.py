"""The description of the HTTP API for people: one HTML page, with contents, operations and schemas.

It says nothing of its own: all that it shows stands in the OpenAPI document. It can be read without
scripts; with them its contents are searched, and its requests sent.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from shlex import quote
from typing import Any
from urllib.parse import urlencode

import msgspec

from rsnotify.web.page import framed

Described = Mapping[str, Any]
Row = tuple[str, str, Described]  # path, method and operation

TRIED = ("token.js", "reference.js", "palette.js")
PLACES = {"path": "in the path", "query": "in the query", "header": "a header"}


def page_of(document: Described, scripts: tuple[str, ...] = TRIED) -> str:
    """Every operation by its tag, then every schema; contents beside them."""
    main = "\n".join(_lines(document))
    return framed(f"{document['info']['title']}: HTTP", main, "", scripts)


def _lines(document: Described) -> Iterator[str]:
    info = document["info"]
    groups = {tag["name"]: list(_tagged(document, tag["name"])) for tag in document["tags"]}
    schemas = document["components"]["schemas"]
    yield '<main id="main" class="reference" tabindex="-1">'
    yield from _contents(groups, schemas)
    yield "<div>"
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}: HTTP</h1>"
    yield f'<p class="lead">{escape(info["description"])} For machines: '
    yield '<a href="./api/openapi.json">/api/openapi.json</a> (OpenAPI 3.1).</p>'
    for name, rows in groups.items():
        yield f'<h2 id="{_anchor(name)}">{escape(name)}</h2>'
        for row in rows:
            yield from _section(*row)
    yield '<h2 id="schemas">Schemas</h2>'
    for name, schema in schemas.items():
        yield f'<details><summary>{escape(name)}</summary><div id="{escape(name)}">'
        yield f"{_pre(schema, name)}</div></details>"
    yield "</div></main>"


def _tagged(document: Described, tag: str) -> Iterator[Row]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "head" and tag in operation["tags"]:
                yield path, method, operation


def _anchor(name: str) -> str:
    return escape(name.lower().replace(" ", "-"))


# --- the contents --------------------------------------------------------------------------------


def _contents(groups: Mapping[str, list[Row]], schemas: Iterable[str]) -> Iterator[str]:
    yield '<nav class="contents" aria-label="Contents"><div id="finding"></div>'
    for name, rows in groups.items():
        yield f'<section><a href="#{_anchor(name)}">{escape(name)}</a><ul>'
        for path, method, operation in rows:
            said = escape(operation["summary"].replace("`", ""))
            yield f'<li><a href="#{_id(operation)}" data-said="{said}">'
            yield f"{_method(method)} <span>{_breakable(path)}</span></a></li>"
        yield "</ul></section>"
    yield '<section><a href="#schemas">Schemas</a><ul>'
    yield from (f'<li><a href="#{escape(name)}">{escape(name)}</a></li>' for name in schemas)
    yield "</ul></section></nav>"


def _breakable(path: str) -> str:
    """An address whose lines are broken between its words, not within them."""
    return re.sub("([/_])(?=.)", r"\1<wbr>", escape(path))


def _id(operation: Described) -> str:
    return escape(operation["operationId"])


def _method(method: str) -> str:
    return f'<b class="method {method}">{method.upper()}</b>'


# --- an operation --------------------------------------------------------------------------------


def _section(path: str, method: str, operation: Described) -> Iterator[str]:
    identifier, name = _id(operation), escape(f"{method.upper()} {path}")
    yield f'<section class="operation" id="{identifier}"><div>'
    yield f"<h3>{_method(method)} <code>{escape(path)}</code>"
    yield f'<a class="permalink" href="#{identifier}" aria-label="Link to {name}">#</a></h3>'
    yield f"<p>{_words(operation['summary'])}.{_who(operation)}</p>"
    if operation["parameters"]:
        yield from _table("parameter", "meaning", map(_parameter_row, operation["parameters"]))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: <code>{escape(kind)}</code>{_schema(content['schema'])}</p>"
    answers = operation["responses"]
    done = {status: each for status, each in answers.items() if status < "400"}
    yield from _table("answer", "meaning", map(_answer_row, done.items()))
    errors = {status: each for status, each in answers.items() if status not in done}
    if errors:
        yield f"<details><summary>Errors: {', '.join(errors)}</summary>"
        yield from _table("error", "meaning", map(_answer_row, errors.items()))
        yield "</details>"
    yield f'</div><div class="example" data-method="{method}" data-path="{escape(path)}">'
    yield f"{_pre(_curl(path, method, operation), f'{name} with curl')}</div></section>"


def _words(text: str) -> str:
    """What the document says, which marks code as Markdown does."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _who(operation: Described) -> str:
    if "security" not in operation:
        return ""
    return " A private set needs a token." if {} in operation["security"] else " Needs a token."


def _parameter_row(parameter: Described) -> tuple[str, str]:
    schema = parameter["schema"]
    text = schema.get("description") or ", ".join(schema.get("enum", ())) or schema.get("type", "")
    return f"<code>{escape(parameter['name'])}</code>", _words(
        f"{text} ({PLACES[parameter['in']]})"
    )


def _answer_row(answer: tuple[str, Described]) -> tuple[str, str]:
    status, described = answer
    kinds = described.get("content", {})
    forms = ", ".join(f"{escape(kind)}{_schema(kinds[kind]['schema'])}" for kind in kinds)
    return status, _words(described["description"]) + (f" ({forms})" if forms else "")


def _schema(schema: Described) -> str:
    """A link to the schema, where it has a name."""
    if "items" in schema:
        return _schema(schema["items"])
    name = schema.get("$ref", "").rpartition("/")[2]
    return f' <a href="#{escape(name)}">{escape(name)}</a>' if name else ""


def _table(first: str, second: str, rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield f'<table><tr><th scope="col">{first}</th><th scope="col">{second}</th></tr>'
    yield from (f"<tr><td>{name}</td><td>{text}</td></tr>" for name, text in rows)
    yield "</table>"


def _curl(path: str, method: str, operation: Described) -> str:
    """The request for a shell: with the examples of its address, and the first one of its body."""
    for parameter in operation["parameters"]:
        name, example = parameter["name"], parameter.get("example", "…")
        path = path.replace(f"{{{name}}}", str(example))
        if parameter["in"] == "query" and "example" in parameter:
            path += f"?{urlencode({name: example}, doseq=True)}"
    lines = ["curl" if method == "get" else f"curl -X {method.upper()}"]
    lines[0] += f' "$RSNOTIFY_URL{path}"'
    if "security" in operation:
        lines.append('-H "Authorization: Bearer $RSNOTIFY_TOKEN"')
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if "example" in content:
            lines += [f"-H 'Content-Type: {kind}'", f"--data {_body(kind, content['example'])}"]
            break
    return " \\\n  ".join(lines)


def _body(kind: str, example: object) -> str:
    if isinstance(example, str):
        return quote(example)
    if isinstance(example, dict) and kind.endswith("form-urlencoded"):
        return " --data ".join(quote(f"{name}={value}") for name, value in example.items())
    return quote(msgspec.json.encode(example).decode())


def _pre(content: object, name: str) -> str:
    """An example or a schema; scrolled by keyboard, too."""
    if not isinstance(content, str):
        content = msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
    return f'<pre tabindex="0" role="region" aria-label="{escape(name)}">{escape(content)}</pre>'
