"""LoadPlan: the proof, from headers alone, that a file and a spec fit each other exactly.

Every stored tensor is consumed or ignored by name, every parameter is made exactly once with
the right shape. Must not know torch or families: it gets tables and rules, and returns a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmcli.checkpoint.escape import printable, shortlist
from llmcli.checkpoint.header import StoredTensor
from llmcli.checkpoint.rules import Ignore, Rename, Rule, Split, Tie
from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.spec.parameters import Shape

LOADABLE = frozenset({"F32", "F16", "BF16", "F64"})
_SUFFIXES = (".weight", ".bias")


@dataclass(frozen=True, slots=True)
class Cut:
    """Columns [start, stop) of the stored rows viewed as [groups, width]."""

    groups: int
    width: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """How one parameter is made of one stored tensor."""

    target: str
    shape: Shape
    source: StoredTensor
    transpose: bool = False
    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """All assignments in the order of the file, and the stored copies that tying makes idle."""

    assignments: tuple[Assignment, ...]
    repeats: tuple[tuple[StoredTensor, Assignment], ...]


@dataclass(slots=True)
class _Problems:
    missing: list[str]
    unexpected: list[str]
    misshapen: list[str]

    def any(self) -> bool:
        return bool(self.missing or self.unexpected or self.misshapen)

    def line(self) -> str:
        parts = [
            f"{label}: {shortlist(names)}"
            for label, names in (
                ("missing", self.missing),
                ("unexpected", self.unexpected),
                ("misshapen", self.misshapen),
            )
            if names
        ]
        return "; ".join(parts)


def make_plan(
    expected: Mapping[str, Shape],
    stored: Mapping[str, StoredTensor],
    rules: Sequence[Rule],
    *,
    num_layers: int,
    prefixes: Sequence[str],
) -> LoadPlan:
    """Match stored tensors with expected parameters.

    Raises CheckpointError listing both sides of every mismatch in one message, and
    UnsupportedError for dtypes that are not plain floating point numbers.
    """
    prefix = _prefix(prefixes, stored, rules)
    made: dict[str, Assignment] = {}
    ties: list[Tie] = []
    idle: set[str] = set()
    problems = _Problems([], [], [])
    for rule in _expanded(rules, prefix, num_layers):
        if isinstance(rule, Ignore):
            idle.add(rule.name)
        elif isinstance(rule, Tie):
            ties.append(rule)
        else:
            for assignment in _assignments(rule, expected, stored, problems):
                assert assignment.target not in made, f"two rules make {assignment.target}"
                made[assignment.target] = assignment
    repeats = [
        (stored[tie.src], made[tie.dst]) for tie in ties if tie.src in stored and tie.dst in made
    ]
    used = {assignment.source.name for assignment in made.values()}
    used |= {tensor.name for tensor, _ in repeats} | idle
    problems.unexpected += [
        f"{name} {list(tensor.shape)}" for name, tensor in stored.items() if name not in used
    ]
    unmade = [name for name in expected if name not in made]
    named = {target for target, _ in _sources(rules, prefix, num_layers)}
    assert all(name in named for name in unmade), f"no rule makes {unmade}"
    if problems.any():
        raise CheckpointError(
            f"the weights do not fit config.json ({problems.line()})",
            hint="config and weights are of different models or versions; fetch both again",
        )
    _check_dtypes([item.source for item in made.values()] + [copy for copy, _ in repeats])
    order = sorted(made.values(), key=lambda item: (str(item.source.file), item.source.start))
    return LoadPlan(tuple(order), tuple(repeats))


def _prefix(
    prefixes: Sequence[str], stored: Mapping[str, StoredTensor], rules: Sequence[Rule]
) -> str:
    """The first prefix under which the file holds the first rule's module."""
    first = next(rule.src for rule in rules if isinstance(rule, Rename))
    for prefix in prefixes:
        path = first.replace("{p}", prefix)
        if any(path + suffix in stored for suffix in _SUFFIXES):
            return prefix
    return prefixes[0]


def _expanded(rules: Sequence[Rule], prefix: str, num_layers: int) -> Iterator[Rule]:
    for rule in rules:
        if isinstance(rule, Ignore):
            for name in _paths(rule.name, prefix, num_layers):
                yield Ignore(name)
        elif isinstance(rule, Tie):
            yield Tie(rule.src.replace("{p}", prefix), rule.dst)
        else:
            for index, src in enumerate(_paths(rule.src, prefix, num_layers)):
                if isinstance(rule, Rename):
                    yield Rename(src, rule.dst.replace("{i}", str(index)), rule.transpose)
                else:
                    to = tuple(dst.replace("{i}", str(index)) for dst in rule.to)
                    yield Split(src, to, rule.groups, rule.sizes, rule.transpose)


def _paths(path: str, prefix: str, num_layers: int) -> list[str]:
    path = path.replace("{p}", prefix)
    if "{i}" not in path:
        return [path]
    return [path.replace("{i}", str(index)) for index in range(num_layers)]


def _sources(rules: Sequence[Rule], prefix: str, num_layers: int) -> Iterator[tuple[str, str]]:
    for rule in _expanded(rules, prefix, num_layers):
        for target in _targets(rule):
            for suffix in _SUFFIXES:
                yield target + suffix, f"{getattr(rule, 'src', '')}{suffix}"


def _targets(rule: Rule) -> tuple[str, ...]:
    if isinstance(rule, Rename):
        return (rule.dst,)
    return rule.to if isinstance(rule, Split) else ()


def _assignments(
    rule: Rename | Split,
    expected: Mapping[str, Shape],
    stored: Mapping[str, StoredTensor],
    problems: _Problems,
) -> Iterator[Assignment]:
    for suffix in _SUFFIXES:
        wanted = [name + suffix for name in _targets(rule)]
        if not any(name in expected for name in wanted):
            continue
        source = stored.get(rule.src + suffix)
        if source is None:
            problems.missing.append(rule.src + suffix)
            continue
        transpose = rule.transpose and len(source.shape) == 2
        found = source.shape[::-1] if transpose else source.shape
        if found != (need := _needed(rule, [expected[name] for name in wanted])):
            shown = need[::-1] if transpose else need
            problems.misshapen.append(
                f"{source.name} is {list(source.shape)}, config says {list(shown)}"
            )
            yield from (Assignment(name, expected[name], source) for name in wanted)
            continue
        if isinstance(rule, Rename):
            yield Assignment(wanted[0], expected[wanted[0]], source, transpose)
            continue
        start = 0
        for name, size in zip(wanted, rule.sizes, strict=True):
            cut = Cut(rule.groups, sum(rule.sizes), start, start + size)
            yield Assignment(name, expected[name], source, transpose, cut)
            start += size


def _needed(rule: Rename | Split, shapes: list[Shape]) -> Shape:
    """The stored shape (after any transposition) that yields the expected parts."""
    if isinstance(rule, Rename):
        return shapes[0]
    for shape, size in zip(shapes, rule.sizes, strict=True):
        assert shape[0] == rule.groups * size, f"{rule.src}: part {shape} is not {size} a group"
    return (rule.groups * sum(rule.sizes), *shapes[0][1:])


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
