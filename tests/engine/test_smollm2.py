"""The real instruct model, from the package index: published ids, raw and chat, float32.

The goldens come from transformers on the same dequantised weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmcli.acquire.resolve import Resolved
from llmcli.chat.conversation import Conversation
from llmcli.chat.events import Begun
from llmcli.engine.chatting import Chat, ChatOptions
from llmcli.engine.engine import Engine
from llmcli.engine.flags import Flags
from llmcli.engine.generation import Generation
from llmcli.engine.options import GenerateOptions, LoadOptions
from llmcli.engine.prompt import PromptRequest
from llmcli.engine.quality import Quality, built_in_text
from tests.acquire.smollm2 import pulled_smollm2

GOLDENS = Path(__file__).parents[1] / "goldens" / "smollm2-135m-instruct.json"
CASES: list[dict[str, Any]] = json.loads(GOLDENS.read_text())["cases"]

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"][:12])


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(pulled_smollm2(), LoadOptions(device="cpu", dtype="float32"))


def _generate(
    engine: Engine, case: dict[str, Any], new: int | None = None, **options: Any
) -> Generation:
    mode = "raw" if case["kind"] == "raw" else "auto"
    prompt = engine.prompt(PromptRequest(text=case["prompt"], mode=mode))
    assert list(prompt.ids) == case["prompt_ids"]
    flags = Flags(max_new_tokens=len(case["new_ids"]) if new is None else new)
    generation = engine.generate(prompt, GenerateOptions(flags=flags, **options))
    assert "".join(generation) == generation.text
    return generation


@cases
def test_published_ids_and_text(engine: Engine, case: dict[str, Any]) -> None:
    generation = _generate(engine, case, cache="growing")
    assert generation.ids == case["new_ids"]
    assert generation.text == case["text"].removesuffix("<|im_end|>")
    ended = case["text"].endswith("<|im_end|>")
    assert generation.finish_reason == ("stop" if ended else "length")


@cases
def test_without_a_cache_it_begins_the_same(engine: Engine, case: dict[str, Any]) -> None:
    """Each step is a prefill of all ids; four of them show what a hundred would."""
    assert _generate(engine, case, 4, cache="none").ids == case["new_ids"][:4]


@cases
def test_published_logprobs_of_the_first_step(engine: Engine, case: dict[str, Any]) -> None:
    top = _generate(engine, case, 1, top_logprobs=5).tokens[0].top
    assert [id_ for id_, _ in top] == case["top5_ids"]
    # The goldens are of the float32 values, the import keeps float16: a rounding of 5e-4.
    assert [logprob for _, logprob in top] == pytest.approx(case["top5_logprobs"], abs=1e-2)


def test_int8_lies_close_to_float32() -> None:
    """A mean KL divergence of 0.75e-3 nats a token on 293 tokens; all 716 give 0.78e-3."""
    found = Resolved(pulled_smollm2(), "smollm2", "folder")
    measured = Quality(found, built_in_text()[:1200]).measure("int8")
    assert measured.divergence.tokens == 293
    assert 1e-4 < measured.divergence.kl_mean < 1e-3
    assert measured.divergence.perplexity == pytest.approx(
        measured.divergence.reference_perplexity, rel=0.02
    )


def test_published_chat(engine: Engine) -> None:
    """Three turns, the last with a control token in its message, each prompt and reply by id."""
    golden = json.loads((GOLDENS.parent / "smollm2-chat-ids.json").read_text())
    flags = Flags(strategy="greedy", max_new_tokens=24)
    chat = Chat(
        engine,
        Conversation(Begun(time="", model="smollm2", system=golden["system"])),
        ChatOptions(generate=GenerateOptions(flags=flags)),
        model="smollm2",
    )
    held = 0
    for turn in golden["turns"]:
        reply = chat.run(chat.prepare(turn["user"]))
        assert "".join(reply) == turn["reply"]
        done = chat.commit(reply)
        assert list(done.generation.prompt.ids) == turn["prompt_ids"]
        assert done.generation.ids == turn["new_ids"]
        assert (done.kept, done.prefilled) == (held, len(turn["prompt_ids"]) - held)
        held = len(turn["prompt_ids"]) + len(turn["new_ids"]) - 1
