"""The gpt2 architecture: its config.json and its tensors.

The checkpoint keeps its projections as [inputs, outputs]; the file has them the other way.
"""

from __future__ import annotations

from llmcli.acquire.gguf.keys import Keys
from llmcli.acquire.gguf.reader import GgufFile
from llmcli.acquire.gguf.rules import Architecture, Shaped, TensorRule, matrix, tied
from llmcli.acquire.gguf.sizes import read_sizes


def _config(file: GgufFile) -> Shaped:
    keys = Keys(file, "gpt2")
    sizes = read_sizes(file, keys, own_head_dim=False)
    if sizes.kv_heads != sizes.heads:
        raise file.fault(
            f"has {sizes.kv_heads} key-value heads for {sizes.heads} heads",
            "config.json of this architecture has no word for shared keys",
        )
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": sizes.vocab,
        "n_positions": sizes.context,
        "n_embd": sizes.hidden,
        "n_layer": sizes.layers,
        "n_head": sizes.heads,
        "n_inner": sizes.inner,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "tie_word_embeddings": tied(file),
    }
    keys.refuse_unmapped(context=sizes.context)
    return Shaped(config, sizes.table(), frozenset(keys.read))


def _norm(source: str, target: str) -> tuple[TensorRule, ...]:
    return tuple(
        TensorRule(f"{source}.{part}", f"{target}.{part}", ("hidden",))
        for part in ("weight", "bias")
    )


_LAYER = "transformer.h.{i}."

GPT2 = Architecture(
    name="gpt2",
    config=_config,
    rules=(
        TensorRule("token_embd.weight", "transformer.wte.weight", ("vocab", "hidden")),
        TensorRule("position_embd.weight", "transformer.wpe.weight", ("context", "hidden")),
        *_norm("output_norm", "transformer.ln_f"),
        TensorRule("output.weight", "lm_head.weight", ("vocab", "hidden"), optional=True),
        *_norm("blk.{i}.attn_norm", _LAYER + "ln_1"),
        *matrix(
            "attn_qkv",
            _LAYER + "attn.c_attn",
            ("qkv", "hidden"),
            bias="always",
            form="transposed",
        ),
        *matrix(
            "attn_output",
            _LAYER + "attn.c_proj",
            ("hidden", "query"),
            bias="always",
            form="transposed",
        ),
        *_norm("blk.{i}.ffn_norm", _LAYER + "ln_2"),
        *matrix(
            "ffn_up", _LAYER + "mlp.c_fc", ("inner", "hidden"), bias="always", form="transposed"
        ),
        *matrix(
            "ffn_down", _LAYER + "mlp.c_proj", ("hidden", "inner"), bias="always", form="transposed"
        ),
    ),
)
