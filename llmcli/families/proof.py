"""The load plan of a spec and stored tensors, whichever way the tensors are stored."""

from __future__ import annotations

from collections.abc import Mapping

from llmcli.checkpoint.header import StoredTensor
from llmcli.checkpoint.packed_form import PackedForm, make_packed_plan
from llmcli.checkpoint.plan import LoadPlan, make_plan
from llmcli.families.family import Family
from llmcli.spec import DecoderSpec, packable, parameter_shapes


def prove(
    family: Family,
    spec: DecoderSpec,
    stored: Mapping[str, StoredTensor],
    form: PackedForm | None = None,
) -> LoadPlan:
    """Raises CheckpointError where they do not fit.

    A file in llmcli's own quantised form bears the decoder's own names, so that the family has no
    say in it.
    """
    shapes = parameter_shapes(spec)
    if form is not None:
        return make_packed_plan(shapes, stored, form, packable=packable(spec))
    return make_plan(
        shapes,
        stored,
        family.rules(spec),
        num_layers=spec.num_layers,
        num_experts=spec.experts.count if spec.experts else 0,
        prefixes=family.prefixes,
    )
