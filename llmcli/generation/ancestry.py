"""How the winner of a beam search came about: what every row saw, until it is known who wins.

Must not know how beams are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from llmcli.generation.explain import Place, Recorder, Step

# A group of the search, and the ids of one of its beams.
Key = tuple[int, tuple[int, ...]]


class Ancestry:
    """A listener of all rows at once; `tell` then writes down the steps of the winner alone.

    Only the last step's rows keep tensors.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._rows: list[Recorder] = []
        self._keys: list[Key] = []
        self._kept: list[tuple[Key, float]] = []
        self._steps: dict[Key, Step] = {}

    def begin(self, keys: Sequence[Key], logits: Tensor) -> None:
        """A step: the beams, and the model's logits [B,V] after each."""
        self.settle()
        self._keys = list(keys)
        self._rows = [Recorder(self._recorder.count) for _ in keys]
        for at, row in enumerate(self._rows):
            row.begin(logits[at : at + 1])

    def stage(self, name: str, logits: Tensor, first: int = 0) -> None:
        """A stage left these logits [rows,V], of the rows from `first` on."""
        for at in range(logits.shape[0]):
            self._rows[first + at].stage(name, logits[at : at + 1])

    def keep(self, key: Key, total: float) -> None:
        """This beam goes on, or is finished; the best of a group comes first."""
        self._kept.append((key, total))

    def settle(self) -> None:
        """The step is over: what the kept beams need is written down, the rest forgotten."""
        for group in {group for (group, _), _ in self._kept}:
            kept = [(ids, total) for (one, ids), total in self._kept if one == group]
            for rank, (ids, total) in enumerate(kept, 1):
                row = self._rows[self._keys.index((group, ids[:-1]))]
                place = Place(rank, len(kept), total)
                self._steps[group, ids] = row.step(ids[-1], beam=place)
        self._rows, self._keys, self._kept = [], [], []

    def tell(self, winner: Key) -> None:
        """The search is over."""
        self.settle()
        group, ids = winner
        self._recorder.steps += [self._steps[group, ids[: at + 1]] for at in range(len(ids))]
