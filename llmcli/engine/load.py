"""From a folder to a filled decoder: directory, family, spec, plan, tensors, in that order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch

from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.packed_form import PackedForm, refuse_quantizing
from llmcli.checkpoint.plan import LoadPlan
from llmcli.checkpoint.tensors import TensorFiles
from llmcli.engine.accelerate import KernelChoice, accelerate, lacking, start_kernels
from llmcli.engine.device import DtypeName, choose_device, choose_dtype
from llmcli.engine.packing import packed_parameters, put_together, require_unpacking
from llmcli.engine.proved import prove_folder
from llmcli.kernels.team import Team
from llmcli.model import Decoder
from llmcli.spec import (
    INT4_GROUP,
    DecoderSpec,
    PackingKind,
    matrices,
    packing,
    parameter_shapes,
    wide_parameters,
)

_STORED = {
    "F32": torch.float32,
    "F64": torch.float64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}

# (bytes done, bytes in all)
OnProgress = Callable[[int, int], None]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A decoder ready to run, with the reasons for what was chosen and the warnings met.

    `quantized` is what its matrices were packed to while loading, `form` how they lie packed in
    the file.
    """

    decoder: Decoder
    family: str
    device_reason: str
    dtype_reason: str
    kernels: str
    quantized: PackingKind | None
    form: PackedForm | None
    warnings: tuple[str, ...]

    @property
    def spec(self) -> DecoderSpec:
        return self.decoder.spec


def load_decoder(
    directory: ModelDir,
    *,
    device: str = "auto",
    dtype: DtypeName = "auto",
    kernels: KernelChoice = "off",
    quantize: PackingKind | None = None,
    group: int = INT4_GROUP,
    as_stored: bool = False,
    on_progress: OnProgress | None = None,
    on_compile: Callable[[], None] | None = None,
) -> Loaded:
    """Read, prove and fill. Peak memory is the decoder's own size plus one tensor.

    Where kernels run and the dtype is left to us, the matrices of a 16-bit file stay as they are,
    and so they do with `as_stored`. With `quantize` matrices are packed as they are read, for int4
    in groups of `group`. `on_compile` is called if kernels have to be compiled for this machine
    first.

    Raises CheckpointError or UnsupportedError before any weight is read where config and
    headers do not fit, UsageError where `quantize` is asked of a quantised checkpoint.
    """
    refuse_quantizing(directory.config, quantize, directory.path.name)
    with TensorFiles() as files:
        proved = prove_folder(directory, files)
        spec, plan = proved.spec, proved.plan
        where, device_reason = choose_device(device)
        packed = proved.form is not None or quantize is not None
        kind, dtype_reason = choose_dtype(
            dtype,
            where,
            _commonest_dtype(plan),
            packed="no" if not packed else "file" if quantize is None else "loading",
        )
        if packed:
            require_unpacking(where)
        kinds = packing(spec, quantize) if quantize else {}
        team = start_kernels(kernels, spec, where, kind, on_compile=on_compile)
        # Without kernels every step would make floats of them again.
        stays = as_stored or (isinstance(team, Team) and dtype == "auto")
        parameters = files.parameters(
            plan,
            dtype=kind,
            device=where,
            wide=wide_parameters(spec),
            kept=matrices(spec) if stays else frozenset(),
            passing=frozenset(kinds),
        )
        counted = _counted(parameters, plan, on_progress)
        made = put_together(counted, parameter_shapes(spec))
        held = packed_parameters(made, kinds, device=where, group=group)
        decoder = Decoder.filled(spec, held, dtype=kind)
    path = accelerate(decoder.eval(), team, required=kernels == "on")
    why = lacking(decoder) if kernels == "on" and isinstance(team, Team) else None
    short = (f"--kernels on: only its products run in compiled kernels ({why})",) if why else ()
    return Loaded(
        decoder,
        proved.family,
        device_reason,
        dtype_reason,
        path,
        quantize,
        proved.form,
        (*proved.warnings, *short),
    )


def _commonest_dtype(plan: LoadPlan) -> torch.dtype:
    bytes_by_dtype: Counter[str] = Counter()
    for item in plan.assignments:
        if not item.packed:
            bytes_by_dtype[item.source.dtype] += item.source.nbytes
    # A file may hold nothing but packed matrices.
    return _STORED[bytes_by_dtype.most_common(1)[0][0]] if bytes_by_dtype else torch.float32


def _counted(
    parameters: Iterable[tuple[str, _T]], plan: LoadPlan, on_progress: OnProgress | None
) -> Iterator[tuple[str, _T]]:
    total = sum(item.source.nbytes for item in plan.assignments)
    done = 0
    for (name, tensor), item in zip(parameters, plan.assignments, strict=True):
        yield name, tensor
        done += item.source.nbytes
        if on_progress is not None:
            on_progress(done, total)
