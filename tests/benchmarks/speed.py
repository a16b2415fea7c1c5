"""Decode and prefill on a CPU: llmcli with 32, 16, 8 and 4 bits a weight, and its competitors.

    python tests/benchmarks/speed.py FOLDER [--rounds 5] [--gguf F16 Q8_0 Q4_0] [--llama-python P]

FOLDER is a 16-bit checkpoint; `llmcli pull smollm2` prints one. --gguf takes the same model in
llama.cpp's three types (its `quantize` makes them), read by llama-cpp-python, which may live in
another interpreter. All take turns; medians and the medians of the paired ratios are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does

import torch

from llmcli.cache import make_cache
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.device import DtypeName
from llmcli.engine.load import load_decoder
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.spec import PackingKind

NEW, SHORT, LONG = 48, 16, 512
WORKER = """
import json, sys, time
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=2100, n_threads=int(sys.argv[2]), n_threads_batch=int(sys.argv[2]),
              n_batch=512, n_ubatch=512, verbose=False)
print("ready", flush=True)
for line in sys.stdin:
    ids, new = json.loads(line)
    model.reset()
    tokens, start = model.generate(ids, temp=0.0), time.perf_counter()
    next(tokens)
    first = time.perf_counter()
    for _ in range(new):
        next(tokens)
    print(json.dumps([first - start, time.perf_counter() - first]), flush=True)
"""

RIVALS = ("llama.cpp", "transformers")

# ids and how many new ones -> seconds to the first new token, and for those behind it
Run = Callable[[list[int], int], tuple[float, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gguf", type=Path, nargs=3, default=())
    parser.add_argument("--llama-python", default=sys.executable)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    ours = our_runs(asked.folder, asked.threads)
    arms = dict(ours)
    arms["transformers float32"] = transformers_run(asked.folder)
    for name, path in zip(("f16", "q8_0", "q4_0"), asked.gguf, strict=bool(asked.gguf)):
        arms[f"llama.cpp {name}"] = llama_run(path, asked)
    if not asked.gguf:
        print("no --gguf: llama.cpp is left out")
    ids = torch.randint(3, 40_000, (1, 2048), generator=torch.Generator().manual_seed(0))
    long: list[int] = ids[0].tolist()
    decode = in_turns(
        {n: lambda r=r: r(long[:SHORT], NEW)[1] / NEW for n, r in arms.items()}, asked
    )
    show("decode, tokens a second", decode, 1)
    table(
        decode,
        ("llmcli int8", "llama.cpp q8_0"),
        ("llmcli int4", "llama.cpp q4_0"),
        ("llmcli float16", "llama.cpp f16"),
        ("llmcli float32", "transformers float32"),
    )
    prefill = in_turns({n: lambda r=r: r(long[:LONG], 0)[0] for n, r in arms.items()}, asked)
    show(f"prefill of {LONG}, tokens a second", prefill, LONG)
    table(prefill, *((fastest(prefill, "llmcli"), fastest(prefill, who)) for who in RIVALS))
    places = {
        f"{name} at {at}": lambda r=run, at=at: r(long[:at], NEW)[1] / NEW
        for name, run in ours.items()
        for at in (20, 2000)
    }
    show("decode at a place, tokens a second", in_turns(places, asked), 1)
    decoders = {n: r.decoder for n, r in ours.items()}  # type: ignore[attr-defined]
    rows = {
        f"{name}, {count} rows": lambda d=decoder, c=count: batch(d, ids, c)
        for name, decoder in decoders.items()
        for count in (1, 16)
    }
    found = in_turns(rows, asked)
    print("\ntokens a second of all rows together")
    for name in decoders:
        one, many = (found[f"{name}, {count} rows"] for count in (1, 16))
        ratio = statistics.median(16 * a / b for a, b in zip(one, many, strict=True))
        alone, together = 1 / statistics.median(one), 16 / statistics.median(many)
        print(f"  {name:30} {alone:8.1f} one, {together:8.1f} sixteen: {ratio:.2f} x")


def in_turns(arms: dict[str, Callable[[], float]], asked: argparse.Namespace) -> dict[str, list]:
    """Seconds of each, in turns whose order is reversed each second time, after a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(asked.rounds + 1):
        for name, run in arms.items() if number % 2 else reversed(arms.items()):
            seconds = run()
            if number:
                times[name].append(seconds)
    return times


def show(title: str, times: dict[str, list[float]], tokens: int) -> None:
    print(f"\n{title}")
    for name, found in times.items():
        print(f"  {name:30} {tokens / statistics.median(found):8.1f}")


def fastest(times: dict[str, list[float]], who: str) -> str:
    """The quickest arm of this program; its name alone where it has none."""
    own = [name for name in times if name.startswith(who)]
    return min(own, key=lambda name: statistics.median(times[name])) if own else who


def table(times: dict[str, list[float]], *pairs: tuple[str, str]) -> None:
    for ours, theirs in pairs:
        if theirs in times:
            ratios = [b / a for a, b in zip(times[ours], times[theirs], strict=True)]
            print(f"  {ours} against {theirs}: {statistics.median(ratios):.2f} x")


class Ours:
    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder

    def __call__(self, ids: list[int], new: int) -> tuple[float, float]:
        cache = make_cache("static", self.decoder.spec, planned=len(ids) + new + 1)
        stepper = Stepper(self.decoder, cache)
        start = time.perf_counter()
        token = stepper.feed(torch.tensor([ids])).argmax(-1)
        first = time.perf_counter()
        for _ in range(new):
            token = stepper.feed(token[:, None]).argmax(-1)
        return first - start, time.perf_counter() - first


def our_runs(folder: Path, threads: int) -> dict[str, Run]:
    torch.set_num_threads(threads)
    kinds: tuple[tuple[str, DtypeName, PackingKind | None], ...] = (
        ("float32", "float32", None),
        ("float16", "auto", None),
        ("int8", "auto", "int8"),
        ("int4", "auto", "int4"),
    )
    return {
        f"llmcli {name}": Ours(
            load_decoder(
                ModelDir.open(folder), device="cpu", dtype=dtype, kernels="on", quantize=quantize
            ).decoder
        )
        for name, dtype, quantize in kinds
    }


def batch(decoder: Decoder, ids: torch.Tensor, rows: int) -> float:
    """Seconds of one step of `rows` texts together."""
    stepper = Stepper(decoder, make_cache("static", decoder.spec, planned=SHORT + NEW))
    token = stepper.feed(ids[0, : rows * SHORT].view(rows, SHORT)).argmax(-1)
    start = time.perf_counter()
    for _ in range(16):
        token = stepper.feed(token[:, None]).argmax(-1)
    return (time.perf_counter() - start) / 16


def transformers_run(folder: Path) -> Run:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def run(ids: list[int], new: int) -> tuple[float, float]:
        start = time.perf_counter()
        out = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1].argmax(-1)
        first = time.perf_counter()
        for _ in range(new):
            out = model(token[:, None], past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1].argmax(-1)
        return first - start, time.perf_counter() - first

    return run


def llama_run(path: Path, asked: argparse.Namespace) -> Run:
    worker = subprocess.Popen(
        [asked.llama_python, "-c", WORKER, str(path), str(asked.threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    said = worker.stdout.readline()
    if said.strip() != "ready":
        raise SystemExit(f"llama-cpp-python does not start with {path}: is it installed?")

    def run(ids: list[int], new: int) -> tuple[float, float]:
        print(json.dumps([ids, new]), file=worker.stdin, flush=True)
        first, rest = json.loads(worker.stdout.readline())
        return first, rest

    return run


if __name__ == "__main__":
    main()
