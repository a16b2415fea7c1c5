"""The marks that checkpoints write around their reasoning, and their ids where they are tokens.

Must not know what is done with reasoning.
"""

from __future__ import annotations

from llmcli.text.tokenizer import Tokenizer

THOUGHT_MARKS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
}


def thought_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens that are such a mark, whether or not they are flagged special."""
    texts = {*THOUGHT_MARKS, *THOUGHT_MARKS.values()}
    added = tokenizer.added_tokens
    return frozenset(token for token, entry in added.items() if entry.content in texts)
