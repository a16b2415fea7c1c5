"""The merges of a BPE vocabulary, as stored or as its scores or its order imply.

Must not know tokenizer.json.
"""

from __future__ import annotations

from typing import Literal

from llmcli.acquire.gguf.reader import GgufFile
from llmcli.acquire.gguf.vocabulary import TokenKind, Vocabulary
from llmcli.checkpoint.escape import printable

_PREFIX = "tokenizer.ggml."


def stored_merges(file: GgufFile, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The merges that the file lists, each proved to join two tokens into a third."""
    ids = vocabulary.ids
    merges: list[tuple[str, str]] = []
    for text in file.items(_PREFIX + "merges", str) or []:
        # A token may itself be a space, so the space that parts them is not the first character.
        cut = text.find(" ", 1)
        left, right = text[:cut], text[cut + 1 :]
        if cut < 0 or left not in ids or right not in ids or left + right not in ids:
            raise file.fault(f"merge {len(merges)} ({printable(text)!r}) joins no two tokens")
        merges.append((left, right))
    return merges


def implied_merges(
    file: GgufFile, vocabulary: Vocabulary, order: Literal["scores", "places"]
) -> list[tuple[str, str]]:
    """Every way to join two tokens into a third, the preferred result first.

    SentencePiece keeps no merges: it joins whichever neighbours make the best token, which is
    the best-scored one or, where the scores do not tell, the first in the list.
    """
    count = len(vocabulary.tokens)
    scores = _scores(file, count) if order == "scores" else [-float(i) for i in range(count)]
    usable = {
        token: i
        for token, i in vocabulary.ids.items()
        if vocabulary.kinds[i] in (TokenKind.NORMAL, TokenKind.USER_DEFINED)
    }
    ranked: list[tuple[float, int, int, int]] = []
    for token, joined in usable.items():
        for cut in range(1, len(token)):
            left, right = usable.get(token[:cut]), usable.get(token[cut:])
            if left is not None and right is not None:
                ranked.append((-scores[joined], joined, left, right))
    tokens = vocabulary.tokens
    return [(tokens[left], tokens[right]) for _, _, left, right in sorted(ranked)]


def _scores(file: GgufFile, count: int) -> list[float]:
    scores = file.items(_PREFIX + "scores", float)
    if scores is None or len(scores) != count:
        raise file.fault(f"holds {count} tokens and {0 if scores is None else len(scores)} scores")
    return scores
