"""What is asked of an engine: how weights are loaded, and how one generation runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from llmcli.cache import CacheKind
from llmcli.engine.accelerate import KernelChoice
from llmcli.engine.device import DtypeName
from llmcli.engine.flags import Flags
from llmcli.engine.overflow import Overflow
from llmcli.engine.prompt import Prompt
from llmcli.generation.limit import Limit
from llmcli.spec import PackingKind
from llmcli.text.grammar import Grammar

if TYPE_CHECKING:
    from llmcli.engine.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Where and how the weights are to live; `threads` None leaves torch's own choice.

    `template` is a chat template's file to use in place of the checkpoint's own.
    """

    device: str = "auto"
    dtype: DtypeName = "auto"
    threads: int | None = None
    template: Path | None = None
    kernels: KernelChoice = "auto"
    quantize: PackingKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """How one generation runs, apart from the prompt.

    `max_context` caps the context below the model's own. At its end, `overflow` stop ends the
    run; shift drops tokens and goes on: those that `limit` says, or a quarter of them, the first
    few aside. `explain` is how many candidates are kept of every stage of every choice; 0 keeps
    nothing.
    `negative` is the negative prompt, and `draft` the draft model, that flags ask for.
    `on_step(done, budget)` is called after each step of a strategy whose text comes at the end.
    `stop_ids` None are the checkpoint's own. `show_special` shows special tokens in the text, and
    `show_thought_marks` those alone that stand around reasoning.
    """

    flags: Flags = field(default_factory=Flags)
    cache: CacheKind | Literal["auto"] = "auto"
    stop_strings: Sequence[str] = ()
    stop_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    show_special: bool = False
    show_thought_marks: bool = False
    top_logprobs: int = 0
    explain: int = 0
    grammar: Grammar | None = None
    negative: Prompt | None = None
    draft: Engine | None = None
    on_step: Callable[[int, int], None] | None = None
    max_context: int | None = None
    overflow: Overflow = "stop"
    limit: Limit | None = None
