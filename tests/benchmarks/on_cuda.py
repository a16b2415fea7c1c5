"""Is llmcli right on a GPU, and how near to its memory's pace does it decode?

    PYTHONPATH=. python tests/benchmarks/on_cuda.py [--device cuda] [--new 128] [--json FILE]

Needs torch and llmcli alone, and nothing from the network. First logits of small random decoders of
several kinds on the device against the CPU's, with every cache, ordinary steps and recorded ones;
then the ids of stories260k, and how often a token waits for the device. Then a random decoder of
a 7B model's shape in bfloat16: decode with and without recording, as a part of the rate at which
the device copies. --dry-run does all of it in small, on any device. Exits 1 if a check failed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from llmcli.cache import LOSSY, CacheKind, make_cache
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.accelerate import accelerate
from llmcli.engine.load import load_decoder
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import StrategyOptions, make_strategy
from llmcli.model import Decoder
from llmcli.model.captured import CudaGraphs, Record, Work
from llmcli.spec import Alibi, DecoderSpec, LayerSpec, Learned, Rope, parameter_shapes

ROOT = Path(__file__).parents[2]
KINDS: list[CacheKind] = [kind for kind in get_args(CacheKind) if kind != "none"]
# How far logits may be off, in parts of their standard deviation, against float32 on the CPU.
ALLOWED = {torch.float32: 2e-3, torch.bfloat16: 0.15}
GB = 1e9


@dataclass
class Check:
    name: str
    found: str
    ok: bool


@dataclass
class Timing:
    steps: str
    position: int
    ms: float
    tokens_per_second: float
    read_gb: float
    percent_of_copy: float


def llama(
    hidden: int, inner: int, layers: int, heads: int, vocab: int, *, kv_heads: int | None = None
) -> DecoderSpec:
    dim = hidden // heads
    return DecoderSpec(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=heads,
        num_kv_heads=kv_heads or heads,
        head_dim=dim,
        max_positions=4096,
        layers=(LayerSpec(rope=Rope(theta=10000.0, dim=dim)),) * layers,
        norm="rms",
        norm_eps=1e-5,
        mlp="gated",
        activation="silu",
        attn_scale=dim**-0.5,
        tie_embeddings=False,
    )


def kinds_of_decoders() -> dict[str, DecoderSpec]:
    """Small ones, by the facts that choose other ways through the code."""
    base = llama(128, 256, 2, 4, 512, kv_heads=2)
    (layer, _) = base.layers
    plain = {"norm": "layer", "mlp": "plain", "activation": "gelu_tanh", "attn_bias": True}
    partial = LayerSpec(rope=Rope(theta=10000.0, dim=16, interleaved=True))
    return {
        "grouped heads": base,
        "one head each": replace(base, num_kv_heads=4),
        "biases": replace(base, attn_bias=True),
        "windows": replace(base, layers=(replace(layer, window=24), layer)),
        "soft caps": replace(base, attn_softcap=20.0, logit_softcap=30.0, embed_scale=11.3),
        "learned positions": replace(base, layers=(LayerSpec(),) * 2, positions=Learned(), **plain),
        "alibi": replace(
            base, num_kv_heads=4, layers=(LayerSpec(),) * 2, positions=Alibi(), **plain
        ),
        "parallel": replace(base, layers=(partial,) * 2, residual="parallel", **plain),
    }


def random_decoder(spec: DecoderSpec, device: torch.device, dtype: torch.dtype) -> Decoder:
    """The same numbers on every device where the decoder is small; drawn there where it is not."""
    small = spec.hidden_size < 1024
    where = torch.device("cpu") if small else device
    generator = torch.Generator(where).manual_seed(0)

    def drawn() -> Any:
        for name, shape in parameter_shapes(spec).items():
            values = torch.randn(
                shape,
                generator=generator,
                device=where,
                dtype=torch.float32 if small else dtype,
            )
            if name.endswith("norm.weight"):
                values = 1 + values / 8
            elif len(shape) == 2 and "embed" not in name:
                values *= shape[1] ** -0.5
            yield name, values.to(device, dtype)

    return Decoder.filled(spec, drawn()).eval()


def again(work: Work) -> Work:
    """What records where no graph can: the same step on its fixed tensors."""
    return work


def recorder(device: torch.device) -> Record:
    return CudaGraphs(device) if device.type == "cuda" else again


def steps(decoder: Decoder, kind: CacheKind, ids: Tensor, prompt: int) -> Tensor:
    """Logits [T,V] on the CPU: of the prompt's last id, and of each after it, fed by itself."""
    ids = ids.to(decoder.device)
    planned = ids.shape[1]
    stepper = Stepper(decoder, make_cache(kind, decoder.spec, planned=planned), planned=planned)
    got = [stepper.feed(ids[:, :prompt])]
    got += [stepper.feed(one) for one in torch.split(ids[:, prompt:], 1, 1)]
    return torch.cat(got).float().cpu()


def check_logits(device: torch.device, *, small: bool) -> list[Check]:
    checks = []
    # Over the first stretch of recorded steps (256) and the growing cache's step.
    ids = torch.randint(512, (1, 50 if small else 272), generator=torch.Generator().manual_seed(1))
    prompt = ids.shape[1] - 24
    decoders = kinds_of_decoders()
    chosen = ("windows", "alibi") if small else tuple(decoders)
    for name in chosen:
        wide = random_decoder(decoders[name], torch.device("cpu"), torch.float32)
        expected = {kind: steps(wide, kind, ids, prompt) for kind in KINDS}
        for dtype in (torch.float32, torch.bfloat16):
            decoder = random_decoder(decoders[name], device, dtype)
            for how in ("ordinary", "recorded"):
                decoder.capture(recorder(device) if how == "recorded" else None)
                # Codes of packed keys are not the same from other dtypes.
                kinds = [kind for kind in KINDS if dtype == torch.float32 or kind not in LOSSY]
                parts = {
                    kind: apart(steps(decoder, kind, ids, prompt), expected[kind], kind, dtype)
                    for kind in kinds
                }
                worst = max(parts.values(), key=lambda one: one.part)
                label = f"{name}, {str(dtype)[6:]}, {how}"
                ok = all(one.part <= 1 for one in parts.values())
                checks.append(Check(label, f"off by {worst.off:.1e} with {worst.kind}", ok))
    return checks


@dataclass
class Apart:
    kind: CacheKind
    off: float
    part: float


def apart(got: Tensor, right: Tensor, kind: CacheKind, dtype: torch.dtype) -> Apart:
    """How far logits are off, in their standard deviations and as a part of what is allowed."""
    off = ((got - right).abs().max() / right.std()).item()
    # A code on the edge between two may fall to either side.
    return Apart(kind, off, off / (ALLOWED[dtype] * (25 if kind in LOSSY else 1)))


def generated(decoder: Decoder, kind: CacheKind, params: SamplingParams, new: int) -> list[int]:
    strategy = make_strategy("sample", params, StrategyOptions())
    stepper = Stepper(decoder, make_cache(kind, decoder.spec, planned=new + 1), planned=new + 1)
    stop = StopRule(frozenset(), new, decoder.spec.context)
    return [token.id for token in strategy.run(stepper, [1], stop)]


def check_ids(device: torch.device, new: int) -> list[Check]:
    """Greedy and sampled ids of a real checkpoint: the CPU's, with every exact cache."""
    directory = ModelDir.open(ROOT / "weights" / "stories260k")
    here = load_decoder(directory, device="cpu", dtype="float32").decoder
    loaded = load_decoder(directory, device=str(device), dtype="float32", kernels="auto")
    if device.type != "cuda":
        loaded.decoder.capture(again)
    checks = [Check("stories260k's steps", loaded.kernels, True)]
    for name, params in {
        "greedy": SamplingParams(temperature=0.0),
        "sampled": SamplingParams(seed=3, temperature=0.9, top_k=40, top_p=0.9, min_p=0.02),
    }.items():
        for kind in (kind for kind in KINDS if kind not in LOSSY):
            ids, right = (generated(one, kind, params, new) for one in (loaded.decoder, here))
            same = next((at for at in range(new) if ids[at] != right[at]), new)
            found = f"the same up to {same} of {new}"
            checks.append(Check(f"{name} ids, {kind}", found, same == new))
        if device.type == "cuda":
            checks.append(check_waits(loaded.decoder, name, params, new))
    return checks


def check_waits(decoder: Decoder, name: str, params: SamplingParams, new: int) -> Check:
    """Each token may wait for the device once, and the prompt and a recording a few times."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            generated(decoder, "static", params, new)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = sum("synchroniz" in str(one.message) for one in seen)
    return Check(f"{name}, waits", f"{waits} for {new} tokens", waits <= new + 16)


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(device: torch.device, work: Any, rounds: int) -> float:
    """The median of some rounds, after a first one that does not count."""
    found = []
    for _ in range(rounds + 1):
        settle(device)
        start = time.perf_counter()
        work()
        settle(device)
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:])


def copy_rate(device: torch.device, size: int) -> float:
    """Bytes a second, read and written ones, of a copy within the device."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / seconds(device, lambda: target.copy_(source), 10)


def time_decode(
    decoder: Decoder, how: str, position: int, new: int, rate: float, rounds: int
) -> Timing:
    """Greedy steps behind `position` tokens; each id is read back, as streaming has to."""
    spec, device = decoder.spec, decoder.device
    ids = torch.arange(position, device=device)[None] % spec.vocab_size
    cache = make_cache("static", spec, planned=position + new + 8)
    assert cache is not None
    stepper = Stepper(decoder, cache)
    token = stepper.feed(ids).argmax(-1)
    for _ in range(4):  # two as they are, one recorded, one played
        token = stepper.feed(token[:, None]).argmax(-1)

    def run() -> None:
        nonlocal token
        for _ in range(new):
            token = stepper.feed(token[:, None]).argmax(-1)
            token.tolist()
        stepper.rewind(new)

    each = seconds(device, run, rounds) / new
    numbers = sum(p.numel() for p in decoder.parameters()) - spec.vocab_size * spec.hidden_size
    width = torch.finfo(decoder.dtype).bits // 8
    held = 2 * len(spec.layers) * spec.num_kv_heads * spec.head_dim * (position + new // 2)
    read = width * (numbers + held)
    return Timing(how, position, 1e3 * each, 1 / each, read / GB, 100 * read / each / rate)


def speed(device: torch.device, asked: argparse.Namespace) -> tuple[dict[str, Any], list[Timing]]:
    small = asked.dry_run
    spec = llama(64, 128, 2, 4, 256) if small else llama(4096, 11008, 32, 32, 32000)
    rate = copy_rate(device, 1 << 22 if small else 4 << 30)
    start = time.perf_counter()
    decoder = random_decoder(spec, device, torch.bfloat16)
    settle(device)
    facts = {
        "copy_gb_per_second": rate / GB,
        "weights_gb": 2 * sum(p.numel() for p in decoder.parameters()) / GB,
        "made_in_seconds": time.perf_counter() - start,
    }
    timings = []
    new, rounds = (4, 1) if small else (asked.new, 3)
    for how in ("ordinary", "recorded"):
        if how == "recorded":
            facts["steps"] = accelerate(decoder, recorder(device))
        for position in (16, 40) if small else (16, 2048):
            timings.append(time_decode(decoder, how, position, new, rate, rounds))
    if device.type == "cuda":
        facts["peak_gb"] = torch.cuda.max_memory_allocated(device) / GB
    return facts, timings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    device = torch.device(asked.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no CUDA device is there; --dry-run --device cpu tries the script itself")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}\n", flush=True)
    start = time.perf_counter()
    checks = check_logits(device, small=asked.dry_run)
    checks += check_ids(device, 12 if asked.dry_run else 200)
    for one in checks:
        print(f"{'ok    ' if one.ok else 'FAILED'}  {one.name:40} {one.found}")
    print(f"\n{time.perf_counter() - start:.0f} s for the checks", flush=True)
    with torch.inference_mode():
        facts, timings = speed(device, asked)
    recorded = facts["steps"].startswith("torch, recorded")
    checks.append(Check("steps of the large decoder", facts["steps"], recorded))
    print(f"\ncopy {facts['copy_gb_per_second']:.0f} GB/s, weights {facts['weights_gb']:.2f} GB")
    print(f"recorded: {facts['steps']}\n")
    print(f"{'steps':10} {'position':>8} {'ms':>9} {'tok/s':>9} {'GB read':>9} {'of copy':>8}")
    for one in timings:
        print(
            f"{one.steps:10} {one.position:8} {one.ms:9.3f} {one.tokens_per_second:9.1f} "
            f"{one.read_gb:9.3f} {one.percent_of_copy:7.1f}%"
        )
    if asked.json:
        report = {
            "device": name,
            "torch": torch.__version__,
            "checks": [asdict(one) for one in checks],
            "facts": facts,
            "timings": [asdict(one) for one in timings],
        }
        asked.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\n{time.perf_counter() - start:.0f} s in all")
    if not all(one.ok for one in checks):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
