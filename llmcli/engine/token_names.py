"""A tokenizer and a decoder as one Vocabulary: ids that can be said, found by text."""

from __future__ import annotations

from dataclasses import dataclass

from llmcli.text.single_token import single_token
from llmcli.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenNames:
    """`size` is the number of logits, which may be more than the tokenizer has names for."""

    tokenizer: Tokenizer
    size: int

    def find(self, text: str) -> int:
        return single_token(self.tokenizer, text)

    def name(self, id_: int) -> str:
        return self.tokenizer.token_text(id_)
