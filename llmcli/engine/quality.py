"""What packing a checkpoint's matrices costs: its packed decoder against float32 on a text.

Both run through torch, packed matrices as in a prefill: made float32 block by block (model/linear).
The kernels of a decode step compute the same to float32 rounding. Must not know terminals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from llmcli.acquire.resolve import Resolved
from llmcli.bench.divergence import Divergence, diverge, windows
from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.tensors import TensorFiles
from llmcli.engine.load import load_decoder
from llmcli.engine.proved import prove_folder
from llmcli.engine.quantizing import packed_bytes, refuse_packed, stored_bytes
from llmcli.engine.reader import check_vocabulary
from llmcli.errors import UsageError
from llmcli.model import Decoder
from llmcli.plurals import counted
from llmcli.spec import INT4_GROUP, PackingKind, count_parameters
from llmcli.text.tokenizer import Tokenizer

# Tokens read at once. More would tell little else, and take the memory of more keys and values.
WINDOW = 512
# Told of by name where there are fewer.
FEW_TOKENS = 200

# Packing and measuring take about as long.
_HALF = 500

# (done, in all, what is under way)
OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Weights:
    """A checkpoint's weights in one form, by their bytes in files."""

    form: str
    bytes: int
    parameters: int

    @property
    def bits(self) -> float:
        """Of a parameter, scales and what is not packed counted in."""
        return 8 * self.bytes / self.parameters


@dataclass(frozen=True, slots=True)
class Measured:
    """What one packing came to."""

    weights: Weights
    group: int
    divergence: Divergence


class Quality:
    """A checkpoint and a text, checked and ready to be measured."""

    def __init__(self, source: Resolved, text: str, *, what: str = "the text") -> None:
        """Reads headers and the tokenizer alone; `what` is what errors call the text.

        Raises UsageError for a quantised checkpoint or a text with nothing to predict, and
        CheckpointError for a checkpoint that does not load.
        """
        self._directory = ModelDir.open(source.path)
        with TensorFiles() as files:
            self._proved = prove_folder(self._directory, files)
        refuse_packed(self._proved, source.name)
        tokenizer = Tokenizer.load(source.path)
        check_vocabulary(self._proved.spec, tokenizer)
        prefix = tokenizer.encode_raw("")
        body = tokenizer.encode_raw(text)[len(prefix) :]
        most = min(WINDOW, self._proved.spec.context)
        self.windows = windows(prefix, body, most)
        if not self.windows:
            raise UsageError(
                f"{what} has {counted(len(body), 'token')}, and none that is predicted",
                hint="give a text of some hundred tokens",
            )
        self.tokens = sum(window.scored for window in self.windows)
        dtypes = {item.source.dtype for item in self._proved.plan.assignments}
        self.stored = self._weights("/".join(sorted(dtypes)), stored_bytes(self._proved))

    def measure(
        self,
        kind: PackingKind,
        *,
        group: int = INT4_GROUP,
        folder: Path | None = None,
        on_progress: OnProgress | None = None,
    ) -> Measured:
        """The weights packed now, or as they lie in a quantised `folder`.

        Besides the reference, one packed decoder is held at a time. Raises CheckpointError for
        numbers that cannot be packed, GenerationError for logits that are not finite.
        """
        told = on_progress or (lambda _done, _total, _what: None)
        reference = self._reference
        directory = self._directory if folder is None else ModelDir.open(folder)
        other = load_decoder(
            directory,
            device="cpu",
            dtype="float32",
            quantize=kind if folder is None else None,
            group=group,
            on_progress=lambda done, total: told(done * _HALF // total, 2 * _HALF, "packing"),
        ).decoder
        found = diverge(
            reference,
            other,
            self.windows,
            on_progress=lambda done, total: told(
                _HALF + done * _HALF // total, 2 * _HALF, "reading the text"
            ),
        )
        size = packed_bytes(self._proved, kind, group)
        return Measured(self._weights(kind, size), group, found)

    @cached_property
    def _reference(self) -> Decoder:
        """In float32; a 16-bit file's numbers become float32 as they are multiplied."""
        loaded = load_decoder(self._directory, device="cpu", dtype="float32", as_stored=True)
        return loaded.decoder

    def _weights(self, form: str, size: int) -> Weights:
        return Weights(form, size, count_parameters(self._proved.spec))


def built_in_text() -> str:
    """A few hundred English words written for this, with some dialogue, figures and code."""
    return resources.files("llmcli.engine").joinpath("sample.txt").read_text("utf-8")
