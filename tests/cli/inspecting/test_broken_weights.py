"""NaN in the weights: every view that would compute with it refuses, and names where it lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.cli.conftest import Invoke

STORIES = Path(__file__).parents[3] / "weights" / "stories260k"
PROMPT = "Once upon a time"
MLP = "model.layers.2.mlp.up_proj.weight"
HEAD = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In it, a checkpoint for each tensor that holds one NaN."""
    root = tmp_path_factory.mktemp("broken")
    for name in (MLP, HEAD):
        tensors = load_file(STORIES / "model.safetensors")
        tensors[name][-1, -1] = float("nan")
        shutil.copytree(STORIES, root / name)
        save_file(tensors, root / name / "model.safetensors")
    return root


@pytest.mark.parametrize(
    ("name", "where"), [(MLP, "layers.2.mlp.up_proj"), (HEAD, "lm_head")], ids=["mlp", "head"]
)
@pytest.mark.parametrize(
    "view",
    [
        ["trace"],
        ["trace", "--step", "1"],
        ["attention"],
        ["attention", "--layer", "1", "--head", "2"],
        ["lens"],
        ["attribution"],
        ["neurons"],
        ["neurons", "--layer", "0"],
        ["next"],
        ["ablate", "--sweep", "layers"],
        ["ablate", "--zero-head", "0.1"],
    ],
    ids=" ".join,
)
def test_views_of_a_prompt(
    invoke: Invoke, broken: Path, view: list[str], name: str, where: str
) -> None:
    done = invoke("inspect-layers", "-m", str(broken / name), "--view", *view, PROMPT)
    assert (done.code, done.out) == (1, "")
    assert f"not finite in float32; the first bad values come from {where}" in done.err


@pytest.mark.parametrize(
    ("name", "view", "what"),
    [
        (HEAD, ["neighbors", "--token", "#5"], "embedding holds NaN or infinity in 1 of its 512"),
        (HEAD, ["analogy", *["--token", "#5"] * 3], "embedding holds NaN or infinity"),
        (HEAD, ["superposition"], "embedding holds NaN or infinity in 1 of its 512 rows"),
        (MLP, ["superposition", "--what", "mlp-in", "--layer", "2"], "MLP's first matrix holds"),
    ],
)
def test_views_of_directions(
    invoke: Invoke, broken: Path, name: str, view: list[str], what: str
) -> None:
    done = invoke("inspect-layers", "-m", str(broken / name), "--view", *view)
    assert (done.code, done.out) == (1, "")
    assert what in done.err
    assert "--view check --values" in done.err


def test_a_part_that_keeps_the_nan_out_still_has_no_base(invoke: Invoke, broken: Path) -> None:
    """The ablation of the broken MLP would be finite, but there is nothing to compare it with."""
    args = ("inspect-layers", "-m", str(broken / MLP), "--view", "ablate", "--zero-mlp", "2")
    assert invoke(*args, PROMPT).code == 1


def test_sound_parts_can_still_be_looked_at(invoke: Invoke, broken: Path) -> None:
    done = invoke("inspect-layers", "-m", str(broken / MLP), "--view", "superposition")
    assert done.code == 0
