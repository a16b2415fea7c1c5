"""Typed reads of one architecture's keys, and a refusal of those that change what is computed.

Must not know what a key's value becomes in config.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llmcli.acquire.gguf.reader import GgufFile
from llmcli.checkpoint.escape import printable, shortlist

# Keys that change the arithmetic, and the values with which they do not.
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
}
# How sure a reader must be of these: each is understood, or the file is refused.
_ROTARY = "rope."


class Keys:
    """Reads of `<architecture>.*`, remembering what was asked for."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self._file = file
        self._prefix = architecture + "."
        self.read: set[str] = {self._prefix + "vocab_size"}

    def full(self, name: str) -> str:
        return self._prefix + name

    def get(self, name: str) -> Any:
        self.read.add(self.full(name))
        return self._file.metadata.get(self.full(name))

    def size(self, name: str, default: int | None = None) -> int:
        """A positive whole number; a list of one value for every layer counts as that value."""
        value: object = self._value(name, default)
        if isinstance(value, list):
            if not value or any(item != value[0] for item in value):
                raise self._file.fault(
                    f"{self.full(name)} differs between layers",
                    "only one value for all layers can be imported",
                )
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._file.fault(
                f"{self.full(name)} is {value!r:.60}, not a positive whole number"
            )
        return value

    def number(self, name: str, default: float | None = None) -> float:
        # Stored as float32: the shortest decimal is what was meant (1e-05, not 9.99999974e-06).
        return float(f"{self.exact_number(name, default):.7g}")

    def exact_number(self, name: str, default: float | None = None) -> float:
        """The number as stored, for one that was computed rather than written down."""
        value = self._value(name, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, float | int)
            or not math.isfinite(value)
        ):
            raise self._file.fault(f"{self.full(name)} is {value!r:.60}, not a number")
        return float(value)

    def text(self, name: str) -> str | None:
        self.read.add(self.full(name))
        return self._file.text(self.full(name))

    def window(self) -> int | None:
        """The sliding window; 0 is none. Raises where the key is missing."""
        value = self._value("attention.sliding_window", None)
        if value == 0:
            return None
        return self.size("attention.sliding_window")

    def refuse_unmapped(self, *, context: int) -> None:
        """To be called last: refuse what nobody has read and would change the arithmetic."""
        self._refuse_experts()
        self._refuse_window(context)
        for name, neutral in _NEUTRAL.items():
            value = None if self.full(name) in self.read else self.get(name)
            if value is not None and value not in neutral:
                raise self._file.fault(
                    f"sets {self.full(name)} to {value!r:.60}",
                    "no config.json of this architecture says the same; it cannot be imported",
                )
        rotary = [
            key
            for key in self._file.metadata
            if key.startswith(self._prefix + _ROTARY) and key not in self.read
        ]
        if rotary:
            raise self._file.fault(
                f"sets rotary keys that are not known: {shortlist(rotary)}",
                "the file is a variant that cannot be imported",
            )

    def _refuse_experts(self) -> None:
        experts = self.get("expert_count")
        self.get("expert_used_count")
        if experts:
            name = printable(self._prefix[:-1])
            raise self._file.fault(
                f"is a mixture of {experts!r:.60} experts",
                f"only the dense {name} architecture can be imported",
            )

    def _refuse_window(self, context: int) -> None:
        name = "attention.sliding_window"
        if self.full(name) in self.read or not self.get(name):
            return
        if self.size(name) < context:
            raise self._file.fault(
                f"sets {self.full(name)} to {self.size(name)}",
                "a window in this architecture cannot be imported: the file does not say in "
                "which layers it holds",
            )

    def _value(self, name: str, default: object) -> object:
        value = self.get(name)
        if value is None and default is None:
            raise self._file.fault(f"holds no {self.full(name)}")
        return default if value is None else value
