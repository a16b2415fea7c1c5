"""What forbids every id that would break a grammar.

Must not know what a grammar is, or text: ids in, allowed ids out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """Answers about new ids alone; the prompt's are free. Each answer depends on its ids only.

    One object is quick where each question's ids prolong, or nearly, those of the last one.
    Raises GenerationError where its engine gives up.
    """

    def allowed(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        """Which ids may follow, ends of text aside; ids beyond its length may not."""
        ...

    def may_end(self, ids: Sequence[int]) -> bool:
        """Whether the text may end here."""
        ...

    def ended(self, ids: Sequence[int]) -> bool:
        """Whether the text is complete, and nothing may follow."""
        ...

    def fork(self) -> Constraint:
        """An independent object with the same answers."""
        ...
