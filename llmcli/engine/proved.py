"""From a folder to a plan: config, headers, spec; no weight is read, but for copies of a tied head.

Must not know devices or the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.packed_form import PackedForm, packed_form
from llmcli.checkpoint.plan import LoadPlan
from llmcli.checkpoint.tensors import TensorFiles
from llmcli.families import read_spec
from llmcli.families.proof import prove
from llmcli.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class Proved:
    """A checkpoint whose files and config fit; `form` where it is in llmcli's quantised form.

    `separate_head`: the config ties the head, and the file holds another one all the same.
    """

    family: str
    spec: DecoderSpec
    plan: LoadPlan
    form: PackedForm | None
    separate_head: bool
    warnings: tuple[str, ...]


def prove_folder(directory: ModelDir, files: TensorFiles) -> Proved:
    """Raises CheckpointError or UnsupportedError before any weight is read.

    A head that the config ties, but of which the file holds another version, is the file's own.
    """
    family, spec, warnings = read_spec(directory.config)
    form = packed_form(directory.config)
    stored = directory.tensors()
    plan = prove(family, spec, stored, form)
    separate = not files.repeats_equal(plan)
    if separate:
        warnings.append(
            "config.json ties the head to the embedding, but the file holds a different "
            "lm_head; the file's head is used, as transformers does"
        )
        spec = replace(spec, tie_embeddings=False)
        plan = prove(family, spec, stored, form)
    return Proved(family.name, spec, plan, form, separate, tuple(warnings))
