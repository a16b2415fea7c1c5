"""What packing costs: the report against transformers, and worse packings against better ones."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from llmcli.acquire.progress import Silent
from llmcli.acquire.resolve import Resolved, resolve
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import load_decoder
from llmcli.engine.quality import Measured, Quality, built_in_text
from llmcli.engine.quantizing import quantize
from llmcli.errors import CheckpointError, UsageError
from llmcli.model import closest, packed
from llmcli.model.packed import pack
from llmcli.spec import PackingKind
from tests.puppet import make_puppet
from tests.tiny import tiny_tensors, write_tiny

KINDS: list[PackingKind] = ["int8", "int4"]


@pytest.fixture(scope="module")
def stories() -> Resolved:
    return resolve("stories260k", progress=Silent())


@pytest.fixture(scope="module")
def quality(stories: Resolved) -> Quality:
    return Quality(stories, built_in_text())


@pytest.fixture(scope="module")
def int8(quality: Quality) -> Measured:
    return quality.measure("int8")


def _logprobs(model: torch.nn.Module, quality: Quality) -> Tensor:
    """Float64 [N,V], of every id that is predicted."""
    found = []
    with torch.inference_mode():
        for window in quality.windows:
            logits = model(torch.tensor([window.ids])).logits[0, window.lead - 1 : -1]
            found.append(logits.double().log_softmax(-1))
    return torch.cat(found)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_transformers_logits_give(
    stories: Resolved, quality: Quality, kind: PackingKind
) -> None:
    model = AutoModelForCausalLM.from_pretrained(stories.path, dtype=torch.float32).eval()
    exact = _logprobs(model, quality)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            held = "int8" if "embed" in name else kind
            with torch.no_grad():
                parameter.copy_(pack(parameter, held).unpacked())
    rounded = _logprobs(model, quality)
    ids = torch.tensor([id_ for one in quality.windows for id_ in one.ids[one.lead :]])
    kl = (exact.exp() * (exact - rounded)).sum(-1)
    found = quality.measure(kind).divergence
    assert found.tokens == len(kl) > 1000
    assert found.kl_mean == pytest.approx(kl.mean().item(), rel=1e-3)
    assert found.kl_median == pytest.approx(kl.median().item(), rel=1e-2)
    assert found.kl_max == pytest.approx(kl.max().item(), rel=1e-2)
    for perplexity, logprobs in ((found.reference_perplexity, exact), (found.perplexity, rounded)):
        surprise = -logprobs.gather(-1, ids[:, None]).mean().item()
        assert math.log(perplexity) == pytest.approx(surprise, rel=1e-5)
    same = (exact.argmax(-1) == rounded.argmax(-1)).double().mean().item()
    assert found.same_top == pytest.approx(same, abs=2 / len(kl))


def test_int8_on_the_packaged_model_stays_as_close_as_it_was_measured(int8: Measured) -> None:
    """0.89e-3; without the search it is 1.08e-3."""
    assert 1e-5 < int8.divergence.kl_mean < 1e-3
    assert int8.divergence.same_top > 0.96
    assert int8.weights.bits == pytest.approx(9, abs=0.2)


def test_a_worse_packing_lies_further_away(quality: Quality, int8: Measured) -> None:
    coarser = [quality.measure("int4", group=group) for group in (8, 32, 64)]
    found = [one.divergence.kl_mean for one in (int8, *coarser)]
    assert found == sorted(found)
    assert found[1] > 10 * found[0]
    sizes = [one.weights.bytes for one in coarser]
    assert sizes == sorted(sizes, reverse=True)


def test_scales_that_are_not_searched_lie_further_away(
    quality: Quality, int8: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closest, "_HIGHEST", [100.0])
    worse = quality.measure("int8").divergence
    assert worse.kl_mean > 1.3 * int8.divergence.kl_mean


def test_a_scale_for_a_whole_row_lies_further_away(
    quality: Quality, int8: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "int8_group", lambda _width: None)
    assert quality.measure("int8").divergence.kl_mean > 1.1 * int8.divergence.kl_mean


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_folder_measures_as_what_was_packed(
    tmp_path: Path, stories: Resolved, kind: PackingKind
) -> None:
    """And its bytes are those that were told before it was written."""
    text = Quality(stories, "Once upon a time there was a little dog. It ran up the hill.")
    done = quantize(stories, tmp_path / "out", kind, group=16, progress=Silent())
    found = text.measure(kind, group=16, folder=tmp_path / "out")
    assert found == text.measure(kind, group=16)
    assert (text.stored.bytes, found.weights.bytes) == (done.before, done.after)


def test_a_narrow_file_is_measured_against_its_numbers_in_float32(tmp_path: Path) -> None:
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in tiny_tensors().items()}
    directory = write_tiny(tmp_path, tensors)
    held = load_decoder(directory, device="cpu", dtype="float32", as_stored=True).decoder
    wide = load_decoder(directory, device="cpu", dtype="float32").decoder
    assert (held.embed_tokens.dtype, wide.embed_tokens.dtype) == (torch.bfloat16, torch.float32)
    ids = torch.tensor([[1, 5, 9, 2]])
    with torch.inference_mode():
        torch.testing.assert_close(held(ids), wide(ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("text", "told"), [("", "0 tokens"), ("d", "1 token,")])
def test_a_text_with_nothing_to_predict_is_refused(tmp_path: Path, text: str, told: str) -> None:
    folder = make_puppet(tmp_path / "model", ["dog"]).folder
    with pytest.raises(UsageError, match=f"my text has {told}"):
        Quality(Resolved(folder, "model", "folder"), text, what="my text")


def test_what_is_quantised_already_is_refused(tmp_path: Path, stories: Resolved) -> None:
    quantize(stories, tmp_path / "out", "int8", group=32, progress=Silent())
    with pytest.raises(UsageError, match="out is quantised already, to 8 bits"):
        Quality(Resolved(tmp_path / "out", "out", "folder"), "a text")


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, stories: Resolved) -> None:
    write_tiny(tmp_path)
    for file in stories.path.glob("token*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(CheckpointError, match="the embedding only 320 rows"):
        Quality(Resolved(tmp_path, "model", "folder"), "a text")
    assert ModelDir.open(tmp_path)
