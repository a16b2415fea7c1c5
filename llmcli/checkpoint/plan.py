"""LoadPlan: the proof, from headers alone, that a file and a spec fit each other exactly.

Every stored tensor is consumed or ignored by name, every parameter is made exactly once with
the right shape. Must not know torch or families: it gets tables and rules, and returns a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmcli.checkpoint.escape import printable, shortlist
from llmcli.checkpoint.expand import Piece, first_module, ignored, pieces, ties
from llmcli.checkpoint.header import StoredTensor
from llmcli.checkpoint.rules import Rule
from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.spec.parameters import Shape

LOADABLE = frozenset({"F32", "F16", "BF16", "F64"})


@dataclass(frozen=True, slots=True)
class Assignment:
    """How one parameter is made of stored tensors.

    `packed`: they are the codes and scales of a matrix in llmcli's own quantised form.
    """

    piece: Piece
    shape: Shape
    sources: tuple[StoredTensor, ...]
    packed: bool = False

    @property
    def target(self) -> str:
        return self.piece.target

    @property
    def source(self) -> StoredTensor:
        return self.sources[0]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """All assignments in the order of the file, and the stored copies that tying makes idle."""

    assignments: tuple[Assignment, ...]
    repeats: tuple[tuple[StoredTensor, Assignment], ...]


def make_plan(
    expected: Mapping[str, Shape],
    stored: Mapping[str, StoredTensor],
    rules: Sequence[Rule],
    *,
    num_layers: int,
    num_experts: int = 0,
    prefixes: Sequence[str],
) -> LoadPlan:
    """Match stored tensors with expected parameters.

    Raises CheckpointError listing both sides of every mismatch in one message, and
    UnsupportedError for dtypes that are not plain floating point numbers.
    """
    prefix = _prefix(prefixes, stored, rules)
    made: dict[str, Assignment] = {}
    claimed: set[str] = set()
    missing: dict[str, None] = {}
    misshapen: dict[str, None] = {}
    for piece in pieces(
        rules, expected, prefix=prefix, num_layers=num_layers, num_experts=num_experts
    ):
        assert piece.target not in claimed, f"two rules make {piece.target}"
        claimed.add(piece.target)
        sources = tuple(stored[name] for name in piece.sources if name in stored)
        missing.update(dict.fromkeys(name for name in piece.sources if name not in stored))
        misshapen.update(
            (f"{tensor.name} is {list(tensor.shape)}, config says {list(piece.needed)}", None)
            for tensor in sources
            if tensor.shape != piece.needed
        )
        if len(sources) == len(piece.sources):
            made[piece.target] = Assignment(piece, expected[piece.target], sources)
    unmade = [name for name in expected if name not in claimed]
    assert not unmade, f"no rule makes {unmade}"
    repeats = tuple(
        (stored[tie.src], made[tie.dst])
        for tie in ties(rules, prefix=prefix)
        if tie.src in stored and tie.dst in made
    )
    used = ignored(rules, stored, prefix=prefix, num_layers=num_layers)
    used |= {tensor.name for item in made.values() for tensor in item.sources}
    used |= {tensor.name for tensor, _ in repeats}
    unexpected = [
        f"{name} {list(tensor.shape)}" for name, tensor in stored.items() if name not in used
    ]
    refuse_misfits(missing=missing, unexpected=unexpected, misshapen=misshapen)
    _check_dtypes(
        [tensor for item in made.values() for tensor in item.sources]
        + [copy for copy, _ in repeats]
    )
    order = sorted(made.values(), key=lambda item: (str(item.source.file), item.source.start))
    return LoadPlan(tuple(order), repeats)


def _prefix(
    prefixes: Sequence[str], stored: Mapping[str, StoredTensor], rules: Sequence[Rule]
) -> str:
    """The first prefix under which the file holds the first rule's module."""
    module = first_module(rules)
    for prefix in prefixes:
        if f"{module.replace('{p}', prefix)}.weight" in stored:
            return prefix
    return prefixes[0]


def refuse_misfits(**kinds: Iterable[str]) -> None:
    """Raise CheckpointError with all that does not fit, each kind under its label."""
    listed = {label: shortlist(names) for label, names in kinds.items()}
    problems = "; ".join(f"{label}: {names}" for label, names in listed.items() if names)
    if problems:
        raise CheckpointError(
            f"the weights do not fit config.json ({problems})",
            hint="config and weights are of different models or versions; fetch both again",
        )


def _check_dtypes(tensors: Iterable[StoredTensor]) -> None:
    odd = {
        f"{printable(tensor.name)} ({tensor.dtype})"
        for tensor in tensors
        if tensor.dtype not in LOADABLE
    }
    if odd:
        raise UnsupportedError(
            f"{len(odd)} weights are not plain floating point numbers: {shortlist(sorted(odd))}",
            hint="quantised checkpoints are not supported; use the float16 or bfloat16 one",
        )
