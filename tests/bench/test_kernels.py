"""Arms whose steps run in compiled kernels: which they are, what they read, whether they agree."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from llmcli.bench.arms import make_arms
from llmcli.bench.runs import Forced
from llmcli.bench.trial import Case, CaseRuns, OnRun, Plan, measure
from llmcli.cache import default_kind
from llmcli.kernels.team import Team
from llmcli.model import Decoder
from llmcli.model.fused import FusedStep
from llmcli.model.linear import Weighted
from llmcli.model.packed import pack_int4, pack_int8
from llmcli.spec import DecoderSpec, matrices
from tests.tiny import random_parameters, tiny_spec

SPEC = tiny_spec(max_position_embeddings=2048)
MIXED = replace(SPEC, layers=(replace(SPEC.layers[0], window=8), SPEC.layers[1]))
NAMES = ("on", "off", "growing", "static", "ring", "quantized-8")


@pytest.fixture(scope="module")
def team() -> Team:
    return Team(1)


def made(spec: DecoderSpec, held: str, team: Team | None) -> Decoder:
    """Random weights, held as `held` says; with kernels where a team is given."""
    pack = {
        "bfloat16": torch.Tensor.bfloat16,
        "int8": pack_int8,
        "int4": partial(pack_int4, group=32),
    }
    kept = matrices(spec)
    parameters = [
        (name, pack[held](tensor) if held in pack and name in kept else tensor)
        for name, tensor in random_parameters(spec).items()
    ]
    decoder = Decoder.filled(spec, parameters, dtype=torch.float32).eval()
    if team is not None:
        decoder.accelerate(team)
    return decoder


def trial(decoder: Decoder, case: Case, *names: str, on_run: OnRun | None = None) -> CaseRuns:
    arms = make_arms(names, default_kind(decoder.spec))
    plan = Plan(arms=arms, cases=[case], repeats=1, warmup=0, prove=on_run is None)
    method = Forced(lambda _: lambda _ids, logits: logits.argmax(-1))
    ids = torch.randint(320, (1, case.prompt_tokens), generator=torch.Generator().manual_seed(1))
    prompt = ids.repeat(case.rows, 1)
    (found,) = measure(decoder, lambda _: prompt, plan, method, on_run=on_run)
    return found


@pytest.mark.parametrize("spec", [SPEC, MIXED], ids=["full", "windowed"])
@pytest.mark.parametrize("name", NAMES)
def test_steps_that_ran_as_a_whole_are_counted(team: Team, spec: DecoderSpec, name: str) -> None:
    """Against what the decoder did: whether it went into its kernels."""
    decoder, seen = made(spec, "float32", team), list[bool]()
    with pytest.MonkeyPatch.context() as patch:
        run = FusedStep.run
        patch.setattr(
            FusedStep, "run", lambda self, *args: (seen.append(True), run(self, *args))[1]
        )
        # Called just before the one run, after the ids were made.
        found = trial(decoder, Case(9, 4, 1), name, on_run=lambda *_: seen.clear())
    prefill = len(seen) == 4
    assert found.arms[name].whole_steps == len(seen) - prefill


def test_packed_keys_have_no_kernel(team: Team) -> None:
    found = trial(made(SPEC, "float32", team), Case(9, 4, 1), *NAMES)
    assert found.arms["on"].whole_steps == found.arms["static"].whole_steps == 3
    assert found.arms["quantized-8"].whole_steps == 0


def test_without_kernels_every_step_goes_module_by_module() -> None:
    decoder = made(SPEC, "float32", None)
    found = trial(decoder, Case(9, 4, 1), *NAMES)
    assert {arm.whole_steps for arm in found.arms.values()} == {0}
    assert not decoder.norm._forward_hooks
    assert not decoder.layers[0]._forward_hooks


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("held", ["float32", "bfloat16", "int8", "int4"])
def test_weights_are_read_as_they_are_held(team: Team, held: str, kernels: bool) -> None:
    decoder = made(SPEC, held, team if kernels else None)
    found = trial(decoder, Case(20, 5, 1), *NAMES)
    modules = [one for one in decoder.modules() if isinstance(one, Weighted) and one.owns]
    norms = sum(p.nbytes for name, p in decoder.named_parameters() if "norm" in name)
    embedding = decoder.embed_tokens.nbytes
    unlooked = sum(one.nbytes for one in modules) + norms - embedding
    for name, arm in found.arms.items():
        rows = embedding / SPEC.vocab_size * (24 if name == "off" else 1)
        read = sum(work.weight_bytes for work in arm.step_work)
        assert read == pytest.approx(unlooked + rows, abs=len(modules)), name
        if name != "off":
            assert arm.proof is not None
            assert arm.proof.holds
            assert arm.proof.max_logit < 1e-3
    assert found.arms["on"].whole_steps == (4 if kernels else 0)
