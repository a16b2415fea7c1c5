"""The next view: candidates in rows, stages and settings in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmcli.cli.columns import folded, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, bars
from llmcli.cli.inspecting.token_words import quoted
from llmcli.insight.bounds import check_between

if TYPE_CHECKING:
    from llmcli.insight.next_token import NextToken, Shaped

_TOP, _MOST = 10, 1000


def _compute(subject: Subject, asked: Asked) -> NextToken:
    check_between("--top", asked.top, 1, _MOST)
    prompt, engine = subject.prompt, subject.engine
    from llmcli.engine.options import GenerateOptions
    from llmcli.insight.next_token import TAKEN_DOWN, next_token

    count = asked.top or _TOP
    flags = replace(subject.flags, max_new_tokens=1)
    generation = engine.generate(
        prompt, GenerateOptions(flags=flags, explain=max(count, TAKEN_DOWN))
    )
    for _ in generation:
        pass
    assert generation.explanation, "there is room for a token, as the prompt was checked"
    return next_token(
        engine.loaded.decoder,
        prompt.ids,
        generation.explanation[0],
        strategy=generation.settings.strategy,
        count=count,
        name=subject.token_text,
    )


def _lines(found: NextToken, width: int | None) -> list[str]:
    drawn = ", ".join(f"{one:.4f}" for one in found.draws)
    about = f"Strategy {found.strategy} takes {quoted(found.chosen_token)}"
    about += f", drawn with {drawn}." if found.draws else "."
    lines = folded(about, width)
    lines += ["", *_table(found, found.stages, [one.values for one in found.candidates], width)]
    lines += ["", *folded("One setting at a time, each on the model's own distribution:", width)]
    return [
        *lines,
        "",
        *_table(found, found.alone, [one.alone for one in found.candidates], width),
    ]


def _table(
    found: NextToken,
    stages: Sequence[Shaped],
    values: Sequence[Sequence[float | None]],
    width: int | None,
) -> list[str]:
    rows = [
        (
            str(one.id),
            quoted(one.token),
            f"{one.logit:.3f}",
            *(_value(v, s) for v, s in zip(row, stages, strict=True)),
        )
        for one, row in zip(found.candidates, values, strict=True)
    ]
    rows += [
        ("", "tokens left", "", *(f"{stage.left:,}" for stage in stages)),
        ("", "entropy, bits", "", *(_bits(stage) for stage in stages)),
    ]
    header = ("id", "token", "logit", *(stage.name for stage in stages))
    return table(header, rows, width, left=(1,))


def _value(value: float | None, stage: Shaped) -> str:
    if value is None:
        return "less"
    if stage.entropy_bits is None:
        return f"{value:.3f}"
    return f"{100 * value:.2f}%" if value else "cut"


def _bits(stage: Shaped) -> str:
    return "-" if stage.entropy_bits is None else f"{stage.entropy_bits:.2f}"


def _pictures(found: NextToken) -> list[Svg]:
    def rows(stage: Shaped, values: Sequence[float | None]) -> list[tuple[str, float, str]]:
        named = zip(found.candidates, values, strict=True)
        return [(quoted(one.token), value or 0.0, _value(value, stage)) for one, value in named]

    def drawn(stages: Sequence[Shaped], table: Sequence[Sequence[float | None]]) -> list[Svg]:
        return [
            bars(stage.name, rows(stage, [row[at] for row in table]), length=240)
            for at, stage in enumerate(stages)
            if stage.entropy_bits is not None
        ]

    return [
        *drawn(found.stages, [one.values for one in found.candidates]),
        *drawn(found.alone, [one.alone for one in found.candidates]),
    ]


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
