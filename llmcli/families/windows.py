"""Which layers see only a window of keys. Must not know any single family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError, UnsupportedError

_SLIDES = {"sliding_attention": True, "full_attention": False}


def read_window(config: ConfigReader, absent: int | None) -> int | None:
    """`sliding_window`: null means none at all, while an absent key means the type's default."""
    if not config.has("sliding_window"):
        return absent
    return None if config.raw("sliding_window") is None else config.integer("sliding_window")


def read_windows(
    config: ConfigReader, *, layers: int, window: int | None, slides: Callable[[int], bool]
) -> tuple[int | None, ...]:
    """Each layer's window, by `layer_types`, else by the pattern `slides` of the model type."""
    sliding = _read_layer_types(config, layers) or [slides(index) for index in range(layers)]
    if window is None and any(sliding):
        raise CheckpointError(
            f"{config.origin} has layers of sliding attention, but no sliding_window",
            hint="correct the config, or fetch it again",
        )
    return tuple(window if one else None for one in sliding)


def read_top_windows(config: ConfigReader, layers: int) -> tuple[int | None, ...]:
    """Qwen's way: where `use_sliding_window`, the layers from `max_window_layers` up slide."""
    window = read_window(config, absent=4096) if config.flag("use_sliding_window", False) else None
    first = config.integer("max_window_layers", 28)
    config.ignore(["sliding_window"])
    return read_windows(
        config,
        layers=layers,
        window=window,
        slides=lambda index: window is not None and index >= first,
    )


def _read_layer_types(config: ConfigReader, layers: int) -> list[bool] | None:
    names: Any = config.raw("layer_types")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != layers:
        found = f"{len(names)} entries" if isinstance(names, list) else type(names).__name__
        raise CheckpointError(
            f"{config.origin}: layer_types must name {layers} layers; it has {found}",
            hint="correct the config, or fetch it again",
        )
    for name in names:
        if not isinstance(name, str) or name not in _SLIDES:
            raise UnsupportedError(
                f"{config.origin} has layers of type {printable(repr(name))}; "
                f"only {' and '.join(_SLIDES)} are implemented",
                hint="running it anyway would give wrong text, so it is refused",
            )
    return [_SLIDES[name] for name in names]
