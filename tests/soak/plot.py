"""A plot without a library: samples of a soak as lines in an SVG."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_WIDTH: Final = 800
_HEIGHT: Final = 130
_COLOURS: Final = ("#1b6ca8", "#a83b1b", "#3b7a1b")


def write_plot(into: Path, lines: Mapping[str, Sequence[int]]) -> None:
    """Draw each line in a box of its own, from zero up, with its last and largest value."""
    parts = []
    for at, (name, values) in enumerate(lines.items()):
        top = at * (_HEIGHT + 30)
        largest = max(max(values), 1)
        step = _WIDTH / max(len(values) - 1, 1)
        points = " ".join(
            f"{x * step:.1f},{top + 25 + _HEIGHT * (1 - value / largest):.1f}"
            for x, value in enumerate(values)
        )
        title = f"{name}: last {values[-1]}, largest {largest}"
        parts.append(f'<text x="0" y="{top + 18}" font-family="sans-serif">{title}</text>')
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_COLOURS[at % len(_COLOURS)]}"/>'
        )
    size = f'width="{_WIDTH}" height="{len(lines) * (_HEIGHT + 30)}"'
    body = "\n".join(parts)
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{body}\n</svg>\n', encoding="utf-8"
    )
