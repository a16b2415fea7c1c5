"""The names of the stages that logits go through before a token is chosen, in order."""

from __future__ import annotations

from collections.abc import Collection

from llmcli.generation.options import StrategyOptions
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Surroundings, make_processors
from llmcli.generation.reads import StrategyName, reads


def stage_names(
    name: StrategyName,
    params: SamplingParams,
    options: StrategyOptions,
    *,
    stop_ids: Collection[int] = (),
) -> tuple[str, ...]:
    """What a strategy puts before its chain, the chain, and mirostat, as far as switched on."""
    read = reads(name, sampling=options.sampling)
    drawing = "temperature" in read and params.temperature > 0
    chain = make_processors(
        params,
        sampling=drawing,
        surroundings=Surroundings(
            stop_ids=stop_ids,
            line_break_ids=options.line_break_ids,
            constraint=options.constraint if "constraint" in read else None,
        ),
    )
    before = ["dola"] if name == "dola" else []
    if "guidance_scale" in read and options.guidance_scale != 1:
        before.append("guidance")
    after = ["mirostat"] if drawing and "mirostat_tau" in read and params.mirostat_tau else []
    return (*before, *(stage for stage, _ in chain), *after)
