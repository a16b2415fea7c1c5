"""The oracle: a tiny checkpoint of one family, made and saved by transformers.

Every parameter is drawn anew, since fresh models have norm weights of 1 and biases of 0, which
hide a dropped switch. Our side reads only the folder.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel

from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import Loaded, load_decoder
from llmcli.model import Decoder

# Logits must differ from one another by much more than any tolerance.
LEAST_STD = 0.3
# Of the logits' standard deviation, in float32.
TOLERANCE = 1e-4
# Rotary keys that the hub's files have on top, some under an older name.
_ROPE_KEYS = {key: key for key in ("rope_theta", "partial_rotary_factor")}
_OLDER_KEYS = {
    "gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
}
# Buffers that checkpoints hold and that compute something.
_STORED_BUFFERS = ("e_score_correction_bias",)
# Ids fed at once, and ids that follow them.
PROMPT, NEW = 12, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of checkpoint. `config` makes a tiny transformers config; the rest are options.

    `tokens` should lie well beyond any window. `bfloat16` marks the row of a family that is
    compared in bfloat16 too. `norm_around` is what norm weights are drawn around (0 where a
    family multiplies by 1 + w). `validated` False is for a config that transformers computes
    but refuses to construct. `attention` is transformers' implementation; eager is its plainest.
    """

    name: str
    config: Callable[[], PreTrainedConfig]
    tokens: int = 48
    bfloat16: bool = False
    norm_around: float = 1.0
    validated: bool = True
    attention: str = "eager"

    def model_type(self) -> str:
        with validation(on=self.validated):
            return str(self.config().model_type)


@dataclass(frozen=True)
class Oracle:
    """A saved checkpoint, transformers' model of it in float32, and ids to feed to both."""

    row: Row
    folder: Path
    model: PreTrainedModel
    ids: Tensor

    @cached_property
    def loaded(self) -> Loaded:
        """Our decoder of the same folder, in float32."""
        return load_decoder(ModelDir.open(self.folder), device="cpu", dtype="float32")

    @cached_property
    def exact(self) -> Decoder:
        """Our decoder with the same weights, in float64."""
        parameters = ((name, one.double()) for name, one in self.loaded.decoder.named_parameters())
        return Decoder.filled(self.loaded.spec, parameters).eval()

    @cached_property
    def logits(self) -> Tensor:
        """transformers' logits [T,V] of all ids, checked to be varied enough to compare."""
        with torch.inference_mode():
            logits: Tensor = self.model(self.ids).logits[0]
        assert logits.std() > LEAST_STD, f"{self.row.name}: logits too alike: {logits.std():.3f}"
        return logits

    @cached_property
    def greedy(self) -> list[int]:
        """transformers' NEW ids after PROMPT ids, once no rounding can turn one of them."""
        prompt = self.ids[:, :PROMPT]
        made = self.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=NEW,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        logits = torch.cat(made.logits)
        best = logits.topk(2, dim=-1).values
        assert (best[:, 0] - best[:, 1]).min() > 2 * TOLERANCE * logits.std()
        ids: list[int] = made.sequences[0, PROMPT:].tolist()
        return ids


def build(row: Row, folder: Path) -> Oracle:
    """Make, randomise and save the checkpoint of a row."""
    seed = zlib.crc32(row.name.encode())
    with validation(on=row.validated):
        config = row.config()
        # Generation must end by length alone.
        config.bos_token_id = config.eos_token_id = config.pad_token_id = None
        model = AutoModelForCausalLM.from_config(config, attn_implementation=row.attention)
        randomise(model, seed, norm_around=row.norm_around)
        model.save_pretrained(folder)
    model.generation_config.eos_token_id = None
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(config.vocab_size, (1, row.tokens), generator=generator)
    return Oracle(row, folder, model.eval(), ids)


def randomise(model: nn.Module, seed: int, *, norm_around: float = 1.0) -> None:
    """Draw every parameter so that each part of the model shapes the logits."""
    generator = torch.Generator().manual_seed(seed)

    def normal(parameter: Tensor, std: float) -> Tensor:
        return torch.randn(parameter.shape, generator=generator) * std

    drawn: set[nn.Parameter] = set()
    for module in model.modules():
        kind = type(module).__name__
        for name, parameter in module.named_parameters(recurse=False):
            if parameter in drawn:
                continue
            drawn.add(parameter)
            if "Norm" in kind and name == "weight":
                spread = torch.rand(parameter.shape, generator=generator) - 0.5
                value = norm_around + spread
            elif parameter.dim() < 2:
                value = normal(parameter, 0.4)
            elif isinstance(module, nn.Embedding):
                value = normal(parameter, 1.0)
            elif name.endswith("_bias"):
                value = normal(parameter, 0.4)  # one row an expert
            else:
                # GPT-2's Conv1D and gpt-oss' experts keep [C_in, C_out], all others [C_out, C_in].
                fan_in = parameter.shape[-2 if kind in ("Conv1D", "GptOssExperts") else -1]
                value = normal(parameter, 1.2 * fan_in**-0.5)
            parameter.data.copy_(value)
        for name, buffer in module.named_buffers(recurse=False):
            if name in _STORED_BUFFERS:
                buffer.copy_(normal(buffer, 0.4))


def write_hub_dialect(folder: Path) -> None:
    """Rewrite a saved config.json as the hub has it: `rope_theta`, `rope_scaling` on top."""
    path = folder / "config.json"
    config: dict[str, Any] = json.loads(path.read_text())
    if nested := config.pop("rope_parameters", None):
        if local := nested.get("sliding_attention"):
            config["rope_local_base_freq"] = local["rope_theta"]
            nested = nested["full_attention"]
        for key, older in _OLDER_KEYS.get(config["model_type"], _ROPE_KEYS).items():
            if (value := nested.pop(key, None)) is not None:
                config[older] = value
        plain = nested.get("rope_type", "default") == "default"
        config["rope_scaling"] = None if plain else nested
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


def assert_close(
    ours: Tensor, theirs: Tensor, *, tolerance: float = TOLERANCE, of: str = ""
) -> None:
    """Logits equal up to `tolerance` of their standard deviation."""
    worst = (ours - theirs).abs().max().item()
    allowed = tolerance * theirs.std().item()
    assert worst <= allowed, f"{of}logits differ by {worst:.2e}, allowed {allowed:.2e}"


def validation(*, on: bool) -> AbstractContextManager[Any]:
    return nullcontext() if on else mock.patch.object(LlamaConfig, "__class_validators__", [])
