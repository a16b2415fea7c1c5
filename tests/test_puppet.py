"""The puppet says its script: through our loader and loop, and through transformers."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from llmcli.cache import make_cache
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import load_decoder
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import StrategyName, make_strategy
from llmcli.generation.token import Token
from tests.puppet import Added, Kind, Puppet, make_puppet

kinds = pytest.mark.parametrize("kind", get_args(Kind))

EMOJI = "🙂".encode()


def _tokenizer(puppet: Puppet) -> Tokenizer:
    return Tokenizer.from_file(str(puppet.folder / "tokenizer.json"))


def _run(
    puppet: Puppet,
    prompt: str = "hi",
    *,
    new: int = 40,
    name: StrategyName = "greedy",
    params: SamplingParams | None = None,
) -> list[Token]:
    directory = ModelDir.open(puppet.folder)
    loaded = load_decoder(directory, device="cpu", dtype="float32")
    assert loaded.warnings == ()
    eos = directory.generation_config()["eos_token_id"]
    ids = _tokenizer(puppet).encode(prompt).ids
    stop = StopRule(
        frozenset(eos if isinstance(eos, list) else [eos]),
        new,
        loaded.spec.max_positions - len(ids),
    )
    stepper = Stepper(loaded.decoder, make_cache("growing", loaded.spec))
    return list(make_strategy(name, params or SamplingParams(seed=1)).run(stepper, ids, stop))


def _text(puppet: Puppet, tokens: list[Token]) -> str:
    return _tokenizer(puppet).decode([token.id for token in tokens])


@kinds
def test_says_its_script_and_ends(tmp_path: Path, kind: Kind) -> None:
    puppet = make_puppet(tmp_path, ["Hel", "lo", " wor", "ld", ".\n"], kind=kind)
    tokens = _run(puppet)
    assert [token.id for token in tokens] == puppet.ids
    assert tokens[-1].finish_reason == "stop"
    assert _text(puppet, tokens) == "Hello world.\n"
    assert all(token.logprob > -1e-3 for token in tokens)


@kinds
def test_words_recur(tmp_path: Path, kind: Kind) -> None:
    puppet = make_puppet(tmp_path, ["no", " no", " no", " ", " ", "h", "i", "i"], kind=kind)
    assert len(set(puppet.ids)) == 9
    assert _text(puppet, _run(puppet)) == "no no no  hii"


@kinds
def test_bytes_one_token_each(tmp_path: Path, kind: Kind) -> None:
    puppet = make_puppet(tmp_path, ["a", EMOJI, "b", EMOJI, "c", b"\xff", "d"], kind=kind)
    assert len(puppet.ids) == 14
    assert _text(puppet, _run(puppet)) == "a🙂b🙂c\ufffdd"


@kinds
def test_added_tokens_special_or_not(tmp_path: Path, kind: Kind) -> None:
    puppet = make_puppet(
        tmp_path,
        ["<think>", "x", "<tool>", "y", "<|eot|>", "unseen"],
        kind=kind,
        added=[Added("<think>", special=False), Added("<tool>", special=True)],
        eos=["<|end|>", "<|eot|>"],
    )
    tokens = _run(puppet)
    assert tokens[-1].id == puppet.added["<|eot|>"]
    assert tokens[-1].finish_reason == "stop"
    assert _text(puppet, tokens) == "<think>xy"
    # A prompt that spells an added token becomes it.
    assert _tokenizer(puppet).encode("a<tool>").ids[-1] == puppet.added["<tool>"]


@kinds
def test_triggers(tmp_path: Path, kind: Kind) -> None:
    puppet = make_puppet(
        tmp_path,
        {"": ["what"], "?": ["yes"], "<|a|>": ["spo", "ken"]},
        kind=kind,
        added=[Added("<|a|>")],
    )
    said = {prompt: _text(puppet, _run(puppet, prompt)) for prompt in ("hm", "hm?", "hm<|a|>")}
    assert said == {"hm": "what", "hm?": "yes", "hm<|a|>": "spoken"}


def test_endless(tmp_path: Path) -> None:
    puppet = make_puppet(tmp_path, ["a", "b"], ends=False)
    tokens = _run(puppet, new=5)
    assert _text(puppet, tokens) == "ababa"
    assert tokens[-1].finish_reason == "length"


def test_context(tmp_path: Path) -> None:
    puppet = make_puppet(tmp_path, ["a", "b"], ends=False, max_positions=8)
    tokens = _run(puppet, "four")
    assert len(tokens) == 4
    assert tokens[-1].finish_reason == "context"


def test_successors_of_single_ids(tmp_path: Path) -> None:
    first = make_puppet(tmp_path / "a", ["a", "b", "c"])
    skip = {first.ids[0]: first.ids[2]}
    puppet = make_puppet(tmp_path / "b", ["a", "b", "c"], next_ids=skip)
    assert _text(puppet, _run(puppet)) == "ac"


def test_bos_is_put_in_front(tmp_path: Path) -> None:
    puppet = make_puppet(tmp_path, ["a"], bos="<s>")
    assert _tokenizer(puppet).encode("x").ids[0] == puppet.added["<s>"]
    assert _tokenizer(puppet).encode("x", add_special_tokens=False).ids[0] != puppet.added["<s>"]


def test_scale_lets_sampling_wander(tmp_path: Path) -> None:
    firm = make_puppet(tmp_path / "firm", ["a", "b", "c"])
    loose = make_puppet(tmp_path / "loose", ["a", "b", "c"], scale=0.05)
    assert [token.id for token in _run(firm, name="sample")] == firm.ids
    assert [token.id for token in _run(loose)] == loose.ids
    assert [token.id for token in _run(loose, name="sample")] != loose.ids


def test_template_and_configs(tmp_path: Path) -> None:
    puppet = make_puppet(
        tmp_path,
        ["a"],
        chat_template="{{ messages[0].content }}",
        generation_config={"temperature": 0.5},
        config={"hidden_act": "silu"},
        dtype=torch.bfloat16,
        layers=2,
    )
    directory = ModelDir.open(puppet.folder)
    assert directory.generation_config()["temperature"] == 0.5
    assert (tmp_path / "chat_template.jinja").read_text() == "{{ messages[0].content }}"
    assert {one.dtype for one in directory.tensors().values()} == {"BF16"}
    assert _text(puppet, _run(puppet)) == "a"


@pytest.mark.parametrize("script", [["<t>", "a", "<t>", "b"]])
def test_a_script_that_cannot_be_said_is_refused(tmp_path: Path, script: list[str]) -> None:
    with pytest.raises(AssertionError, match="twice"):
        make_puppet(tmp_path, script, added=[Added("<t>")])


@kinds
def test_transformers_says_it_too(tmp_path: Path, kind: Kind) -> None:
    puppet = make_puppet(tmp_path, ["Hel", "lo", " wor", "ld", EMOJI, " no", " no"], kind=kind)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    prompt = tokenizer("hi", return_tensors="pt")
    made = model.generate(**prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)
    new = made[0, prompt["input_ids"].shape[1] :].tolist()
    assert new == puppet.ids
    assert tokenizer.decode(new, skip_special_tokens=True) == "Hello world🙂 no no"
