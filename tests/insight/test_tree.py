"""The tree: every parameter once, equal layers grouped, stored names as the file has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from llmcli.checkpoint.directory import ModelDir
from llmcli.insight.facts import Source, folder_facts
from llmcli.insight.ranges import written
from llmcli.insight.tree import Node, build_tree, cut_to, search
from llmcli.spec import count_parameters
from tests.families.known_configs import GEMMA_3_1B
from tests.insight.configs import EVERY_ROW, row_facts
from tests.oracle import Row
from tests.tiny import write_tiny


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _numbers(node: Node) -> int:
    own = sum(torch.Size(weight.shape).numel() for weight in node.weights)
    return node.repeat * (own + sum(map(_numbers, node.children)))


@EVERY_ROW
def test_every_parameter_is_there_once(row: Row) -> None:
    facts = row_facts(row)
    root = build_tree(facts).root
    assert _numbers(root) == root.parameters == count_parameters(facts.spec)
    groups = [node for node in _nodes(root) if node.kind == "Block"]
    assert sum(node.repeat for node in groups) == facts.spec.num_layers
    assert len(groups) == len(set(facts.spec.layers))


@EVERY_ROW
def test_one_layer_by_itself(row: Row) -> None:
    facts = row_facts(row)
    last = facts.spec.num_layers - 1
    (block,) = [node for node in _nodes(build_tree(facts, layer=last).root) if node.kind == "Block"]
    assert (block.name, block.path, block.repeat) == (str(last), f"layers.{last}", 1)


def test_alternating_layers_are_groups_of_their_own() -> None:
    from llmcli.insight.facts import config_facts

    root = build_tree(config_facts("gemma", GEMMA_3_1B)).root
    groups = [(node.name, node.repeat) for node in _nodes(root) if node.kind == "Block"]
    assert groups == [("0-4, 6-10, 12-16, 18-22, 24-25", 22), ("5-23 by 6", 4)]


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1), "0-1"),
        ((0, 2), "0, 2"),
        ((0, 2, 4, 6), "0-6 by 2"),
        ((0, 1, 2, 4, 5, 6), "0-2, 4-6"),
        ((1, 3, 4), "1, 3-4"),
        ((2, 5, 8, 9, 10), "2-8 by 3, 9-10"),
    ],
)
def test_ranges(indices: tuple[int, ...], text: str) -> None:
    assert written(indices) == text


def test_stored_names(tmp_path: Path) -> None:
    facts = folder_facts("tiny", write_tiny(tmp_path), Source())
    found = {node.path: node for node in _nodes(build_tree(facts).root)}
    (weight,) = found["layers.0.attn.q_proj"].weights
    assert [one.name for one in weight.stored] == ["model.layers.{i}.self_attn.q_proj.weight"]
    (only,) = {node.path: node for node in _nodes(build_tree(facts, layer=1).root)}[
        "layers.1.attn.q_proj"
    ].weights
    assert only.stored == weight.stored


def test_depth_and_search() -> None:
    from llmcli.insight.presets import preset_facts

    root = build_tree(preset_facts("gpt2")).root
    assert all(not node.children for node in cut_to(root, 0).children)
    assert [node.name for node in _nodes(cut_to(root, 1))][1:] == [
        node.name for node in root.children
    ]
    found = search(root, "Q_PROJ")
    assert found is not None
    assert [node.path for node in _nodes(found)][-1] == "layers.0.attn.q_proj"
    assert search(root, "nothing of the kind") is None


def test_a_file_that_does_not_fit_is_still_shown(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    save_file({"a\x1b[2J\n": torch.zeros(2)}, tmp_path / "model.safetensors")
    facts = folder_facts("tiny", ModelDir.open(tmp_path), Source())
    tree = build_tree(facts)
    assert not tree.stored
    assert _numbers(tree.root) == count_parameters(facts.spec)
    assert "do not fit" in tree.warnings[0]
    assert "\x1b" not in tree.warnings[0]
