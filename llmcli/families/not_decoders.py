"""Model types that are no causal decoders: encoders, encoder-decoders. Must not know families."""

from __future__ import annotations

from typing import Final

ENCODERS: Final = frozenset(
    """
    albert bert big_bird camembert canine clip convbert data2vec-text deberta deberta-v2
    distilbert electra ernie esm flaubert fnet funnel ibert layoutlm layoutlmv2 layoutlmv3
    longformer luke megatron-bert mobilebert modernbert mpnet mra nezha nomic_bert nystromformer
    qdqbert rembert roberta roberta-prelayernorm roc_bert roformer siglip splinter squeezebert
    tapas vit wav2vec2 xlm xlm-roberta xlm-roberta-xl xmod yoso
    """.split()
)

ENCODER_DECODERS: Final = frozenset(
    """
    bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder fsmt led longt5 m2m_100
    marian mbart mt5 mvp nllb-moe pegasus pegasus_x plbart prophetnet speech_to_text
    switch_transformers t5 t5gemma umt5 vision-encoder-decoder whisper
    """.split()
)


def why_not(model_type: str) -> str | None:
    """The reason that a model type cannot continue a text, or None where none is known."""
    if model_type in ENCODERS:
        return "an encoder, not a causal decoder"
    if model_type in ENCODER_DECODERS:
        return "an encoder-decoder, not a causal decoder"
    return None
