"""Pictures of what was measured: bars in SVG, drawn from the figures of a run and nothing else.

A run writes its figures as JSON beside the picture; `tests/unit/test_pictures.py` compares them.
"""

from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

FOLDER = Path(__file__).parents[3] / "docs" / "pictures"
WIDTH, BAR, GAP = 720, 16, 14
NAMES_WIDTH, NUMBERS_WIDTH = 190, 90
TOP = 56
COLOURS = 4

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.paper { fill: #ffffff }
.c0 { fill: #0969da } .c1 { fill: #8250df } .c2 { fill: #9a6700 } .c3 { fill: #57606a }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .paper { fill: #0d1117 }
  .c0 { fill: #58a6ff } .c1 { fill: #bc8cff } .c2 { fill: #d29922 } .c3 { fill: #8b949e }
}
"""


class Chart(msgspec.Struct):
    """Groups of bars: in each group a bar for each name."""

    title: str
    unit: str
    groups: dict[str, dict[str, float]]

    @property
    def names(self) -> list[str]:
        """Of all bars, each once."""
        return list(dict.fromkeys(name for bars in self.groups.values() for name in bars))

    @property
    def longest(self) -> float:
        return max(number for bars in self.groups.values() for number in bars.values())


def draw(chart: Chart) -> str:
    """The picture; its description has all figures, for those who cannot see it."""
    bars, height = _groups(chart)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(chart.title)}</title>',
            f'<desc id="desc">{escape(described(chart))}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
            f'<text class="title" x="12" y="24">{escape(chart.title)}</text>',
            f'<text x="12" y="42">{escape(chart.unit)}</text>',
            *bars,
            "</svg>\n",
        ]
    )


def described(chart: Chart) -> str:
    groups = (
        f"{group}: " + ", ".join(f"{name} {number:,.0f}" for name, number in bars.items())
        for group, bars in chart.groups.items()
    )
    return f"{chart.unit}. " + "; ".join(groups) + "."


def _groups(chart: Chart) -> tuple[list[str], int]:
    """The bars of all groups, and how far down they reach."""
    lines: list[str] = []
    down = TOP
    for group, bars in chart.groups.items():
        lines.append(f'<text x="12" y="{down + 13}">{escape(group)}</text>')
        down += BAR + 4
        for name, number in bars.items():
            lines += _bar(chart, name, number, down)
            down += BAR + 4
        down += GAP
    return lines, down


def _bar(chart: Chart, name: str, number: float, down: int) -> list[str]:
    room = WIDTH - NAMES_WIDTH - NUMBERS_WIDTH
    length = max(1.0, room * number / chart.longest)
    colour = chart.names.index(name) % COLOURS
    return [
        f'<text x="24" y="{down + 12}">{escape(name)}</text>',
        f'<rect class="c{colour}" x="{NAMES_WIDTH}" y="{down}" width="{length:.1f}" '
        f'height="{BAR}" rx="2"/>',
        f'<text x="{NAMES_WIDTH + length + 6:.1f}" y="{down + 12}">{number:,.0f}</text>',
    ]


def read(figures: Path) -> Chart:
    return msgspec.json.decode(figures.read_bytes(), type=Chart)


def save(name: str, chart: Chart) -> None:
    """Write the figures, and the picture of them."""
    FOLDER.mkdir(exist_ok=True)
    figures = FOLDER / f"{name}.json"
    figures.write_bytes(msgspec.json.format(msgspec.json.encode(chart), indent=1) + b"\n")
    figures.with_suffix(".svg").write_text(draw(read(figures)))
