"""A receipt: what a run stood on and what came of it, so that another run can be held against it.

A receipt that is read is somebody else's word: it is validated whole before anything is done.
Must not know terminals.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from llmcli import __version__
from llmcli.cache import CacheKind
from llmcli.checkpoint.escape import printable
from llmcli.engine.engine import Engine
from llmcli.engine.flags import Flags
from llmcli.engine.generation import Generation
from llmcli.engine.identity import FileIdentity
from llmcli.engine.options import GenerateOptions
from llmcli.engine.overflow import Overflow
from llmcli.engine.plain import PlainError, from_plain, to_plain
from llmcli.engine.settings import Setting, Settings
from llmcli.errors import LlmcliError
from llmcli.generation.token import FinishReason
from llmcli.spec import PackingKind
from llmcli.text.grammar import Grammar

FORMAT = 1
MARK = "llmcli_receipt"
# A context of a million tokens needs less than half of this.
MOST_BYTES = 1 << 26
_DEVICE = re.compile(r"cpu|mps|cuda(:[0-9]{1,3})?")
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Of what computed."""

    llmcli: str
    torch: str
    python: str
    platform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where and how it was computed."""

    device: str
    dtype: Literal["float32", "bfloat16", "float16"]
    threads: int
    cache: CacheKind
    quantize: PackingKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A name without a path, and the content of every file that matters."""

    name: str
    files: Mapping[str, FileIdentity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """What was fed; `text` is for people, the ids are what a replay feeds."""

    ids: tuple[int, ...]
    text: str
    is_chat: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What could end the text."""

    stop_ids: tuple[int, ...]
    stop_strings: tuple[str, ...]
    ignore_eos: bool
    show_special: bool
    max_context: int | None
    overflow: Overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of it; `logprobs` are the model's own."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: FinishReason
    stop_string: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """`flags` hold every setting that the run read, as a flag would give it, the seed included;
    `options` tells where each came from.
    """

    versions: Versions
    machine: Machine
    model: Model
    draft: Model | None
    prompt: Prompted
    negative_ids: tuple[int, ...] | None
    flags: Flags
    options: Mapping[str, Setting]
    ending: Ended
    grammar: Grammar | None
    result: Result


def make_receipt(
    engine: Engine,
    generation: Generation,
    options: GenerateOptions,
    *,
    model: Model,
    draft: Model | None,
) -> Receipt:
    """Of a generation that came to its end."""
    assert generation.finish_reason != "interrupted"
    decoder, prompt = engine.loaded.decoder, generation.prompt
    return Receipt(
        versions=Versions(
            llmcli=__version__,
            torch=torch.__version__,
            python=platform.python_version(),
            platform=platform.platform(),
        ),
        machine=Machine(
            device=str(decoder.device),
            dtype=_dtype(decoder.dtype),
            threads=torch.get_num_threads(),
            cache=generation.cache_kind,
            quantize=engine.loaded.quantized,
        ),
        model=model,
        draft=draft,
        prompt=Prompted(ids=prompt.ids, text=prompt.text, is_chat=prompt.is_chat),
        negative_ids=options.negative.ids if options.negative else None,
        flags=_effective(options.flags, generation.settings, draft),
        options=_path_free_options(generation.settings.used, draft),
        ending=Ended(
            stop_ids=generation.ending_ids,
            stop_strings=tuple(generation.stop_strings),
            ignore_eos=options.ignore_eos,
            show_special=options.show_special,
            max_context=options.max_context,
            overflow=options.overflow,
        ),
        grammar=_path_free(options.grammar),
        result=Result(
            ids=tuple(generation.ids),
            logprobs=tuple(token.logprob for token in generation.tokens),
            text=generation.text,
            finish_reason=generation.finish_reason,
            stop_string=generation.matched_stop,
        ),
    )


def as_text(receipt: Receipt) -> str:
    """One JSON object, a line for each part."""
    parts = {MARK: FORMAT, **to_plain(receipt)}.items()
    lines = (f'"{name}": {json.dumps(value, allow_nan=False)}' for name, value in parts)
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_receipt(path: Path) -> Receipt:
    """Raises LlmcliError naming what is wrong with the file."""
    shown = printable(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise LlmcliError(
            f"{shown} cannot be read: {error.strerror or error}",
            hint="give a file that `llmcli generate --receipt FILE` wrote",
        ) from error
    try:
        if len(data) > MOST_BYTES:
            raise PlainError(f"it has more than {MOST_BYTES:,} bytes")
        return _checked(_parsed(data))
    except PlainError as error:
        raise LlmcliError(
            f"{shown} is no receipt that can be replayed: {error}",
            hint="give a file that `llmcli generate --receipt FILE` wrote, unchanged",
        ) from error


def _parsed(data: bytes) -> Receipt:
    def refuse(constant: str) -> None:
        raise PlainError(f"it holds {constant}, which is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise PlainError("it gives a key twice")
        return dict(pairs)

    try:
        whole = json.loads(data.decode("utf-8"), parse_constant=refuse, object_pairs_hook=once)
    except PlainError:
        raise
    except (ValueError, RecursionError) as error:
        raise PlainError(f"it is no JSON ({printable(str(error), 80)})") from error
    if not isinstance(whole, dict) or MARK not in whole:
        raise PlainError(f"it holds no {MARK}")
    if (number := whole.pop(MARK)) != FORMAT or isinstance(number, bool):
        raise PlainError(f"its {MARK} is {printable(repr(number), 40)}; this llmcli reads {FORMAT}")
    if isinstance(machine := whole.get("machine"), dict):
        # Receipts of versions that quantised nothing do not say so.
        machine.setdefault("quantize", None)
    return from_plain(Receipt, whole)


def _checked(receipt: Receipt) -> Receipt:
    """What types alone do not tell."""
    machine, result = receipt.machine, receipt.result
    if not _DEVICE.fullmatch(machine.device):
        raise PlainError(f"machine.device is {printable(repr(machine.device), 40)}")
    if not 1 <= machine.threads <= 1024:
        raise PlainError(f"machine.threads is {machine.threads}; it must lie between 1 and 1024")
    if not receipt.prompt.ids:
        raise PlainError("prompt.ids is empty")
    if len(result.ids) != len(result.logprobs):
        raise PlainError(
            f"result.ids has {len(result.ids)} entries, result.logprobs {len(result.logprobs)}"
        )
    for place, ids in (
        ("prompt.ids", receipt.prompt.ids),
        ("negative_ids", receipt.negative_ids or ()),
        ("ending.stop_ids", receipt.ending.stop_ids),
        ("result.ids", result.ids),
    ):
        if low := [id_ for id_ in ids if id_ < 0]:
            raise PlainError(f"{place} holds {low[0]}; an id is at least 0")
    for part, model in (("model", receipt.model), ("draft", receipt.draft)):
        for name, file in model.files.items() if model else ():
            if not _SHA256.fullmatch(file.sha256):
                raise PlainError(f"{part}.files.{printable(name, 40)}.sha256 is no SHA-256")
    flags = receipt.flags
    for part, there, asked in (
        ("draft", receipt.draft is not None, flags.draft_model is not None),
        ("negative_ids", receipt.negative_ids is not None, flags.negative_prompt is not None),
    ):
        if there != asked:
            raise PlainError(f"{part} and flags contradict each other: only one of them is null")
    if "" in receipt.ending.stop_strings:
        raise PlainError("ending.stop_strings holds an empty text")
    return receipt


def name_of(model: Model) -> str | None:
    """The name where it may be looked up: never a path."""
    return model.name if _NAME.fullmatch(model.name) else None


def _effective(flags: Flags, settings: Settings, draft: Model | None) -> Flags:
    """The flags given, and every setting that the run read besides; the draft without a path.

    What only generation_config.json can say stays there, and is held by that file's hash.
    """
    names = {one.name for one in fields(Flags)} - {"logit_bias", "suppress"}
    known = {name: one.value for name, one in settings.used.items() if name in names}
    if settings.params.suppress:
        known["suppress"] = tuple(map(str, settings.params.suppress))
    if draft is not None:
        flags = replace(flags, draft_model=draft.name)
    return replace(flags, **{k: v for k, v in known.items() if getattr(flags, k) is None})


def _path_free_options(used: Mapping[str, Setting], draft: Model | None) -> dict[str, Setting]:
    if draft is None or "draft_model" not in used:
        return dict(used)
    return {**used, "draft_model": Setting(draft.name, used["draft_model"].source)}


def _path_free(grammar: Grammar | None) -> Grammar | None:
    if grammar is None or grammar.kind == "regex":
        return grammar
    return replace(grammar, name=Path(grammar.name).name)


def _dtype(dtype: torch.dtype) -> Literal["float32", "bfloat16", "float16"]:
    names: dict[torch.dtype, Literal["float32", "bfloat16", "float16"]] = {
        torch.float32: "float32",
        torch.bfloat16: "bfloat16",
        torch.float16: "float16",
    }
    return names[dtype]
