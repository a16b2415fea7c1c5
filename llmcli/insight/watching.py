"""What a long computation tells whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable

# (how much is done, how much there is)
OnProgress = Callable[[int, int], None]
