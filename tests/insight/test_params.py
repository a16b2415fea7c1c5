"""Counts of parameters: known figures, and transformers' own count for every family."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmcli.insight.params import Params, count_parts
from llmcli.insight.presets import preset_facts
from llmcli.spec import count_parameters, parameter_shapes
from tests.insight.configs import EVERY_ROW, row_facts
from tests.oracle import Row, validation


def _part(found: Params, group: str, part: str) -> int:
    (count,) = [one.count for one in found.parts if (one.group, one.part) == (group, part)]
    return count


def test_gpt3_has_the_known_figures() -> None:
    found = count_parts(preset_facts("gpt3-175b"))
    for part in ("query", "key", "value", "output"):
        assert _part(found, "attention", part) == 14_495_514_624
    for part in ("up", "down"):
        assert _part(found, "MLP", part) == 57_982_058_496
    assert found.groups["embedding"] == found.groups["unembedding"] == 617_558_016
    assert found.groups["MLP"] == 115_964_116_992
    assert found.matrices == 175_181_291_520
    assert found.total == found.matrices + 25_165_824 + 10_616_832 + 4_743_168


@pytest.mark.parametrize(
    ("preset", "total"),
    [
        ("gpt2", 124_439_808),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3-8b", 8_030_261_248),
        ("phi-3-mini", 3_821_079_552),
    ],
)
def test_presets_have_the_published_totals(preset: str, total: int) -> None:
    assert count_parts(preset_facts(preset)).total == total


def test_the_first_transformer_has_about_65_million_in_all() -> None:
    facts = preset_facts("transformer-base")
    whole = count_parts(facts).total
    assert facts.note is not None
    whole += sum(int(word.replace(",", "")) for word in facts.note.split() if "," in word[:-1])
    # arXiv 1706.03762, table 3; torch's own layers count the same but for biases of attention.
    model = torch.nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)
    biases = 18 * 4 * 512 + 2 * 2 * 512  # of 18 attentions, and two final norms
    assert whole == 37000 * 512 + sum(one.numel() for one in model.parameters()) - biases
    assert 62e6 < whole < 66e6


@EVERY_ROW
def test_totals_are_those_of_transformers(row: Row) -> None:
    found = count_parts(row_facts(row))
    with validation(on=row.validated), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(row.config())
    # Routers' corrections decide what is computed, but transformers holds them as buffers.
    corrections = sum(
        buffer.numel() for name, buffer in model.named_buffers() if "score_correction" in name
    )
    assert found.total == model.num_parameters() + corrections


@EVERY_ROW
def test_parts_add_up(row: Row) -> None:
    facts = row_facts(row)
    found = count_parts(facts)
    assert found.total == count_parameters(facts.spec) == sum(part.count for part in found.parts)
    assert not [part for part in found.parts if part.part.endswith("other")]
    layered = sum(kind.number * kind.parameters for kind in found.kinds)
    names = parameter_shapes(facts.spec)
    outside = sum(
        torch.Size(shape).numel() for name, shape in names.items() if not name.startswith("layers.")
    )
    assert layered + outside == found.total
    heads = [part for part in found.parts if part.part == "unembedding"]
    assert bool(heads) is not facts.spec.tie_embeddings
    experts = facts.spec.experts
    assert (found.active < found.total) is (experts is not None and experts.top_k < experts.count)
