"""llama-cpp-python in a process of its own, perhaps another interpreter's; imports nothing of ours.

A line of ids in JSON comes in, `new` greedy ids after it go out as a line.
"""

from __future__ import annotations

import argparse
import json
import sys

from llama_cpp import Llama


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf")
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--new", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    asked = parser.parse_args()
    model = Llama(
        asked.gguf,
        n_ctx=asked.context,
        n_threads=asked.threads,
        n_threads_batch=asked.threads,
        verbose=False,
    )
    print("ready", flush=True)
    for line in sys.stdin:
        model.reset()
        tokens = model.generate(json.loads(line), temp=0.0)
        print(json.dumps([int(next(tokens)) for _ in range(asked.new)]), flush=True)


if __name__ == "__main__":
    main()
