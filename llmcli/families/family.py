"""What a family is: how to read its config.json and how its tensors are named.

Must not know torch, nor any single family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rules import Rule
from llmcli.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class Family:
    """One row of the registry.

    `model_types` are the values of config.json's `model_type` that it answers for; `prefixes`
    the module prefixes under which its files store the decoder, the commonest first.
    """

    name: str
    model_types: tuple[str, ...]
    prefixes: tuple[str, ...]
    read: Callable[[ConfigReader], DecoderSpec]
    rules: Callable[[DecoderSpec], list[Rule]]
