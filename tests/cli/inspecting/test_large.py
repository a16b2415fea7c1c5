"""Headers alone: 70 billion parameters in sparse files, of which nothing else is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmcli.checkpoint.directory import ModelDir
from llmcli.families import read_spec
from llmcli.families.proof import prove
from llmcli.spec import count_parameters, parameter_shapes
from tests.cli.conftest import Invoke
from tests.families.known_configs import LLAMA_3_1_8B
from tests.tiny import stored_name

CONFIG: dict[str, Any] = {
    **LLAMA_3_1_8B,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
}
SHARDS = 30


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """141 GB by their lengths, next to nothing on disk."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    shapes = [*parameter_shapes(read_spec(CONFIG)[1]).items()]
    weight_map = {}
    for shard in range(SHARDS):
        name, end = f"model-{shard:05}.safetensors", 0
        entries: dict[str, Any] = {}
        for parameter, shape in shapes[shard::SHARDS]:
            size = 2
            for side in shape:
                size *= side
            entries[stored_name(parameter)] = {
                "dtype": "BF16",
                "shape": shape,
                "data_offsets": [end, end + size],
            }
            end += size
            weight_map[stored_name(parameter)] = name
        header = json.dumps(entries).encode()
        (folder / name).write_bytes(len(header).to_bytes(8, "little") + header)
        os.truncate(folder / name, 8 + len(header) + end)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_the_files_are_as_long_as_they_say(large: Path) -> None:
    files = [*large.glob("*.safetensors")]
    assert sum(file.stat().st_size for file in files) > 140e9
    assert sum(file.stat().st_blocks * 512 for file in files) < 10e6
    family, spec, _ = read_spec(CONFIG)
    assert len(prove(family, spec, ModelDir.open(large).tensors()).assignments) == 723
    assert count_parameters(spec) == 70_553_706_496


READS = """
import json, os, sys
import resource
from llmcli.cli.dispatch import run
code = run(sys.argv[1:])
sys.stdout.flush()
read = {k: int(v) for k, v in (line.split(":") for line in open("/proc/self/io"))}["rchar"]
# Not ru_maxrss, which begins with what the parent had.
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime
heavy = sorted({"torch", "numpy"} & set(sys.modules))
facts = [code, heavy, read, int(peak) * 1024, seconds]
print(json.dumps(facts), file=sys.stderr)
"""


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts reads as Linux does")
@pytest.mark.parametrize(
    "given",
    [
        *("summary", "tree", "params", "cache", "masks", "check"),
        # A kind is arithmetic on the same headers; one that packs knows what the others do.
        "cache --cache quantized-4",
    ],
)
def test_only_headers_are_read(large: Path, given: str) -> None:
    view, *more = given.split()
    args = ["inspect-layers", "-m", str(large), "--view", view, *more]
    done = subprocess.run(
        [sys.executable, "-c", READS, *args], capture_output=True, text=True, check=True
    )
    code, heavy, read, peak, seconds = json.loads(done.stderr.splitlines()[-1])
    # There is no tokenizer to check.
    assert (code, heavy) == (int(view == "check"), [])
    # Everything that Python reads of its own modules counts too.
    assert read < 20e6
    assert peak < 200e6
    # Measured 0.4: the work itself, whatever else the machine does.
    assert seconds < 3
    assert done.stdout


def test_the_tree_of_70_billion(large: Path, invoke: Invoke) -> None:
    done = invoke("inspect-layers", "-m", str(large), "--view", "tree", "--view", "params")
    assert "(0-79): 80 x Block" in done.out
    assert "<- model.layers.{i}.self_attn.q_proj.weight BF16" in done.out
    assert "70,553,706,496" in done.out
    assert done.err == ""


def test_cut_and_missing_files_are_listed_with_a_warning(large: Path, invoke: Invoke) -> None:
    names = sorted(file.name for file in large.glob("*.safetensors"))
    broken = large.parent / "broken"
    broken.mkdir()
    for file in large.iterdir():
        if file.name != names[0]:
            (broken / file.name).symlink_to(file)
    cut = broken / names[1]
    header = cut.read_bytes() if cut.stat().st_size < 1 << 20 else cut.open("rb").read(1 << 16)
    cut.unlink()
    cut.write_bytes(header)
    done = invoke("inspect-layers", "-m", str(broken))
    assert done.code == 0
    assert f"warning: {names[0]} is missing" in done.out
    assert f"warning: {names[1]} is cut" in done.out
    failed = invoke("inspect-layers", "-m", str(broken), "--view", "check")
    assert failed.code == 1
    assert f"{names[0]} is missing" in failed.out
