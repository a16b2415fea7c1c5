"""What bench-cache refuses, and that it does so before it costs anything."""

from __future__ import annotations

import pytest

from tests.cli.benching.quick import BENCH
from tests.cli.conftest import Invoke


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["hi", "--prompt-tokens", "5"], 2, "a prompt and --prompt-tokens were both given"),
        (["--prompt-tokens", "0"], 2, "--prompt-tokens is '0'; it must be whole numbers from 1"),
        (["--prompt-tokens", "5,5"], 2, "--prompt-tokens is '5,5'"),
        (["--prompt-tokens", "5,x"], 2, "--prompt-tokens is '5,x'"),
        (["--arms", "on,paged"], 2, "--arms has 'paged'; an arm is one of on, off"),
        (["--arms", "on,on"], 2, "--arms is 'on,on'"),
        (["--repeats", "0"], 2, "--repeats is 0; it must lie between 1 and"),
        (["--new-tokens", "0"], 2, "--new-tokens is 0; it must lie between 1 and"),
        (["--strategy", "greedy,best"], 2, "--strategy is 'greedy,best'; it must be one or more"),
        (["--top-p", "0.9"], 2, "no strategy of greedy reads --top-p"),
        (["--strategy", "beam", "--batch-size", "2"], 2, "strategy beam is measured with --batch"),
        (["--no-kv-cache"], 2, "--kv-cache and --cache do not choose what is measured"),
        (["--raw"], 2, "random prompts do not read the options of a prompt's text"),
        (["--prompt-tokens", "500"], 1, "500 prompt tokens and 100 new ones make 600; the context"),
        (["--arms", "on,offloaded"], 2, "cache offloaded moves keys and values to host memory"),
        (["--compare", "a", "b"], 2, "--compare measures nothing and reads --output alone"),
        (["--plot", "x.png", "--new-tokens", "1"], 2, "--plot would stay empty"),
        (["--plot", "x.png", "--strategy", "beam"], 2, "--plot would stay empty"),
        (["--plot", "x.pdf"], 2, "--plot x.pdf ends in '.pdf'; it must be .png or .svg"),
        (["hi", "--new-tokens", "511"], 1, "3 prompt tokens and 511 new ones make 514; the con"),
        (
            ["word " * 600],
            1,
            "tokens; the context holds 512, and one is needed",
        ),
        (["hi", "--system", "Be brief"], 2, "--system needs a chat template"),
        (["hi", "--template", "none.jinja"], 2, "--template none.jinja is not a file"),
        (["hi", "--raw", "--template", "none.jinja"], 2, "--raw does not read --template"),
        (["--suppress", "no such token"], 2, "no such token"),
        (["--suppress", "#9999"], 2, "9999"),
        (["--device", "abacus"], 2, "device 'abacus' is not one of"),
        (["--strategy", "sample", "--guidance-scale", "2", "--batch-size", "2"], 2, "--batch-size"),
    ],
)
def test_refused_before_any_weight_is_read(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, said: str
) -> None:
    monkeypatch.setattr("llmcli.engine.engine.load_decoder", lambda *_, **__: 1 / 0)
    result = invoke(*BENCH, *args)
    assert (result.code, result.out) == (code, "")
    assert said in result.err


@pytest.mark.parametrize(
    "args",
    [["--arms", "on,paged"], ["--top-p", "0.9"], ["hi", "--template", "none"], ["--repeats", "0"]],
)
def test_what_needs_no_checkpoint_is_refused_before_one_is_looked_for(
    invoke: Invoke, args: list[str]
) -> None:
    result = invoke("bench-cache", "-m", "no/such-folder", *args)
    assert result.code == 2
    assert args[-2] in result.err
