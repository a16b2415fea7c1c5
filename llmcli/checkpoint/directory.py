"""A checkpoint's folder in Hugging Face form: its JSON files and its table of tensors.

Reads headers only; every file it opens lies in the folder. Must not know torch or families.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmcli.checkpoint.escape import printable, shortlist
from llmcli.checkpoint.header import StoredTensor, read_header
from llmcli.errors import CheckpointError

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class ModelDir:
    """A folder that holds config.json; `config` is its parsed content."""

    path: Path
    config: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> ModelDir:
        """Raises CheckpointError when there is no folder or no readable config.json."""
        if not path.is_dir():
            raise CheckpointError(
                f"{printable(str(path))} is not a folder",
                hint="give a folder that holds config.json, tokenizer.json and *.safetensors",
            )
        if not (path / "config.json").is_file():
            adapter = (path / "adapter_config.json").is_file()
            raise CheckpointError(
                f"{printable(str(path))} holds no config.json"
                + (", only an adapter (adapter_config.json)" if adapter else ""),
                hint="merge the adapter into its base model first"
                if adapter
                else "give the folder of a whole checkpoint in Hugging Face form",
            )
        return cls(path, read_json(path / "config.json"))

    def generation_config(self) -> dict[str, Any]:
        """generation_config.json, or nothing where there is none."""
        file = self.path / "generation_config.json"
        return read_json(file) if file.is_file() else {}

    def tensors(self) -> dict[str, StoredTensor]:
        """Every stored tensor by name, proved from headers alone."""
        if (self.path / _SINGLE).exists():
            return read_header(self.path / _SINGLE).tensors
        if (self.path / _INDEX).exists():
            return self._sharded()
        raise CheckpointError(
            f"{printable(str(self.path))} holds no {_SINGLE} and no {_INDEX}",
            hint=self._what_else(),
        )

    def weight_files(self) -> list[Path]:
        """The files that should hold the weights, whether they are there or not."""
        if (self.path / _SINGLE).exists() or not (self.path / _INDEX).exists():
            return [self.path / _SINGLE]
        return [self.path / shard for shard in self._index()[1]]

    def _index(self) -> tuple[dict[str, str], list[str]]:
        """Tensor names to file names, and the files, all of which lie in the folder."""
        weight_map = read_json(self.path / _INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not all(
            isinstance(shard, str) for shard in weight_map.values()
        ):
            raise CheckpointError(
                f"{_INDEX} has no weight_map of tensor names to file names",
                hint="fetch the index again",
            )
        shards = sorted(set(weight_map.values()))
        for shard in shards:
            if Path(shard).name != shard or "\\" in shard or shard in ("", ".", ".."):
                raise CheckpointError(
                    f"{_INDEX} points outside its folder: {printable(shard)}",
                    hint="do not use this checkpoint; its index was written to deceive",
                )
        return weight_map, shards

    def _sharded(self) -> dict[str, StoredTensor]:
        weight_map, shards = self._index()
        lacking = [shard for shard in shards if not (self.path / shard).exists()]
        if lacking:
            raise CheckpointError(
                f"{len(lacking)} of {len(shards)} weight files are missing: {shortlist(lacking)}",
                hint="the download is not complete; fetch the missing files",
            )
        found: dict[str, StoredTensor] = {}
        for shard in shards:
            for name, tensor in read_header(self.path / shard).tensors.items():
                if weight_map.get(name) != shard:
                    raise CheckpointError(
                        f"{printable(shard)} holds `{printable(name)}`, which {_INDEX} "
                        f"places in {printable(str(weight_map.get(name, 'no file')))}",
                        hint="index and weight files are of different versions; fetch both again",
                    )
                found[name] = tensor
        absent = [name for name in weight_map if name not in found]
        if absent:
            raise CheckpointError(
                f"{_INDEX} lists {len(absent)} tensors that no file holds: {shortlist(absent)}",
                hint="index and weight files are of different versions; fetch both again",
            )
        return found

    def _what_else(self) -> str:
        names = sorted(entry.name for entry in self.path.iterdir())
        if any(name.endswith((".bin", ".pt", ".pth", ".ckpt")) for name in names):
            return "pickled weights are never loaded; convert them to safetensors"
        if any(name.endswith(".gguf") for name in names):
            return "convert the GGUF file first: llmcli convert FILE.gguf OUT_DIR"
        return "the weights are missing; fetch the checkpoint again"


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; CheckpointError names the file and what is wrong with it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CheckpointError(
            f"{printable(path.name)} cannot be read: {error.strerror or error}",
            hint="check the file's permissions",
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{printable(path.name)} is not valid JSON: {printable(str(error))}",
            hint=f"fetch it again, or correct it: {printable(str(path))}",
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{printable(path.name)} holds {type(value).__name__}, not an object",
            hint=f"fetch it again: {printable(str(path))}",
        )
    return value
