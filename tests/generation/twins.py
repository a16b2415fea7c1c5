"""The same random weights as a transformers model and as a decoder of ours."""

from __future__ import annotations

from typing import Any

import torch

from llmcli.families import read_spec
from llmcli.model import Decoder

_OUR_NAMES = {
    "model.": "",
    "self_attn.": "attn.",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "mlp_norm",
}


def llama_twins(dtype: torch.dtype = torch.float32) -> tuple[Any, Decoder]:
    """A LlamaForCausalLM of two layers and 50 ids, stop id 7, and the decoder that equals it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=None, eos_token_id=7, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().to(dtype)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5)
    parameters = {}
    for name, tensor in model.state_dict().items():
        for theirs, ours in _OUR_NAMES.items():
            name = name.replace(theirs, ours)
        parameters[name] = tensor
    spec = read_spec(config.to_dict())[1]
    return model, Decoder.filled(spec, parameters.items()).eval()
