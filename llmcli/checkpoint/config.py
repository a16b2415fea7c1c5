"""ConfigReader: config.json read with a ledger, so that no key is dropped in silence.

Every key is taken, expected (an assumption of our code, violated = refused) or ignored by
name; what is left over is reported. Must not know families or torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError, UnsupportedError

T = TypeVar("T")


class _Required:
    """Marks a key without a default: its absence is an error."""


REQUIRED: Final = _Required()

# Keys that never change what the decoder computes at inference.
_BOOKKEEPING = frozenset(
    """
    _name_or_path _attn_implementation _attn_implementation_autoset architectures auto_map
    model_type torch_dtype dtype transformers_version use_cache initializer_range
    bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id
    decoder_start_token_id task_specific_params problem_type id2label label2id num_labels
    finetuning_task output_attentions output_hidden_states return_dict return_dict_in_generate
    use_return_dict torchscript gradient_checkpointing tokenizer_class
    transformers.js_config prefix chunk_size_feed_forward use_bfloat16 tf_legacy_loss is_decoder
    """.split()
)
# Keys that every older config.json carries, and that mean nothing while false, null or empty.
_OFF = frozenset(
    """
    is_encoder_decoder add_cross_attention cross_attention_hidden_size tie_encoder_decoder
    pruned_heads output_scores remove_invalid_values
    """.split()
)


class ConfigReader:
    """Reads one JSON object key by key and remembers which keys were accounted for."""

    def __init__(self, values: Mapping[str, Any], origin: str = "config.json") -> None:
        self._values = values
        self._seen: set[str] = set()
        self.origin = origin
        self.warnings: list[str] = []

    def has(self, key: str) -> bool:
        """Whether the key is present at all, null included."""
        return key in self._values

    def raw(self, key: str, default: Any = None) -> Any:
        """Take a key as it stands; `default` only where it is absent."""
        self._seen.add(key)
        return self._values.get(key, default)

    def integer(self, key: str, default: int | _Required = REQUIRED) -> int:
        """A whole number; null counts as absent."""
        value = self._present(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int:
            self._mistyped(key, value, "a whole number")
        return value

    def number(self, key: str, default: float | _Required = REQUIRED) -> float:
        """A finite number; null counts as absent."""
        value = self._present(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._mistyped(key, value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self._mistyped(key, value, "a finite number")
        return number

    def flag(self, key: str, default: bool | _Required = REQUIRED) -> bool:
        """True or false; null counts as absent."""
        value = self._present(key, default)
        if not isinstance(value, bool):
            self._mistyped(key, value, "true or false")
        return value

    def choice(self, key: str, names: Mapping[str, T], default: str | _Required = REQUIRED) -> T:
        """One of the given names, translated; any other is refused by name."""
        value = self._present(key, default)
        if not isinstance(value, str) or value not in names:
            raise UnsupportedError(
                f"{self.origin} sets {key} to {printable(repr(value))}, "
                f"which is not one of {', '.join(names)}",
                hint="llmcli does not implement it, and will not run it as something else",
            )
        return names[value]

    def section(self, key: str) -> ConfigReader | None:
        """A nested object with a ledger of its own; None where absent or null."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._mistyped(key, value, "an object")
        return ConfigReader(value, f"{self.origin}: {key}")

    def expect(self, key: str, *allowed: Any) -> None:
        """Refuse any value but those our code assumes; an absent key is fine."""
        value = self.raw(key, allowed[0])
        if not any(value == known and type(value) is type(known) for known in allowed):
            raise UnsupportedError(
                f"{self.origin} sets {key} to {printable(repr(value))}; "
                f"only {' or '.join(repr(known) for known in allowed)} is implemented",
                hint="running it anyway would give wrong text, so it is refused",
            )

    def ignore(self, keys: Iterable[str]) -> None:
        """Keys known not to matter at inference."""
        self._seen.update(keys)

    def absorb(self, section: ConfigReader) -> None:
        """Add a nested ledger's warnings and left-over keys to this one's."""
        self.warnings += section.finish()

    def finish(self) -> list[str]:
        """Every warning, with one that names the keys nobody read.

        Raises UnsupportedError for a config that says to have an encoder.
        """
        self.expect("is_encoder_decoder", False, None)
        known = self._seen | _BOOKKEEPING | {key for key in _OFF if not self._values.get(key)}
        unread = [key for key in self._values if key not in known]
        left = (
            [f"{self.origin} has keys that llmcli does not know: {_listed(unread)}"]
            if unread
            else []
        )
        return self.warnings + left

    def _present(self, key: str, default: Any) -> Any:
        value = self.raw(key)
        if value is not None:
            return value
        if isinstance(default, _Required):
            raise CheckpointError(
                f"{self.origin} lacks `{key}`",
                hint="the config is incomplete; fetch it again",
            )
        return default

    def _mistyped(self, key: str, value: Any, wanted: str) -> NoReturn:
        raise CheckpointError(
            f"{self.origin} sets {key} to {printable(repr(value))}, not to {wanted}",
            hint="correct the config, or fetch it again",
        )


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(printable(key) for key in keys)
