"""The rules of timing, on a fake clock and a device that runs behind its caller (H1)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llmcli.bench.arms import make_arms
from llmcli.bench.memory import Memory, Peak
from llmcli.bench.runs import Choose, Forced, Free
from llmcli.bench.trial import Case, CaseRuns, Plan, measure
from llmcli.cache import KVCache, QuantizedStore, default_kind
from llmcli.generation.params import SamplingParams
from llmcli.generation.reads import StrategyName
from llmcli.generation.strategies import Strategy, make_strategy
from llmcli.model import Decoder
from tests.bench.fake import FakeDevice, on_device
from tests.tiny import random_decoder, tiny_spec

DECODER = random_decoder(dtype=torch.float32)
USUAL = default_kind(DECODER.spec)


def prompts(case: Case) -> Tensor:
    generator = torch.Generator().manual_seed(case.prompt_tokens)
    return torch.randint(320, (1, case.prompt_tokens), generator=generator).repeat(case.rows, 1)


def best(prompt: int) -> Choose:
    return lambda ids, logits: logits.argmax(-1)


GREEDY = Forced(best)


def trial(
    *names: str,
    device: FakeDevice | None = None,
    cases: tuple[Case, ...] = (Case(6, 5, 1),),
    repeats: int = 3,
    warmup: int = 1,
    decoder: Decoder = DECODER,
) -> list[CaseRuns]:
    arms = make_arms(names or ("on", "off"), default_kind(decoder.spec))
    plan = Plan(arms=arms, cases=cases, repeats=repeats, warmup=warmup)
    return list(measure(decoder, prompts, plan, GREEDY, clock=device))


def cost(new: int, held: int) -> float:
    return 10.0 * new + held


def test_each_reading_waits_for_the_device() -> None:
    device = FakeDevice()
    with on_device(DECODER, device, cost):
        (case,) = trial(device=device)
    on, off = case.arms["on"].runs[0], case.arms["off"].runs[0]
    assert on.first == pytest.approx(60, abs=0.01)
    assert on.steps == pytest.approx([16, 17, 18, 19], abs=0.01)
    assert off.first == pytest.approx(60, abs=0.01)
    assert off.steps == pytest.approx([70, 80, 90, 100], abs=0.01)
    assert off.total == pytest.approx(400, abs=0.01)


def test_a_slow_first_forward_is_in_the_warm_up_alone() -> None:
    device, slow = FakeDevice(), iter([0.0] * 5 + [2.0] * 40)
    with on_device(DECODER, device, lambda new, held: 1.0 + next(slow, 0.0)):
        (case,) = trial(device=device, repeats=4)
    for arm in case.arms.values():
        assert len(arm.warmup) == 1
        assert len(arm.runs) == 4
        assert arm.warmup[0].first > 2.5
        assert arm.runs[-1].total == pytest.approx(5, abs=0.1)


def test_arms_take_turns_and_the_warm_up_has_the_same_shapes() -> None:
    device, seen = FakeDevice(), []

    def remembered(new: int, held: int) -> float:
        seen.append((new, held))
        return 1.0

    with on_device(DECODER, device, remembered):
        trial(device=device, repeats=2)
    on = [(6, 0), *((1, held) for held in range(6, 10))]
    off = [(new, 0) for new in range(6, 11)]
    first = [(6, 0), *((1, held) for held in range(6, 10))]
    proof = [pair for both in zip(off, on, strict=True) for pair in both]
    assert seen == first + on + off + off + on + on + off + proof


def test_all_arms_are_fed_the_same_ids_whatever_they_would_choose() -> None:
    (case,) = trial("on", "off", "quantized-4")
    assert case.forced.shape == (1, 5)
    fed: list[list[int]] = []
    real = Decoder.hidden

    def hidden(self: Decoder, ids: Tensor, cache: KVCache | None = None, **rest: object) -> Tensor:
        fed.append(ids[0].tolist())
        return real(self, ids, cache, **rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Decoder, "hidden", hidden)
        # A chooser that goes its own way after the ids are settled.
        calls = iter(range(10**6))
        wayward = Forced(lambda _: lambda ids, logits: (logits.argmax(-1) + next(calls)) % 320)
        plan = Plan(
            arms=make_arms(("on",), USUAL), cases=[Case(6, 5, 1)], repeats=1, warmup=0,
            prove=False,
        )  # fmt: skip
        (again,) = list(measure(DECODER, prompts, plan, wayward))
    assert [one[0] for one in fed[6:]] == again.forced[0, :4].tolist()


class Marks(Peak):
    """A peak of 100 bytes more at each run, which writes down when it was asked."""

    scope = "fake"

    def __init__(self, seen: list[object]) -> None:
        super().__init__()
        self.seen = seen

    def _now(self) -> int:
        return 10

    def _most(self) -> int:
        return 10 + 100 * sum(one == "reset" for one in self.seen)

    def _reset(self) -> None:
        self.seen.append("reset")


def test_memory_is_that_of_each_arms_first_run_alone() -> None:
    seen: list[object] = []
    plan = Plan(arms=make_arms(("on", "off"), USUAL), cases=[Case(6, 5, 1), Case(7, 5, 1)],
                repeats=2, warmup=1)  # fmt: skip
    cases = list(
        measure(
            DECODER,
            prompts,
            plan,
            GREEDY,
            peak=Marks(seen),
            on_run=lambda _done, _total, what: seen.append(what),
        )
    )
    found = [arm.memory for case in cases for arm in case.arms.values()]
    assert found == [Memory(10, most) for most in (110, 210, 310, 410)]
    before = [seen[at - 1] for at, one in enumerate(seen) if one == "reset"]
    assert before == ["on, warm-up", "off, warm-up"] * 2


def test_an_end_token_ends_nothing() -> None:
    (case,) = trial(cases=(Case(3, 40, 1),))
    assert case.forced.shape[1] == 40
    assert {len(run.steps) for arm in case.arms.values() for run in arm.runs} == {39}


def test_the_arms_computed_the_same() -> None:
    (case,) = trial("on", "off", "static", "ring")
    assert case.reference == "off"
    assert case.arms["off"].proof is None
    for name in ("on", "static", "ring"):
        proof = case.arms[name].proof
        assert proof is not None
        assert proof.same_ids
        assert proof.holds
        assert proof.steps == 5
        assert proof.max_logit < 1e-4
        assert proof.max_kl < 1e-6


def test_broken_off_it_keeps_what_it_has() -> None:
    arms = make_arms(("on", "off"), USUAL)
    plan = Plan(arms=arms, cases=[Case(6, 5, 1), Case(7, 5, 1)], repeats=3, warmup=1)
    begun: list[CaseRuns] = []

    def stop(done: int, total: int, what: str) -> None:
        assert total == 20
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun.extend(measure(DECODER, prompts, plan, GREEDY, on_run=stop))
    assert len(begun) == 1
    assert [len(arm.runs) for arm in begun[0].arms.values()] == [2, 1]


def test_rows_of_a_batch() -> None:
    (case,) = trial(cases=(Case(6, 5, 3),))
    assert case.forced.shape == (3, 5)
    assert torch.equal(case.forced[0], case.forced[2])
    assert case.arms["on"].cache_bytes == 3 * trial()[0].arms["on"].cache_bytes


@pytest.mark.parametrize("name", ["on", "off", "static", "quantized-8", "quantized-4"])
def test_bytes_are_those_of_the_formula(name: str) -> None:
    decoder = random_decoder(
        tiny_spec(max_position_embeddings=4096, num_hidden_layers=1), dtype=torch.float32
    )
    # Beyond a piece of the prefill, a growth and two packings; without a cache nothing is held.
    far = [] if name == "off" else [Case(640, 20, 1), Case(640, 140, 2)]
    cases = (Case(6, 5, 1), Case(40, 9, 2), *far)
    for case in trial(name, cases=cases, repeats=1, warmup=0, decoder=decoder):
        assert case.arms[name].cache_bytes == case.arms[name].formula_bytes


@pytest.mark.parametrize("name", ["quantized-8", "quantized-4"])
def test_a_packed_step_reads_codes_scales_and_the_exact_rest(name: str) -> None:
    decoder = random_decoder(
        tiny_spec(max_position_embeddings=4096, num_hidden_layers=1), dtype=torch.float32
    )
    cases = (Case(6, 5, 1), Case(700, 300, 2))
    few, many = trial(name, cases=cases, repeats=1, warmup=0, decoder=decoder)
    store = QuantizedStore(8 if name == "quantized-8" else 4)
    held = 0
    for new in (512, 188, *[1] * 299):
        part = torch.randn(1, 2, new, 16)
        store.update(held, part, part)
        held += new
    held -= 1  # the last token is written, not read
    codes, scales = store.codes.get(0, store.packed), store.scales.get(0, store.packed)
    exact = store.exact.get(0, held - store.packed)
    read = sum(part.nbytes for part in (*codes, *scales, *exact))
    assert sum(work.cache_read for work in many.arms[name].step_work) == read
    # Nothing is packed yet, so it is as with any cache: 9 tokens of 2 heads of 16, in float32.
    assert sum(work.cache_read for work in few.arms[name].step_work) == 9 * 2 * 2 * 16 * 4


def test_without_the_cache_a_step_reads_no_keys_and_computes_all() -> None:
    (case,) = trial()
    on = sum(work.flops for work in case.arms["on"].step_work)
    off = sum(work.flops for work in case.arms["off"].step_work)
    assert sum(work.cache_read for work in case.arms["off"].step_work) == 0
    assert sum(work.cache_read for work in case.arms["on"].step_work) > 0
    assert off > 4 * on


@pytest.mark.parametrize("name", ["beam", "prompt-lookup", "contrastive", "dola"])
def test_a_strategy_with_a_loop_of_its_own(name: StrategyName) -> None:
    method = Free(lambda: make_strategy(name, SamplingParams()))
    plan = Plan(
        arms=make_arms(("on", "off"), USUAL),
        cases=[Case(6, 9, 1)],
        repeats=2,
        warmup=1,
    )
    (case,) = measure(DECODER, prompts, plan, method)
    for arm in case.arms.values():
        assert arm.same_ids
        assert {len(run.steps) for run in arm.runs} == {8}
    assert case.arms["on"].proof is not None


def test_other_ids_in_one_arm_are_noticed() -> None:
    turn = iter(range(10**6))

    def make() -> Strategy:
        # The second timed run draws other numbers than the ids were made with.
        params = SamplingParams(seed=3 if next(turn) < 2 else 4)
        return make_strategy("sample", params)

    plan = Plan(arms=make_arms(("on", "off"), USUAL), cases=[Case(6, 9, 1)], repeats=1,
                warmup=0)  # fmt: skip
    (case,) = measure(DECODER, prompts, plan, Free(make))
    assert [arm.same_ids for arm in case.arms.values()] == [True, False]
