"""The numbers of docs/reference/limits.md, written from what holds them in the code.

    python -m tests.tools.limits

A number stands before the name of its constant, in a comment that readers of the page do not see:
`8 MiB <!-- rsnotify.publishing.bodies.BODY_BYTES -->`. To add a limit, add its row with that name.
A name may be an expression of names, such as what is left of a size; the unit is the row's choice.
"""

import ast
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[2] / "docs/reference/limits.md"
UNITS = {"": 1, " KiB": 1024, " MiB": 1024**2, " MB": 10**6}
NUMBER = re.compile(r"[\d,.]+(?P<unit>(?: (?:KiB|MiB|MB))?) <!-- (?P<name>[^>]+) -->")


def written(text: str) -> str:
    """The page with the numbers as they are."""
    return NUMBER.sub(_number, text)


def _number(found: re.Match[str]) -> str:
    name, unit = found["name"], found["unit"]
    most = value_of(name) / UNITS[unit]
    if unit and most != int(most):
        raise ValueError(f"{name} is no whole number of{unit}: choose a smaller unit")
    return f"{most:,}".removesuffix(".0") + f"{unit} <!-- {name} -->"


def value_of(expression: str) -> float:
    """What it is worth; each module that it names is imported.

    >>> value_of("rsnotify.websub.rules.FORM_BYTES / 1024")
    16.0
    """
    names: dict[str, ModuleType] = {}
    for node in ast.walk(ast.parse(expression, mode="eval")):
        dotted = ast.unparse(node)
        if isinstance(node, ast.Attribute) and re.fullmatch(r"rsnotify\w*(\.[a-z_0-9]+)+", dotted):
            import_module(dotted)
        if isinstance(node, ast.Name) and node.id.startswith("rsnotify"):
            names[node.id] = import_module(node.id)
    return float(eval(expression, {**names}))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
