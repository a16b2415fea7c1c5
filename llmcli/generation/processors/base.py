"""What a logits processor is: a pure function from float32 logits [B,V] to logits.

It never writes into its input, and never leaves a row without a finite logit.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

# (ids [B,n] seen so far, the prompt's included; logits [B,V]) -> logits [B,V]
Processor = Callable[[Tensor, Tensor], Tensor]

CUT = float("-inf")
