"""The KV cache on and off, in llmcli and in transformers, on the same weights in the same run.

    python tests/benchmarks/cache_on_and_off.py FOLDER [--prompt 128] [--new 50] [--repeats 5]

The four take turns; medians of the time for all new tokens are shown, float32, greedy, no end
token. llama-cpp-python joins them where it is installed and --gguf names a file.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gguf", type=Path)
    asked = parser.parse_args()
    arms = {**ours(asked.folder, asked), **theirs(asked.folder, asked)}
    if asked.gguf is not None:
        arms |= llama_cpp(asked.gguf, asked)
    times: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(asked.repeats + 1):
        for name, run in arms.items():
            start = time.perf_counter()
            run()
            if number:  # the first is the warm-up
                times[name].append(time.perf_counter() - start)
    best = statistics.median(times["llmcli, cache on"])
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name:28} {median:8.2f} s  {asked.new / median:7.1f} tok/s  {median / best:6.2f}x")


def _prompt(size: int, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(3, size, (1, count), generator=generator)


def ours(folder: Path, asked: argparse.Namespace) -> dict[str, Callable[[], None]]:
    from llmcli.cache import make_cache
    from llmcli.checkpoint.directory import ModelDir
    from llmcli.engine.load import load_decoder
    from llmcli.generation.params import SamplingParams
    from llmcli.generation.stepper import Stepper
    from llmcli.generation.stop import StopRule
    from llmcli.generation.strategies import make_strategy

    decoder = load_decoder(ModelDir.open(folder), device="cpu", dtype="float32").decoder
    ids = _prompt(decoder.spec.vocab_size, asked.prompt)[0].tolist()
    rule = StopRule(frozenset(), max_new_tokens=asked.new, room=asked.new)

    def run(on: bool) -> None:
        stepper = Stepper(decoder, make_cache("growing" if on else "none", decoder.spec))
        tokens = list(make_strategy("greedy", SamplingParams()).run(stepper, ids, rule))
        assert len(tokens) == asked.new

    return {"llmcli, cache on": lambda: run(True), "llmcli, cache off": lambda: run(False)}


def theirs(folder: Path, asked: argparse.Namespace) -> dict[str, Callable[[], None]]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = _prompt(model.config.vocab_size, asked.prompt)

    def run(on: bool) -> None:
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), use_cache=on, do_sample=False,
            min_new_tokens=asked.new, max_new_tokens=asked.new, pad_token_id=0,
        )  # fmt: skip
        assert out.shape[1] == asked.prompt + asked.new

    return {
        "transformers, cache on": lambda: run(True),
        "transformers, cache off": lambda: run(False),
    }


def llama_cpp(file: Path, asked: argparse.Namespace) -> dict[str, Callable[[], None]]:
    try:
        from llama_cpp import Llama
    except ImportError:
        print("llama-cpp-python is not installed and is left out")
        return {}
    model = Llama(str(file), n_ctx=asked.prompt + asked.new + 1, verbose=False)
    ids = _prompt(model.n_vocab(), asked.prompt)[0].tolist()

    def run() -> None:
        model.reset()
        tokens = model.generate(ids, temp=0.0)
        assert len([next(tokens) for _ in range(asked.new)]) == asked.new

    return {f"llama.cpp, {file.name}": run}


if __name__ == "__main__":
    main()
