"""Facts: all that is known of a checkpoint before any weight is read.

Must not know where a checkpoint comes from, nor torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.header import StoredTensor
from llmcli.checkpoint.listing import list_tensors
from llmcli.checkpoint.packed_form import PackedForm, packed_form
from llmcli.checkpoint.plan import LoadPlan
from llmcli.errors import CheckpointError
from llmcli.families import read_spec
from llmcli.families.proof import prove
from llmcli.spec import DecoderSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a checkpoint came from, as far as anyone recorded it."""

    origin: str | None = None
    licence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One checkpoint, or a bare config: then `stored` is None.

    `faults` are what is wrong with the files: cut, missing, or not fitting the spec; then `plan`
    may be None. `warnings` are those of reading the config. `form` is how the matrices are packed
    where they are quantised.
    `note` tells what a preset leaves out.
    """

    name: str
    config: Mapping[str, Any]
    family: str
    spec: DecoderSpec
    stored: Mapping[str, StoredTensor] | None = None
    plan: LoadPlan | None = None
    form: PackedForm | None = None
    faults: tuple[CheckpointError, ...] = ()
    source: Source = field(default_factory=Source)
    note: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """Everything that a listing should warn of."""
        return (*self.warnings, *(fault.message for fault in self.faults))


def config_facts(name: str, config: Mapping[str, Any], *, note: str | None = None) -> Facts:
    """From a config.json alone. Raises UnsupportedError or CheckpointError as read_spec does."""
    family, spec, warnings = read_spec(config)
    return Facts(
        name=name,
        config=config,
        family=family.name,
        spec=spec,
        form=packed_form(config),
        note=note,
        warnings=tuple(warnings),
    )


def folder_facts(name: str, directory: ModelDir, source: Source) -> Facts:
    """From a folder's config.json and headers, whatever state the data is in.

    Raises as read_spec does; what is wrong with the weight files is in the result.
    """
    family, spec, warnings = read_spec(directory.config)
    form = packed_form(directory.config)
    listing = list_tensors(directory)
    plan, faults = None, [*listing.faults]
    if listing.tensors:
        try:
            plan = prove(family, spec, listing.tensors, form)
        except CheckpointError as error:
            faults.append(error)
    return Facts(
        name=name,
        config=directory.config,
        family=family.name,
        spec=spec,
        stored=listing.tensors or None,
        plan=plan,
        form=form,
        faults=tuple(faults),
        source=source,
        warnings=tuple(warnings),
    )
