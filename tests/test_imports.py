"""The shape of the house: imports point down only, torch stays where it belongs, one printer."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "llmcli"

# What each room may import, itself aside. A new room needs a row, and a thought.
_DISK = {"errors", "spec", "checkpoint", "families"}
_MATHS = {"errors", "spec", "cache", "kernels", "model"}
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "plurals": set(),
    "whole_file": set(),
    "spec": {"errors"},
    "cache": {"errors", "spec"},
    "kernels": {"errors"},
    "model": {"errors", "spec", "cache", "kernels"},
    "checkpoint": {"errors", "spec"},
    "families": {"errors", "spec", "checkpoint"},
    "text": {"errors"},
    "acquire": _DISK,
    "generation": _MATHS,
    "bench": _MATHS | {"generation"},
    "insight": _MATHS | _DISK | {"generation", "plurals", "text"},
    "chat": {"errors", "plurals", "whole_file", "text"},
    "engine": _MATHS | _DISK | {"generation", "bench", "text", "acquire", "chat"},
}
BELOW["engine"] |= {"plurals", "whole_file"}
BELOW["cli"] = set(BELOW)
BELOW["__main__"] = {"cli"}

# Rooms in which no import of torch may stand, not even inside a function.
WITHOUT_TORCH = {"errors", "plurals", "spec", "checkpoint", "families", "text", "acquire", "chat"}
BUT_WITH_TORCH = {"checkpoint/tensors.py"}
# Here torch may be imported only inside functions, as `llmcli --help` must not wait for it.
LATE_TORCH = {"cli", "__main__"}
HEAVY = {"torch", "transformers"}

MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@dataclass(frozen=True, slots=True)
class Import:
    """`room` is that of llmcli, or "" for another package, whose name `package` holds."""

    room: str
    package: str
    line: int
    late: bool


def _room(module: str) -> str:
    return module.split("/")[0].removesuffix(".py")


def _imports(source: str) -> Iterator[Import]:
    def walk(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield from _named(child, late)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(child, late or inside)

    return walk(ast.parse(source), False)


def _named(node: ast.Import | ast.ImportFrom, late: bool) -> Iterator[Import]:
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: relative imports hide the room"
        parents = [node.module or ""]
        if node.module == "llmcli":
            parents = [f"llmcli.{alias.name}" for alias in node.names]
    else:
        parents = [alias.name for alias in node.names]
    for name in parents:
        package, _, rest = name.partition(".")
        own = package == "llmcli"
        # Dunder names such as __version__ are the package's own, below every room.
        room = rest.split(".")[0] if own and not rest.startswith("__") else ""
        yield Import(room, package, node.lineno, late)


def _faults(module: str, source: str) -> list[str]:
    room = _room(module)
    if room == "__init__":
        return [f"{one.line}: the package itself imports" for one in _imports(source) if one.room]
    allowed = BELOW[room] | {room, ""}
    found = []
    for one in _imports(source):
        if one.room not in allowed:
            found.append(f"{one.line}: {room} may not import {one.room}")
        torch_free = room in WITHOUT_TORCH and module not in BUT_WITH_TORCH
        if one.package in HEAVY and (torch_free or (room in LATE_TORCH and not one.late)):
            found.append(f"{one.line}: {room} may not import {one.package}")
        if one.package == "transformers":
            found.append(f"{one.line}: transformers is for tests only")
    return found


def test_every_room_has_a_row() -> None:
    rooms = {_room(module) for module in MODULES} - {"__init__"}
    assert rooms <= set(BELOW), f"rooms without a row: {rooms - set(BELOW)}"


def test_the_table_has_no_cycle() -> None:
    seen: set[str] = set()
    for room, below in BELOW.items():
        assert below <= seen, f"{room} imports {below - seen}, which comes later"
        seen.add(room)


def test_imports_point_down() -> None:
    assert len(MODULES) > 100
    faults = [
        f"llmcli/{module}:{fault}"
        for module in MODULES
        for fault in _faults(module, (PACKAGE / module).read_text(encoding="utf-8"))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("module", "source", "faults"),
    [
        ("spec/rope.py", "import torch", 1),
        ("spec/rope.py", "from llmcli.model import Decoder", 1),
        ("spec/rope.py", "def f():\n    from llmcli import model", 1),
        ("text/x.py", "def f():\n    import torch.nn", 1),
        ("checkpoint/tensors.py", "import torch", 0),
        ("checkpoint/plan.py", "import torch", 1),
        ("cli/x.py", "import torch", 1),
        ("cli/x.py", "if True:\n    from torch import Tensor", 1),
        ("cli/x.py", "def f():\n    import torch", 0),
        ("model/x.py", "from llmcli.checkpoint.plan import make_plan", 1),
        ("generation/x.py", "import llmcli.text.tokenizer", 1),
        ("engine/x.py", "from llmcli import __version__, cli", 1),
        ("engine/x.py", "import transformers", 1),
        ("errors.py", "import llmcli.spec", 1),
        ("__init__.py", "from llmcli.spec import DecoderSpec", 1),
    ],
)
def test_the_check_can_fail(module: str, source: str, faults: int) -> None:
    assert bool(_faults(module, source)) is bool(faults)


def test_no_family_imports_another() -> None:
    files = [PACKAGE / module for module in MODULES if _room(module) == "families"]
    single = {file.stem for file in files if "\nFAMILY" in file.read_text(encoding="utf-8")}
    assert len(single) > 20
    for name in single:
        tree = ast.parse((PACKAGE / "families" / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "llmcli.families"
            ):
                imported = {*(node.module or "").split("."), *(one.name for one in node.names)}
                assert not imported & (single - {name}), f"{name}, line {node.lineno}"


def test_torch_free_rooms_load_without_torch() -> None:
    """As a program, since an import may pull torch in through another package."""
    modules = [
        "llmcli." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for module in MODULES
        if _room(module) in WITHOUT_TORCH | {"cli"} and module not in BUT_WITH_TORCH
    ]
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        f"    assert not {HEAVY!r} & set(sys.modules), name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_only_the_terminal_prints() -> None:
    for module in MODULES:
        if module == "cli/terminal.py":
            continue
        for node in ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"llmcli/{module}, line {node.lineno} prints"


def test_no_module_is_called_utils() -> None:
    assert not {Path(module).stem for module in MODULES} & {"utils", "util", "helpers", "misc"}
