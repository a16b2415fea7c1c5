"""The decoder as torch modules: one declarative decoder for every spec.

Must not know files, families, tokenizers, printing or environment variables.

Shape letters: B batch rows, T new tokens, S keys, H heads, K kv heads, D head_dim, C hidden,
F intermediate, V vocab.
"""

from llmcli.model.decoder import Decoder

__all__ = ["Decoder"]
