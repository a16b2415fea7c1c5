"""llmcli against transformers on the same folder: whole process, decode, prefill, float32.

    python tests/benchmarks/against_transformers.py FOLDER [--pairs N]

FOLDER is a checkpoint that both can read; `llmcli pull smollm2` prints one. The two take
turns, so that a machine whose speed drifts treats both alike; medians and ratios are shown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROMPT = "The capital of France is"
SCRIPT = """
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
ids = tokenizer(sys.argv[2], return_tensors="pt")
out = model.generate(**ids, max_new_tokens=16, do_sample=False)
print(tokenizer.decode(out[0][ids["input_ids"].shape[1]:], skip_special_tokens=True))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'':38}{'llmcli':>12}{'transformers':>14}{'ratio':>8}")
    whole_process(arguments.folder, arguments.pairs)
    in_process(arguments.folder, arguments.pairs)


def whole_process(folder: Path, pairs: int) -> None:
    """Seconds from the start of the process to its end, 16 new tokens.

    llmcli as it comes: on a CPU without 16-bit arithmetic both multiply in float32.
    """
    ours = [sys.executable, "-m", "llmcli.cli.app", "generate", "-m", str(folder)]
    ours += ["--raw", PROMPT, "-n", "16"]
    theirs = [sys.executable, "-c", SCRIPT, str(folder), PROMPT]
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

    def timed(command: list[str]) -> Callable[[], float]:
        def run() -> float:
            start = time.perf_counter()
            subprocess.run(
                command, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=quiet
            )
            return time.perf_counter() - start

        return run

    show("whole process, 16 tokens (s)", *alternate(timed(ours), timed(theirs), pairs))


def in_process(folder: Path, pairs: int) -> None:
    """Seconds of 64 decode steps after 16 tokens, and of a 512-token prefill."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does
    import torch
    from transformers import AutoModelForCausalLM

    from llmcli.cache import make_cache
    from llmcli.checkpoint.directory import ModelDir
    from llmcli.engine.load import load_decoder
    from llmcli.generation.params import SamplingParams
    from llmcli.generation.stepper import Stepper
    from llmcli.generation.stop import StopRule
    from llmcli.generation.strategies import make_strategy

    decoder = load_decoder(
        ModelDir.open(folder), device="cpu", dtype="float32", kernels="auto"
    ).decoder
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(0)
    long = torch.randint(3, decoder.spec.vocab_size, (1, 512), generator=generator)
    short, new = long[:, :16], 64

    def our_decode() -> float:
        stepper = Stepper(decoder, make_cache("growing", decoder.spec))
        tokens = make_strategy("greedy", SamplingParams()).run(
            stepper, short[0].tolist(), StopRule(frozenset(), new + 1, 10_000)
        )
        next(tokens)
        start = time.perf_counter()
        assert sum(1 for _ in tokens) == new
        return (time.perf_counter() - start) / new

    def their_decode() -> float:
        def generate(count: int) -> float:
            start = time.perf_counter()
            model.generate(
                short,
                attention_mask=torch.ones_like(short),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
            )
            return time.perf_counter() - start

        return (generate(new + 1) - generate(1)) / new

    def our_prefill() -> float:
        start = time.perf_counter()
        Stepper(decoder, make_cache("growing", decoder.spec)).feed(long)
        return time.perf_counter() - start

    def their_prefill() -> float:
        start = time.perf_counter()
        with torch.inference_mode():
            model(long, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - start

    show("decode, float32 (s a token)", *alternate(our_decode, their_decode, pairs))
    show("prefill of 512 tokens, float32 (s)", *alternate(our_prefill, their_prefill, pairs))


def alternate(
    ours: Callable[[], float], theirs: Callable[[], float], pairs: int
) -> tuple[list[float], list[float]]:
    """One uncounted run of each, then `pairs` of both in turn."""
    ours(), theirs()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(pairs):
        times[0].append(ours())
        times[1].append(theirs())
    return times


def show(label: str, ours: list[float], theirs: list[float]) -> None:
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"{label:38}{a:12.4f}{b:14.4f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
