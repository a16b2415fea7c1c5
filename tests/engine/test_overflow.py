"""Past the end of the context: fluent on a real model, flat in memory, refused where wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llmcli.engine.engine import Engine
from llmcli.engine.flags import Flags
from llmcli.engine.generation import Generation
from llmcli.engine.options import GenerateOptions, LoadOptions
from llmcli.engine.prompt import PromptRequest
from llmcli.errors import GenerationError, UnsupportedError, UsageError
from llmcli.generation.limit import Limit
from tests.tiny import tiny_spec, tiny_tensors, write_tiny

STORIES = Path(__file__).parents[2] / "weights" / "stories260k"
CONTEXT, NEW = 512, 1200


@pytest.fixture(scope="module")
def stories() -> Engine:
    return Engine.load(STORIES, LoadOptions(device="cpu"))


def _start(engine: Engine, new: int, **how: Any) -> Generation:
    options = {key: how.pop(key) for key in ("max_context", "cache") if key in how}
    prompt = engine.prompt(
        PromptRequest(text="Once upon a time"), max_context=options.get("max_context")
    )
    flags = Flags(max_new_tokens=new, **how)
    given = GenerateOptions(flags=flags, overflow="shift", ignore_eos=True, **options)
    return engine.generate(prompt, given)


def _mean_logprob(engine: Engine, ids: list[int]) -> float:
    """Of ids in windows of their own, the first of each left out."""
    found = []
    for start in range(0, len(ids) - 99, 100):
        window = torch.tensor([ids[start : start + 100]])
        with torch.inference_mode():
            logprobs = engine.loaded.decoder(window, last_only=False)[0].log_softmax(-1)
        found.append(logprobs[19:-1].gather(-1, window[0, 20:, None]).mean())
    return float(torch.stack(found).mean())


def test_fluent_past_the_context_and_flat_in_memory(stories: Engine) -> None:
    made = _start(stories, NEW, strategy="sample", temperature=0.8, seed=3)
    sizes = set()
    for _ in made:
        cache = made._stepper.cache
        assert cache is not None
        assert cache.length <= CONTEXT
        if cache.dropped:
            sizes.add(cache.nbytes)
    assert len(made.ids) == NEW
    assert made.finish_reason == "length"
    assert made.stats.dropped_tokens >= NEW + 5 - 1 - CONTEXT
    assert len(sizes) == 1
    head, tail = _mean_logprob(stories, made.ids[:300]), _mean_logprob(stories, made.ids[-300:])
    assert tail > head - 0.3
    # The model's own logprobs in the shifting context say the same.
    own = [token.logprob for token in made.tokens]
    assert sum(own[-300:]) / 300 > sum(own[:300]) / 300 - 0.3


def test_within_the_context_nothing_is_other(stories: Engine) -> None:
    shifting = _start(stories, 40)
    list(shifting)
    prompt = stories.prompt(PromptRequest(text="Once upon a time"))
    plain = stories.generate(prompt, GenerateOptions(flags=Flags(max_new_tokens=40)))
    list(plain)
    assert shifting.ids == plain.ids
    assert shifting.stats.dropped_tokens == 0


@pytest.mark.parametrize("cache", ["growing", "static"])
@pytest.mark.parametrize("strategy", ["greedy", "dola"])
def test_every_cache_says_the_same(stories: Engine, cache: Any, strategy: Any) -> None:
    runs = [
        _start(stories, 60, strategy=strategy, max_context=32, cache=kind)
        for kind in (cache, "growing")
    ]
    for run in runs:
        list(run)
    assert runs[0].ids == runs[1].ids
    assert runs[0].stats.dropped_tokens > 30


def test_stop_ends_at_the_cap(stories: Engine) -> None:
    prompt = stories.prompt(PromptRequest(text="Once upon a time"), max_context=9)
    run = stories.generate(prompt, GenerateOptions(flags=Flags(max_new_tokens=50), max_context=9))
    list(run)
    assert (len(run.ids), run.finish_reason) == (9 - len(prompt.ids), "context")


def test_a_prompt_beyond_the_cap(stories: Engine) -> None:
    with pytest.raises(GenerationError, match="the prompt has 5 tokens; the context holds 5"):
        stories.prompt(PromptRequest(text="Once upon a time"), max_context=5)


def test_a_session_goes_on_after_a_shift(stories: Engine) -> None:
    """A text that continues all that was said costs only what is new; any other begins anew."""
    prompt = stories.prompt(PromptRequest(text="Once upon a time"))
    session = stories.session()
    options = GenerateOptions(
        flags=Flags(max_new_tokens=30), max_context=24, overflow="shift", ignore_eos=True
    )
    run = stories.generate(prompt, options, session=session)
    list(run)
    whole = [*prompt.ids, *run.ids]
    assert session.shared([*whole, 7]) == len(whole) - 1
    session.stepper([*whole, 7], limit=Limit(24))
    assert session.cache is not None
    assert session.cache.dropped > 0
    session.stepper([*whole[:-3], 7], limit=Limit(24))
    assert session.cache.length == 0


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"max_context": 600}, "--max-context is 600; this model's context holds 512"),
        ({"max_context": 7}, "context holds 7 tokens; --overflow shift needs at least 8, as 4 at"),
        ({"cache": "none"}, "--overflow shift does not go with --no-kv-cache"),
        ({"cache": "quantized-8"}, "does not go with --cache quantized-8"),
        ({"strategy": "beam"}, "strategy beam does not go with --overflow shift"),
        ({"strategy": "prompt-lookup"}, "strategy prompt-lookup does not go"),
        ({"strategy": "contrastive"}, "strategy contrastive does not go"),
    ],
)
def test_refusals(stories: Engine, how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _start(stories, 5, **how)


def test_what_to_use_in_place_of_packed_keys_is_there_on_every_device(stories: Engine) -> None:
    with pytest.raises(UsageError) as caught:
        _start(stories, 5, cache="quantized-8")
    assert caught.value.hint == "use --cache growing or static"


def _tiny(folder: Path, **config: Any) -> Engine:
    changed = {"vocab_size": 512, **config}
    spec = tiny_spec(**changed)
    write_tiny(folder, tiny_tensors(spec), config=changed)
    (folder / "tokenizer.json").write_bytes((STORIES / "tokenizer.json").read_bytes())
    return Engine.load(folder, LoadOptions(device="cpu"))


def test_length_dependent_tables_are_refused(tmp_path: Path) -> None:
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    engine = _tiny(tmp_path, rope_scaling=scaling)
    with pytest.raises(UnsupportedError, match="rotary tables change with the length"):
        _start(engine, 5)


def test_a_window_that_reaches_what_goes_is_refused(tmp_path: Path) -> None:
    engine = _tiny(tmp_path, model_type="mistral", sliding_window=30)
    with pytest.raises(UsageError, match="this model's layers look 30 back"):
        _start(engine, 5, max_context=36)
    for fits in (30, 60):
        run = _start(engine, 80, max_context=fits)
        list(run)
        assert run.stats.dropped_tokens > 0
