"""What a checkpoint's generation_config.json asks for, as settings; and what it asks in vain.

Must not know torch or flags: it gets the parsed file and the keys that somebody else decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NoReturn

from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError, UsageError
from llmcli.generation.options import StrategyOptions
from llmcli.generation.params import SAMPLING_KEYS, SamplingParams
from llmcli.generation.ranges import check_value
from llmcli.generation.reads import StrategyName

_HUGE = 2**63


def read_file(file: Mapping[str, Any], given: Collection[str], *, size: int) -> dict[str, Any]:
    """The file's own values by setting, without those in `given`; null is as good as absent.

    `size` is the vocabulary's. Raises CheckpointError for values that make no sense.
    """
    found: dict[str, Any] = {}
    for name, (key, read) in _KEYS.items():
        value = file.get(name)
        if value is not None and key not in given:
            found[key] = read(name, value)
    # Some files write -1 for "off".
    if found.get("top_k", 0) < 0:
        found["top_k"] = 0
    if _is_contrastive(file) and "num_candidates" not in given:
        found["num_candidates"] = _whole("top_k", file["top_k"])
    for key in ("suppress", "begin_suppress"):
        _check_ids(key, found.get(key, ()), size)
    for words in (found.get("bad_words", ()), [run for run, _ in found.get("sequence_bias", ())]):
        for run in words:
            _check_ids("a run of ids", run, size)
    try:
        for key, value in found.items():
            if isinstance(value, int | float) and key != "max_new_tokens":
                kind = SamplingParams if key in SAMPLING_KEYS else StrategyOptions
                check_value(kind, key, value)
    except UsageError as error:
        raise CheckpointError(
            f"generation_config.json: {error.message}",
            hint="give the value as a flag, or correct the file",
        ) from error
    return found


def file_strategy(file: Mapping[str, Any]) -> StrategyName | None:
    """The strategy that the file's keys amount to, as transformers reads them."""
    sampling = file.get("do_sample")
    if not isinstance(sampling, bool | None):
        _bad("do_sample", sampling, "true or false")
    if _several_beams(file):
        return "sample" if sampling else "beam"
    if _is_contrastive(file):
        return "contrastive"
    if file.get("dola_layers") is not None:
        return "dola"
    return "sample" if sampling else None


def unmet(file: Mapping[str, Any]) -> tuple[str, ...]:
    """A warning for what changes the text and is not done; none where there is nothing."""
    asked = [
        f"{key}={printable(repr(file[key]), 40)}"
        for key, neutral in _NOT_DONE.items()
        if file.get(key) is not None and file[key] not in neutral
    ]
    if _several_beams(file) and file.get("do_sample"):
        asked.append("num_beams with do_sample")
    if file.get("penalty_alpha") and not _is_contrastive(file):
        asked.append("penalty_alpha without a top_k of 2 or more")
    if not asked:
        return ()
    return (f"generation_config.json asks for what llmcli does not do: {', '.join(asked)}",)


def _several_beams(file: Mapping[str, Any]) -> bool:
    beams = file.get("num_beams")
    return isinstance(beams, int | float) and beams > 1


def _is_contrastive(file: Mapping[str, Any]) -> bool:
    alpha, top_k = file.get("penalty_alpha"), file.get("top_k")
    if not isinstance(alpha, int | float) or not isinstance(top_k, int | float):
        return False
    return alpha > 0 and top_k > 1 and not file.get("do_sample")


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _bad(name, value, "a number")
    # Also keeps integers that no float can hold out of the float arithmetic below.
    if not -_HUGE < value < _HUGE:
        _bad(name, value, "a number of sensible size")
    return float(value)


def _whole(name: str, value: object, *, least: int | None = None) -> int:
    number = _number(name, value)
    if number != int(number):
        _bad(name, value, "a whole number")
    if least is not None and number < least:
        _bad(name, value, f"a number from {least} up")
    return int(number)


def _early(name: str, value: object) -> str:
    if value == "never":
        return "never"
    if not isinstance(value, bool):
        _bad(name, value, 'true, false or "never"')
    return "on" if value else "off"


def _layers(name: str, value: object) -> str | tuple[int, ...]:
    if isinstance(value, str) and value in ("low", "high"):
        return value
    if not isinstance(value, list) or not value:
        _bad(name, value, '"low", "high" or a list of layers')
    return tuple(_whole(name, one, least=0) for one in value)


def _ids(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        _bad(name, value, "a list of ids")
    return tuple(dict.fromkeys(_whole(name, one, least=0) for one in value))


def _run(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        _bad(name, value, "lists of ids")
    return tuple(_whole(name, one, least=0) for one in value)


def _runs(name: str, value: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list):
        _bad(name, value, "lists of ids")
    return tuple(_run(name, one) for one in value)


def _biased_runs(name: str, value: object) -> tuple[tuple[tuple[int, ...], float], ...]:
    if value == {}:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, list) for one in value):
        _bad(name, value, "pairs of a list of ids and a number")
    if not all(len(one) == 2 for one in value):
        _bad(name, value, "pairs of a list of ids and a number")
    return tuple((_run(name, run), _number(name, bias)) for run, bias in value)


def _texts(name: str, value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) and one for one in texts):
        _bad(name, value, "texts of at least one character")
    return tuple(texts)


def _check_ids(key: str, ids: Collection[int], size: int) -> None:
    beyond = [id_ for id_ in ids if id_ >= size]
    if beyond:
        _bad(key, beyond[0], f"ids between 0 and {size - 1}")


def _bad(key: str, value: object, wanted: str) -> NoReturn:
    raise CheckpointError(
        f"generation_config.json sets {key} to {printable(repr(value), 80)}, not to {wanted}",
        hint="give the value as a flag, or correct the file",
    )


_KEYS: Mapping[str, tuple[str, Callable[[str, object], Any]]] = {
    "temperature": ("temperature", _number),
    "top_k": ("top_k", _whole),
    "top_p": ("top_p", _number),
    "min_p": ("min_p", _number),
    "typical_p": ("typical_p", _number),
    "epsilon_cutoff": ("epsilon_cutoff", _number),
    "eta_cutoff": ("eta_cutoff", _number),
    "repetition_penalty": ("repetition_penalty", _number),
    "no_repeat_ngram_size": ("no_repeat_ngram", _whole),
    "sequence_bias": ("sequence_bias", _biased_runs),
    "bad_words_ids": ("bad_words", _runs),
    "suppress_tokens": ("suppress", _ids),
    "begin_suppress_tokens": ("begin_suppress", _ids),
    "min_length": ("min_length", _whole),
    "min_new_tokens": ("min_new_tokens", _whole),
    "max_new_tokens": ("max_new_tokens", partial(_whole, least=0)),
    "stop_strings": ("stop", _texts),
    "guidance_scale": ("guidance_scale", _number),
    "num_beams": ("num_beams", _whole),
    "num_beam_groups": ("num_beam_groups", _whole),
    "diversity_penalty": ("diversity_penalty", _number),
    "length_penalty": ("length_penalty", _number),
    "early_stopping": ("early_stopping", _early),
    "penalty_alpha": ("penalty_alpha", _number),
    "dola_layers": ("dola_layers", _layers),
}

# Keys that change the text but are not done, and their neutral values. `max_length` is left out:
# transformers writes its own default of it into many files.
_NOT_DONE: Mapping[str, tuple[Any, ...]] = {
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1, 1.0),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
}
