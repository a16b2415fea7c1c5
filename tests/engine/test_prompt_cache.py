"""A saved prompt cache: equal to a cold run, or not used and said why; damage is named (A7)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from llmcli.cache import CacheKind
from llmcli.engine.prompt_cache import check_kind, load, save
from llmcli.engine.session import Session
from llmcli.errors import CheckpointError, LlmcliError, UsageError
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.model.packed import pack
from tests.insight.decoders import ALL, decoder_of, ids_for
from tests.oracle import Row
from tests.tiny import random_decoder, random_parameters, tiny_spec

_SPEC = tiny_spec()
_WINDOWED = replace(_SPEC, layers=(replace(_SPEC.layers[0], window=8), _SPEC.layers[1]))
DECODERS = {"full": random_decoder(_SPEC), "windowed": random_decoder(_WINDOWED)}
IDS = list(range(100, 120))


def feed(session: Session, ids: list[int]) -> tuple[Tensor, int]:
    stepper = session.stepper(ids)
    logits = stepper.feed(torch.tensor([ids]))
    return logits, stepper.prefilled or 0


def saved(path: Path, decoder: Decoder, kind: CacheKind, ids: list[int] = IDS) -> Path:
    session = Session(decoder, kind)
    feed(session, ids)
    assert save(path, session, "abc", decoder) == len(ids)
    return path


# The next prompt, and how many of its ids a cache that can be cut back spares.
NEXT = {
    "first 6": (IDS[:6], 5),
    "first 19": (IDS[:19], 18),
    "all 20": (IDS, 19),
    "20 and 5 more": ([*IDS, 1, 2, 3, 4, 5], 20),
    "other at the 12th": ([*IDS[:11], 7, *IDS[12:]], 11),
    "other from the start": ([7, *IDS], 0),
}


@pytest.mark.parametrize("kind", ["growing", "ring", "static"])
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("case", NEXT)
def test_what_follows_equals_a_cold_run(
    tmp_path: Path, name: str, kind: CacheKind, case: str
) -> None:
    decoder, (ids, spared) = DECODERS[name], NEXT[case]
    session = Session(decoder, kind)
    assert load(saved(tmp_path / "c", decoder, kind), session, "abc", decoder) is None
    logits, prefilled = feed(session, ids)
    cold = Stepper(decoder, None).feed(torch.tensor([ids]))
    torch.testing.assert_close(logits, cold, atol=1e-9, rtol=0)
    if kind == "growing" or name == "full" or case == "20 and 5 more":
        assert prefilled == len(ids) - spared
    else:
        # The ring has wrapped, so what it overwrote cannot be had back.
        assert prefilled == len(ids)
    more = [*ids, 9]
    torch.testing.assert_close(
        feed(session, more)[0],
        Stepper(decoder, None).feed(torch.tensor([more])),
        atol=1e-9,
        rtol=0,
    )


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_every_family(tmp_path: Path, row: Row) -> None:
    decoder = decoder_of(row)
    ids = ids_for(decoder.spec)[0].tolist()
    # Without a window, a ring cache is a growing one, store by store.
    for kind in ("growing", "ring") if decoder.spec.windowed else ("growing",):
        path = saved(tmp_path / kind, decoder, kind, ids)
        session = Session(decoder, kind)
        assert load(path, session, "abc", decoder) is None
        logits, prefilled = feed(session, [*ids, 3, 4])
        cold = Stepper(decoder, None).feed(torch.tensor([[*ids, 3, 4]]))
        torch.testing.assert_close(logits, cold, atol=1e-9, rtol=0)
        assert prefilled in (2, len(ids) + 2)


@pytest.mark.parametrize(
    ("checkpoint", "kind", "dtype", "said"),
    [
        ("other", "growing", torch.float64, "it was made with another checkpoint"),
        ("abc", "static", torch.float64, "made with --cache growing, and this run uses static"),
        ("abc", "growing", torch.float32, "made in float64, and this run computes in float32"),
    ],
)
def test_what_was_made_otherwise_is_not_used(
    tmp_path: Path, checkpoint: str, kind: CacheKind, dtype: torch.dtype, said: str
) -> None:
    path = saved(tmp_path / "c", DECODERS["full"], "growing")
    other = random_decoder(_SPEC, dtype=dtype)
    session = Session(other, kind)
    why = load(path, session, checkpoint, other)
    assert why is not None
    assert said in why
    assert feed(session, IDS)[1] == len(IDS)


def test_other_weights_are_another_run(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", DECODERS["full"], "growing")
    drawn = random_parameters(_SPEC).items()
    held = ((name, pack(one, "int8") if "proj" in name else one) for name, one in drawn)
    other = Decoder.filled(_SPEC, held, dtype=torch.float64)
    why = load(path, Session(other, "growing"), "abc", other)
    assert why is not None
    assert "this run computes in float64 with int8 weights" in why


def _edited(path: Path, tensors: dict[str, Tensor] | None = None, **facts: Any) -> None:
    with safe_open(path, framework="pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        told = json.loads(file.metadata()["llmcli_prompt_cache"])
    held |= tensors or {}
    kept = {name: tensor for name, tensor in held.items() if tensor.numel()}
    save_file(kept, path, metadata={"llmcli_prompt_cache": json.dumps(told | facts)})


GONE = torch.empty(0)


@pytest.mark.parametrize(
    ("tensors", "facts", "said"),
    [
        ({}, {"format": "0"}, "it is of format '0'"),
        ({}, {"ids": IDS[:-1]}, "does not hold 19 tokens"),
        ({}, {"ids": [*IDS, 3]}, "does not hold 21 tokens"),
        ({}, {"ids": []}, "it holds no token"),
        ({}, {"ids": ["x"]}, "its facts are damaged"),
        ({}, {"ids": [*IDS[:-1], 5000]}, "holds ids outside the vocabulary"),
        ({"layers.1.keys": GONE}, {}, "layers.1.keys is missing"),
        ({"layers.2.keys": torch.ones(1)}, {}, "layers.2.keys is of layer 2; there are 2"),
        ({"layers.0.more": torch.ones(1)}, {}, "layers.0.more is unknown"),
        ({"head": torch.ones(1)}, {}, "tensor head is unknown"),
        ({"layers.0.keys": torch.ones(1, 2, 20, 8).double()}, {}, "layers.0.keys is torch.float64"),
        ({"layers.0.keys": torch.ones(1, 2, 20, 16)}, {}, "layers.0.keys is torch.float32"),
        ({"layers.0.keys": torch.ones(1, 2, 3, 16).double()}, {}, "layer 0 does not hold"),
        ({"layers.0.keys": torch.full((1, 2, 20, 16), torch.nan).double()}, {}, "NaN or infinity"),
    ],
)
def test_damage_is_named(
    tmp_path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], said: str
) -> None:
    path = saved(tmp_path / "c", DECODERS["full"], "growing")
    _edited(path, tensors, **facts)
    session = Session(DECODERS["full"], "growing")
    with pytest.raises(CheckpointError, match=said):
        load(path, session, "abc", DECODERS["full"])
    assert feed(session, IDS)[1] == len(IDS)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x08\0\0\0\0\0\0\0{}      "])
def test_what_is_no_cache(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a whole prompt cache"):
        load(path, Session(DECODERS["full"], "growing"), "abc", DECODERS["full"])


@pytest.mark.parametrize("kind", ["none", "quantized-8"])
def test_kinds_that_cannot_be_saved(kind: CacheKind) -> None:
    with pytest.raises(UsageError, match=f"of kind {kind} cannot be saved"):
        check_kind(Session(DECODERS["full"], kind))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", DECODERS["full"], "growing")
    before = path.read_bytes()
    session = Session(DECODERS["full"], "growing")
    with pytest.raises(LlmcliError, match="holds no token"):
        save(path, session, "abc", DECODERS["full"])
    feed(session, IDS)
    with pytest.raises(LlmcliError, match="cannot be written"):
        save(tmp_path / "no" / "c", session, "abc", DECODERS["full"])
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["c"]
