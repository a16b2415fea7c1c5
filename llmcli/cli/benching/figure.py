"""The cost of a token by position, as a picture; matplotlib is an extra."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.checkpoint.escape import printable
from llmcli.cli.files import check_target
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from llmcli.bench.report import Report, Strategy

_FORMS = (".png", ".svg")


def check_figure(path: Path) -> None:
    """Raise UsageError for a name or a place that cannot be, or where matplotlib is missing."""
    check_target("--plot", path)
    if path.suffix.lower() not in _FORMS:
        raise UsageError(
            f"--plot {printable(str(path))} ends in {path.suffix or 'nothing'!r}; "
            "it must be .png or .svg",
            hint="the ending decides the form",
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError(
            "--plot needs matplotlib, which is not installed",
            hint="pip install 'llmcli[plot]'",
        ) from None


def draw(report: Report, form: str) -> bytes:
    """One panel for each strategy and number of rows; an arm keeps its colour in all of them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [
        (one, rows)
        for one in report.strategies
        for rows in dict.fromkeys(curve.rows for curve in one.curves if curve.points)
    ]
    figure = Figure(figsize=(8, 4.2 * max(1, len(panels))), layout="constrained")
    FigureCanvasAgg(figure)
    for at, (one, rows) in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, at + 1)
        _draw_panel(axes, one, rows)
        text = f", {rows} rows" if rows > 1 else ""
        machine = report.machine
        axes.set_title(
            f"{printable(report.model, 40)}, {machine.dtype} on {machine.device}: "
            f"{one.strategy}{text}",
            parse_math=False,
        )
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=150)
    return out.getvalue()


def _draw_panel(axes: Axes, one: Strategy, rows: int) -> None:
    """Medians as points, fits as lines, and dotted ones where an arm begins to pay."""
    for number, curve in enumerate(curve for curve in one.curves if curve.rows == rows):
        colour = f"C{number}"
        places = [position for position, _ in curve.points]
        times = [seconds * 1e3 for _, seconds in curve.points]
        axes.scatter(places, times, 8, color=colour, alpha=0.5, linewidths=0)
        line = []
        if curve.curve is not None and places:
            line = [min(places) + k * (max(places) - min(places)) / 200 for k in range(201)]
        fitted = [curve.curve.at(n) * 1e3 for n in line] if curve.curve is not None else []
        axes.plot(line, fitted, color=colour, label=curve.arm)
    for cross in one.crossovers:
        if cross.rows == rows and cross.position and cross.position > cross.first:
            axes.axvline(cross.position, color="grey", linestyle=":", linewidth=1)
            axes.annotate(
                f"{cross.arm} pays from {cross.position:.0f} on",
                (cross.position, 0.98),
                xycoords=("data", "axes fraction"),
                rotation=90,
                ha="right",
                va="top",
                fontsize=7,
                color="grey",
            )
    unit = "ms a token" if rows == 1 else "ms a step, a token of each row"
    axes.set(xlabel="tokens before it", ylabel=unit, ylim=(0, None))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
