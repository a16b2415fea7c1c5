"""A receipt: what a run stood on and what came of it, so that another run can be held against it.

Must not know files or terminals.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import torch

from llmcli import __version__
from llmcli.cache import CacheKind
from llmcli.engine.engine import Engine
from llmcli.engine.flags import Flags
from llmcli.engine.generation import Generation
from llmcli.engine.identity import FileIdentity
from llmcli.engine.options import GenerateOptions
from llmcli.engine.overflow import Overflow
from llmcli.engine.settings import Setting, Settings
from llmcli.generation.token import FinishReason
from llmcli.spec import PackingKind
from llmcli.text.grammar import Grammar

_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


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
