"""Every strategy in every mode of its own, ready to run on one decoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llmcli.cache import CacheKind, make_cache
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import (
    Strategy,
    StrategyName,
    StrategyOptions,
    make_strategy,
)
from llmcli.generation.token import Token
from llmcli.model import Decoder


@dataclass(frozen=True, slots=True)
class Case:
    name: StrategyName
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join((self.name, *self.options))

    def make(
        self,
        decoder: Decoder,
        kind: CacheKind = "growing",
        params: SamplingParams | None = None,
        **options: Any,
    ) -> Strategy:
        """The strategy; a draft model, where it needs one, is the decoder itself."""
        if self.name == "speculative":
            options = {"draft": Stepper(decoder, make_cache(kind, decoder.spec)), **options}
        merged = StrategyOptions(**{**self.options, **options})
        return make_strategy(self.name, params or SamplingParams(seed=5), merged)

    def run(
        self,
        decoder: Decoder,
        prompt: list[int],
        kind: CacheKind = "growing",
        *,
        stop: StopRule,
        params: SamplingParams | None = None,
        **options: Any,
    ) -> list[Token]:
        stepper = Stepper(decoder, make_cache(kind, decoder.spec))
        tokens = list(self.make(decoder, kind, params, **options).run(stepper, prompt, stop))
        # Nothing is computed that the budget has no use for.
        assert stepper.ids.shape[1] <= len(prompt) + stop.budget
        return tokens


_GUIDED = {"guidance_scale": 2.0, "negative_ids": (4, 5)}

CASES = (
    Case("greedy"),
    Case("greedy", _GUIDED),
    Case("sample"),
    Case("sample", _GUIDED),
    Case("beam", {"num_beams": 3}),
    Case("beam", {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5}),
    Case("contrastive"),
    Case("dola", {"dola_layers": (0, 1)}),
    Case("dola", {"sampling": True}),
    Case("prompt-lookup"),
    Case("prompt-lookup", {"sampling": True}),
    Case("speculative", {"num_draft_tokens": 3}),
    Case("speculative", {"sampling": True}),
)
