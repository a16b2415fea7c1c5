"""Tokens named on the command line: by id, by text, by quoted text."""

from __future__ import annotations

from typing import Any

import pytest

from llmcli.engine.flags import Flags, check_flags
from llmcli.engine.named_tokens import Named, parse_biases, parse_suppress
from llmcli.errors import CheckpointError, UsageError
from tests.engine.test_settings import resolve, used


@pytest.mark.parametrize(
    ("given", "id_", "text"),
    [
        ("123", 123, None),
        ("-5", -5, None),
        ("+5", 5, None),
        ('"123"', None, "123"),
        (r'"\n"', None, "\n"),
        (r'"\""', None, '"'),
        (" yes", None, " yes"),
        ("1.5", None, "1.5"),
        ("٣", None, "٣"),
        ("<|im_end|>", None, "<|im_end|>"),
    ],
)
def test_an_id_or_a_text(given: str, id_: int | None, text: str | None) -> None:
    assert parse_suppress([given]) == (Named(given, id_, text),)
    assert parse_biases([f"{given}=+1.5"]) == ((Named(given, id_, text), 1.5),)


def test_the_last_equals_sign_parts() -> None:
    assert parse_biases(["==-2"]) == ((Named("=", None, "="), -2.0),)


@pytest.mark.parametrize(
    "flags",
    [
        {"suppress": ("",)},
        {"suppress": ('""',)},
        {"suppress": ('"',)},
        {"suppress": ('"a',)},
        {"suppress": ('"\\ud800"',)},
        {"logit_bias": ("a",)},
        {"logit_bias": ("a=",)},
        {"logit_bias": ("a=x",)},
        {"logit_bias": ("a=nan",)},
        {"logit_bias": ("a=inf",)},
        {"logit_bias": ("=1",)},
    ],
    ids=str,
)
def test_what_names_nothing_is_refused_before_anything_is_loaded(flags: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"--(suppress|logit-bias)") as caught:
        check_flags(Flags(**flags))
    assert caught.value.hint


def test_ids_go_to_the_parameters_and_names_to_the_report() -> None:
    flags = Flags(logit_bias=("a=2", "1=-1"), suppress=("25", '"c"'))
    params = resolve(flags).params
    assert params.logit_bias == ((0, 2.0), (1, -1.0))
    assert params.suppress == (25, 2)
    told = used(flags)
    assert told["logit_bias"][0][1] == {"id": 1, "token": "b", "bias": -1.0}
    assert told["suppress"] == ([{"id": 25, "token": "z"}, {"id": 2, "token": "c"}], "flag")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"suppress": ("26",)}, "id 26; this model's ids lie between 0 and 25"),
        ({"suppress": ("-1",)}, "id -1"),
        ({"suppress": ("9" * 5000,)}, "between 0 and 25"),
        ({"suppress": ("a", "0")}, "names id 0 twice: 'a' and '0'"),
        ({"logit_bias": ("a=1", "a=2")}, "names id 0 twice"),
        ({"logit_bias": ("a=1",), "suppress": ("a",)}, "id 0 'a' has a logit-bias and is supp"),
        ({"suppress": tuple(map(str, range(26)))}, "all 26 ids"),
        ({"suppress": ("Hello",)}, "no single token"),
    ],
    ids=str,
)
def test_what_the_vocabulary_refuses(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(Flags(**flags))
    assert message in caught.value.message


def test_a_flag_replaces_the_files_list() -> None:
    file = {"suppress_tokens": [3, 4]}
    assert resolve(file=file).params.suppress == (3, 4)
    assert used(file=file)["suppress"][1] == "generation_config.json"
    assert resolve(Flags(suppress=("a",)), file).params.suppress == (0,)
    with pytest.raises(CheckpointError, match="suppress to 26"):
        resolve(file={"suppress_tokens": [26]})
    assert resolve(Flags(suppress=("a",)), {"suppress_tokens": [26]}).params.suppress == (0,)
