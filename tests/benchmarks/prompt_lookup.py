"""Prompt lookup, or a draft model, against greedy: the same ids, in how much time.

    python tests/benchmarks/prompt_lookup.py [--model smollm2] [--draft MODEL]
        [--guesses 2,5,10] [--new 128] [--rounds 3] [--threads 1]

The prompt asks for a summary of minutes that repeat themselves, about 400 tokens. Runs alternate
with greedy ones, so that both meet the same load; what is told is the median of the paired ratios
of decode time, and whether the ids were the same.
"""

from __future__ import annotations

import argparse
import statistics

from llmcli.cli.running import find_model
from llmcli.engine.engine import Engine
from llmcli.engine.flags import Flags
from llmcli.engine.generation import Generation
from llmcli.engine.options import GenerateOptions, LoadOptions
from llmcli.engine.prompt import PromptRequest

ITEMS = (
    "the budget of the library",
    "the roof of the school",
    "the bridge over the river",
    "the clock of the station",
    "the trees of the park",
)
SPEECH = (
    "On Monday the town council met to talk about {item}. The mayor said that {item} is the most "
    "important question of this year. The treasurer said that there is no money for {item}. "
    "After two hours the town council decided to talk about {item} again on Friday. "
)
PROMPT = (
    "Summarise these minutes point by point, in the words of the minutes.\n\n"
    + "".join(SPEECH.format(item=item) for item in ITEMS)
    + "At the end the mayor thanked the town council. "
    "Nobody had a question, and everybody went home.\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--draft")
    parser.add_argument("--guesses", default="5,10")
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    load = LoadOptions(dtype="float32", threads=given.threads)
    engine = Engine.load(find_model(given.model).path, load)
    draft = None if given.draft is None else Engine.load(find_model(given.draft).path, load)
    prompt = engine.prompt(PromptRequest(text=PROMPT))
    counts = [int(count) for count in given.guesses.split(",")]

    def run(flags: Flags) -> Generation:
        options = GenerateOptions(flags=flags, ignore_eos=True, draft=draft)
        generation = engine.generate(prompt, options)
        for _ in generation:
            pass
        return generation

    def guessing(count: int) -> Flags:
        if draft is not None:
            return Flags(draft_model=given.draft, num_draft_tokens=count, max_new_tokens=given.new)
        return Flags(strategy="prompt-lookup", num_draft_tokens=count, max_new_tokens=given.new)

    greedy = Flags(strategy="greedy", max_new_tokens=given.new)
    print(f"prompt of {len(prompt.ids)} tokens, {given.new} new ones")
    run(greedy)
    ratios: dict[int, list[float]] = {count: [] for count in counts}
    last: dict[int, tuple[Generation, bool]] = {}
    for _ in range(given.rounds):
        for count in counts:
            plain, quick = run(greedy), run(guessing(count))
            ratios[count].append(plain.stats.decode_seconds / quick.stats.decode_seconds)
            last[count] = quick, plain.ids == quick.ids
    for count in counts:
        quick, same = last[count]
        found = quick.acceptance
        assert found is not None
        print(
            f"{count:3} guesses: {statistics.median(ratios[count]):.2f} times as fast "
            f"({min(ratios[count]):.2f} to {max(ratios[count]):.2f}), "
            f"{found.accepted} of {found.proposed} kept, {found.forwards} forwards, "
            f"ids {'the same' if same else 'DIFFERENT'}"
        )


if __name__ == "__main__":
    main()
