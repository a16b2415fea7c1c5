"""The families: one file each, and the registry that finds one for a config.json.

Must not know torch; a family must not know another family's internals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.packed_form import KEY, packed_form
from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.families import (
    bloom,
    cohere,
    deepseek_v2,
    deepseek_v3,
    falcon,
    gemma,
    gemma2,
    gemma3_text,
    gpt2,
    gpt_bigcode,
    gpt_neo,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    llama,
    mistral,
    mixtral,
    olmo2,
    openai_gpt,
    opt,
    phi,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
    qwen3_next,
    smollm3,
    stablelm,
    starcoder2,
    xglm,
)
from llmcli.families.family import Family
from llmcli.families.not_decoders import why_not
from llmcli.spec import DecoderSpec, SpecError

# Where configs say that their weights are quantised; empty or null means that they are not.
_QUANTISATION = ("quantization_config", "compression_config", "quantization")

FAMILIES: tuple[Family, ...] = (
    bloom.FAMILY,
    cohere.FAMILY,
    deepseek_v2.FAMILY,
    deepseek_v3.FAMILY,
    falcon.FAMILY,
    gemma.FAMILY,
    gemma2.FAMILY,
    gemma3_text.FAMILY,
    gpt2.FAMILY,
    gpt_bigcode.FAMILY,
    gpt_neo.FAMILY,
    gpt_neox.FAMILY,
    gpt_oss.FAMILY,
    gptj.FAMILY,
    granite.FAMILY,
    llama.FAMILY,
    mistral.FAMILY,
    mixtral.FAMILY,
    olmo2.FAMILY,
    openai_gpt.FAMILY,
    opt.FAMILY,
    phi.FAMILY,
    phi3.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    qwen3_moe.FAMILY,
    qwen3_next.FAMILY,
    smollm3.FAMILY,
    stablelm.FAMILY,
    starcoder2.FAMILY,
    xglm.FAMILY,
)


def supported() -> list[str]:
    """Every `model_type` that some family reads, sorted."""
    return sorted(kind for family in FAMILIES for kind in family.model_types)


def find_family(config: Mapping[str, Any]) -> Family:
    """The family for a config.json; UnsupportedError names its type and what is supported."""
    kind = config.get("model_type")
    for family in FAMILIES:
        if kind in family.model_types:
            return family
    if not isinstance(kind, str):
        raise CheckpointError(
            f"config.json names no model_type (it is {printable(repr(kind))})",
            hint=f"supported: {', '.join(supported())}",
        )
    if reason := why_not(kind):
        raise UnsupportedError(
            f"model_type {printable(kind)} is not supported: it is {reason}",
            hint=f"llmcli continues a text, which takes a decoder; supported: "
            f"{', '.join(supported())}",
        )
    near = get_close_matches(kind, supported(), n=1)
    raise UnsupportedError(
        f"model_type {printable(kind)} is not supported; supported: {', '.join(supported())}",
        hint=f"did the config mean {near[0]}?"
        if near
        else "a family is a small file of data: see docs/adding-a-family.md",
    )


def read_spec(config: Mapping[str, Any]) -> tuple[Family, DecoderSpec, list[str]]:
    """The family, its spec and the ledger's warnings.

    Raises UnsupportedError before any weight is read for what is not implemented, quantised
    weights included.
    """
    family = find_family(config)
    _refuse_quantised(config)
    form = packed_form(config)
    reader = ConfigReader(config)
    reader.ignore((*_QUANTISATION, KEY))
    try:
        spec = family.read(reader)
    except SpecError as error:
        raise CheckpointError(
            f"config.json contradicts itself: {error}", hint="fetch the config again"
        ) from error
    if form is not None and form.separate_head:
        spec = replace(spec, tie_embeddings=False)
    return family, spec, reader.finish()


def _refuse_quantised(config: Mapping[str, Any]) -> None:
    for key in _QUANTISATION:
        if settings := config.get(key):
            method = settings.get("quant_method", key) if isinstance(settings, dict) else settings
            raise UnsupportedError(
                f"the weights are quantised ({printable(str(method))}), which is not supported",
                hint="use the checkpoint's float16 or bfloat16 version",
            )
