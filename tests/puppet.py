"""PUPPET: a checkpoint that says exactly what its script says, through the real loader and loop.

hidden = vocabulary, embedding = identity, every attention and MLP weight 0, norm weights 1,
`lm_head[next(i), i] = scale`: token i is always followed by next(i). The gap between the best
and the second logit is `scale * sqrt(vocabulary)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

Kind = Literal["byte-level", "byte-fallback"]

# Text, one token; or bytes, one token each. Text that is an added token's is that token. A byte
# is the vocabulary's own token the first time, so a prompt must not end in that very byte.
Piece = str | bytes
Script = Sequence[Piece]

# A second token of the same text carries this mark, which the decoder takes away again.
_AGAIN = "\ue000"
_UNKNOWN = "<unk>"


@dataclass(frozen=True, slots=True)
class Added:
    """An added token. One that is special is hidden from the text."""

    content: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False


@dataclass(frozen=True, slots=True)
class Puppet:
    """What was written: the folder, the ids of each script by its trigger, and id by text."""

    folder: Path
    scripts: Mapping[str, list[int]]
    added: Mapping[str, int]
    vocab_size: int

    @property
    def ids(self) -> list[int]:
        """The ids of the script that is said when no trigger is met, its end included."""
        return self.scripts[""]


def make_puppet(
    folder: Path,
    script: Script | Mapping[str, Script],
    *,
    kind: Kind = "byte-level",
    added: Sequence[Added] = (),
    eos: Sequence[str] = ("<|end|>",),
    bos: str | None = None,
    ends: bool = True,
    next_ids: Mapping[int, int] | None = None,
    scale: float = 1.0,
    max_positions: int = 2048,
    layers: int = 1,
    dtype: torch.dtype = torch.float32,
    chat_template: str | None = None,
    generation_config: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    tokenizer_config: Mapping[str, Any] | None = None,
) -> Puppet:
    """Write a puppet's folder.

    `script` is said after whatever prompt. As a mapping it holds one script for each trigger,
    the last token of a prompt (an added token's text or one byte of text); "" is all others.
    A script ends with the first of `eos`, or begins anew where `ends` is false. Texts may recur.
    `next_ids` overrides single successors; `scale` shrinks the gap, so that sampling wanders.
    `bos` is put in front of every prompt by the tokenizer. `added` lists further added tokens;
    those named by `eos` and `bos` are there, special, without being listed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scripts = dict(script) if isinstance(script, Mapping) else {"": script}
    listed = {one.content: one for one in added}
    for name in (*eos, *([bos] if bos else [])):
        listed.setdefault(name, Added(name))
    vocabulary = _Vocabulary(kind, listed)
    said: dict[str, list[int]] = {}
    for trigger, pieces in scripts.items():
        said[trigger] = [token for piece in pieces for token in vocabulary.own(piece)]
        if ends:
            said[trigger].append(vocabulary.added[eos[0]])
    size = vocabulary.size
    successors = _successors(said, vocabulary, size) | dict(next_ids or {})
    _write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": size,
            "hidden_size": size,
            "intermediate_size": 2,
            "num_hidden_layers": layers,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 2,
            "max_position_embeddings": max_positions,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "eos_token_id": vocabulary.added[eos[0]] if eos else None,
            "bos_token_id": vocabulary.added[bos] if bos else None,
            "torch_dtype": str(dtype).removeprefix("torch."),
            **(config or {}),
        },
    )
    _write_weights(folder, size, layers, successors, scale, dtype)
    vocabulary.tokenizer(bos).save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **({"eos_token": eos[0]} if eos else {}),
            **({"bos_token": bos} if bos else {}),
            **(tokenizer_config or {}),
        },
    )
    stops = [vocabulary.added[name] for name in eos]
    _write_json(
        folder / "generation_config.json",
        {"eos_token_id": stops[0] if len(stops) == 1 else stops, **(generation_config or {})},
    )
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    return Puppet(folder, said, vocabulary.added, size)


class _Vocabulary:
    """Tokens for each byte, tokens of the scripts, added tokens; no merges."""

    def __init__(self, kind: Kind, listed: Mapping[str, Added]) -> None:
        self._kind = kind
        self._ids: dict[str, int] = {}
        self._said: set[int] = set()
        if kind == "byte-fallback":
            self._new(_UNKNOWN)
            self._new("▁")
        for byte in range(256):
            self._new(self._spelled(bytes([byte])))
        self._listed = list(listed.values())
        # Added tokens are part of the model's vocabulary, so that their ids are known here.
        self.added = {one.content: self._new(one.content) for one in self._listed}

    @property
    def size(self) -> int:
        """How many ids there are, so far."""
        return len(self._ids)

    def own(self, piece: Piece) -> list[int]:
        """Ids that no other place of a script uses: one for a text, one for each of some bytes."""
        if isinstance(piece, bytes):
            return [self._byte(piece[at : at + 1]) for at in range(len(piece))]
        if piece in self.added:
            return [self.added[piece]]
        # A single character is what prompts are made of, so the script needs one of its own.
        spelled = self._spelled(piece)
        return [self._again(spelled + _AGAIN if len(spelled) == 1 else spelled)]

    def trigger(self, text: str) -> int:
        """The id of a prompt's last token."""
        return self.added[text] if text in self.added else self._ids[self._spelled(text.encode())]

    def tokenizer(self, bos: str | None) -> Tokenizer:
        fallback = self._kind == "byte-fallback"
        model = models.BPE(
            vocab=self._ids,
            merges=[],
            unk_token=_UNKNOWN if fallback else None,
            byte_fallback=fallback,
        )
        tokenizer = Tokenizer(model)
        unmark = decoders.Replace(_AGAIN, "")
        if fallback:
            tokenizer.normalizer = normalizers.Sequence(
                [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
            )
            tokenizer.decoder = decoders.Sequence(
                [
                    unmark,
                    decoders.Replace("▁", " "),
                    decoders.ByteFallback(),
                    decoders.Fuse(),
                    decoders.Strip(" ", 1, 0),
                ]
            )
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
                add_prefix_space=False, use_regex=False
            )
            tokenizer.decoder = decoders.Sequence([unmark, decoders.ByteLevel()])
        for one in self._listed:
            tokenizer.add_tokens(
                [
                    AddedToken(
                        one.content,
                        special=one.special,
                        normalized=False,
                        lstrip=one.lstrip,
                        rstrip=one.rstrip,
                    )
                ]
            )
        if bos is not None:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", pair=None, special_tokens=[(bos, self.added[bos])]
            )
        return tokenizer

    def _spelled(self, piece: Piece) -> str:
        """A piece in the letters of the vocabulary."""
        if self._kind == "byte-level":
            return _byte_level(piece.encode() if isinstance(piece, str) else piece)
        if isinstance(piece, bytes):
            return "".join(f"<0x{byte:02X}>" for byte in piece)
        return piece.replace(" ", "▁")

    def _byte(self, byte: bytes) -> int:
        spelled = self._spelled(byte)
        token = self._ids[spelled]
        if token in self._said:
            return self._again(spelled)
        self._said.add(token)
        return token

    def _again(self, spelled: str) -> int:
        while spelled in self._ids:
            spelled += _AGAIN
        return self._new(spelled)

    def _new(self, spelled: str) -> int:
        return self._ids.setdefault(spelled, len(self._ids))


def _byte_level(data: bytes) -> str:
    return "".join(_letters()[byte] for byte in data)


@cache
def _letters() -> dict[int, str]:
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    seen = set(shown)
    hidden = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in shown} | {
        byte: chr(256 + number) for number, byte in enumerate(hidden)
    }


def _successors(
    said: Mapping[str, list[int]], vocabulary: _Vocabulary, size: int
) -> dict[int, int]:
    """next(i) for every id: the next of its script, or the first of the script it triggers."""
    default = said.get("") or next(iter(said.values()))
    successors = dict.fromkeys(range(size), default[0])
    for trigger, ids in said.items():
        if trigger:
            successors[vocabulary.trigger(trigger)] = ids[0]
    for ids in said.values():
        successors.update(_pairs(ids))
    return successors


def _pairs(ids: Sequence[int]) -> Iterable[tuple[int, int]]:
    steps = list(pairwise(ids))
    for token, after in steps:
        clash = [other for one, other in steps if one == token and other != after]
        assert not clash, f"the script says token {token} twice with different successors"
    return steps


def _write_weights(
    folder: Path,
    size: int,
    layers: int,
    successors: Mapping[int, int],
    scale: float,
    dtype: torch.dtype,
) -> None:
    head = torch.zeros(size, size)
    for token, after in successors.items():
        head[after, token] = scale
    tensors = {
        "model.embed_tokens.weight": torch.eye(size),
        "model.norm.weight": torch.ones(size),
        "lm_head.weight": head,
    }
    for index in range(layers):
        layer = f"model.layers.{index}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}.{norm}.weight"] = torch.ones(size)
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
            tensors[f"{layer}.{name}.weight"] = torch.zeros(2, size)
        for name in ("mlp.gate_proj", "mlp.up_proj"):
            tensors[f"{layer}.{name}.weight"] = torch.zeros(2, size)
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            tensors[f"{layer}.{name}.weight"] = torch.zeros(size, 2)
    save_file(
        {name: tensor.to(dtype) for name, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
