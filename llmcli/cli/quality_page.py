"""What packing costs: a table, Markdown, CSV or JSON. Must not know how it was measured."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmcli import __version__
from llmcli.checkpoint.escape import printable
from llmcli.cli.columns import folded, table
from llmcli.cli.options import ReportForm
from llmcli.cli.sizes import in_bytes
from llmcli.plurals import counted

if TYPE_CHECKING:
    from llmcli.engine.quality import Measured, Weights

_HEADER = (
    "weights", "bytes", "bits each", "KL mean", "KL median", "KL p99", "KL max",
    "perplexity", "same top token",
)  # fmt: skip
_LEGEND = (
    "KL: how far the next token's distribution is from that of the stored weights in float32, "
    "in nats a token. Bits: of all weights, scales and what is not packed included."
)
_TOLD = ("kl_mean", "kl_median", "kl_p99", "kl_max", "same_top")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that is told. `folder` is the quantised checkpoint that was measured, if it was."""

    model: str
    text: str
    sha256: str
    tokens: int
    windows: int
    longest: int
    stored: Weights
    measured: Sequence[Measured]
    folder: Path | None

    def lines(self, form: ReportForm, width: int | None) -> Iterator[str]:
        """For any form but JSON; a table is fitted to `width`."""
        if form == "csv":
            about = {"model": self.model, "text": self.text, "tokens": self.tokens}
            yield from _as_csv([{**about, **row} for row in self._rows()]).splitlines()
            return
        markdown = form == "markdown"
        width = None if markdown else width
        rows = list(self._cells())
        for line in self._about():
            yield from folded(("* " if markdown else "") + line, width)
        yield ""
        if markdown:
            yield "| " + " | ".join(_HEADER) + " |"
            yield "|---" + "|---:" * (len(_HEADER) - 1) + "|"
            yield from ("| " + " | ".join(row) + " |" for row in rows)
        else:
            yield from table(_HEADER, rows, width)
        yield ""
        yield from folded(_LEGEND, width)

    def as_json(self) -> Mapping[str, Any]:
        """Infinite perplexities are null."""
        stored, *packed = self._rows()
        return {
            "format": 1,
            "llmcli": __version__,
            "model": self.model,
            "parameters": self.stored.parameters,
            "folder": None if self.folder is None else str(self.folder),
            "text": {
                "name": self.text,
                "sha256": self.sha256,
                "tokens": self.tokens,
                "windows": self.windows,
                "longest_window": self.longest,
            },
            "stored": {key: stored[key] for key in ("weights", "bytes", "bits", "perplexity")},
            "packed": packed,
        }

    def _about(self) -> Iterator[str]:
        yield f"model: {printable(self.model)}, {counted(self.stored.parameters, 'parameter')}"
        yield (
            f"text: {self.text}, {counted(self.tokens, 'token')} predicted in "
            f"{counted(self.windows, 'window')} of at most {self.longest}"
        )

    def _cells(self) -> Iterator[tuple[str, ...]]:
        reference = f"{self.measured[0].divergence.reference_perplexity:.3f}"
        yield (*_size(f"as stored ({self.stored.form})", self.stored), *[""] * 4, reference, "")
        for one in self.measured:
            found = one.divergence
            kl = (found.kl_mean, found.kl_median, found.kl_p99, found.kl_max)
            yield (
                *_size(one.weights.form, one.weights),
                *(f"{number:.2e}" for number in kl),
                f"{found.perplexity:.3f}",
                f"{100 * found.same_top:.1f}%",
            )

    def _rows(self) -> Iterator[Mapping[str, Any]]:
        """The weights as stored, then in each packed form, under the same names."""
        first = self.measured[0].divergence.reference_perplexity
        yield {**_row(self.stored, None, first), **dict.fromkeys(_TOLD)}
        for one in self.measured:
            found = asdict(one.divergence)
            group = one.group if one.weights.form == "int4" else None
            row = _row(one.weights, group, one.divergence.perplexity)
            yield {**row, **{key: found[key] for key in _TOLD}}


def _size(named: str, weights: Weights) -> tuple[str, str, str]:
    return named, in_bytes(weights.bytes), f"{weights.bits:.2f}"


def _row(weights: Weights, group: int | None, perplexity: float) -> Mapping[str, Any]:
    return {
        "weights": weights.form,
        "bytes": weights.bytes,
        "bits": weights.bits,
        "group_size": group,
        "perplexity": perplexity if math.isfinite(perplexity) else None,
    }


def _as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
