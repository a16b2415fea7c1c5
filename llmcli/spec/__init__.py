"""What a decoder *is*: frozen facts of an architecture, and what follows from them alone.

Must not know torch, files or families: a spec can be built, compared and counted anywhere.
"""

from llmcli.spec.caching import GROWTH_STEP, LOSSY, CacheKind, default_kind
from llmcli.spec.decoder import (
    Activation,
    Alibi,
    DecoderSpec,
    LayerSpec,
    Learned,
    MlpKind,
    NormKind,
    OutputGate,
    Positions,
    QkNorm,
    Residual,
    Sinusoidal,
    SpecError,
)
from llmcli.spec.kept import kv_bytes_per_layer, kv_bytes_per_token, kv_shape, state_bytes
from llmcli.spec.packing import (
    INT4_GROUP,
    PackingKind,
    int8_group,
    packable,
    packed_bytes,
    packed_parts,
    packing,
)
from llmcli.spec.parameters import (
    count_parameters,
    matrices,
    parameter_shapes,
    wide_parameters,
)
from llmcli.spec.parts import Experts, GatedDelta, Latent
from llmcli.spec.rope import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    Rope,
    RopeScaling,
    YarnScaling,
)

__all__ = [
    "GROWTH_STEP",
    "INT4_GROUP",
    "LOSSY",
    "Activation",
    "Alibi",
    "CacheKind",
    "DecoderSpec",
    "DynamicScaling",
    "Experts",
    "GatedDelta",
    "Latent",
    "LayerSpec",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "LongRopeScaling",
    "MlpKind",
    "NormKind",
    "OutputGate",
    "PackingKind",
    "Positions",
    "QkNorm",
    "Residual",
    "Rope",
    "RopeScaling",
    "Sinusoidal",
    "SpecError",
    "YarnScaling",
    "count_parameters",
    "default_kind",
    "int8_group",
    "kv_bytes_per_layer",
    "kv_bytes_per_token",
    "kv_shape",
    "matrices",
    "packable",
    "packed_bytes",
    "packed_parts",
    "packing",
    "parameter_shapes",
    "state_bytes",
    "wide_parameters",
]
