"""What the chain of processors costs a token, against a decode step: off, each, and all on.

    python tests/benchmarks/processors.py FOLDER [--rounds 50] [--threads 1]

Logits are of SmolLM2's size after a text of 500 ids. FOLDER is SmolLM2-135M's, of which a decode
step is timed in the same run; the bars are 0 with all off and 5 % of it with all on.
Medians, and the fastest run, which is the better guide where other programs run too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from llmcli.generation.explain import Recorder, run_chain
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Surroundings, make_processors
from llmcli.generation.sampler import Sampler

VOCAB, PROMPT, SEEN = 49_152, 400, 500

EACH = {
    "logit-bias": {"logit_bias": ((7, 1.0), (9, -1.0))},
    "repetition-penalty": {"repetition_penalty": 1.1},
    "presence/frequency": {"presence_penalty": 0.1, "frequency_penalty": 0.1},
    "no-repeat-ngram": {"no_repeat_ngram": 3},
    "dry": {"dry_multiplier": 0.8},
    "suppress": {"suppress": (1, 2, 3)},
    "min-new-tokens": {"min_new_tokens": 1000},
    "temperature": {"temperature": 0.8},
    "top-k": {"top_k": 50},
    "top-p": {"top_p": 0.95},
    "min-p": {"min_p": 0.01},
    "typical-p": {"typical_p": 0.95},
    "epsilon-cutoff": {"epsilon_cutoff": 1e-4},
    "eta-cutoff": {"eta_cutoff": 1e-4},
    "top-n-sigma": {"top_n_sigma": 2.0},
    "xtc": {"xtc_probability": 0.5},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    step_ms = decode_step(given.folder, given.rounds)
    print(f"a decode step: {step_ms:.1f} ms")
    torch.set_num_threads(given.threads)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(VOCAB, (1, SEEN), generator=generator)
    ids[:, 300:400] = ids[:, 100:200]
    # Probabilities fall with rank^-1.5, as those of SmolLM2 over plain text do.
    ranks = torch.randperm(VOCAB, generator=generator)[None] + 1
    logits = -1.5 * ranks.float().log()

    def show(label: str, once: Callable[[], object]) -> None:
        times = milliseconds(once, given.rounds)
        median, least = statistics.median(times), min(times)
        share = 100 / step_ms
        print(f"{label:26}{median:9.3f}{share * median:9.2f}{least:12.3f}{share * least:9.2f}")

    print(f"{'':26}{'median ms':>9}{'% step':>9}{'fastest ms':>12}{'% step':>9}")

    def chain_of(**settings: object) -> Callable[[], torch.Tensor]:
        params = SamplingParams(seed=0, **settings)  # type: ignore[arg-type]
        chain = make_processors(
            params, sampling=True, surroundings=Surroundings(PROMPT, {0}), generator=generator
        )
        return lambda: run_chain(chain, ids, logits)

    show("all off", chain_of())
    for name, settings in EACH.items():
        show(name, chain_of(**settings))
    together = {key: value for settings in EACH.values() for key, value in settings.items()}
    whole = chain_of(**together)
    show("all on", whole)
    sampler = Sampler(0)
    show("one draw", lambda: sampler.draw(logits))
    show("the best", lambda: logits.argmax(-1))

    def explained() -> None:
        recorder = Recorder()
        recorder.begin(logits)
        recorder.stage("top-k", whole())

    show("all on, two stages told", explained)


def decode_step(folder: Path, rounds: int) -> float:
    """Median milliseconds of one token after SEEN others, with torch's own threads."""
    from llmcli.cache import make_cache
    from llmcli.checkpoint.directory import ModelDir
    from llmcli.engine.load import load_decoder
    from llmcli.generation.stepper import Stepper

    decoder = load_decoder(ModelDir.open(folder), device="cpu").decoder
    stepper = Stepper(decoder, make_cache("growing", decoder.spec))
    stepper.feed(torch.randint(3, decoder.spec.vocab_size, (1, SEEN)))
    return statistics.median(milliseconds(lambda: stepper.feed(torch.tensor([[5]])), rounds))


def milliseconds(once: Callable[[], object], rounds: int) -> list[float]:
    """Of each of many runs, after three that do not count."""
    times = []
    for _ in range(rounds + 3):
        start = time.perf_counter()
        once()
        times.append(1000 * (time.perf_counter() - start))
    return times[3:]


if __name__ == "__main__":
    main()
