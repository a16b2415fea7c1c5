"""What a decoder *is*: frozen facts of an architecture, and what follows from them alone.

Must not know torch, files or families: a spec can be built, compared and counted anywhere.
"""

from llmcli.spec.decoder import (
    Activation,
    DecoderSpec,
    LayerSpec,
    Learned,
    MlpKind,
    NormKind,
    Positions,
    SpecError,
)
from llmcli.spec.parameters import count_parameters, kv_bytes_per_token, parameter_shapes
from llmcli.spec.rope import LinearScaling, Llama3Scaling, Rope, RopeScaling

__all__ = [
    "Activation",
    "DecoderSpec",
    "LayerSpec",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "MlpKind",
    "NormKind",
    "Positions",
    "Rope",
    "RopeScaling",
    "SpecError",
    "count_parameters",
    "kv_bytes_per_token",
    "parameter_shapes",
]
