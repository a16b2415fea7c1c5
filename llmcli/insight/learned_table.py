"""The table of learned positions, read alone from the files. Must not know the decoder."""

from __future__ import annotations

from torch import Tensor

from llmcli.checkpoint.tensors import TensorFiles
from llmcli.insight.facts import Facts
from llmcli.spec import Learned


def learned_table(facts: Facts) -> Tensor | None:
    """Rows [P,C] from position 0 on; None where there is no such table, or no file with it."""
    places = facts.spec.positions
    if facts.plan is None or not isinstance(places, Learned):
        return None
    with TensorFiles() as files:
        for item in facts.plan.assignments:
            if item.target == "embed_positions.weight":
                return files.make(item)[places.offset :].clone()
    return None
