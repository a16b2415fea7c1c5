"""Known models by name, as the configs that their papers and makers state.

Must not know files: a preset is data.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from llmcli.checkpoint.escape import printable
from llmcli.errors import UsageError
from llmcli.insight.facts import Facts, Source, config_facts
from llmcli.spec import DecoderSpec, LayerSpec, Sinusoidal

# arXiv 2005.14165, table 2.1: 96 layers, 12288 wide, 96 heads of 128, 2048 tokens.
_GPT3: Final = {
    "model_type": "gpt2",
    "vocab_size": 50257,
    "n_embd": 12288,
    "n_layer": 96,
    "n_head": 96,
    "n_positions": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
_GPT3_NOTE: Final = (
    "sizes from arXiv 2005.14165; the unembedding is counted as a matrix of its own. Half of "
    "the real layers see locally banded patterns whose width the paper does not give; here "
    "every layer sees all"
)
# The models' own config.json.
_PHI3_MINI: Final = {
    "model_type": "phi3",
    "vocab_size": 32064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "sliding_window": 2047,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
_LLAMA2_7B: Final = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
_LLAMA3_8B: Final = _LLAMA2_7B | {
    "vocab_size": 128256,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
}
_GPT2: Final = {"model_type": "gpt2", "torch_dtype": "float32"}

_CONFIGS: Final[Mapping[str, tuple[Mapping[str, Any], str | None]]] = {
    "gpt3-175b": (_GPT3, _GPT3_NOTE),
    "phi-3-mini": (_PHI3_MINI, None),
    "llama-2-7b": (_LLAMA2_7B, None),
    "llama-3-8b": (_LLAMA3_8B, None),
    "gpt2": (_GPT2, None),
}
_TRANSFORMER: Final = "transformer-base"
PRESETS: Final = (*_CONFIGS, _TRANSFORMER)

# arXiv 1706.03762, table 3 (base) and section 5.1: a shared vocabulary of about 37000 pairs.
_WIDE, _INNER, _LAYERS = 512, 2048, 6


def preset_facts(name: str) -> Facts:
    """Raises UsageError, naming the nearest, for an unknown name."""
    if name == _TRANSFORMER:
        return _transformer_base()
    if name not in _CONFIGS:
        begun = [one for one in PRESETS if name and one.startswith(name)]
        near = begun or difflib.get_close_matches(name, PRESETS, n=1)
        raise UsageError(
            f"there is no preset {printable(repr(name), 60)}",
            hint=(f"did you mean {near[0]}? " if near else "")
            + f"the presets are {', '.join(PRESETS)}",
        )
    config, note = _CONFIGS[name]
    return replace(config_facts(name, config, note=note), source=Source(origin="preset"))


def _transformer_base() -> Facts:
    """The decoder stack of the first transformer, which was an encoder-decoder."""
    spec = DecoderSpec(
        vocab_size=37000,
        hidden_size=_WIDE,
        intermediate_size=_INNER,
        num_heads=8,
        num_kv_heads=8,
        head_dim=64,
        max_positions=512,
        layers=(LayerSpec(),) * _LAYERS,
        norm="layer",
        norm_eps=1e-6,
        mlp="plain",
        activation="relu",
        attn_scale=64**-0.5,
        tie_embeddings=True,
        positions=Sinusoidal(),
        final_norm=False,
        residual="post",
        mlp_bias=True,
        embed_scale=_WIDE**0.5,
    )
    attention, norm = 4 * _WIDE * _WIDE, 2 * _WIDE
    mlp = 2 * _WIDE * _INNER + _INNER + _WIDE
    encoder, cross = _LAYERS * (attention + mlp + 2 * norm), _LAYERS * (attention + norm)
    note = (
        "sizes from arXiv 1706.03762. It is an encoder-decoder; shown is the decoder's own stack, "
        "counted without the attention to the encoder. The whole adds "
        f"{encoder:,} parameters of the encoder and {cross:,} of that attention. The paper sets "
        "no longest text; 512 stands for one"
    )
    return Facts(
        name=_TRANSFORMER,
        config={},
        family="transformer",
        spec=spec,
        source=Source(origin="preset"),
        note=note,
    )
