"""The hub library's progress bar, turned into calls on our Progress. Must not draw."""

from __future__ import annotations

from typing import Any

from llmcli.acquire.progress import Progress

# A second bar of the same bytes, counted as they travel rather than as they are written.
_TRANSFER = "Downloading bytes"


def bar_class(progress: Progress) -> type[Any]:
    """A class with tqdm's interface whose byte bar advances `progress` and draws nothing."""
    from huggingface_hub import utils

    # The library accepts any class with tqdm's interface; its own is the one sure to fit.
    base: Any = getattr(utils, "tqdm")  # noqa: B009

    class Bar(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._counts = kwargs.get("unit") == "B" and kwargs.get("desc") != _TRANSFER
            super().__init__(*args, **kwargs | {"disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            if self._counts and n:
                progress.advance(int(n))
            return None

    return Bar
