"""Random models under grammars: what comes out is in the language, or was cut and says so."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from llmcli.engine.engine import Engine
from llmcli.engine.flags import Flags
from llmcli.engine.generation import Generation
from llmcli.engine.options import GenerateOptions, LoadOptions
from llmcli.engine.prompt import PromptRequest
from llmcli.errors import GenerationError, UsageError
from llmcli.text.grammar import Grammar, read_grammar
from tests.puppet import make_puppet
from tests.tiny import tiny_spec, tiny_tensors, write_tiny

STORIES = Path(__file__).parents[2] / "weights" / "stories260k"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "tags": {"type": "array", "items": {"enum": ["a", "é", 3]}, "maxItems": 2},
        "n": {"type": "integer", "minimum": -9, "maximum": 99},
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}
JSON = read_grammar("json-schema", json.dumps(SCHEMA), "s.json")
PATTERN = r"([A-Z][a-z]{1,6} ?){1,3}[.!]|[0-9]{2}"
RE = read_grammar("regex", PATTERN, PATTERN)
ENDS = 2  # </s>


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Random weights, flat enough to wander, with rows that no token has."""
    folder = tmp_path_factory.mktemp("random")
    config = {"vocab_size": 530, "eos_token_id": ENDS, "max_position_embeddings": 512}
    write_tiny(folder, tiny_tensors(tiny_spec(**config), seed=8), config=config)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(STORIES / name, folder)
    return Engine.load(folder, LoadOptions(device="cpu"))


def _run(engine: Engine, grammar: Grammar, prompt: str = "a dog", **how: Any) -> Generation:
    ending = {key: how.pop(key) for key in ("ignore_eos", "stop_strings") if key in how}
    flags = Flags(**{"max_new_tokens": 300, **how})
    request = engine.prompt(PromptRequest(text=prompt))
    made = engine.generate(request, GenerateOptions(flags=flags, grammar=grammar, **ending))
    for _ in made:
        pass
    return made


def _judge(made: Generation, grammar: Grammar) -> None:
    if made.finish_reason == "stop":
        assert made.satisfied
        if grammar is JSON:
            Draft202012Validator(SCHEMA).validate(json.loads(made.text))
        else:
            assert re.fullmatch(PATTERN, made.text)
    else:
        assert made.finish_reason == "length"


# Each way with both grammars and both prompts, but not with each pair of them.
@pytest.mark.parametrize(
    ("grammar", "prompt"), [(JSON, "a dog"), (RE, "")], ids=["json-text", "regex-empty"]
)
@pytest.mark.parametrize(
    "how",
    [
        {"strategy": "greedy"},
        {"strategy": "sample", "temperature": 1.5},
        {"strategy": "sample", "top_k": 1, "top_p": 0.0, "min_p": 0.9},
        {"strategy": "sample", "xtc_probability": 1.0, "mirostat_tau": 3.0},
        {"strategy": "beam", "num_beams": 3},
        {"strategy": "contrastive"},
        {"strategy": "prompt-lookup"},
        {"strategy": "prompt-lookup", "temperature": 1.2},
        {"strategy": "sample", "ignore_eos": True},
        {"strategy": "sample", "repetition_penalty": 3.0, "presence_penalty": 5.0},
    ],
    ids=lambda how: "-".join(map(str, how.values())),
)
def test_whatever_the_model(
    engine: Engine, how: dict[str, Any], grammar: Grammar, prompt: str
) -> None:
    seeds = range(3) if how["strategy"] in ("sample", "prompt-lookup") else range(1)
    finished = 0
    for seed in seeds:
        drawn = how["strategy"] == "sample" or "temperature" in how
        made = _run(engine, grammar, prompt, **how, **({"seed": seed} if drawn else {}))
        _judge(made, grammar)
        finished += made.finish_reason == "stop"
    assert finished


@pytest.mark.parametrize("new", range(0, 12, 3))
def test_a_cut_text_says_so(engine: Engine, new: int) -> None:
    made = _run(engine, JSON, max_new_tokens=new)
    assert made.finish_reason == "length"
    assert made.satisfied is False
    assert len(made.ids) == new


def test_complete_at_the_very_budget_is_a_stop(engine: Engine) -> None:
    whole = _run(engine, read_grammar("regex", "abc", ""))
    assert (whole.text, whole.finish_reason) == ("abc", "stop")
    short = _run(engine, read_grammar("regex", "abc", ""), max_new_tokens=len(whole.ids))
    assert (short.text, short.finish_reason) == ("abc", "stop")
    assert ENDS not in whole.ids


def test_the_empty_text(engine: Engine) -> None:
    made = _run(engine, read_grammar("regex", "", ""))
    assert (made.text, made.ids, made.finish_reason) == ("", [], "stop")


def test_context_cuts_too(engine: Engine) -> None:
    grammar = read_grammar("regex", "a{600}", "")
    made = _run(engine, grammar, max_new_tokens=1000)
    assert made.finish_reason == "context"
    assert set(made.text) == {"a"}


def test_prompt_lookup_says_what_greedy_says(engine: Engine) -> None:
    for grammar in (JSON, RE):
        greedy = _run(engine, grammar, strategy="greedy")
        assert _run(engine, grammar, strategy="prompt-lookup").ids == greedy.ids


def test_a_puppet_ends_only_where_it_may(tmp_path: Path) -> None:
    """It wants to end after `ca`; one grammar allows that, the other wants a letter more."""
    made = make_puppet(tmp_path / "p", [b"ca"])
    puppet = Engine.load(made.folder, LoadOptions(device="cpu"))
    assert _run(puppet, read_grammar("regex", "ca[x-z]?", ""), "hi").text == "ca"
    longer = _run(puppet, read_grammar("regex", "ca[x-z]", ""), "hi")
    assert longer.text[:2] == "ca"
    assert longer.text[2] in "xyz"
    assert longer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"strategy": "dola"}, "strategy dola does not read --regex"),
        ({"stop_strings": ["x"]}, "--stop does not go with --regex"),
        ({"strategy": "beam", "ignore_eos": True}, "needs an end token"),
    ],
)
def test_refusals(engine: Engine, how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _run(engine, RE, **how)


def test_options_that_forbid_what_the_grammar_needs(engine: Engine) -> None:
    with pytest.raises(GenerationError, match="other options forbid them all"):
        _run(engine, read_grammar("regex", "<[a]{9}>", ""), no_repeat_ngram=2)
