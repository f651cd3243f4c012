"""The JSON Schema that the documents promise."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/changes.schema.json").read_text())
Draft202012Validator.check_schema(SCHEMA)

_DOCUMENT = Draft202012Validator(SCHEMA)
_PUBLISHED = Draft202012Validator({"$defs": SCHEMA["$defs"], "$ref": "#/$defs/published"})


def told(body: bytes | str) -> dict[str, Any]:
    """A document, list or notification, held against the schema."""
    found: dict[str, Any] = json.loads(body)
    _DOCUMENT.validate(found)
    return found


def may_be_published(change: object) -> bool:
    """Whether the schema lets this be posted."""
    return _PUBLISHED.is_valid(change)
