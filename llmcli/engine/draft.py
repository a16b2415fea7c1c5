"""The draft model of speculative decoding: whether it fits, and its stepper."""

from __future__ import annotations

from pathlib import Path

from llmcli.checkpoint.escape import printable
from llmcli.errors import UsageError
from llmcli.text.same_vocabulary import first_difference
from llmcli.text.tokenizer import Tokenizer


def check_draft(target: Path, draft: Path) -> None:
    """Raise UsageError where two checkpoints' tokenizers differ, before weights are read."""
    check_same_tokenizer(Tokenizer.load(target), Tokenizer.load(draft))


def check_same_tokenizer(target: Tokenizer, draft: Tokenizer) -> None:
    """Raise UsageError naming the first difference: guesses are ids, and must mean the same."""
    difference = first_difference(target, draft)
    if difference is not None:
        raise UsageError(
            f"the draft model has another tokenizer: {printable(difference, 200)} "
            f"({printable(str(target.source.parent))}, {printable(str(draft.source.parent))})",
            hint="a draft must have the model's own tokenizer; "
            "--strategy prompt-lookup needs no draft",
        )
