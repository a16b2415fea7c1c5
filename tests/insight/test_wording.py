"""A decoder's kinds in words."""

from __future__ import annotations

from typing import Any

import pytest

from llmcli.insight import wording
from llmcli.insight.facts import config_facts
from llmcli.insight.presets import preset_facts
from llmcli.insight.summary import summarise
from llmcli.spec import DecoderSpec
from tests.families import known_configs
from tests.insight.configs import EVERY_ROW, row_facts
from tests.oracle import Row


def _spec(name: str) -> DecoderSpec:
    config: dict[str, Any] = getattr(known_configs, name)
    return config_facts(name, config).spec


@pytest.mark.parametrize(
    ("name", "attention", "windows"),
    [
        ("LLAMA_3_1_8B", "grouped-query (GQA), 32 heads of 128, 8", "every layer sees all"),
        ("PHI_3_MINI_4K", "multi-head (MHA), 32 heads of 96", "every layer slides over 2,047"),
        ("GEMMA_3_1B", "multi-query (MQA), 4 heads of 256", "5 of 6 layers slide over 512, others"),
        ("GEMMA_2_2B", "grouped-query (GQA), 8 heads", "1 of 2 layers slide over 4,096, others"),
    ],
)
def test_attention(name: str, attention: str, windows: str) -> None:
    spec = _spec(name)
    assert wording.attention_kind(spec).startswith(attention)
    assert wording.window_pattern(spec).startswith(windows)


def test_positions() -> None:
    assert wording.positions(preset_facts("gpt2").spec) == ["learned table of 1,024"]
    assert wording.positions(preset_facts("llama-3-8b").spec) == ["rotary, theta 500,000"]
    assert wording.positions(preset_facts("transformer-base").spec)[0].startswith("sinusoidal")
    assert wording.positions(_spec("GEMMA_3_1B")) == [
        "rotary, theta 10,000 in 22 of 26 layers",
        "rotary, theta 1,000,000 in 4 of 26 layers",
    ]
    (llama,) = wording.positions(_spec("LLAMA_3_1_8B"))
    assert llama == "rotary, theta 500,000, Llama 3 scaling by 8 from 8,192"


def _row(name: str) -> Row:
    from tests.families.rows import ROWS

    return next(row for row in ROWS if row.name == name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deepseek_v3-plain", "latent (MLA), 4 heads of one latent of 16"),
        ("deepseek_v3-plain", "3 of 8 a token"),
        ("deepseek_v3-plain", "YaRN scaling by 4"),
        ("qwen3_next-plain", "gated delta rule in 1 of 2 layers"),
        ("qwen3_next-plain", "every attention layer sees all"),
        ("bloom-plain", "ALiBi"),
        ("gpt_oss-plain", "attention sinks"),
        ("gemma2-plain", "scores capped at"),
        ("falcon-7b", "multi-query (MQA)"),
        ("falcon-7b", "LayerNorm before attention and MLP, which share it and run side by side"),
        ("phi3-longrope-long", "LongRoPE"),
        ("llama-rope-dynamic", "dynamic scaling"),
        ("llama-rope-linear", "linear scaling"),
        ("smollm3-list", "none in"),
        ("gptj-plain", "interleaved pairs"),
        ("opt-350m", "embedding 32 wide, projected"),
        ("granite-plain", "residual parts times"),
        ("cohere-plain", "logits times"),
    ],
)
def test_rarer_facts_are_told(name: str, words: str) -> None:
    found = summarise(row_facts(_row(name)))
    assert any(words in text for text in _texts(found)), found


def _texts(found: Any) -> list[str]:
    values = [getattr(found, name) for name in found.__dataclass_fields__]
    return [text for one in values for text in (one if isinstance(one, list) else [str(one)])]


@EVERY_ROW
def test_every_family_has_words_for_everything(row: Row) -> None:
    found = summarise(row_facts(row))
    assert all(text for text in (found.attention, found.windows, found.norm, found.mlp))
    assert found.positions
