"""Steps in compiled kernels: every family against transformers, and against steps in torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from llmcli.cache import CacheKind, make_cache
from llmcli.generation.stepper import Stepper
from llmcli.kernels.layout import ABANDONED
from llmcli.kernels.team import Team
from llmcli.model import Decoder
from llmcli.model.diagnose import first_bad_part
from llmcli.model.fused import obstacle
from llmcli.model.linear import Weighted
from llmcli.model.packed import pack_int4, pack_int8
from llmcli.spec import DecoderSpec, matrices
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.oracle import PROMPT, Oracle, Row, assert_close

rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
STANDING = [row for row in ROWS if row.bfloat16]
# Every way for a few rows, and for the rest one each: products do not know families.
HELD = ("float16", "bfloat16", "int8", "int4")
NARROW = [
    (row, held)
    for number, row in enumerate(STANDING)
    for held in (HELD if number % 8 == 0 else HELD[number % 4 :][:1])
]
# Families whose every layer is something else than plain attention and a dense MLP.
PRODUCTS_ALONE = {"bloom", "deepseek_v2", "deepseek_v3", "gpt_oss", "mixtral", "qwen3_moe"}
PRODUCTS_ALONE |= {"qwen3_next"}
fused_rows = pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.model_type() not in PRODUCTS_ALONE],
    ids=lambda row: row.name,
)


@pytest.fixture(scope="module")
def teams() -> dict[int, Team]:
    return {size: Team(size) for size in (1, 3)}


def _team(row: Row, teams: dict[int, Team]) -> Team:
    """Threads wait for one another, which costs time: what they share is seen in a few families."""
    return teams[3 if row.model_type() in ("llama", "gemma2", "falcon", "phi") else 1]


def _accelerated(theirs: Oracle, team: Team, held: str = "float32") -> Decoder:
    """A decoder of the same checkpoint whose steps run in kernels."""
    spec = theirs.loaded.spec
    packed = matrices(spec)

    def hold(name: str, tensor: Tensor) -> object:
        wide = tensor.detach().clone()
        if name not in packed or name.startswith("embed_positions"):
            return wide
        match held:
            case "float16" | "bfloat16":
                return wide.to(getattr(torch, held))
            case "int8":
                return pack_int8(wide)
            case "int4":
                return pack_int4(wide, 16)
        return wide

    parameters = ((name, hold(name, p)) for name, p in theirs.loaded.decoder.named_parameters())
    decoder = Decoder.filled(spec, parameters, dtype=torch.float32).eval()  # type: ignore[arg-type]
    decoder.accelerate(team)
    return decoder


def _steps(decoder: Decoder, ids: Tensor, kind: CacheKind) -> Tensor:
    """Logits [T,V] from the last id of the prompt on, each id after it fed by itself."""
    count = ids.shape[1]
    cache = make_cache(kind, decoder.spec, planned=count)
    stepper = Stepper(decoder, cache, planned=count)
    got = [stepper.feed(ids[:, :PROMPT])]
    return torch.cat(got + [stepper.feed(new) for new in ids[:, PROMPT:].split(1, 1)])


@rows
def test_every_family_is_fused_or_says_why_not(row: Row, oracle: MakeOracle, teams) -> None:
    theirs = oracle(row)
    decoder = _accelerated(theirs, teams[1])
    why = obstacle(decoder.spec)
    assert decoder.fused == (why is None)
    if row.model_type() not in PRODUCTS_ALONE | {"falcon"}:
        assert why is None


@rows
@pytest.mark.parametrize("kind", ["growing", "ring"])
def test_steps_equal_those_of_transformers(
    row: Row, kind: CacheKind, oracle: MakeOracle, teams, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = oracle(row)
    spec = theirs.loaded.spec
    if kind == "ring" and not spec.windowed:
        kind = "static"
    decoder = _accelerated(theirs, _team(row, teams))
    _kernels_only(decoder, monkeypatch, but_prefill=kind == "ring")
    assert_close(_steps(decoder, theirs.ids, kind), theirs.logits[PROMPT - 1 :])


def _kernels_only(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch, *, but_prefill: bool = False
) -> None:
    """A step that goes through the modules of a fused decoder ends the test."""
    for block in decoder.layers if decoder.fused else ():
        monkeypatch.setattr(block, "forward", _alarm(block, but_prefill=but_prefill))


def _alarm(block: nn.Module, *, but_prefill: bool):
    forward = block.forward

    def run(x: Tensor, layer: int, context: object) -> Tensor:
        assert but_prefill, "it went through torch"
        assert x.shape[1] > 1, "a step went through torch"
        return forward(x, layer, context)

    return run


@fused_rows
def test_several_tokens_at_once_equal_those_of_transformers(
    row: Row, oracle: MakeOracle, teams, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = oracle(row)
    decoder = _accelerated(theirs, _team(row, teams))
    _kernels_only(decoder, monkeypatch)
    stepper = Stepper(decoder, make_cache("growing", decoder.spec), planned=theirs.ids.shape[1])
    pieces = theirs.ids[:, :PROMPT], *theirs.ids[:, PROMPT:].split(5, 1)
    got = torch.cat([stepper.feed_each(piece) for piece in pieces], 1)
    assert_close(got[0], theirs.logits)


@fused_rows
def test_rows_of_a_batch_equal_those_of_transformers(
    row: Row, oracle: MakeOracle, teams, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = oracle(row)
    decoder = _accelerated(theirs, _team(row, teams))
    count = theirs.ids.shape[1]
    with torch.inference_mode():
        whole = decoder(theirs.ids.expand(2, -1), None, last_only=False)
    for one in whole:
        assert_close(one, theirs.logits)
    # A row that begins later has padding in front, where the model can have that.
    late = 3 if decoder.spec.can_pad else 0
    padded = torch.cat((theirs.ids[:, :1].expand(1, late), theirs.ids[:, : count - late]), 1)
    ids = torch.cat((theirs.ids, padded, theirs.ids))[:, : PROMPT + 10]
    pads = torch.tensor([0, late, 0]) if late else None
    cache = make_cache("growing", decoder.spec)
    stepper = Stepper(decoder, cache, planned=count, pads=pads)
    got = [stepper.feed(ids[:, :PROMPT])]
    _kernels_only(decoder, monkeypatch)
    got += [stepper.feed(new) for new in ids[:, PROMPT:].split(1, 1)]
    for ours, back in zip(torch.stack(got, 1), (0, late, 0), strict=True):
        assert_close(ours, theirs.logits[PROMPT - 1 - back : PROMPT + 10 - back])


@pytest.mark.parametrize(
    ("row", "held"), NARROW, ids=[f"{row.name}-{held}" for row, held in NARROW]
)
def test_narrow_and_packed_weights_agree_with_torch(
    row: Row, held: str, oracle: MakeOracle, teams
) -> None:
    theirs = oracle(row)
    kernels = _accelerated(theirs, _team(row, teams), held)
    plain = _plain(_accelerated(theirs, teams[1], held))
    ids = theirs.ids[:, : PROMPT + 8]
    assert_close(_steps(kernels, ids, "growing"), _steps(plain, ids, "growing"))


def _plain(decoder: Decoder) -> Decoder:
    """Without kernels again."""
    decoder._fused = None
    for module in decoder.modules():
        if isinstance(module, Weighted):
            module.product = None
    return decoder


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3_text", "mistral", "phi", "cohere"])
def test_long_texts_agree_with_torch(name: str, oracle: MakeOracle, teams) -> None:
    theirs = oracle(next(row for row in ROWS if row.model_type() == name))
    kernels = _accelerated(theirs, teams[3])
    spec, plain = kernels.spec, _plain(_accelerated(theirs, teams[1]))
    # More than attend together, to more keys than are looked at together.
    count = 700
    ids = torch.randint(spec.vocab_size, (2, count), generator=torch.Generator().manual_seed(1))
    logits = []
    for decoder in (kernels, plain):
        cache = make_cache("growing", spec)
        with torch.inference_mode():
            pieces = ids.split([count // 2, 1, 9, count - count // 2 - 10], 1)
            logits.append([decoder(piece, cache, last_only=False) for piece in pieces])
    for ours, torchs in zip(*logits, strict=True):
        assert_close(ours, torchs)


def test_more_tokens_than_kernels_are_for_go_through_modules(oracle: MakeOracle, teams) -> None:
    theirs = oracle(next(row for row in ROWS if row.model_type() == "llama"))
    decoder = _accelerated(theirs, teams[1])
    assert decoder._fused is not None
    decoder._fused.most_tokens = 2
    seen: list[int] = []
    decoder.layers[0].register_forward_hook(lambda *_: seen.append(1))
    with torch.inference_mode():
        for piece in theirs.ids.split([3, 2, theirs.ids.shape[1] - 5], 1):
            decoder(piece, make_cache("growing", decoder.spec))
    assert len(seen) == 2


@pytest.mark.parametrize("early", [True, False])
def test_a_step_broken_off_by_ctrl_c_can_be_taken_again(
    early: bool, oracle: MakeOracle, teams, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = oracle(next(row for row in ROWS if row.model_type() == "llama"))
    decoder = _accelerated(theirs, teams[1])
    cache, run = make_cache("growing", decoder.spec), type(teams[1]).run

    def broken_off(team, kernel, job, *, aside):
        def half(me, size, job):
            team.barrier[ABANDONED] = early
            assert kernel(me, size, job) == early
            raise KeyboardInterrupt

        run(team, half, job, aside=aside)

    with torch.inference_mode():
        expected = decoder(theirs.ids, make_cache("growing", decoder.spec), last_only=False)
        logits = []
        for piece in theirs.ids.split([7, theirs.ids.shape[1] - 7], 1):
            with monkeypatch.context() as patch:
                patch.setattr(type(teams[1]), "run", broken_off)
                with pytest.raises(KeyboardInterrupt):
                    decoder(piece, cache)
            logits.append(decoder(piece, cache, last_only=False))
    assert cache is not None
    assert cache.length == theirs.ids.shape[1]
    assert_close(torch.cat(logits, 1), expected)


def test_a_watched_decoder_runs_its_modules(oracle: MakeOracle, teams) -> None:
    theirs = oracle(next(row for row in ROWS if row.model_type() == "llama"))
    decoder = _accelerated(theirs, teams[1])
    cache = make_cache("growing", decoder.spec)
    seen: list[int] = []
    handle = decoder.layers[0].register_forward_hook(lambda *_: seen.append(1))
    with torch.inference_mode():
        decoder(theirs.ids[:, :4], cache)
        decoder(theirs.ids[:, 4:5], cache)
        assert not seen
        with decoder.watched():
            decoder(theirs.ids[:, 5:6], cache)
            decoder(theirs.ids[:, 6:8], cache)
            decoder(theirs.ids)
    handle.remove()
    assert len(seen) == 3


def test_where_it_first_goes_wrong_is_found_in_spite_of_kernels(oracle: MakeOracle, teams) -> None:
    theirs = oracle(next(row for row in ROWS if row.model_type() == "llama"))
    decoder = _accelerated(theirs, teams[1])
    decoder.layers[1].get_submodule("mlp.down_proj").weight[0, 0] = float("nan")
    assert first_bad_part(decoder, theirs.ids[:, :4]) == "layers.1.mlp.down_proj"


def test_what_a_kernel_does_not_know_is_named() -> None:
    assert {obstacle(spec) for spec in map(_spec, ROWS)} >= {
        None,
        "latent attention",
        "recurrent layers",
        "sparse experts",
        "ALiBi",
    }


def _spec(row: Row) -> DecoderSpec:
    from llmcli.families import read_spec
    from tests.oracle import validation

    with validation(on=row.validated):
        config = row.config().to_dict()
    return read_spec(config)[1]
