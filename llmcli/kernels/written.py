"""The kernels as LLVM's code, kept beside this file: how it is written and read.

    python -m llmcli.kernels.written

writes it anew from the sources, which takes numba and half a minute. It is simplified as far as
that is the same for every processor, so that users' machines have little left to do.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
from importlib.metadata import version
from pathlib import Path

NAME = "llmcli_kernels"
FILE = Path(__file__).with_name("kernels.ll.xz")
_SOURCES = Path(__file__).with_name("sources")
_FIRST_LINE = re.compile(r"; of sources ([0-9a-f]{64})\n")


def read() -> str:
    """The code as text."""
    return lzma.decompress(FILE.read_bytes()).decode()


def digest_of_sources() -> str:
    """What the first line of the code must say, where it is that of these sources."""
    digest = hashlib.sha256()
    paths = [*sorted(_SOURCES.glob("*.py")), Path(__file__), Path(__file__).with_name("layout.py")]
    for path in paths:
        digest.update(path.read_text(encoding="utf-8").encode())
    return digest.hexdigest()


def digest_in(text: str) -> str | None:
    """Of the sources that the code was written from."""
    found = _FIRST_LINE.match(text)
    return found[1] if found else None


def write() -> str:
    """The code of the sources as they are. Needs numba."""
    text = _named_plainly(_simplified(_from_numba()))
    by = ", ".join(f"{name} {version(name)}" for name in ("numba", "llvmlite"))
    return f"; of sources {digest_of_sources()}\n; by {by}\n{text}"


def _from_numba() -> str:
    """The entry point and all that it calls, as numba writes it."""
    # Read when numba is imported: what is simplified below need not be by it.
    os.environ["NUMBA_OPT"] = "0"
    os.environ["NUMBA_LOOP_VECTORIZE"] = "0"
    from numba import types

    from llmcli.kernels.sources.entry import run

    arguments = (types.int64,) * 4
    run.compile(arguments)
    text: str = run.inspect_llvm(arguments)
    # No array here owns its memory, so there is nothing to count.
    text = re.sub(r"^.*call void @NRT_(?:inc|dec)ref\(.*$", "", text, flags=re.MULTILINE)
    (name,) = set(re.findall(r"^define i32 @([\w.$]*5entry3run[\w.$]*)\(", text, re.MULTILINE))
    return text.replace(name, NAME)


def _simplified(text: str) -> str:
    """Without what is never called or read, and without a processor's own ways."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name != NAME:
            one.linkage = "internal"
    plain = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    tuning = llvm.create_pipeline_tuning_options(speed_level=1)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    tuning.loop_interleaving = tuning.loop_unrolling = False
    passes = llvm.create_pass_builder(plain, tuning)
    passes.getModulePassManager().run(module, passes)
    text = re.sub(r"^(?:target|source_filename|; ModuleID) .*\n", "", str(module), flags=re.M)
    # What releases of LLVM write in different ways, and nothing is lost without.
    newer = r" captures\(none\)| nocreateundeforpoison|, target_mem\d: none|^.*llvm\.lifetime\..*\n"
    return re.sub(newer, "", text, flags=re.MULTILINE)


def _named_plainly(text: str) -> str:
    """Functions by their own names and a number, rather than with all their types in them."""
    plain: dict[str, str] = {}

    def short(found: re.Match[str]) -> str:
        mangled = found[0]
        if mangled not in plain:
            # A name's parts follow one another, each behind its length.
            parts, rest = [], mangled.removeprefix("_ZN")
            while length := re.match(r"\d+", rest):
                end = length.end() + int(length[0])
                parts.append(rest[length.end() : end])
                rest = rest[end:]
            plain[mangled] = f"{parts[-1]}.{len(plain)}"
        return plain[mangled]

    return re.sub(r"_ZN\w+", short, text)


if __name__ == "__main__":
    _beside = FILE.with_suffix(".part")
    _beside.write_bytes(lzma.compress(write().encode(), preset=9))
    _beside.replace(FILE)
