"""Published outputs of real checkpoints: stories260k's four texts, tiny-random-gpt2's logits."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from llmcli.cache import CacheKind, make_cache
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import Loaded, load_decoder
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import make_strategy
from llmcli.model import Decoder
from tests.oracle import assert_close

TESTS = Path(__file__).parents[1]
STORIES = TESTS.parent / "weights" / "stories260k"
GPT2 = TESTS / "data" / "tiny-random-gpt2"


def _golden(name: str) -> Any:
    return json.loads((TESTS / "goldens" / name).read_text(encoding="utf-8"))


TEXTS = _golden("stories260k.json")
PUBLISHED = _golden("tiny-random-gpt2.json")

kinds = pytest.mark.parametrize("kind", ["growing", "none"])


@cache
def _load(folder: Path) -> Loaded:
    return load_decoder(ModelDir.open(folder), device="cpu", dtype="float32")


@cache
def _theirs(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def _stepper(folder: Path, kind: CacheKind) -> Stepper:
    decoder = _load(folder).decoder
    return Stepper(decoder, make_cache(kind, decoder.spec))


def _greedy(stepper: Stepper, prompt: list[int], new: int) -> list[int]:
    stop = StopRule(frozenset(), new, stepper.decoder.spec.max_positions - len(prompt))
    return [one.id for one in make_strategy("greedy", SamplingParams()).run(stepper, prompt, stop)]


@cache
def _story(prompt: tuple[int, ...], kind: CacheKind) -> list[int]:
    """The longest published continuation of a prompt; a shorter one is its beginning."""
    new = max(case["new_tokens"] for case in TEXTS if tuple(case["prompt_ids"]) == prompt)
    return _greedy(_stepper(STORIES, kind), list(prompt), new)


def test_published_texts_are_four() -> None:
    assert [(len(case["prompt"]), case["new_tokens"]) for case in TEXTS] == [
        (0, 200),
        (0, 256),
        (16, 60),
        (3, 57),
    ]


@kinds
@pytest.mark.parametrize("case", TEXTS, ids=lambda case: f"{case['prompt']}-{case['new_tokens']}")
def test_stories_text_byte_for_byte(case: dict[str, Any], kind: CacheKind) -> None:
    tokenizer = Tokenizer.from_file(str(STORIES / "tokenizer.json"))
    prompt = tokenizer.encode(case["prompt"]).ids
    assert prompt == case["prompt_ids"]
    ids = prompt + _story(tuple(prompt), kind)[: case["new_tokens"]]
    assert ids == case["ids"]
    assert tokenizer.decode(ids).encode() == case["text"].encode()


def _stories_logits(decoder: Decoder) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = decoder(torch.tensor([TEXTS[0]["ids"]]), last_only=False)
    return logits


def test_stories_logits_are_those_of_transformers_and_see_a_wrong_eps() -> None:
    """The texts survive an epsilon of 1e-6 or 1e-4; the logits do not."""
    ids = torch.tensor([TEXTS[0]["ids"]])
    with torch.inference_mode():
        theirs = _theirs(STORIES)(ids).logits
    loaded = _load(STORIES)
    assert_close(_stories_logits(loaded.decoder), theirs)
    parameters = dict(loaded.decoder.named_parameters())
    for eps in (1e-6, 2e-5):
        wrong = Decoder.filled(replace(loaded.spec, norm_eps=eps), parameters.items())
        with pytest.raises(AssertionError, match="logits differ"):
            assert_close(_stories_logits(wrong), theirs)


@kinds
def test_gpt2_published_tokens(kind: CacheKind) -> None:
    for prompt, sequence in zip(PUBLISHED["input_ids"], PUBLISHED["greedy_sequences"], strict=True):
        new = PUBLISHED["greedy_max_length"] - len(prompt)
        assert prompt + _greedy(_stepper(GPT2, kind), prompt, new) == sequence


@kinds
def test_gpt2_published_logits(kind: CacheKind) -> None:
    at_prompt, at_second = [], []
    for prompt, sequence in zip(PUBLISHED["input_ids"], PUBLISHED["greedy_sequences"], strict=True):
        with torch.inference_mode():
            at_prompt.append(_load(GPT2).decoder(torch.tensor([prompt]), last_only=False))
        stepper = _stepper(GPT2, kind)
        stepper.feed(torch.tensor([prompt]))
        at_second.append(stepper.feed(torch.tensor([sequence[4:5]])))
    for logits, name in (
        (at_prompt, "prompt_logits_flat_every_200"),
        (at_second, "second_new_token_logits_flat_every_200"),
    ):
        published = torch.tensor(PUBLISHED[name])
        got = torch.cat(logits).flatten()[::200]
        assert torch.allclose(got, published, rtol=0, atol=PUBLISHED["tolerance"]), name


def test_gpt2_logits_are_those_of_transformers() -> None:
    ids = torch.tensor([PUBLISHED["greedy_sequences"][1] * 12])
    with torch.inference_mode():
        theirs = _theirs(GPT2)(ids).logits
        assert_close(_load(GPT2).decoder(ids, last_only=False), theirs)
