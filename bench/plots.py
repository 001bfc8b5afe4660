"""Plots of results; matplotlib is in the dependency group `bench` and nowhere else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.results import Spread

_DPI: Final = 90
_WIDTH_INCHES: Final = 8.0
_ROW_INCHES: Final = 0.35


def is_available() -> bool:
    """Tell whether plots can be drawn here."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def bars(file: Path, title: str, rows: Mapping[str, Spread], marks: Mapping[str, float]) -> None:
    """Draw ratios as bars on a logarithmic axis, with their spread and the mark to reach."""
    from matplotlib.figure import Figure

    names = list(rows)[::-1]
    middles = [rows[name].middle for name in names]
    errors = [
        [rows[name].middle - rows[name].low for name in names],
        [rows[name].high - rows[name].middle for name in names],
    ]
    figure = Figure(figsize=(_WIDTH_INCHES, 1.2 + _ROW_INCHES * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.barh(names, middles, xerr=errors, color="#4c78a8", ecolor="#222222", capsize=2)
    for at, name in enumerate(names):
        if name in marks:
            axes.plot([marks[name]] * 2, [at - 0.4, at + 0.4], color="#e45756")
    axes.axvline(1, color="#888888", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_title(title, fontsize=10)
    axes.tick_params(labelsize=8)
    figure.savefig(file, dpi=_DPI)


def curves(
    file: Path, panels: Mapping[str, tuple[str, str, Mapping[str, Sequence[tuple[float, Spread]]]]]
) -> None:
    """Draw one panel per curve: label of the axes, and points per broker with their spread."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_INCHES, 2.6 * len(panels)), layout="constrained")
    drawn = figure.subplots(len(panels), 1, squeeze=False)
    for row, (title, (x_label, y_label, lines)) in zip(drawn, panels.items(), strict=True):
        axes = row[0]
        for broker, points in lines.items():
            xs = [x for x, _ in points]
            axes.plot(xs, [spread.middle for _, spread in points], marker="o", label=broker)
            axes.fill_between(
                xs, [one.low for _, one in points], [one.high for _, one in points], alpha=0.2
            )
        axes.set_xscale("symlog")
        axes.set_yscale("log")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(x_label, fontsize=8)
        axes.set_ylabel(y_label, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.legend(fontsize=8)
    figure.savefig(file, dpi=_DPI)
