"""New ids in, text out as soon as it is certain, in the context of the prompt.

The joined text equals one decode of all ids. Must not know models, stop strings or terminals.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from llmcli.text.thought_marks import thought_ids
from llmcli.text.tokenizer import Tokenizer


class Detokenizer:
    """Streams the text of one answer.

    `hidden` ids make no text, in the prompt either. `prompt_text` is the text of the prompt that
    the stream continues: prompt_text + all pieces == the decode of prompt and answer together.
    If the prompt ends inside a character, that whole character belongs to the answer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int] = (),
        *,
        hidden: frozenset[int] = frozenset(),
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._pieces: dict[int, str | None] = dict.fromkeys(hidden)
        self._decoder = tokenizer.new_decoder()
        self._skip = 0
        certain = "".join([self._advance(token) for token in prompt_ids])
        shown = copy.deepcopy(self._decoder).finish(cut=True) if prompt_ids else ""
        # Text that is still held but already shown as prompt must not be repeated in the answer
        self._skip = len(shown)
        self.prompt_text = certain + shown

    def feed(self, token: int) -> str:
        """The text that became certain with this id; may be empty."""
        return self._unseen(self._advance(token))

    def flush(self) -> str:
        """The rest, once no more ids come; an incomplete character becomes U+FFFD."""
        return self._unseen(self._decoder.finish())

    def _advance(self, token: int) -> str:
        try:
            piece = self._pieces[token]
        except KeyError:
            piece = self._pieces[token] = self._tokenizer.piece(token)
        return "" if piece is None else self._decoder.feed(piece)

    def _unseen(self, text: str) -> str:
        if self._skip:
            skipped = min(self._skip, len(text))
            self._skip -= skipped
            return text[skipped:]
        return text


def hidden_ids(
    tokenizer: Tokenizer,
    stop_ids: Iterable[int],
    *,
    show_special: bool,
    show_thought_marks: bool = False,
) -> frozenset[int]:
    """The ids that make no text: stop ids always, other special ones unless they are to be shown.

    Added tokens that are not flagged special are ordinary text and always shown. Stop strings
    see the shown text only, so they cannot match the text of a hidden token.
    """
    stops = frozenset(stop_ids)
    if show_special:
        return stops
    shown = thought_ids(tokenizer) if show_thought_marks else frozenset()
    return stops | (tokenizer.special_ids - shown)
