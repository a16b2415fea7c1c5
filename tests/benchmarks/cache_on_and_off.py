"""The KV cache on and off, in llmcli and in transformers, on the same weights in the same run.

    python tests/benchmarks/cache_on_and_off.py FOLDER [--prompt 128] [--new 50] [--repeats 5]

The four take turns; medians of the time for all new tokens are shown, with the median of the
ratios to llmcli with its cache, float32, greedy, no end token. With --gguf, llama-cpp-python joins
them, in a process of the interpreter that --llama-python names; it has a cache always.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

Run = Callable[[], list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kernels", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--llama-python", default=sys.executable)
    asked = parser.parse_args()
    arms = {**ours(asked.folder, asked), **theirs(asked.folder, asked)}
    if asked.gguf is not None:
        arms |= llama_cpp(asked.gguf, asked)
    times: dict[str, list[float]] = {name: [] for name in arms}
    ids: dict[str, list[int]] = {}
    for number in range(asked.repeats + 1):
        for name, run in arms.items() if number % 2 else reversed(arms.items()):
            start = time.perf_counter()
            ids[name] = run()
            if number:  # the first is the warm-up
                times[name].append(time.perf_counter() - start)
    best = times["llmcli, cache on"]
    for name, found in times.items():
        median = statistics.median(found)
        ratio = statistics.median(one / other for one, other in zip(found, best, strict=True))
        same = _common(ids[name], ids["llmcli, cache on"])
        print(
            f"{name:28} {median:8.2f} s  {asked.new / median:7.1f} tok/s  {ratio:6.2f}x  "
            f"the same ids up to {same} of {asked.new}"
        )


def _common(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=True))
    return next((at for at, (x, y) in pairs if x != y), len(one))


def _prompt(size: int, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(3, size, (1, count), generator=generator)


def ours(folder: Path, asked: argparse.Namespace) -> dict[str, Run]:
    from llmcli.cache import make_cache
    from llmcli.checkpoint.directory import ModelDir
    from llmcli.engine.load import load_decoder
    from llmcli.generation.params import SamplingParams
    from llmcli.generation.stepper import Stepper
    from llmcli.generation.stop import StopRule
    from llmcli.generation.strategies import make_strategy

    loaded = load_decoder(
        ModelDir.open(folder), device="cpu", dtype="float32", kernels=asked.kernels
    )
    decoder = loaded.decoder
    print(f"llmcli's steps: {loaded.kernels}")
    ids = _prompt(decoder.spec.vocab_size, asked.prompt)[0].tolist()
    rule = StopRule(frozenset(), max_new_tokens=asked.new, room=asked.new)

    def run(on: bool) -> list[int]:
        stepper = Stepper(decoder, make_cache("growing" if on else "none", decoder.spec))
        tokens = list(make_strategy("greedy", SamplingParams()).run(stepper, ids, rule))
        assert len(tokens) == asked.new
        return [token.id for token in tokens]

    return {"llmcli, cache on": lambda: run(True), "llmcli, cache off": lambda: run(False)}


def theirs(folder: Path, asked: argparse.Namespace) -> dict[str, Run]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = _prompt(model.config.vocab_size, asked.prompt)

    def run(on: bool) -> list[int]:
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), use_cache=on, do_sample=False,
            min_new_tokens=asked.new, max_new_tokens=asked.new, pad_token_id=0,
        )  # fmt: skip
        assert out.shape[1] == asked.prompt + asked.new
        return list(out[0, asked.prompt :].tolist())

    return {
        "transformers, cache on": lambda: run(True),
        "transformers, cache off": lambda: run(False),
    }


def llama_cpp(file: Path, asked: argparse.Namespace) -> dict[str, Run]:
    worker = Path(__file__).with_name("llama_cpp_worker.py")
    sizes = {
        "--context": asked.prompt + asked.new + 1,
        "--new": asked.new,
        "--threads": torch.get_num_threads(),
    }
    options = [str(part) for pair in sizes.items() for part in pair]
    process = subprocess.Popen(
        [asked.llama_python, str(worker), str(file), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        sys.exit(f"{asked.llama_python} has no llama-cpp-python that reads {file}")
    vocabulary = json.loads((asked.folder / "config.json").read_text())["vocab_size"]
    prompt = json.dumps(_prompt(vocabulary, asked.prompt)[0].tolist())
    put, get = process.stdin, process.stdout

    def run() -> list[int]:
        put.write(prompt + "\n")
        put.flush()
        return list(map(int, json.loads(get.readline())))

    return {f"llama.cpp, {file.name}": run}


if __name__ == "__main__":
    main()
