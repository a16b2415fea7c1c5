"""The cost of a token by position, as a picture; matplotlib is an extra."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.checkpoint.escape import printable
from llmcli.cli.files import check_target
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from llmcli.bench.report import Report

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
    """One panel a strategy: medians as points, fits as lines, crossovers as dotted lines."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [one for one in report.strategies if any(c.points for c in one.curves)]
    figure = Figure(figsize=(7, 4.2 * max(1, len(shown))), layout="constrained")
    FigureCanvasAgg(figure)
    for at, one in enumerate(shown):
        axes = figure.add_subplot(len(shown), 1, at + 1)
        for number, curve in enumerate(one.curves):
            colour = f"C{number}"
            places = [position for position, _ in curve.points]
            name = curve.arm + (f", {curve.rows} rows" if curve.rows > 1 else "")
            label = f"{name}: medians, and the curve through them" if at + number == 0 else name
            axes.scatter(
                places,
                [s * 1e3 for _, s in curve.points],
                8,
                color=colour,
                alpha=0.6,
                linewidths=0,
                label=label,
            )
            if curve.curve is not None and places:
                line = [min(places) + k * (max(places) - min(places)) / 200 for k in range(201)]
                axes.plot(line, [curve.curve.at(n) * 1e3 for n in line], color=colour)
        for cross in one.crossovers:
            if cross.position and cross.position > cross.first:
                axes.axvline(cross.position, color="grey", linestyle=":", linewidth=1)
                axes.annotate(
                    f"{cross.arm} pays from {cross.position:.0f} on",
                    (cross.position, 0.02),
                    xycoords=("data", "axes fraction"),
                    rotation=90,
                    ha="right",
                    fontsize=7,
                    color="grey",
                )
        axes.set(xlabel="tokens before it", ylabel="ms a token", ylim=(0, None))
        axes.set_title(
            f"{printable(report.model, 40)}, {one.strategy}, {report.machine.dtype} on "
            f"{report.machine.device}",
            parse_math=False,
        )
        if one.curves:
            axes.legend()
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=150)
    return out.getvalue()
