"""The ablate view: two texts and how far apart the models are, or a ranking of parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llmcli.checkpoint.escape import printable
from llmcli.cli import interrupts
from llmcli.cli.columns import folded, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, bars, heat_map
from llmcli.cli.inspecting.token_words import compact, quoted
from llmcli.cli.progress import StepProgress
from llmcli.cli.side_by_side import Column, laid_out
from llmcli.engine.flags import Flags
from llmcli.errors import UsageError
from llmcli.insight.bounds import check_between
from llmcli.insight.edits import Edits, read_edits

if TYPE_CHECKING:
    from llmcli.engine.generation import Generation
    from llmcli.insight.ablation import Change, Effect, Sweep

_NEW_TOKENS = 40
_TOP, _MOST = 10, 100_000
# Tokens of a prompt that a sweep looks at; it reads them once for each part.
_SWEPT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What the model says without the edits and with them, and the measures along the first."""

    edits: tuple[str, ...]
    strategy: str
    base: str
    changed: str
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """`effects` begin with the largest loss; they are not all where it was interrupted."""

    what: str
    tokens: int
    left_out: int
    loss: float | None
    effects: tuple[Effect, ...]
    parts: int
    shown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablated:
    """One of both."""

    compared: Compared | None = None
    swept: Swept | None = None


def _compute(subject: Subject, asked: Asked) -> Ablated:
    check_between("--top", asked.top, 1, _MOST)
    edits = read_edits(
        subject.facts.spec,
        skip_layer=asked.skip_layer or (),
        zero_head=asked.zero_head or (),
        zero_mlp=asked.zero_mlp or (),
        scale_mlp=asked.scale_mlp or (),
    )
    if asked.sweep is not None:
        return Ablated(swept=_sweep(subject, asked, edits))
    if not edits:
        raise UsageError(
            "view ablate was told nothing to take out",
            hint="give --skip-layer N, --zero-head LAYER.HEAD, --zero-mlp N, --scale-mlp N=FACTOR "
            "or --sweep heads",
        )
    if asked.top is not None:
        raise UsageError("--top is for --sweep, which ranks", hint="leave --top out")
    return Ablated(compared=_compare(subject, edits))


def _compare(subject: Subject, edits: Edits) -> Compared:
    prompt, decoder = subject.prompt, subject.engine.loaded.decoder
    import torch

    from llmcli.insight.ablation import compare, taps_for
    from llmcli.model.taps import tapped

    flags = subject.flags
    if replace(flags, max_new_tokens=None) == Flags():
        flags = replace(flags, strategy="greedy")
    flags = replace(flags, max_new_tokens=flags.max_new_tokens or _NEW_TOKENS)
    base = _generated(subject, flags, "the text as it is")
    if (seed := base.settings.used.get("seed")) is not None:
        flags = replace(flags, seed=seed.value)  # the same draws for both
    with tapped(decoder, taps_for(decoder, edits)):
        changed = _generated(subject, flags, "the changed text")
    ids = torch.tensor([[*prompt.ids, *base.ids]], device=decoder.device)
    return Compared(
        edits=edits.told(),
        strategy=base.settings.strategy,
        base=base.text,
        changed=changed.text,
        change=compare(decoder, ids, edits, new=len(prompt.ids), name=subject.token_text),
    )


def _generated(subject: Subject, flags: Flags, label: str) -> Generation:
    from llmcli.engine.options import GenerateOptions

    generation = subject.engine.generate(subject.prompt, GenerateOptions(flags=flags))
    with StepProgress(label) as bar:
        for _ in generation:
            bar(len(generation.ids), flags.max_new_tokens or _NEW_TOKENS)
    return generation


def _sweep(subject: Subject, asked: Asked, edits: Edits) -> Swept:
    what, ids = _kind(asked.sweep or ""), subject.prompt.ids
    if edits:
        raise UsageError(
            f"--sweep takes each part out alone; besides it {', '.join(edits.told())}",
            hint="give --sweep, or what to take out",
        )
    if subject.flags != Flags():
        raise UsageError(
            "--sweep generates nothing, so that it reads no setting of decoding",
            hint="leave the settings out",
        )
    if len(ids) < 2:
        raise UsageError(
            "--sweep predicts each token of the prompt from those before it, and there "
            f"is only {len(ids)}",
            hint="give a longer prompt",
        )
    decoder = subject.engine.loaded.decoder
    import torch

    from llmcli.insight.ablation import parts_of, sweep

    held, parts = torch.tensor([ids[:_SWEPT]], device=decoder.device), parts_of(decoder, what)
    found: list[Effect] = []
    with StepProgress(f"taking out {what}") as bar:
        try:
            for effect in sweep(decoder, held, what):
                found.append(effect)
                bar(len(found), len(parts))
        except KeyboardInterrupt:
            interrupts.acknowledge()
    return Swept(
        what=what,
        tokens=held.shape[1],
        left_out=len(ids) - held.shape[1],
        loss=found[0].loss - found[0].change if found else None,
        effects=tuple(sorted(found, key=lambda one: -one.change)),
        parts=len(parts),
        shown=asked.top or _TOP,
    )


def _kind(text: str) -> Sweep:
    for kind in ("heads", "layers", "mlps"):
        if text == kind:
            return kind
    raise UsageError(
        f"--sweep {printable(repr(text), 60)} is none of heads, layers, mlps",
        hint="--sweep heads ranks all heads by what the loss is without each",
    )


def _lines(found: Ablated, width: int | None) -> list[str]:
    if found.swept is not None:
        return _swept(found.swept, width)
    assert found.compared is not None
    return _compared(found.compared, width)


def _compared(found: Compared, width: int | None) -> list[str]:
    change = found.change
    columns = [
        Column("as it is", found.base, _loss(change, 0)),
        Column(", ".join(found.edits), found.changed, _loss(change, 1)),
    ]
    about = (
        "Along the text as it is, both models having read the same tokens, the chance of each "
        f"token, and KL(as it is || changed) in nats; {change.mean_kl or 0:.4f} on average, the "
        "prompt included:"
    )
    rows = [
        (
            str(one.position),
            quoted(one.token),
            _percent(one.base_prob),
            _percent(one.changed_prob),
            f"{one.kl:.4f}",
        )
        for one in change.tokens
        if one.position >= change.new
    ]
    header = ("at", "token", "as it is", "changed", "KL")
    return [
        *laid_out(columns, width),
        "",
        *folded(about, width),
        "",
        *table(header, rows, width, left=(1,)),
    ]


def _loss(change: Change, which: int) -> tuple[tuple[str, str], ...]:
    named = (("loss on the prompt", change.prompt_loss), ("on the first text", change.text_loss))
    return tuple((name, f"{pair[which]:.4f}") for name, pair in named if pair is not None)


def _swept(found: Swept, width: int | None) -> list[str]:
    if found.loss is None:
        return ["interrupted before any part was taken out"]
    told = f"on the prompt's first {found.tokens} tokens" if found.left_out else "on the prompt"
    about = (
        f"Loss {told}: {found.loss:.4f} nats a token. Below it is how much more it is with one "
        f"part taken out, for {len(found.effects):,} of {found.parts:,} {_MANY[found.what]}."
    )
    if len(found.effects) < found.parts:
        about += " Interrupted: the others were not tried."
    ranked = found.effects
    kept = list(ranked[: found.shown])
    rest = ranked[found.shown :]
    last = list(rest[-3:])
    rows = [_effect(one) for one in kept]
    if skipped := len(rest) - len(last):
        rows.append((f"{skipped:,} more between", "", ""))
    rows += [_effect(one) for one in last]
    return [*folded(about, width), "", *table(("without", "loss", "change"), rows, width)]


_MANY = {"heads": "heads", "layers": "layers", "mlps": "MLPs"}


def _effect(one: Effect) -> tuple[str, ...]:
    name = f"layer {one.layer}" + (f" head {one.head}" if one.head is not None else "")
    return (name, f"{one.loss:.4f}", f"{one.change:+.4f}")


def _pictures(found: Ablated) -> list[Svg]:
    if found.compared is not None:
        new = found.compared.change.new
        rows = [
            (f"{one.position} {compact(one.token, 16)}", one.kl, f"{one.kl:.4f}")
            for one in found.compared.change.tokens
            if one.position >= new
        ]
        return [bars(f"KL a token, in nats: {', '.join(found.compared.edits)}", rows)]
    assert found.swept is not None
    layers = sorted({one.layer for one in found.swept.effects})
    heads = sorted({one.head or 0 for one in found.swept.effects})
    change = {(one.layer, one.head or 0): one.change for one in found.swept.effects}
    title = f"change of the loss, in nats a token, without each of the {_MANY[found.swept.what]}"
    values = [[change.get((layer, head)) for head in heads] for layer in layers]
    columns = [f"head {head}" for head in heads] if found.swept.what == "heads" else ["change"]
    return [heat_map(title, values, rows=[f"layer {one}" for one in layers], columns=columns)]


def _percent(prob: float) -> str:
    return f"{100 * prob:.1f}%"


def _interrupted(found: Ablated) -> bool:
    return found.swept is not None and len(found.swept.effects) < found.swept.parts


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures, interrupted=_interrupted)
