"""Which checkpoint, and where and how it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from llmcli.cli.options.making import MACHINE, flag, one_of, value_option, whole_parser

DtypeChoice = Literal["auto", "float32", "bfloat16", "float16"]
CacheChoice = Literal["growing", "ring", "static", "quantized-8", "quantized-4", "offloaded"]
KernelsChoice = Literal["auto", "on", "off"]
QuantizeChoice = Literal["int8", "int4"]
Model = Annotated[
    str | None,
    value_option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A folder, a catalogue name or a hub id OWNER/NAME "
        "[default: $LLMCLI_MODEL, else smollm2].",
        panel=MACHINE,
    ),
]
Device = Annotated[
    str | None,
    value_option(
        "--device",
        metavar="DEVICE",
        help="auto, cpu, cuda, cuda:N or mps [default: auto].",
        panel=MACHINE,
    ),
]
Dtype = Annotated[
    DtypeChoice | None,
    value_option(
        "--dtype",
        metavar="DTYPE",
        help="Compute in auto, float32, bfloat16 or float16 [default: auto].",
        panel=MACHINE,
        parser=one_of("--dtype", DtypeChoice),
    ),
]
Threads = Annotated[
    int | None,
    value_option(
        "--threads",
        metavar="N",
        help="CPU threads [default: one a physical core].",
        panel=MACHINE,
        parser=whole_parser("--threads"),
    ),
]
Kernels = Annotated[
    KernelsChoice | None,
    value_option(
        "--kernels",
        metavar="auto|on|off",
        help="Steps in compiled kernels (CPU) or recorded (CUDA) [default: auto].",
        panel=MACHINE,
        parser=one_of("--kernels", KernelsChoice),
    ),
]
Quantize = Annotated[
    QuantizeChoice | None,
    value_option(
        "--quantize",
        metavar="int8|int4",
        help="Hold the weight matrices in 8 or 4 bits [default: as they are stored].",
        panel=MACHINE,
        parser=one_of("--quantize", QuantizeChoice),
    ),
]
KvCache = Annotated[
    bool | None,
    flag(
        "--kv-cache/--no-kv-cache",
        help="Keep keys and values, or compute them anew for each token [default: keep].",
        panel=MACHINE,
    ),
]
Cache = Annotated[
    CacheChoice | None,
    value_option(
        "--cache",
        metavar="KIND",
        help="How keys and values are kept: growing, ring (windowed layers end at their window), "
        "static (all memory at once), quantized-8, quantized-4 or offloaded (to host memory, on "
        "CUDA) [default: ring where the model has windows, else growing].",
        panel=MACHINE,
        parser=one_of("--cache", CacheChoice),
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Which checkpoint, and where it runs."""

    model: Model = None
    device: Device = None
    dtype: Dtype = None
    threads: Threads = None
    kernels: Kernels = None
    quantize: Quantize = None
    kv_cache: KvCache = None
    cache: Cache = None

    @property
    def cache_kind(self) -> CacheChoice | Literal["auto", "none"]:
        """As the engine takes it."""
        return "none" if self.kv_cache is False else self.cache or "auto"
