"""What a token leaves behind for later ones, in numbers and bytes, derived from the spec alone."""

from __future__ import annotations

from llmcli.spec.decoder import DecoderSpec

# The matrices of recurrent layers are float32 at least.
_STATE_BYTES = 4


def kv_shape(spec: DecoderSpec) -> tuple[int, int, int]:
    """Heads that are cached in a layer of attention, and the widths of a key and of a value.

    Latent attention caches its heads' keys and values whole.
    """
    if (latent := spec.latent) is not None:
        return spec.num_heads, latent.nope_dim + latent.rope_dim, latent.value_dim
    return spec.num_kv_heads, spec.head_dim, spec.head_dim


def kv_bytes_per_layer(spec: DecoderSpec, bytes_per_element: int) -> int:
    """Bytes of one token's keys and values in one layer of attention."""
    heads, key, value = kv_shape(spec)
    return heads * (key + value) * bytes_per_element


def kv_bytes_per_token(spec: DecoderSpec, bytes_per_element: int) -> int:
    """Bytes that one more token adds to a cache that keeps every layer's keys and values.

    A gated-delta layer keeps a state of fixed size and adds nothing.
    """
    caching = sum(layer.mixer == "attention" for layer in spec.layers)
    return caching * kv_bytes_per_layer(spec, bytes_per_element)


def state_bytes(spec: DecoderSpec, bytes_per_element: int) -> int:
    """Bytes that a gated-delta layer keeps: its heads' matrices, the filter's last inputs."""
    facts = spec.linear
    assert facts is not None
    channels = 2 * facts.num_key_heads * facts.key_dim + facts.num_value_heads * facts.value_dim
    matrices = facts.num_value_heads * facts.key_dim * facts.value_dim
    filtered = channels * (facts.conv_kernel - 1) * bytes_per_element
    return matrices * max(_STATE_BYTES, bytes_per_element) + filtered
