"""Logits processors and the one fixed order in which they run.

Must not know text, tokenizers or strategies.
"""

from llmcli.generation.processors.base import Processor
from llmcli.generation.processors.chain import Surroundings, make_processors

__all__ = ["Processor", "Surroundings", "make_processors"]
